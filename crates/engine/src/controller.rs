//! The controller: a plain value that decides. Requests go in, groups of writes come out, and what a group
//! lets out follows its commit.
//!
//! It has no clock, thread, channel or store: a driver hands those in and carries groups to the store.
//! **Nothing of a group leaves before [`Group::committed`]**, and of a write that the store refused nothing
//! leaves at all.

mod departures;
mod group;
mod loading;
mod ownership;
mod request;

use std::collections::{BTreeMap, BTreeSet};

use steadfast_core::decide::Input;
use steadfast_core::defects::{Defect, is_on};
use steadfast_core::event::{AttemptId, JobId, RecordedEvent};
use steadfast_core::job::Job;
use steadfast_core::outcome::Outcome;
use steadfast_core::time::Timestamp;
use steadfast_store::{IdempotencyKey, Plans, Refused, Write};

use crate::batch::{Assignment, Batch, Effect};
use crate::crash::crash_point;
use crate::engine::Engine;
use crate::fleet::{Missed, NameInUse};
use crate::hash::{HashMap, HashSet};
use crate::inbox::{Adopted, CommandError, Lost};
use crate::placement::Placement;
use crate::work::Work;
use crate::workers::Arriving;
use departures::Departures;
use group::PendingReply;
pub use group::{Group, Outgoing, Outputs, Parked};
pub use request::{Loaded, Request};

/// Time for a worker to end an attempt that is over its timeout, and to say so.
const TIMEOUT_LENIENCE_MS: u64 = 30_000;
/// Jobs that wait for a worker with nothing under way, and are in memory all the same, some 2 KB each: what workers take
/// in the next second is there at once. More of them are entries of the queue.
const RESTING_MOST: usize = 16 * 1024;

/// Which reply belongs to which request; the driver's number.
pub type ReplyId = u64;

#[derive(Debug)]
pub struct Controller {
    pub(crate) engine: Engine,
    owned: HashMap<JobId, OwnedJob>,
    /// Jobs that are to be done nothing about until then may leave memory. None: there is nowhere to load them
    /// from again.
    horizon: Option<Timestamp>,
    /// See [`RESTING_MOST`].
    resting_most: usize,
    /// See [`SNAPSHOT_EVERY`](group::SNAPSHOT_EVERY).
    snapshot_every: u64,
    /// What was said about jobs that are being loaded.
    waiting: HashMap<JobId, Vec<(Option<ReplyId>, Request)>>,
    /// Jobs that have left memory because they are over, and whose end is not durable yet: the store still has them open, and
    /// what is said about them waits.
    ending: HashSet<JobId>,
    /// See [`Departures`].
    departures: Departures,
    /// Jobs of which a worker that came in is told again what was decided before.
    told_again: Vec<JobId>,
    /// To be loaded, since this was last asked.
    loads: Vec<JobId>,
    /// Those that were to be, and have not arrived: asked for once is enough.
    looked_for: HashSet<JobId>,
    /// How many [refusals](Self::heard_refusals) of the store are known here.
    refusals: u64,
    /// What is decided is written. Otherwise groups have no writes: rows and states would be made for nothing.
    is_stored: bool,
    /// [`Journal::keeps_readiness`](steadfast_store::Journal::keeps_readiness).
    keeps_readiness: bool,
    /// What jobs in memory share.
    plans: Plans,
    /// Decided since the last group.
    batch: Batch,
    replies: Vec<PendingReply>,
    woken: Vec<Job>,
    slept: Vec<JobId>,
    stuck: Vec<Parked>,
    /// How often shards came whose jobs are still being loaded.
    gaining: usize,
    /// That it began anew in: what was refused in an earlier one is forgotten.
    epoch: u64,
}

/// A worker that has come.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Arrival {
    /// What it has to be told.
    pub missed: Missed,
    /// What it holds for other servers, and is this one's.
    pub adopted: Vec<AttemptId>,
    /// What it says that it has, of whomever, and is not this one's.
    pub not_held: BTreeSet<AttemptId>,
    /// This life was not here before: what an earlier one had is lost, by this group or one before it. **It is welcome once that
    /// is durable**: from then on it says that it was here, and what it does not hold is assigned to it again.
    pub is_new: bool,
}

