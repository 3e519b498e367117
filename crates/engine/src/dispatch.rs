//! What may start is given to who has room for it.

use steadfast_core::decide::Input;
use steadfast_core::event::ItemId;
use steadfast_core::job::Job;
use steadfast_core::time::Timestamp;

use crate::batch::Batch;
use crate::engine::{Engine, JobKey};
use crate::placement::Placement;

/// Starts that one call of [`Engine::dispatch`] makes at most, so that a large fan-out cannot keep
/// reports and timers waiting behind it, nor grow one batch without bound.
const STARTS_PER_BATCH: usize = 1024;

impl Engine {
    /// Starts what may start and has room, up to a batch full.
    pub(crate) fn dispatch(&mut self, now: Timestamp) -> Batch {
        let mut batch = Batch::default();
        if self.draining {
            return batch;
        }
        if matches!(self.room, Placement::Fleet(_)) {
            self.dispatch_to_workers(now, &mut batch);
            return batch;
        }
        let mut from = 0;
        while batch.effects.len() < STARTS_PER_BATCH
            && let Some(&key) = self.runnable.range(from..).next()
        {
            from = key + 1;
            self.dispatch_job(key, now, &mut batch);
        }
        batch
    }

    fn dispatch_job(&mut self, key: JobKey, now: Timestamp, batch: &mut Batch) {
        let Some(runs) = self.jobs.get(&key).map(|job| job.runs.len() as u32) else {
            return;
        };
        self.runnable.remove(&key);
        let mut still_runnable = false;
        // The datacenter that has least comes first, if they share.
        let plan = &self.jobs[&key].plan;
        let first = (0..runs).min_by_key(|&run| match &self.room {
            Placement::Here { slots, .. } => slots.taken_by(plan.datacenter(run)),
            Placement::Fleet(_) => 0,
        });
        for run in (0..runs).map(|run| (run + first.unwrap_or_default()) % runs) {
            loop {
                let job = &self.jobs[&key];
                let Some(item) = job.next_startable(run) else { break };
                let Placement::Here { slots, worker, incarnation } = &mut self.room else { return };
                let may_wait =
                    job.plan.step(item.step).policy.survives_loss() && !was_not_begun(job, item);
                if batch.effects.len() >= STARTS_PER_BATCH
                    || !slots.take(job.plan.datacenter(run), may_wait)
                {
                    still_runnable = true;
                    break;
                }
                let (worker, incarnation) = (worker.clone(), incarnation.clone());
                let least_token = self.least_token;
                let input = Input::Start { item, worker, incarnation, least_token };
                // Core named the item as startable, so it has nothing to refuse.
                let _ = self.transact(key, &input, now, batch);
            }
        }
        if still_runnable {
            self.runnable.insert(key);
        } else {
            self.runnable.remove(&key);
        }
    }

    /// The job whose turn it is gets the first worker that can take it, until no worker can take more.
    fn dispatch_to_workers(&mut self, now: Timestamp, batch: &mut Batch) {
        if let Placement::Fleet(fleet) = &mut self.room {
            self.queue.recheck(fleet);
        }
        while batch.effects.len() < STARTS_PER_BATCH
            && let Some((key, class)) = self.queue.first()
            && let Placement::Fleet(fleet) = &mut self.room
        {
            let needs = self.queue.needs(class);
            let (item, last, may_wait) = match self.jobs.get(&key) {
                // It is not in memory.
                None => (None, None, needs.may_wait),
                Some(job) => {
                    let Some(item) = self.queue.item(key, job, class) else {
                        // Nothing of it is left to start: its place was not brought up to date.
                        self.queue.update(key, job, 0);
                        continue;
                    };
                    let last = job.live(item).and_then(|live| live.worker.clone());
                    (Some(item), last, needs.may_wait && !was_not_begun(job, item))
                }
            };
            let Some(worker) = fleet.place(needs, may_wait, last.as_deref()) else {
                if fleet.release_for(needs) {
                    continue;
                }
                if !may_wait {
                    fleet.reserve(needs);
                }
                self.queue.nobody_for(class);
                continue;
            };
            let Some(item) = item else {
                self.turns.extend(self.queue.load(class));
                continue;
            };
            let incarnation = fleet.incarnation_to_record(&worker);
            let least_token = self.least_token;
            let input = Input::Start { item, worker, incarnation, least_token };
            // Core named the item as startable, so it has nothing to refuse.
            let _ = self.transact(key, &input, now, batch);
        }
        if let Placement::Fleet(fleet) = &mut self.room {
            fleet.ask_for_credits(&self.queue.unplaceable(), self.mono);
        }
    }
}

/// Its last attempt never began. Whatever was the reason, this time it gets a slot at once: so no item is
/// handed back for ever.
fn was_not_begun(job: &Job, item: ItemId) -> bool {
    job.live(item).is_some_and(|live| live.history.unstarted_in_row > 0)
}
