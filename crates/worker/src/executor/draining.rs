//! Taking nothing new: because a server or a person says so, or because the worker's host wants it gone.

use std::collections::VecDeque;

use steadfast_core::event::AttemptId;

use super::{Cut, Executor, PREEMPTED, SERVER_ASKED, Work};
use crate::credits::Source;

impl<W: Work> Executor<W> {
    pub(super) fn take_queue(&mut self, from: impl Fn(Source) -> bool) -> Vec<W> {
        let all = std::mem::take(&mut self.queue).into_iter();
        let (taken, kept): (VecDeque<_>, _) = all.partition(|waiting| from(waiting.source));
        self.queue = kept;
        taken.into_iter().map(|waiting| self.give_back(waiting.source, waiting.work)).collect()
    }

    /// Takes nothing new from now on; returns what waits, to be given back.
    pub fn drain(&mut self, why: &str) -> Vec<W> {
        if why == PREEMPTED {
            self.draining = Some(why.to_owned());
        }
        self.draining.get_or_insert_with(|| why.to_owned());
        self.take_queue(|_| true)
    }

    /// The same of one source, on its order.
    pub fn drain_source(&mut self, source: Source) -> Vec<W> {
        self.sources[source].drains = true;
        self.credits.drains(source, true);
        self.take_queue(|it| it == source)
    }

    /// Takes new work from it again. Who is told to go by its own host goes, whatever a server takes back.
    pub fn undrain_source(&mut self, source: Source) {
        self.sources[source].drains = false;
        self.credits.drains(source, false);
    }

    /// Why nothing new is taken from this source.
    pub fn draining(&self, source: Source) -> Option<&str> {
        let asked = self.sources[source].drains.then_some(SERVER_ASKED);
        self.draining.as_deref().or(asked)
    }

    /// Some source takes note when nothing of it is in hand any more.
    pub fn is_draining(&self) -> bool {
        self.draining.is_some() || self.sources.iter().any(|it| it.drains)
    }

    /// The worker's host wants it gone: only successes are the attempts' own doing from now on. All of them, and
    /// whether there is a process or task.
    pub fn preempt(&mut self) -> Vec<(AttemptId, bool)> {
        let all = self.running.iter_mut().map(|(key, running)| {
            Cut::Preempted.instead_of(&mut running.cut);
            (key.clone(), running.started)
        });
        all.collect()
    }
}
