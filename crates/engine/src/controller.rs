//! The controller: a plain value that decides. Requests go in, groups of writes come out, and what a group
//! lets out follows its commit.
//!
//! It has no clock, thread, channel or store: a driver hands those in and carries groups to the store.
//! **Nothing of a group leaves before [`Group::committed`]**, and of a write that the store refused nothing
//! leaves at all.

use std::collections::{BTreeMap, HashMap};

use steadfast_core::decide::Input;
use steadfast_core::event::{AcceptedJob, Event, JobId, RecordedEvent};
use steadfast_core::job::{Job, StepRun};
use steadfast_core::outcome::Outcome;
use steadfast_core::time::Timestamp;
use steadfast_store::{IdempotencyKey, Refused, Row, Write};

use crate::batch::{Assignment, Batch, Effect};
use crate::crash::crash_point;
use crate::engine::Engine;
use crate::fleet::FleetNotification;
use crate::inbox::{Adopted, Answer, CommandError, Lost};
use crate::load::Unreadable;
use crate::placement::Placement;
use crate::work::Work;

/// Time for a worker to end an attempt that is over its timeout, and to say so.
const TIMEOUT_LENIENCE_MS: u64 = 30_000;
/// Events after which the state is stored too, so that recovery does not read a long log.
const SNAPSHOT_EVERY: u64 = 1000;

/// Which reply belongs to which request; the driver's number.
pub type ReplyId = u64;

/// What must become durable before it is answered.
#[derive(Debug)]
pub enum Request {
    Submit {
        accepted: Box<AcceptedJob>,
        key: Option<IdempotencyKey>,
    },
    /// Goes on with a stored job.
    Adopt(Box<Adopted>),
    /// A command of a person, or a report of a worker.
    Input {
        job: JobId,
        input: Input,
    },
    /// A word about a job that is over, as it is stored.
    Note {
        job: Box<Job>,
        input: Input,
    },
}

/// What was found of a job that is not in memory. None: no such job, or one that is over or another's.
pub type Loaded = Result<Option<Box<Adopted>>, Unreadable>;

#[derive(Debug)]
pub struct Controller {
    pub(crate) engine: Engine,
    owned: HashMap<JobId, OwnedJob>,
    /// Jobs that are to be done nothing about until then may leave memory. None: there is nowhere to load them
    /// from again.
    horizon: Option<Timestamp>,
    /// What was said about jobs that are being loaded.
    waiting: HashMap<JobId, Vec<(Option<ReplyId>, Request)>>,
    /// To be loaded, since this was last asked.
    loads: Vec<JobId>,
    /// Decided since the last group.
    batch: Batch,
    replies: Vec<PendingReply>,
    woken: Vec<Job>,
    slept: Vec<JobId>,
    stuck: Vec<Parked>,
}

#[derive(Debug)]
struct OwnedJob {
    snapshot_seq: u64,
    /// Not in a group yet.
    key: Option<IdempotencyKey>,
}

/// A reply that waits for what it is about to be durable.
#[derive(Debug)]
struct PendingReply {
    reply_id: ReplyId,
    answer: Answer,
    job: JobId,
}

/// One transaction, and what waits for it.
#[derive(Debug, Default)]
#[must_use = "a group that is not committed is lost, and all that waits for it"]
pub struct Group {
    pub writes: Vec<Write>,
    replies: Vec<PendingReply>,
    effects: Vec<Outgoing>,
    news: Vec<FleetNotification>,
    parked: Vec<Parked>,
    woken: Vec<Job>,
    slept: Vec<JobId>,
    idle: Vec<(JobId, u64)>,
}

/// A job that cannot go on: it cannot be read, or its next event would contradict its state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Parked {
    pub job: JobId,
    pub why: String,
}

/// What leaves for a worker.
#[derive(Clone, Debug, PartialEq)]
pub enum Outgoing {
    Assign(Box<Work>),
    Withdraw(Assignment),
}

