//! One attempt, on a thread of its own, from its assignment to how it ended.
//!
//! What is the worker's own fault before anything began is a loss that costs the job nothing; what is the
//! job's fault is a failure.

use std::fs::{self, File};
use std::os::unix::fs::{DirBuilderExt as _, lchown};
use std::path::Path;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use rustix::process::{getegid, geteuid};
use steadfast_api::proto;
use steadfast_core::outcome::{ErrorText, Failure, FailureKind, Outcome, Permanence};

use super::files::Missing;
use super::logs::{LogSource, Place};
use super::transport::{ServerWork, SessionTransport};
use super::worker_dir;
use super::worker_dir::{is_inside, is_plain, is_plain_folder};
use crate::{
    Attempt, Command, Ended, Order, Port, Stop, Surroundings, Transport as _, User, prepare,
    run_and_tell,
};
use proto::assignment::Action;

/// Why an attempt did not begin.
enum NotBegun {
    /// The job's doing.
    Failed(Outcome),
    /// Ours.
    Lost(String),
}

fn not_completed(kind: &str, message: String, permanence: Permanence) -> Outcome {
    let error = Some(ErrorText { kind: Some(kind.to_owned()), message });
    Outcome::Failed(Failure { error, permanence, ..Failure::new(FailureKind::NotCompleted) })
}

pub(super) fn permanent(kind: &str, message: String) -> Outcome {
    not_completed(kind, message, Permanence::Said)
}

pub(super) fn secret_missing(why: String) -> Outcome {
    not_completed("secret_missing", why, Permanence::Open)
}

/// Names become paths and variables: what is not a name is refused before it can become anything.
pub(super) fn check(assignment: &proto::Assignment) -> Result<(), String> {
    let job = assignment.attempt.as_ref().map_or("", |attempt| attempt.job_id.as_str());
    let names = [("job", job), ("step", assignment.step_name())];
    let ports = assignment.ports.iter().map(|port| ("port", port.as_str()));
    let secrets = assignment.secrets.iter().map(|secret| ("secret", secret.as_str()));
    for (what, name) in names.into_iter().chain(ports).chain(secrets) {
        if !is_plain(name) {
            return Err(format!("{name:?} cannot be the name of a {what}"));
        }
    }
    if !is_plain_folder(&assignment.folder) {
        return Err(format!("{:?} cannot be the name of a folder", assignment.folder));
    }
    if let Some(file) = assignment.files.iter().find(|file| !is_inside(file)) {
        return Err(format!("{file:?} is no file inside an attempt's folder"));
    }
    for (name, value) in &assignment.env {
        if name.is_empty() || name.contains(['=', '\0']) || value.contains('\0') {
            return Err(format!("{name:?} cannot be set as a variable of the environment"));
        }
    }
    Ok(())
}

/// How it ended, and, for people, why it did not begin. Its folder stays until it is reported.
pub(super) fn run(
    worker: &SessionTransport,
    work: &ServerWork,
    stop: &Stop,
    started: &dyn Fn(),
) -> (Ended, String) {
    let ServerWork { server, assignment } = work;
    let attempt = assignment.attempt.as_ref().expect("one without was never queued");
    let id = attempt.id();
    worker.keep_folder(id.clone(), worker.dir.work(assignment));
    // Its own until it has ended.
    let lent = worker.config.users.as_ref().map(|users| users.take());
    let begun = match &lent {
        Some(None) => Err(NotBegun::Lost("there is no user left for it".to_owned())),
        Some(Some(lent)) => begin(worker, work, attempt, stop, Some(&lent.user)),
        None => begin(worker, work, attempt, stop, None),
    };
    let (ended, why) = match begun {
        Ok((process, _ports)) => {
            let firm = process.log_cap / 2;
            let log = || {
                let place = Place::File { path: process.log.clone(), firm, bytes: 0 };
                LogSource::new(attempt, place)
            };
            let birth = worker.files.births().read().unwrap_or_else(PoisonError::into_inner);
            let ended = run_and_tell(&process, stop, || {
                drop(birth);
                started();
                worker.at_home(&id, server, |server| server.state().logs.running(&id, log));
                worker.changed();
            });
            (ended, String::new())
        }
        Err(NotBegun::Failed(outcome)) => (Ended::Outcome(outcome), String::new()),
        Err(NotBegun::Lost(why)) => (Ended::Outcome(Outcome::NOT_BEGUN), why),
    };
    if lent.is_some() {
        take_back(&worker.dir.work(assignment));
    }
    worker_dir::remove(&worker.dir.begun(&id));
    (ended, why)
}

