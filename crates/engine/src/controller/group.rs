//! What is decided goes to the store in groups; what waits for one comes out of its commit.

use std::collections::BTreeMap;

use steadfast_core::event::{Event, JobId, RecordedEvent};
use steadfast_core::job::Job;
use steadfast_core::outcome::Outcome;
use steadfast_store::{Refused, Write};

use super::ReplyId;
use crate::batch::Assignment;
use crate::fleet::FleetNotification;
use crate::inbox::{Answer, CommandError};
use crate::work::Work;

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
    /// What a rehearsal writes nowhere.
    pub(super) unwritten: Vec<(JobId, Vec<RecordedEvent>)>,
    pub(super) replies: Vec<PendingReply>,
    pub(super) effects: Vec<(JobId, Outgoing<W>)>,
    pub(super) news: Vec<FleetNotification>,
    pub(super) parked: Vec<Parked>,
    pub(super) woken: Vec<Job>,
    pub(super) slept: Vec<JobId>,
    pub(super) idle: Vec<(JobId, u64)>,
    pub(super) ended: Vec<Job>,
}

impl<W> Default for Group<W> {
    fn default() -> Self {
        Self {
            writes: Vec::new(),
            unwritten: Vec::new(),
            replies: Vec::new(),
            effects: Vec::new(),
            news: Vec::new(),
            parked: Vec::new(),
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
    pub news: Vec<FleetNotification>,
    /// The controller has to be told of these: [`Controller::refused`](super::Controller::refused).
    pub refused: Vec<(JobId, Refused)>,
    /// To be marked in the store.
    pub parked: Vec<Parked>,
    /// Jobs that were loaded, before anything was decided about them, and jobs that left memory.
    pub woken: Vec<Job>,
    pub slept: Vec<JobId>,
    /// The controller has to be told of these too: [`Controller::idle`](super::Controller::idle).
    pub idle: Vec<(JobId, u64)>,
    /// Jobs that are over, as they left memory.
    pub ended: Vec<Job>,
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
        self.news.extend(later.news);
        self.parked.extend(later.parked);
        self.woken.extend(later.woken);
        self.slept.extend(later.slept);
        self.idle.extend(later.idle);
        self.ended.extend(later.ended);
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
        let effects = self.effects.into_iter().filter(|(job, _)| is_kept(job));
        Outputs {
            events,
            replies: self.replies.into_iter().map(reply).collect(),
            effects: effects.map(|(_, effect)| effect).collect(),
            news: self.news,
            parked: self.parked,
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
