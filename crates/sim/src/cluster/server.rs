//! A server: the real [`Controller`](steadfast_engine::Controller) with its driver, called by hand, and its real place among the others
//! ([`Membership`]). Around it a model of what the server's crate does with sockets: sessions of workers (`sessions`), and
//! requests, also of other servers (`commands`, `callbacks`, `peers`), which translate and decide nothing.

mod requests;
mod sessions;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};

use steadfast_core::defects::{Defect, is_on};
use steadfast_core::event::JobId;
use steadfast_core::job::Job;
use steadfast_core::time::Timestamp;
use steadfast_engine::{
    Assignment, Clock as _, Controller, CreditNotice, FleetNotification, FleetRules, Loader,
    Observer, Outgoing, Ownership, Patience, Placement, Stepped, Work, Workers,
};
use steadfast_store::members::Membership;
use steadfast_store::{Journal as _, OwnedShards, Owner, Refused, Renewal};

use super::clock::{MachineClock, WorldTime};
use super::messages::{AttemptName, ToWorker};
use super::requests::{Answer, RequestId};
use super::rng::Rng;
use super::store::{FORMAT, SimStore};
pub(crate) use sessions::ServerSession;

/// Shorter than outside, so that a simulated minute has many of them.
pub(crate) const LEASE_MS: u64 = 6000;
pub(crate) const BEAT_MS: u64 = 1000;
/// For so long after its last renewal a server vouches for what workers run.
pub(crate) const TOLERANCE_MS: u64 = 8000;
/// A server that comes waits so long for its first shards.
const FIRST_MS: u64 = 12_000;

/// What comes out of the engine, in order.
#[derive(Debug)]
enum Out {
    Engine(Outgoing),
    Ask(Arc<str>),
    Credits(Arc<str>, CreditNotice),
    BegunAnew,
    Session(sessions::SessionOut),
    Request(requests::RequestOut),
    Refused(Refused),
    Parked(JobId, String),
    Fleet(FleetNotification),
    Woken(JobId),
    Slept(JobId),
}

type Outbox = Arc<Mutex<VecDeque<Out>>>;

fn put(outbox: &Outbox, out: Out) {
    outbox.lock().unwrap_or_else(PoisonError::into_inner).push_back(out);
}

/// Hands on what the engine lets out.
#[derive(Debug)]
struct Exit(Outbox);

impl Workers for Exit {
    fn assign(&mut self, work: Box<Work>) {
        put(&self.0, Out::Engine(Outgoing::Assign(work)));
    }

    fn withdraw(&mut self, over: Assignment) {
        put(&self.0, Out::Engine(Outgoing::Withdraw(over)));
    }

    fn settled(&mut self, _: &JobId, _: u64) {}

    fn ask(&mut self, worker: &str) {
        put(&self.0, Out::Ask(worker.into()));
    }

    fn credits(&mut self, worker: &str, notice: CreditNotice) {
        put(&self.0, Out::Credits(worker.into(), notice));
    }
}

impl Observer for Exit {
    fn committed(&mut self, _: &JobId, _: Vec<steadfast_core::event::RecordedEvent>) {}

    fn fleet(&mut self, news: Vec<FleetNotification>) {
        for news in news {
            put(&self.0, Out::Fleet(news));
        }
    }

    fn refused(&mut self, _: &JobId, why: &Refused) {
        put(&self.0, Out::Refused(why.clone()));
    }

    fn woken(&mut self, job: &Job) {
        put(&self.0, Out::Woken(job.id.clone()));
    }

    fn slept(&mut self, job: &JobId) {
        put(&self.0, Out::Slept(job.clone()));
    }

    fn parked(&mut self, job: &JobId, why: &str) {
        put(&self.0, Out::Parked(job.clone(), why.to_owned()));
    }
}

/// What a server does that others see, in order.
#[derive(Debug)]
pub(crate) enum Did {
    Send {
        worker: usize,
        session: u64,
        message: ToWorker,
    },
    Answer {
        request: RequestId,
        answer: Answer,
    },
    /// A report was said to count, or not to.
    Judged {
        name: AttemptName,
        report: steadfast_api::WorkerReport,
        counted: bool,
    },
    Parked {
        job: JobId,
        why: String,
    },
    Loaded(JobId),
    Slept(JobId),
    /// How often is counted.
    Note(String),
    /// For the trace.
    Detail(String),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    Down,
    /// It waits for its first shards.
    Joining {
        since: u64,
    },
    Up,
}

