//! One attempt from start to end, on the caller's thread.
//!
//! The thread waits on three things at once, and on the next deadline: the process, what it prints, and
//! the order to stop. The process stays unreaped until the end, so that the number of its group cannot
//! become somebody else's before the group is killed.

use std::io::{self, IoSliceMut, PipeReader, PipeWriter};
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags};
use rustix::io::{Errno, ReadWriteFlags, preadv2};
use rustix::process::{Signal, WaitStatus, kill_process_group, pidfd_send_signal};
use steadfast_core::outcome::{FailureKind, Outcome};

use crate::cgroup::Cgroup;
use crate::log::Log;
use crate::orphans::{Birth, Leader};
use crate::processes::{kill_attempt, members, wait};
use crate::spawn::Process;
use crate::start::{Started, not_completed, start};
use crate::{Attempt, Ended, Stop, kill_marked, output};

/// How long others may keep printing after the process itself has ended.
pub const PIPE_GRACE: Duration = Duration::from_secs(1);

const BUFFER: usize = 64 * 1024;
/// Enough for most, and dearer to ask for than to have.
const LITTLE: usize = 1024;

/// Runs the attempt and waits for its end.
///
/// A process that has been killed and is stuck in the kernel is waited for without limit: while it is
/// there, it may still do its work.
pub fn run(attempt: &Attempt, stop: &Stop) -> Ended {
    run_and_tell(attempt, stop, || ())
}

/// Calls `started` once there is a process.
pub fn run_and_tell(attempt: &Attempt, stop: &Stop, started: impl FnOnce()) -> Ended {
    if stop.is_stopped() {
        return Ended::Stopped;
    }
    let birth = Birth::new(attempt);
    let Started { process, pipe, ours, cgroup } = match start(attempt, birth.pid()) {
        Ok(started) => started,
        Err(failure) => return Ended::Outcome(attempt.mask.redact(Outcome::Failed(failure))),
    };
    // Until after it is waited for.
    let leader = Leader::new(process.pid, &birth);
    drop(birth);
    started();
    let unwatched = Unwatched { process: &process, attempt };
    let rest = Rest { leader: &leader, cgroup };
    let watched = Watch::new(attempt, stop, &process, pipe, ours, rest).until_the_end();
    match watched.and_then(|cut| Ok((process.wait()?, cut))) {
        Ok((status, cut)) => {
            // It was, to its end.
            std::mem::forget(unwatched);
            match cut {
                Some(Cut::Stopped) => Ended::Stopped,
                Some(Cut::TimedOut) => Ended::Outcome(FailureKind::TimedOut.into()),
                None => Ended::Outcome(attempt.mask.redact(outcome(status, attempt))),
            }
        }
        Err(error) => {
            drop(unwatched);
            let message = format!("the process could not be watched: {error}");
            Ended::Outcome(Outcome::Failed(not_completed("spawn_failed", message)))
        }
    }
}

/// A process that cannot be watched must not run: there are no descriptors or memory left, or the thread panics.
struct Unwatched<'a> {
    process: &'a Process,
    attempt: &'a Attempt,
}

impl Drop for Unwatched<'_> {
    fn drop(&mut self) {
        let Self { process, attempt } = self;
        let _ = kill_process_group(process.pid, Signal::KILL);
        let _ = pidfd_send_signal(&process.fd, Signal::KILL);
        let _ = process.wait();
        let _ = kill_marked(&attempt.mark.0, &attempt.mark.1);
    }
}

fn outcome(status: WaitStatus, attempt: &Attempt) -> Outcome {
    let owner = attempt.user.as_ref().map(|user| user.uid);
    match (status.exit_status(), status.terminating_signal()) {
        (Some(0), _) => match output::read(&attempt.output, attempt.output_cap, owner) {
            Ok(output) => Outcome::Succeeded { output },
            Err(failure) => Outcome::Failed(failure),
        },
        (Some(code), _) => {
            let said = output::read_error(&attempt.error(), owner);
            Outcome::Failed(output::failure(code as u8, said))
        }
        (None, signal) => FailureKind::Signalled(signal.unwrap_or_default() as u8).into(),
    }
}

