//! Workers' sessions: what the engine assigns goes out, what workers say goes in. A model of the server's `sessions`.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde_json::json;
use steadfast_api::WorkerReport;
use steadfast_core::decide::Input;
use steadfast_core::event::AttemptId;
use steadfast_engine::{
    Answer, Arrival, Arriving, Assignment, CommandError, Identity, Missed, NameInUse, Work,
    WorkerSpec,
};

use super::{Did, LEASE_MS, Out, Server, put};
use crate::cluster::messages::{AttemptName, FromWorker, Hello, ToWorker};

/// A worker's way out.
#[derive(Debug)]
pub(crate) struct ServerSession {
    id: u64,
    name: Arc<str>,
    incarnation: Arc<str>,
    held: BTreeSet<AttemptId>,
    heard_at: u64,
}

/// What the engine says to a session.
#[derive(Debug)]
pub(super) enum SessionOut {
    Welcome(Box<Welcome>),
    Beat { worker: usize, session: u64, number: u64, known: bool },
    Report { worker: usize, session: u64, name: AttemptName, report: WorkerReport, answer: Answer },
}

#[derive(Debug)]
pub(super) struct Welcome {
    worker: usize,
    session: ServerSession,
    of_others: BTreeMap<AttemptId, AttemptName>,
    answer: Result<Arrival, NameInUse>,
}

impl Server {
    /// What a worker says in a session. `spec`: what it says of itself.
    pub(crate) fn hear(
        &mut self,
        worker: usize,
        session: u64,
        message: FromWorker,
        spec: WorkerSpec,
    ) {
        let is_current = self.sessions.get(&worker).is_some_and(|it| it.id == session);
        if !self.is_up() {
            return self.did.push(Did::Send { worker, session, message: ToWorker::Closed });
        }
        if let FromWorker::Hello(hello) = message {
            return self.greet(worker, session, *hello, spec);
        }
        // Another session has the name by now: this one speaks for nobody.
        if !is_current {
            return;
        }
        let (name, now) = (spec.name, self.time.now());
        let Some(held) = self.sessions.get_mut(&worker) else { return };
        held.heard_at = now;
        let incarnation = held.incarnation.clone();
        let Some(stepped) = &self.stepped else { return };
        let (inbox, outbox) = (stepped.inbox(), self.outbox.clone());
        match message {
            FromWorker::Beat(number) => {
                let reply = Box::new(move |known| {
                    let out = SessionOut::Beat { worker, session, number, known };
                    put(&outbox, Out::Session(out));
                });
                let _ = inbox.beat(&name, &incarnation, reply);
            }
            FromWorker::Report(name, report) => {
                let (item, token) = (name.item, name.id.token);
                let input = match report.clone() {
                    WorkerReport::Ended(outcome) => Input::Report { item, token, outcome },
                    WorkerReport::AwaitsCallback => Input::Awaits { item, token },
                };
                let job = name.id.job.clone();
                let reply = Box::new(move |answer| {
                    let out = SessionOut::Report { worker, session, name, report, answer };
                    put(&outbox, Out::Session(out));
                });
                let _ = inbox.send(&job, input, reply);
            }
            FromWorker::Progress(name, step) => {
                if held.held.contains(&name.id) {
                    let progress = Arc::new(json!({ "left": step }));
                    let (item, token) = (name.item, name.id.token);
                    let input = Input::Progress { item, token, progress, by_callback: false };
                    let _ = inbox.send(&name.id.job, input, Box::new(|_| ()));
                }
            }
            FromWorker::Draining => drop(inbox.drain_worker(&name, Box::new(|_| ()))),
            FromWorker::Undrained => inbox.undrained(&name),
            FromWorker::Credits(credits) => inbox.credits(&name, session, credits),
            FromWorker::Closed => {
                inbox.away(&name, session);
                self.sessions.remove(&worker);
            }
            FromWorker::Hello(_) => {}
        }
    }

