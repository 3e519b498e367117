//! Room in the write-ahead log: written once when a server begins, so that its commits write over blocks that the file has.
//!
//! A commit that makes the log longer has the file system write down where it ends, which takes half as long again as the
//! commit itself. `SQLite` reads no more of a log than what fits its header, and writes over the rest.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::thread;

use rusqlite::{Connection, TransactionBehavior};
use rustix::fs::fstatvfs;

use super::fault::Fault;
use super::schema::WAL_PAGES;

/// The log's length when it is moved to the file: a header, and pages of 4 KiB with a header each.
const ROOM: u64 = 32 + WAL_PAGES as u64 * (24 + 4096);
/// Written at once. Of a larger piece the system makes one unit of its cache, all of which a small write would send to the disk.
const PIECE: u64 = 4096;
/// A disk with less than this keeps it for what is written.
const FREE_LEAST: u64 = 1 << 30;

/// Makes the log as long as it becomes. Meanwhile others wait with their writes: what is behind the log's end may be another process's next
/// commit.
pub(super) fn make(connection: &mut Connection, log: &Path) -> Result<(), Fault> {
    let nobody_else = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    // A log that stays short is only slower.
    if let Ok(Some(file)) = extend(log) {
        // Not synced by the first commit, whose caller waits. A sync that fails here fails for that one too.
        let sync = move || drop(file.sync_data());
        let _ = thread::Builder::new().name("store log".to_owned()).spawn(sync);
    }
    Ok(nobody_else.rollback()?)
}

/// `None`: it is long enough, or the disk is nearly full. `SQLite` holds its locks on other files: this one may be opened and closed.
fn extend(log: &Path) -> io::Result<Option<File>> {
    let file = File::options().write(true).open(log)?;
    let disk = fstatvfs(&file)?;
    let before = file.metadata()?.len();
    if before >= ROOM || disk.f_bavail.saturating_mul(disk.f_frsize) < FREE_LEAST {
        return Ok(None);
    }
    let zeros = [0; PIECE as usize];
    let mut end = before;
    while end < ROOM {
        let piece = PIECE - end % PIECE;
        if let Err(error) = file.write_all_at(&zeros[..piece as usize], end) {
            file.set_len(before)?;
            return Err(error);
        }
        end += piece;
    }
    Ok(Some(file))
}
