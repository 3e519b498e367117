//! What an operator should know of a store: looked at, never changed.

use std::fs;
use std::io;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};

use rustix::fs::statfs;
use serde::Serialize;
use steadfast_core::time::{Timestamp, human_ms};

use crate::folder::Folder;
use crate::sqlite::{SqliteStore, log_of};
use crate::{JobCounts, Reader as _, StoreError};

/// One thing that was looked at.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    pub check: &'static str,
    pub severity: Severity,
    /// What was found.
    pub said: String,
    /// What to do about it.
    pub advice: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Severity {
    Ok,
    /// It works, and will surprise.
    Warning,
    Problem,
}

impl Finding {
    pub fn ok(check: &'static str, said: impl Into<String>) -> Self {
        Self { check, severity: Severity::Ok, said: said.into(), advice: None }
    }

    pub fn warning(
        check: &'static str,
        said: impl Into<String>,
        advice: impl Into<String>,
    ) -> Self {
        let (said, advice) = (said.into(), Some(advice.into()));
        Self { check, severity: Severity::Warning, said, advice }
    }

    pub fn problem(
        check: &'static str,
        said: impl Into<String>,
        advice: impl Into<String>,
    ) -> Self {
        let (said, advice) = (said.into(), Some(advice.into()));
        Self { check, severity: Severity::Problem, said, advice }
    }

    pub(crate) fn of_jobs(counts: &JobCounts) -> Self {
        let (open, stuck) = (counts.open(), counts.stuck);
        if stuck == 0 {
            return Self::ok("jobs", format!("{open} of servers are open, none is stuck"));
        }
        Self::warning(
            "jobs",
            format!("{open} of servers are open, {stuck} are stuck"),
            "`steadfast list --state stuck` shows them, `steadfast explain JOB` why, `steadfast purge JOB` removes one",
        )
    }
}

const MIB: u64 = 1 << 20;
/// More in the write-ahead log than this, and somebody keeps it from being moved.
const LARGE_LOG: u64 = 128 * MIB;
/// Clocks of one machine do not differ by so much.
const AHEAD_MS: u64 = 5_000;

/// File systems that are gone with the machine, or whose locks and syncs are not to be trusted, by their numbers in statfs(2).
const IN_MEMORY: [u64; 2] = [0x0102_1994, 0x8584_58f6];
const ELSEWHERE: [u64; 4] = [0x6969, 0x517b, 0xff53_4d42, 0xfe53_4d42];

/// `reserve`: bytes of the disk at which new jobs are refused.
pub(crate) fn folder(folder: &Folder, now: Timestamp, reserve: u64) -> Vec<Finding> {
    let mut found = vec![place(folder)];
    if found[0].severity == Severity::Problem {
        return found;
    }
    found.extend(room(folder).map(|room| disk(room, reserve)));
    found.push(server(folder, now));
    match SqliteStore::open_read_only(&folder.database()) {
        Ok(mut store) => match database(&mut store, folder, now) {
            Ok(more) => found.extend(more),
            Err(error) => found.push(unreadable(&error)),
        },
        Err(_) if !folder.database().exists() => {
            let said = "there is none yet; the first job or server makes it";
            found.push(Finding::ok("database", said));
        }
        Err(error) => found.push(unreadable(&error)),
    }
    found
}

pub(crate) fn unreadable(error: &StoreError) -> Finding {
    // The error says what to do.
    let (said, advice) = match error.to_string().split_once(". ") {
        Some((said, advice)) => (said.to_owned(), advice.to_owned()),
        None => (error.to_string(), "restore a backup".to_owned()),
    };
    Finding::problem("database", said, advice)
}

