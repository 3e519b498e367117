//! The ids of signed callbacks that were taken: one that comes again is known, and changes nothing.
//!
//! In memory, for as long as a signature is good. After a restart the log still tells an end that was said
//! before from a new one.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::{Arc, Mutex, PoisonError};

use steadfast_core::time::Timestamp;

use super::Taken;
use super::signature::APART_MS;

/// A signature is good for five minutes before and after its time.
const KEPT_MS: u64 = 2 * APART_MS;
/// Those that are too old are looked for when there are so many, and then at every doubling.
const SWEEP: usize = 1024;

#[derive(Clone, Debug, Default)]
pub(super) struct Ids(Arc<Mutex<Known>>);

#[derive(Debug, Default)]
struct Known {
    /// And what became of each; None while it is being taken.
    ids: HashMap<String, (Timestamp, Option<Taken>)>,
    sweep_at: usize,
}

pub(super) enum Begun {
    New(Taking),
    Known(Taken),
    UnderWay,
}

/// An id that is being taken; unless that is done, it may come again.
pub(super) struct Taking {
    ids: Ids,
    id: String,
    done: bool,
}

impl Ids {
    pub(super) fn begin(&self, id: &str, now: Timestamp) -> Begun {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if known.ids.len() >= known.sweep_at.max(SWEEP) {
            known.ids.retain(|_, (at, taken)| taken.is_none() || now.0 < at.0 + KEPT_MS);
            known.sweep_at = known.ids.len() * 2;
        }
        match known.ids.entry(id.to_owned()) {
            Entry::Occupied(entry) => match entry.get().1 {
                Some(taken) => Begun::Known(taken),
                None => Begun::UnderWay,
            },
            Entry::Vacant(entry) => {
                entry.insert((now, None));
                Begun::New(Taking { ids: self.clone(), id: id.to_owned(), done: false })
            }
        }
    }
}

impl Taking {
    pub(super) fn done(mut self, taken: Taken) {
        self.done = true;
        let mut known = self.ids.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, became)) = known.ids.get_mut(&self.id) {
            *became = Some(taken);
        }
    }
}

impl Drop for Taking {
    fn drop(&mut self) {
        if !self.done {
            self.ids.0.lock().unwrap_or_else(PoisonError::into_inner).ids.remove(&self.id);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_is_taken_once_and_again_only_if_that_failed() {
        let ids = Ids::default();
        let begin = |id, at| ids.begin(id, Timestamp(at));
        let Begun::New(first) = begin("a", 0) else { panic!("new") };
        assert!(matches!(begin("a", 1), Begun::UnderWay));
        drop(first);
        let Begun::New(second) = begin("a", 2) else { panic!("the first one failed") };
        second.done(Taken::Late);
        assert!(matches!(begin("a", 3), Begun::Known(Taken::Late)));
        assert!(matches!(begin("b", 3), Begun::New(_)));
    }

    #[test]
    fn ids_whose_signatures_are_too_old_are_forgotten() {
        let ids = Ids::default();
        for n in 0..10 * SWEEP as u64 {
            let Begun::New(new) = ids.begin(&n.to_string(), Timestamp(n * 1000)) else {
                panic!("new")
            };
            new.done(Taken::Counted);
        }
        let kept = ids.0.lock().unwrap().ids.len();
        assert!(kept <= 2 * SWEEP, "{kept}");
    }
}
