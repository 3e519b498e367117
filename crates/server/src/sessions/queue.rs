//! What a worker is still to be told. Bounded, whatever it says and however little it reads.
//!
//! Who tells never waits: it is the engine's thread. So a worker that does not take what it is told loses its
//! session, and is told again when it comes back.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use steadfast_api::proto;
use tokio::sync::watch;
use tokio_stream::Stream;
use tonic::Status;

use proto::to_worker::Kind;

/// Messages that wait, assignments not counted: more than three times the most slots that a worker can have, and
/// a few MiB. Of assignments the engine gives no more than there are slots, and a few ahead.
const MOST_WAITING: usize = 32_768;

/// One end: whoever tells. When the last clone is gone, what waits is still taken, and then it is over.
#[derive(Clone, Debug)]
pub(super) struct Outgoing(Arc<Open>);

#[derive(Debug)]
struct Open(Arc<Shared>);

/// The other: the stream that gRPC reads from when the worker has room for more.
#[derive(Debug)]
pub(super) struct OutgoingStream(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
    /// The worker is not listened to any more.
    ended: watch::Sender<bool>,
    /// Answers to beats that one after the other may replace, before the worker is taken not to read.
    unread_beats: u64,
}

#[derive(Debug, Default)]
struct State {
    waiting: VecDeque<Kind>,
    /// How many of them are not assignments.
    counted: usize,
    /// The latest that is to be answered: it answers all before it.
    beat: Option<proto::Beat>,
    /// How many answers it has taken the place of.
    replaced: u64,
    closed: bool,
    last: Option<Status>,
    waker: Option<Waker>,
}

/// `unread_beats`: as many as a worker that reads can have unanswered.
pub(super) fn queue(unread_beats: u64) -> (Outgoing, OutgoingStream) {
    let shared = Arc::new(Shared {
        state: Mutex::default(),
        ended: watch::Sender::new(false),
        unread_beats,
    });
    (Outgoing(Arc::new(Open(shared.clone()))), OutgoingStream(shared))
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        // Whoever panicked left plain values behind.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn close(&self, last: Option<Status>) {
        let mut state = self.state();
        if state.closed {
            return;
        }
        state.closed = true;
        if last.is_some() {
            state.waiting = VecDeque::new();
            state.beat = None;
            state.last = last;
        }
        let waker = state.waker.take();
        drop(state);
        if let Some(waker) = waker {
            waker.wake();
        }
        self.ended.send_replace(true);
    }
}

impl Outgoing {
    /// Says it as soon as the worker takes it. Returns why the session is over, if it ends with this.
    pub(super) fn send(&self, kind: Kind) -> Result<(), &'static str> {
        let shared = &self.0.0;
        let mut state = shared.state();
        if state.closed {
            return Ok(());
        }
        match kind {
            Kind::Beat(beat) => {
                state.replaced = state.beat.map_or(0, |_| state.replaced + 1);
                state.beat = Some(beat);
            }
            kind => {
                state.counted += usize::from(!matches!(kind, Kind::Assignment(_)));
                state.waiting.push_back(kind);
            }
        }
        let too_much = state.counted > MOST_WAITING || state.replaced > shared.unread_beats;
        let waker = state.waker.take();
        drop(state);
        if let Some(waker) = waker {
            waker.wake();
        }
        if too_much {
            self.end(Status::resource_exhausted(UNREAD));
            return Err(UNREAD);
        }
        Ok(())
    }

    /// With these last words, instead of all that waits.
    pub(super) fn end(&self, why: Status) {
        self.0.0.close(Some(why));
    }

    /// The worker is not listened to any more. What it is still owed it is told: acknowledgements of what it said.
    pub(super) fn hang_up(&self) {
        self.0.0.ended.send_replace(true);
    }

    /// Returns when the worker is not to be listened to any more, also because it does not listen.
    pub(super) async fn ended(&self) {
        let mut ended = self.0.0.ended.subscribe();
        let _ = ended.wait_for(|ended| *ended).await;
    }

    #[cfg(test)]
    fn waiting(&self) -> usize {
        let state = self.0.0.state();
        state.waiting.len() + usize::from(state.beat.is_some())
    }
}

