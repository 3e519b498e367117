//! Jobs that are this controller's no more, because another has them or has changed them, and jobs that have become its own.

use steadfast_core::defects::{Defect, is_on};
use steadfast_core::event::JobId;
use steadfast_store::Refused;

use super::Controller;
use crate::inbox::CommandError;

/// Tokens of an epoch, of one job: an epoch is at least the second that it begins in, and no job has a million attempts a second.
const TOKEN_BITS: u32 = 20;

impl Controller {
    /// What it writes is of this epoch.
    #[must_use]
    pub fn in_epoch(mut self, epoch: u64) -> Self {
        self.epoch = epoch;
        self.fence_from(epoch);
        self
    }

    /// Fence tokens are above all that were given in epochs before this one, also those that the store has lost since.
    pub fn fence_from(&mut self, epoch: u64) {
        if !is_on(Defect::TokensGivenAgain) {
            self.engine.least_token = self.engine.least_token.max(epoch << TOKEN_BITS);
        }
    }

    /// Another server goes on with these jobs, and with what is under way of them. To be called when all that was decided is in
    /// groups: what is in memory of them is then what is stored, or will be.
    pub fn let_go(&mut self, is_leaving: impl Fn(&JobId) -> bool) {
        let leaving: Vec<JobId> =
            self.engine.keys.keys().filter(|job| is_leaving(job)).cloned().collect();
        self.departures.next();
        for job in leaving {
            self.engine.let_go(&job);
            self.departed(&job);
            if self.owned.remove(&job).is_some() {
                self.slept.push(job);
            }
        }
    }

    /// Nothing is this one's any more; what it writes from now on is of this epoch.
    pub fn begin_anew(&mut self, epoch: u64) {
        self.let_go(|_| true);
        self.epoch = epoch;
        self.fence_from(epoch);
        // Whether their ends were written, those who have them know.
        for job in std::mem::take(&mut self.ending) {
            self.departed(&job);
            if self.waiting.contains_key(&job) {
                self.look_for(job);
            }
        }
    }

    /// Jobs of shards that came from another server are about to be loaded, one after the other. Workers that are here are asked what
    /// they have of them when all of them [are](Self::gained), once.
    pub fn gaining(&mut self) {
        self.gaining += 1;
    }

    /// What was under way of them is in memory. What was cancelled while its worker could not be reached is not, and the server that
    /// had it may be gone: every worker is asked.
    pub fn gained(&mut self) {
        self.gaining = self.gaining.saturating_sub(1);
        if self.gaining == 0 && !is_on(Defect::AsksOnlyTheExpected) {
            self.engine.ask_all();
        }
    }

    /// The store took no write of this job, and will take none that builds on it: it is not ours, or not as
    /// we know it. It leaves memory, with its slots, timers and place in the queue; the others go on. One that is
    /// still ours is loaded anew, as it is stored, and workers are asked what they have of it.
    pub fn refused(&mut self, job: &JobId, why: &Refused) {
        // It was let go of then, and may be here again.
        if matches!(why, Refused::Fenced { epoch, .. } if *epoch < self.epoch) {
            return;
        }
        self.owned.remove(job);
        self.ending.remove(job);
        self.departed(job);
        let is_elsewhere = matches!(why, Refused::Fenced { .. } | Refused::NotOurs { .. });
        let reloads = self.horizon.is_some() && matches!(why, Refused::Conflict { .. });
        if is_elsewhere || reloads {
            // Its attempts are another one's, or are asked for when it is back.
            self.engine.let_go(job);
        } else {
            self.engine.evict(job, &mut self.batch);
        }
        self.batch.records.retain(|(id, _)| id != job);
        // Said of what was built on that.
        for reply in self.replies.iter_mut().filter(|reply| reply.job == *job) {
            reply.answer = Err(CommandError::Taken { job: job.clone(), why: why.clone() });
        }
        if reloads || (self.horizon.is_some() && self.waiting.contains_key(job)) {
            self.look_for(job.clone());
        }
    }

    /// All [refused](Self::refused) jobs of one answer of the store are known here from now on: what is decided about them is not built on
    /// what was refused.
    pub fn heard_refusals(&mut self) {
        self.refusals += 1;
    }
}
