//! Whose turn it is: jobs that wait for a worker, by what they want of one.
//!
//! Steps that want the same of a worker are one class, so that a class no worker can serve costs nothing
//! until a worker that could has room again. Among the jobs of a class the higher priority goes first,
//! then the one with the fewest attempts under way, then the one that was accepted first.
//!
//! A job that waits with nothing under way need not be in memory for that: an [`Entry`] stands for it, and
//! it is loaded when its turn has come. Until it is there no other job's turn comes, so that order is kept.

mod classes;
mod entry;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use steadfast_core::event::{ItemId, JobId, Role};
use steadfast_core::job::Job;
use steadfast_core::time::Timestamp;

use crate::engine::JobKey;
use crate::fleet::{Fleet, Needs};
use crate::hash::{HashMap, HashSet};
use classes::{ClassId, Classes};
use entry::Entry;
pub(crate) use entry::Queued;

/// Priority, attempts under way, since when it is there; of the same moment, the one that came first.
type Rank = (Reverse<i32>, u32, Timestamp, JobKey);

/// Entries of a class that are loaded together when the turn of the first has come: each costs some 100 µs, and a
/// slot should wait for one of them, not for each.
const LOADED_AHEAD: usize = 256;

#[derive(Debug, Default)]
pub(crate) struct Queue {
    classes: Classes,
    waiting: BTreeMap<ClassId, BTreeSet<Rank>>,
    /// Classes that no worker could serve when last looked.
    unplaceable: BTreeSet<ClassId>,
    /// Of jobs in memory.
    places: HashMap<JobKey, Place>,
    /// Of jobs that are not.
    entries: HashMap<JobKey, Entry>,
    /// Entries that are being loaded.
    loading: HashSet<JobKey>,
    /// Jobs in memory that wait with nothing under way.
    resting: usize,
}

/// Where a job in memory stands in the queue.
#[derive(Debug)]
struct Place {
    priority: i32,
    in_flight: u32,
    since: Timestamp,
    queued: Vec<ClassId>,
    /// Of its steps, by run and step and role; looked up when first needed.
    classes: HashMap<(u32, u32, Role), ClassId>,
}

impl Place {
    fn rank(&self, key: JobKey) -> Rank {
        (Reverse(self.priority), self.in_flight, self.since, key)
    }

    fn rests(&self) -> bool {
        self.in_flight == 0 && !self.queued.is_empty()
    }
}

impl Queue {
    /// Brings a job's place up to date. `started`: how many more of its attempts are under way.
    pub(crate) fn update(&mut self, key: JobKey, job: &Job, started: i64) {
        let place = self.places.entry(key).or_insert_with(|| Place {
            priority: job.plan.priority(),
            in_flight: 0,
            since: job.accepted_at,
            queued: Vec::new(),
            classes: HashMap::default(),
        });
        let (before, rested) = (place.rank(key), place.rests());
        place.in_flight = place.in_flight.saturating_add_signed(started as i32);
        let after = place.rank(key);
        let mut wanted: Vec<ClassId> = Vec::new();
        for item in job.startable() {
            let named = (item.run, item.step, item.role);
            let hold = || self.classes.hold(Needs::of(&job.plan, item));
            let class = *place.classes.entry(named).or_insert_with(hold);
            if !wanted.contains(&class) {
                wanted.push(class);
            }
        }
        let queued = std::mem::replace(&mut place.queued, wanted.clone());
        self.resting = self.resting + usize::from(place.rests()) - usize::from(rested);
        for class in &queued {
            if before != after || !wanted.contains(class) {
                self.leave(*class, before);
            }
        }
        for class in &wanted {
            if before != after || !queued.contains(class) {
                self.waiting.entry(*class).or_default().insert(after);
            }
        }
    }

    fn leave(&mut self, class: ClassId, rank: Rank) {
        if let Some(waiting) = self.waiting.get_mut(&class) {
            waiting.remove(&rank);
            if waiting.is_empty() {
                self.waiting.remove(&class);
                self.unplaceable.remove(&class);
            }
        }
    }

    /// The job has no place any more, in memory or not.
    pub(crate) fn forget(&mut self, key: JobKey) {
        if let Some(place) = self.places.remove(&key) {
            self.resting -= usize::from(place.rests());
            for class in &place.queued {
                self.leave(*class, place.rank(key));
            }
            place.classes.into_values().for_each(|class| self.classes.release(class));
        }
        if let Some(entry) = self.entries.remove(&key) {
            self.loading.remove(&key);
            for class in entry.classes() {
                self.leave(class, entry.rank(key));
            }
            entry.steps.iter().for_each(|(_, _, class)| self.classes.release(*class));
        }
    }

    /// A job that waits with nothing under way, and is not in memory.
    pub(crate) fn enter(&mut self, key: JobKey, job: JobId, since: Timestamp, queued: &Queued) {
        self.forget(key);
        let entry = Entry::new(job, since, queued, |needs| self.classes.hold(needs));
        for class in entry.classes() {
            self.waiting.entry(class).or_default().insert(entry.rank(key));
        }
        self.entries.insert(key, entry);
    }

