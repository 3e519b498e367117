//! How many requests a connection is busy with, and since when with none. A request lasts until the last
//! of its answer is out.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::{Body, Bytes, HttpBody};
use hyper::body::{Frame, SizeHint};
use tokio::sync::watch;
use tokio::time::timeout;

#[derive(Clone, Copy, Debug, Default)]
struct Requests {
    ever: bool,
    now: usize,
}

#[derive(Debug, Default)]
pub(super) struct Busy(watch::Sender<Requests>);

impl Busy {
    pub(super) fn request(&self) -> Holding {
        self.0.send_modify(|requests| {
            requests.ever = true;
            requests.now += 1;
        });
        Holding(self.0.clone())
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
pub(super) struct Holding(watch::Sender<Requests>);

impl Drop for Holding {
    fn drop(&mut self) {
        self.0.send_modify(|requests| requests.now -= 1);
    }
}

/// An answer that keeps its connection busy.
#[derive(Debug)]
pub(super) struct Held {
    body: Body,
    _holding: Holding,
}

impl Held {
    pub(super) fn new(body: Body, holding: Holding) -> Self {
        Self { body, _holding: holding }
    }
}

impl HttpBody for Held {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
