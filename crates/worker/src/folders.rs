//! Working folders of attempts.
//!
//! Making a folder is the dearest thing that a tiny process asks of a disk, and removing it may be dearer still: on some
//! disks each freed block is told to the device, and waited for. So one that an attempt left empty, and that nobody will
//! ask about, becomes the next attempt's, and at the end of a job the next job's.

use std::collections::HashMap;
use std::fs;
use std::hash::Hash;
use std::io;
use std::mem::MaybeUninit;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use rustix::fs::{Mode, OFlags, RawDir, open};

/// Folders that wait for the next job: more than attempts of a millisecond use in turn while a group is stored.
const SHELVED_MOST: usize = 128;

#[derive(Debug)]
pub struct Folders<K> {
    state: Mutex<State<K>>,
    keep: bool,
    /// Where empty ones wait for the next job. None: they do not.
    shelf: Option<PathBuf>,
}

#[derive(Debug)]
struct State<K> {
    used: HashMap<K, PathBuf>,
    spare: Vec<PathBuf>,
    /// What was on the shelf is among the spare ones.
    is_shelf_read: bool,
}

impl<K: Eq + Hash> Folders<K> {
    /// `keep`: every attempt keeps its folder.
    pub fn new(keep: bool) -> Self {
        let state = State { used: HashMap::new(), spare: Vec::new(), is_shelf_read: false };
        Self { state: Mutex::new(state), keep, shelf: None }
    }

    /// With the empty folders in `shelf`, which other processes may take at the same time.
    #[must_use]
    pub fn with_shelf(self, shelf: PathBuf) -> Self {
        Self { shelf: Some(shelf), ..self }
    }

    fn held(&self) -> MutexGuard<'_, State<K>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes `folder` for an attempt.
    pub fn make(&self, key: K, folder: &Path) -> io::Result<()> {
        let mut state = self.held();
        if let (Some(shelf), Some(parent), false) =
            (&self.shelf, folder.parent(), state.is_shelf_read)
        {
            state.is_shelf_read = true;
            fs::create_dir_all(parent)?;
            state.spare.extend(on_shelf(shelf, parent));
        }
        let spare = state.spare.pop();
        if !self.keep {
            state.used.insert(key, folder.to_owned());
        }
        drop(state);
        if let Some(spare) = spare {
            if is_empty(&spare) && fs::rename(&spare, folder).is_ok() {
                return Ok(());
            }
            // It was empty when it was put on the shelf, where nobody else would remove it.
            if self.shelf.as_ref().is_some_and(|shelf| spare.starts_with(shelf)) {
                let _ = fs::remove_dir_all(spare);
            }
        }
        fs::create_dir_all(folder)
    }

    /// It has succeeded, that is durable, and nobody will ask about it again.
    pub fn settled(&self, key: &K) {
        let mut state = self.held();
        if let Some(folder) = state.used.remove(key) {
            state.spare.push(folder);
        }
    }

    /// The job is over, and nothing of it is left that could write: what is spare waits on the shelf, which is there, for
    /// the next one. `job` is no other's name.
    pub fn shelve(&self, job: &str) {
        let Some(shelf) = &self.shelf else { return };
        let spare = std::mem::take(&mut self.held().spare);
        let is_fit = |spare: &Path| {
            let made_beside = spare.parent().and_then(Look::at);
            !spare.starts_with(shelf) && Look::at(spare) == made_beside && is_empty(spare)
        };
        let waiting = fs::read_dir(shelf).map_or(SHELVED_MOST, Iterator::count);
        let fit = spare.iter().filter(|spare| is_fit(spare));
        for (number, spare) in fit.take(SHELVED_MOST.saturating_sub(waiting)).enumerate() {
            let _ = fs::rename(spare, shelf.join(format!("{job}_{number}")));
        }
    }

    /// It has not succeeded: its folder stays as it is.
    pub fn leave(&self, key: &K) {
        self.held().used.remove(key);
    }
}

/// Whose a folder is, and who may use it. An attempt may have changed that of its own.
#[derive(PartialEq)]
struct Look {
    mode: u32,
    uid: u32,
    gid: u32,
}

impl Look {
    fn at(folder: &Path) -> Option<Self> {
        let about = fs::symlink_metadata(folder).ok()?;
        Some(Self { mode: about.mode(), uid: about.uid(), gid: about.gid() })
    }
}

/// Those that look as the one that was made just now. The others go, or there would be no room for any.
fn on_shelf(shelf: &Path, made: &Path) -> Vec<PathBuf> {
    let Some(wanted) = Look::at(made) else { return Vec::new() };
    let entries = fs::read_dir(shelf).into_iter().flatten().flatten();
    let folders = entries.map(|entry| entry.path());
    let is_fit = |folder: &PathBuf| Look::at(folder).is_some_and(|look| look == wanted);
    let (fit, unfit): (_, Vec<PathBuf>) = folders.partition(is_fit);
    for folder in unfit {
        let _ = fs::remove_dir_all(folder);
    }
    fit
}

fn is_empty(folder: &Path) -> bool {
    // Looking is no use of the folder: a new time of access would have to be stored.
    let flags = OFlags::DIRECTORY | OFlags::NOATIME | OFlags::CLOEXEC;
    let Ok(opened) = open(folder, flags, Mode::empty()) else { return false };
    let mut buffer = [MaybeUninit::uninit(); 512];
    let mut entries = RawDir::new(opened, &mut buffer);
    while let Some(entry) = entries.next() {
        if !entry.is_ok_and(|entry| matches!(entry.file_name().to_bytes(), b"." | b"..")) {
            return false;
        }
    }
    true
}