/// What a server was started with, by the scenario.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ServerPlan {
    pub(crate) snapshot_every: u64,
    pub(crate) resting_most: usize,
}

#[allow(clippy::struct_excessive_bools, reason = "each is one fact of a process")]
pub(crate) struct Server {
    pub(crate) index: usize,
    pub(crate) life: u32,
    pub(crate) phase: Phase,
    /// The process stands still until then.
    pub(crate) frozen_until: Option<u64>,
    /// It cannot reach the store until then.
    pub(crate) cut_until: u64,
    pub(crate) clock: Arc<MachineClock>,
    plan: ServerPlan,
    time: WorldTime,
    store: SimStore,
    pub(crate) shards: Arc<OwnedShards>,
    membership: Option<Membership>,
    pub(crate) owner: Owner,
    /// What it must know to begin could not be read: the process ends.
    pub(crate) cannot_start: bool,
    /// Others took it for dead before it had begun.
    was_ended: bool,
    /// It has been taken over, and does not go on before nothing of that is in memory.
    begins_anew: bool,
    /// The scopes that were taken over, with their epochs.
    taken_over: BTreeMap<String, u64>,
    renewed_at: u64,
    stepped: Option<Stepped>,
    recovered: bool,
    sessions: BTreeMap<usize, ServerSession>,
    outbox: Outbox,
    keys_in_use: BTreeSet<String>,
    /// Asked of another server, for these.
    asked: Vec<(i64, RequestId)>,
    answering: BTreeSet<i64>,
    last_id: u64,
    pub(crate) did: Vec<Did>,
}

impl Server {
    pub(crate) fn new(
        index: usize,
        plan: ServerPlan,
        store: &SimStore,
        time: &WorldTime,
        seed: u64,
    ) -> Self {
        let mut rng = Rng::new(seed, &format!("server {index}"));
        let drift = rng.between(0, 400) as i64 - 200;
        Self {
            index,
            life: 0,
            phase: Phase::Down,
            frozen_until: None,
            cut_until: 0,
            clock: Arc::new(MachineClock::new(time, drift)),
            plan,
            time: time.clone(),
            store: store.clone(),
            shards: Arc::new(OwnedShards::all()),
            membership: None,
            owner: Owner { id: Owner::SHARD.into(), epoch: 0 },
            cannot_start: false,
            was_ended: false,
            begins_anew: false,
            taken_over: BTreeMap::new(),
            renewed_at: 0,
            stepped: None,
            recovered: false,
            sessions: BTreeMap::new(),
            outbox: Outbox::default(),
            keys_in_use: BTreeSet::new(),
            asked: Vec::new(),
            answering: BTreeSet::new(),
            last_id: 0,
            did: Vec::new(),
        }
    }

    fn is_shared(&self) -> bool {
        self.store.held().database.is_shared()
    }

    pub(crate) fn stepped(&self) -> Option<&Stepped> {
        self.stepped.as_ref()
    }

    /// Whether it can be asked anything.
    pub(crate) fn is_up(&self) -> bool {
        self.phase == Phase::Up && self.recovered
    }

    pub(crate) fn can_reach_store(&self) -> bool {
        self.cut_until <= self.time.now()
    }

    /// A process begins.
    pub(crate) fn start(&mut self) {
        self.life += 1;
        self.cannot_start = false;
        self.outbox = Outbox::default();
        (self.recovered, self.begins_anew, self.was_ended) = (false, false, false);
        self.taken_over.clear();
        let mut connection = self.store.connect(self.index);
        let now = self.clock.now();
        if self.is_shared() {
            let id = format!("server-{}-{}", self.index, self.life);
            let incarnation = connection.join(&id);
            self.owner = connection.take(&id, now, None).expect("a simulated take does not fail");
            self.membership = Some(Membership::new(id.into(), incarnation, FORMAT));
            let shards = self.store.held().database.shard_count();
            self.shards = Arc::new(OwnedShards::of(shards));
            self.phase = Phase::Joining { since: self.time.now() };
        } else {
            let alive_at = self.store.held().database.alive_at;
            let owner = connection.take(Owner::SHARD, now, alive_at);
            self.owner = owner.expect("a simulated take does not fail");
            self.begin();
        }
    }

