//! The worker's own folder, and what an earlier life left in it.
//!
//! | | |
//! |---|---|
//! | `lock` | held while the worker lives |
//! | `identity` | by what servers know this worker from others, in all its lives |
//! | `proofs` | the word of each server that it does |
//! | `begun/JOB.TOKEN` | an empty file for each attempt that may have a process: its name is its mark |
//! | `work/JOB/NAME` | the attempt's own folder, and beside it `NAME.output` and `NAME.error`, or of an attempt that is another user `NAME.result` with both |
//! | `logs/JOB.TOKEN.log` | what it printed, until the server has it; beside it `JOB.TOKEN.report`, once the report is acknowledged |
//! | `reports/JOB.TOKEN` | how it ended, and the server that is to hear it, until it is acknowledged |
//! | `files/JOB/…` | files that came with a job |
//! | `secrets/NAME` | put there by people |
//!
//! Names come from a server, so each is checked here before it becomes a path.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _};
use std::path::{Component, Path, PathBuf};
use steadfast_core::event::AttemptId;

use steadfast_api::proto;

use super::RemoteError;
use crate::{Users, kill_marked};

/// As long as a name in a job file can be, and a little more for an id's sake.
const LONGEST_NAME: usize = 128;
/// Leaves room for what is put behind it.
const LONGEST_FOLDER: usize = 200;
/// As long as a path can be on Linux.
const LONGEST_PATH: usize = 4_095;

/// For the worker alone.
const OWN: u32 = 0o700;
/// For who knows where to go: nobody else can list it.
pub(super) const PASSAGE: u32 = 0o711;

#[derive(Debug)]
pub(super) struct WorkerDir {
    root: PathBuf,
    /// Given back by the system when we end, however we end.
    _lock: File,
}

/// Letters, digits, `_` and `-`: a plain file name, whatever it is put before or behind.
pub(super) fn is_plain(name: &str) -> bool {
    (1..=LONGEST_NAME).contains(&name.len()) && has_plain_letters(name)
}

/// The same of a folder's name, which is made of another and of numbers.
pub(super) fn is_plain_folder(name: &str) -> bool {
    name.len() <= LONGEST_FOLDER && has_plain_letters(name)
}

fn has_plain_letters(name: &str) -> bool {
    name.bytes().all(|c| c.is_ascii_alphanumeric() || c == b'_' || c == b'-')
}

/// A path of a file below the folder it is asked for in.
pub(super) fn is_inside(path: &str) -> bool {
    (1..=LONGEST_PATH).contains(&path.len())
        && !path.contains('\0')
        && Path::new(path).components().all(|part| matches!(part, Component::Normal(_)))
}

impl WorkerDir {
    /// Makes what is missing. `None`: another worker has the folder.
    ///
    /// Others on the machine have no business with what jobs print and are given. `users`: attempts are others
    /// too, and come to their own folders only.
    pub(super) fn open(root: &Path, users: Option<&Users>) -> Result<Option<Self>, RemoteError> {
        let root = std::path::absolute(root).unwrap_or_else(|_| root.to_owned());
        let why = |path: &Path, source| RemoteError::Folder { path: path.to_owned(), source };
        let passage = if users.is_some() { PASSAGE } else { OWN };
        let folders = [("", passage), ("begun", OWN), ("work", passage)];
        let folders = folders.into_iter().chain(["logs", "reports", "files"].map(|it| (it, OWN)));
        for (name, mode) in folders {
            let path = root.join(name);
            // One that was there before may have been open to others.
            let made = fs::DirBuilder::new().recursive(true).mode(mode).create(&path);
            let made =
                made.and_then(|()| fs::set_permissions(&path, fs::Permissions::from_mode(mode)));
            made.map_err(|source| why(&path, source))?;
        }
        // People put them there; the folder may be missing, or a link.
        let secrets = root.join("secrets");
        if fs::symlink_metadata(&secrets).is_ok_and(|about| about.is_dir()) {
            fs::set_permissions(&secrets, fs::Permissions::from_mode(OWN))
                .map_err(|source| why(&secrets, source))?;
        }
        if let Some(users) = users {
            users.check_way_to(&root.join("work"))?;
        }
        let path = root.join("lock");
        let open = OpenOptions::new().create(true).truncate(false).write(true).open(&path);
        let lock = open.map_err(|source| why(&path, source))?;
        match lock.try_lock() {
            Ok(()) => Ok(Some(Self { root, _lock: lock })),
            Err(TryLockError::WouldBlock) => Ok(None),
            Err(TryLockError::Error(source)) => Err(why(&path, source)),
        }
    }

