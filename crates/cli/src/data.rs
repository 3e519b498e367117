//! The data folder: where the database, logs and working folders are, and who may write.
//!
//! `run` and `resume` share the folder and lock their job; a server will want it for itself.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};

use steadfast_core::event::Recorded;
use steadfast_core::job::Job;
use steadfast_core::time::Timestamp;
use steadfast_store::{Filter, Folder, Row, SqliteStore, Store, StoreError};

/// How often a lock that is taken is tried again before it is believed.
const LOCK_LOOKS: u32 = 3;
/// Events read at once.
const PAGE: usize = 10_000;

#[derive(Clone, Debug)]
pub(crate) struct Data {
    pub(crate) folder: Folder,
    /// As somebody typed it.
    given: Option<PathBuf>,
}

/// Held while this process may write; given back by the system when it ends, however it ends.
#[derive(Debug)]
pub(crate) struct Lock {
    file: File,
    path: PathBuf,
}

impl Lock {
    /// When the holder was last alive.
    pub(crate) fn alive_at(&self) -> Option<Timestamp> {
        let modified = fs::metadata(&self.path).ok()?.modified().ok()?;
        let since = modified.duration_since(std::time::UNIX_EPOCH).ok()?;
        Some(Timestamp(since.as_millis() as u64))
    }

    /// Somebody wants the job cancelled.
    pub(crate) fn cancel_asked(&self) -> bool {
        self.path.with_extension("cancel").exists()
    }

    /// Says that the holder is alive.
    pub(crate) fn touch(&self) {
        let now = fs::FileTimes::new().set_modified(crate::clock::system_time());
        let _ = self.file.set_times(now);
    }
}

impl Data {
    /// `--data`, or `STEADFAST_DATA`, or the user's data folder.
    pub(crate) fn at(given: Option<&Path>) -> Result<Self, String> {
        let from = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
        let root = match given {
            Some(path) => path.to_owned(),
            None => match (from("XDG_DATA_HOME"), from("HOME")) {
                (Some(data), _) => PathBuf::from(data).join("steadfast"),
                (None, Some(home)) => PathBuf::from(home).join(".local/share/steadfast"),
                (None, None) => {
                    return Err("there is no home folder to keep data in; give --data DIR".into());
                }
            },
        };
        let root = std::path::absolute(&root).unwrap_or(root);
        match fs::metadata(&root) {
            Ok(about) if !about.is_dir() => {
                return Err(format!("{} is not a folder", root.display()));
            }
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(format!("cannot use the data folder {}: {error}", root.display()));
            }
            _ => {}
        }
        Ok(Self { folder: Folder::new(root), given: given.map(Path::to_owned) })
    }

    pub(crate) fn create(&self) -> Result<(), String> {
        self.folder.create().map_err(|error| {
            format!("cannot make the data folder {}: {error}", self.folder.root().display())
        })
    }

    pub(crate) fn open(&self) -> Result<SqliteStore, String> {
        SqliteStore::open(&self.folder.database()).map_err(|error| error.to_string())
    }

    /// For commands that only look. None: nothing was ever run with this folder.
    pub(crate) fn look(&self) -> Result<Option<SqliteStore>, String> {
        let database = self.folder.database();
        // Not being allowed to look is no reason to say that there is nothing.
        match fs::metadata(&database) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(format!("cannot read {}: {error}", database.display())),
            Ok(_) => {}
        }
        SqliteStore::open(&database).map(Some).map_err(|error| error.to_string())
    }

    pub(crate) fn lock(&self, job: &str) -> Result<Lock, String> {
        let path = self.folder.locks().join(format!("{job}.lock"));
        let why = |error| format!("cannot lock {}: {error}", path.display());
        let open = OpenOptions::new().create(true).truncate(false).write(true).open(&path);
        let file = open.map_err(why)?;
        for _ in 0..LOCK_LOOKS {
            match file.try_lock() {
                Ok(()) => return Ok(Lock { file, path }),
                // Somebody who only looked, or a process that is about to become a step, has it for
                // a moment.
                Err(fs::TryLockError::WouldBlock) => crate::clock::wait_a_little(),
                Err(fs::TryLockError::Error(error)) => return Err(why(error)),
            }
        }
        Err(format!("job {job} is being run by another process right now"))
    }

    /// Whether some process runs the job right now.
    pub(crate) fn is_run(&self, job: &str) -> bool {
        let file = File::open(self.folder.locks().join(format!("{job}.lock")));
        file.is_ok_and(|file| matches!(file.try_lock_shared(), Err(fs::TryLockError::WouldBlock)))
    }

    /// Whether a server has the folder right now.
    pub(crate) fn is_served(&self) -> bool {
        let file = File::open(self.folder.locks().join("server.lock"));
        file.is_ok_and(|file| matches!(file.try_lock_shared(), Err(fs::TryLockError::WouldBlock)))
    }

    /// Why nothing happens to a job that is not over; none: somebody is at it.
    pub(crate) fn rests(&self, job: &Job) -> Option<String> {
        match (is_of_a_server(job), self.is_served()) {
            (true, true) => None,
            (true, false) => {
                Some("it goes on when a server is started with this data folder".to_owned())
            }
            (false, _) if self.is_run(&job.id) => None,
            (false, _) => Some(format!("interrupted; go on with {}", self.hint("resume", &job.id))),
        }
    }

    /// Jobs of a server are its own while it has the folder: two writers of one job would fence each
    /// other out.
    pub(crate) fn may_write(&self, job: &Job) -> Result<(), String> {
        if is_of_a_server(job) && self.is_served() {
            return Err(format!(
                "job {} belongs to the server that has this data folder; ask that, with --server \
                 instead of --data",
                job.id
            ));
        }
        Ok(())
    }

    /// Asks the process that runs the job to cancel it.
    pub(crate) fn ask_to_cancel(&self, job: &str) -> Result<(), String> {
        let path = self.folder.locks().join(format!("{job}.cancel"));
        fs::write(&path, "").map_err(|error| format!("cannot write {}: {error}", path.display()))
    }

    /// Where the services of a job that was run before know to call back.
    pub(crate) fn callback_port(&self, job: &str) -> Option<u16> {
        fs::read_to_string(self.folder.locks().join(format!("{job}.port"))).ok()?.parse().ok()
    }

    pub(crate) fn keep_callback_port(&self, job: &str, port: u16) -> std::io::Result<()> {
        fs::write(self.folder.locks().join(format!("{job}.port")), port.to_string())
    }

    pub(crate) fn forget_lock(&self, job: &str) {
        for kind in ["lock", "cancel", "port"] {
            let _ = fs::remove_file(self.folder.locks().join(format!("{job}.{kind}")));
        }
    }

    /// A command to paste, for a job of this folder.
    pub(crate) fn hint(&self, command: &str, job: &str) -> String {
        let typed = self.given.as_ref().filter(|_| std::env::var_os("STEADFAST_DATA").is_none());
        let data = typed.map(|path| format!(" --data {}", path.display())).unwrap_or_default();
        format!("steadfast {command} {job}{data}")
    }
}

