//! Whose turn it is: jobs that wait for a worker, by what they want of one.
//!
//! Steps that want the same of a worker are one class, so that a class nobody can serve costs nothing
//! until a worker that could has room again. Among the jobs of a class the higher priority goes first,
//! then the one with the fewest attempts under way, then the one that came first.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, HashMap};

use steadfast_core::event::{ItemId, Role};
use steadfast_core::job::Job;

use crate::engine::JobKey;
use crate::fleet::{Fleet, Needs};

type ClassId = u32;
type Rank = (Reverse<i32>, u32, JobKey);

#[derive(Debug, Default)]
pub(crate) struct Queue {
    ids: HashMap<Needs, ClassId>,
    classes: Vec<Needs>,
    waiting: BTreeMap<ClassId, BTreeSet<Rank>>,
    /// Classes that nobody could serve when last looked.
    unplaceable: BTreeSet<ClassId>,
    places: HashMap<JobKey, Place>,
    /// Steps of jobs under way, by class, that have had something to start.
    steps: BTreeMap<ClassId, u32>,
}

/// Where a job stands in the queue.
#[derive(Debug)]
struct Place {
    priority: i32,
    in_flight: u32,
    queued: Vec<ClassId>,
    /// Of its steps, by run and step and role; looked up when first needed.
    classes: HashMap<(u32, u32, Role), ClassId>,
}

impl Place {
    fn rank(&self, key: JobKey) -> Rank {
        (Reverse(self.priority), self.in_flight, key)
    }
}

impl Queue {
    /// Brings a job's place up to date. `in_flight`: of all its attempts.
    pub(crate) fn update(&mut self, key: JobKey, job: &Job, started: i64) {
        let place = self.places.entry(key).or_insert_with(|| Place {
            priority: job.plan.priority(),
            in_flight: 0,
            queued: Vec::new(),
            classes: HashMap::new(),
        });
        let before = place.rank(key);
        place.in_flight = place.in_flight.saturating_add_signed(started as i32);
        let after = place.rank(key);
        let mut wanted: Vec<ClassId> = Vec::new();
        for item in job.startable() {
            let named = (item.run, item.step, item.role);
            let class = *place.classes.entry(named).or_insert_with(|| {
                let needs = Needs::of(&job.plan, item);
                let class = *self.ids.entry(needs).or_insert_with_key(|needs| {
                    self.classes.push(needs.clone());
                    self.classes.len() as ClassId - 1
                });
                *self.steps.entry(class).or_default() += 1;
                class
            });
            if !wanted.contains(&class) {
                wanted.push(class);
            }
        }
        let queued = std::mem::take(&mut place.queued);
        for class in &queued {
            if before == after && wanted.contains(class) {
                continue;
            }
            if let Some(waiting) = self.waiting.get_mut(class) {
                waiting.remove(&before);
                if waiting.is_empty() {
                    self.waiting.remove(class);
                    self.unplaceable.remove(class);
                }
            }
        }
        for class in &wanted {
            if before != after || !queued.contains(class) {
                self.waiting.entry(*class).or_default().insert(after);
            }
        }
        place.queued = wanted;
    }

    pub(crate) fn forget(&mut self, key: JobKey) {
        let Some(place) = self.places.remove(&key) else { return };
        let rank = place.rank(key);
        for class in place.classes.values() {
            if let Some(steps) = self.steps.get_mut(class) {
                *steps -= 1;
                if *steps == 0 {
                    self.steps.remove(class);
                }
            }
        }
        for class in place.queued {
            if let Some(waiting) = self.waiting.get_mut(&class) {
                waiting.remove(&rank);
                if waiting.is_empty() {
                    self.waiting.remove(&class);
                    self.unplaceable.remove(&class);
                }
            }
        }
    }

    /// Classes that somebody with new room could serve are looked at again.
    pub(crate) fn recheck(&mut self, fleet: &mut Fleet) {
        if fleet.has_fewer() {
            for class in self.waiting.keys() {
                fleet.release_for(&self.classes[*class as usize]);
            }
        }
        if fleet.has_gained() {
            self.unplaceable.retain(|class| !fleet.newly_free_for(&self.classes[*class as usize]));
            fleet.forget_gained();
        }
    }

    /// Whose turn it is, and for what.
    pub(crate) fn first(&self) -> Option<(JobKey, ClassId)> {
        let heads = self
            .waiting
            .iter()
            .filter(|(class, _)| !self.unplaceable.contains(class))
            .filter_map(|(class, waiting)| Some((*waiting.first()?, *class)));
        heads.min().map(|((_, _, key), class)| (key, class))
    }

    /// What jobs under way want of a worker, as far as they have come.
    pub(crate) fn wanted(&self) -> impl Iterator<Item = &Needs> {
        self.steps.keys().map(|class| &self.classes[*class as usize])
    }

    pub(crate) fn needs(&self, class: ClassId) -> &Needs {
        &self.classes[class as usize]
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
