//! The world: one queue of what happens when, one clock. Everything in it is called by hand, one after the other, so that a seed always
//! leads to the same bytes.

mod checking;
mod clients;
mod faults;
mod network;
mod turns;

use std::collections::BTreeMap;

use steadfast_core::event::JobId;

use super::check::{Checker, Violation};
use super::clock::WorldTime;
use super::jobs::bound_ms;
use super::messages::{FromWorker, ToWorker};
use super::requests::{Answer, Question, RequestId};
use super::rng::Rng;
use super::scenario::Scenario;
use super::server::{Phase, Server};
use super::store::{Database, SimStore};
use super::worker::Worker;

/// How often a server that has shards renews its row, and one that has none yet.
const RENEW_MS: u64 = 1000;
const FIRST_LOOK_MS: u64 = 250;
const POLL_MS: u64 = 50;
/// How often all that runs is held against all that is stored.
const LOOK_MS: u64 = 250;
/// However much there is to do, it is done by then.
const LONGEST_MS: u64 = 45 * 60 * 1000;
/// A world that does more than this does not end.
const MOST_EVENTS: u64 = 400_000;

/// What happens at some moment. `life`: of the one it happens to; another life knows nothing of it.
#[derive(Debug)]
enum Happening {
    StartServer(usize),
    Decide(usize, u32),
    Write(usize, u32),
    Load(usize, u32),
    Deliver(usize, u32),
    Renew(usize, u32),
    Poll(usize, u32),
    StartWorker(usize),
    Wake(usize, u32),
    Thaw(usize),
    ToServer { server: usize, life: u32, worker: usize, session: u64, message: FromWorker },
    ToWorker { worker: usize, life: u32, server: usize, session: u64, message: ToWorker },
    Request { server: usize, request: RequestId, question: Question },
    Answer { request: RequestId, answer: Answer },
    Ask(RequestId),
    Retry(JobId),
    Fault(usize),
    Backup(u64),
    Arrive,
    Look,
    Heal,
    ResumePaused,
}

pub(super) struct World {
    scenario: Scenario,
    time: WorldTime,
    queue: BTreeMap<(u64, u64), Happening>,
    happened: u64,
    scheduled: u64,
    store: SimStore,
    servers: Vec<Server>,
    workers: Vec<Worker>,
    network: network::Network,
    clients: clients::Clients,
    rng: Rng,
    /// What a server, or a worker, is woken at, so that it is not woken twice.
    decides_at: Vec<Option<u64>>,
    writes_at: Vec<Option<u64>>,
    loads_at: Vec<Option<u64>>,
    delivers_at: Vec<Option<u64>>,
    wakes_at: Vec<Option<u64>>,
    polls: bool,
    /// Commits take longer until then.
    slow_until: u64,
    /// What is read arrives late until then.
    slow_reads_until: u64,
    backups: BTreeMap<u64, Database>,
    healed: bool,
    checker: Checker,
    violation: Option<Violation>,
    trace: Option<String>,
}

/// How it went.
pub(super) struct Ended {
    pub(super) violation: Option<Violation>,
    pub(super) checker: Checker,
    pub(super) trace: String,
    pub(super) at: u64,
    pub(super) events: u64,
}

macro_rules! trace {
    ($world:expr, $($text:tt)*) => {
        if $world.trace.is_some() {
            let text = format!($($text)*);
            $world.say(&text);
        }
    };
}
use trace;

impl World {
    pub(super) fn new(scenario: Scenario, is_traced: bool) -> Self {
        let (time, seed) = (WorldTime::default(), scenario.seed);
        let store = SimStore::new(scenario.shards, &time, Rng::new(seed, "arrives"));
        let servers = scenario.servers.iter().enumerate();
        let servers: Vec<Server> =
            servers.map(|(n, plan)| Server::new(n, *plan, &store, &time, seed)).collect();
        let workers = scenario.workers.iter().enumerate();
        let workers: Vec<Worker> = workers
            .map(|(n, plan)| Worker::new(n, plan.clone(), servers.len(), &time, seed))
            .collect();
        let mut world = Self {
            network: network::Network::new(seed),
            clients: clients::Clients::default(),
            rng: Rng::new(seed, "world"),
            decides_at: vec![None; servers.len()],
            writes_at: vec![None; servers.len()],
            loads_at: vec![None; servers.len()],
            delivers_at: vec![None; servers.len()],
            wakes_at: vec![None; workers.len()],
            polls: false,
            slow_until: 0,
            slow_reads_until: 0,
            backups: BTreeMap::new(),
            healed: false,
            checker: Checker::default(),
            violation: None,
            trace: is_traced.then(String::new),
            queue: BTreeMap::new(),
            happened: 0,
            scheduled: 0,
            scenario,
            time,
            store,
            servers,
            workers,
        };
        world.begin();
        world
    }

