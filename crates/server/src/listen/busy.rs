//! How many requests a connection is busy with, and since when with none. A request lasts until the last
//! of its answer is out.
//!
//! Of HTTP/2, where one answer may stand still while others go on, it is also known until when an answer must be
//! asked for more: otherwise its peer takes nothing of it.

use std::collections::HashMap;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::{Body, Bytes, HttpBody};
use hyper::body::{Frame, SizeHint};
use tokio::sync::watch;
use tokio::time::{Instant, timeout};

#[derive(Clone, Copy, Debug, Default)]
struct Requests {
    ever: bool,
    now: usize,
    all: u64,
}

#[derive(Debug, Default)]
pub(super) struct Busy(watch::Sender<Requests>, Waiting);

/// A peer that is no slower than this is not taken for one that stands still over a large part of an answer.
const SLOWEST_BYTES_PER_SECOND: u64 = 16 << 10;

/// The answers that have given something and were not asked for more since; and when they must have been.
type Waiting = Arc<Mutex<HashMap<u64, Instant>>>;

impl Busy {
    /// `longest`: how long each part of its answer may take; none where the connection itself sees to it.
    pub(super) fn request(&self, longest: Option<Duration>) -> Holding {
        self.0.send_modify(|requests| {
            requests.ever = true;
            requests.now += 1;
            requests.all += 1;
        });
        let number = self.0.borrow().all;
        Holding { requests: self.0.clone(), waiting: self.1.clone(), number, longest }
    }

    /// Returns when an answer has waited for its peer for too long. Looked for as often as `longest`.
    pub(super) async fn stalled(&self, longest: Duration) {
        loop {
            let first = lock(&self.1).values().min().copied();
            if first.is_some_and(|until| until <= now()) {
                return;
            }
            let next = now() + longest;
            tokio::time::sleep_until(first.map_or(next, |until| until.min(next))).await;
        }
    }

    /// Returns when there was no request for too long: at first, or after another.
    pub(super) async fn idle(&self, first: Duration, after: Duration) {
        let mut changes = self.0.subscribe();
        loop {
            let requests = *changes.borrow_and_update();
            let longest = if requests.ever { after } else { first };
            if requests.now > 0 {
                // The sender is ours, so that this cannot fail.
                let _ = changes.changed().await;
            } else if timeout(longest, changes.changed()).await.is_err() {
                return;
            }
        }
    }
}

#[derive(Debug)]
pub(super) struct Holding {
    requests: watch::Sender<Requests>,
    waiting: Waiting,
    number: u64,
    longest: Option<Duration>,
}

impl Holding {
    /// It has given so much, or waits for more to come.
    fn gave(&self, bytes: Option<usize>) {
        let Some(longest) = self.longest else { return };
        let mut waiting = lock(&self.waiting);
        match bytes {
            Some(bytes) => {
                let more = Duration::from_secs(bytes as u64 / SLOWEST_BYTES_PER_SECOND);
                waiting.insert(self.number, now() + longest + more);
            }
            None => drop(waiting.remove(&self.number)),
        }
    }
}

impl Drop for Holding {
    fn drop(&mut self) {
        lock(&self.waiting).remove(&self.number);
        self.requests.send_modify(|requests| requests.now -= 1);
    }
}

fn lock(waiting: &Waiting) -> MutexGuard<'_, HashMap<u64, Instant>> {
    waiting.lock().unwrap_or_else(PoisonError::into_inner)
}

#[allow(
    clippy::disallowed_methods,
    reason = "a peer's patience is measured with the monotonic clock"
)]
fn now() -> Instant {
    Instant::now()
}

/// An answer that keeps its connection busy.
#[derive(Debug)]
pub(super) struct Held {
    body: Body,
    holding: Holding,
}

impl Held {
    pub(super) fn new(body: Body, holding: Holding) -> Self {
        // A peer with no room at all never asks for the first part.
        holding.gave(Some(0));
        Self { body, holding }
    }
}

impl HttpBody for Held {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let polled = Pin::new(&mut self.body).poll_frame(cx);
        self.holding.gave(match &polled {
            Poll::Ready(Some(Ok(frame))) => Some(frame.data_ref().map_or(0, Bytes::len)),
            _ => None,
        });
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