pub(super) const UNREAD: &str = "the worker does not read what it is told";

impl Drop for Open {
    fn drop(&mut self) {
        self.0.close(None);
    }
}

impl Drop for OutgoingStream {
    fn drop(&mut self) {
        self.0.close(Some(Status::cancelled("nobody listens")));
    }
}

impl Stream for OutgoingStream {
    type Item = Result<proto::ToWorker, Status>;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let mut state = self.0.state();
        // A beat first: what runs at the worker depends on it.
        let next = match state.beat.take() {
            Some(beat) => Some(Kind::Beat(beat)),
            None => state.waiting.pop_front(),
        };
        if let Some(kind) = next {
            let counted = !matches!(kind, Kind::Beat(_) | Kind::Assignment(_));
            state.counted -= usize::from(counted);
            return Poll::Ready(Some(Ok(proto::ToWorker { kind: Some(kind) })));
        }
        if state.closed {
            return Poll::Ready(state.last.take().map(Err));
        }
        state.waker = Some(context.waker().clone());
        Poll::Pending
    }
}

#[cfg(test)]
mod tests {
    use tokio_stream::StreamExt as _;
    use tonic::Code;

    use super::*;

    fn beat(number: u64) -> Kind {
        Kind::Beat(proto::Beat { number })
    }

    fn acknowledged(token: u64) -> Kind {
        let attempt = Some(proto::AttemptRef { token, ..Default::default() });
        Kind::Acknowledgement(proto::Acknowledgement { attempt, counted: true })
    }

    #[tokio::test]
    async fn the_latest_beat_answers_all_before_it_and_comes_first() {
        let (outgoing, mut told) = queue(16);
        outgoing.send(acknowledged(1)).unwrap();
        for number in 1..=3 {
            outgoing.send(beat(number)).unwrap();
        }
        assert_eq!(outgoing.waiting(), 2);
        drop(outgoing);
        let mut kinds = Vec::new();
        while let Some(message) = told.next().await {
            kinds.push(message.unwrap().kind.unwrap());
        }
        assert_eq!(kinds, [beat(3), acknowledged(1)], "and what waits is still told");
    }

    #[tokio::test]
    async fn who_beats_without_reading_holds_one_answer_and_loses_the_session() {
        let (outgoing, mut told) = queue(16);
        let mut said = 0;
        while outgoing.send(beat(said)).is_ok() {
            said += 1;
            assert_eq!(outgoing.waiting(), 1);
            assert!(said <= 17, "it is never taken not to read");
        }
        outgoing.ended().await;
        assert_eq!(outgoing.waiting(), 0);
        let last = told.next().await.unwrap().unwrap_err();
        assert_eq!((last.code(), last.message()), (Code::ResourceExhausted, UNREAD));
        assert!(told.next().await.is_none());
    }

    #[tokio::test]
    async fn answers_that_nobody_reads_are_bounded_and_assignments_are_the_engines_to_bound() {
        let (outgoing, _told) = queue(16);
        for _ in 0..=MOST_WAITING {
            outgoing.send(Kind::Assignment(proto::Assignment::default())).unwrap();
        }
        for token in 0..MOST_WAITING as u64 {
            outgoing.send(acknowledged(token)).unwrap();
        }
        assert_eq!(outgoing.send(acknowledged(0)), Err(UNREAD));
        assert_eq!(outgoing.waiting(), 0, "nothing is held for it any more");
        outgoing.send(acknowledged(1)).unwrap();
        assert_eq!(outgoing.waiting(), 0);
    }

    #[tokio::test]
    async fn it_is_over_when_nobody_listens() {
        let (outgoing, told) = queue(16);
        drop(told);
        outgoing.ended().await;
    }
}
