//! What is kept beside the log of events because it is large, and not decided upon: the files that came with jobs, and what
//! attempts have printed.
//!
//! All of a job's goes with the job. Names of jobs, steps and logs are made by the server, never by who asks.

mod files;
pub(crate) mod layered;
pub(crate) mod log_times;
pub(crate) mod logs;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use steadfast_core::event::{ItemId, JobId};

use crate::folder::Folder;
use crate::transfer::{LogAbout, MovableBlobs};

/// A file that came with a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AttachedFile {
    /// Relative, without `..`.
    pub path: String,
    pub content: Vec<u8>,
    pub executable: bool,
}

/// Those of a job, by their paths.
pub type AttachedFiles = BTreeMap<PathBuf, AttachedFile>;

/// What one attempt prints.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct LogName {
    pub job: JobId,
    pub step: String,
    /// As [`ItemId::attempt_name`] makes it.
    pub name: String,
}

/// A piece of it.
#[derive(Clone, Copy, Debug)]
pub struct LogChunk<'a> {
    pub offset: u64,
    pub bytes: &'a [u8],
    /// Nothing comes after it: the log ends here, whatever it had before.
    pub last: bool,
}

/// How far a log is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogProgress {
    /// Bytes that are here: it goes on from there.
    pub length: u64,
    /// It is whole, or no more of it is kept.
    pub complete: bool,
}

/// A log, for lists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogState {
    pub length: u64,
    /// More of it is to come.
    pub partial: bool,
}

pub trait Blobs: Debug + Send + Sync {
    /// Durable when this returns, before the job is: who runs it finds them.
    fn put_files(&self, job: &str, files: &AttachedFiles) -> io::Result<()>;

    /// Those that are wanted, and what is in the folders that are.
    fn get_files(&self, job: &str, wanted: &BTreeSet<PathBuf>) -> io::Result<AttachedFiles>;

    /// The names of the files that a name stands for: itself, or what is in that folder, in order.
    fn file_names(&self, job: &str, named: &str) -> io::Result<Vec<String>>;

    /// To be read, and whether it can be executed.
    fn open_file(&self, job: &str, path: &Path) -> io::Result<(Box<dyn Read + Send>, bool)>;

    fn remove_files(&self, job: &str) -> io::Result<()>;

    /// Puts a piece in its place, if what comes before it is here; one without bytes that is not the last only asks. What is told to
    /// who asks is kept, and so is a log that is complete; what came in between may be lost with the server, and is sent again. A
    /// log of which more is to come is [partial](Blobs::is_partial) from its first piece on. `room`: there is enough on
    /// the disk for logs too; without, the log is cut off with a line that says so.
    fn write_log(&self, log: &LogName, chunk: LogChunk<'_>, room: bool) -> io::Result<LogProgress>;

    /// More of the log is to come, also if nothing of it is here yet.
    fn mark_partial(&self, log: &LogName) -> io::Result<()>;

    /// All of it is here that will ever be.
    fn mark_whole(&self, log: &LogName) -> io::Result<()>;

    fn is_partial(&self, log: &LogName) -> bool;

    /// Tells the name of every log of a step, in no order.
    fn each_log(&self, job: &str, step: &str, see: &mut dyn FnMut(&str)) -> io::Result<()>;

    /// None: there is no such log.
    fn log_size(&self, log: &LogName) -> io::Result<Option<u64>>;

    /// The same of several at once. None: there is no such log.
    fn log_states(&self, logs: &[LogName]) -> io::Result<Vec<Option<LogState>>> {
        let state = |log| {
            let length = self.log_size(log)?;
            Ok(length.map(|length| LogState { length, partial: self.is_partial(log) }))
        };
        logs.iter().map(state).collect()
    }

    fn open_log(&self, log: &LogName) -> io::Result<Arc<dyn LogReader>>;

    /// Where bytes begin, and when they were printed (Unix milliseconds); by place, the first one 0.
    fn log_times(&self, log: &LogName) -> io::Result<Vec<(u64, u64)>>;

    /// Everything of a job. What cannot be removed now is found by [`Blobs::unchanged_since`].
    fn remove(&self, job: &str);

    /// The same of several.
    fn remove_all(&self, jobs: &[JobId]) {
        for job in jobs {
            self.remove(job);
        }
    }

    /// The jobs that have something here which was not changed since a moment; those that are stored may be left out.
    fn unchanged_since(&self, moment: SystemTime) -> Vec<JobId>;
}

/// A log that may still grow.
pub trait LogReader: Debug + Send + Sync {
    /// At most so many bytes from there on, at least one; none beyond the end, however far.
    fn read(&self, offset: u64, most: usize) -> io::Result<Vec<u8>>;
}

impl LogName {
    pub fn new(job: &str, step: &str, item: ItemId, attempt: u32) -> Self {
        Self { job: job.into(), step: step.to_owned(), name: item.attempt_name(step, attempt) }
    }
}

/// In folders beside the database.
#[derive(Clone, Debug)]
pub struct FolderBlobs(Folder);

impl FolderBlobs {
    pub fn new(folder: &Folder) -> Self {
        Self(folder.clone())
    }

