//! The world: one queue of what happens when, one clock. Everything in it is called by hand, one after the other, so that a seed always
//! leads to the same bytes.

mod clients;
mod faults;
mod network;

use std::collections::BTreeMap;

use steadfast_core::event::{Event, JobId};
use steadfast_core::outcome::Outcome;
use steadfast_engine::Stepped;

use super::check::{Checked, Checker, LIVENESS, Violation, violated};
use super::clock::WorldTime;
use super::jobs::bound_ms;
use super::messages::{FromWorker, ToWorker};
use super::requests::{Answer, Question, RequestId};
use super::rng::Rng;
use super::scenario::Scenario;
use super::server::{Did as ServerDid, Phase, Server};
use super::store::{Database, Observed, SimStore};
use super::worker::{Did as WorkerDid, Worker};

/// How often a server that has shards renews its row, and one that has none yet.
const RENEW_MS: u64 = 1000;
const FIRST_LOOK_MS: u64 = 250;
const POLL_MS: u64 = 50;
/// How often all that runs is held against all that is stored.
const LOOK_MS: u64 = 250;
/// However much there is to do, it is done by then.
const LONGEST_MS: u64 = 45 * 60 * 1000;
/// A world that does more than this does not end.
const MOST_EVENTS: u64 = 3_000_000;

/// What happens at some moment. `life`: of the one it happens to; another life knows nothing of it.
#[derive(Debug)]
enum Happening {
    StartServer(usize),
    Decide(usize, u32),
    Write(usize, u32),
    Load(usize, u32),
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
    wakes_at: Vec<Option<u64>>,
    polls: bool,
    /// Commits take longer until then.
    slow_until: u64,
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
            wakes_at: vec![None; workers.len()],
            polls: false,
            slow_until: 0,
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
            let checked = self.check();
            self.violation = self.violation.take().or(checked.err());
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

