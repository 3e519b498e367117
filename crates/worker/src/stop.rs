//! The order to end an attempt, given from another thread.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::event::{EventfdFlags, eventfd};
use tokio::sync::Notify;

/// Never taken back, and never drained: one `Stop` can end many attempts, also ones that start later.
#[derive(Clone, Debug)]
pub struct Stop(Arc<Events>);

#[derive(Debug)]
struct Events {
    /// One of the two is, or is about to be.
    raised: AtomicBool,
    stop: OwnedFd,
    kill: OwnedFd,
    /// For the one that does something slow before there is a process.
    waits: Notify,
}

impl Stop {
    pub fn new() -> io::Result<Self> {
        let event = || eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK);
        Ok(Self(Arc::new(Events {
            raised: AtomicBool::new(false),
            stop: event()?,
            kill: event()?,
            waits: Notify::new(),
        })))
    }

    /// SIGTERM, the attempt's grace, SIGKILL.
    pub fn stop(&self) {
        self.raise(&self.0.stop);
    }

    /// SIGKILL at once.
    pub fn kill(&self) {
        self.raise(&self.0.kill);
    }

    pub fn is_stopped(&self) -> bool {
        self.0.raised.load(Ordering::SeqCst)
    }

    fn raise(&self, event: &OwnedFd) {
        self.0.raised.store(true, Ordering::SeqCst);
        // The only way this fails is a counter that is full, which is raised already.
        let _ = rustix::io::write(event, &1u64.to_ne_bytes());
        self.0.waits.notify_one();
    }

    /// Returns when it is raised. One thread at a time may wait.
    pub(crate) async fn raised(&self) {
        self.0.waits.notified().await;
    }

    pub(crate) fn stop_fd(&self) -> BorrowedFd<'_> {
        self.0.stop.as_fd()
    }

    pub(crate) fn kill_fd(&self) -> BorrowedFd<'_> {
        self.0.kill.as_fd()
    }
}