    fn log(&self, log: &LogName) -> PathBuf {
        self.0.log_named(&log.job, &log.step, &log.name)
    }
}

impl Blobs for FolderBlobs {
    fn put_files(&self, job: &str, files: &AttachedFiles) -> io::Result<()> {
        files::put(&self.0, job, files)
    }

    fn get_files(&self, job: &str, wanted: &BTreeSet<PathBuf>) -> io::Result<AttachedFiles> {
        files::get(&self.0.files(job), wanted)
    }

    fn file_names(&self, job: &str, named: &str) -> io::Result<Vec<String>> {
        files::names(&self.0.files(job), named)
    }

    fn open_file(&self, job: &str, path: &Path) -> io::Result<(Box<dyn Read + Send>, bool)> {
        files::open(&self.0.files(job).join(path))
    }

    fn remove_files(&self, job: &str) -> io::Result<()> {
        std::fs::remove_dir_all(self.0.files(job))
    }

    fn write_log(&self, log: &LogName, chunk: LogChunk<'_>, room: bool) -> io::Result<LogProgress> {
        logs::write(&self.0, &self.log(log), chunk, room)
    }

    fn mark_partial(&self, log: &LogName) -> io::Result<()> {
        logs::mark_partial(&self.0, &self.log(log))
    }

    fn mark_whole(&self, log: &LogName) -> io::Result<()> {
        logs::mark_whole(&self.log(log))
    }

    fn is_partial(&self, log: &LogName) -> bool {
        logs::part(&self.log(log)).exists()
    }

    fn each_log(&self, job: &str, step: &str, see: &mut dyn FnMut(&str)) -> io::Result<()> {
        logs::each(&self.0.logs(job).join(step), see)
    }

    fn log_size(&self, log: &LogName) -> io::Result<Option<u64>> {
        logs::size(&self.log(log))
    }

    fn open_log(&self, log: &LogName) -> io::Result<Arc<dyn LogReader>> {
        Ok(Arc::new(logs::open(&self.log(log))?))
    }

    fn log_times(&self, log: &LogName) -> io::Result<Vec<(u64, u64)>> {
        log_times::read(&self.log(log))
    }

    fn remove(&self, job: &str) {
        for place in [self.0.logs(job), self.0.files(job), self.0.work(job)] {
            let _ = std::fs::remove_dir_all(place);
        }
    }

    fn unchanged_since(&self, moment: SystemTime) -> Vec<JobId> {
        let mut jobs = BTreeSet::new();
        for place in [self.0.logs(""), self.0.files(""), self.0.work("")] {
            let Ok(entries) = std::fs::read_dir(&place) else { continue };
            for entry in entries.flatten() {
                let changed = entry.metadata().and_then(|about| about.modified());
                if let (Some(job), true) =
                    (entry.file_name().to_str(), changed.is_ok_and(|changed| changed < moment))
                {
                    jobs.insert(JobId::from(job));
                }
            }
        }
        jobs.into_iter().collect()
    }
}

impl MovableBlobs for FolderBlobs {
    fn logs_of(&self, job: &str, steps: &BTreeSet<&str>) -> io::Result<Vec<LogAbout>> {
        let mut logs = vec![];
        for step in steps {
            let mut names = BTreeSet::new();
            self.each_log(job, step, &mut |name| names.extend([name.to_owned()]))?;
            for name in names {
                let log = LogName { job: job.into(), step: (*step).to_owned(), name };
                // Something else that has such a name is no log.
                let Some(length) = self.log_size(&log)? else { continue };
                let (partial, times) = (self.is_partial(&log), self.log_times(&log)?);
                logs.push(LogAbout { log, length, partial, times });
            }
        }
        Ok(logs)
    }

    fn put_log(&self, about: &LogAbout, content: &dyn LogReader) -> io::Result<()> {
        let path = self.log(&about.log);
        logs::put(&self.0, &path, content, about.partial)?;
        log_times::keep(&path, &about.times)
    }
}
