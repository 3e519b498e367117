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

use super::answer::IsAllowed;
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
        let timed = Timed {
            body,
            end: Box::pin(tokio::time::sleep(within)),
            again: None,
            is_waiting: true,
            is_allowed: None,
        };
        *request.body_mut() = Body::new(Limited::new(timed, most));
    }
    Ok(())
}

/// As large as it likes, as long as something of it comes `within` each such time, and its client may still say something then.
pub(super) fn keep_coming(request: &mut Request, within: Duration, is_allowed: Option<IsAllowed>) {
    let body = std::mem::take(request.body_mut());
    let end = Box::pin(tokio::time::sleep(within));
    let timed = Timed { body, end, again: Some(within), is_waiting: false, is_allowed };
    *request.body_mut() = Body::new(timed);
}

#[derive(Debug, thiserror::Error)]
#[error("the body did not arrive in time")]
struct TooSlow;

#[derive(Debug, thiserror::Error)]
#[error("the token was revoked, or has expired")]
struct NotAllowed;

/// A body that must be whole by then.
struct Timed {
    body: Body,
    end: Pin<Box<Sleep>>,
    /// There is so much time for each part of it, from when it is waited for.
    again: Option<Duration>,
    is_waiting: bool,
    /// Whether the token is still good: asked for each part.
    is_allowed: Option<IsAllowed>,
}

impl HttpBody for Timed {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        if let Poll::Ready(frame) = Pin::new(&mut self.body).poll_frame(cx) {
            self.is_waiting = false;
            let is_allowed = self.is_allowed.as_ref().is_none_or(|is_allowed| is_allowed());
            if frame.is_some() && !is_allowed {
                return Poll::Ready(Some(Err(axum::Error::new(NotAllowed))));
            }
            return Poll::Ready(frame);
        }
        // Not from the last part on: a server that is slow to ask for the next one is not the client's fault.
        if let Some(within) = self.again
            && !std::mem::replace(&mut self.is_waiting, true)
        {
            self.end.as_mut().reset(Instant::now() + within);
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

#[cfg(test)]
mod tests {
    use futures_util::{StreamExt as _, stream};
    use tokio::time::sleep;

    use super::*;

    /// A part after each pause, in seconds; how many of them arrive within 10 s each, if they are asked for `late` after each other.
    async fn arriving(pauses: &'static [u64], late: u64) -> (usize, bool) {
        let parts = stream::iter(pauses).then(|pause| async move {
            sleep(Duration::from_secs(*pause)).await;
            Ok::<_, axum::Error>(Bytes::from_static(b"x"))
        });
        let mut request = Request::new(Body::from_stream(parts));
        keep_coming(&mut request, Duration::from_secs(10), None);
        let mut body = request.into_body().into_data_stream();
        let mut arrived = 0;
        loop {
            sleep(Duration::from_secs(late)).await;
            match body.next().await {
                Some(Ok(_)) => arrived += 1,
                Some(Err(_)) => return (arrived, false),
                None => return (arrived, true),
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_that_keeps_coming_may_take_as_long_as_it_likes() {
        assert_eq!(arriving(&[9, 9, 9, 9], 0).await, (4, true));
        assert_eq!(arriving(&[9, 11, 9], 0).await, (1, false));
        assert_eq!(arriving(&[9, 9, 9], 30).await, (3, true), "the server is the slow one");
    }
}
