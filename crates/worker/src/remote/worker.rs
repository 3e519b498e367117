//! The worker of a server: its executor, and what a session asks of it and tells it.

use std::ops::Deref;
use std::time::Duration;

use steadfast_api::proto;
use steadfast_core::event::AttemptId;

use super::connect::Client;
use super::transport::SessionTransport;
use super::worker_dir::WorkerDir;
use super::{RemoteConfig, RemoteError, attempt};
use crate::executor::{PREEMPTED, Settled};
use crate::lease::clock;
use crate::{Driver, Transport as _};

/// The worker of a server: its executor, and the way to the server. Clones are the same worker.
#[derive(Clone, Debug)]
pub(super) struct Worker(pub(super) Driver<SessionTransport>);

impl Deref for Worker {
    type Target = SessionTransport;

    fn deref(&self) -> &SessionTransport {
        self.0.transport()
    }
}

impl Worker {
    pub(super) fn new(config: RemoteConfig, dir: WorkerDir) -> Result<Self, RemoteError> {
        let (path, slots) = (dir.root().to_owned(), config.slots);
        let runtime = tokio::runtime::Handle::current();
        let transport = SessionTransport::new(config, dir, &runtime)?;
        let driver = Driver::start(slots, transport, Some(runtime));
        driver.map(Self).map_err(|source| RemoteError::Folder { path, source })
    }

    pub(super) fn assign(&self, assignment: proto::Assignment) {
        let Some(attempt) = &assignment.attempt else {
            tracing::warn!("the server assigned something without saying what it is");
            return;
        };
        let id = attempt.id();
        if self.state().reports.keeps(&id) {
            return;
        }
        if let Err(why) = attempt::check(&assignment) {
            tracing::warn!(attempt = ?id.to_string(), %why, "refused");
            let outcome = attempt::permanent("assignment_refused", why);
            return self.report(
                &id,
                Settled::not_begun(attempt.clone(), outcome, String::new()),
                None,
            );
        }
        let was_idle = self.0.is_idle();
        self.0.assign(assignment);
        if was_idle {
            self.changed();
        }
    }

    /// What the server must know that we have.
    pub(super) fn holds(&self) -> Vec<proto::AttemptRef> {
        // In order, and each once: one that is being reported may be in both.
        let mut holds: Vec<_> = self.0.with(|executor| executor.attempts().collect());
        holds.extend(self.state().reports.attempts());
        holds.sort_by(|(one, _), (other, _)| one.cmp(other));
        holds.dedup_by(|(one, _), (other, _)| one == other);
        holds.into_iter().map(|(_, attempt)| attempt).collect()
    }

    pub(super) fn withdraw(&self, id: &AttemptId) {
        self.0.withdraw(id);
        self.acknowledged(id);
    }

    pub(super) fn welcomed(&self, client: Client, hello_sent: Duration, welcome: &proto::Welcome) {
        self.limits.welcome(welcome);
        let lease = Duration::from_millis(welcome.lease_ms);
        self.0.with(|executor| executor.lease().welcome(hello_sent, lease));
        let mut state = self.state();
        let waker = state.welcomed(client);
        drop(state);
        if let Some(waker) = waker {
            waker.wake();
        }
        self.0.look_at_the_clock();
        self.changed();
    }

    pub(super) fn disconnected(&self) {
        let mut state = self.state();
        state.client = None;
        state.reports.disconnected();
        drop(state);
        self.changed();
    }

    /// The session, if there is one, may end.
    pub(super) fn say_goodbye(&self) {
        self.state().leaving = true;
        self.changed();
    }

    /// The number of the beat that is about to be sent.
    pub(super) fn beat(&self) -> u64 {
        self.0.with(|executor| executor.lease().beat(clock()))
    }

    pub(super) fn answered(&self, number: u64) {
        self.0.with(|executor| executor.lease().answered(number));
    }

    pub(super) fn lease_is_over(&self) -> bool {
        self.0.with(|executor| executor.lease_is_over(clock()))
    }

    pub(super) fn lease_length(&self) -> Option<Duration> {
        self.0.with(|executor| executor.lease().length())
    }

    /// Takes new work again, if it was the server that wanted none taken: who is told to go by its own host goes.
    /// The server is answered either way.
    pub(super) fn undrain(&self) {
        self.0.with(crate::Executor::undrain);
        self.state().undrain_unanswered = true;
        self.changed();
    }

    pub(super) fn draining(&self) -> Option<String> {
        self.0.with(|executor| executor.draining().map(str::to_owned))
    }

    /// At once, and nothing new.
    pub(super) fn kill_all(&self) {
        self.0.drain(PREEMPTED);
        self.0.preempt();
        self.0.kill_all();
    }

    pub(super) fn is_idle(&self) -> bool {
        self.0.is_idle()
    }
}