#[derive(Debug)]
struct OwnedJob {
    snapshot_seq: u64,
    /// Not in a group yet.
    key: Option<IdempotencyKey>,
}

impl Controller {
    pub fn new(room: Placement) -> Self {
        Self::with(Engine::new(room).with_timeout_lenience_ms(TIMEOUT_LENIENCE_MS), true)
    }

    /// One whose groups go to no store. Its workers are a script: they end no attempt at its timeout, and the
    /// engine does.
    pub fn rehearsing(room: Placement) -> Self {
        Self::with(Engine::new(room), false)
    }

    fn with(engine: Engine, is_stored: bool) -> Self {
        Self {
            engine,
            is_stored,
            keeps_readiness: false,
            owned: HashMap::default(),
            horizon: None,
            resting_most: RESTING_MOST,
            snapshot_every: group::SNAPSHOT_EVERY,
            waiting: HashMap::default(),
            ending: HashSet::default(),
            departures: Departures::default(),
            told_again: Vec::new(),
            loads: Vec::new(),
            looked_for: HashSet::default(),
            refusals: 0,
            plans: Plans::default(),
            batch: Batch::default(),
            replies: Vec::new(),
            woken: Vec::new(),
            slept: Vec::new(),
            stuck: Vec::new(),
            gaining: 0,
            epoch: 0,
        }
    }

    /// For a store whose SQL says which items may start.
    #[must_use]
    pub fn keeping_readiness(self, keeps_readiness: bool) -> Self {
        Self { keeps_readiness, ..self }
    }

    /// How many jobs that wait for a worker stay in memory.
    #[must_use]
    pub fn resting_at_most(self, jobs: usize) -> Self {
        Self { resting_most: jobs, ..self }
    }

    /// After how many events, and as many as a job has parts, its state is stored.
    #[must_use]
    pub fn storing_state_every(self, events: u64) -> Self {
        Self { snapshot_every: events, ..self }
    }

    /// From now on jobs are loaded when they are needed, and those that are to be done nothing about until
    /// `horizon` leave memory. Raised before what is due up to it is read.
    pub fn raise_horizon(&mut self, horizon: Timestamp) {
        self.horizon = self.horizon.max(Some(horizon));
    }

    pub fn horizon(&self) -> Option<Timestamp> {
        self.horizon
    }

    /// Decides what all of these come to, and everything that is due.
    pub fn step(
        &mut self,
        requests: impl IntoIterator<Item = (Option<ReplyId>, Request)>,
        now: Timestamp,
    ) -> Option<Group> {
        for (reply_id, request) in requests {
            self.request(reply_id, request, now);
        }
        self.due(now, true);
        self.group()
    }

    /// Decides what one request comes to. Without a [`ReplyId`] no caller waits for the answer.
    pub fn request(&mut self, reply_id: Option<ReplyId>, request: Request, now: Timestamp) {
        let (job, answer) = match request {
            Request::Submit { mut accepted, key } => {
                let id = accepted.id.clone();
                accepted.plan = self.plans.shared(accepted.plan);
                self.owned.insert(id.clone(), OwnedJob { snapshot_seq: 0, key });
                self.batch.join(self.engine.submit(*accepted, now));
                (id, Ok(()))
            }
            Request::Adopt(adopted) => {
                crash_point("during-recovery");
                let id = adopted.job.id.clone();
                self.adopt(*adopted, now);
                (id, Ok(()))
            }
            // It was read before another word about it, which is not in a group yet: it is to be read again.
            Request::Note { job, .. }
                if self.engine.job(&job.id).is_some() && !is_on(Defect::NotedTwice) =>
            {
                let found = self.engine.job(&job.id).map_or(0, |live| live.seq);
                let why = Refused::Conflict { expected: job.seq, found };
                (job.id.clone(), Err(CommandError::Taken { job: job.id.clone(), why }))
            }
            Request::Note { job, input } => {
                let (id, snapshot_seq) = (job.id.clone(), job.seq);
                self.owned.insert(id.clone(), OwnedJob { snapshot_seq, key: None });
                let noted = self.engine.note(*job, &input, now);
                (id, noted.map(|more| self.batch.join(more)).map_err(CommandError::from))
            }
            Request::Input { job, input }
                if self.horizon.is_some()
                    && self.engine.job(&job).is_none()
                    && !is_on(Defect::ReportBeforeLoadLost) =>
            {
                if !self.waiting.contains_key(&job) && !self.ending.contains(&job) {
                    self.look_for(job.clone());
                }
                let waiting = self.waiting.entry(job.clone()).or_default();
                waiting.push((reply_id, Request::Input { job, input }));
                return;
            }
            Request::Input { job, input } => {
                let decided = self.engine.handle(&job, &input, now, &mut self.batch);
                let answer = match decided {
                    Ok(decided) => decided.map_err(CommandError::from),
                    Err(_) => Err(CommandError::Unknown(job.clone())),
                };
                (job, answer)
            }
        };
        self.replies.extend(reply_id.map(|reply_id| PendingReply { reply_id, answer, job }));
    }

