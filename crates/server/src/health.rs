//! Whether the server can do its work, and if not, why.
//!
//! Those who find something out say it here; `/readyz`, the log and those who take jobs and logs ask.
//! Three things keep a full disk from ending everything: with less free than the reserve no new job and
//! no log is taken; the events of jobs that run may use the reserve; and when even that is gone the
//! ballast, a file of nothing, makes room for them.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use steadfast_store::{Space, StoreError};
use tokio::time::Instant;

use crate::error::ApiError;

const MIB: u64 = 1 << 20;
/// With less than this and without ballast a commit is as good as refused.
const NOTHING_LEFT: u64 = 256 << 10;
/// After a look at the disk found room, this long no other is taken for a new job: thousands may come in a second. A write
/// that does not fit is refused all the same.
const LOOK_AGAIN: Duration = Duration::from_millis(20);
/// The same of the place of the data folder: a commit is not sooner over, and it is looked at after that.
const SAME_MOMENT: Duration = Duration::from_millis(1);
/// The size of the ballast is this share of the reserve.
const BALLAST_SHARE: u64 = 4;

/// Cheap to clone: all are the same.
#[derive(Clone, Debug)]
pub struct Health(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    space: Arc<dyn Space>,
    reserve: u64,
    store: Mutex<StoreState>,
    looked: Mutex<LastLook>,
}

/// For a new job.
#[derive(Debug, Default)]
struct LastLook {
    /// When the disk was last found to have room.
    room: Option<Instant>,
    /// When the data folder was last found in its place.
    place: Option<Instant>,
}

/// As the last write found it.
#[derive(Clone, Copy, Debug, PartialEq)]
enum StoreState {
    Writes,
    Locked {
        since: Instant,
    },
    /// A database elsewhere, or whether it has the last write is not known.
    Away {
        since: Instant,
    },
    Full,
    /// For good: what was written last is not where a restart will look.
    Moved,
}

/// Why the server is not ready.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unready {
    Moved,
    Locked { seconds: u64 },
    Away { seconds: u64 },
    Full,
    LowDisk { free: u64, reserve: u64 },
    Silent,
}

impl Unready {
    /// Short and stable, for programs and the log.
    pub fn code(self) -> &'static str {
        match self {
            Self::Moved => "data_folder_moved",
            Self::Locked { .. } => "database_locked",
            Self::Away { .. } => "database_unavailable",
            Self::Full => "disk_full",
            Self::LowDisk { .. } => "disk_low",
            Self::Silent => "engine_silent",
        }
    }
}

impl fmt::Display for Unready {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Moved => f.write_str(
                "the data folder was moved or replaced, and nothing is acknowledged any more: put \
                 it back, then restart the server",
            ),
            Self::Locked { seconds } => write!(
                f,
                "another process has kept the database locked for {seconds} s, and nothing can be \
                 stored: it goes on when the lock is released"
            ),
            Self::Away { seconds } => write!(
                f,
                "the database has not answered for {seconds} s, and nothing can be stored: it goes on \
                 when the database is back"
            ),
            Self::Full => f.write_str(
                "the disk of the data folder is full, and nothing can be stored: it goes on when \
                 there is room",
            ),
            Self::LowDisk { free, reserve } => write!(
                f,
                "the disk of the data folder has {} MiB left, and {} MiB are kept for jobs that run: \
                 no new job is taken, and logs are cut off",
                free / MIB,
                reserve / MIB
            ),
            Self::Silent => f.write_str("the engine does not answer"),
        }
    }
}

impl Health {
    /// `reserve`: bytes that are left to the events of jobs that run.
    pub fn new(space: Arc<dyn Space>, reserve: u64) -> Self {
        let (store, looked) = (Mutex::new(StoreState::Writes), Mutex::default());
        Self(Arc::new(Shared { space, reserve, store, looked }))
    }

