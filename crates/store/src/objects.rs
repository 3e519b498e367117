//! Attached files, and what attempts have printed, in an object store: a bucket that servers share, or a folder.
//!
//! | | |
//! |---|---|
//! | `JOB/files` | all files of a job, with their index |
//! | `JOB/logs/STEP/NAME` | a log's head: all of a short one |
//! | `JOB/pieces/STEP/NAME/NUMBER` | the pieces of a long one |
//!
//! Nothing lists more than a step's logs, or all of a job that goes; only the search for what is of no job reads all names, twice a day.
//! Requests are made by threads of their own: whoever asks waits for the answer, and no other thread does.

mod bucket;
mod files;
mod head;
mod logs;
mod place;
mod reading;

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use object_store::path::Path as Key;
use steadfast_core::event::JobId;

use crate::blobs::LogState;
use crate::waiting::Waiting;
use crate::{AttachedFiles, Blobs, Finding, LogChunk, LogName, LogProgress, LogReader, StoreError};
use bucket::Bucket;

pub use place::check_blobs_url;

/// Threads that drive requests.
const THREADS: usize = 2;
/// All names are read no more often, because there may be millions.
const SWEPT_EVERY: Duration = Duration::from_hours(12);

#[derive(Clone, Debug)]
pub struct ObjectBlobs(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    bucket: Bucket,
    indexes: files::RecentIndexes,
    open: logs::OpenLogs,
    swept: Mutex<Option<SystemTime>>,
    /// Dropped last.
    waiting: Waiting,
}

impl ObjectBlobs {
    /// `s3://BUCKET/PREFIX?…`, or `file:///FOLDER`. Nothing is connected to yet.
    pub fn open(url: &str) -> Result<Self, StoreError> {
        let unusable =
            |why| StoreError::Unsuitable { store: "the URL of the blobs".to_owned(), why };
        let bucket = Bucket::new(place::open(url).map_err(unusable)?);
        let waiting =
            Waiting::new(THREADS, "blobs").map_err(|error| unusable(error.to_string()))?;
        let (indexes, open, swept) = Default::default();
        let shared = Arc::new(Shared { bucket, indexes, open, swept, waiting });
        let weak = Arc::downgrade(&shared);
        shared.waiting.spawn(async move {
            loop {
                tokio::time::sleep(logs::KEPT_EVERY).await;
                let Some(shared) = weak.upgrade() else { return };
                logs::keep_changed(&shared).await;
            }
        });
        Ok(Self(shared))
    }

    /// For messages.
    pub fn place(&self) -> &str {
        self.0.bucket.name()
    }

    fn wait<F: Future>(&self, doing: F) -> F::Output {
        self.0.waiting.wait(doing)
    }

    /// Whether it can be written, read, listed and removed from.
    pub fn examine(&self) -> Finding {
        const WORDS: &[u8] = b"written by steadfast doctor, to see whether it can be read again\n";
        let bucket = &self.0.bucket;
        let trying = async {
            let key = Key::from_iter(["doctor", &format!("{}", std::process::id())]);
            bucket.put(&key, WORDS.into()).await?;
            let read = bucket.get(&key, None).await?;
            let mut listed = 0;
            bucket.each(Some(&Key::from("doctor")), |_| listed += 1).await?;
            bucket.remove(&key).await?;
            match read {
                Some(read) if &*read.bytes == WORDS && listed > 0 => Ok(()),
                _ => Err(io::Error::other("what was written is not what was read")),
            }
        };
        match self.wait(trying) {
            Ok(()) => Finding::ok("blobs", format!("{} can be written and read", self.place())),
            Err(error) => Finding::problem(
                "blobs",
                error.to_string(),
                "see that blobs.url names a bucket that is there, or a folder that may be written to, and that the keys in the \
                 environment (AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY) may read, write, list and delete in it",
            ),
        }
    }
}

impl Blobs for ObjectBlobs {
    fn put_files(&self, job: &str, files: &AttachedFiles) -> io::Result<()> {
        self.wait(files::put(&self.0, job, files))
    }