    fn begin(&mut self) {
        let rules = FleetRules {
            lease_ms: LEASE_MS,
            tolerance_ms: self.is_shared().then_some(TOLERANCE_MS),
            failures: 4,
            quarantine_ms: 5000,
            quarantine_most_ms: 20_000,
            ..FleetRules::default()
        };
        let connect = || Box::new(self.store.connect(self.index));
        let controller = Controller::new(Placement::fleet(rules))
            .resting_at_most(self.plan.resting_most)
            .storing_state_every(self.plan.snapshot_every);
        let loader = Some(Loader::new(connect(), connect(), self.owner.clone()));
        let (owner, shards) = (self.owner.clone(), self.shards.clone());
        let ownership = Ownership { owner, shards, loader, patience: Patience::Endless };
        let outbox = self.outbox.clone();
        self.stepped = Some(Stepped::start(
            connect(),
            self.clock.clone(),
            controller,
            ownership,
            |_| Exit(outbox.clone()),
            Box::new(Exit(outbox.clone())),
        ));
        self.renewed_at = self.clock.monotonic_ms();
        self.phase = Phase::Up;
    }

    /// What it has in memory is of before it was taken for dead.
    pub(crate) fn begins_anew(&self) -> bool {
        self.begins_anew
    }

    /// kill -9.
    pub(crate) fn crash(&mut self) {
        self.phase = Phase::Down;
        self.stepped = None;
        (self.membership, self.frozen_until) = (None, None);
        self.sessions.clear();
        self.keys_in_use.clear();
        self.asked.clear();
        self.answering.clear();
    }

    /// SIGTERM: what has arrived is decided and written, and its row given up.
    pub(crate) fn stop(&mut self) {
        for _ in 0..4 {
            self.decide();
            if self.write().is_err() {
                break;
            }
        }
        if let Some(membership) = &self.membership {
            let mut connection = self.store.connect(self.index);
            connection.leave(&membership.id, membership.incarnation());
        }
        self.crash();
    }

    /// Once a second, and more often until it has shards.
    pub(crate) fn renew(&mut self) {
        let (now, mono) = (self.clock.now(), self.clock.monotonic_ms());
        if !self.can_reach_store() || self.begins_anew {
            return;
        }
        self.end_silent_sessions();
        let Some(membership) = &mut self.membership else {
            self.store.held().database.alive_at = Some(now);
            return;
        };
        let mut connection = self.store.connect(self.index);
        let Ok(renewal) = membership.renew(&mut connection, self.clock.elapsed(), now);
        self.shards.set(&membership.has, &membership.giving);
        if let Phase::Joining { since } = self.phase {
            self.was_ended |= renewal.is_ended;
            if !membership.has.is_empty() || since + FIRST_MS <= self.time.now() {
                membership.begun();
                self.shards.set(&membership.has, &membership.giving);
                if self.was_ended && !is_on(Defect::BeginsInOldEpoch) {
                    let owner = connection.take(&self.owner.id, Timestamp(0), None);
                    self.owner = owner.expect("a simulated take does not fail");
                    self.did
                        .push(Did::Note("server was taken for dead while it joined".to_owned()));
                }
                self.begin();
            }
            return;
        }
        self.renewed_at = mono;
        self.heard(renewal);
    }

    fn heard(&mut self, renewal: Renewal) {
        let Renewal { gained, give, ended, is_ended, .. } = renewal;
        let Some(stepped) = &self.stepped else { return };
        for (owner, epoch) in ended {
            let known = self.taken_over.entry(format!("sim/{owner}")).or_default();
            *known = epoch.max(*known);
        }
        if is_ended {
            self.did.push(Did::Note("server was taken for dead".to_owned()));
            let mut connection = self.store.connect(self.index);
            let owner = connection.take(&self.owner.id, Timestamp(0), None);
            self.owner = owner.expect("a simulated take does not fail");
            self.begins_anew = true;
            let outbox = self.outbox.clone();
            let reply = Box::new(move |()| put(&outbox, Out::BegunAnew));
            stepped.inbox().begin_anew(self.owner.clone(), reply);
        }
        if !gained.is_empty() {
            self.did.push(Did::Detail(format!("gains shards {gained:?}")));
            stepped.inbox().gain(gained);
        }
        for (to, shards) in give {
            self.did.push(Did::Detail(format!("gives shards {shards:?} to {to}")));
            stepped.inbox().give(shards, to);
        }
    }