    fn greet(&mut self, worker: usize, session: u64, hello: Hello, spec: WorkerSpec) {
        let Hello { mut returning, mut holds, elsewhere: others, credits, .. } = hello;
        let me = self.scope();
        let (mut elsewhere, mut of_others) = (BTreeSet::new(), BTreeMap::new());
        for (scope, names, was_welcome) in others {
            if scope == me {
                holds.extend(names.into_iter().map(|name| name.id));
                returning |= was_welcome;
            } else {
                elsewhere.extend(names.iter().map(|name| name.id.clone()));
                of_others.extend(names.into_iter().map(|name| (name.id.clone(), name)));
            }
        }
        let identity = Identity { fingerprint: spec.name.clone(), proven: true, owns_name: false };
        let its = ServerSession {
            id: session,
            name: spec.name.clone(),
            incarnation: spec.incarnation.clone(),
            held: holds.clone(),
            heard_at: self.time.now(),
        };
        let in_vain = BTreeSet::new();
        let arriving =
            Arriving { spec, identity, session, returning, holds, elsewhere, in_vain, credits };
        let outbox = self.outbox.clone();
        let reply = Box::new(move |answer| {
            let welcome = Box::new(Welcome { worker, session: its, of_others, answer });
            put(&outbox, Out::Session(SessionOut::Welcome(welcome)));
        });
        if let Some(stepped) = &self.stepped {
            let _ = stepped.inbox().connect(arriving, reply);
        }
    }

    fn scope(&self) -> String {
        format!("sim/{}", self.owner.id)
    }

    pub(super) fn session_out(&mut self, out: SessionOut) {
        match out {
            SessionOut::Welcome(welcome) => self.welcome(*welcome),
            SessionOut::Beat { worker, session, number, known } => {
                if known && self.vouches() {
                    self.did.push(Did::Send { worker, session, message: ToWorker::Beat(number) });
                } else if known {
                    // Not answered: another server may have what the worker runs.
                    self.did.push(Did::Note("beat left unanswered without a store".to_owned()));
                } else {
                    self.close(worker, session);
                }
            }
            SessionOut::Report { worker, session, name, report, answer } => {
                self.judged(worker, session, name, report, &answer);
            }
        }
    }

    fn welcome(&mut self, welcome: Welcome) {
        let Welcome { worker, session, of_others, answer } = welcome;
        let id = session.id;
        let Ok(arrival) = answer else {
            self.did.push(Did::Note("worker's name was in use".to_owned()));
            let message = ToWorker::Closed;
            return self.did.push(Did::Send { worker, session: id, message });
        };
        let Arrival { missed, adopted, not_held, .. } = arrival;
        let (scope, epoch) = (self.scope(), self.owner.epoch);
        let send = |message| Did::Send { worker, session: id, message };
        self.did.push(send(ToWorker::Welcome { scope, epoch, not_held }));
        match missed {
            Missed::Nothing => {}
            Missed::Drain => self.did.push(send(ToWorker::Drain)),
            Missed::Undrain => self.did.push(send(ToWorker::Undrain)),
        }
        if let Some(before) = self.sessions.insert(worker, session) {
            let message = ToWorker::Closed;
            self.did.push(Did::Send { worker, session: before.id, message });
        }
        let ended = self.taken_over.iter().map(|(scope, epoch)| ((scope.clone(), *epoch), vec![]));
        let mut told: BTreeMap<(String, u64), Vec<AttemptName>> = ended.collect();
        for name in adopted.iter().filter_map(|id| of_others.get(id)) {
            if let Some(shard) = self.of_job(&name.id.job) {
                told.entry(shard).or_default().push(name.clone());
            }
        }
        for ((scope, epoch), attempts) in told {
            if let Some(session) = self.sessions.get_mut(&worker) {
                session.held.extend(attempts.iter().map(|name| name.id.clone()));
            }
            self.did.push(send(ToWorker::TookOver { scope, epoch, attempts }));
        }
    }