    fn get_files(&self, job: &str, wanted: &BTreeSet<PathBuf>) -> io::Result<AttachedFiles> {
        self.wait(files::get(&self.0, job, wanted))
    }

    fn file_names(&self, job: &str, named: &str) -> io::Result<Vec<String>> {
        self.wait(files::names(&self.0, job, named))
    }

    fn open_file(&self, job: &str, path: &Path) -> io::Result<(Box<dyn Read + Send>, bool)> {
        self.wait(files::open(&self.0, job, path))
    }

    fn remove_files(&self, job: &str) -> io::Result<()> {
        self.wait(files::remove(&self.0, job))
    }

    fn write_log(&self, log: &LogName, chunk: LogChunk<'_>, room: bool) -> io::Result<LogProgress> {
        self.wait(logs::write(&self.0, log, chunk, room))
    }

    fn mark_partial(&self, log: &LogName) -> io::Result<()> {
        self.wait(logs::mark_partial(&self.0, log));
        Ok(())
    }

    fn mark_whole(&self, log: &LogName) -> io::Result<()> {
        self.wait(logs::mark_whole(&self.0, log))
    }

    fn is_partial(&self, log: &LogName) -> bool {
        let about = self.wait(reading::about(&self.0, log));
        matches!(about, Ok(Some((about, _))) if about.partial)
    }

    fn each_log(&self, job: &str, step: &str, see: &mut dyn FnMut(&str)) -> io::Result<()> {
        self.wait(reading::each(&self.0, job, step, see))
    }

    fn log_size(&self, log: &LogName) -> io::Result<Option<u64>> {
        Ok(self.wait(reading::about(&self.0, log))?.map(|(_, length)| length))
    }

    fn log_states(&self, logs: &[LogName]) -> io::Result<Vec<Option<LogState>>> {
        self.wait(reading::states(&self.0, logs))
    }

    fn open_log(&self, log: &LogName) -> io::Result<Arc<dyn LogReader>> {
        self.wait(reading::about(&self.0, log))?.ok_or(io::ErrorKind::NotFound)?;
        let (shared, log) = (self.0.clone(), log.clone());
        Ok(Arc::new(ObjectLog { shared, log, read: Mutex::default() }))
    }

    fn log_times(&self, log: &LogName) -> io::Result<Vec<(u64, u64)>> {
        let about = self.wait(reading::about(&self.0, log))?;
        let (about, length) = about.ok_or(io::ErrorKind::NotFound)?;
        Ok(about.times(length))
    }

    fn remove(&self, job: &str) {
        self.0.indexes.forget(job);
        self.0.open.forget(job);
        let _ = self.wait(self.0.bucket.remove_all(&Key::from(job)));
    }

    fn unchanged_since(&self, moment: SystemTime) -> Vec<JobId> {
        let mut swept = self.0.swept.lock().unwrap_or_else(PoisonError::into_inner);
        if swept.is_some_and(|swept| moment < swept + SWEPT_EVERY) {
            return vec![];
        }
        *swept = Some(moment);
        drop(swept);
        let mut changed: BTreeMap<String, SystemTime> = BTreeMap::new();
        let listed = self.wait(self.0.bucket.each(None, |object| {
            let Some(job) = object.location.parts().next() else { return };
            let at = SystemTime::from(object.last_modified);
            let newest = changed.entry(job.as_ref().to_owned()).or_insert(at);
            *newest = at.max(*newest);
        }));
        // Of a list that broke off nobody knows whether it has all of a job.
        if listed.is_err() {
            return vec![];
        }
        changed.into_iter().filter(|(_, at)| *at < moment).map(|(job, _)| (*job).into()).collect()
    }
}

#[derive(Debug)]
struct ObjectLog {
    shared: Arc<Shared>,
    log: LogName,
    read: Mutex<reading::Read>,
}

impl LogReader for ObjectLog {
    fn read(&self, offset: u64, most: usize) -> io::Result<Vec<u8>> {
        let mut known = self.read.lock().unwrap_or_else(PoisonError::into_inner);
        self.shared.waiting.wait(reading::read(&self.shared, &self.log, &mut known, offset, most))
    }
}
