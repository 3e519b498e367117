//! Finding processes that are not our children, and ending them.
//!
//! Every process is held by a pidfd and looked at again through it, so that a number that was given to
//! somebody else in the meantime is never signalled.

use std::fs;
use std::io::{self, Read as _};
use std::os::fd::{AsFd as _, OwnedFd};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, getpid, pidfd_open, pidfd_send_signal};

/// How long a killed process may take to be gone; only one stuck in the kernel takes longer.
const GONE_WITHIN: Duration = Duration::from_secs(5);

/// Bytes of an environment that are read at once: there are many processes to look at.
const USUAL_ENVIRONMENT: usize = 16 * 1024;

/// Longer than a line of numbers under `/proc`.
const LONGEST_LINE: usize = 1024;

/// A line that the system makes when it is asked, in one read: it has no length to ask for first.
pub(crate) fn told(path: &str) -> io::Result<Vec<u8>> {
    let mut line = vec![0; LONGEST_LINE];
    let length = fs::File::open(path)?.read(&mut line)?;
    line.truncate(length);
    Ok(line)
}

/// Kills every process that carries `name=value` in its environment, wherever it has gone; returns how
/// many there were once they are gone. The caller itself is spared.
pub fn kill_marked(name: &str, value: &str) -> io::Result<usize> {
    let mark = entry(name, value);
    kill_all(|pid| carries(pid, &mark))
}

/// Asks every process that carries one of `values` under `name` to end.
///
/// For whoever wants to know how it ended by itself; none is waited for.
pub(crate) fn terminate_marked(name: &str, values: &[String]) -> io::Result<()> {
    let marks: Vec<_> = values.iter().map(|value| entry(name, value)).collect();
    for process in living(|pid| carries_any(pid, &marks))? {
        // One that is gone already, or that became somebody else's, is not ours to end.
        let _ = pidfd_send_signal(process, Signal::TERM);
    }
    Ok(())
}

/// Those of its process group too, whatever they did to their environment.
pub(crate) fn kill_attempt(group: Pid, (name, value): &(String, String)) -> io::Result<usize> {
    let mark = entry(name, value);
    kill_all(|pid| is_in(pid, group) || carries(pid, &mark))
}

pub(crate) fn kill_all(belongs: impl Fn(Pid) -> bool) -> io::Result<usize> {
    let until = crate::now() + GONE_WITHIN;
    let mut killed = 0;
    // Again until a look finds none: one that was forking has left a child behind.
    loop {
        let found = living(&belongs)?;
        if found.is_empty() {
            return Ok(killed);
        }
        let mut refused = None;
        for process in &found {
            if let Err(error) = pidfd_send_signal(process, Signal::KILL)
                && error != Errno::SRCH
            {
                refused = Some(error);
            }
        }
        if let Some(error) = refused {
            return Err(error.into());
        }
        let total = found.len();
        let left = wait_all(found, until)?;
        killed += total - left;
        if left > 0 || crate::now() >= until {
            let message = format!("{left} of the processes that were killed are still there");
            return Err(io::Error::new(io::ErrorKind::TimedOut, message));
        }
    }
}

/// One process, if it still belongs once it is held. It is not waited for.
pub(crate) fn kill_found(pid: Pid, belongs: impl Fn(Pid) -> bool) -> io::Result<Option<OwnedFd>> {
    let process = match pidfd_open(pid, PidfdFlags::empty()) {
        Ok(process) if belongs(pid) => process,
        Ok(_) | Err(Errno::SRCH) => return Ok(None),
        Err(error) => return Err(error.into()),
    };
    match pidfd_send_signal(&process, Signal::KILL) {
        Ok(()) | Err(Errno::SRCH) => Ok(Some(process)),
        Err(error) => Err(error.into()),
    }
}

fn entry(name: &str, value: &str) -> Vec<u8> {
    format!("{name}={value}").into_bytes()
}

/// The living members of a process group, but for its leader.
pub(crate) fn members(group: Pid) -> Vec<OwnedFd> {
    living(|pid| pid != group && is_in(pid, group)).unwrap_or_default()
}

/// The numbers of all processes there are.
pub(crate) fn all() -> io::Result<Vec<Pid>> {
    let number = |entry: fs::DirEntry| {
        entry.file_name().to_str().and_then(|name| name.parse().ok()).and_then(Pid::from_raw)
    };
    Ok(fs::read_dir("/proc")?.flatten().filter_map(number).collect())
}

