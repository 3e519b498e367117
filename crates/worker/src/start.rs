//! From an attempt to a running process, or to the reason why there is none.

use std::borrow::Cow;
use std::ffi::{CStr, CString, OsStr, OsString};
use std::fs::File;
use std::io::{self, PipeReader, PipeWriter};
use std::os::fd::AsFd as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::atomic::AtomicI32;

use rustix::fs::{Access, access};
use rustix::io::Errno;
use steadfast_core::outcome::{ErrorText, Failure, FailureKind};

use crate::cgroup::Cgroup;
use crate::spawn::{Process, Program, spawn};
use crate::{Attempt, Command, OUTPUT_VARIABLE, PASSED_ON, STORE_VARIABLE, TOKEN_VARIABLE};

pub(crate) struct Started {
    pub(crate) process: Process,
    /// Both its stdout and its stderr.
    pub(crate) pipe: PipeReader,
    /// Its other end: while we hold it too, the pipe is not closed.
    pub(crate) ours: PipeWriter,
    pub(crate) cgroup: Option<Cgroup>,
}

/// The leader of a process group of its own, with nothing on stdin. `born` is its number as soon as it has one.
pub(crate) fn start(attempt: &Attempt, born: &AtomicI32) -> Result<Started, Failure> {
    let argv: Vec<&str> = match &attempt.command {
        Command::Shell(script) => vec!["/bin/sh", "-c", script],
        Command::Argv(argv) => argv.iter().map(String::as_str).collect(),
    };
    let Some(program) = argv.first() else {
        return Err(not_completed("not_found", "the command names no program".to_owned()));
    };
    let path = locate(program, attempt);
    let started = path
        .as_deref()
        .ok_or_else(|| Errno::NOENT.into())
        .and_then(|path| start_program(path, &argv, attempt, born));
    started.map_err(|error| explain(&error, program, path.as_deref(), &attempt.cwd))
}

fn start_program(
    path: &Path,
    argv: &[&str],
    attempt: &Attempt,
    born: &AtomicI32,
) -> io::Result<Started> {
    let path = CString::new(path.as_os_str().as_bytes())?;
    let cwd = CString::new(attempt.cwd.as_os_str().as_bytes())?;
    let argv = argv.iter().map(|text| CString::new(*text)).collect::<Result<Vec<_>, _>>()?;
    let env = environment(attempt)?;
    let (pipe, ours) = io::pipe()?;
    let cgroup = attempt.grouped.then(Cgroup::new).flatten();
    let process = spawn(&Program {
        path: &path,
        argv: &argv.iter().map(CString::as_c_str).collect::<Vec<_>>(),
        env: &env.iter().map(AsRef::as_ref).collect::<Vec<_>>(),
        cwd: &cwd,
        stdin: nothing()?.as_fd(),
        output: ours.as_fd(),
        user: attempt.user.as_deref(),
        cgroup: cgroup.as_ref().map(Cgroup::procs),
        born,
    })?;
    Ok(Started { process, pipe, ours, cgroup })
}

/// For stdin. Opened once.
fn nothing() -> io::Result<&'static File> {
    static NOTHING: OnceLock<File> = OnceLock::new();
    match NOTHING.get() {
        Some(file) => Ok(file),
        None => File::open("/dev/null").map(|file| NOTHING.get_or_init(|| file)),
    }
}

/// `NAME=value` for each variable that the process will have. Of those with the same name the last
/// counts.
fn environment(attempt: &Attempt) -> io::Result<Vec<Cow<'static, CStr>>> {
    let user = attempt.user.as_ref().map(|user| user.variables(&attempt.cwd)).unwrap_or_default();
    let own = user.iter().chain(&attempt.env);
    let own = own.map(|(name, value)| (name.as_bytes(), value.as_bytes()));
    let ours = [
        (OUTPUT_VARIABLE.as_bytes(), attempt.output.as_os_str().as_bytes()),
        (attempt.mark.0.as_bytes(), attempt.mark.1.as_bytes()),
    ];
    let set: Vec<_> = own.chain(ours).collect();
    let is_set = |name: &[u8], after: usize| set[after..].iter().any(|(set, _)| *set == name);
    let mut environment: Vec<Cow<'static, CStr>> = caller_environment()
        .iter()
        .filter(|variable| attempt.inherit_env || variable.passed_on)
        .filter(|variable| !is_set(variable.name.as_bytes(), 0))
        .map(|variable| variable.entry.as_c_str().into())
        .collect();
    for (at, (name, value)) in set.iter().enumerate() {
        if !is_set(name, at + 1) {
            environment.push(entry(name, value)?.into());
        }
    }
    Ok(environment)
}

