//! How much is decided together: what a group takes of what has arrived, and what it waits for.

use std::sync::atomic::Ordering;
use std::time::Duration;

use super::{Decider, Signals};
use crate::mailbox::Lane;

/// Inputs decided together before they go to the store, and jobs that they are about: a store takes as long as it writes jobs, and
/// what falls due meanwhile waits for it.
const GROUP: usize = 256;
const JOBS: usize = 128;
/// While so many new jobs wait, they come in bulk. A job that is started in the group that accepts it takes half of the work of one that
/// rests before: so as long as attempts end, a group has no more new jobs than places that its reports free, but for those that
/// rest, and `BULK_AHEAD` more; at least `BULK_LEAST`. Attempts end if one has in the last `LATELY` groups.
const BULK: usize = 64;
const BULK_AHEAD: usize = 32;
const BULK_LEAST: usize = 16;
pub(super) const LATELY: u32 = 8;
/// While more attempts than `BUSY` times its reports are under way, a group waits up to `GATHER` for one more,
/// at most `WAITS` times. Timers that are due and people do not wait with it.
const BUSY: usize = 2;
const GATHER: Duration = Duration::from_micros(500);
const WAITS: u32 = 4;
/// While attempts wait at the workers, it waits until half of what is under way has reported, as long as
/// reports come: no slot is idle meanwhile.
const GATHER_AHEAD: Duration = Duration::from_millis(2);
const WAITS_AHEAD: u32 = 8;
/// While the writer is busy, what arrives is left for the next group: until it has finished, so many messages have come, or this has passed.
const TOGETHER: usize = 32;
const BESIDE_WRITER: Duration = Duration::from_micros(300);

impl Decider {
    /// What is decided while the writer is busy waits for it: decided together, and once, it costs a fraction.
    pub(super) fn gather_beside_the_writer(&self) {
        let Signals { is_busy, wants_idle, .. } = &*self.signals;
        // In this order: the writer looks at the second after it has changed the first.
        wants_idle.store(true, Ordering::SeqCst);
        if is_busy.load(Ordering::SeqCst) {
            self.messages.wait_for_many(TOGETHER, BESIDE_WRITER);
        }
        wants_idle.store(false, Ordering::SeqCst);
    }

    /// Takes what has arrived, and waits for a little more while much is under way. False: we are to stop.
    pub(super) fn gather(&mut self, lane: Lane, is_patient: bool) -> bool {
        let (mut open, mut taken, mut waits) = (true, 0, 0);
        while open && taken < GROUP && !self.controller.has_decided_about(JOBS) {
            let most = JOBS.min(GROUP - taken);
            let (least_new, most_new) = self.new_jobs(most);
            let messages = self.messages.take_some_new(most, lane, least_new, most_new);
            let arrived = messages.len();
            open = self.take_all(messages);
            taken += arrived;
            let may_wait = is_patient
                && arrived > 0
                && lane == Lane::NewJobs
                && !self.controller.owes_replies();
            let more = self.more(taken, waits).filter(|_| may_wait);
            let Some((wanted, longest)) = more else { break };
            self.messages.wait_for(wanted, lane, longest.min(self.wait()));
            waits += 1;
        }
        open
    }

    /// Of so many messages, if there are as many of them: at least, and at most.
    fn new_jobs(&self, most: usize) -> (usize, usize) {
        if self.ended_lately > 0 && self.messages.waiting(Lane::NewJobs) >= BULK {
            let reports = self.messages.waiting(Lane::Work);
            let resting = self.controller.engine.queue.resting();
            let places = (reports + BULK_AHEAD).saturating_sub(resting);
            (BULK_LEAST.min(most), places.max(BULK_LEAST))
        } else {
            (most / 2, most)
        }
    }

    /// With much under way the next report is close, and each sync is worth sharing: how many more a group
    /// waits for, and how long.
    fn more(&self, taken: usize, waits: u32) -> Option<(usize, Duration)> {
        let engine = &self.controller.engine;
        let (under_way, ahead) = (engine.in_flight(), engine.is_ahead());
        let (enough, waits_at_most) =
            if ahead { (under_way, WAITS_AHEAD) } else { (under_way / BUSY, WAITS) };
        let more = enough.saturating_sub(taken);
        if more == 0 || waits >= waits_at_most {
            return None;
        }
        // Each report is one less under way.
        Some(if ahead { (more.div_ceil(2), GATHER_AHEAD) } else { (1, GATHER) })
    }
}
