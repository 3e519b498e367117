//! Attached files, and what attempts have printed, in pieces.

mod files;
mod logs;
mod moved_logs;

use std::collections::BTreeSet;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use steadfast_core::event::JobId;
use tokio_postgres::types::Type;

use super::param::Text;
use super::pool::Pool;
use crate::transfer::{LogAbout, MovableBlobs};
use crate::{AttachedFiles, Blobs, LogChunk, LogName, LogProgress, LogReader};

/// The largest piece: a row of it is sent, and kept, as a whole.
const PIECE: usize = 256 << 10;

/// Jobs whose files and logs go in one transaction.
const REMOVED_AT_ONCE: usize = 200;

#[derive(Clone, Debug)]
pub(super) struct PostgresBlobs {
    pool: Arc<Pool>,
}

impl PostgresBlobs {
    pub(super) fn new(pool: Arc<Pool>) -> Self {
        Self { pool }
    }
}

impl Blobs for PostgresBlobs {
    fn put_files(&self, job: &str, attached: &AttachedFiles) -> io::Result<()> {
        files::put(&self.pool, job, attached)
    }

    fn get_files(&self, job: &str, wanted: &BTreeSet<PathBuf>) -> io::Result<AttachedFiles> {
        files::get(&self.pool, job, wanted)
    }

    fn file_names(&self, job: &str, named: &str) -> io::Result<Vec<String>> {
        files::names(&self.pool, job, named)
    }

    fn open_file(&self, job: &str, path: &Path) -> io::Result<(Box<dyn Read + Send>, bool)> {
        files::open(&self.pool, job, path)
    }

    fn remove_files(&self, job: &str) -> io::Result<()> {
        files::remove(&self.pool, job)
    }

    fn write_log(&self, log: &LogName, chunk: LogChunk<'_>, room: bool) -> io::Result<LogProgress> {
        logs::write(&self.pool, log, chunk, room)
    }

    fn mark_partial(&self, log: &LogName) -> io::Result<()> {
        logs::mark_partial(&self.pool, log)
    }

    fn mark_whole(&self, log: &LogName) -> io::Result<()> {
        logs::mark_whole(&self.pool, log)
    }

    fn is_partial(&self, log: &LogName) -> bool {
        logs::is_partial(&self.pool, log)
    }

    fn each_log(&self, job: &str, step: &str, see: &mut dyn FnMut(&str)) -> io::Result<()> {
        logs::each(&self.pool, job, step, see)
    }

    fn log_size(&self, log: &LogName) -> io::Result<Option<u64>> {
        logs::size(&self.pool, log)
    }

    fn open_log(&self, log: &LogName) -> io::Result<Arc<dyn LogReader>> {
        Ok(Arc::new(logs::open(&self.pool, log)?))
    }

    fn log_times(&self, log: &LogName) -> io::Result<Vec<(u64, u64)>> {
        logs::times(&self.pool, log)
    }

    fn remove(&self, job: &str) {
        self.remove_all(&[job.into()]);
    }

    /// Of jobs whose week is gone there is nothing left to look for.
    fn remove_all(&self, jobs: &[JobId]) {
        for some in jobs.chunks(REMOVED_AT_ONCE) {
            let ids: Vec<_> = some.iter().map(|job| Text(job)).collect();
            let tables = [&files::TABLES[..], &logs::TABLES].concat();
            let _ = remove(&self.pool, &ids, &tables);
        }
    }

    /// Of jobs that are not there: nobody asks for the others.
    fn unchanged_since(&self, moment: SystemTime) -> Vec<JobId> {
        let found = self.pool.with("reading", |connection| {
            connection.read(
                "SELECT f.job FROM steadfast.files f WHERE f.made_at < $1 \
                 AND NOT EXISTS (SELECT FROM steadfast.jobs j WHERE j.id = f.job) \
                 UNION SELECT l.job FROM steadfast.logs l WHERE l.written_at < $1 \
                 AND NOT EXISTS (SELECT FROM steadfast.jobs j WHERE j.id = l.job)",
                &[(&moment, Type::TIMESTAMPTZ)],
            )
        });
        let found = found.unwrap_or_default();
        found.iter().map(|row| row.get::<_, &str>(0).into()).collect()
    }
}

impl MovableBlobs for PostgresBlobs {
    fn logs_of(&self, job: &str, _steps: &BTreeSet<&str>) -> io::Result<Vec<LogAbout>> {
        moved_logs::all(&self.pool, job)
    }

    fn put_log(&self, about: &LogAbout, content: &dyn LogReader) -> io::Result<()> {
        moved_logs::put(&self.pool, about, content)
    }
}

/// In every table that has something of a job.
fn remove(pool: &Pool, jobs: &[Text<'_>], tables: &[&str]) -> io::Result<()> {
    pool.with("removing", |connection| {
        for table in tables {
            let sql = format!("DELETE FROM steadfast.{table} WHERE job = ANY ($1)");
            connection.query(&sql, &[(&jobs, Type::TEXT_ARRAY)])?;
        }
        Ok(())
    })
}