struct Variable {
    name: OsString,
    entry: CString,
    passed_on: bool,
}

/// Ours. Read once: nothing in this program changes it.
fn caller_environment() -> &'static [Variable] {
    static CALLER: OnceLock<Vec<Variable>> = OnceLock::new();
    CALLER.get_or_init(|| {
        let variable = |(name, value): (OsString, OsString)| {
            let entry = entry(name.as_bytes(), value.as_bytes()).ok()?;
            let passed_on = PASSED_ON.iter().any(|passed_on| name == *passed_on);
            Some(Variable { name, entry, passed_on })
        };
        // What the server knows us by is nothing for what we run; a step that wants it names it in `secrets`.
        let passes =
            |(name, _): &(OsString, OsString)| name != TOKEN_VARIABLE && name != STORE_VARIABLE;
        std::env::vars_os().filter(passes).filter_map(variable).collect()
    })
}

fn entry(name: &[u8], value: &[u8]) -> io::Result<CString> {
    // With room for the zero at the end.
    let mut entry = Vec::with_capacity(name.len() + value.len() + 2);
    entry.extend_from_slice(name);
    entry.push(b'=');
    entry.extend_from_slice(value);
    Ok(CString::new(entry)?)
}

/// Looks a bare name up as `execvp` does, in the `PATH` that the process will have.
///
/// But what has no known format is not run as a shell script.
fn locate(program: &str, attempt: &Attempt) -> Option<PathBuf> {
    if program.is_empty() {
        return None;
    }
    if program.contains('/') {
        return Some(PathBuf::from(program));
    }
    let own = attempt
        .env
        .iter()
        .rev()
        .find(|(name, _)| name == "PATH")
        .map(|(_, value)| OsString::from(value));
    let search = own.or_else(|| std::env::var_os("PATH")).unwrap_or_else(|| "/bin:/usr/bin".into());
    let mut unusable = None;
    for folder in search.as_bytes().split(|byte| *byte == b':') {
        let folder =
            if folder.is_empty() { Path::new(".") } else { Path::new(OsStr::from_bytes(folder)) };
        let candidate = folder.join(program);
        let seen_from_here = attempt.cwd.join(&candidate);
        if seen_from_here.is_file() {
            if access(&seen_from_here, Access::EXEC_OK).is_ok() {
                return Some(candidate);
            }
            unusable.get_or_insert(candidate);
        }
    }
    unusable
}

fn explain(error: &io::Error, program: &str, path: Option<&Path>, cwd: &Path) -> Failure {
    let errno = Errno::from_io_error(error);
    if matches!(errno, Some(Errno::NOENT | Errno::NOTDIR | Errno::ACCESS))
        && let Err(error) = enter(cwd)
    {
        return not_completed(
            "workdir",
            format!("cannot enter the folder {}: {error}", cwd.display()),
        );
    }
    let metadata = path.and_then(|path| cwd.join(path).metadata().ok());
    let (kind, why) = match errno {
        Some(Errno::NOENT) if metadata.is_some() => {
            ("not_found", "its interpreter does not exist".to_owned())
        }
        Some(Errno::NOENT | Errno::NOTDIR) => ("not_found", "no such program".to_owned()),
        Some(Errno::ACCESS) if metadata.as_ref().is_some_and(std::fs::Metadata::is_dir) => {
            ("not_executable", "it is a folder".to_owned())
        }
        Some(Errno::ACCESS)
            if metadata.is_some_and(|file| file.permissions().mode() & 0o111 == 0) =>
        {
            ("not_executable", "the file is not marked as executable".to_owned())
        }
        Some(Errno::ACCESS | Errno::PERM) => ("permission_denied", error.to_string()),
        Some(Errno::NOEXEC) => {
            ("not_executable", "neither a program nor a script that begins with #!".to_owned())
        }
        Some(Errno::TOOBIG) => {
            ("argument_list_too_long", "its arguments and environment are too large".to_owned())
        }
        _ => ("spawn_failed", error.to_string()),
    };
    not_completed(kind, format!("cannot start {program:?}: {why}"))
}

fn enter(folder: &Path) -> io::Result<()> {
    if !folder.metadata()?.is_dir() {
        return Err(Errno::NOTDIR.into());
    }
    Ok(access(folder, Access::EXEC_OK)?)
}

pub(crate) fn not_completed(kind: &str, message: String) -> Failure {
    let error = Some(ErrorText { kind: Some(kind.to_owned()), message });
    Failure { error, ..Failure::new(FailureKind::NotCompleted) }
}
