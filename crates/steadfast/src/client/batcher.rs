//! Small submissions that are under way at the same time share a `SubmitJobs` stream: a call of its own costs client
//! and server more than the job in it.

use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use futures_util::stream;
use steadfast_api::proto::jobs_client::JobsClient;
use steadfast_api::proto::{NewJobResult, SubmitJobRequest, SubmitJobsRequest, SubmitJobsResponse};
use steadfast_worker::remote::Connected;
use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tokio::time::Sleep;
use tonic::{Code, Status, Streaming};

use super::bulk::{IN_ONE_MESSAGE, MESSAGE_BYTES, new_job, size};
use super::now;

/// A stream ends after this long without a submission.
const IDLE: Duration = Duration::from_secs(1);
/// Larger job files, and those with attached files, travel alone: the server takes longer over them, and answers a
/// stream in order.
const SMALL: usize = 8 << 10;
/// Those whose callers have given up are looked for when so many are unsent, and then at every doubling.
const SWEEP: usize = 256;

/// The id of the job, or how `SubmitJob` would have been refused.
type Answer = Result<String, Status>;

/// The stream that all clones of a client share, while there is one. Its task is of the runtime that the connection is of: that of
/// a caller may stand still while others submit.
#[derive(Clone, Debug)]
pub(super) struct SubmitBatcher {
    current: Arc<Mutex<Option<SubmitStream>>>,
    runtime: Handle,
}

impl SubmitBatcher {
    /// Within the runtime of the connection.
    pub(super) fn new() -> Self {
        Self { current: Arc::default(), runtime: Handle::current() }
    }

    pub(super) fn takes(request: &SubmitJobRequest) -> bool {
        request.files.is_empty() && size(request) <= SMALL
    }

    pub(super) async fn submit(
        &self,
        jobs: &JobsClient<Connected>,
        request: SubmitJobRequest,
    ) -> Answer {
        let (answer, answered) = oneshot::channel();
        {
            let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
            let submission = Submission { request, answer };
            let left = match &*current {
                Some(stream) => stream.push(submission).err(),
                None => Some(submission),
            };
            if let Some(submission) = left {
                // Before its task begins: a call that is refused at once ends with what it has.
                let opened = SubmitStream::of(submission);
                self.runtime.spawn(StreamTask(opened.clone()).run(jobs.clone()));
                *current = Some(opened);
            }
        }
        answered.await.unwrap_or_else(|_| Err(ended()))
    }
}

#[derive(Debug)]
struct Submission {
    request: SubmitJobRequest,
    answer: oneshot::Sender<Answer>,
}

#[derive(Clone, Debug)]
struct SubmitStream(Arc<Mutex<StreamState>>);

#[derive(Debug, Default)]
struct StreamState {
    unsent: VecDeque<Submission>,
    /// In the order of their answers.
    unanswered: VecDeque<oneshot::Sender<Answer>>,
    sweep_at: usize,
    /// The sender waits for a submission.
    sender: Option<Waker>,
    /// The next submission needs another stream.
    is_over: bool,
}

impl SubmitStream {
    fn of(first: Submission) -> Self {
        let state = StreamState { unsent: VecDeque::from([first]), ..StreamState::default() };
        Self(Arc::new(Mutex::new(state)))
    }

    fn state(&self) -> MutexGuard<'_, StreamState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Gives back what comes after the stream's end: nobody would answer it.
    fn push(&self, submission: Submission) -> Result<(), Submission> {
        let sender = {
            let mut state = self.state();
            if state.is_over {
                return Err(submission);
            }
            if state.unsent.len() >= state.sweep_at.max(SWEEP) {
                state.unsent.retain(|submission| !submission.answer.is_closed());
                state.sweep_at = state.unsent.len() * 2;
            }
            state.unsent.push_back(submission);
            state.sender.take()
        };
        if let Some(sender) = sender {
            sender.wake();
        }
        Ok(())
    }
}

impl StreamState {
    fn next_message(&mut self) -> Option<SubmitJobsRequest> {
        let (mut jobs, mut bytes) = (Vec::new(), 0);
        while jobs.len() < IN_ONE_MESSAGE
            && bytes < MESSAGE_BYTES
            && let Some(Submission { request, answer }) = self.unsent.pop_front()
        {
            // Its caller has given up: nobody would know of the job.
            if answer.is_closed() {
                continue;
            }
            bytes += size(&request);
            jobs.push(new_job(request));
            self.unanswered.push_back(answer);
        }
        (!jobs.is_empty()).then_some(SubmitJobsRequest { jobs })
    }
}

/// The client's half of the stream.
struct Sender {
    stream: SubmitStream,
    idle: Pin<Box<Sleep>>,
    /// Something was sent since `idle` was set.
    is_used: bool,
    /// Tasks that submit at the same moment as the one that woke the sender have run since.
    has_yielded: bool,
}