    pub(crate) fn decide(&mut self) {
        if let Some(stepped) = &mut self.stepped {
            stepped.decide();
            match stepped.recovered() {
                Some(Ok(())) => self.recovered = true,
                Some(Err(_)) => self.cannot_start = true,
                None => {}
            }
        }
        self.let_out();
    }

    /// An error: nothing more can be acknowledged, and the process ends. False: there was nothing to write.
    pub(crate) fn write(&mut self) -> Result<bool, String> {
        let Some(stepped) = &mut self.stepped else { return Ok(false) };
        let written = stepped.write().map_err(|why| why.to_string());
        self.let_out();
        written
    }

    pub(crate) fn load(&mut self) -> bool {
        self.stepped.as_mut().is_some_and(Stepped::load)
    }

    /// What was read arrives, at most so much of it.
    pub(crate) fn deliver(&mut self, most: usize) {
        if let Some(stepped) = &mut self.stepped {
            stepped.deliver(most);
        }
        self.let_out();
    }

    /// What came out of the engine goes on its way.
    fn let_out(&mut self) {
        let taken =
            std::mem::take(&mut *self.outbox.lock().unwrap_or_else(PoisonError::into_inner));
        for out in taken {
            match out {
                Out::Engine(Outgoing::Assign(work)) => self.assign(work),
                Out::Engine(Outgoing::Withdraw(over)) => self.withdraw(&over),
                Out::Ask(worker) => self.ask_worker(&worker),
                Out::Credits(worker, notice) => {
                    let message = match notice {
                        CreditNotice::Taken(number) => ToWorker::CreditsTaken(number),
                        CreditNotice::Wanted => ToWorker::Wanted,
                    };
                    self.tell(&worker, message);
                }
                Out::BegunAnew => self.begins_anew = false,
                Out::Session(out) => self.session_out(out),
                Out::Request(out) => self.request_out(out),
                Out::Refused(why) => self.did.push(Did::Note(
                    match why {
                        Refused::Conflict { .. } => "write refused: another sequence",
                        Refused::Fenced { .. } => "write refused: fenced",
                        Refused::NotOurs { .. } => "write refused: not ours",
                        Refused::KeyTaken { .. } => "write refused: key taken",
                    }
                    .to_owned(),
                )),
                Out::Woken(job) => {
                    let stored = self.store.held().database.stored(&job);
                    if stored.is_some_and(|stored| stored.snapshot.is_some()) {
                        self.did.push(Did::Note("job loaded from a stored state".to_owned()));
                    }
                    self.did.push(Did::Loaded(job));
                }
                Out::Slept(job) => self.did.push(Did::Slept(job)),
                Out::Parked(job, why) => self.did.push(Did::Parked { job, why }),
                Out::Fleet(news) => {
                    let name = match news {
                        FleetNotification::Lost { .. } => "worker lost",
                        FleetNotification::Quarantined { .. } => "worker quarantined",
                        FleetNotification::OnProbation { .. } => "worker on probation",
                        FleetNotification::Left { .. } => "worker left",
                        FleetNotification::Draining { .. } => "worker drains",
                        FleetNotification::Undrained { .. } => "worker undrained",
                        FleetNotification::Connected { .. } | FleetNotification::Away { .. } => {
                            continue;
                        }
                    };
                    self.did.push(Did::Note(name.to_owned()));
                }
            }
        }
    }

    /// As what the server speaks of a job, and in which epoch. None: another server has it.
    fn of_job(&self, job: &str) -> Option<(String, u64)> {
        if !self.shards.are_shared() {
            return Some((String::new(), self.owner.epoch));
        }
        let shard = self.shards.shard_of(job);
        Some((format!("sim#{shard}"), self.shards.term(shard)?))
    }

    /// For so long after its last renewal, attempts go on.
    fn vouches(&self) -> bool {
        let since = self.clock.monotonic_ms().saturating_sub(self.renewed_at);
        !self.shards.are_shared() || since <= TOLERANCE_MS
    }
}
