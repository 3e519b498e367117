//! What is decided goes to the store in groups; what waits for one comes out of its commit.

use std::collections::BTreeMap;
use std::sync::Arc;

use steadfast_core::defects::{Defect, is_on};
use steadfast_core::event::{Event, JobId, RecordedEvent};
use steadfast_core::job::{Job, StepRun};
use steadfast_core::outcome::Outcome;
use steadfast_core::readiness::open_items;
use steadfast_core::time::Timestamp;
use steadfast_store::{Refused, Row, Write};

use super::{Controller, ReplyId};
use crate::batch::Assignment;
use crate::fleet::{CreditNotice, FleetNotification};
use crate::inbox::{Answer, CommandError};
use crate::work::Work;

/// Events after which the state is stored too, so that recovery does not read a long log.
pub(super) const SNAPSHOT_EVERY: u64 = 1000;
/// Of a job that has ended, this many events since the last stored state are read again when somebody looks at it;
/// with more the state is stored.
const SNAPSHOT_AT_END: u64 = 64;

/// A reply that waits for what it is about to be durable.
#[derive(Debug)]
pub(super) struct PendingReply {
    pub(super) reply_id: ReplyId,
    pub(super) answer: Answer,
    pub(super) job: JobId,
}

/// One transaction, and what waits for it. `W`: what a worker is given.
#[derive(Debug)]
#[must_use = "a group that is not committed is lost, and all that waits for it"]
pub struct Group<W = Box<Work>> {
    pub writes: Vec<Write>,
    /// How many refusals of the store the controller knew when it decided this.
    pub(crate) refusals: u64,
    /// What a rehearsal writes nowhere.
    pub(super) unwritten: Vec<(JobId, Vec<RecordedEvent>)>,
    pub(super) replies: Vec<PendingReply>,
    pub(super) effects: Vec<(JobId, Outgoing<W>)>,
    /// Jobs of which a worker is told again what was decided before: no write of theirs tells whether they are still this owner's.
    pub(crate) told_again: Vec<JobId>,
    pub(super) credits: Vec<(Arc<str>, CreditNotice)>,
    pub(super) news: Vec<FleetNotification>,
    pub(super) parked: Vec<Parked>,
    pub(super) ask: Vec<Arc<str>>,
    pub(super) woken: Vec<Job>,
    pub(super) slept: Vec<JobId>,
    pub(super) idle: Vec<(JobId, u64)>,
    #[expect(clippy::vec_box, reason = "they are boxed in memory, and handed on as they are")]
    pub(super) ended: Vec<Box<Job>>,
}

impl<W> Default for Group<W> {
    fn default() -> Self {
        Self {
            writes: Vec::new(),
            refusals: 0,
            unwritten: Vec::new(),
            replies: Vec::new(),
            effects: Vec::new(),
            told_again: Vec::new(),
            credits: Vec::new(),
            news: Vec::new(),
            parked: Vec::new(),
            ask: Vec::new(),
            woken: Vec::new(),
            slept: Vec::new(),
            idle: Vec::new(),
            ended: Vec::new(),
        }
    }
}

/// A job that cannot go on: it cannot be read, or its next event would contradict its state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Parked {
    pub job: JobId,
    pub why: String,
}

/// What leaves for a worker.
#[derive(Clone, Debug, PartialEq)]
pub enum Outgoing<W = Box<Work>> {
    Assign(W),
    Withdraw(Assignment),
}

/// What a commit lets out, in this order.
#[derive(Debug)]
pub struct Outputs<W = Box<Work>> {
    pub events: Vec<(JobId, Vec<RecordedEvent>)>,
    pub replies: Vec<(ReplyId, Answer)>,
    pub effects: Vec<Outgoing<W>>,
    /// For workers: after everything that was assigned to them before.
    pub credits: Vec<(Arc<str>, CreditNotice)>,
    pub news: Vec<FleetNotification>,
    /// The controller has to be told of these: [`Controller::refused`](super::Controller::refused).
    pub refused: Vec<(JobId, Refused)>,
    /// To be marked in the store.
    pub parked: Vec<Parked>,
    /// Workers that are to come in anew, and to say what they have.
    pub ask: Vec<Arc<str>>,
    /// Jobs that were loaded, before anything was decided about them, and jobs that left memory.
    pub woken: Vec<Job>,
    pub slept: Vec<JobId>,
    /// The controller has to be told of these too: [`Controller::idle`](super::Controller::idle).
    pub idle: Vec<(JobId, u64)>,
    /// Jobs that are over, as they left memory. The controller has to be told of these as well:
    /// [`Controller::ended`](super::Controller::ended).
    pub ended: Vec<Box<Job>>,
}

impl<W> Group<W> {
    pub fn reply_ids(&self) -> impl Iterator<Item = ReplyId> {
        self.replies.iter().map(|reply| reply.reply_id)
    }

