//! How large the body of a request may be, and how long it may take. Only a worker's session and many jobs in one request have
//! bodies without an end; their messages are bounded one by one, where they are read.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::{Body, Bytes, HttpBody};
use axum::extract::Request;
use axum::http::header;
use http_body_util::Limited;
use hyper::body::{Frame, SizeHint};
use tokio::time::{Instant, Sleep};

use super::refusal::Refusal;

/// Refuses what says that it is too large; what does not say so ends with an error when it is.
pub(super) fn bound(request: &mut Request, most: usize, within: Duration) -> Result<(), Refusal> {
    let said = request.headers().get(header::CONTENT_LENGTH);
    let said = said.and_then(|value| value.to_str().ok()?.parse::<u64>().ok());
    if said.is_some_and(|length| length > most as u64) {
        return Err(Refusal::TooLarge(most));
    }
    let body = std::mem::take(request.body_mut());
    if !body.is_end_stream() {
        let timed = Timed { body, end: Box::pin(tokio::time::sleep(within)), again: None };
        *request.body_mut() = Body::new(Limited::new(timed, most));
    }
    Ok(())
}

/// As large as it likes, as long as something of it comes `within` each such time.
pub(super) fn keep_coming(request: &mut Request, within: Duration) {
    let body = std::mem::take(request.body_mut());
    let end = Box::pin(tokio::time::sleep(within));
    *request.body_mut() = Body::new(Timed { body, end, again: Some(within) });
}

#[derive(Debug, thiserror::Error)]
#[error("the body did not arrive in time")]
struct TooSlow;

/// A body that must be whole by then.
struct Timed {
    body: Body,
    end: Pin<Box<Sleep>>,
    /// With each part of it there is so much more time.
    again: Option<Duration>,
}

impl HttpBody for Timed {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        if let Poll::Ready(frame) = Pin::new(&mut self.body).poll_frame(cx) {
            if let Some(within) = self.again {
                self.end.as_mut().reset(Instant::now() + within);
            }
            return Poll::Ready(frame);
        }
        self.end.as_mut().poll(cx).map(|()| Some(Err(axum::Error::new(TooSlow))))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
