//! What `up` brings along: the name of its worker, and tokens for that and for the programs of its user.

use std::fs::{File, TryLockError};

use steadfast_server::config::Config;
use steadfast_server::tokens::{Scope, Tokens};
use steadfast_store::Storage;
use steadfast_worker::remote::Token;

use super::{file_name, host_name};
use crate::clock;
use crate::data::Data;

/// How long the tokens are good for that `up` makes; they are taken back at the end.
const OWN_TOKEN_MS: u64 = 365 * 86_400_000;
/// What they are called, and the worker in a data folder that no other server has.
const OWN_TOKEN: &str = "steadfast up";
const OWN_WORKER: &str = "local";
/// Of the worker, in the data folder.
pub(super) const WORKER_FOLDER: &str = "worker-local";
/// Characters of the folder's id in the name of its worker.
const ID_CHARS: usize = 6;

/// What the worker of `up` goes by. Of a database that other machines have as well, its name is one that none of them has.
pub(super) fn worker_name(config: &Config, data: &Data) -> Result<String, String> {
    if config.store.url.is_none() {
        return Ok(OWN_WORKER.to_owned());
    }
    data.create()?;
    // Its tokens are revoked by one that comes after it.
    let lock = data.folder.root().join(WORKER_FOLDER).join("lock");
    let is_held = |file: File| matches!(file.try_lock(), Err(TryLockError::WouldBlock));
    if File::open(lock).is_ok_and(is_held) {
        let root = data.folder.root().display();
        return Err(format!(
            "another `up` runs with the data folder {root}; give another with --data"
        ));
    }
    let id = data.folder.id().map_err(|error| error.to_string())?;
    let id = id.get(..ID_CHARS).unwrap_or(&id);
    Ok(format!("up-{}-{id}", file_name(&host_name())))
}

/// For the worker that `up` brings along, and for the programs of its user. They end with it.
pub(super) struct OwnTokens {
    tokens: Tokens,
    name: String,
    pub(super) client: Token,
    pub(super) worker: Token,
    ids: [String; 2],
}

impl OwnTokens {
    pub(super) fn make(storage: &dyn Storage, worker: &str) -> Result<Self, String> {
        let name = match worker {
            OWN_WORKER => OWN_TOKEN.to_owned(),
            worker => format!("{OWN_TOKEN}: {worker}"),
        };
        let now = clock::now();
        let tokens = Tokens::open(storage.settings()).map_err(|error| error.to_string())?;
        let expires = Some(now.plus(OWN_TOKEN_MS));
        let make = |scope| {
            let made = tokens.create(scope, Some(&name), expires, now);
            made.map_err(|error| error.to_string())
        };
        let (client, worker) = (make(Scope::Admin)?, make(Scope::Worker)?);
        let ids = [client.id, worker.id];
        Ok(Self { tokens, name, client: Token(client.text), worker: Token(worker.text), ids })
    }

    /// One that was killed took none of its tokens back. This one has the folder to itself.
    pub(super) fn forget_earlier(&self) {
        for token in self.tokens.list().unwrap_or_default() {
            if token.name.as_deref() == Some(&*self.name) && !self.ids.contains(&token.id) {
                let _ = self.tokens.revoke(&token.id);
            }
        }
    }
}

impl Drop for OwnTokens {
    fn drop(&mut self) {
        for id in &self.ids {
            let _ = self.tokens.revoke(id);
        }
    }
}
