//! Who assigns: by what workers tell servers apart, and what one has taken over from another.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use steadfast_api::proto;
use steadfast_core::event::AttemptId;
use steadfast_store::{OwnedShards, Owner};

use super::proof::Proofs;
use super::session::Peer;
use super::{Kind, SessionRegistry};

/// The server's owner, unique among all servers: those of one installation share its key and have owners of their own.
#[derive(Debug)]
pub struct Scope {
    installation: String,
    pub(super) id: String,
    epoch: AtomicU64,
    shards: Arc<OwnedShards>,
    /// The scopes that were taken over, with their epochs.
    taken_over: Mutex<HashMap<String, u64>>,
}

impl Scope {
    pub fn new(proofs: &Proofs, owner: &Owner, shards: Arc<OwnedShards>) -> Self {
        let installation = proofs.installation();
        let id = format!("{installation}/{}", owner.id);
        let (epoch, taken_over) = (AtomicU64::new(owner.epoch), Mutex::default());
        Self { installation, id, epoch, shards, taken_over }
    }

    pub(super) fn epoch(&self) -> u64 {
        self.epoch.load(Ordering::SeqCst)
    }

    /// Of another owner of this installation.
    fn of(&self, owner: &str) -> String {
        format!("{}/{owner}", self.installation)
    }

    /// As what the server speaks of a job, and in which epoch: of its shard, in the term in which it has it. None: another server has
    /// it, and this one has nothing to say of it.
    pub(super) fn of_job(&self, job: &str) -> Option<(String, u64)> {
        if !self.shards.are_shared() {
            return Some((String::new(), self.epoch()));
        }
        let shard = self.shards.shard_of(job);
        Some((format!("{}#{shard}", self.installation), self.shards.term(shard)?))
    }

    pub(super) fn withdrawal(&self, attempt: proto::AttemptRef) -> Option<proto::Withdrawal> {
        let (scope, epoch) = self.of_job(&attempt.job_id)?;
        Some(proto::Withdrawal { attempt: Some(attempt), scope, epoch })
    }
}

impl SessionRegistry {
    /// This server's own epoch has risen.
    pub fn raise_epoch(&self, epoch: u64) {
        self.0.parts.scope.epoch.fetch_max(epoch, Ordering::SeqCst);
    }

    /// What that server said before this epoch is of no use any more: workers are told that when they come in.
    pub fn server_ended(&self, owner: &str, epoch: u64) {
        self.remember(self.0.parts.scope.of(owner), epoch);
    }

    fn remember(&self, scope: String, epoch: u64) {
        let taken_over = &self.0.parts.scope.taken_over;
        let mut taken_over = taken_over.lock().unwrap_or_else(PoisonError::into_inner);
        let known = taken_over.entry(scope).or_default();
        *known = epoch.max(*known);
    }

    /// A worker has come that holds these for others, and they are this server's.
    pub(super) fn adopt(
        &self,
        peer: &Peer,
        adopted: &[AttemptId],
        held: &HashMap<AttemptId, proto::AttemptRef>,
    ) {
        let scope = &self.0.parts.scope;
        let taken_over = scope.taken_over.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let mut told: BTreeMap<(String, u64), Vec<proto::AttemptRef>> =
            taken_over.into_iter().map(|ended| (ended, Vec::new())).collect();
        for attempt in adopted.iter().filter_map(|id| held.get(id)) {
            // Gone again meanwhile: the one that has it says so.
            let Some(shard) = scope.of_job(&attempt.job_id) else { continue };
            told.entry(shard).or_default().push(attempt.clone());
        }
        for ((scope, epoch), attempts) in told {
            if let Some(session) = self.sessions().get_mut(&peer.name) {
                session.held.extend(attempts.iter().map(proto::AttemptRef::id));
            }
            self.say(peer, Kind::TookOver(proto::TookOver { scope, epoch, attempts }));
        }
    }
}
