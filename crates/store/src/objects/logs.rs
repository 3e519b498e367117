//! What attempts have printed: logs that are being written are in memory for a moment, so that a line now and then is not a request each.
//!
//! A worker keeps a log until its end is acknowledged, and asks how far it is here when it comes anew. So what is only in memory may be
//! lost with the server, or given up when another one has written meanwhile; an end is acknowledged when all of it is kept.

use std::collections::HashMap;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use object_store::path::Path as Key;
use tokio::sync::Mutex as AsyncMutex;
use tokio::time::Instant;

use super::Shared;
use super::bucket::{AT_ONCE, Before};
use super::head::{Answer, Head, PIECE};
use crate::{LogChunk, LogName, LogProgress};

/// What a log has in memory is kept so often, while it grows.
pub(super) const KEPT_EVERY: Duration = Duration::from_secs(2);
/// A log that nobody writes to leaves memory: another server may be writing it.
const IDLE: Duration = Duration::from_secs(6);
/// So does one that cannot be kept for so long: its worker has it.
const GIVEN_UP: Duration = Duration::from_mins(1);
/// Logs in memory, of at most [`PIECE`] bytes each. Beyond that many one is kept with every piece, and leaves.
const OPEN_MOST: usize = 512;

pub(super) type Entry = Arc<AsyncMutex<OpenLog>>;

/// Logs that are being written by way of this server.
#[derive(Debug, Default)]
pub(super) struct OpenLogs(Mutex<HashMap<LogName, Entry>>);

#[derive(Debug)]
pub(super) struct OpenLog {
    /// None: it was not looked at what is kept.
    pub(super) before: Option<Before>,
    pub(super) head: Head,
    /// Not all of this is kept.
    pub(super) changed: bool,
    /// More of it is to come; what is kept of it was not looked at yet.
    pub(super) marked: bool,
    kept_at: Option<Instant>,
    used_at: Instant,
}

impl OpenLog {
    fn new() -> Self {
        let (head, used_at) = (Head::default(), Instant::now());
        Self { before: None, head, changed: false, marked: false, kept_at: None, used_at }
    }

    /// Nothing of it is known, kept or not.
    fn is_new(&self) -> bool {
        !self.changed && !matches!(self.before, Some(Before::This(_)))
    }

    fn forget(&mut self) {
        *self = Self { used_at: self.used_at, marked: self.marked, ..Self::new() };
    }

    fn mark(&mut self) {
        if self.before.is_none() && !self.changed {
            self.marked = true;
        } else if !self.head.is_cut() && !self.head.about.partial {
            (self.head.about.partial, self.changed) = (true, true);
        }
    }
}

impl OpenLogs {
    pub(super) fn all(&self) -> MutexGuard<'_, HashMap<LogName, Entry>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn entry(&self, log: &LogName) -> Entry {
        let mut all = self.all();
        if let Some(entry) = all.get(log) {
            return entry.clone();
        }
        let entry = Entry::new(AsyncMutex::new(OpenLog::new()));
        all.insert(log.clone(), entry.clone());
        entry
    }

    pub(super) fn get(&self, log: &LogName) -> Option<Entry> {
        self.all().get(log).cloned()
    }

    fn are_many(&self) -> bool {
        self.all().len() > OPEN_MOST
    }

    pub(super) fn forget(&self, job: &str) {
        self.all().retain(|log, _| &*log.job != job);
    }
}

pub(super) fn head_key(log: &LogName) -> Key {
    Key::from_iter([&*log.job, "logs", &log.step, &log.name])
}

fn piece_key(log: &LogName, number: u64) -> Key {
    Key::from_iter([&*log.job, "pieces", &log.step, &log.name, &format!("{number:08}")])
}

/// How exactly it matters is [`crate::blobs::log_times`]' to say.
#[allow(
    clippy::disallowed_methods,
    reason = "when something was printed is the time at which it came"
)]
fn now_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_millis() as u64
}

