//! An answer on its way: who gets it must still be allowed to, must take it, and a stranger must be done with it
//! in time. What is cut off here is told why, as far as its kind of answer can say it.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::{Body, Bytes, HttpBody};
use axum::http::{HeaderMap, HeaderValue, header};
use axum::response::Response;
use hyper::body::{Frame, SizeHint};
use tokio::time::{Sleep, sleep};

use super::refusal::Refusal;
use crate::unread::{Allowance, COUNTED_FROM, Hold, counted};

/// How often it is looked whether the token of a stream is still good.
const RECHECK: Duration = Duration::from_secs(3);

pub(super) type IsAllowed = Box<dyn Fn() -> bool + Send + Sync>;

/// What holds for an answer while it is under way.
pub(super) struct Terms {
    pub(super) allowance: Allowance,
    /// Whether its client's token is still good. None: it needs none.
    pub(super) is_allowed: Option<IsAllowed>,
    /// It must be over by then.
    pub(super) within: Option<Duration>,
}

/// Refuses an answer that the client has no room for.
pub(super) fn bound(response: Response, terms: Terms) -> Result<Response, Refusal> {
    if response.body().is_end_stream() {
        return Ok(response);
    }
    let kind = Kind::of(response.headers());
    let exact = response.body().size_hint().exact();
    let whole = exact.filter(|size| *size >= COUNTED_FROM as u64);
    let hold = match whole {
        Some(size) => Some(terms.allowance.hold(size as usize).ok_or(Refusal::Unread)?),
        None => None,
    };
    // What is all there needs nobody's leave any more.
    let is_allowed = terms.is_allowed.filter(|_| exact.is_none());
    Ok(response.map(|body| {
        Body::new(Answer {
            body,
            kind,
            allowance: terms.allowance,
            hold,
            is_whole: exact.is_some(),
            recheck: is_allowed.map(|is_allowed| (Box::pin(sleep(RECHECK)), is_allowed)),
            end: terms.within.map(|within| Box::pin(sleep(within))),
            is_over: false,
        })
    }))
}

/// How an answer can say why it ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Grpc,
    Events,
    /// By breaking off: who comes back is told.
    Bytes,
}

impl Kind {
    fn of(headers: &HeaderMap) -> Self {
        let content_type = headers.get(header::CONTENT_TYPE).map(HeaderValue::as_bytes);
        match content_type {
            Some(kind) if kind.starts_with(b"application/grpc") => Self::Grpc,
            Some(kind) if kind.starts_with(b"text/event-stream") => Self::Events,
            _ => Self::Bytes,
        }
    }
}

struct Answer {
    body: Body,
    kind: Kind,
    allowance: Allowance,
    /// Of an answer that is all there, until its bytes are handed over.
    hold: Option<Hold>,
    is_whole: bool,
    recheck: Option<(Pin<Box<Sleep>>, IsAllowed)>,
    end: Option<Pin<Box<Sleep>>>,
    is_over: bool,
}

type Part = Result<Frame<Bytes>, axum::Error>;

impl Answer {
    /// Why it may go on no longer.
    fn ended(&mut self, cx: &mut Context<'_>) -> Option<Refusal> {
        if let Some(end) = &mut self.end
            && end.as_mut().poll(cx).is_ready()
        {
            return Some(Refusal::TooLong);
        }
        if let Some((timer, is_allowed)) = &mut self.recheck {
            while timer.as_mut().poll(cx).is_ready() {
                if !is_allowed() {
                    return Some(Refusal::WrongToken);
                }
                timer.set(sleep(RECHECK));
            }
        }
        None
    }

    /// The last of it.
    fn cut_off(&mut self, why: &Refusal) -> Part {
        self.is_over = true;
        self.body = Body::empty();
        tracing::info!(code = why.code(), %why, "StreamEnded");
        match self.kind {
            Kind::Grpc => {
                let mut trailers = HeaderMap::new();
                // A status is made of what headers can hold.
                let _ = why.status_of_grpc().add_header(&mut trailers);
                Ok(Frame::trailers(trailers))
            }
            Kind::Events => {
                let text = format!("event: problem\ndata: {}\n\n", why.problem());
                Ok(Frame::data(text.into()))
            }
            Kind::Bytes => Err(axum::Error::new(std::io::Error::other(why.to_string()))),
        }
    }

    /// Data that is waited for counts until it is written out.
    fn count(&mut self, frame: Frame<Bytes>) -> Result<Frame<Bytes>, Refusal> {
        let data = match frame.into_data() {
            Ok(data) => data,
            Err(other) => return Ok(other),
        };
        let hold = match self.hold.take() {
            Some(hold) => hold,
            None if self.is_whole || data.len() < COUNTED_FROM => return Ok(Frame::data(data)),
            None => self.allowance.hold(data.len()).ok_or(Refusal::Unread)?,
        };
        Ok(Frame::data(counted(data, hold)))
    }
}

impl HttpBody for Answer {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Part>> {
        if self.is_over {
            return Poll::Ready(None);
        }
        if let Some(why) = self.ended(cx) {
            return Poll::Ready(Some(self.cut_off(&why)));
        }
        Pin::new(&mut self.body).poll_frame(cx).map(|frame| match frame {
            Some(Ok(frame)) => Some(self.count(frame).or_else(|why| self.cut_off(&why))),
            other => other,
        })
    }

    fn is_end_stream(&self) -> bool {
        self.is_over || self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
