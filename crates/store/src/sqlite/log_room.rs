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

/// A page of 4 KiB with its header.
const FRAME: u64 = 24 + 4096;
/// The log's length when it is moved to the file: a header, and its pages.
const ROOM: u64 = 32 + WAL_PAGES as u64 * FRAME;
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

/// Whether half of the room is taken: what the log has begun with, the frame in the middle has too.
pub(super) fn is_half_full(log: &Path) -> bool {
    let salt = |at: u64| {
        let mut salt = [0; 8];
        File::open(log)?.read_exact_at(&mut salt, at)?;
        io::Result::Ok(salt)
    };
    let middle = 32 + WAL_PAGES as u64 / 2 * FRAME;
    matches!((salt(16), salt(middle + 8)), (Ok(first), Ok(here)) if first == here && first != [0; 8])
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_is_full_of_what_was_written_since_it_began_and_not_of_its_room() {
        let folder = tempfile::tempdir().expect("a folder");
        let (file, log) = (folder.path().join("it.db"), folder.path().join("it.db-wal"));
        let mut it = Connection::open(file).expect("it opens");
        let done = |it: &Connection, what: &str| it.execute_batch(what).expect("it can");
        assert!(!is_half_full(&log));
        done(&it, "PRAGMA journal_mode = WAL; PRAGMA wal_autocheckpoint = 0; CREATE TABLE t (b)");
        make(&mut it, &log).expect("there is room");
        assert!(!is_half_full(&log));
        done(&it, "INSERT INTO t VALUES (zeroblob(20000000))");
        assert!(is_half_full(&log));
        done(&it, "PRAGMA wal_checkpoint(RESTART); INSERT INTO t VALUES (1)");
        assert!(!is_half_full(&log));
    }
}
