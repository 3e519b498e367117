//! Jobs that come into memory when something is to be done about them, and leave it when there is nothing.

use steadfast_core::defects::{Defect, is_on};
use steadfast_core::event::JobId;
use steadfast_core::time::Timestamp;
use steadfast_store::QueueEntry;

use super::{Controller, Loaded, Parked, PendingReply, ReplyId, Request};
use crate::crash::crash_point;
use crate::inbox::CommandError;
use crate::load::Unreadable;
use crate::queue::Queued;

impl Controller {
    /// Jobs that something was said about and that are not in memory.
    pub fn take_loads(&mut self) -> Vec<JobId> {
        std::mem::take(&mut self.loads)
    }

    /// One that is on its way arrives as it is, or is looked for again if it has left memory since.
    pub(super) fn look_for(&mut self, job: JobId) {
        if self.looked_for.insert(job.clone()) {
            self.loads.push(job);
        }
    }

    /// What has arrived of the job is of a time before others had it.
    pub fn read_again(&mut self, job: JobId) {
        self.looked_for.remove(&job);
        self.look_for(job);
    }

    /// Jobs that are only in the queue, and whose turn has come: others wait until these are loaded.
    pub fn take_turns(&mut self) -> Vec<JobId> {
        self.engine.take_turns()
    }

    /// Stored jobs that wait for a worker, to be queued. What was said or decided about them meanwhile stands.
    pub fn enqueue(&mut self, entries: Vec<QueueEntry>) {
        let mut last: Option<(String, Queued)> = None;
        for QueueEntry { submitted_at, job, queued: text } in entries {
            // Most want the same as the one before.
            if last.as_ref().is_none_or(|(before, _)| *before != text) {
                last = Queued::read(&text).map(|queued| (text, queued));
            }
            match &last {
                Some((_, queued)) => self.engine.enqueue(job, submitted_at, queued),
                None => self.look_for(job),
            }
        }
    }

    /// How often a job has left memory: what is read from now on is as of this.
    pub fn departures(&self) -> u64 {
        self.departures.last()
    }

    /// Whoever reads jobs is to say how far it is.
    pub fn has_many_departures(&self) -> bool {
        self.departures.are_many()
    }

    /// Nothing that was read before this departure arrives any more.
    pub fn read_up_to(&mut self, as_of: u64) {
        self.departures.read_up_to(as_of);
    }

    /// The job is not in memory any more.
    pub(super) fn departed(&mut self, job: &JobId) {
        if self.horizon.is_some() {
            self.departures.left(job);
        }
    }

    /// A job was looked for, because it is due, its turn has come, or something was said about it. `as_of`: the last
    /// [departure](Self::departures) when it was read.
    pub fn loaded(&mut self, job: &JobId, found: Loaded, as_of: u64, now: Timestamp) {
        self.looked_for.remove(job);
        let is_stale = self.departures.is_stale(job, as_of);
        self.departures.read_up_to(as_of);
        if is_stale && !is_on(Defect::StaleReadTaken) {
            return self.look_for(job.clone());
        }
        // It was read before its end is durable, and would begin anew.
        if self.ending.contains(job) {
            return;
        }
        let waiting = self.waiting.remove(job).unwrap_or_default();
        let absent = match found {
            // It came in some other way meanwhile.
            _ if self.engine.job(job).is_some() => None,
            Ok(Some(adopted)) => {
                crash_point("during-recovery");
                self.adopt(*adopted, now);
                None
            }
            Ok(None) => {
                self.engine.forget(job);
                Some(CommandError::Unknown(job.clone()))
            }
            Err(why) => {
                let (job, text) = (job.clone(), why.to_string());
                match why {
                    Unreadable::Parked(_) => {}
                    Unreadable::Elsewhere { owner, .. } => {
                        self.engine.forget(&job);
                        let why = CommandError::Elsewhere { job: job.clone(), owner };
                        return self.answer_all(waiting, &job, &why);
                    }
                    why if why.is_of_one_job() => {
                        self.stuck.push(Parked { job: job.clone(), why: text.clone() });
                    }
                    _ => return self.answer_all(waiting, &job, &CommandError::Unavailable(text)),
                }
                self.engine.forget(&job);
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

    /// The end of the job is durable: what was said about it meanwhile is held against what is stored.
    pub fn ended(&mut self, job: &JobId) {
        if self.ending.remove(job) {
            self.departed(job);
            if self.waiting.contains_key(job) {
                self.look_for(job.clone());
            }
        }
    }

    /// The job is durable up to this event. If that was its last, and nothing is to be done about it soon, it
    /// leaves memory; if it waits for a worker, for an entry of the queue.
    pub fn idle(&mut self, job: &JobId, seq: u64) {
        self.engine.settle_timers(job);
        let is_last = self.engine.job(job).is_some_and(|job| job.seq == seq);
        if is_last && self.may_sleep(job) {
            self.engine.put_away(job);
            self.owned.remove(job);
            self.departed(job);
            self.slept.push(job.clone());
        }
    }

    pub(super) fn may_sleep(&self, job: &JobId) -> bool {
        let Some(horizon) = self.horizon else { return false };
        let is_idle = self.engine.idle_until(job).is_some_and(|until| until > horizon);
        is_idle
            && (self.engine.queue.resting() > self.resting_most || !self.engine.is_runnable(job))
    }
}
