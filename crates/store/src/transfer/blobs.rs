//! The files that came with a job, and what its attempts printed.

use std::collections::BTreeSet;
use std::io;
use std::path::PathBuf;

use super::MovableBlobs;
use crate::{AttachedFiles, Blobs, LogName};

/// Bytes of a log that are read at once.
const CHUNK: usize = 256 << 10;

/// What there is of a job.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Found {
    pub(super) files: u64,
    pub(super) logs: u64,
}

/// All of a job, in memory: as much as a submission may bring along.
fn files(blobs: &dyn Blobs, job: &str) -> io::Result<AttachedFiles> {
    match blobs.get_files(job, &BTreeSet::from([PathBuf::new()])) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(AttachedFiles::new()),
        files => files,
    }
}

fn logs(blobs: &dyn Blobs, job: &str, step: &str) -> io::Result<BTreeSet<String>> {
    let mut names = BTreeSet::new();
    blobs.each_log(job, step, &mut |name| names.extend([name.to_owned()]))?;
    Ok(names)
}

fn log(job: &str, step: &str, name: String) -> LogName {
    LogName { job: job.into(), step: step.to_owned(), name }
}

/// What is there already is left as it is.
pub(super) fn copy(
    from: &dyn Blobs,
    to: &dyn MovableBlobs,
    job: &str,
    steps: &BTreeSet<&str>,
) -> io::Result<()> {
    let attached = files(from, job)?;
    if !attached.is_empty() && files(to, job)? != attached {
        // Half of them, from before a crash.
        match to.remove_files(job) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => to.put_files(job, &attached)?,
        }
    }
    for step in steps {
        for name in logs(from, job, step)? {
            let log = log(job, step, name);
            let (size, partial, times) = about(from, &log)?;
            if about(to, &log)? != (size, partial, times.clone()) {
                to.put_log(&log, &*from.open_log(&log)?, partial, &times)?;
            }
        }
    }
    Ok(())
}

type About = (Option<u64>, bool, Vec<(u64, u64)>);

fn about(blobs: &dyn Blobs, log: &LogName) -> io::Result<About> {
    let Some(size) = blobs.log_size(log)? else { return Ok((None, false, vec![])) };
    Ok((Some(size), blobs.is_partial(log), blobs.log_times(log)?))
}

/// What differs, or how much there is.
pub(super) fn compare(
    from: &dyn Blobs,
    to: &dyn Blobs,
    job: &str,
    steps: &BTreeSet<&str>,
) -> io::Result<Result<Found, String>> {
    let attached = files(from, job)?;
    if files(to, job)? != attached {
        return Ok(Err("the files that came with it differ".to_owned()));
    }
    let mut found = Found { files: attached.len() as u64, logs: 0 };
    for step in steps {
        let names = logs(from, job, step)?;
        if logs(to, job, step)? != names {
            return Ok(Err(format!("the logs of its step {step} are others")));
        }
        found.logs += names.len() as u64;
        for name in names {
            let log = log(job, step, name);
            if about(from, &log)? != about(to, &log)? || !is_same(from, to, &log)? {
                return Ok(Err(format!("its log {}/{} differs", log.step, log.name)));
            }
        }
    }
    Ok(Ok(found))
}

fn is_same(from: &dyn Blobs, to: &dyn Blobs, log: &LogName) -> io::Result<bool> {
    let (ours, theirs, mut offset) = (from.open_log(log)?, to.open_log(log)?, 0);
    loop {
        let (piece, other) = (ours.read(offset, CHUNK)?, theirs.read(offset, CHUNK)?);
        // One may read less at once.
        let both = piece.len().min(other.len());
        if both == 0 || piece[..both] != other[..both] {
            return Ok(piece.is_empty() && other.is_empty());
        }
        offset += both as u64;
    }
}
