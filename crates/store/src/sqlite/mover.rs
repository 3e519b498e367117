//! Moves what is in the write-ahead log to the file, beside the writer.
//!
//! The writer would do it itself every so often, and whoever waits for a commit would wait for that too.

use std::path::Path;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;

use rusqlite::{Connection, OpenFlags};

use super::fault::Fault;

/// After so many bytes of events.
const EVERY: usize = 1 << 20;

/// Dropped, it finishes what it is at.
#[derive(Debug)]
pub(super) struct Mover {
    wake: Option<SyncSender<()>>,
    thread: Option<JoinHandle<()>>,
    unmoved: usize,
}

impl Mover {
    pub(super) fn start(path: &Path) -> Result<Self, Fault> {
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let connection = Connection::open_with_flags(path, flags)?;
        let (wake, woken) = sync_channel(1);
        let thread = std::thread::Builder::new().name("store file".to_owned());
        // Without it the writer does it all.
        let thread = thread.spawn(move || run(&connection, &woken)).ok();
        Ok(Self { wake: Some(wake), thread, unmoved: 0 })
    }

    /// So many bytes of events were written.
    pub(super) fn written(&mut self, bytes: usize) {
        self.unmoved += bytes;
        if self.unmoved >= EVERY {
            self.unmoved = 0;
            let _ = self.wake.as_ref().map(|wake| wake.try_send(()));
        }
    }
}

impl Drop for Mover {
    fn drop(&mut self) {
        drop(self.wake.take());
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

fn run(connection: &Connection, woken: &Receiver<()>) {
    while woken.recv().is_ok() {
        // Somebody else is at it, or the disk is full: then it is for the writer, who says so.
        let _ = connection.query_row("PRAGMA wal_checkpoint(PASSIVE)", [], |_| Ok(()));
    }
}
