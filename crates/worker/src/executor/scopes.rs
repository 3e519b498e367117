//! Whose what is in hand is: attempts that go from one server to another, and servers that speak in an epoch that is over.

use std::collections::BTreeSet;
use std::time::Duration;

use steadfast_core::defects::{Defect, is_on};
use steadfast_core::event::AttemptId;

use super::{Executor, Work};
use crate::credits::Source;

impl<W: Work> Executor<W> {
    /// What is said in this epoch of the scope is said too late: another has what the scope had. Remembers the epoch.
    pub fn is_fenced(&mut self, scope: &str, epoch: u64) -> bool {
        match self.epochs.get_mut(scope) {
            Some(seen) if epoch < *seen => true,
            Some(seen) => {
                *seen = epoch;
                false
            }
            None => {
                self.epochs.insert(scope.to_owned(), epoch);
                false
            }
        }
    }

    /// The source welcomes us: of what is in hand of it, these it does not have. Another server has them, or will; until one says so they go on
    /// for what is left of the lease that they had, which no answer to a beat makes longer. **To be called before the lease of
    /// the welcome begins.**
    pub fn welcomed(&mut self, source: Source, not_held: &BTreeSet<AttemptId>) {
        let until = self.sources[source].lease.until().unwrap_or_default();
        let keep = |key: &AttemptId, released: &mut Option<Duration>| {
            let is_held = !not_held.contains(key) || is_on(Defect::GivenAwayKept);
            *released = (!is_held).then(|| released.unwrap_or(until));
        };
        for (key, its) in self.running.iter_mut().filter(|(_, it)| it.source == source) {
            keep(key, &mut its.released);
        }
        for its in self.queue.iter_mut().filter(|it| it.source == source) {
            keep(&its.key, &mut its.released);
        }
    }

    /// These are this source's from now on: they go on under its lease, and their slots are counted as its. Returns those that are
    /// not in hand.
    pub fn take_over<'a>(
        &mut self,
        to: Source,
        keys: impl IntoIterator<Item = &'a AttemptId>,
    ) -> Vec<AttemptId> {
        let mut missing = Vec::new();
        for key in keys {
            if let Some(running) = self.running.get_mut(key) {
                // One that has ended has no slot, and is in hand for its report.
                if !running.ended {
                    self.credits.moved(running.source, to, running.takes);
                }
                (running.source, running.released) = (to, None);
            } else if let Some(waiting) = self.queue.iter_mut().find(|waiting| waiting.is(key)) {
                (waiting.source, waiting.released) = (to, None);
            } else if let Some((source, _)) = self.given_back.get_mut(key) {
                *source = to;
            } else {
                missing.push(key.clone());
            }
        }
        missing
    }
}
