//! What a store knows of moves: whether servers may have it.

use std::io;

use serde::{Deserialize, Serialize};

use crate::{Settings, is_postgres};

/// Kept as a setting of this name.
pub(crate) const NAME: &str = "move.json";

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "state", rename_all = "snake_case")]
pub enum MoveRecord {
    /// Nothing was moved, or that was taken back.
    #[default]
    Open,
    /// Jobs are being moved to it from there; some may be missing.
    Coming { from: String },
    /// All came from there. `epoch`: of [`Owner::SHARD`](crate::Owner::SHARD) then; a server has raised it since, or another owner has them.
    Arrived { from: String, epoch: u64 },
    /// Its jobs are there.
    Gone { to: String },
}

impl MoveRecord {
    pub(crate) fn of(settings: &dyn Settings) -> io::Result<Self> {
        Self::read(settings.get(NAME)?.1.as_deref())
    }

    pub(crate) fn read(bytes: Option<&[u8]>) -> io::Result<Self> {
        let Some(bytes) = bytes else { return Ok(Self::Open) };
        serde_json::from_slice(bytes)
            .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, format!("{NAME}: {error}")))
    }

    pub(crate) fn bytes(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("strings are JSON")
    }

    /// Why no server may have the place.
    pub(crate) fn closes(&self, place: &str) -> Option<String> {
        match self {
            Self::Open | Self::Arrived { .. } => None,
            Self::Coming { from } => Some(format!(
                "jobs are being moved to it from {from}, and not all are here. Finish that with `steadfast migrate --from {from} --to {place}`"
            )),
            Self::Gone { to } => {
                let flag = if is_postgres(to) { "--store" } else { "--data" };
                Some(format!(
                    "its jobs were moved to {to}. Start the server with {flag} {to}, or take the move back with `steadfast migrate --from {place} \
                     --to {to} --undo`"
                ))
            }
        }
    }
}

/// Whoever asks: places of databases have a user in them, and never a password.
pub(super) fn is_same_place(one: &str, other: &str) -> bool {
    let plain = |place: &str| match place.split_once("://") {
        Some((_, rest)) => rest.rsplit_once('@').map_or(rest, |(_, host)| host).to_owned(),
        None => place.to_owned(),
    };
    plain(one) == plain(other)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_the_same_whoever_asks_for_it() {
        let database = "postgres://admin@db:5432/jobs";
        assert!(is_same_place(database, "postgres://steadfast@db:5432/jobs"));
        assert!(is_same_place(database, "postgres://db:5432/jobs"));
        assert!(!is_same_place(database, "postgres://admin@db:5432/other"));
        assert!(
            is_same_place("/data/a@b", "/data/a@b") && !is_same_place("/data/a@b", "/data/c@b")
        );
    }

    #[test]
    fn a_record_is_read_back_and_one_that_is_none_is_refused() {
        let all = [
            MoveRecord::Open,
            MoveRecord::Coming { from: "/a".to_owned() },
            MoveRecord::Arrived { from: "/a".to_owned(), epoch: 7 },
            MoveRecord::Gone { to: "postgres://db/jobs".to_owned() },
        ];
        for record in all {
            assert_eq!(MoveRecord::read(Some(&record.bytes())).unwrap(), record);
        }
        assert_eq!(MoveRecord::read(None).unwrap(), MoveRecord::Open);
        assert!(MoveRecord::read(Some(b"{}")).is_err());
    }
}