    fn adopt(&mut self, adopted: Adopted, now: Timestamp) {
        let Adopted { job, gaps, lost } = adopted;
        let id = job.id.clone();
        self.owned.insert(id.clone(), OwnedJob { snapshot_seq: job.seq, key: None });
        self.woken.push(job.clone());
        self.batch.join(self.engine.adopt(job, &gaps, now));
        for Lost { item, token, started } in lost {
            let outcome = Outcome::Lost { started, why: None };
            let input = Input::Report { item, token, outcome };
            let _ = self.engine.handle(&id, &input, now, &mut self.batch);
        }
    }

    /// The jobs in memory, and the workers: what they do needs no store.
    pub fn engine(&self) -> &Engine {
        &self.engine
    }

    pub fn engine_mut(&mut self) -> &mut Engine {
        &mut self.engine
    }

    /// A worker comes in.
    pub fn connect(&mut self, arriving: Arriving, now: Timestamp) -> Result<Arrival, NameInUse> {
        let (worker, is_new) = (arriving.spec.name.clone(), !arriving.returning);
        let mut not_held = &arriving.holds | &arriving.elsewhere;
        let (batch, adopted) = self.engine.connect(arriving, now)?;
        not_held.retain(|id| !self.engine.has_at(&worker, id));
        self.told_again.extend(batch.effects.iter().filter_map(|effect| match effect {
            Effect::Assign(assignment) => Some(assignment.job.clone()),
            // What is not known here may be another one's by now, which would take the attempt for one that never arrived.
            Effect::Withdraw(over) if !is_on(Defect::WithdrawsUnasked) => Some(over.job.clone()),
            Effect::Withdraw(_) => None,
        }));
        self.batch.join(batch);
        Ok(Arrival { missed: self.engine.missed(&worker), adopted, not_held, is_new })
    }

    /// The job, as it goes on elsewhere.
    pub fn into_job(mut self, id: &str) -> Option<Job> {
        self.engine.forget(id).map(|job| *job)
    }

    /// A job in memory.
    pub fn job(&self, id: &str) -> Option<&Job> {
        self.engine.job(id)
    }

    /// In the next group.
    pub(crate) fn has_decided_about(&self, jobs: usize) -> bool {
        self.batch.has_jobs(jobs)
    }

    /// A caller waits for what was decided since the last group.
    pub(crate) fn owes_replies(&self) -> bool {
        !self.replies.is_empty()
    }

    /// Fires timers, ends leases and starts what has room. `heard_all`: every worker's sign of life that
    /// arrived has been taken; only then is silence silence.
    pub fn due(&mut self, now: Timestamp, heard_all: bool) {
        // The millisecond of a decision had begun before it was made: only when the one it is due in is over
        // has it waited long enough. Never early, at most 1 ms late.
        while self.next_due().is_some_and(|due| due < now) {
            self.tick(now);
        }
        if heard_all {
            self.batch.join(self.engine.tick_workers(now));
        }
        self.start(now);
    }

    /// When [`Self::tick`] has something to do.
    pub fn next_due(&self) -> Option<Timestamp> {
        self.engine.next_due()
    }

    /// Fires the soonest timer that is due.
    pub fn tick(&mut self, now: Timestamp) {
        self.batch.join(self.engine.tick(now));
    }

    /// Starts what may start and has room.
    pub fn start(&mut self, now: Timestamp) {
        loop {
            let starts = self.engine.dispatch(now);
            if starts.is_empty() {
                break;
            }
            self.batch.join(starts);
        }
    }

