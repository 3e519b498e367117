//! How plain threads wait for what a runtime of its own does: a database's answers, an object store's.
//!
//! Threads of that runtime drive sockets and timers, so that the caller may be any thread: one that writes, one that blocks for a
//! request, and one that is inside a runtime of somebody else.

use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake};
use std::thread::{self, Thread};

use tokio::runtime::{Builder, Runtime};
use tokio::task::{AbortHandle, unconstrained};

#[derive(Debug)]
pub(crate) struct Waiting {
    /// None: it is being dropped.
    runtime: Option<Runtime>,
}

impl Drop for Waiting {
    fn drop(&mut self) {
        // May be dropped where waiting is not allowed.
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

impl Waiting {
    pub(crate) fn new(threads: usize, name: &str) -> io::Result<Self> {
        let runtime = Builder::new_multi_thread()
            .worker_threads(threads)
            .thread_name(name)
            .enable_all()
            .build()?;
        Ok(Self { runtime: Some(runtime) })
    }

    fn runtime(&self) -> &Runtime {
        self.runtime.as_ref().expect("it is there until it is dropped")
    }

    /// Blocks this thread, and no other task of a runtime that it may belong to.
    pub(crate) fn wait<F: Future>(&self, future: F) -> F::Output {
        // For timers and sockets, which the other threads drive.
        let _entered = self.runtime().enter();
        let mut future = pin!(unconstrained(future));
        let waker = Arc::new(Unpark(thread::current())).into();
        let mut context = Context::from_waker(&waker);
        loop {
            match future.as_mut().poll(&mut context) {
                Poll::Ready(done) => return done,
                Poll::Pending => thread::park(),
            }
        }
    }

    pub(crate) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) -> AbortHandle {
        self.runtime().spawn(task).abort_handle()
    }
}

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}