    /// Jobs in memory that wait for a worker with nothing under way.
    pub(crate) fn resting(&self) -> usize {
        self.resting
    }

    /// Classes that a worker with new room could serve are looked at again.
    pub(crate) fn recheck(&mut self, fleet: &mut Fleet) {
        if fleet.has_fewer() {
            for class in self.waiting.keys() {
                fleet.release_for(self.classes.needs(*class));
            }
        }
        if fleet.has_gained() {
            self.unplaceable.retain(|class| !fleet.newly_free_for(self.classes.needs(*class)));
            fleet.forget_gained();
        }
    }

    /// Whose turn it is, and for what. None: no job's, or that of one that is being loaded.
    pub(crate) fn first(&self) -> Option<(JobKey, ClassId)> {
        let heads = self
            .waiting
            .iter()
            .filter(|(class, _)| !self.unplaceable.contains(class))
            .filter_map(|(class, waiting)| Some((*waiting.first()?, *class)));
        let first = heads.min().map(|((_, _, _, key), class)| (key, class));
        first.filter(|(key, _)| !self.loading.contains(key))
    }

    /// The first jobs of the class that are not in memory. They are being loaded from now on.
    pub(crate) fn load(&mut self, class: ClassId) -> Vec<JobId> {
        let Some(waiting) = self.waiting.get(&class) else { return Vec::new() };
        let first = waiting.iter().take(LOADED_AHEAD);
        let mut jobs = Vec::new();
        for (_, _, _, key) in first {
            if let Some(entry) = self.entries.get(key)
                && self.loading.insert(*key)
            {
                jobs.push(entry.job.clone());
            }
        }
        jobs
    }

    /// What a job that is not in memory wants, by run and step.
    pub(crate) fn wants(&self, key: JobKey) -> impl Iterator<Item = ((u32, u32), &Needs)> {
        let steps = self.entries.get(&key).into_iter().flat_map(|entry| &entry.steps);
        steps.map(|(run, step, class)| ((*run, *step), self.classes.needs(*class)))
    }

    /// What is waited for, and by how many jobs.
    pub(crate) fn waiting(&self) -> impl Iterator<Item = (&Needs, usize)> {
        let waiting = self.waiting.iter().filter(|(_, jobs)| !jobs.is_empty());
        waiting.map(|(class, jobs)| (self.classes.needs(*class), jobs.len()))
    }

    /// What no worker could serve when last looked.
    pub(crate) fn unplaceable(&self) -> impl Iterator<Item = &Needs> + Clone {
        self.unplaceable.iter().map(|class| self.classes.needs(*class))
    }

    /// What jobs under way want of a worker, as far as they have come.
    pub(crate) fn wanted(&self) -> impl Iterator<Item = &Needs> {
        self.classes.all()
    }

    pub(crate) fn needs(&self, class: ClassId) -> &Needs {
        self.classes.needs(class)
    }

    pub(crate) fn nobody_for(&mut self, class: ClassId) {
        self.unplaceable.insert(class);
    }

    /// Which item of the job that is for.
    pub(crate) fn item(&self, key: JobKey, job: &Job, class: ClassId) -> Option<ItemId> {
        let place = self.places.get(&key)?;
        job.startable()
            .find(|item| place.classes.get(&(item.run, item.step, item.role)) == Some(&class))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use steadfast_core::decide::accept;
    use steadfast_core::event::AcceptedJob;
    use steadfast_core::plan::{Action, Plan, PlanDraft, StepDraft};
    use steadfast_core::policy::Policy;

    use super::*;

    fn job(label: &str) -> Job {
        let mut step = StepDraft::new("s", Action::Run("true".to_owned()), Policy::default());
        step.labels.insert("of".to_owned(), label.to_owned());
        let plan = Plan::new(PlanDraft::new("j", vec![step])).expect("valid");
        accept(AcceptedJob::new(label.into(), Arc::new(plan)), Timestamp(1)).0
    }

    /// A server sees other labels each day, and runs for years.
    #[test]
    fn a_class_goes_with_the_last_job_that_wants_it() {
        let mut queue = Queue::default();
        for key in 0..1000 {
            let job = job(&format!("day-{key}"));
            queue.update(key, &job, 0);
            if key % 2 == 0 {
                let queued = Queued::of(&job).expect("it waits");
                queue.enter(key, job.id.clone(), job.accepted_at, &queued);
            }
            queue.forget(key);
        }
        assert_eq!(queue.classes.count(), 0);
        assert!(queue.waiting.is_empty() && queue.unplaceable.is_empty());
        assert_eq!(queue.resting(), 0);
        let both = [job("same"), job("same")];
        queue.update(1, &both[0], 0);
        queue.update(2, &both[1], 0);
        assert_eq!((queue.classes.count(), queue.resting()), (1, 2));
        queue.forget(1);
        assert_eq!(queue.wanted().count(), 1, "the other wants it");
    }
}
