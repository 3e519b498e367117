//! Many jobs at once.

use std::collections::VecDeque;
use std::time::Duration;

use futures_util::stream;
use steadfast_api::proto::new_job::Kind;
use steadfast_api::proto::{NewJob, NewJobResult, Refusal, SubmitJobRequest, SubmitJobsRequest};
use tokio::sync::mpsc;
use tonic::{Code, Status};

use super::{Client, ClientError, new_key, now};
use crate::Job;

/// Submissions that are under way, and their bytes: they are kept until they are answered.
const UNANSWERED_MOST: usize = 8192;
const UNANSWERED_BYTES: usize = 64 << 20;
/// A message is sent as it is when it takes longer to make.
const SLOW: Duration = Duration::from_secs(1);
/// Messages that the connection has not taken yet: while one is sent, the next is made.
const MESSAGES_AHEAD: usize = 2;
/// Of one message: so many, and not many more bytes.
pub(super) const IN_ONE_MESSAGE: usize = 256;
pub(super) const MESSAGE_BYTES: usize = 1 << 20;
/// No server takes a larger message, and one that is too large would break the stream for all.
const LARGEST_JOB: usize = 15 << 20;

type Answer = Result<String, ClientError>;

impl Client {
    /// [Submits](Self::submit) many jobs, some ten times as many a second as one by one. Each has its own answer, in
    /// order: its id, or why it was refused. All that have an id are durable when this returns.
    ///
    /// ```no_run
    /// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
    /// # let client = steadfast::Client::connect("http://127.0.0.1:7117").await?;
    /// use steadfast::{Job, Step};
    ///
    /// let step = |file: u32| Step::call("one", "resize").input(&format!("{file}.png"));
    /// let jobs = (0..10_000).map(|file| Ok(Job::new("resize").step(step(file)?)));
    /// let jobs = jobs.collect::<Result<Vec<_>, serde_json::Error>>()?;
    /// for answer in client.submit_all(jobs).await {
    ///     println!("{}", answer?);
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub async fn submit_all<I>(&self, jobs: I) -> Vec<Answer>
    where
        I: IntoIterator<Item = Job, IntoIter: Send>,
    {
        self.submit_requests(jobs.into_iter().map(|job| request(&job, new_key()?))).await
    }

    /// The same job under the same key is one job, as of [`submit_with_key`](Self::submit_with_key).
    pub async fn submit_all_with_keys<I>(&self, jobs: I) -> Vec<Answer>
    where
        I: IntoIterator<Item = (Job, String), IntoIter: Send>,
    {
        self.submit_requests(jobs.into_iter().map(|(job, key)| request(&job, key))).await
    }

    async fn submit_requests(
        &self,
        requests: impl Iterator<Item = Result<SubmitJobRequest, ClientError>> + Send,
    ) -> Vec<Answer> {
        let mut submissions = Submissions::of(requests);
        let mut pauses = self.pauses();
        let mut answered = None;
        while submissions.look_ahead() {
            let status = self.submit_stream(&mut submissions).await;
            // Its patience is for a server that answers nothing, however long the jobs took to make.
            if answered.replace(submissions.answered) != Some(submissions.answered) {
                pauses.begin_anew(self.patience);
            }
            if submissions.look_ahead()
                && let Err(over) = pauses.after(status).await
            {
                return submissions.told(&over);
            }
        }
        submissions.told(&ClientError::Failed("it was not answered".to_owned()))
    }

    /// Sends what is unanswered. What is left of it can be sent again; how the stream ended.
    async fn submit_stream<R>(&self, submissions: &mut Submissions<R>) -> Status
    where
        R: Iterator<Item = Result<SubmitJobRequest, ClientError>> + Send,
    {
        let (messages, mut sent) = mpsc::channel(MESSAGES_AHEAD);
        let sent = stream::poll_fn(move |cx| sent.poll_recv(cx));
        let mut answers = match self.jobs.clone().submit_jobs(sent).await {
            Ok(answers) => answers.into_inner(),
            Err(status) => {
                submissions.send_again(Vec::new());
                return status;
            }
        };
        let (mut messages, mut is_all, mut again) = (Some(messages), false, Vec::new());
        let status = loop {
            let room = async {
                match &messages {
                    Some(messages) => messages.reserve().await.ok(),
                    None => None,
                }
            };
            tokio::select! {
                room = room, if messages.is_some() && submissions.may_send() => {
                    let next = room.and_then(|room| Some((room, submissions.next_message()?)));
                    is_all = next.map(|(room, message)| room.send(message)).is_none();
                }
                answered = answers.message() => match answered {
                    Ok(Some(message)) => again.extend(submissions.answer(message.results)),
                    Ok(None) => break Status::unavailable("the server could not take all of them"),
                    Err(status) => break status,
                },
            }
            // Who gives some back has too much to do: the rest waits for the next stream.
            if is_all || !again.is_empty() {
                messages = None;
            }
        };
        submissions.send_again(again);
        status
    }
}

/// Jobs to be submitted, and what has come of them.
struct Submissions<R> {
    requests: R,
    /// Each with the place of its answer, in order. These were taken from `requests`, and are in no stream.
    unsent: VecDeque<Numbered>,
    /// In the order of their answers.
    sent: VecDeque<Numbered>,
    sent_bytes: usize,
    answers: Vec<Option<Answer>>,
    answered: usize,
}

