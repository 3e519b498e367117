//! Job files that were read a moment ago.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use steadfast_core::plan::Plan;
use steadfast_jobfile::{Operator, RecurringFile, Warning};

/// The last small job files that were read: who submits the same again and again has it read once, and all its jobs
/// share a plan.
#[derive(Clone, Debug, Default)]
pub(super) struct Loaded(Arc<Mutex<LoadedFiles>>);

#[derive(Debug, Default)]
struct LoadedFiles {
    /// By the digest of what was submitted.
    same: HashMap<String, LoadedJob>,
    /// Those that may come again with another input, the last ones first. Warnings name lines, which may be others then: what has
    /// some is read.
    recurring: VecDeque<Arc<RecurringFile>>,
}

pub(super) type LoadedJob = (Arc<Plan>, Vec<Warning>);

/// So many of up to [`READ_HERE`](super::READ_HERE) are kept; then all are forgotten.
const LOADED: usize = 256;
/// Each is held against a new file, which costs a comparison of the first few bytes that differ.
const RECURRING: usize = 16;

impl Loaded {
    /// What a file of up to [`READ_HERE`](super::READ_HERE) bytes is known to be.
    pub(super) fn get(&self, digest: &str, text: &[u8]) -> Option<LoadedJob> {
        let recurring = {
            let loaded = self.files();
            if let Some(same) = loaded.same.get(digest) {
                return Some(same.clone());
            }
            let text = str::from_utf8(text).ok()?;
            loaded.recurring.iter().find(|file| file.frames(text)).cloned()
        };
        let plan = recurring?.plan(str::from_utf8(text).ok()?)?;
        Some((Arc::new(plan), Vec::new()))
    }

    pub(super) fn put(&self, digest: &str, text: &[u8], job: &LoadedJob, operator: &Operator) {
        let (plan, warnings) = job;
        let text = str::from_utf8(text).ok().filter(|_| warnings.is_empty());
        let recurring = text.and_then(|text| RecurringFile::of(text, plan, operator));
        let mut loaded = self.files();
        // One that is known may have to be read all the same, for what is in its input.
        if let (Some(file), Some(text)) = (recurring, text)
            && !loaded.recurring.iter().any(|known| known.frames(text))
        {
            loaded.recurring.truncate(RECURRING - 1);
            loaded.recurring.push_front(Arc::new(file));
        }
        if loaded.same.len() >= LOADED {
            loaded.same.clear();
        }
        loaded.same.insert(digest.to_owned(), job.clone());
    }

    fn files(&self) -> MutexGuard<'_, LoadedFiles> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