pub(super) fn damaged(shared: &Shared, log: &LogName) -> io::Error {
    let (name, job) = (shared.bucket.name(), &log.job);
    let why = format!("{name}: the log {} of job {job} is damaged", log.name);
    io::Error::new(io::ErrorKind::InvalidData, why)
}

fn is_conflict(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::AlreadyExists
}

async fn load(shared: &Shared, log: &LogName, open: &mut OpenLog) -> io::Result<()> {
    open.forget();
    match shared.bucket.get(&head_key(log), None).await? {
        None => open.before = Some(Before::Nothing),
        Some(object) => {
            open.head = Head::read(&object.bytes).ok_or_else(|| damaged(shared, log))?;
            open.before = Some(Before::This(object.version));
        }
    }
    if std::mem::take(&mut open.marked) {
        open.mark();
    }
    Ok(())
}

/// Pieces first: a head speaks of none that is not there. Of a log that another server has written meanwhile nothing is known then,
/// and its worker sends again.
async fn keep(shared: &Shared, log: &LogName, open: &mut OpenLog) -> io::Result<()> {
    let full = open.head.full_pieces();
    let full = full.map(|(number, bytes)| (number, Bytes::copy_from_slice(bytes)));
    let puts = full.map(|(number, bytes)| async move {
        shared.bucket.put(&piece_key(log, number), bytes).await
    });
    // The futures are made before they are polled: nothing of the log is borrowed meanwhile.
    let puts: Vec<_> = puts.collect();
    stream::iter(puts).buffer_unordered(AT_ONCE).try_collect::<Vec<()>>().await?;
    open.head.forget_pieces();
    let before = open.before.clone().unwrap_or(Before::Nothing);
    let put = shared.bucket.put_after(&head_key(log), open.head.bytes().into(), before).await;
    match put {
        Ok(version) => {
            open.before = Some(Before::This(version));
            (open.changed, open.kept_at) = (false, Some(Instant::now()));
            Ok(())
        }
        Err(error) => {
            if is_conflict(&error) {
                open.forget();
            }
            Err(error)
        }
    }
}

pub(super) async fn write(
    shared: &Shared,
    log: &LogName,
    chunk: LogChunk<'_>,
    room: bool,
) -> io::Result<LogProgress> {
    let entry = shared.open.entry(log);
    let mut open = entry.lock().await;
    open.used_at = Instant::now();
    // What is told to who asks is kept.
    let is_question = chunk.bytes.is_empty() && !chunk.last;
    if is_question && (!open.changed || keep(shared, log, &mut open).await.is_err()) {
        load(shared, log, &mut open).await?;
    }
    // Most logs come whole, and there was nothing of them: that is not looked at before, but found out.
    let is_whole =
        open.before.is_none() && chunk.offset == 0 && chunk.last && !chunk.bytes.is_empty();
    if open.before.is_none() && !is_whole {
        load(shared, log, &mut open).await?;
    }
    let progress = match put(shared, log, &mut open, chunk, room).await {
        Err(error) if is_whole && is_conflict(&error) => {
            load(shared, log, &mut open).await?;
            put(shared, log, &mut open, chunk, room).await
        }
        put => put,
    };
    if !open.changed && shared.open.are_many() {
        shared.open.all().remove(log);
    }
    progress
}

async fn put(
    shared: &Shared,
    log: &LogName,
    open: &mut OpenLog,
    chunk: LogChunk<'_>,
    room: bool,
) -> io::Result<LogProgress> {
    let is_new = open.is_new();
    if !open.head.is_cut() && chunk.offset <= open.head.length() {
        in_pieces(shared, log, &open.head, chunk).await?;
        if chunk.last {
            shorten(shared, log, &mut open.head, chunk.offset + chunk.bytes.len() as u64).await?;
        }
    }
    let progress = match open.head.put(chunk, room, is_new, now_ms()) {
        Answer::Same(progress) => return Ok(progress),
        Answer::Changed(progress) => progress,
    };
    open.changed = true;
    let is_due = open.kept_at.is_none_or(|at| at.elapsed() >= KEPT_EVERY);
    if progress.complete || is_due || open.head.tail.len() >= PIECE || shared.open.are_many() {
        keep(shared, log, open).await?;
    }
    Ok(progress)
}

