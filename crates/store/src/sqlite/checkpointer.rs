//! Moves what is in the write-ahead log to the file, beside the writer.
//!
//! The writer would do it itself every so often, and the callers of a commit would wait for that too.

use std::path::Path;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;

use rusqlite::{Connection, OpenFlags};

use super::failure::DiskFailure;
use super::fault::Fault;
use super::log_room;
use crate::StoreError;

/// After this many bytes of events.
const EVERY: usize = 1 << 20;

/// Dropped, it finishes what it is at.
#[derive(Debug)]
pub(super) struct Checkpointer {
    unmoved: usize,
    /// As soon as there is something to move: most who open a file write little.
    hand: Option<CheckpointThread>,
    failure: DiskFailure,
}

#[derive(Debug)]
struct CheckpointThread {
    wake: SyncSender<()>,
    thread: JoinHandle<()>,
}

impl Checkpointer {
    pub(super) fn new(failure: DiskFailure) -> Self {
        Self { unmoved: 0, hand: None, failure }
    }

    /// One who was killed has left a log: if it is long, the first to write would move it while its caller waits.
    pub(super) fn left(&mut self, path: &Path, log: &Path) {
        if log_room::is_half_full(log) {
            self.written(path, EVERY);
        }
    }

    /// This many bytes of events were written to the file.
    pub(super) fn written(&mut self, path: &Path, bytes: usize) {
        self.unmoved = self.unmoved.saturating_add(bytes);
        if self.unmoved < EVERY {
            return;
        }
        self.unmoved = 0;
        if self.hand.is_none() {
            // Without one the writer does it all.
            self.hand = CheckpointThread::start(path, self.failure.clone());
        }
        if let Some(hand) = &self.hand {
            let _ = hand.wake.try_send(());
        }
    }
}

impl Drop for Checkpointer {
    fn drop(&mut self) {
        if let Some(CheckpointThread { wake, thread }) = self.hand.take() {
            drop(wake);
            let _ = thread.join();
        }
    }
}

impl CheckpointThread {
    fn start(path: &Path, failure: DiskFailure) -> Option<Self> {
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let connection = Connection::open_with_flags(path, flags).ok()?;
        let (wake, woken) = sync_channel(1);
        let thread = std::thread::Builder::new().name("store file".to_owned());
        let path = path.to_owned();
        let thread = thread.spawn(move || run(&connection, &path, &woken, &failure)).ok()?;
        Some(Self { wake, thread })
    }
}

fn run(connection: &Connection, path: &Path, woken: &Receiver<()>, failure: &DiskFailure) {
    while woken.recv().is_ok() {
        let moved = connection.query_row("PRAGMA wal_checkpoint(PASSIVE)", [], |_| Ok(()));
        // Another process is at it, or there is no room: later, then.
        if let Err(error) = moved
            && let StoreError::Io { .. } =
                Fault::from(error).at(path, "moving the log", super::BUSY)
        {
            return failure.set();
        }
    }
}