    fn store(&self) -> MutexGuard<'_, StoreState> {
        self.0.store.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// None: it is ready, as far as its folder goes. Asks the disk.
    pub fn unready(&self) -> Option<Unready> {
        let store = *self.store();
        match store {
            StoreState::Moved => return Some(Unready::Moved),
            _ if !self.is_in_place() => return Some(Unready::Moved),
            StoreState::Locked { since } => {
                return Some(Unready::Locked { seconds: since.elapsed().as_secs() });
            }
            StoreState::Away { since } => {
                return Some(Unready::Away { seconds: since.elapsed().as_secs() });
            }
            StoreState::Full => return Some(Unready::Full),
            StoreState::Writes => {}
        }
        self.low_disk()
    }

    /// Whether the server has acknowledged its last: what it holds can not be kept any more.
    pub fn is_moved(&self) -> bool {
        *self.store() == StoreState::Moved
    }

    /// Whether a new job can be taken. What is asked of the disk here and below, the kernel has in memory. Where the folder is, is
    /// asked for nearly every job: what is handed to a store that was moved away ends all acknowledgements until a restart.
    pub fn takes_jobs(&self) -> Result<(), ApiError> {
        let mut looked = self.0.looked.lock().unwrap_or_else(PoisonError::into_inner);
        if looked.room.is_some_and(|at| at.elapsed() < LOOK_AGAIN)
            && *self.store() == StoreState::Writes
        {
            let is_fresh = looked.place.is_some_and(|at| at.elapsed() < SAME_MOMENT);
            if is_fresh || self.is_in_place() {
                looked.place = if is_fresh { looked.place } else { Some(Instant::now()) };
                return Ok(());
            }
        }
        let unready = self.unready();
        looked.room = unready.is_none().then(Instant::now);
        looked.place = looked.room;
        match unready {
            None | Some(Unready::Locked { .. } | Unready::Away { .. } | Unready::Silent) => Ok(()),
            Some(Unready::Full | Unready::LowDisk { .. }) => Err(ApiError::DiskFull),
            Some(moved @ Unready::Moved) => Err(ApiError::NotReady(moved.to_string())),
        }
    }

    /// Whether a command of a person can be taken. They fit into the reserve; without any room they would wait
    /// for somebody who may never come.
    pub fn takes_commands(&self) -> Result<(), ApiError> {
        match self.unready() {
            None
            | Some(
                Unready::Locked { .. }
                | Unready::Away { .. }
                | Unready::Silent
                | Unready::LowDisk { .. },
            ) => Ok(()),
            Some(Unready::Full) => Err(ApiError::DiskFull),
            Some(moved @ Unready::Moved) => Err(ApiError::NotReady(moved.to_string())),
        }
    }

    /// Whether what attempts print can be kept: the first thing that gives way.
    pub fn takes_logs(&self) -> bool {
        self.is_in_place() && self.low_disk().is_none()
    }

    fn is_in_place(&self) -> bool {
        self.0.space.is_in_place()
    }

    fn low_disk(&self) -> Option<Unready> {
        let reserve = self.0.reserve;
        let free = self.0.space.free_bytes().ok()?;
        if free < NOTHING_LEFT.min(reserve) && !self.0.space.has_ballast() {
            return Some(Unready::Full);
        }
        (free < reserve).then_some(Unready::LowDisk { free, reserve })
    }

    /// How a write went.
    pub fn wrote<T>(&self, answer: &Result<T, StoreError>) {
        let mut store = self.store();
        *store = match (answer, *store) {
            (_, StoreState::Moved) | (Err(StoreError::Moved { .. }), _) => StoreState::Moved,
            (Err(StoreError::Busy { .. }), locked @ StoreState::Locked { .. }) => locked,
            (Err(StoreError::Busy { waited_ms, .. }), _) => {
                let now = Instant::now();
                let waited = Duration::from_millis(*waited_ms);
                StoreState::Locked { since: now.checked_sub(waited).unwrap_or(now) }
            }
            (Err(StoreError::Full { .. }), _) => StoreState::Full,
            (
                Err(StoreError::Unavailable { .. } | StoreError::Unknown { .. }),
                away @ StoreState::Away { .. },
            ) => away,
            (Err(StoreError::Unavailable { .. } | StoreError::Unknown { .. }), _) => {
                StoreState::Away { since: Instant::now() }
            }
            _ => StoreState::Writes,
        };
    }