impl Outgoing {
    fn job(&self) -> &JobId {
        match self {
            Self::Assign(work) => &work.assignment.job,
            Self::Withdraw(over) => &over.job,
        }
    }
}

/// What a commit lets out, in this order.
#[derive(Debug, Default)]
pub struct Outputs {
    pub events: Vec<(JobId, Vec<RecordedEvent>)>,
    pub replies: Vec<(ReplyId, Answer)>,
    pub effects: Vec<Outgoing>,
    pub news: Vec<FleetNotification>,
    /// The controller has to be told of these: [`Controller::refused`].
    pub refused: Vec<(JobId, Refused)>,
    /// To be marked in the store.
    pub parked: Vec<Parked>,
    /// Jobs that were loaded, before anything was decided about them, and jobs that left memory.
    pub woken: Vec<Job>,
    pub slept: Vec<JobId>,
    /// The controller has to be told of these too: [`Controller::idle`].
    pub idle: Vec<(JobId, u64)>,
}

impl Controller {
    pub fn new(room: Placement) -> Self {
        Self {
            engine: Engine::new(room).with_timeout_lenience_ms(TIMEOUT_LENIENCE_MS),
            owned: HashMap::new(),
            horizon: None,
            waiting: HashMap::new(),
            loads: Vec::new(),
            batch: Batch::default(),
            replies: Vec::new(),
            woken: Vec::new(),
            slept: Vec::new(),
            stuck: Vec::new(),
        }
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

    /// Decides what one request comes to. Without a [`ReplyId`] nobody waits for the answer.
    pub fn request(&mut self, reply_id: Option<ReplyId>, request: Request, now: Timestamp) {
        let (job, answer) = match request {
            Request::Submit { accepted, key } => {
                let id = accepted.id.clone();
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
            Request::Note { job, input } => {
                let (id, snapshot_seq) = (job.id.clone(), job.seq);
                self.owned.insert(id.clone(), OwnedJob { snapshot_seq, key: None });
                let noted = self.engine.note(*job, &input, now);
                (id, noted.map(|more| self.batch.join(more)).map_err(CommandError::from))
            }
            Request::Input { job, input }
                if self.horizon.is_some() && self.engine.job(&job).is_none() =>
            {
                let waiting = self.waiting.entry(job.clone()).or_insert_with(|| {
                    self.loads.push(job.clone());
                    vec![]
                });
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

    /// Jobs that something was said about and that are not in memory.
    pub fn take_loads(&mut self) -> Vec<JobId> {
        std::mem::take(&mut self.loads)
    }

    /// A job was looked for, because it is due or something was said about it.
    pub fn loaded(&mut self, job: &JobId, found: Loaded, now: Timestamp) {
        let waiting = self.waiting.remove(job).unwrap_or_default();
        let absent = match found {
            // It came in some other way meanwhile.
            _ if self.engine.job(job).is_some() => None,
            Ok(Some(adopted)) => {
                crash_point("during-recovery");
                self.adopt(*adopted, now);
                None
            }
            Ok(None) => Some(CommandError::Unknown(job.clone())),
            Err(why) => {
                let (job, text) = (job.clone(), why.to_string());
                match why {
                    Unreadable::Parked(_) => {}
                    why if why.is_of_one_job() => {
                        self.stuck.push(Parked { job: job.clone(), why: text.clone() });
                    }
                    _ => return self.answer_all(waiting, &job, &CommandError::Unavailable(text)),
                }
                Some(CommandError::Stuck { job, why: text })
            }
        };
        match absent {
            Some(why) => self.answer_all(waiting, job, &why),
            None => waiting.into_iter().for_each(|(reply_id, it)| self.request(reply_id, it, now)),
        }
    }

    fn answer_all(
        &mut self,
        all: Vec<(Option<ReplyId>, Request)>,
        job: &JobId,
        why: &CommandError,
    ) {
        let reply_ids = all.into_iter().filter_map(|(reply_id, _)| reply_id);
        let reply =
            |reply_id| PendingReply { reply_id, answer: Err(why.clone()), job: job.clone() };
        self.replies.extend(reply_ids.map(reply));
    }

    /// The job is durable up to this event. If that was its last, and nothing is to be done about it soon, it
    /// leaves memory.
    pub fn idle(&mut self, job: &JobId, seq: u64) {
        let is_last = self.engine.job(job).is_some_and(|job| job.seq == seq);
        if is_last && self.may_sleep(job) {
            self.engine.forget(job);
            self.owned.remove(job);
            self.slept.push(job.clone());
        }
    }

    fn may_sleep(&self, job: &JobId) -> bool {
        let Some(horizon) = self.horizon else { return false };
        self.engine.idle_until(job).is_some_and(|until| until > horizon)
    }

    /// Takes what was decided about workers into the next group.
    pub(crate) fn join(&mut self, batch: Batch) {
        self.batch.join(batch);
    }

    /// Somebody waits for what was decided since the last group.
    pub(crate) fn owes_replies(&self) -> bool {
        !self.replies.is_empty()
    }

    /// Fires timers, ends leases and starts what has room. `heard_all`: every worker's sign of life that
    /// arrived has been taken; only then is silence silence.
    pub fn due(&mut self, now: Timestamp, heard_all: bool) {
        // The millisecond of a decision had begun before it was made: only when the one it is due in is over
        // has it waited long enough. Never early, at most 1 ms late.
        while self.engine.next_due().is_some_and(|due| due < now) {
            self.batch.join(self.engine.tick(now));
        }
        if heard_all {
            self.batch.join(self.engine.tick_workers(now));
        }
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
        let batch = std::mem::take(&mut self.batch);
        let mut replies = std::mem::take(&mut self.replies);
        let news = self.engine.take_news();
        let mut parked = self.engine.take_parked();
        let (woken, slept) = (std::mem::take(&mut self.woken), std::mem::take(&mut self.slept));
        let nothing =
            batch.is_empty() && replies.is_empty() && news.is_empty() && parked.is_empty();
        if nothing && woken.is_empty() && slept.is_empty() && self.stuck.is_empty() {
            return None;
        }
        let mut by_job: BTreeMap<JobId, Vec<RecordedEvent>> = BTreeMap::new();
        for (id, record) in batch.records {
            by_job.entry(id).or_default().push(record);
        }
        // Of a job that was parked meanwhile nothing is written: its log ends with the last group.
        for Parked { job, why } in &parked {
            self.owned.remove(job);
            by_job.remove(job);
            for reply in replies.iter_mut().filter(|reply| reply.job == *job) {
                reply.answer = Err(CommandError::Stuck { job: job.clone(), why: why.clone() });
            }
        }
        let effects = batch.effects.into_iter().filter_map(|effect| match effect {
            Effect::Assign(assignment) => {
                let job = self.engine.job(&assignment.job)?;
                Some(Outgoing::Assign(Box::new(Work::of(job, assignment))))
            }
            Effect::Withdraw(over) => Some(Outgoing::Withdraw(over)),
        });
        let effects = effects.collect();
        let mut idle = Vec::new();
        for (id, records) in &by_job {
            let last = records.last().map_or(0, |record| record.seq);
            if self.may_sleep(id) && self.engine.job(id).is_some_and(|job| !job.is_over()) {
                idle.push((id.clone(), last));
            }
        }
        // Loaded, and nothing came of it: it may leave again.
        for job in woken.iter().filter(|job| !by_job.contains_key(&job.id)) {
            idle.push((job.id.clone(), job.seq));
        }
        let writes =
            by_job.into_iter().filter_map(|(id, records)| self.write(id, records)).collect();
        parked.append(&mut self.stuck);
        Some(Group { writes, replies, effects, news, parked, woken, slept, idle })
    }

    fn write(&mut self, id: JobId, records: Vec<RecordedEvent>) -> Option<Write> {
        let job = self.engine.job(&id)?;
        let owned = self.owned.get_mut(&id)?;
        let over = job.is_over();
        // Seldom enough that what is written of the state is no more than a few times its events, however
        // large it is; and always at the end.
        let steps = job.runs.iter().flat_map(|run| &run.steps);
        let size = |step: &StepRun| step.live.len() + step.outputs.len() + step.failed.len();
        let size: usize = steps.map(size).sum();
        let grown = job.seq - owned.snapshot_seq >= SNAPSHOT_EVERY + size as u64;
        let snapshot = (over || grown).then(|| serde_json::to_vec(job).ok()).flatten();
        if snapshot.is_some() {
            owned.snapshot_seq = job.seq;
        }
        let row = Row {
            id: id.clone(),
            name: job.plan.name().to_owned(),
            state: job.state(),
            submitted_at: job.accepted_at,
            finished_at: job.finished_at,
            wake_at: (!over).then(|| self.engine.idle_until(&id).unwrap_or(Timestamp(0))),
            over,
            labels: job.plan.labels().clone(),
            retried_from: job.retried_from.clone(),
            local: job.source.is_some(),
        };
        let key = owned.key.take();
        let expected_seq = records.first().map_or(0, |record| record.seq - 1);
        if over {
            self.engine.forget(&id);
            self.owned.remove(&id);
        }
        Some(Write { job: id, expected_seq, records, row, snapshot, key })
    }

    /// The store took no write of this job, and will take none that builds on it: it is not ours, or not as
    /// we know it. It leaves memory, with its slots, timers and place in the queue; the others go on.
    pub fn refused(&mut self, job: &JobId) {
        self.owned.remove(job);
        self.engine.evict(job, &mut self.batch);
        self.batch.records.retain(|(id, _)| id != job);
    }
}

impl Group {
    pub fn reply_ids(&self) -> impl Iterator<Item = ReplyId> {
        self.replies.iter().map(|reply| reply.reply_id)
    }

    /// Takes a group that was decided later into the same transaction. A job may have a write of each, in
    /// this order.
    pub fn join(&mut self, later: Self) {
        self.writes.extend(later.writes);
        self.replies.extend(later.replies);
        self.effects.extend(later.effects);
        self.news.extend(later.news);
        self.parked.extend(later.parked);
        self.woken.extend(later.woken);
        self.slept.extend(later.slept);
        self.idle.extend(later.idle);
    }

    /// The store has answered for each write, in order; the others are durable.
    pub fn committed(self, answers: Vec<Result<(), Refused>>) -> Outputs {
        let mut outputs = Outputs {
            news: self.news,
            parked: self.parked,
            woken: self.woken,
            slept: self.slept,
            ..Outputs::default()
        };
        let mut refused: BTreeMap<JobId, Refused> = BTreeMap::new();
        for (write, answer) in self.writes.into_iter().zip(answers) {
            match answer {
                Ok(()) => outputs.events.push((write.job, write.records)),
                Err(why) => drop(refused.entry(write.job).or_insert(why)),
            }
        }
        let gone = |job: &JobId| refused.get(job);
        outputs.replies.extend(self.replies.into_iter().map(|reply| {
            let answer = match gone(&reply.job) {
                Some(why) => Err(CommandError::Taken { job: reply.job, why: why.clone() }),
                None => reply.answer,
            };
            (reply.reply_id, answer)
        }));
        outputs.effects.extend(self.effects.into_iter().filter(|out| gone(out.job()).is_none()));
        outputs.idle.extend(self.idle.into_iter().filter(|(job, _)| gone(job).is_none()));
        outputs.refused = refused.into_iter().collect();
        outputs
    }
}

impl Outputs {
    /// Attempts that succeeded: their workers will not be asked about them again.
    pub fn settled(&self) -> impl Iterator<Item = (&JobId, u64)> {
        self.events.iter().flat_map(|(job, records)| {
            records.iter().filter_map(move |record| match &record.event {
                Event::AttemptEnded { token, outcome: Outcome::Succeeded { .. }, .. } => {
                    Some((job, *token))
                }
                _ => None,
            })
        })
    }
}