/// Why we ended it, if we did.
#[derive(Clone, Copy)]
enum Cut {
    TimedOut,
    Stopped,
}

/// What finds those whom the leader has left behind.
struct Rest<'a> {
    leader: &'a Leader,
    cgroup: Option<Cgroup>,
}

impl Rest<'_> {
    fn kill(&self, attempt: &Attempt) -> io::Result<()> {
        match &self.cgroup {
            // Nobody leaves it who is not allowed to.
            Some(cgroup) if cgroup.kill().is_ok() => {
                self.leader.ended();
                Ok(())
            }
            _ => self.leader.kill_rest(attempt),
        }
    }
}

struct Watch<'a> {
    rest: Rest<'a>,
    attempt: &'a Attempt,
    stop: &'a Stop,
    process: &'a Process,
    /// `None`: everybody has closed it.
    pipe: Option<PipeReader>,
    /// Held until the process has ended: it closes its end a moment before, and we would be woken
    /// twice.
    ours: Option<PipeWriter>,
    log: Log,
    buffer: Vec<u8>,
    cut: Option<Cut>,
    killed: bool,
    exited: bool,
    /// Who else is left in a group that was told to end.
    others: Vec<OwnedFd>,
    /// The next thing to do by the clock: time it out, kill it, or wait no longer.
    deadline: Option<Instant>,
}

impl<'a> Watch<'a> {
    fn new(
        attempt: &'a Attempt,
        stop: &'a Stop,
        process: &'a Process,
        pipe: PipeReader,
        ours: PipeWriter,
        rest: Rest<'a>,
    ) -> Self {
        Self {
            rest,
            attempt,
            stop,
            process,
            pipe: Some(pipe),
            ours: Some(ours),
            log: Log::new(&attempt.log, attempt.log_cap, attempt.log_times, &attempt.mask),
            buffer: Vec::new(),
            cut: None,
            killed: false,
            exited: false,
            others: Vec::new(),
            deadline: attempt.timeout.and_then(|timeout| crate::now().checked_add(timeout)),
        }
    }

    /// Returns why it was ended, if it was. It is not waited for.
    fn until_the_end(mut self) -> io::Result<Option<Cut>> {
        while !self.is_over() {
            self.step()?;
        }
        let _ = kill_process_group(self.process.pid, Signal::KILL);
        // One that will not die must not cost the outcome.
        let _ = self.rest.kill(self.attempt);
        if self.cut.is_some() || self.pipe.is_some() {
            let _ = kill_attempt(self.process.pid, &self.attempt.mark);
            self.drain();
        }
        self.log.finish();
        Ok(self.cut)
    }

    /// Whoever is told to end has its grace, also after the leader of the group is gone.
    fn is_over(&self) -> bool {
        let nobody_left =
            if self.cut.is_some() { self.others.is_empty() } else { self.pipe.is_none() };
        self.exited && (self.killed || nobody_left)
    }

    fn step(&mut self) -> io::Result<()> {
        let ready = self.wait()?;
        if ready.pipe {
            self.read(ReadWriteFlags::empty());
        }
        if ready.process {
            self.exited = true;
            self.ours = None;
            // Most leave nobody behind, and the pipe is at its end by now.
            self.read(ReadWriteFlags::NOWAIT);
            if self.cut.is_none() {
                self.deadline = Some(crate::now() + PIPE_GRACE);
            }
        }
        if self.exited && self.cut.is_some() && (ready.process || ready.others) {
            self.others = members(self.process.pid);
        }
        // In this order: what ended by itself was not stopped, and what was stopped did not time out.
        if ready.kill {
            self.cut_by(Cut::Stopped);
            self.kill();
        } else if ready.stop && !self.exited {
            self.cut_by(Cut::Stopped);
            self.terminate();
        } else if self.deadline.is_some_and(|deadline| crate::now() >= deadline) {
            if self.exited || self.cut.is_some() {
                self.kill();
            } else {
                self.cut_by(Cut::TimedOut);
                self.terminate();
            }
        }
        Ok(())
    }

