//! The files that came with a job, and what its attempts printed.

use std::collections::{BTreeSet, HashMap};
use std::io;
use std::path::PathBuf;

use super::{LogAbout, MovableBlobs};
use crate::{AttachedFiles, Blobs};

/// Bytes of a log that are compared at once.
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

/// What is there already is left as it is; nothing is, unless this goes on with an earlier move.
pub(super) fn copy(
    from: &dyn MovableBlobs,
    to: &dyn MovableBlobs,
    job: &str,
    steps: &BTreeSet<&str>,
    is_resumed: bool,
) -> io::Result<()> {
    let attached = files(from, job)?;
    let is_there = is_resumed && files(to, job)? == attached;
    if !attached.is_empty() && !is_there {
        // Half of them, from before a crash.
        match to.remove_files(job) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => to.put_files(job, &attached)?,
        }
    }
    let logs = from.logs_of(job, steps)?;
    let there = if is_resumed { to.logs_of(job, steps)? } else { vec![] };
    let there: HashMap<_, _> = there.iter().map(|about| (&about.log, about)).collect();
    for about in logs.iter().filter(|about| there.get(&about.log) != Some(about)) {
        to.put_log(about, &*from.open_log(&about.log)?)?;
    }
    Ok(())
}

/// What differs, or how much there is.
pub(super) fn compare(
    from: &dyn MovableBlobs,
    to: &dyn MovableBlobs,
    job: &str,
    steps: &BTreeSet<&str>,
) -> io::Result<Result<Found, String>> {
    let attached = files(from, job)?;
    if files(to, job)? != attached {
        return Ok(Err("the files that came with it differ".to_owned()));
    }
    let (logs, there) = (from.logs_of(job, steps)?, to.logs_of(job, steps)?);
    if logs.len() != there.len() {
        return Ok(Err(format!("its {} logs are {} there", logs.len(), there.len())));
    }
    for (about, copied) in logs.iter().zip(&there) {
        if about != copied || !is_same(from, to, about)? {
            return Ok(Err(format!("its log {}/{} differs", about.log.step, about.log.name)));
        }
    }
    Ok(Ok(Found { files: attached.len() as u64, logs: logs.len() as u64 }))
}

fn is_same(from: &dyn Blobs, to: &dyn Blobs, about: &LogAbout) -> io::Result<bool> {
    if about.length == 0 {
        return Ok(true);
    }
    let (ours, theirs) = (from.open_log(&about.log)?, to.open_log(&about.log)?);
    let mut offset = 0;
    while offset < about.length {
        let (piece, other) = (ours.read(offset, CHUNK)?, theirs.read(offset, CHUNK)?);
        // One may read less at once.
        let both = piece.len().min(other.len());
        if both == 0 || piece[..both] != other[..both] {
            return Ok(false);
        }
        offset += both as u64;
    }
    Ok(true)
}