    /// Takes a group that was decided later into the same transaction. A job may have a write of each, in
    /// this order.
    pub fn join(&mut self, later: Self) {
        self.writes.extend(later.writes);
        self.unwritten.extend(later.unwritten);
        self.replies.extend(later.replies);
        self.effects.extend(later.effects);
        self.told_again.extend(later.told_again);
        self.credits.extend(later.credits);
        self.news.extend(later.news);
        self.parked.extend(later.parked);
        self.ask.extend(later.ask);
        self.woken.extend(later.woken);
        self.slept.extend(later.slept);
        self.idle.extend(later.idle);
        self.ended.extend(later.ended);
    }

    /// Of a job that is another one's no worker is told anything.
    pub(crate) fn tell_nothing_of(&mut self, job: &JobId) {
        self.effects.retain(|(id, _)| id != job);
    }

    /// What was decided about jobs that the store has refused before, without the controller knowing: nobody is told what is built on a
    /// state that is none. Their writes are left to the one who asks.
    pub(crate) fn refuse(&mut self, refused: impl Fn(&JobId) -> Option<Refused>) {
        for reply in &mut self.replies {
            if let Some(why) = refused(&reply.job) {
                reply.answer = Err(CommandError::Taken { job: reply.job.clone(), why });
            }
        }
        self.effects.retain(|(job, _)| refused(job).is_none());
        self.idle.retain(|(job, _)| refused(job).is_none());
        self.ended.retain(|job| refused(&job.id).is_none());
    }

    /// The store has answered for each write, in order; the others are durable.
    pub fn committed(self, answers: Vec<Result<(), Refused>>) -> Outputs<W> {
        let mut events = self.unwritten;
        let mut refused: BTreeMap<JobId, Refused> = BTreeMap::new();
        for (write, answer) in self.writes.into_iter().zip(answers) {
            match answer {
                Ok(()) => events.push((write.job, write.records)),
                Err(why) => drop(refused.entry(write.job).or_insert(why)),
            }
        }
        let is_kept = |job: &JobId| !refused.contains_key(job);
        let reply = |PendingReply { reply_id, answer, job }: PendingReply| match refused.get(&job) {
            Some(why) => (reply_id, Err(CommandError::Taken { job, why: why.clone() })),
            None => (reply_id, answer),
        };
        let lets_out = |job: &JobId| is_kept(job) || is_on(Defect::RefusedEffectsLetOut);
        let effects = self.effects.into_iter().filter(|(job, _)| lets_out(job));
        Outputs {
            events,
            replies: self.replies.into_iter().map(reply).collect(),
            effects: effects.map(|(_, effect)| effect).collect(),
            credits: self.credits,
            news: self.news,
            parked: self.parked,
            ask: self.ask,
            woken: self.woken,
            slept: self.slept,
            idle: self.idle.into_iter().filter(|(job, _)| is_kept(job)).collect(),
            ended: self.ended.into_iter().filter(|job| is_kept(&job.id)).collect(),
            refused: refused.into_iter().collect(),
        }
    }
}

impl<W> Outputs<W> {
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

impl Controller {
    /// What is written of a job that these were decided about.
    pub(super) fn write(&mut self, id: JobId, records: Vec<RecordedEvent>) -> Option<Write> {
        self.engine.settle_timers(&id);
        let job = self.engine.job(&id)?;
        let owned = self.owned.get_mut(&id)?;
        let over = job.is_over();
        // Seldom enough that what is written of the state is no more than a few times its events, however
        // large it is; and at the end of what is more than a page of events.
        let steps = job.runs.iter().flat_map(|run| &run.steps);
        let size = |step: &StepRun| step.live.len() + step.outputs.len() + step.failed.len();
        let size: usize = steps.map(size).sum();
        let grown = job.seq - owned.snapshot_seq >= self.snapshot_every + size as u64;
        // The plan is in the first event.
        let state = || serde_json::to_vec(&job.clone().with_plan(())).ok();
        let long = job.seq - owned.snapshot_seq >= SNAPSHOT_AT_END;
        let snapshot = (over && long || grown).then(state).flatten();
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
            queued: self.engine.queued(&id).map(|queued| queued.text()),
            over,
            labels: job.plan.labels().clone(),
            retried_from: job.retried_from.clone(),
            local: job.source.is_some(),
        };
        let key = owned.key.take().filter(|_| !is_on(Defect::IdempotencyKeyForgotten));
        let expected_seq = records.first().map_or(0, |record| record.seq - 1);
        let readiness = (self.keeps_readiness && !over)
            .then(|| serde_json::to_string(&open_items(job)).expect("names and numbers are JSON"));
        Some(Write { job: id, expected_seq, records, row, snapshot, key, readiness })
    }
}