    fn judged(
        &mut self,
        worker: usize,
        session: u64,
        name: AttemptName,
        report: WorkerReport,
        answer: &Answer,
    ) {
        match answer {
            Ok(()) => {}
            // The worker keeps it, for the server that has the job.
            Err(CommandError::Elsewhere { .. }) => return,
            Err(
                CommandError::Unknown(_) | CommandError::Refused(_) | CommandError::Stuck { .. },
            ) => {
                self.did.push(Did::Note("report refused by its fence".to_owned()));
            }
            // Sent again in the next session.
            Err(_) => return self.close(worker, session),
        }
        let counted = answer.is_ok();
        let id = name.id.clone();
        if let Some(session) = self.sessions.get_mut(&worker) {
            session.held.remove(&id);
        }
        self.did.push(Did::Judged { name, report, counted });
        let message = ToWorker::Acknowledged { id };
        self.did.push(Did::Send { worker, session, message });
    }

    fn worker_of(&self, name: &str) -> Option<(usize, u64)> {
        let mut sessions = self.sessions.iter();
        sessions.find(|(_, it)| *it.name == *name).map(|(worker, it)| (*worker, it.id))
    }

    pub(super) fn tell(&mut self, name: &str, message: ToWorker) {
        // One that has gone hears of it when it comes back.
        if let Some((worker, session)) = self.worker_of(name) {
            self.did.push(Did::Send { worker, session, message });
        }
    }

    pub(super) fn assign(&mut self, work: Box<Work>) {
        let Some((scope, epoch)) = self.of_job(&work.assignment.job) else { return };
        let (name, id) = (work.assignment.worker.clone(), work.assignment.id());
        if let Some((worker, _)) = self.worker_of(&name)
            && let Some(session) = self.sessions.get_mut(&worker)
        {
            session.held.insert(id);
        }
        self.tell(&name, ToWorker::Assignment { work, scope, epoch });
    }

    pub(super) fn withdraw(&mut self, over: &Assignment) {
        let id = over.id();
        if let Some((worker, _)) = self.worker_of(&over.worker)
            && let Some(session) = self.sessions.get_mut(&worker)
        {
            session.held.remove(&id);
        }
        if let Some((scope, epoch)) = self.of_job(&over.job) {
            self.tell(&over.worker, ToWorker::Withdrawal { id, scope, epoch });
        }
    }

    /// It comes in again at once.
    pub(super) fn ask_worker(&mut self, name: &str) {
        if let Some((worker, session)) = self.worker_of(name) {
            self.did.push(Did::Note("worker asked to come in anew".to_owned()));
            self.close(worker, session);
        }
    }

    fn close(&mut self, worker: usize, session: u64) {
        if self.sessions.get(&worker).is_some_and(|it| it.id == session)
            && let Some(ended) = self.sessions.remove(&worker)
            && let Some(stepped) = &self.stepped
        {
            stepped.inbox().away(&ended.name, session);
        }
        self.did.push(Did::Send { worker, session, message: ToWorker::Closed });
    }

    /// What a worker says after two leases of silence it says in a new session.
    pub(super) fn end_silent_sessions(&mut self) {
        let now = self.time.now();
        let is_silent = |it: &ServerSession| it.heard_at + 2 * LEASE_MS < now;
        let silent = self.sessions.iter().filter(|(_, it)| is_silent(it));
        for (worker, session) in silent.map(|(worker, it)| (*worker, it.id)).collect::<Vec<_>>() {
            self.close(worker, session);
        }
    }

    /// An operator wants a worker to take nothing new, or takes that back.
    pub(crate) fn drain(&mut self, name: &str, drains: bool) {
        let Some(stepped) = &self.stepped else { return };
        if drains {
            let _ = stepped.inbox().drain_worker(name, Box::new(|_| ()));
            self.tell(name, ToWorker::Drain);
        } else {
            let _ = stepped.inbox().undrain_worker(name, Box::new(|_| ()));
            self.tell(name, ToWorker::Undrain);
        }
    }
}