    fn begin(&mut self) {
        if self.trace.is_some() {
            let Scenario { servers, workers, shards, jobs, faults, .. } = &self.scenario;
            let (jobs, faults) = (jobs.clone(), faults.clone());
            trace!(
                self,
                "seed {}: {} servers, {shards} shards, {} workers, heals at {}",
                self.scenario.seed,
                servers.len(),
                workers.len(),
                self.scenario.heal_at
            );
            for (n, job) in jobs.iter().enumerate() {
                trace!(
                    self,
                    "job {n} at {} key {:?} wants {:?}\n{}",
                    job.at,
                    job.key,
                    job.commands,
                    job.text
                );
            }
            for (n, (at, fault)) in faults.iter().enumerate() {
                trace!(self, "fault {n} at {at}: {fault:?}");
            }
        }
        for server in 0..self.servers.len() {
            let at = self.rng.between(0, 300);
            self.at(at, Happening::StartServer(server));
        }
        for worker in 0..self.workers.len() {
            let at = self.rng.between(0, 600);
            self.at(at, Happening::StartWorker(worker));
        }
        self.plan_clients();
        self.plan_faults();
        self.at(self.scenario.heal_at, Happening::Heal);
        self.at(LOOK_MS, Happening::Look);
    }

    /// Into the trace.
    fn say(&mut self, text: &str) {
        let now = self.time.now();
        if let Some(trace) = &mut self.trace {
            trace.push_str(&format!("{now:>8}  {text}\n"));
        }
    }

    fn at(&mut self, at: u64, happening: Happening) {
        self.scheduled += 1;
        self.queue.insert((at.max(self.time.now()), self.scheduled), happening);
    }

    fn after(&mut self, ms: u64, happening: Happening) {
        self.at(self.time.now() + ms, happening);
    }

    /// To the end: all jobs are over, something is wrong, or it takes too long.
    pub(super) fn run(mut self) -> Ended {
        let bounds = self.scenario.jobs.iter().map(|job| bound_ms(&job.plan));
        let bound = self.scenario.heal_at + bounds.sum::<u64>().min(LONGEST_MS);
        while self.violation.is_none() && !self.is_done() {
            let Some(((at, _), happening)) = self.queue.pop_first() else { break };
            self.happened += 1;
            self.time.set(at);
            if at > bound || self.happened > MOST_EVENTS {
                self.violation = self.not_ended().err();
                break;
            }
            self.happens(happening);
            self.look_at_store();
        }
        if self.violation.is_none() {
            let checked = self.check_all();
            self.violation = checked.err();
        }
        if let Some(violation) = &self.violation {
            let text = violation.to_string();
            trace!(self, "VIOLATED {text}");
        }
        Ended {
            violation: self.violation,
            checker: self.checker,
            trace: self.trace.unwrap_or_default(),
            at: self.time.now(),
            events: self.happened,
        }
    }

    fn is_done(&self) -> bool {
        self.healed
            && self.clients.open().is_empty()
            && self.checker.open_jobs().next().is_none()
            && self.workers.iter().all(|worker| worker.is_gone || (worker.up && worker.is_idle()))
    }

