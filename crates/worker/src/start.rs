//! From an attempt to a running process, or to the reason why there is none.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, PipeReader, PipeWriter};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command as Process};
use std::sync::OnceLock;

use rustix::fs::{Access, access};
use rustix::io::Errno;
use steadfast_core::outcome::{ErrorText, Failure, FailureKind};

use crate::{Attempt, Command, OUTPUT_VARIABLE, PASSED_ON};

pub(crate) struct Started {
    pub(crate) child: Child,
    /// Both its stdout and its stderr.
    pub(crate) pipe: PipeReader,
    /// Its other end: while we hold it too, the pipe is not closed.
    pub(crate) ours: PipeWriter,
}

/// The leader of a process group of its own, with nothing on stdin.
pub(crate) fn start(attempt: &Attempt) -> Result<Started, Failure> {
    let argv = match &attempt.command {
        Command::Shell(script) => &["/bin/sh".to_owned(), "-c".to_owned(), script.clone()][..],
        Command::Argv(argv) => argv,
    };
    let [program, arguments @ ..] = argv else {
        return Err(not_completed("not_found", "the command names no program".to_owned()));
    };
    let path = locate(program, attempt);
    let spawned = path.as_deref().ok_or_else(|| Errno::NOENT.into()).and_then(|path| {
        let mut process = Process::new(path);
        process.arg0(program).args(arguments).current_dir(&attempt.cwd).process_group(0);
        set_environment(&mut process, attempt);
        let (pipe, ours) = io::pipe()?;
        process.stdin(nothing()?).stdout(ours.try_clone()?).stderr(ours.try_clone()?);
        let child = process.spawn()?;
        Ok(Started { child, pipe, ours })
    });
    spawned.map_err(|error| explain(&error, program, path.as_deref(), &attempt.cwd))
}

/// For stdin. Opened once.
fn nothing() -> io::Result<File> {
    static NOTHING: OnceLock<File> = OnceLock::new();
    if let Some(file) = NOTHING.get() {
        return file.try_clone();
    }
    let file = File::open("/dev/null")?;
    NOTHING.get_or_init(|| file).try_clone()
}

fn set_environment(process: &mut Process, attempt: &Attempt) {
    if !attempt.inherit_env {
        process.env_clear();
        process.envs(PASSED_ON.iter().filter_map(|name| Some((name, std::env::var_os(name)?))));
    }
    process.envs(attempt.env.iter().map(|(name, value)| (name, value)));
    process.env(OUTPUT_VARIABLE, &attempt.output).env(&attempt.mark.0, &attempt.mark.1);
}

/// Looks a bare name up as `execvp` does, in the `PATH` that the process will have.
///
/// Done here because the standard library, left to search a `PATH` that is not its own, forks instead of
/// spawning, and then also runs what has no known format as a shell script.
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
