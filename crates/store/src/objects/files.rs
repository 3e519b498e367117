//! Files that came with a job: one object, made once, so that all of them are there or none is.
//!
//! It begins with the length of its index, in 16 digits; the index, which is JSON; then the files, one after the other.

use std::collections::BTreeSet;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use object_store::path::Path as Key;
use serde::{Deserialize, Serialize};

use super::Shared;
use super::bucket::Before;
use crate::{AttachedFile, AttachedFiles};

/// Digits of the index's length.
const DIGITS: usize = 16;
/// Read at once, so that the index of a few files needs one request.
const BEGINNING: u64 = 64 << 10;
/// How much of a file is read at once.
const PIECE: u64 = 1 << 20;
/// Jobs whose indexes are kept: those whose attempts are being started.
const RECENT: usize = 256;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Entry {
    path: String,
    executable: bool,
    /// Among the files.
    start: u64,
    length: u64,
}

#[derive(Debug)]
struct Index {
    entries: Vec<Entry>,
    /// Where the files begin in the object.
    start: u64,
}

fn key(job: &str) -> Key {
    Key::from_iter([job, "files"])
}

fn missing(job: &str) -> io::Error {
    io::Error::new(io::ErrorKind::NotFound, format!("job {job} has no files"))
}

/// Indexes that were used last. Files of a job do not change.
#[derive(Debug, Default)]
pub(super) struct RecentIndexes(Mutex<Vec<(Arc<str>, Arc<Index>)>>);

impl RecentIndexes {
    fn all(&self) -> MutexGuard<'_, Vec<(Arc<str>, Arc<Index>)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn get(&self, job: &str) -> Option<Arc<Index>> {
        self.all().iter().find(|(known, _)| &**known == job).map(|(_, index)| index.clone())
    }

    fn insert(&self, job: &str, index: Arc<Index>) {
        let mut all = self.all();
        if all.len() >= RECENT {
            all.remove(0);
        }
        all.push((job.into(), index));
    }

    pub(super) fn forget(&self, job: &str) {
        self.all().retain(|(known, _)| &**known != job);
    }
}

pub(super) async fn put(shared: &Shared, job: &str, files: &AttachedFiles) -> io::Result<()> {
    if files.is_empty() {
        return Ok(());
    }
    let (mut entries, mut start) = (Vec::with_capacity(files.len()), 0);
    for (path, AttachedFile { content, executable, .. }) in files {
        let (path, length) = (path.display().to_string(), content.len() as u64);
        entries.push(Entry { path, executable: *executable, start, length });
        start += length;
    }
    let index = serde_json::to_vec(&entries).map_err(io::Error::other)?;
    let mut object = Vec::with_capacity(DIGITS + index.len() + start as usize);
    object.extend_from_slice(format!("{:0DIGITS$}", index.len()).as_bytes());
    object.extend_from_slice(&index);
    let start = object.len() as u64;
    for file in files.values() {
        object.extend_from_slice(&file.content);
    }
    shared.bucket.put_after(&key(job), object.into(), Before::Nothing).await?;
    shared.indexes.insert(job, Arc::new(Index { entries, start }));
    Ok(())
}

async fn index(shared: &Shared, job: &str) -> io::Result<Arc<Index>> {
    if let Some(index) = shared.indexes.get(job) {
        return Ok(index);
    }
    let damaged = || {
        let why = format!("{}: the files of job {job} are damaged", shared.bucket.name());
        io::Error::new(io::ErrorKind::InvalidData, why)
    };
    let key = key(job);
    let object = shared.bucket.get(&key, Some(0..BEGINNING)).await?.ok_or_else(|| missing(job))?;
    let length = object.bytes.get(..DIGITS).and_then(|digits| std::str::from_utf8(digits).ok());
    let length = length.and_then(|digits| digits.parse::<u64>().ok()).ok_or_else(damaged)?;
    let start = length.checked_add(DIGITS as u64).filter(|start| *start <= object.size);
    let start = start.ok_or_else(damaged)?;
    let beginning = if start <= object.bytes.len() as u64 {
        object.bytes
    } else {
        shared.bucket.get(&key, Some(0..start)).await?.ok_or_else(|| missing(job))?.bytes
    };
    let entries = beginning.get(DIGITS..start as usize).ok_or_else(damaged)?;
    let entries = serde_json::from_slice(entries).map_err(|_| damaged())?;
    let index = Arc::new(Index { entries, start });
    shared.indexes.insert(job, index.clone());
    Ok(index)
}