type Numbered = (usize, SubmitJobRequest);

impl<R: Iterator<Item = Result<SubmitJobRequest, ClientError>>> Submissions<R> {
    fn of(requests: R) -> Self {
        let (unsent, sent) = (VecDeque::new(), VecDeque::new());
        Self { requests, unsent, sent, sent_bytes: 0, answers: Vec::new(), answered: 0 }
    }

    fn may_send(&self) -> bool {
        self.sent.len() < UNANSWERED_MOST && self.sent_bytes < UNANSWERED_BYTES
    }

    /// Whether there is one to be sent.
    fn look_ahead(&mut self) -> bool {
        if let Some(next) = self.next() {
            self.unsent.push_front(next);
        }
        !self.unsent.is_empty()
    }

    fn next(&mut self) -> Option<Numbered> {
        while self.unsent.is_empty() {
            match self.requests.next() {
                Some(Ok(request)) => {
                    self.unsent.push_back((self.answers.len(), request));
                    self.answers.push(None);
                }
                Some(Err(why)) => self.answers.push(Some(Err(why))),
                None => break,
            }
        }
        self.unsent.pop_front()
    }

    fn next_message(&mut self) -> Option<SubmitJobsRequest> {
        let (mut jobs, mut bytes, begun) = (Vec::new(), 0, now());
        while jobs.len() < IN_ONE_MESSAGE
            && (jobs.is_empty() || begun.elapsed() < SLOW)
            && let Some((place, request)) = self.next()
        {
            bytes += size(&request);
            if bytes > MESSAGE_BYTES && !jobs.is_empty() {
                self.unsent.push_front((place, request));
                break;
            }
            jobs.push(new_job(request.clone()));
            self.sent_bytes += size(&request);
            self.sent.push_back((place, request));
        }
        (!jobs.is_empty()).then_some(SubmitJobsRequest { jobs })
    }

    /// Those that are to be sent again.
    fn answer(&mut self, results: Vec<NewJobResult>) -> Vec<Numbered> {
        let mut again = Vec::new();
        for result in results {
            let Some((place, request)) = self.sent.pop_front() else { break };
            self.sent_bytes -= size(&request);
            match read(result) {
                Some(answer) => {
                    self.answers[place] = Some(answer);
                    self.answered += 1;
                }
                None => again.push((place, request)),
            }
        }
        again
    }

    /// The stream is over; these it has given back.
    fn send_again(&mut self, given_back: Vec<Numbered>) {
        let left = std::mem::take(&mut self.sent);
        self.sent_bytes = 0;
        let unsent = std::mem::take(&mut self.unsent);
        self.unsent = given_back.into_iter().chain(left).chain(unsent).collect();
    }

    /// Nothing more is sent: all that have no answer have this one.
    fn told(mut self, why: &ClientError) -> Vec<Answer> {
        let rest = self.requests.by_ref().map(|request| Some(request.and(Err(same(why)))));
        self.answers.extend(rest);
        self.answers.into_iter().map(|answer| answer.unwrap_or_else(|| Err(same(why)))).collect()
    }
}

fn request(job: &Job, key: String) -> Result<SubmitJobRequest, ClientError> {
    let file = serde_json::to_string(job).map_err(ClientError::unintelligible)?;
    let request = SubmitJobRequest { file, files: job.attached(), idempotency_key: key };
    if size(&request) > LARGEST_JOB {
        let why = format!("a job has at most {LARGEST_JOB} bytes with its files");
        return Err(ClientError::TooLarge(why));
    }
    Ok(request)
}

pub(super) fn size(request: &SubmitJobRequest) -> usize {
    let files = request.files.iter().map(|file| file.content.len());
    request.file.len() + request.idempotency_key.len() + files.sum::<usize>()
}

pub(super) fn new_job(request: SubmitJobRequest) -> NewJob {
    NewJob { kind: Some(Kind::Submit(request)) }
}

/// None: it is to be sent again.
fn read(result: NewJobResult) -> Option<Answer> {
    let Some(Refusal { code, message }) = result.refusal else { return Some(Ok(result.job_id)) };
    let why = match Code::from_i32(code) {
        Code::Unavailable | Code::ResourceExhausted => return None,
        Code::OutOfRange => ClientError::TooLarge(message),
        Code::InvalidArgument => ClientError::Invalid(message),
        Code::AlreadyExists => ClientError::Conflict(message),
        Code::PermissionDenied | Code::Unauthenticated => ClientError::NotAllowed(message),
        _ => ClientError::Failed(message),
    };
    Some(Err(why))
}

/// Of all jobs that it holds for.
fn same(why: &ClientError) -> ClientError {
    match why {
        ClientError::Unreachable { server, why } => {
            ClientError::Unreachable { server: server.clone(), why: why.clone() }
        }
        ClientError::NotAllowed(why) => ClientError::NotAllowed(why.clone()),
        ClientError::TooLarge(why) => ClientError::TooLarge(why.clone()),
        ClientError::Unintelligible(why) => ClientError::Unintelligible(why.clone()),
        why => ClientError::Failed(why.to_string()),
    }
}