/// It came without a job file of its own, through a server.
pub(crate) fn is_of_a_server(job: &Job) -> bool {
    job.source.is_none()
}

/// A job that is named by its id, by a beginning of it that fits no other, or `last`.
pub(crate) fn find(store: &mut dyn Store, name: &str) -> Result<Row, String> {
    match store.row(name) {
        Ok(Some((row, _))) => return Ok(row),
        // One whose row is damaged is in the list all the same.
        Ok(None) | Err(StoreError::Corrupt { job: Some(_), .. }) => {}
        Err(error) => return Err(error.to_string()),
    }
    let filter = Filter::default();
    let page = store.list(&filter, None, 1000).map_err(|error| error.to_string())?;
    let mut found = page.jobs.into_iter().filter(|row| name == "last" || row.id.starts_with(name));
    match (found.next(), found.next()) {
        (Some(row), None) => Ok(row),
        (Some(row), Some(_)) if name == "last" => Ok(row),
        (Some(_), Some(_)) => Err(format!("{name} fits more than one job; give more of the id")),
        _ => Err(format!("there is no job {name}; `steadfast list` shows those there are")),
    }
}

/// Every event of a job, in order.
pub(crate) fn each_event<E: From<String>>(
    store: &mut dyn Store,
    job: &str,
    after: u64,
    mut see: impl FnMut(Recorded) -> Result<(), E>,
) -> Result<(), E> {
    let mut after = after;
    loop {
        let page = store.events(job, after, PAGE).map_err(|error| error.to_string())?;
        let Some(last) = page.last() else { return Ok(()) };
        after = last.seq;
        for record in page {
            see(record)?;
        }
    }
}

/// The state of a stored job.
pub(crate) fn state(store: &mut dyn Store, job: &str) -> Result<Job, String> {
    steadfast_engine::state(store, job).map_err(|error| error.to_string())
}