/// The part of a chunk that is sent again and lies in pieces: mostly the same.
async fn in_pieces(
    shared: &Shared,
    log: &LogName,
    head: &Head,
    chunk: LogChunk<'_>,
) -> io::Result<()> {
    let (size, end) = (PIECE as u64, chunk.offset + chunk.bytes.len() as u64);
    let mut at = chunk.offset;
    while at < end.min(head.about.start) {
        let number = at / size;
        let (from, until) = ((at % size) as usize, (end - number * size).min(size) as usize);
        let bytes = &chunk.bytes[(at - chunk.offset) as usize..][..until - from];
        let piece = piece(shared, log, number).await?;
        if piece[from..until] != *bytes {
            let mut piece = piece.to_vec();
            piece[from..until].copy_from_slice(bytes);
            shared.bucket.put(&piece_key(log, number), piece.into()).await?;
        }
        at = (number + 1) * size;
    }
    Ok(())
}

/// A log that ends within its pieces: the one that it ends in is the tail. Those behind go with the job.
async fn shorten(shared: &Shared, log: &LogName, head: &mut Head, end: u64) -> io::Result<()> {
    if end >= head.about.start {
        return Ok(());
    }
    let number = end / PIECE as u64;
    head.tail = piece(shared, log, number).await?.to_vec();
    head.about.start = number * PIECE as u64;
    Ok(())
}

pub(super) async fn piece(shared: &Shared, log: &LogName, number: u64) -> io::Result<Bytes> {
    let piece = shared.bucket.get(&piece_key(log, number), None).await?;
    let piece = piece.ok_or(io::ErrorKind::NotFound)?.bytes;
    if piece.len() == PIECE { Ok(piece) } else { Err(damaged(shared, log)) }
}

/// In memory, and kept if the log does not come soon: most come at once.
pub(super) async fn mark_partial(shared: &Shared, log: &LogName) {
    let entry = shared.open.entry(log);
    let mut open = entry.lock().await;
    open.used_at = Instant::now();
    open.mark();
}

/// It has come, and leaves memory.
pub(super) async fn mark_whole(shared: &Shared, log: &LogName) -> io::Result<()> {
    let entry = shared.open.entry(log);
    let mut open = entry.lock().await;
    open.marked = false;
    if open.before.is_none() && !open.changed {
        load(shared, log, &mut open).await?;
    }
    if open.head.about.partial {
        (open.head.about.partial, open.changed) = (false, true);
    }
    if open.changed {
        keep(shared, log, &mut open).await?;
    }
    shared.open.all().remove(log);
    Ok(())
}

/// Once in [`KEPT_EVERY`]. What cannot be kept now is kept later, or given up when its worker is gone.
pub(super) async fn keep_changed(shared: &Shared) {
    let all: Vec<_> =
        shared.open.all().iter().map(|(log, entry)| (log.clone(), entry.clone())).collect();
    let keeping: Vec<_> =
        all.into_iter().map(|(log, entry)| keep_one(shared, log, entry)).collect();
    stream::iter(keeping).buffer_unordered(AT_ONCE).collect::<Vec<()>>().await;
}

async fn keep_one(shared: &Shared, log: LogName, entry: Entry) {
    // Who has it now keeps it.
    let Ok(mut open) = entry.try_lock() else { return };
    if open.marked {
        let _ = load(shared, &log, &mut open).await;
    }
    if open.changed {
        let _ = keep(shared, &log, &mut open).await;
    }
    let (idle, is_kept) = (open.used_at.elapsed(), !open.changed && !open.marked);
    if idle >= GIVEN_UP || (is_kept && idle >= IDLE) {
        shared.open.all().remove(&log);
    }
}
