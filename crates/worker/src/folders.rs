//! Working folders of attempts.
//!
//! Making a folder is the dearest thing that a tiny process asks of a disk. So one that an attempt left
//! empty, and that nobody will ask about, becomes the next attempt's.

use std::collections::HashMap;
use std::fs;
use std::hash::Hash;
use std::io;
use std::mem::MaybeUninit;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use rustix::fs::{Mode, OFlags, RawDir, open};

#[derive(Debug)]
pub struct Folders<K> {
    state: Mutex<State<K>>,
    keep: bool,
}

#[derive(Debug)]
struct State<K> {
    used: HashMap<K, PathBuf>,
    spare: Vec<PathBuf>,
}

impl<K: Eq + Hash> Folders<K> {
    /// `keep`: every attempt keeps its folder.
    pub fn new(keep: bool) -> Self {
        Self { state: Mutex::new(State { used: HashMap::new(), spare: Vec::new() }), keep }
    }

    fn held(&self) -> MutexGuard<'_, State<K>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes `folder` for an attempt.
    pub fn make(&self, key: K, folder: &Path) -> io::Result<()> {
        let mut state = self.held();
        let spare = state.spare.pop();
        if !self.keep {
            state.used.insert(key, folder.to_owned());
        }
        drop(state);
        if let Some(spare) = spare
            && is_empty(&spare)
            && fs::rename(&spare, folder).is_ok()
        {
            return Ok(());
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

    /// It has not succeeded: its folder stays as it is.
    pub fn leave(&self, key: &K) {
        self.held().used.remove(key);
    }
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