fn place(folder: &Folder) -> Finding {
    let (root, shown) = (folder.root(), folder.root().display());
    let about = match fs::metadata(root) {
        Ok(about) if about.is_dir() => about,
        Ok(_) => {
            let said = format!("{shown} is no folder");
            return Finding::problem("folder", said, "give another with --data");
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return Finding::ok(
                "folder",
                format!("{shown} is not there yet; a server or `run` makes it"),
            );
        }
        Err(error) => {
            let advice = "start this as the user that the server has, or change its rights";
            return Finding::problem("folder", format!("{shown}: {error}"), advice);
        }
    };
    let (mode, us) = (about.permissions().mode() & 0o777, rustix::process::geteuid().as_raw());
    if us != 0 && about.uid() != us {
        let said = format!("{shown} belongs to user {}, and this is user {us}", about.uid());
        return Finding::warning("folder", said, "start this as the user that the server has");
    }
    if mode & 0o077 != 0 {
        let said =
            format!("others can look into {shown} (mode {mode:o}): jobs have private things");
        return Finding::warning("folder", said, format!("chmod 700 {shown}"));
    }
    let kind = statfs(root).map_or(0, |about| about.f_type as u64);
    if IN_MEMORY.contains(&kind) {
        let said = format!("{shown} is in memory: what is acknowledged is gone with the machine");
        return Finding::warning("folder", said, "give a folder on a disk with --data");
    }
    if ELSEWHERE.contains(&kind) {
        let said =
            format!("{shown} is on another machine, whose locks and syncs SQLite cannot rely on");
        return Finding::problem(
            "folder",
            said,
            "give a folder on a local disk, or use PostgreSQL",
        );
    }
    Finding::ok("folder", format!("{shown}, for its owner alone"))
}

/// Bytes of a disk.
struct Room {
    free: u64,
    all: u64,
}

fn room(folder: &Folder) -> Option<Room> {
    let about = rustix::fs::statvfs(folder.root()).ok()?;
    let bytes = |blocks: u64| blocks.saturating_mul(about.f_frsize);
    Some(Room { free: bytes(about.f_bavail), all: bytes(about.f_blocks) })
}

fn disk(Room { free, all }: Room, reserve: u64) -> Finding {
    let said = format!("{} of {} MiB are free", free / MIB, all / MIB);
    let advice = "purge ended jobs (`steadfast purge --older 30d`), or give it more room";
    if free < reserve {
        let said =
            format!("{said}, less than the reserve of {} MiB: new jobs are refused", reserve / MIB);
        Finding::problem("disk", said, advice)
    } else if free < reserve.saturating_mul(4) || free < all / 50 {
        Finding::warning("disk", said, advice)
    } else {
        Finding::ok("disk", said)
    }
}

/// Of a place that no server may have. The reason says what to do.
pub(crate) fn moved(why: &str) -> Finding {
    let (said, advice) = why.split_once(". ").unwrap_or((why, "start the server there"));
    Finding::warning("server", said, advice)
}

fn server(folder: &Folder, now: Timestamp) -> Finding {
    if let Ok(Some(why)) = folder.is_moved() {
        return moved(&why);
    }
    let alive = fs::metadata(folder.server_lock()).and_then(|about| about.modified()).ok();
    let alive = alive.and_then(|at| at.duration_since(std::time::UNIX_EPOCH).ok());
    let alive = alive.map(|since| Timestamp(since.as_millis() as u64));
    match alive {
        _ if folder.is_served() => Finding::ok("server", "one has this folder"),
        None => Finding::ok("server", "none has had this folder"),
        Some(at) if at > now.plus(AHEAD_MS) => ahead("a server was last alive", at.since(now)),
        Some(at) => {
            let ago = human_ms(now.since(at));
            Finding::ok("server", format!("none has this folder; the last one was there {ago} ago"))
        }
    }
}

fn ahead(what: &str, ms: u64) -> Finding {
    Finding::problem(
        "clock",
        format!(
            "{what} {} in the future: this machine's clock was set back, or is wrong",
            human_ms(ms)
        ),
        "set the clock, and have it kept by NTP; until then delays last longer by as much",
    )
}