pub(super) async fn get(
    shared: &Shared,
    job: &str,
    wanted: &BTreeSet<PathBuf>,
) -> io::Result<AttachedFiles> {
    let (index, mut files) = (index(shared, job).await?, AttachedFiles::new());
    for wanted in wanted {
        let mut inside = index
            .entries
            .iter()
            .filter(|entry| Path::new(&entry.path).starts_with(wanted))
            .peekable();
        if inside.peek().is_none() {
            let why = format!("the file {}: there is none", wanted.display());
            return Err(io::Error::new(io::ErrorKind::NotFound, why));
        }
        for Entry { path, executable, start, length } in inside {
            let content = read(shared, job, index.start + start, *length).await?.to_vec();
            let file = AttachedFile { path: path.clone(), content, executable: *executable };
            files.insert(path.into(), file);
        }
    }
    Ok(files)
}

async fn read(shared: &Shared, job: &str, start: u64, length: u64) -> io::Result<Bytes> {
    if length == 0 {
        return Ok(Bytes::new());
    }
    let object = shared.bucket.get(&key(job), Some(start..start + length)).await?;
    let bytes = object.ok_or_else(|| missing(job))?.bytes;
    if bytes.len() as u64 == length {
        return Ok(bytes);
    }
    let why = format!("{}: the files of job {job} end too soon", shared.bucket.name());
    Err(io::Error::new(io::ErrorKind::UnexpectedEof, why))
}

pub(super) async fn names(shared: &Shared, job: &str, named: &str) -> io::Result<Vec<String>> {
    let index = index(shared, job).await?;
    let all = index.entries.iter().map(|entry| &entry.path);
    let mut inside: Vec<_> =
        all.filter(|path| Path::new(path).starts_with(named)).cloned().collect();
    if inside.is_empty() {
        return Err(io::ErrorKind::NotFound.into());
    }
    // Folder by folder.
    inside.sort_by(|a, b| a.split('/').cmp(b.split('/')));
    Ok(inside)
}

pub(super) async fn open(
    shared: &Arc<Shared>,
    job: &str,
    path: &Path,
) -> io::Result<(Box<dyn Read + Send>, bool)> {
    let index = index(shared, job).await?;
    let entry = index.entries.iter().find(|entry| Path::new(&entry.path) == path);
    let Entry { executable, start, length, .. } = entry.ok_or(io::ErrorKind::NotFound)?;
    let reader = FileReader {
        shared: shared.clone(),
        job: job.into(),
        next: index.start + start,
        left: *length,
        piece: io::Cursor::default(),
    };
    Ok((Box::new(reader), *executable))
}

pub(super) async fn remove(shared: &Shared, job: &str) -> io::Result<()> {
    shared.indexes.forget(job);
    shared.bucket.remove(&key(job)).await
}

/// A file, read piece by piece.
struct FileReader {
    shared: Arc<Shared>,
    job: Arc<str>,
    next: u64,
    left: u64,
    piece: io::Cursor<Bytes>,
}

impl Read for FileReader {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.piece.read(buffer)?;
        if count > 0 || buffer.is_empty() || self.left == 0 {
            return Ok(count);
        }
        let length = self.left.min(PIECE);
        let reading = read(&self.shared, &self.job, self.next, length);
        self.piece = io::Cursor::new(self.shared.waiting.wait(reading)?);
        self.next += length;
        self.left -= length;
        self.piece.read(buffer)
    }
}
