//! Which process has a job of `run`: by a lock on a file, which the system gives back however the process ends.

use std::fs::{self, File, OpenOptions};
use std::path::PathBuf;
use std::time::{SystemTime, UNIX_EPOCH};

use steadfast_core::event::Requester;
use steadfast_core::time::Timestamp;
use steadfast_store::{Folder, lock};

/// Held while this process may write the job.
#[derive(Debug)]
pub struct JobLock {
    file: File,
    path: PathBuf,
}

impl JobLock {
    /// The error says who has it, or what is wrong with the folder.
    pub fn take(folder: &Folder, job: &str) -> Result<Self, String> {
        let path = folder.job_lock(job);
        let why = |error| format!("cannot lock {}: {error}", path.display());
        let open = OpenOptions::new().create(true).truncate(false).write(true).open(&path);
        let file = open.map_err(why)?;
        if lock(&file).map_err(why)? {
            return Ok(Self { file, path });
        }
        Err(format!("job {job} is being run by another process right now"))
    }

    /// When the holder was last alive.
    pub(super) fn alive_at(&self) -> Option<Timestamp> {
        let modified = fs::metadata(&self.path).ok()?.modified().ok()?;
        let since = modified.duration_since(UNIX_EPOCH).ok()?;
        Some(Timestamp(since.as_millis() as u64))
    }

    /// That the job is to be cancelled, by whom and why. The file is there whole or not at all.
    pub(super) fn cancel_asked(&self) -> Option<Requester> {
        let text = fs::read_to_string(self.path.with_extension("cancel")).ok()?;
        Some(serde_json::from_str(&text).unwrap_or(Requester::NOBODY))
    }

    /// Says that the holder is alive.
    pub(super) fn touch(&self) {
        let now = fs::FileTimes::new().set_modified(now());
        let _ = self.file.set_times(now);
    }
}

/// Asks the process that runs the job to cancel it.
pub fn ask_to_cancel(folder: &Folder, job: &str, requested: &Requester) -> Result<(), String> {
    let path = folder.locks().join(format!("{job}.cancel"));
    let draft = folder.locks().join(format!("{job}.cancel.{}", std::process::id()));
    let text = serde_json::to_string(requested).map_err(|error| error.to_string())?;
    let written = fs::write(&draft, text).and_then(|()| fs::rename(&draft, &path));
    written.map_err(|error| format!("cannot write {}: {error}", path.display()))
}

/// Where the services of a job that was run before know to call back.
pub(super) fn callback_port(folder: &Folder, job: &str) -> Option<u16> {
    fs::read_to_string(folder.locks().join(format!("{job}.port"))).ok()?.parse().ok()
}

pub(super) fn keep_callback_port(folder: &Folder, job: &str, port: u16) -> std::io::Result<()> {
    fs::write(folder.locks().join(format!("{job}.port")), port.to_string())
}

/// The job is over, or not there: nothing is left to lock.
pub fn forget_lock(folder: &Folder, job: &str) {
    for kind in ["lock", "cancel", "port"] {
        let _ = fs::remove_file(folder.locks().join(format!("{job}.{kind}")));
    }
}

#[allow(clippy::disallowed_methods, reason = "the time of the file is when its holder was alive")]
fn now() -> SystemTime {
    SystemTime::now()
}