    /// What was decided since the last group; none: nothing.
    pub fn group(&mut self) -> Option<Group> {
        self.group_of(|job, assignment| Box::new(Work::of(job, assignment)))
    }

    /// The same; `fill` makes of an assignment what a worker is given.
    pub fn group_of<W>(&mut self, fill: impl Fn(&Job, Assignment) -> W) -> Option<Group<W>> {
        let batch = std::mem::take(&mut self.batch);
        let mut replies = std::mem::take(&mut self.replies);
        let (news, credits) = (self.engine.take_news(), self.engine.take_credit_notices());
        let mut parked = self.engine.take_parked();
        let (woken, slept) = (std::mem::take(&mut self.woken), std::mem::take(&mut self.slept));
        let nothing =
            batch.is_empty() && replies.is_empty() && news.is_empty() && parked.is_empty();
        let ask = if self.gaining == 0 { self.engine.take_unasked() } else { Vec::new() };
        if nothing
            && woken.is_empty()
            && slept.is_empty()
            && ask.is_empty()
            && credits.is_empty()
            && self.stuck.is_empty()
        {
            return None;
        }
        if !self.is_stored {
            let unwritten = batch.records;
            let effects = self.filled(batch.effects, fill);
            let is_over = |id: &JobId| self.engine.job(id).is_some_and(Job::is_over);
            let over: Vec<JobId> =
                unwritten.iter().map(|(id, _)| id).filter(|id| is_over(id)).cloned().collect();
            let ended = over.iter().filter_map(|id| self.engine.forget(id)).collect();
            return Some(Group { unwritten, replies, effects, ended, ..Group::default() });
        }
        let mut by_job: BTreeMap<JobId, Vec<RecordedEvent>> = BTreeMap::new();
        for (id, mut log) in batch.records {
            by_job.entry(id).and_modify(|all| all.append(&mut log)).or_insert(log);
        }
        // Of a job that was parked meanwhile nothing is written: its log ends with the last group.
        for Parked { job, why } in &parked {
            self.owned.remove(job);
            by_job.remove(job);
            for reply in replies.iter_mut().filter(|reply| reply.job == *job) {
                reply.answer = Err(CommandError::Stuck { job: job.clone(), why: why.clone() });
            }
        }
        let effects = self.filled(batch.effects, fill);
        let told_again = std::mem::take(&mut self.told_again);
        let mut idle = Vec::new();
        for (id, records) in &by_job {
            let last = records.last().map_or(0, |record| record.seq);
            if self.engine.job(id).is_some_and(|job| !job.is_over()) && self.may_sleep(id) {
                idle.push((id.clone(), last));
            }
        }
        // Loaded, and nothing came of it: it may leave again, unless its turn has come.
        for job in woken.iter().filter(|job| !by_job.contains_key(&job.id)) {
            if !self.engine.is_runnable(&job.id) {
                idle.push((job.id.clone(), job.seq));
            }
        }
        let mut ended = Vec::new();
        let writes = by_job.into_iter().filter_map(|(id, records)| {
            let write = self.write(id, records)?;
            if write.row.over {
                self.owned.remove(&write.job);
                ended.extend(self.engine.forget(&write.job));
                if self.horizon.is_some() {
                    self.ending.insert(write.job.clone());
                }
            }
            Some(write)
        });
        let writes: Vec<Write> = writes.collect();
        let refusals = self.refusals;
        parked.append(&mut self.stuck);
        let group = Group { writes, refusals, replies, effects, credits, ..Group::default() };
        let group = Group { told_again, news, parked, ask, ..group };
        Some(Group { woken, slept, idle, ended, ..group })
    }

    fn filled<W>(
        &self,
        effects: Vec<Effect>,
        fill: impl Fn(&Job, Assignment) -> W,
    ) -> Vec<(JobId, Outgoing<W>)> {
        let filled = effects.into_iter().filter_map(|effect| match effect {
            Effect::Assign(assignment) => {
                let job = self.engine.job(&assignment.job)?;
                Some((job.id.clone(), Outgoing::Assign(fill(job, assignment))))
            }
            Effect::Withdraw(over) => Some((over.job.clone(), Outgoing::Withdraw(over))),
        });
        filled.collect()
    }
}