impl Sender {
    fn new(stream: SubmitStream) -> Self {
        let idle = Box::pin(tokio::time::sleep(IDLE));
        Self { stream, idle, is_used: false, has_yielded: false }
    }

    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<SubmitJobsRequest>> {
        let mut state = self.stream.state();
        if !state.unsent.is_empty() {
            if !std::mem::replace(&mut self.has_yielded, true) {
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
            self.has_yielded = false;
            // All of their callers may have given up.
            if let Some(message) = state.next_message() {
                self.is_used = true;
                return Poll::Ready(Some(message));
            }
        }
        while self.idle.as_mut().poll(cx).is_ready() {
            if !std::mem::take(&mut self.is_used) {
                state.is_over = true;
                return Poll::Ready(None);
            }
            self.idle.as_mut().reset(now() + IDLE);
        }
        state.sender = Some(cx.waker().clone());
        Poll::Pending
    }
}

/// However it ends, also with its runtime: every submission that is left is answered.
struct StreamTask(SubmitStream);

impl StreamTask {
    async fn run(self, mut jobs: JobsClient<Connected>) {
        let mut sender = Sender::new(self.0.clone());
        let messages = stream::poll_fn(move |cx| sender.poll_next(cx));
        let status = match jobs.submit_jobs(messages).await {
            Ok(answers) => self.answer(answers.into_inner()).await,
            Err(status) => status,
        };
        self.end(&status);
    }

    /// Until the stream ends; how it did.
    async fn answer(&self, mut answers: Streaming<SubmitJobsResponse>) -> Status {
        loop {
            let results = match answers.message().await {
                Ok(Some(message)) => message.results,
                Ok(None) => return ended(),
                Err(status) => return status,
            };
            let answered: Vec<_> = {
                let unanswered = &mut self.0.state().unanswered;
                let some = results.len().min(unanswered.len());
                unanswered.drain(..some).collect()
            };
            for (answer, result) in answered.into_iter().zip(results) {
                // A caller that was cancelled waits for none.
                answer.send(read(result)).ok();
            }
        }
    }

    fn end(&self, status: &Status) {
        let (unsent, unanswered) = {
            let mut state = self.0.state();
            state.is_over = true;
            (std::mem::take(&mut state.unsent), std::mem::take(&mut state.unanswered))
        };
        let unsent = unsent.into_iter().map(|submission| submission.answer);
        for answer in unanswered.into_iter().chain(unsent) {
            answer.send(Err(status.clone())).ok();
        }
    }
}

impl Drop for StreamTask {
    fn drop(&mut self) {
        self.end(&ended());
    }
}

fn ended() -> Status {
    Status::unavailable("the server ended the stream")
}

fn read(result: NewJobResult) -> Answer {
    match result.refusal {
        None => Ok(result.job_id),
        Some(refusal) => Err(Status::new(Code::from_i32(refusal.code), refusal.message)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn submission() -> (Submission, oneshot::Receiver<Answer>) {
        let (answer, answered) = oneshot::channel();
        (Submission { request: SubmitJobRequest::default(), answer }, answered)
    }

    /// A caller whose patience was short may have been the only one: the stream goes on for the next.
    #[tokio::test]
    async fn callers_that_have_given_up_end_no_stream_and_do_not_pile_up() {
        let (first, _) = submission();
        let stream = SubmitStream::of(first);
        let mut sender = Sender::new(stream.clone());
        let mut cx = Context::from_waker(Waker::noop());
        for _ in 0..3 {
            assert!(sender.poll_next(&mut cx).is_pending());
        }
        for _ in 0..100 * SWEEP {
            let (given_up, _) = submission();
            stream.push(given_up).expect("it is open");
        }
        assert!(stream.state().unsent.len() <= SWEEP);
        let (last, _answered) = submission();
        stream.push(last).expect("it is open");
        assert!(sender.poll_next(&mut cx).is_pending(), "others may come at the same moment");
        let Poll::Ready(Some(message)) = sender.poll_next(&mut cx) else { panic!("it is sent") };
        assert_eq!((message.jobs.len(), stream.state().unanswered.len()), (1, 1));
    }

    /// It would wait for ever: the call may be refused, and its stream be over, before the next line of the caller runs.
    #[tokio::test]
    async fn what_comes_after_the_end_of_a_stream_is_given_back_and_what_came_before_is_answered() {
        let (first, first_answered) = submission();
        let (second, second_answered) = submission();
        let (third, _) = submission();
        let stream = SubmitStream::of(first);
        stream.push(second).expect("it is open");
        drop(StreamTask(stream.clone()));
        assert!(stream.push(third).is_err());
        for answered in [first_answered, second_answered] {
            assert_eq!(
                answered.await.expect("answered").expect_err("ended").code(),
                Code::Unavailable
            );
        }
    }
}