fn living(belongs: impl Fn(Pid) -> bool) -> io::Result<Vec<OwnedFd>> {
    let mut found = Vec::new();
    for pid in all()? {
        if pid == getpid() || !belongs(pid) {
            continue;
        }
        match pidfd_open(pid, PidfdFlags::empty()) {
            Ok(process) if belongs(pid) && !has_ended(&process) => found.push(process),
            Ok(_) | Err(Errno::SRCH) => {}
            // Too many to hold at once: these first.
            Err(Errno::MFILE | Errno::NFILE) if !found.is_empty() => break,
            Err(error) => return Err(error.into()),
        }
    }
    Ok(found)
}

/// What the system says of a process.
pub(crate) struct Stat {
    pub(crate) parent: i32,
    group: i32,
    /// In ticks since the system began.
    pub(crate) began: u64,
    pub(crate) has_ended: bool,
}

impl Stat {
    /// None: there is no such process.
    pub(crate) fn of(pid: Pid) -> Option<Self> {
        let stat = told(&format!("/proc/{pid}/stat")).ok()?;
        // The name comes second, in parentheses, and may contain anything; then state, parent, group, and the
        // time it began as the twenty-second.
        let after_name = stat.rsplit(|byte| *byte == b')').next()?;
        let mut fields = std::str::from_utf8(after_name).ok()?.split_ascii_whitespace();
        let has_ended = matches!(fields.next()?, "Z" | "X");
        let (parent, group) = (fields.next()?.parse().ok()?, fields.next()?.parse().ok()?);
        Some(Self { parent, group, began: fields.nth(16)?.parse().ok()?, has_ended })
    }

    /// Who it really is, whoever it may act as.
    pub(crate) fn uid(pid: Pid) -> Option<u32> {
        let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
        let uids = status.lines().find_map(|line| line.strip_prefix("Uid:"))?;
        uids.split_ascii_whitespace().next()?.parse().ok()
    }
}

/// Not `getpgid`, which answers 0 for the kernel's own, which is no `Pid`.
fn is_in(pid: Pid, group: Pid) -> bool {
    Stat::of(pid).is_some_and(|stat| stat.group == group.as_raw_nonzero().get())
}

/// The value of a variable in a process's environment, as it was when its program began.
pub(crate) fn carried(pid: Pid, name: &str) -> Option<Vec<u8>> {
    let mut environment = Vec::with_capacity(USUAL_ENVIRONMENT);
    fs::File::open(format!("/proc/{pid}/environ")).ok()?.read_to_end(&mut environment).ok()?;
    let of_name =
        |entry: &[u8]| Some(entry.strip_prefix(name.as_bytes())?.strip_prefix(b"=")?.to_vec());
    environment.split(|byte| *byte == 0).find_map(of_name)
}

/// One that has ended, or that we may not look into, carries nothing.
fn carries(pid: Pid, mark: &[u8]) -> bool {
    carries_any(pid, std::slice::from_ref(&mark))
}

fn carries_any(pid: Pid, marks: &[impl AsRef<[u8]>]) -> bool {
    let mut environment = Vec::with_capacity(USUAL_ENVIRONMENT);
    fs::File::open(format!("/proc/{pid}/environ"))
        .and_then(|mut file| file.read_to_end(&mut environment))
        .is_ok_and(|_| {
            let mut entries = environment.split(|byte| *byte == 0);
            entries.any(|entry| marks.iter().any(|mark| mark.as_ref() == entry))
        })
}

fn has_ended(process: &OwnedFd) -> bool {
    let mut fds = [PollFd::new(process, PollFlags::IN)];
    wait(&mut fds, Some(Duration::ZERO)).is_ok() && fds[0].revents().contains(PollFlags::IN)
}

/// Returns how many are still there.
pub(crate) fn wait_all(mut processes: Vec<OwnedFd>, until: Instant) -> io::Result<usize> {
    loop {
        processes.retain(|process| !has_ended(process));
        let left = until.saturating_duration_since(crate::now());
        if processes.is_empty() || left.is_zero() {
            return Ok(processes.len());
        }
        let mut fds: Vec<_> = processes
            .iter()
            .map(|process| PollFd::from_borrowed_fd(process.as_fd(), PollFlags::IN))
            .collect();
        wait(&mut fds, Some(left))?;
    }
}

/// `poll`, where a signal counts as nothing having happened.
pub(crate) fn wait(fds: &mut [PollFd<'_>], longest: Option<Duration>) -> io::Result<()> {
    // A time too large to be expressed is forever.
    let longest = longest.and_then(|longest| Timespec::try_from(longest).ok());
    match poll(fds, longest.as_ref()) {
        Ok(_) | Err(Errno::INTR) => Ok(()),
        Err(error) => Err(error.into()),
    }
}
