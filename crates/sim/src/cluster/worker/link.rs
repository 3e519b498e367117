//! A worker and one of its servers: sessions, and what is heard in them. A model of `worker::remote::link` and `session`.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use steadfast_core::event::AttemptId;
use steadfast_core::outcome::Outcome;
use steadfast_worker::Settled;

use super::{Did, KeptReport, Worker};
use crate::cluster::messages::{AttemptName, FromWorker, Hello, ToWorker};
use crate::cluster::server::{BEAT_MS, LEASE_MS};

/// A server that does not answer a hello for so long is given up for now.
const PATIENCE_MS: u64 = 3000;

/// A worker and one of its servers.
#[derive(Debug, Default)]
pub(crate) struct Link {
    /// Who it is, and the epoch it speaks in, from its last welcome, or what an earlier life has kept for it.
    pub(super) scope: Option<String>,
    pub(super) epoch: u64,
    /// This life was in a session with it before.
    pub(super) welcomed: bool,
    pub(super) undrain_unanswered: bool,
    pub(super) session: Session,
    /// Not acknowledged.
    pub(super) reports: BTreeMap<AttemptId, KeptReport>,
}

#[derive(Clone, Debug)]
pub(crate) enum Session {
    Idle { next_try: u64 },
    Greeted { id: u64, at: u64, hello_sent: Duration },
    Open { id: u64, heard_at: u64, next_beat: u64, told_draining: bool },
}

impl Default for Session {
    fn default() -> Self {
        Self::Idle { next_try: 0 }
    }
}

/// A connection can be dead without either end knowing: there is still time then to save what runs with another one.
const SILENCE_MS: u64 = LEASE_MS * 2 / 3;

impl Session {
    pub(super) fn next_look(&self) -> u64 {
        match self {
            Self::Idle { next_try } => *next_try,
            Self::Greeted { at, .. } => at + PATIENCE_MS,
            Self::Open { heard_at, next_beat, .. } => (*next_beat).min(heard_at + SILENCE_MS),
        }
    }

    fn is(&self, session: u64) -> bool {
        match self {
            Self::Idle { .. } => false,
            Self::Greeted { id, .. } | Self::Open { id, .. } => *id == session,
        }
    }
}

impl Worker {
    /// Opens sessions, beats, and gives up those that are silent.
    pub(super) fn keep_sessions(&mut self, world: u64) {
        for server in 0..self.links.len() {
            let is_over = self.executor.lease_is_over(server, self.now());
            match self.links[server].session {
                Session::Idle { next_try } if next_try <= world && self.leaving.is_none() => {
                    self.greet(server, world);
                }
                Session::Idle { next_try } if next_try <= world => {
                    self.links[server].session = Session::Idle { next_try: world + PATIENCE_MS };
                }
                Session::Greeted { at, .. } if at + PATIENCE_MS <= world => self.hang_up(server),
                Session::Open { heard_at, .. } if heard_at + SILENCE_MS <= world || is_over => {
                    self.did.push(Did::Note("worker gave up a silent server"));
                    self.hang_up(server);
                }
                Session::Open { id: session, next_beat, .. } if next_beat <= world => {
                    let now = self.now();
                    let number = self.executor.lease(server).beat(now);
                    if let Session::Open { next_beat, .. } = &mut self.links[server].session {
                        *next_beat = world + BEAT_MS;
                    }
                    let message = FromWorker::Beat(number);
                    self.did.push(Did::Send { server, session, message });
                }
                _ => {}
            }
        }
    }

    fn greet(&mut self, server: usize, world: u64) {
        self.last_session += 1;
        // No two sessions have the same, of whichever life of whichever worker.
        let id = (u64::from(self.life) << 40) | (self.last_session << 8) | self.index() as u64;
        let hello_sent = self.now();
        self.links[server].session = Session::Greeted { id, at: world, hello_sent };
        let others = (0..self.links.len()).filter(|other| *other != server);
        let elsewhere = others.map(|other| {
            let link = &self.links[other];
            let holds: Vec<AttemptName> = self.held_of(other).into_values().collect();
            (link.scope.clone().unwrap_or_default(), holds, link.welcomed)
        });
        let elsewhere =
            elsewhere.filter(|(scope, holds, _)| !(scope.is_empty() && holds.is_empty()));
        let hello = Hello {
            incarnation: self.incarnation(),
            returning: self.links[server].welcomed,
            holds: self.held_of(server).into_keys().collect(),
            elsewhere: elsewhere.collect(),
            credits: self.executor.credits().greet(server),
        };
        let message = FromWorker::Hello(Box::new(hello));
        self.did.push(Did::Send { server, session: id, message });
    }

    fn index(&self) -> usize {
        self.name.trim_start_matches('w').parse().unwrap_or_default()
    }

    /// The session ends here; the server may hear of it.
    pub(super) fn hang_up(&mut self, server: usize) {
        let world = self.time.now();
        let next_try = world + self.rng.between(20, 1500);
        let before = std::mem::replace(&mut self.links[server].session, Session::Idle { next_try });
        if let Session::Greeted { id, .. } | Session::Open { id, .. } = before {
            let message = FromWorker::Closed;
            self.did.push(Did::Send { server, session: id, message });
        }
        self.executor.credits().session_ended(server);
    }

    /// Said in an epoch that is over, of this session's scope if none is named.
    fn is_late(&mut self, server: usize, scope: &str, epoch: u64) -> bool {
        let scope = if scope.is_empty() {
            self.links[server].scope.clone()
        } else {
            Some(scope.to_owned())
        };
        let is_late = scope.is_some_and(|scope| self.executor.is_fenced(&scope, epoch));
        if is_late {
            self.did.push(Did::Note("worker ignored an old epoch"));
        }
        is_late
    }

