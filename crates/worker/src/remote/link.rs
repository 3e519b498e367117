//! A worker and one of its servers: what a session with it asks of the worker and tells it.

use std::ops::Deref;
use std::sync::{Arc, MutexGuard};
use std::time::Duration;

use steadfast_api::proto;
use steadfast_core::event::AttemptId;
use steadfast_core::outcome::Outcome;
use tonic::Status;

use super::attempt;
use super::connect::Client;
use super::server::{Server, State};
use super::transport::{ServerAttempt, ServerWork};
use super::worker::Worker;
use crate::Transport as _;
use crate::credits::Grant;
use crate::executor::Settled;
use crate::lease::clock;

/// Clones are the same.
#[derive(Clone, Debug)]
pub(super) struct Link {
    worker: Worker,
    pub(super) server: Arc<Server>,
}

impl Deref for Link {
    type Target = Worker;

    fn deref(&self) -> &Worker {
        &self.worker
    }
}

impl Link {
    pub(super) fn new(worker: &Worker, server: &Arc<Server>) -> Self {
        Self { worker: worker.clone(), server: server.clone() }
    }

    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.server.state()
    }

    pub(super) fn assign(&self, assignment: proto::Assignment) {
        let Some(attempt) = assignment.attempt.clone() else {
            tracing::warn!("the server assigned something without saying what it is");
            return;
        };
        let id = attempt.id();
        if self.is_taken_over() || self.is_late(&assignment.scope, assignment.epoch) {
            tracing::warn!(attempt = ?id.to_string(), "assigned by a server that was taken over");
            return;
        }
        // What runs is in hand until its report is kept: asked in this order, it is in one of them. Also of another server: what lies
        // on the disk is by this name. Then that server's word came before this one's, which has its job now.
        if self.0.with(|executor| executor.holds(&id))
            || self.servers().iter().any(|server| server.state().reports.keeps(&id))
        {
            self.take_over(&[id]);
            return;
        }
        let work = ServerWork { server: self.server.clone(), assignment };
        if let Err(why) = attempt::check(&work.assignment) {
            tracing::warn!(attempt = ?id.to_string(), %why, "refused");
            let outcome = attempt::permanent("assignment_refused", why);
            let attempt = ServerAttempt { server: work.server, attempt };
            return self.report(&id, Settled::not_begun(attempt, outcome, String::new()), None);
        }
        let was_idle = self.is_idle();
        self.0.assign(work);
        if was_idle {
            self.changed();
        }
    }

    /// What the server must know that we have.
    pub(super) fn holds(&self) -> Vec<proto::AttemptRef> {
        self.held_of(&self.server)
    }

    /// What others have assigned: one of them may have gone, and this server have what it had. Also one that has not welcomed this life of
    /// the worker, which has reports of the one before.
    pub(super) fn elsewhere(&self) -> Vec<proto::HeldOfScope> {
        let others: Vec<_> = self.servers().clone();
        let others = others.iter().filter(|other| other.source != self.server.source);
        let held = others.map(|other| proto::HeldOfScope {
            scope: other.scope().unwrap_or_default(),
            holds: self.held_of(other),
            returning: other.is_welcomed(),
        });
        held.filter(|held| !(held.scope.is_empty() && held.holds.is_empty())).collect()
    }

    fn held_of(&self, server: &Server) -> Vec<proto::AttemptRef> {
        let source = server.source;
        // In order, and each once: one that is being reported may be in both.
        let mut holds: Vec<_> = self.0.with(|executor| {
            executor.attempts(source).map(|(id, attempt)| (id, attempt.attempt)).collect()
        });
        holds.extend(server.state().reports.attempts());
        holds.sort_by(|(one, _), (other, _)| one.cmp(other));
        holds.dedup_by(|(one, _), (other, _)| one == other);
        holds.into_iter().map(|(_, attempt)| attempt).collect()
    }

    /// Said in an epoch that is over, of this session's scope if none is named.
    fn is_late(&self, scope: &str, epoch: u64) -> bool {
        let scope = if scope.is_empty() { self.server.scope() } else { Some(scope.to_owned()) };
        scope.is_some_and(|scope| self.0.with(|executor| executor.is_fenced(&scope, epoch)))
    }

    /// Another server has what this one had.
    pub(super) fn is_taken_over(&self) -> bool {
        let epoch = self.state().epoch;
        self.is_late("", epoch)
    }

    /// Whether a session with the server that has answered so is worth having. An address that leads to a server that the worker knows
    /// by another one stays idle while that one is in reach; then it has what that one had.
    pub(super) fn admit(&self, welcome: &proto::Welcome) -> Result<(), Status> {
        let proto::Welcome { scope, epoch, .. } = welcome;
        if scope.is_empty() {
            return Ok(());
        }
        if self.0.with(|executor| executor.is_fenced(scope, *epoch)) {
            return Err(Status::unavailable("another server has taken over what it had"));
        }
        let is_it = |other: &Arc<Server>| {
            other.source != self.server.source && other.scope().as_ref() == Some(scope)
        };
        let twin = self.servers().iter().find(|other| is_it(other)).cloned();
        if let Some(twin) = twin {
            if twin.is_welcomed() && !twin.is_out_of_reach() {
                let why = format!("it is the server at {}", twin.name.address);
                self.state().twin = Some(twin);
                return Err(Status::aborted(why));
            }
            self.replace(&twin);
        }
        let mut state = self.state();
        (state.scope, state.epoch) = (Some(scope.clone()), *epoch);
        Ok(())
    }

    /// This address is used instead of the other.
    fn replace(&self, twin: &Arc<Server>) {
        let running = self
            .0
            .with(|executor| executor.attempts(twin.source).map(|(id, _)| id).collect::<Vec<_>>());
        let mut state = twin.state();
        let kept = state.reports.attempts().map(|(id, _)| id).chain(state.logs.of_ended());
        let ids: Vec<AttemptId> = running.into_iter().chain(kept).collect();
        (state.scope, state.twin) = (None, Some(self.server.clone()));
        drop(state);
        self.take_over(&ids);
    }

    /// Returns what is not in hand.
    fn take_over(&self, ids: &[AttemptId]) -> Vec<AttemptId> {
        let missing = self.0.with(|executor| executor.take_over(self.server.source, ids));
        self.take_home(&self.server, ids);
        self.0.fill();
        missing
    }

    /// This server has what a scope had, and these of it are ours.
    pub(super) fn took_over(&self, took_over: proto::TookOver) {
        let proto::TookOver { scope, epoch, attempts } = took_over;
        if self.is_taken_over() || self.is_late(&scope, epoch) {
            return;
        }
        let named: Vec<_> = attempts.into_iter().map(|attempt| (attempt.id(), attempt)).collect();
        let ids: Vec<AttemptId> = named.iter().map(|(id, _)| id.clone()).collect();
        tracing::info!(scope, attempts = ids.len(), "the server has taken over from another");
        let missing = self.take_over(&ids);
        for (id, attempt) in named.into_iter().filter(|(id, _)| missing.contains(id)) {
            if self.state().reports.keeps(&id) {
                continue;
            }
            // It was in hand when the server was told so, and has been given up since.
            let outcome = Outcome::Lost { started: true, why: None };
            let attempt = ServerAttempt { server: self.server.clone(), attempt };
            let why = "not in hand when another server took it over".to_owned();
            self.report(&id, Settled::not_begun(attempt, outcome, why), None);
        }
        self.0.look_at_the_clock();
        self.changed();
    }

    pub(super) fn withdraw(&self, withdrawal: &proto::Withdrawal) {
        let Some(id) = withdrawal.attempt.as_ref().map(proto::AttemptRef::id) else { return };
        if self.is_late(&withdrawal.scope, withdrawal.epoch) {
            return;
        }
        // Of a shard that is this server's, whoever assigned it.
        let is_ours = || self.0.with(|executor| executor.is_from(&id, self.server.source));
        if !withdrawal.scope.is_empty() && !is_ours() {
            self.take_over(std::slice::from_ref(&id));
        }
        if is_ours() {
            self.0.withdraw(&id);
        }
        self.acknowledged(&id);
    }

    pub(super) fn acknowledged(&self, id: &AttemptId) {
        self.worker.acknowledged(&self.server, id);
    }

    /// The server has all of it, or wants no more.
    pub(super) fn log_sent(&self, id: &AttemptId) {
        self.worker.log_sent(&self.server, id);
    }

    /// For a hello. None: all slots.
    pub(super) fn greet(&self) -> Option<u32> {
        self.0.with(|executor| executor.credits().greet(self.server.source))
    }

    pub(super) fn welcomed(&self, client: Client, hello_sent: Duration, welcome: &proto::Welcome) {
        self.server.limits.welcome(welcome);
        self.server.set_tries(0);
        let lease = Duration::from_millis(welcome.lease_ms);
        let not_held = welcome.not_held.iter().map(proto::AttemptRef::id).collect();
        self.0.with(|executor| {
            executor.welcomed(self.server.source, &not_held);
            executor.lease(self.server.source).welcome(hello_sent, lease);
            executor.credits().welcomed(self.server.source);
        });
        let mut state = self.state();
        let waker = state.welcomed(client);
        drop(state);
        if let Some(waker) = waker {
            waker.wake();
        }
        self.0.look_at_the_clock();
        self.learn(&welcome.peers);
        self.changed();
    }

    /// Also of a session that was never welcomed.
    pub(super) fn disconnected(&self) {
        self.0.with(|executor| executor.credits().session_ended(self.server.source));
        let mut state = self.state();
        state.client = None;
        state.reports.disconnected();
        drop(state);
        self.0.fill();
        self.changed();
    }

    /// The number of the beat that is about to be sent.
    pub(super) fn beat(&self) -> u64 {
        self.0.with(|executor| executor.lease(self.server.source).beat(clock()))
    }

    pub(super) fn answered(&self, number: u64) {
        self.0.with(|executor| executor.lease(self.server.source).answered(number));
    }

    pub(super) fn lease_is_over(&self) -> bool {
        self.0.with(|executor| executor.lease_is_over(self.server.source, clock()))
    }

    pub(super) fn lease_length(&self) -> Option<Duration> {
        self.0.with(|executor| executor.lease(self.server.source).length())
    }

    pub(super) fn drain(&self) {
        self.0.drain_source(self.server.source);
    }

    /// Takes new work again, if it was the server that wanted none taken: who is told to go by its own host goes.
    /// The server is answered either way.
    pub(super) fn undrain(&self) {
        self.0.with(|executor| executor.undrain_source(self.server.source));
        self.state().undrain_unanswered = true;
        self.changed();
    }

    pub(super) fn draining(&self) -> Option<String> {
        self.0.with(|executor| executor.draining(self.server.source).map(str::to_owned))
    }

    /// What the server is to know about its credits.
    pub(super) fn next_grant(&self) -> Option<Grant> {
        self.0.with(|executor| executor.next_grant(self.server.source, clock()))
    }

    pub(super) fn credits_taken(&self, number: u64) {
        self.0.with(|executor| executor.credits().taken(self.server.source, number));
        self.0.fill();
        self.changed();
    }

    pub(super) fn wanted(&self) {
        self.0.with(|executor| executor.credits().wanted(self.server.source, clock()));
        self.changed();
    }
}
