//! One of the worker's servers: what it has said, and what is to be said to it.
//!
//! Nothing slow happens while its state is locked: no disk, no network.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::Waker;

use steadfast_api::proto;

use super::connect::Client;
use super::dial::Dialer;
use super::held;
use super::logs::Logs;
use super::reports::Reports;
use crate::{LOG_CAP, OUTPUT_CAP, Source};

/// One address of a server is tried in vain this often before another one of it is used: a server that restarts is back soon.
const TRIES_UNTIL_TWIN: u32 = 3;

/// By what the worker's folder tells its servers apart.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub(super) struct ServerName {
    #[prost(string, tag = "1")]
    pub(super) address: String,
    /// Another server has named it, and not who started the worker.
    #[prost(bool, tag = "2")]
    pub(super) learned: bool,
}

impl ServerName {
    /// What is kept for `before` is this one's. `alone`: it is the one that the worker was started for, and may
    /// have had another address when that was kept.
    pub(super) fn is_that_of(&self, before: &Self, alone: bool) -> bool {
        self.address == before.address || (alone && !self.learned && !before.learned)
    }
}

#[derive(Debug)]
pub(super) struct Server {
    pub(super) source: Source,
    pub(super) name: ServerName,
    pub(super) dialer: Dialer,
    pub(super) limits: Limits,
    state: Mutex<State>,
    /// Since it last answered.
    tries: AtomicU32,
}

/// What the server allows an attempt, from its last welcome.
#[derive(Debug)]
pub(super) struct Limits {
    log_bytes: AtomicU64,
    output_bytes: AtomicU64,
}

impl Limits {
    /// They hold for attempts that begin from now on. A server that says none has those of old.
    pub(super) fn welcome(&self, welcome: &proto::Welcome) {
        let said =
            [(&self.log_bytes, welcome.log_bytes), (&self.output_bytes, welcome.output_bytes)];
        for (limit, said) in said.into_iter().filter(|(_, said)| *said > 0) {
            limit.store(said, Ordering::Relaxed);
        }
    }

    pub(super) fn log_bytes(&self) -> u64 {
        self.log_bytes.load(Ordering::Relaxed)
    }

    pub(super) fn output_bytes(&self) -> u64 {
        self.output_bytes.load(Ordering::Relaxed)
    }
}

#[derive(Debug)]
pub(super) struct State {
    pub(super) reports: Reports,
    pub(super) logs: Logs,
    /// The server has taken a drain back in this session, and is still to be told that we know. It says so again
    /// in every session until it is.
    pub(super) undrain_unanswered: bool,
    welcomed: bool,
    /// Who it is, and the epoch it speaks in, from its last welcome, or what an earlier life has kept for it.
    pub(super) scope: Option<String>,
    pub(super) epoch: u64,
    /// Another address of the worker's leads to the same server: no session is held under this one while that is so.
    pub(super) twin: Option<Arc<Server>>,
    /// Of the session there is.
    pub(super) client: Option<Client>,
}

impl State {
    /// Whom to wake, once nothing is locked.
    #[must_use]
    pub(super) fn welcomed(&mut self, client: Client) -> Option<Waker> {
        self.welcomed = true;
        self.twin = None;
        self.client = Some(client);
        self.undrain_unanswered = false;
        self.reports.welcomed()
    }
}

impl Server {
    /// With what earlier lives left for it.
    pub(super) fn new(
        source: Source,
        name: ServerName,
        dialer: Dialer,
        (reports, logs, scope): (Reports, Logs, Option<String>),
    ) -> Self {
        let limits =
            Limits { log_bytes: AtomicU64::new(LOG_CAP), output_bytes: AtomicU64::new(OUTPUT_CAP) };
        let state = State {
            reports,
            logs,
            undrain_unanswered: false,
            welcomed: false,
            scope,
            epoch: 0,
            twin: None,
            client: None,
        };
        let (state, tries) = (Mutex::new(state), AtomicU32::new(0));
        Self { source, name, dialer, limits, state, tries }
    }

    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        held(&self.state)
    }

    pub(super) fn scope(&self) -> Option<String> {
        self.state().scope.clone()
    }

    pub(super) fn set_tries(&self, tries: u32) {
        self.tries.store(tries, Ordering::Relaxed);
    }

    /// Not since a moment ago only.
    pub(super) fn is_out_of_reach(&self) -> bool {
        self.tries.load(Ordering::Relaxed) >= TRIES_UNTIL_TWIN
    }

    /// This life was in a session with it before.
    pub(super) fn is_welcomed(&self) -> bool {
        self.state().welcomed
    }

    /// It has everything that there was to say.
    pub(super) fn is_heard(&self) -> bool {
        let state = self.state();
        state.reports.is_empty() && state.logs.is_empty()
    }
}
