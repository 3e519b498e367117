//! Jobs that were asked for lately, folded: the next question reads only what has happened since.

use std::collections::HashMap;
use std::sync::{Arc, Mutex as Held, PoisonError};

use steadfast_core::event::JobId;
use tokio::sync::Mutex;

use super::folded::FoldedJob;

/// Enough for those that people and programs wait for.
const MOST: usize = 100;
/// Of what they hold in outputs; the one that was asked for last stays in any case.
const MOST_BYTES: usize = 256 << 20;

#[derive(Clone, Debug, Default)]
pub(super) struct Cache(Arc<Held<Entries>>);

#[derive(Debug, Default)]
struct Entries {
    jobs: HashMap<JobId, Entry>,
    /// Counts questions: the entry with the lowest was asked for longest ago.
    asked: u64,
}

#[derive(Debug, Default)]
struct Entry {
    asked: u64,
    bytes: usize,
    folded: Arc<Mutex<FoldedJob>>,
}

impl Cache {
    pub(super) fn of(&self, id: &JobId) -> Arc<Mutex<FoldedJob>> {
        let mut entries = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        entries.asked += 1;
        let asked = entries.asked;
        if let Some(entry) = entries.jobs.get_mut(id) {
            entry.asked = asked;
            return entry.folded.clone();
        }
        if entries.jobs.len() >= MOST {
            entries.forget_oldest();
        }
        let entry = Entry { asked, ..Entry::default() };
        let folded = entry.folded.clone();
        entries.jobs.insert(id.clone(), entry);
        folded
    }

    /// So much is held of it now; if that is too much with the others, those go that nobody asks for.
    pub(super) fn holds(&self, id: &JobId, bytes: usize) {
        let mut entries = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(entry) = entries.jobs.get_mut(id) {
            entry.bytes = bytes;
        }
        while entries.jobs.len() > 1
            && entries.jobs.values().map(|entry| entry.bytes).sum::<usize>() > MOST_BYTES
        {
            entries.forget_oldest();
        }
    }

    pub(super) fn forget(&self, id: &JobId) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).jobs.remove(id);
    }
}

impl Entries {
    fn forget_oldest(&mut self) {
        let oldest = self.jobs.iter().min_by_key(|(_, entry)| entry.asked);
        if let Some(oldest) = oldest.map(|(id, _)| id.clone()) {
            self.jobs.remove(&oldest);
        }
    }
}