/// Furnishes the attempt's folder.
fn begin(
    worker: &SessionTransport,
    work: &ServerWork,
    attempt: &proto::AttemptRef,
    stop: &Stop,
    user: Option<&Arc<User>>,
) -> Result<(Attempt, Vec<Port>), NotBegun> {
    let ServerWork { server, assignment } = work;
    let failed = |kind: &str, why: String| NotBegun::Failed(permanent(kind, why));
    let command = match &assignment.action {
        Some(Action::Run(_) | Action::Argv(_)) if !worker.config.processes => {
            return Err(failed("unsupported", "this worker runs no processes".to_owned()));
        }
        Some(Action::Run(script)) => Command::Shell(script.clone()),
        Some(Action::Argv(argv)) => Command::Argv(argv.argv.clone()),
        Some(Action::Impossible(why)) => return Err(failed("impossible", why.clone())),
        Some(Action::Call(_) | Action::HttpJson(_)) | None => {
            return Err(failed("unsupported", "this worker cannot do what is asked".to_owned()));
        }
    };
    let value = match assignment.item_json.as_str() {
        "" => None,
        json => Some(serde_json::from_str(json).map_err(|error| {
            failed("assignment_refused", format!("the item is not JSON: {error}"))
        })?),
    };
    let step = assignment.step_name();
    let secrets = worker
        .secrets
        .find(&assignment.secrets)
        .map_err(|why| NotBegun::Failed(secret_missing(why)))?;
    let key = attempt.id();
    let folder = worker.dir.work(assignment);
    let output = match user {
        None => worker_dir::output_beside(&folder),
        Some(_) => worker_dir::output_of_user(&folder),
    };
    worker_dir::remove(&output);
    worker_dir::remove(&crate::error_beside(&output));
    let lost = |error: std::io::Error| NotBegun::Lost(format!("cannot make a folder: {error}"));
    File::create(worker.dir.begun(&key)).and_then(|_| make(&folder, user)).map_err(lost)?;
    if let (Some(user), Some(result)) = (user, output.parent()) {
        make(result, Some(user)).and_then(|()| give(result, user)).map_err(lost)?;
    }
    if !assignment.files.is_empty() {
        let client = server.state().client.clone();
        worker.files.copy(attempt, &assignment.files, client.as_ref(), stop, &folder).map_err(
            |missing| match missing {
                Missing::Unknown(why) => {
                    NotBegun::Failed(not_completed("files", why, Permanence::Open))
                }
                Missing::Unreachable(why) => NotBegun::Lost(why),
            },
        )?;
    }
    if let Some(user) = user {
        give(&folder, user).map_err(lost)?;
    }
    // What comes later wins.
    let passed = worker.config.pass_env.iter();
    let mut env: Vec<_> =
        passed.filter_map(|name| Some((name.clone(), std::env::var(name).ok()?))).collect();
    env.extend(assignment.env.clone());
    let timeout = Some(assignment.timeout_ms).filter(|ms| *ms > 0).map(Duration::from_millis);
    let order = Order {
        job: &attempt.job_id,
        step,
        item: attempt.item(),
        attempt: attempt.attempt,
        token: attempt.token,
        value: value.as_ref(),
        datacenter: Some(assignment.datacenter.as_str()),
        command,
        ports: &assignment.ports,
        timeout,
    };
    let place = Surroundings {
        env,
        inherit_env: false,
        secrets,
        user: user.cloned(),
        grouped: worker.config.grouped,
        cwd: folder.clone(),
        folder,
        log: worker.dir.log(&key),
        log_cap: server.limits.log_bytes(),
        // The server notes when it comes in.
        log_times: false,
        output,
        output_cap: server.limits.output_bytes(),
        kill_grace: worker.config.kill_grace,
    };
    prepare(order, place, &worker.ports)
        .map_err(|error| NotBegun::Lost(format!("cannot get a port: {error}")))
}

/// Empty, whatever an attempt of the same name left there, and for its owner alone.
fn make(folder: &Path, user: Option<&Arc<User>>) -> std::io::Result<()> {
    let Some(job) = folder.parent() else { return Ok(()) };
    let passage = if user.is_some() { worker_dir::PASSAGE } else { 0o700 };
    loop {
        fs::DirBuilder::new().recursive(true).mode(passage).create(job)?;
        match fs::DirBuilder::new().mode(0o700).create(folder) {
            Ok(()) => return Ok(()),
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {
                fs::remove_dir_all(folder)?;
            }
            // The job's folder went with its last attempt, just now.
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
    }
}

/// Makes a folder and all that is in it the user's: itself last, so that nobody can change what is in it before.
fn give(folder: &Path, user: &User) -> std::io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            give(&entry.path(), user)?;
        } else {
            lchown(entry.path(), Some(user.uid), Some(user.gid))?;
        }
    }
    lchown(folder, Some(user.uid), Some(user.gid))
}

/// Nobody is that user's any more but the next attempt, which has no business with what this one left.
fn take_back(folder: &Path) {
    let (uid, gid) = (geteuid().as_raw(), getegid().as_raw());
    for path in [folder, &folder.with_extension("result")] {
        // One that never was is nobody's.
        let _ = lchown(path, Some(uid), Some(gid));
    }
}
