//! Blobs that are kept in a new place, beside those that an older one still has: what came before the operator chose another place
//! stays where it is until its job goes.

use std::collections::{BTreeSet, HashSet};
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use steadfast_core::event::JobId;

use super::{AttachedFiles, Blobs, LogChunk, LogName, LogProgress, LogReader, LogState};

#[derive(Clone, Debug)]
pub(crate) struct LayeredBlobs {
    pub(crate) new: Arc<dyn Blobs>,
    pub(crate) old: Arc<dyn Blobs>,
    /// What is kept in the new place may take room of the disk that jobs need.
    pub(crate) on_this_machine: bool,
}

impl LayeredBlobs {
    fn find<T>(&self, find: impl Fn(&dyn Blobs) -> io::Result<T>) -> io::Result<T> {
        match find(&*self.new) {
            // Why it is not there is what the new place says.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                find(&*self.old).map_err(|_| error)
            }
            found => found,
        }
    }
}

impl Blobs for LayeredBlobs {
    fn put_files(&self, job: &str, files: &AttachedFiles) -> io::Result<()> {
        self.new.put_files(job, files)
    }

    fn get_files(&self, job: &str, wanted: &BTreeSet<PathBuf>) -> io::Result<AttachedFiles> {
        self.find(|blobs| blobs.get_files(job, wanted))
    }

    fn file_names(&self, job: &str, named: &str) -> io::Result<Vec<String>> {
        self.find(|blobs| blobs.file_names(job, named))
    }

    fn open_file(&self, job: &str, path: &Path) -> io::Result<(Box<dyn Read + Send>, bool)> {
        self.find(|blobs| blobs.open_file(job, path))
    }

    fn remove_files(&self, job: &str) -> io::Result<()> {
        self.new.remove_files(job)
    }

    /// A log that the old place has begun with begins anew: its worker is told that nothing of it is here.
    fn write_log(&self, log: &LogName, chunk: LogChunk<'_>, room: bool) -> io::Result<LogProgress> {
        self.new.write_log(log, chunk, room || !self.on_this_machine)
    }

    fn mark_partial(&self, log: &LogName) -> io::Result<()> {
        self.new.mark_partial(log)
    }

    fn mark_whole(&self, log: &LogName) -> io::Result<()> {
        self.new.mark_whole(log)
    }

    fn is_partial(&self, log: &LogName) -> bool {
        matches!(self.log_states(std::slice::from_ref(log)), Ok(states) if states[0].is_some_and(|state| state.partial))
    }

    fn each_log(&self, job: &str, step: &str, see: &mut dyn FnMut(&str)) -> io::Result<()> {
        let mut seen = HashSet::new();
        self.old.each_log(job, step, &mut |name| {
            see(name);
            seen.insert(name.to_owned());
        })?;
        self.new.each_log(job, step, &mut |name| {
            if !seen.contains(name) {
                see(name);
            }
        })
    }

    fn log_size(&self, log: &LogName) -> io::Result<Option<u64>> {
        match self.new.log_size(log)? {
            None => self.old.log_size(log),
            size => Ok(size),
        }
    }

    fn log_states(&self, logs: &[LogName]) -> io::Result<Vec<Option<LogState>>> {
        let mut states = self.new.log_states(logs)?;
        for (log, state) in logs.iter().zip(&mut states).filter(|(_, state)| state.is_none()) {
            *state = self.old.log_states(std::slice::from_ref(log))?[0];
        }
        Ok(states)
    }

    fn open_log(&self, log: &LogName) -> io::Result<Arc<dyn LogReader>> {
        self.find(|blobs| blobs.open_log(log))
    }

    fn log_times(&self, log: &LogName) -> io::Result<Vec<(u64, u64)>> {
        self.find(|blobs| blobs.log_times(log))
    }

    fn remove(&self, job: &str) {
        self.new.remove(job);
        self.old.remove(job);
    }

    fn unchanged_since(&self, moment: SystemTime) -> Vec<JobId> {
        let both =
            self.new.unchanged_since(moment).into_iter().chain(self.old.unchanged_since(moment));
        both.collect::<BTreeSet<_>>().into_iter().collect()
    }
}