    fn happens(&mut self, happening: Happening) {
        if let Some(until) = self.stands_still(&happening) {
            match happening {
                Happening::Decide(server, life) if self.servers[server].life == life => {
                    self.decides_at[server] = Some(until);
                }
                Happening::Wake(worker, life) if self.workers[worker].life == life => {
                    self.wakes_at[worker] = Some(until);
                }
                // Of an earlier life.
                Happening::Decide(..) | Happening::Wake(..) => return,
                _ => {}
            }
            return self.at(until, happening);
        }
        match happening {
            Happening::StartServer(server) => self.start_server(server),
            Happening::Decide(server, life) if self.is_life(server, life) => {
                // It was woken earlier, and sleeps again.
                if self.decides_at[server] != Some(self.time.now()) {
                    return;
                }
                self.decides_at[server] = None;
                self.servers[server].decide();
                if self.servers[server].cannot_start {
                    trace!(self, "s{server} cannot start");
                    self.checker.seen("server could not start");
                    self.crash_server(server);
                    return self.after(1000, Happening::StartServer(server));
                }
                self.after_turn(server);
            }
            Happening::Write(server, life) if self.is_life(server, life) => self.write(server),
            Happening::Load(server, life) if self.is_life(server, life) => self.load(server),
            Happening::Deliver(server, life) if self.is_life(server, life) => {
                self.delivers_at[server] = None;
                self.deliver(server, 1);
            }
            Happening::Renew(server, life) if self.is_life(server, life) => {
                self.servers[server].renew();
                let joins = matches!(self.servers[server].phase, Phase::Joining { .. });
                self.after(
                    if joins { FIRST_LOOK_MS } else { RENEW_MS },
                    Happening::Renew(server, life),
                );
                self.decide_soon(server);
                self.server_did(server);
            }
            Happening::Poll(server, life) if self.is_life(server, life) => {
                if self.servers[server].poll() {
                    self.decide_soon(server);
                }
                self.server_did(server);
                if !self.store.held().database.inputs.is_empty() || !self.clients.open().is_empty()
                {
                    self.after(POLL_MS, Happening::Poll(server, life));
                } else {
                    self.polls = false;
                }
            }
            Happening::StartWorker(worker) if self.workers[worker].may_start() => {
                self.workers[worker].start();
                self.wakes_at[worker] = None;
                trace!(self, "w{worker} starts, life {}", self.workers[worker].life);
                self.wake(worker);
            }
            Happening::Wake(worker, life) => {
                let is_due = self.wakes_at[worker] == Some(self.time.now());
                if is_due && self.workers[worker].up && self.workers[worker].life == life {
                    self.wakes_at[worker] = None;
                    self.wake(worker);
                }
            }
            Happening::Thaw(worker) => self.thaw(worker),
            Happening::ToServer { server, life, worker, session, message }
                if self.is_life(server, life) =>
            {
                trace!(self, "s{server} hears {} of w{worker}", message.name());
                let incarnation = match &message {
                    FromWorker::Hello(hello) => hello.incarnation.clone(),
                    _ => String::new(),
                };
                let spec = self.workers[worker].spec(&incarnation);
                self.servers[server].hear(worker, session, message, spec);
                self.decide_soon(server);
                self.server_did(server);
            }
            Happening::ToWorker { worker, life, server, session, message }
                if self.workers[worker].up && self.workers[worker].life == life =>
            {
                trace!(self, "w{worker} hears {} of s{server}{}", message.name(), message.about());
                if matches!(&message, ToWorker::TookOver { attempts, .. } if !attempts.is_empty()) {
                    self.checker.seen("attempt adopted by another server");
                }
                self.workers[worker].hear(server, session, message);
                self.wake(worker);
            }
            Happening::Request { server, request, question } => {
                self.request(server, request, question);
            }
            Happening::Answer { request, answer } => self.answered(request, answer),
            Happening::Ask(request) => self.ask(request),
            Happening::Retry(job) => self.retry_ended(job),
            Happening::Fault(n) => self.fault(n),
            Happening::Backup(to) => {
                let database = self.store.held().database.clone();
                self.backups.insert(to, database);
            }
            Happening::Arrive => self.store.arrive(),
            Happening::Look => {
                let checked = self.check_all();
                self.violation = self.violation.take().or(checked.err());
                self.after(if self.healed { 4 * LOOK_MS } else { LOOK_MS }, Happening::Look);
            }
            Happening::Heal => self.heal(),
            Happening::ResumePaused => self.resume_paused(),
            // Of an earlier life.
            _ => {}
        }
    }

    /// Until when whoever this happens to is stopped.
    fn stands_still(&self, happening: &Happening) -> Option<u64> {
        let server = match happening {
            Happening::Decide(server, _)
            | Happening::Write(server, _)
            | Happening::Load(server, _)
            | Happening::Deliver(server, _)
            | Happening::Renew(server, _)
            | Happening::Poll(server, _)
            | Happening::ToServer { server, .. }
            | Happening::Request { server, .. } => self.servers[*server].frozen_until,
            Happening::Wake(worker, _) | Happening::ToWorker { worker, .. } => {
                self.workers[*worker].frozen_until
            }
            _ => None,
        };
        server.filter(|until| *until > self.time.now())
    }

    fn is_life(&self, server: usize, life: u32) -> bool {
        self.servers[server].life == life && self.servers[server].phase != Phase::Down
    }
}
