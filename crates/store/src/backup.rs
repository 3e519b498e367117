//! A copy of a data folder that a server can be started with, made while a server has it or not.
//!
//! The database is copied first, as of one moment. What came with a job is there before the job is, so
//! whatever the copy names is still to be found afterwards, unless it is purged meanwhile.

use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use crate::{Filter, Folder, Reader as _, SqliteStore, StoreError};
use serde::Serialize;

/// Jobs of the copy that are looked at, at once.
const PAGE: usize = 1000;

/// What was copied.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Copied {
    pub jobs: u64,
    /// That came with jobs.
    pub files: u64,
    pub logs: u64,
    /// The rest, by name: the database, keys, tokens, settings.
    pub others: Vec<String>,
    pub bytes: u64,
}

#[derive(Debug, thiserror::Error)]
pub enum BackupError {
    #[error("{}: {why}; give a folder that is empty or not there yet", target.display())]
    Target { target: PathBuf, why: &'static str },
    #[error("{}: {error}; nothing of the copy is kept", path.display())]
    Io { path: PathBuf, error: io::Error },
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Copies all that a restore needs, synced. On an error the target is empty again.
pub fn back_up(folder: &Folder, target: &Path) -> Result<Copied, BackupError> {
    let refused = |why| BackupError::Target { target: target.to_owned(), why };
    let failed = |error| BackupError::Io { path: target.to_owned(), error };
    match fs::read_dir(target) {
        Ok(entries) => {
            if entries.count() > 0 {
                return Err(refused("it is not empty"));
            }
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            DirBuilder::new().recursive(true).mode(0o700).create(target).map_err(failed)?;
        }
        Err(error) if error.kind() == io::ErrorKind::NotADirectory => {
            return Err(refused("it is not a folder"));
        }
        Err(error) => return Err(failed(error)),
    }
    let real = |path: &Path| path.canonicalize().map_err(failed);
    if real(target)?.starts_with(real(folder.root())?) {
        let _ = fs::remove_dir(target);
        return Err(refused("it is inside the data folder, and would be lost with it"));
    }
    let copied = copy(folder, target);
    if copied.is_err() {
        // It was empty: all that is there is ours.
        for entry in fs::read_dir(target).into_iter().flatten().flatten() {
            let _ = fs::remove_dir_all(entry.path()).or_else(|_| fs::remove_file(entry.path()));
        }
    }
    copied
}

fn copy(folder: &Folder, target: &Path) -> Result<Copied, BackupError> {
    let to = Folder::new(target.to_owned());
    // Under another name until all is there: half a copy is not taken for a whole one.
    let partial = target.join("steadfast.db.partial");
    SqliteStore::open(&folder.database())?.copy_to(&partial)?;
    let mut copied = Copied::default();
    let mut tree = Tree::default();
    for path in kept_beside(folder)? {
        let name = path.strip_prefix(folder.root()).unwrap_or(&path);
        if tree.copy_file(&path, &target.join(name))? {
            copied.others.push(name.display().to_string());
        }
    }
    let mut store = SqliteStore::open_read_only(&partial)?;
    let mut cursor = None;
    loop {
        let page = store.list(&Filter::default(), cursor.as_deref(), PAGE)?;
        for row in &page.jobs {
            copied.jobs += 1;
            copied.files += tree.copy_all(&folder.files(&row.id), &to.files(&row.id))?;
            copied.logs += tree.copy_all(&folder.logs(&row.id), &to.logs(&row.id))?;
        }
        cursor = page.next;
        if cursor.is_none() {
            break;
        }
    }
    drop(store);
    let at_target = |error: io::Error| BackupError::Io { path: target.to_owned(), error };
    let database = to.database();
    let sync = || -> io::Result<u64> {
        let opened = File::open(target)?;
        // All of them at once, instead of each file on its own.
        rustix::fs::syncfs(&opened)?;
        fs::rename(&partial, &database)?;
        opened.sync_all()?;
        Ok(fs::metadata(&database)?.len())
    };
    copied.bytes = tree.bytes + sync().map_err(at_target)?;
    copied.others.insert(0, "steadfast.db".to_owned());
    Ok(copied)
}

/// Files of the folder itself: keys, tokens, settings; and where services of `run`'s jobs call back. Not
/// the database, nor what only means something to the process that has the folder now.
fn kept_beside(folder: &Folder) -> Result<Vec<PathBuf>, BackupError> {
    let ends = |name: &str, with: &str| Path::new(name).extension().is_some_and(|end| end == with);
    let is_kept = |name: &str| {
        let of_now = name.starts_with("steadfast.db") || name == Folder::BALLAST;
        !of_now && !ends(name, "lock")
    };
    let mut kept = files_in(folder.root(), is_kept)?;
    kept.extend(files_in(&folder.locks(), |name| ends(name, "port"))?);
    kept.sort();
    Ok(kept)
}

fn files_in(folder: &Path, is_kept: impl Fn(&str) -> bool) -> Result<Vec<PathBuf>, BackupError> {
    let failed = |error| BackupError::Io { path: folder.to_owned(), error };
    let entries = match fs::read_dir(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(vec![]),
        entries => entries.map_err(failed)?,
    };
    let mut files = vec![];
    for entry in entries {
        let entry = entry.map_err(failed)?;
        let is_file = entry.file_type().is_ok_and(|kind| kind.is_file());
        if is_file && entry.file_name().to_str().is_some_and(&is_kept) {
            files.push(entry.path());
        }
    }
    Ok(files)
}

/// Files that are copied, with their modes and times.
#[derive(Default)]
struct Tree {
    bytes: u64,
}

impl Tree {
    /// Every file below a folder; how many. In the order in which they came to be, which is the order in
    /// which logs are shown.
    fn copy_all(&mut self, from: &Path, to: &Path) -> Result<u64, BackupError> {
        let mut files = vec![];
        let found = collect(from, &mut files);
        found.map_err(|error| BackupError::Io { path: from.to_owned(), error })?;
        files.sort();
        let mut count = 0;
        for (_, path) in files {
            let name = path.strip_prefix(from).unwrap_or(&path);
            count += u64::from(self.copy_file(&path, &to.join(name))?);
        }
        Ok(count)
    }

    /// Whether it was still there.
    fn copy_file(&mut self, from: &Path, to: &Path) -> Result<bool, BackupError> {
        let copy = || -> io::Result<Option<u64>> {
            let modified = match fs::metadata(from) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
                about => about?.modified()?,
            };
            if let Some(above) = to.parent() {
                DirBuilder::new().recursive(true).mode(0o700).create(above)?;
            }
            let bytes = match fs::copy(from, to) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
                bytes => bytes?,
            };
            File::open(to)?.set_times(fs::FileTimes::new().set_modified(modified))?;
            Ok(Some(bytes))
        };
        let bytes = copy().map_err(|error| BackupError::Io { path: from.to_owned(), error })?;
        self.bytes += bytes.unwrap_or(0);
        Ok(bytes.is_some())
    }
}

fn collect(folder: &Path, files: &mut Vec<(std::time::SystemTime, PathBuf)>) -> io::Result<()> {
    let entries = match fs::read_dir(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        entries => entries?,
    };
    for entry in entries {
        let path = entry?.path();
        let about = match fs::symlink_metadata(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            about => about?,
        };
        if about.is_dir() {
            collect(&path, files)?;
        } else if about.is_file() {
            files.push((about.created().or_else(|_| about.modified())?, path));
        }
    }
    Ok(())
}