fn database(
    store: &mut SqliteStore,
    folder: &Folder,
    now: Timestamp,
) -> Result<Vec<Finding>, StoreError> {
    let size = |path| fs::metadata(path).map_or(0, |about: fs::Metadata| about.len());
    let (bytes, log) = (size(folder.database()), size(log_of(&folder.database())));
    let mut found = vec![];
    let wrong = store.check()?;
    found.push(match &wrong[..] {
        [] => Finding::ok("database", format!("{} MiB, and whole", bytes.div_ceil(MIB))),
        [first, ..] => Finding::problem(
            "database",
            format!("it is damaged: {first}"),
            "stop the server, keep a copy of the file with its -wal, and restore a backup",
        ),
    });
    if log > LARGE_LOG {
        found.push(Finding::warning(
            "write-ahead log",
            format!("{} MiB wait to be moved to the database", log / MIB),
            "somebody reads it for very long, as a copy or a shell of sqlite3 does: end that",
        ));
    }
    let newest = store.newest()?.unwrap_or_default();
    found.push(if newest > now.plus(AHEAD_MS) {
        ahead("the newest job was submitted", newest.since(now))
    } else {
        Finding::ok("clock", "nothing stored is of the future")
    });
    found.push(Finding::of_jobs(&store.counts()?));
    Ok(found)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::FileExt as _;

    use super::*;
    use crate::{Journal as _, Owner};

    const NOW: Timestamp = Timestamp(1_800_000_000_000);

    fn made() -> (tempfile::TempDir, Folder) {
        let place = tempfile::tempdir().unwrap();
        let folder = Folder::new(place.path().join("data"));
        folder.create().unwrap();
        let mut store = SqliteStore::open(&folder.database()).unwrap();
        store.take(Owner::SHARD, NOW, None).unwrap();
        (place, folder)
    }

    fn found(folder: &Folder, reserve: u64) -> Vec<(&'static str, Severity)> {
        let found = super::folder(folder, NOW, reserve);
        assert!(found.iter().all(|it| (it.severity == Severity::Ok) == it.advice.is_none()));
        found.into_iter().map(|it| (it.check, it.severity)).collect()
    }

    #[test]
    fn a_healthy_folder_has_nothing_wrong_and_one_that_is_not_there_is_not_made() {
        let (place, folder) = made();
        let mut all = found(&folder, 0);
        // How full the disk of the tests is, and whether it is one, is not the folder's doing.
        all.retain(|(check, _)| !["disk", "folder"].contains(check));
        let ok = ["server", "database", "clock", "jobs"].map(|check| (check, Severity::Ok));
        assert_eq!(all, ok);
        let absent = Folder::new(place.path().join("absent"));
        assert!(found(&absent, 0).iter().all(|(_, severity)| *severity == Severity::Ok));
        assert!(!absent.root().exists());
    }

    #[test]
    fn a_disk_is_told_of_before_new_jobs_are_refused() {
        let of = |free, all, reserve| {
            disk(Room { free: free * MIB, all: all * MIB }, reserve * MIB).severity
        };
        assert_eq!(of(500, 1_000, 100), Severity::Ok);
        assert_eq!(of(399, 1_000, 100), Severity::Warning);
        assert_eq!(of(100, 1_000, 100), Severity::Warning);
        assert_eq!(of(99, 1_000, 100), Severity::Problem);
        assert_eq!(of(19, 1_000, 0), Severity::Warning);
    }

    #[test]
    fn what_is_wrong_is_told_with_what_to_do() {
        let (_place, folder) = made();
        assert!(found(&folder, u64::MAX).contains(&("disk", Severity::Problem)));
        fs::set_permissions(folder.root(), fs::Permissions::from_mode(0o755)).unwrap();
        assert!(found(&folder, 0).contains(&("folder", Severity::Warning)));
        let lock = fs::File::create(folder.server_lock()).unwrap();
        let future = std::time::UNIX_EPOCH + std::time::Duration::from_millis(NOW.0 + 60_000);
        lock.set_modified(future).unwrap();
        assert!(found(&folder, 0).contains(&("clock", Severity::Problem)));
    }

    #[test]
    fn a_damaged_database_is_told_of() {
        let (_place, folder) = made();
        let file = fs::File::options().write(true).open(folder.database()).unwrap();
        file.write_all_at(&[0xff; 512], 4096).unwrap();
        let all = found(&folder, 0);
        assert!(all.contains(&("database", Severity::Problem)), "{all:?}");
        fs::write(folder.database(), "somebody's notes").unwrap();
        assert!(found(&folder, 0).contains(&("database", Severity::Problem)));
        let note = Folder::new(folder.database());
        assert_eq!(found(&note, 0), [("folder", Severity::Problem)]);
    }
}
