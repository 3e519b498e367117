//! The order to end an attempt, given from another thread.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};

/// Never taken back, and never drained: one `Stop` can end many attempts, also ones that start later.
#[derive(Clone, Debug)]
pub struct Stop(Arc<Events>);

#[derive(Debug)]
struct Events {
    stop: OwnedFd,
    kill: OwnedFd,
}

impl Stop {
    pub fn new() -> io::Result<Self> {
        let event = || eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK);
        Ok(Self(Arc::new(Events { stop: event()?, kill: event()? })))
    }

    /// SIGTERM, the attempt's grace, SIGKILL.
    pub fn stop(&self) {
        raise(&self.0.stop);
    }

    /// SIGKILL at once.
    pub fn kill(&self) {
        raise(&self.0.kill);
    }

    pub fn is_stopped(&self) -> bool {
        let mut fds =
            [self.stop_fd(), self.kill_fd()].map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN));
        poll(&mut fds, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })).is_ok_and(|ready| ready > 0)
    }

    pub(crate) fn stop_fd(&self) -> BorrowedFd<'_> {
        self.0.stop.as_fd()
    }

    pub(crate) fn kill_fd(&self) -> BorrowedFd<'_> {
        self.0.kill.as_fd()
    }
}

/// The only way this fails is a counter that is full, which is raised already.
fn raise(event: &OwnedFd) {
    let _ = rustix::io::write(event, &1u64.to_ne_bytes());
}
