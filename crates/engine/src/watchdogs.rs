//! Timers that the engine holds against what it has heard: an attempt's timeout as a backstop behind its
//! worker, and the heartbeat of an attempt that a service has.
//!
//! They run on the time in which the engine was there to hear: monotonic, and standing still while it is
//! stopped or down. A wall clock that is set moves none of them, and time in which no worker could have been
//! heard is held against none. A restart begins them anew, because how much of them had passed is known
//! only by the wall clock.

use std::collections::{BTreeMap, BTreeSet};

use steadfast_core::job::Timer;

use crate::engine::JobKey;

#[derive(Debug, Default)]
pub(crate) struct Watchdogs {
    of: BTreeMap<(JobKey, Timer), Watchdog>,
    by_look: BTreeSet<(u64, JobKey, Timer)>,
}

#[derive(Clone, Copy, Debug)]
struct Watchdog {
    due: u64,
    /// When it is looked at: when it is due, or later, if it has to wait for its worker then.
    look: u64,
}

impl Watchdogs {
    /// Begins one, unless it runs already.
    pub(crate) fn begin(&mut self, key: JobKey, timer: Timer, due: u64) {
        if !self.of.contains_key(&(key, timer)) {
            self.recheck(key, timer, due, due);
        }
    }

    /// One that was popped stays due since `due`, and is looked at again later.
    pub(crate) fn recheck(&mut self, key: JobKey, timer: Timer, due: u64, look: u64) {
        self.end(key, timer);
        self.of.insert((key, timer), Watchdog { due, look });
        self.by_look.insert((look, key, timer));
    }

    pub(crate) fn end(&mut self, key: JobKey, timer: Timer) {
        if let Some(Watchdog { look, .. }) = self.of.remove(&(key, timer)) {
            self.by_look.remove(&(look, key, timer));
        }
    }

    pub(crate) fn forget(&mut self, job: JobKey) {
        // `Begin` is the least of all timers.
        let its = self.of.range((job, Timer::Begin)..).take_while(|((key, _), _)| *key == job);
        for timer in its.map(|((_, timer), _)| *timer).collect::<Vec<_>>() {
            self.end(job, timer);
        }
    }

    pub(crate) fn has(&self, job: JobKey) -> bool {
        // `Begin` is the least of all timers.
        self.of.range((job, Timer::Begin)..).next().is_some_and(|((key, _), _)| *key == job)
    }

    /// When the next one is to be looked at.
    pub(crate) fn next(&self) -> Option<u64> {
        self.by_look.first().map(|(look, ..)| *look)
    }

    /// The next one to be looked at, and since when it is due. It runs no more.
    pub(crate) fn pop(&mut self, at: u64) -> Option<(JobKey, Timer, u64)> {
        let &(_, key, timer) = self.by_look.first().filter(|(look, ..)| *look <= at)?;
        let due = self.of.get(&(key, timer))?.due;
        self.end(key, timer);
        Some((key, timer, due))
    }
}
