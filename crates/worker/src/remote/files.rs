//! The files that came with a job: fetched once, copied into the folder of each attempt.
//!
//! A copy each, because a process may change what lies in its folder. The fetched ones are never run.

use std::collections::VecDeque;
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, RwLock};
use std::time::Duration;

use steadfast_api::proto;
use tokio::runtime::Handle;
use tonic::Code;

use super::connect::Client;
use super::{held, worker_dir};
use crate::Stop;

/// Jobs whose files are kept once no attempt needs them: the next attempt of one often comes soon.
const JOBS: usize = 16;
/// The longest silence while a file is fetched.
const SILENCE: Duration = Duration::from_secs(30);

#[derive(Debug)]
pub(super) struct Files {
    folder: PathBuf,
    /// The worker's name.
    worker: String,
    runtime: Handle,
    /// Last used last. Whoever holds a job's lock may change its folder.
    jobs: Mutex<VecDeque<(String, Arc<Mutex<()>>)>>,
    /// Read: a process is being started. Write: a program is being written. A process that is born
    /// meanwhile would hold the file open for writing, and the system runs no such file.
    births: RwLock<()>,
}

#[derive(Debug)]
pub(super) enum Missing {
    /// The server has no such file.
    Unknown(String),
    /// It may have, but not for us, or not now.
    Unreachable(String),
}

impl Files {
    pub(super) fn new(folder: PathBuf, worker: String, runtime: Handle) -> Self {
        Self { folder, worker, runtime, jobs: Mutex::default(), births: RwLock::default() }
    }

    pub(super) fn births(&self) -> &RwLock<()> {
        &self.births
    }

    /// Copies files of its job into an attempt's folder. The names are checked.
    pub(super) fn copy(
        &self,
        attempt: &proto::AttemptRef,
        files: &[String],
        client: Option<&Client>,
        stop: &Stop,
        into: &Path,
    ) -> Result<(), Missing> {
        let job = attempt.job_id.as_str();
        let lock = self.job(job);
        let busy = held(&lock);
        let cached = self.folder.join(job);
        for file in files {
            let from = cached.join(file);
            if !from.exists() {
                let client = client.cloned().ok_or_else(|| {
                    Missing::Unreachable("there is no connection to the server".to_owned())
                })?;
                let part = self.folder.join(format!("{job}.part"));
                self.runtime.block_on(async {
                    tokio::select! {
                        fetched = fetch(client, self.request(attempt, file), &part, &from) => fetched,
                        () = stop.raised() => Err(Missing::Unreachable("stopped".to_owned())),
                    }
                })?;
            }
            let births = self.births.write();
            copy(&from, &into.join(file)).map_err(|error| {
                Missing::Unreachable(format!("{file} cannot be copied: {error}"))
            })?;
            drop(births);
        }
        drop(busy);
        Ok(())
    }

    fn request(&self, attempt: &proto::AttemptRef, path: &str) -> proto::GetFileRequest {
        let (attempt, worker) = (Some(attempt.clone()), self.worker.clone());
        proto::GetFileRequest { attempt, path: path.to_owned(), worker }
    }

    fn job(&self, job: &str) -> Arc<Mutex<()>> {
        let mut jobs = held(&self.jobs);
        let entry = match jobs.iter().position(|(known, _)| known == job) {
            Some(at) => jobs.remove(at),
            None => None,
        };
        let entry = entry.unwrap_or_else(|| (job.to_owned(), Arc::default()));
        let lock = entry.1.clone();
        jobs.push_back(entry);
        if jobs.len() > JOBS
            && let Some(at) = jobs.iter().position(|(_, lock)| Arc::strong_count(lock) == 1)
            && let Some((unused, _)) = jobs.remove(at)
        {
            worker_dir::remove(&self.folder.join(unused));
        }
        lock
    }
}

fn copy(from: &Path, to: &Path) -> io::Result<()> {
    if let Some(parent) = to.parent() {
        fs::create_dir_all(parent)?;
    }
    fs::copy(from, to).map(drop)
}

/// Into `part`, which takes its place when it is whole.
async fn fetch(
    mut client: Client,
    request: proto::GetFileRequest,
    part: &Path,
    to: &Path,
) -> Result<(), Missing> {
    let path = request.path.clone();
    let lost = |error: &dyn std::fmt::Display| {
        Missing::Unreachable(format!("{path} cannot be fetched: {error}"))
    };
    let refused = |status: tonic::Status| match status.code() {
        Code::NotFound | Code::InvalidArgument => {
            Missing::Unknown(format!("the server has no file {path}: {}", status.message()))
        }
        _ => lost(&status.message()),
    };
    let silent = || lost(&format!("no answer for {} seconds", SILENCE.as_secs()));
    let answer = tokio::time::timeout(SILENCE, client.get_file(request)).await;
    let mut chunks = answer.map_err(|_| silent())?.map_err(refused)?.into_inner();
    if let Some(parent) = to.parent() {
        fs::create_dir_all(parent).map_err(|error| lost(&error))?;
    }
    let mut file = File::create(part).map_err(|error| lost(&error))?;
    let mut executable = false;
    loop {
        let chunk = tokio::time::timeout(SILENCE, chunks.message()).await;
        let Some(chunk) = chunk.map_err(|_| silent())?.map_err(refused)? else { break };
        executable |= chunk.executable;
        file.write_all(&chunk.bytes).map_err(|error| lost(&error))?;
    }
    let mode = fs::Permissions::from_mode(if executable { 0o755 } else { 0o644 });
    let done = file.set_permissions(mode).and_then(|()| fs::rename(part, to));
    done.map_err(|error| lost(&error))
}