    fn not_ended(&self) -> Checked {
        let open: Vec<String> = self
            .checker
            .open_jobs()
            .map(|job| {
                let live: Vec<_> =
                    job.all_live().map(|(id, live)| (id, live.phase, live.token)).collect();
                let has = |server: &&Server| {
                    server.stepped().is_some_and(|it| it.controller().job(&job.id).is_some())
                };
                let in_memory: Vec<usize> =
                    self.servers.iter().filter(has).map(|server| server.index).collect();
                let stored = self.store.held().database.stored(&job.id);
                let row = stored.map(|it| (it.owner, it.row.wake_at, it.row.queued));
                format!("{} {} {live:?}, in memory of {in_memory:?}, {row:?}", job.id, job.state())
            })
            .collect();
        let asks = self.clients.open();
        let detail = format!(
            "{} ms after faults stopped: {open:?}, unanswered {asks:?}",
            self.time.now() - self.scenario.heal_at
        );
        violated(LIVENESS, detail)
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
            Happening::Load(server, life) if self.is_life(server, life) => {
                self.loads_at[server] = None;
                if !self.servers[server].can_reach_store() {
                    return self.load_soon(server, 250);
                }
                if self.servers[server].load() {
                    self.decide_soon(server);
                }
                if self.servers[server].stepped().is_some_and(Stepped::has_unread) {
                    self.load_soon(server, 1);
                }
                self.server_did(server);
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
            Happening::StartWorker(worker) => {
                if !self.workers[worker].up && !self.workers[worker].is_gone {
                    self.workers[worker].start();
                    self.wakes_at[worker] = None;
                    trace!(self, "w{worker} starts, life {}", self.workers[worker].life);
                    self.wake(worker);
                }
            }
            Happening::Wake(worker, life) => {
                let is_due = self.wakes_at[worker] == Some(self.time.now());
                if is_due && self.workers[worker].up && self.workers[worker].life == life {
                    self.wakes_at[worker] = None;
                    self.wake(worker);
                }
            }
            Happening::Thaw(worker) => self.thaw(worker),
            Happening::ToServer { server, life, worker, session, message } => {
                if self.is_life(server, life) {
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
            }
            Happening::ToWorker { worker, life, server, session, message } => {
                if self.workers[worker].up && self.workers[worker].life == life {
                    trace!(self, "w{worker} hears {} of s{server}", message.name());
                    if matches!(message, ToWorker::TookOver { ref attempts, .. } if !attempts.is_empty())
                    {
                        self.checker.seen("attempt adopted by another server");
                    }
                    self.workers[worker].hear(server, session, message);
                    self.wake(worker);
                }
            }
            Happening::Request { server, request, question } => {
                self.request(server, request, question)
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

    fn start_server(&mut self, server: usize) {
        if self.servers[server].phase != Phase::Down {
            return;
        }
        self.servers[server].start();
        let life = self.servers[server].life;
        trace!(self, "s{server} starts as {:?}", self.servers[server].owner);
        (self.decides_at[server], self.writes_at[server], self.loads_at[server]) =
            (None, None, None);
        self.after(1, Happening::Renew(server, life));
        if self.polls {
            self.after(POLL_MS, Happening::Poll(server, life));
        }
        self.decide_soon(server);
    }

    /// Something has come for its engine.
    fn decide_soon(&mut self, server: usize) {
        let at = self.time.now() + self.rng.below(3);
        self.decide_at(server, at);
    }

    fn decide_at(&mut self, server: usize, at: u64) {
        if self.servers[server].stepped().is_some()
            && self.decides_at[server].is_none_or(|before| before > at)
        {
            self.decides_at[server] = Some(at);
            let life = self.servers[server].life;
            self.at(at, Happening::Decide(server, life));
        }
    }

    fn load_soon(&mut self, server: usize, ms: u64) {
        if self.loads_at[server].is_none() {
            let at = self.time.now() + ms;
            self.loads_at[server] = Some(at);
            let life = self.servers[server].life;
            self.at(at, Happening::Load(server, life));
        }
    }

    fn write_soon(&mut self, server: usize) {
        let has_unwritten = self.servers[server].stepped().is_some_and(Stepped::has_unwritten);
        if self.writes_at[server].is_none() && has_unwritten {
            let slow = self.slow_until > self.time.now();
            let takes = if slow { self.rng.between(500, 3000) } else { self.rng.between(1, 8) };
            let at = self.time.now() + takes;
            self.writes_at[server] = Some(at);
            let life = self.servers[server].life;
            self.at(at, Happening::Write(server, life));
        }
    }

    /// The deciding thread sleeps again; the others have something to do.
    fn after_turn(&mut self, server: usize) {
        let Some(stepped) = self.servers[server].stepped() else { return };
        let sleeps = stepped.sleeps().as_millis() as u64;
        let has_unread = stepped.has_unread();
        self.write_soon(server);
        if has_unread {
            self.load_soon(server, 1);
        }
        self.decide_at(server, self.time.now() + sleeps.max(1));
        self.server_did(server);
    }

    fn write(&mut self, server: usize) {
        self.writes_at[server] = None;
        if !self.servers[server].can_reach_store() {
            let (at, life) = (self.time.now() + 250, self.servers[server].life);
            self.writes_at[server] = Some(at);
            return self.at(at, Happening::Write(server, life));
        }
        let written = self.servers[server].write();
        self.look_at_store();
        let is_dead = {
            let mut shared = self.store.held();
            let is_dead = shared.crashed.contains(&server);
            shared.crashed.clear();
            is_dead
        };
        match written {
            Err(why) => {
                trace!(self, "s{server} ends: {why}");
                // What it had let out before it noticed is on its way.
                if !is_dead {
                    self.server_did(server);
                }
                self.crash_server(server);
                let back = self.rng.between(100, 4000);
                self.after(back, Happening::StartServer(server));
            }
            Ok(true) => {
                self.server_did(server);
                self.decide_soon(server);
                self.write_soon(server);
            }
            Ok(false) => self.server_did(server),
        }
    }

    /// What the store has done since is checked, before anybody is told of it.
    fn look_at_store(&mut self) {
        let (observed, database) = {
            let mut shared = self.store.held();
            (std::mem::take(&mut shared.observed), shared.database.is_shared())
        };
        for observed in observed {
            if let Observed::Committed(committed) = &observed {
                for record in &committed.records {
                    trace!(
                        self,
                        "s{} {} {} {:?}",
                        committed.server,
                        committed.job,
                        record.seq,
                        Short(record)
                    );
                }
            }
            let store = self.store.clone();
            let shard_of = |job: &str| database.then(|| store.held().database.shard_of(job));
            let written = match &observed {
                Observed::Committed(committed) => Some((committed.server, committed.job.clone())),
                _ => None,
            };
            let checked = self.checker.observed(observed, shard_of);
            self.violation = self.violation.take().or(checked.err());
            if let Some((server, job)) = written
                && self.store.held().database.is_owned(&job, &self.servers[server].owner.id)
                && let Some(stepped) = self.servers[server].stepped()
            {
                let checked = self.checker.live(server, stepped.controller(), &job);
                self.violation = self.violation.take().or(checked.err());
            }
        }
    }

    /// After every event.
    fn check(&mut self) -> Checked {
        self.look_at_store();
        Ok(())
    }

    /// Now and then, and at the end.
    fn check_all(&mut self) -> Checked {
        self.look_at_store();
        for server in &self.servers {
            if let Some(stepped) = server.stepped() {
                let shared = self.store.held();
                let has = |job: &str| shared.database.is_owned(job, &server.owner.id);
                self.checker.all_live(server.index, stepped.controller(), has)?;
            }
        }
        let shared = self.store.held();
        self.checker.clients.look(|job| shared.database.stored(job).is_some())?;
        drop(shared);
        let now = self.time.now();
        let awake =
            self.workers.iter().enumerate().filter(|(_, it)| it.up && it.frozen_until.is_none());
        let running: Vec<_> =
            awake.flat_map(|(n, worker)| worker.runs().map(move |name| (n, name))).collect();
        let mut attempts = std::mem::take(&mut self.checker.attempts);
        let checked = attempts.look(
            now,
            &running,
            |job| self.checker.state(job),
            |id| {
                let shared = self.store.held();
                let log = shared.database.log(&id.job);
                log.iter().any(|record| {
                    matches!(&record.event, Event::AttemptEnded { token, outcome, .. }
                        if *token == id.token && !matches!(outcome, Outcome::Lost { .. }))
                })
            },
        );
        self.checker.attempts = attempts;
        checked?;
        self.within_slots()
    }

    fn within_slots(&self) -> Checked {
        for (n, worker) in self.workers.iter().enumerate() {
            let (running, slots) = (worker.runs().count(), worker.plan().slots);
            if running > slots as usize {
                let detail = format!("w{n} runs {running} attempts in {slots} slots");
                return violated(super::check::LIMITS, detail);
            }
        }
        Ok(())
    }

    fn server_did(&mut self, server: usize) {
        for did in std::mem::take(&mut self.servers[server].did) {
            match did {
                ServerDid::Send { worker, session, message } => {
                    self.send_to_worker(server, worker, session, message);
                }
                ServerDid::Answer { request, answer } => self.send_answer(request, answer),
                ServerDid::Judged { name, report, counted } => {
                    trace!(self, "s{server} says of {} that {report:?} counts: {counted}", name.id);
                    if counted {
                        let shared = self.store.held();
                        let log = shared.database.log(&name.id.job);
                        let checked = self.checker.attempts.judged(&name, &report, log);
                        drop(shared);
                        self.violation = self.violation.take().or(checked.err());
                    }
                }
                ServerDid::Parked { job, why } => {
                    let parked: Checked =
                        violated(super::check::REPLAY, format!("{job} was parked: {why}"));
                    self.violation = self.violation.take().or(parked.err());
                }
                ServerDid::Loaded(job) => trace!(self, "s{server} has loaded {job}"),
                ServerDid::Slept(job) => {
                    trace!(self, "s{server} has {job} no more in memory");
                    self.checker.seen("job slept");
                }
                ServerDid::Note(note) => {
                    trace!(self, "s{server} {note}");
                    self.checker.seen(&note);
                }
            }
        }
    }

    /// The worker does what is due.
    fn wake(&mut self, worker: usize) {
        self.workers[worker].tick();
        self.worker_did(worker);
        let Some(at) = self.workers[worker].next_wake() else { return };
        let at = at.max(self.time.now() + 1);
        if self.wakes_at[worker].is_none_or(|before| before > at) {
            self.wakes_at[worker] = Some(at);
            let life = self.workers[worker].life;
            self.at(at, Happening::Wake(worker, life));
        }
    }

    fn worker_did(&mut self, worker: usize) {
        for did in std::mem::take(&mut self.workers[worker].did) {
            match did {
                WorkerDid::Send { server, session, message } => {
                    self.send_to_server(worker, server, session, message);
                }
                WorkerDid::Began(name) => {
                    trace!(self, "w{worker} begins {}", name.id);
                    let checked = self.checker.attempts.began(worker, &name);
                    self.violation = self.violation.take().or(checked.err());
                }
                WorkerDid::Ended(id) => trace!(self, "w{worker} has ended {id}"),
                WorkerDid::Called { name, outcome, after_ms, times } => {
                    self.plan_callbacks(&name, &outcome, after_ms, times);
                }
                WorkerDid::Note(note) => {
                    trace!(self, "w{worker} {note}");
                    self.checker.seen(note);
                }
            }
        }
    }

    fn note_checked(&mut self, checked: Checked) {
        self.violation = self.violation.take().or(checked.err());
    }
}

/// An event as a person wants to read it.
struct Short<'a>(&'a steadfast_core::event::RecordedEvent);

impl std::fmt::Debug for Short<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.0.event {
            Event::JobAccepted(accepted) => write!(f, "JobAccepted {}", accepted.plan.name()),
            event => write!(f, "{event:?}"),
        }
    }
}
