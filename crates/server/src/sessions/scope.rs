//! Who assigns: by what workers tell servers apart, and what one has taken over from another.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use steadfast_api::proto;
use steadfast_core::event::AttemptId;
use steadfast_store::Owner;

use super::proof::Proofs;
use super::session::Peer;
use super::{Kind, SessionRegistry};

/// The server's owner, unique among all servers: those of one installation share its key and have owners of their own.
#[derive(Debug)]
pub struct Scope {
    installation: String,
    pub(super) id: String,
    epoch: AtomicU64,
    /// The scopes that were taken over, with their epochs.
    taken_over: Mutex<HashMap<String, u64>>,
}

impl Scope {
    pub fn new(proofs: &Proofs, owner: &Owner) -> Self {
        let installation = proofs.installation();
        let id = format!("{installation}/{}", owner.id);
        let (epoch, taken_over) = (AtomicU64::new(owner.epoch), Mutex::default());
        Self { installation, id, epoch, taken_over }
    }

    pub(super) fn epoch(&self) -> u64 {
        self.epoch.load(Ordering::SeqCst)
    }

    /// Of another owner of this installation.
    fn of(&self, owner: &str) -> String {
        format!("{}/{owner}", self.installation)
    }

    pub(super) fn withdrawal(&self, attempt: proto::AttemptRef) -> proto::Withdrawal {
        proto::Withdrawal { attempt: Some(attempt), scope: String::new(), epoch: self.epoch() }
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
        scopes: &HashMap<AttemptId, (String, proto::AttemptRef)>,
    ) {
        let taken_over = &self.0.parts.scope.taken_over;
        let taken_over = taken_over.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let mut told: HashMap<String, Vec<proto::AttemptRef>> =
            taken_over.keys().map(|scope| (scope.clone(), Vec::new())).collect();
        for (scope, attempt) in adopted.iter().filter_map(|id| scopes.get(id)) {
            told.entry(scope.clone()).or_default().push(attempt.clone());
        }
        for (scope, attempts) in told {
            if let Some(session) = self.sessions().get_mut(&peer.name) {
                session.held.extend(attempts.iter().map(proto::AttemptRef::id));
            }
            // 0: it is there, and has given these away.
            let epoch = taken_over.get(&scope).copied().unwrap_or_default();
            self.say(peer, Kind::TookOver(proto::TookOver { scope, epoch, attempts }));
        }
    }
}
