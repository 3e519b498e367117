//! What this process wrote last of open jobs.

use std::collections::HashMap;

use steadfast_core::event::JobId;

use super::write::{Mutable, ms};
use crate::{Row, Write};

/// Open jobs as the last write left them. Who follows on it need not look for the job by its id first: an update finds it by
/// its number, and changes nothing if it is not as it was.
#[derive(Debug, Default)]
pub(super) struct LastWrites(HashMap<JobId, LastWrite>);

/// Four times as many as rest in a controller's memory; of more, all are forgotten.
const LAST_WRITES: usize = 64 * 1024;

#[derive(Debug)]
pub(super) struct LastWrite {
    pub(super) number: i64,
    seq: u64,
    pub(super) counted: Option<&'static str>,
    state: &'static str,
    finished_at: Option<i64>,
    wake_at: Option<i64>,
    queued: Option<String>,
}

impl LastWrite {
    /// It is open.
    pub(super) fn row(&self) -> Mutable<'_> {
        let Self { state, finished_at, wake_at, ref queued, .. } = *self;
        Mutable { state, finished_at, wake_at, queued: queued.as_deref(), over: false }
    }
}

impl LastWrites {
    /// What this write follows on, if that is known.
    pub(super) fn before(&self, write: &Write) -> Option<&LastWrite> {
        self.0.get(&write.job).filter(|last| last.seq == write.expected_seq)
    }

    pub(super) fn forget(&mut self, write: &Write) {
        self.0.remove(&write.job);
    }

    pub(super) fn keep(&mut self, write: &Write, number: i64, counted: Option<&'static str>) {
        if write.row.over {
            self.0.remove(&write.job);
            return;
        }
        if self.0.len() >= LAST_WRITES {
            self.0.clear();
        }
        let Row { state, finished_at, wake_at, queued, .. } = &write.row;
        let last = LastWrite {
            number,
            seq: write.last_seq(),
            counted,
            state: state.name(),
            finished_at: finished_at.map(ms),
            wake_at: wake_at.map(ms),
            queued: queued.clone(),
        };
        self.0.insert(write.job.clone(), last);
    }
}