    fn wait(&self) -> io::Result<Ready> {
        let wanted = |wanted| if wanted { PollFlags::IN } else { PollFlags::empty() };
        let mut fds = Vec::with_capacity(4 + self.others.len());
        fds.push(PollFd::new(&self.process.fd, wanted(!self.exited)));
        fds.push(PollFd::from_borrowed_fd(self.stop.kill_fd(), wanted(!self.killed)));
        fds.push(PollFd::from_borrowed_fd(
            self.stop.stop_fd(),
            wanted(!self.exited && self.cut.is_none()),
        ));
        fds.extend(self.others.iter().map(|other| PollFd::new(other, PollFlags::IN)));
        fds.extend(self.pipe.iter().map(|pipe| PollFd::new(pipe, PollFlags::IN)));
        let longest =
            self.deadline.map(|deadline| deadline.saturating_duration_since(crate::now()));
        wait(&mut fds, longest)?;
        let mut happened = fds.iter().map(|fd| !fd.revents().is_empty());
        let mut next = || happened.next().unwrap_or(false);
        let (process, kill, stop) = (next(), next(), next());
        let others = (0..self.others.len()).fold(false, |any, _| next() | any);
        Ok(Ready { process, kill, stop, others, pipe: next() })
    }

    /// The first reason is the reason, and one that ended by itself needs none.
    fn cut_by(&mut self, cut: Cut) {
        if !self.exited {
            self.cut.get_or_insert(cut);
        }
    }

    fn terminate(&mut self) {
        let _ = kill_process_group(self.process.pid, Signal::TERM);
        self.deadline = crate::now().checked_add(self.attempt.kill_grace);
    }

    fn kill(&mut self) {
        let _ = kill_process_group(self.process.pid, Signal::KILL);
        // It may have joined another group, and it is the one that is waited for.
        let _ = pidfd_send_signal(&self.process.fd, Signal::KILL);
        self.killed = true;
        self.deadline = None;
    }

    /// Never blocks: called when there is something, or nobody left to write, or with `NOWAIT`, which
    /// an old kernel does not know of pipes.
    fn read(&mut self, flags: ReadWriteFlags) {
        let Some(pipe) = &self.pipe else { return };
        let mut little = [0; LITTLE];
        let buffer = if self.buffer.is_empty() { &mut little[..] } else { &mut self.buffer };
        // The offset that means none.
        match preadv2(pipe, &mut [IoSliceMut::new(buffer)], u64::MAX, flags) {
            Ok(count @ 1..) => {
                self.log.write(&buffer[..count]);
                if count == LITTLE {
                    self.buffer.resize(BUFFER, 0);
                }
            }
            Err(Errno::INTR | Errno::AGAIN | Errno::OPNOTSUPP) => {}
            Ok(_) | Err(_) => self.pipe = None,
        }
    }

    /// What lies in the pipe once its writers are dead. One that got away could write for ever.
    fn drain(&mut self) {
        let until = crate::now() + PIPE_GRACE;
        while let Some(pipe) = &self.pipe
            && crate::now() < until
        {
            let mut fds = [PollFd::new(pipe, PollFlags::IN)];
            if wait(&mut fds, Some(Duration::ZERO)).is_err() || fds[0].revents().is_empty() {
                return;
            }
            self.read(ReadWriteFlags::empty());
        }
    }
}

/// What has happened.
#[allow(clippy::struct_excessive_bools, reason = "one for each thing that is waited for")]
struct Ready {
    process: bool,
    kill: bool,
    stop: bool,
    others: bool,
    pipe: bool,
}
