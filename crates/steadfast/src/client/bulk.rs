//! Many jobs at once.

use futures_util::stream;
use steadfast_api::proto::new_job::Kind;
use steadfast_api::proto::{NewJob, NewJobResult, Refusal, SubmitJobRequest, SubmitJobsRequest};
use tonic::{Code, Status};

use super::{Client, ClientError, new_key};
use crate::Job;

/// Jobs of one stream: they are kept until they are answered.
const IN_ONE_STREAM: usize = 8192;
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
        mut requests: impl Iterator<Item = Result<SubmitJobRequest, ClientError>> + Send,
    ) -> Vec<Answer> {
        let mut answers = Vec::new();
        // Why nothing more is sent.
        let mut over: Option<ClientError> = None;
        loop {
            let some: Vec<_> = requests.by_ref().take(IN_ONE_STREAM).collect();
            if some.is_empty() {
                return answers;
            }
            let mut told: Vec<Option<Answer>> = Vec::with_capacity(some.len());
            let mut unanswered = Vec::with_capacity(some.len());
            for (index, request) in some.into_iter().enumerate() {
                told.push(request.as_ref().err().map(|why| Err(same(why))));
                unanswered.extend(request.ok().map(|request| (index, request)));
            }
            let mut pauses = self.pauses();
            while over.is_none() && !unanswered.is_empty() {
                let before = unanswered.len();
                let status = self.submit_stream(&mut unanswered, &mut told).await;
                if unanswered.len() < before {
                    pauses = self.pauses();
                }
                if !unanswered.is_empty() {
                    over = pauses.after(status).await.err();
                }
            }
            answers.extend(told.into_iter().map(|answer| match (answer, &over) {
                (Some(answer), _) => answer,
                (None, Some(why)) => Err(same(why)),
                (None, None) => Err(ClientError::Failed("it was not answered".to_owned())),
            }));
        }
    }

    /// Sends what is unanswered. What is left of it can be sent again; how the stream ended.
    async fn submit_stream(
        &self,
        unanswered: &mut Vec<(usize, SubmitJobRequest)>,
        told: &mut [Option<Answer>],
    ) -> Status {
        let messages = messages(unanswered);
        let mut answers = match self.jobs.clone().submit_jobs(stream::iter(messages)).await {
            Ok(answers) => answers.into_inner(),
            Err(status) => return status,
        };
        let mut again = Vec::new();
        let mut sent = std::mem::take(unanswered).into_iter();
        let status = loop {
            match answers.message().await {
                Ok(Some(message)) => {
                    for (result, (index, request)) in message.results.into_iter().zip(&mut sent) {
                        match read(result) {
                            Some(answer) => told[index] = Some(answer),
                            None => again.push((index, request)),
                        }
                    }
                }
                Ok(None) => break Status::unavailable("the server could not take all of them"),
                Err(status) => break status,
            }
        };
        again.extend(sent);
        *unanswered = again;
        status
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
    request.file.len() + request.files.iter().map(|file| file.content.len()).sum::<usize>()
}

pub(super) fn new_job(request: SubmitJobRequest) -> NewJob {
    NewJob { kind: Some(Kind::Submit(request)) }
}

fn messages(requests: &[(usize, SubmitJobRequest)]) -> Vec<SubmitJobsRequest> {
    let mut messages: Vec<SubmitJobsRequest> = Vec::new();
    let mut bytes = 0;
    for (_, request) in requests {
        let size = size(request);
        let job = new_job(request.clone());
        match messages.last_mut() {
            Some(last) if last.jobs.len() < IN_ONE_MESSAGE && bytes + size <= MESSAGE_BYTES => {
                last.jobs.push(job);
                bytes += size;
            }
            _ => {
                messages.push(SubmitJobsRequest { jobs: vec![job] });
                bytes = size;
            }
        }
    }
    messages
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