    /// Puts the ballast there if it is not, and if there is more room than is kept free anyway.
    pub fn lay_ballast(&self) {
        let Shared { space, reserve, .. } = &*self.0;
        let bytes = reserve / BALLAST_SHARE;
        let room = || space.free_bytes().is_ok_and(|free| free >= reserve + bytes);
        if bytes > 0 && self.is_in_place() && !space.has_ballast() && room() {
            // A disk that cannot give any has the reserve alone.
            let _ = space.lay_ballast(bytes);
        }
    }

    /// Makes room; whether there was any to make.
    pub fn release_ballast(&self) -> bool {
        let released = self.0.space.release_ballast();
        if released {
            tracing::warn!(event = "BallastReleased");
        }
        released
    }

    /// Where it is, for the log.
    pub fn place(&self) -> String {
        self.0.space.place()
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use steadfast_store::{Folder, FolderStorage, Storage as _};

    use super::*;

    fn health(reserve: u64) -> (tempfile::TempDir, Health) {
        let root = tempfile::tempdir().unwrap();
        let space = FolderStorage::new(&Folder::new(root.path().to_owned())).space();
        let health = Health::new(space, reserve);
        (root, health)
    }

    fn failed(error: StoreError) -> Result<(), StoreError> {
        Err(error)
    }

    fn store() -> String {
        "steadfast.db".to_owned()
    }

    #[test]
    fn logs_and_new_jobs_give_way_before_commands_do() {
        let (_root, low) = health(u64::MAX);
        assert!(matches!(low.unready(), Some(Unready::LowDisk { .. })));
        assert!(!low.takes_logs());
        assert!(matches!(low.takes_jobs(), Err(ApiError::DiskFull)));
        assert!(low.takes_commands().is_ok(), "they are what the reserve is for");
        low.wrote(&failed(StoreError::Full { store: store() }));
        assert_eq!(low.unready(), Some(Unready::Full));
        assert!(matches!(low.takes_commands(), Err(ApiError::DiskFull)));
        low.wrote(&Ok(()));
        assert!(low.takes_commands().is_ok());
        let (_root, roomy) = health(1);
        assert_eq!(roomy.unready(), None);
        assert!(roomy.takes_logs() && roomy.takes_jobs().is_ok());
    }

    #[test]
    fn a_lock_is_waited_for_and_over_when_something_is_written() {
        let (_root, health) = health(0);
        let busy = || failed(StoreError::Busy { store: store(), waited_ms: 2000 });
        health.wrote(&busy());
        health.wrote(&busy());
        assert!(matches!(health.unready(), Some(Unready::Locked { seconds: 2.. })));
        assert!(health.takes_jobs().is_ok(), "they wait with the rest");
        health.wrote(&Ok(()));
        assert_eq!(health.unready(), None);
    }

    #[test]
    fn a_database_that_is_away_is_waited_for_and_told_of() {
        let (_root, health) = health(0);
        for lost in [
            StoreError::Unknown { store: store(), why: "closed".to_owned() },
            StoreError::Unavailable { store: store(), why: "refused".to_owned() },
        ] {
            health.wrote(&failed(lost));
            assert!(matches!(health.unready(), Some(Unready::Away { .. })));
            assert!(health.takes_jobs().is_ok() && health.takes_commands().is_ok());
        }
        health.wrote(&Ok(()));
        assert_eq!(health.unready(), None);
    }

    #[test]
    fn a_folder_that_was_moved_stays_so() {
        let (_root, health) = health(0);
        health.wrote(&failed(StoreError::Moved { store: store() }));
        health.wrote(&Ok(()));
        assert_eq!(health.unready(), Some(Unready::Moved));
        for refused in [health.takes_jobs(), health.takes_commands()] {
            assert!(matches!(refused, Err(ApiError::NotReady(_))), "{refused:?}");
        }
    }

    #[test]
    fn ballast_takes_room_until_it_is_released() {
        let (root, health) = health(4 * MIB);
        health.lay_ballast();
        let file = root.path().join("ballast");
        assert_eq!(fs::metadata(&file).unwrap().len(), MIB);
        assert!(health.release_ballast());
        assert!(!file.exists() && !health.release_ballast());
        let (root, low) = self::health(u64::MAX / 2);
        low.lay_ballast();
        assert!(!root.path().join("ballast").exists(), "there is no room to spare");
    }
}