    /// Ends what an earlier life ran, and removes what it left, but for its reports and their logs.
    ///
    /// Nothing may begin before: the server gives what was lost to others.
    pub(super) fn clear(&self, keep: bool) -> io::Result<usize> {
        let mut killed = 0;
        for entry in fs::read_dir(self.root.join("begun"))? {
            let entry = entry?;
            if let Some(mark) = entry.file_name().to_str() {
                killed += kill_marked(crate::prepare::MARK, mark)?;
            }
            fs::remove_file(entry.path())?;
        }
        let mut unwanted = vec!["files"];
        if !keep {
            unwanted.push("work");
        }
        for name in unwanted {
            for entry in fs::read_dir(self.root.join(name))? {
                remove(&entry?.path());
            }
        }
        for entry in fs::read_dir(self.root.join("logs"))? {
            let path = entry?.path();
            let report = path.file_stem().map(|mark| self.reports().join(mark));
            let is_known = report.is_some_and(|report| report.exists())
                || path.with_extension("report").exists();
            if !is_known || !path.with_extension("log").exists() {
                remove(&path);
            }
        }
        Ok(killed)
    }

    pub(super) fn reports(&self) -> PathBuf {
        self.root.join("reports")
    }

    pub(super) fn identity(&self) -> PathBuf {
        self.root.join("identity")
    }

    pub(super) fn proofs(&self) -> PathBuf {
        self.root.join("proofs")
    }

    pub(super) fn files(&self) -> PathBuf {
        self.root.join("files")
    }

    pub(super) fn secrets(&self) -> PathBuf {
        self.root.join("secrets")
    }

    pub(super) fn root(&self) -> &Path {
        &self.root
    }

    pub(super) fn logs(&self) -> PathBuf {
        self.root.join("logs")
    }

    pub(super) fn log(&self, key: &AttemptId) -> PathBuf {
        self.root.join("logs").join(format!("{key}.log"))
    }

    pub(super) fn begun(&self, key: &AttemptId) -> PathBuf {
        self.root.join("begun").join(key.to_string())
    }

    /// The attempt's own folder. What the server calls it was [checked](is_plain).
    pub(super) fn work(&self, assignment: &proto::Assignment) -> PathBuf {
        let Some(attempt) = &assignment.attempt else { return self.root.join("work") };
        let jobs = self.root.join("work").join(&attempt.job_id);
        match assignment.folder.as_str() {
            "" => jobs.join(attempt.item().attempt_name(&attempt.step_name, attempt.attempt)),
            folder => jobs.join(folder),
        }
    }
}

/// Where the attempt leaves its output: beside its folder, where no file of the job can lie.
pub(super) fn output_beside(folder: &Path) -> PathBuf {
    folder.with_extension("output")
}

/// The same where the attempt is another user, as a file in a folder of its own: a file can be put in place whole
/// only where one may write.
pub(super) fn output_of_user(folder: &Path) -> PathBuf {
    folder.with_extension("result").join("output")
}

/// Takes away what only the running attempt needed.
pub(super) fn remove_work(folder: &Path) {
    let output = output_beside(folder);
    remove(folder);
    remove(&output);
    remove(&crate::error_beside(&output));
    remove(&folder.with_extension("result"));
    // The job's folder goes with its last attempt; until then this fails, as it should.
    if let Some(job) = folder.parent() {
        let _ = fs::remove_dir(job);
    }
}

/// A file or a folder with all that is in it. What cannot be removed is not worth more than a word.
pub(super) fn remove(path: &Path) {
    let result = match fs::symlink_metadata(path) {
        Ok(found) if found.is_dir() => fs::remove_dir_all(path).or_else(|_| {
            // A job may have taken its own rights away. Root needs none, and must not be led astray by links.
            if !rustix::process::geteuid().is_root() {
                allow(path);
            }
            fs::remove_dir_all(path)
        }),
        Ok(_) => fs::remove_file(path),
        Err(error) => Err(error),
    };
    if let Err(error) = result
        && error.kind() != io::ErrorKind::NotFound
    {
        tracing::warn!(path = %path.display(), %error, "cannot be removed");
    }
}

fn allow(folder: &Path) {
    let _ = fs::set_permissions(folder, fs::Permissions::from_mode(0o700));
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            allow(&entry.path());
        }
    }
}