    /// Another server has what this one had.
    fn is_taken_over(&mut self, server: usize) -> bool {
        let epoch = self.links[server].epoch;
        self.is_late(server, "", epoch)
    }

    fn take_over(&mut self, server: usize, ids: &[AttemptId]) -> Vec<AttemptId> {
        let missing = self.executor.take_over(server, ids);
        for id in ids {
            self.homes.insert(id.clone(), server);
            for other in (0..self.links.len()).filter(|other| *other != server) {
                if let Some(kept) = self.links[other].reports.remove(id) {
                    self.links[server].reports.insert(id.clone(), kept);
                    self.tell(server, id);
                }
            }
        }
        missing
    }

    fn took_over(&mut self, server: usize, attempts: Vec<AttemptName>) {
        let ids: Vec<AttemptId> = attempts.iter().map(|name| name.id.clone()).collect();
        let missing = self.take_over(server, &ids);
        for name in attempts.into_iter().filter(|name| missing.contains(&name.id)) {
            if self.links[server].reports.contains_key(&name.id) {
                continue;
            }
            // It was in hand when the server was told so, and has been given up since.
            let outcome = Outcome::Lost { started: true, why: None };
            let id = name.id.clone();
            let settled = Settled::not_begun(name, outcome, String::new());
            self.report(&id, server, settled, true);
        }
    }

    fn withdraw(&mut self, server: usize, id: &AttemptId, scope: &str) {
        if !scope.is_empty() && !self.executor.is_from(id, server) {
            self.take_over(server, std::slice::from_ref(id));
        }
        if self.executor.is_from(id, server) && self.executor.withdraw(id) {
            let world = self.time.now();
            self.stop(id, world);
        }
        self.acknowledged(server, id);
    }

    pub(super) fn acknowledged(&mut self, server: usize, id: &AttemptId) {
        self.homes.remove(id);
        self.links[server].reports.remove(id);
    }

    fn welcomed(
        &mut self,
        server: usize,
        (scope, epoch): (String, u64),
        not_held: &BTreeSet<AttemptId>,
        hello_sent: Duration,
    ) {
        if self.executor.is_fenced(&scope, epoch) {
            self.did.push(Did::Note("worker ignored an old epoch"));
            return self.hang_up(server);
        }
        let world = self.time.now();
        self.executor.welcomed(server, not_held);
        self.executor.lease(server).welcome(hello_sent, Duration::from_millis(LEASE_MS));
        self.executor.credits().welcomed(server);
        let link = &mut self.links[server];
        (link.scope, link.epoch, link.welcomed) = (Some(scope), epoch, true);
        link.undrain_unanswered = false;
        if let Session::Greeted { id, .. } = link.session {
            let (heard_at, next_beat) = (world, world);
            link.session = Session::Open { id, heard_at, next_beat, told_draining: false };
        }
        for id in link.reports.keys().cloned().collect::<Vec<_>>() {
            self.tell(server, &id);
        }
    }
}

/// What a server says in a session.
pub(super) fn hear(worker: &mut Worker, server: usize, session: u64, message: ToWorker) {
    if !worker.links[server].session.is(session) {
        return;
    }
    let now = worker.now();
    if let (Session::Greeted { hello_sent, .. }, ToWorker::Welcome { scope, epoch, not_held }) =
        (&worker.links[server].session, &message)
    {
        let (scope, epoch, hello_sent) = (scope.clone(), *epoch, *hello_sent);
        let not_held = not_held.clone();
        return worker.welcomed(server, (scope, epoch), &not_held, hello_sent);
    }
    if let Session::Open { heard_at, .. } = &mut worker.links[server].session {
        *heard_at = worker.time.now();
    }
    match message {
        ToWorker::Beat(number) => worker.executor.lease(server).answered(number),
        ToWorker::Assignment { work, scope, epoch } => {
            if worker.is_taken_over(server) || worker.is_late(server, &scope, epoch) {
                return;
            }
            let id = work.assignment.id();
            if worker.holds(&id) {
                worker.take_over(server, &[id]);
            } else {
                worker.assign(server, &work);
            }
        }
        ToWorker::Withdrawal { id, scope, epoch } => {
            if !worker.is_late(server, &scope, epoch) {
                worker.withdraw(server, &id, &scope);
            }
        }
        ToWorker::TookOver { scope, epoch, attempts } => {
            if !worker.is_taken_over(server) && !worker.is_late(server, &scope, epoch) {
                worker.took_over(server, attempts);
            }
        }
        ToWorker::Acknowledged { id } => worker.acknowledged(server, &id),
        ToWorker::Drain => {
            let waited = worker.executor.drain_source(server);
            worker.give_back(waited, || Outcome::NOT_BEGUN, "the server asked for it");
        }
        ToWorker::Undrain => {
            worker.executor.undrain_source(server);
            worker.links[server].undrain_unanswered = true;
        }
        ToWorker::CreditsTaken(number) => worker.executor.credits().taken(server, number),
        ToWorker::Wanted => worker.executor.credits().wanted(server, now),
        ToWorker::Closed => worker.hang_up(server),
        ToWorker::Welcome { .. } => {}
    }
    if matches!(worker.links[server].session, Session::Open { .. }) && worker.is_taken_over(server)
    {
        worker.hang_up(server);
    }
}
