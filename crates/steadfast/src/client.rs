//! Jobs on a server: submitted, followed, ended.

mod batcher;
mod bulk;
mod rest;

use std::future::Future;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use futures_util::stream::{self, Stream};
use steadfast_api::proto;
use steadfast_api::proto::jobs_client::JobsClient;
use steadfast_api::proto::new_job::Kind;
use steadfast_worker::remote::{Connected, LocalToken, RemoteError};
use tokio::time::Instant;
use tonic::{Code, Streaming};

use crate::{Job, Query, Server, Status, Summary};
use batcher::SubmitBatcher;

/// A server that restarts is back soon; one that does not answer for `PATIENCE` is gone.
const PATIENCE: Duration = Duration::from_mins(1);
/// Between tries: the first ones short.
const FIRST_PAUSE: Duration = Duration::from_millis(20);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);
/// A status holds outputs; the server keeps it below 2 MiB.
const LARGEST_MESSAGE: usize = 16 << 20;

/// Why a server did not do what it was asked.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ClientError {
    #[error("the server cannot be used: {0}")]
    Address(String),
    #[error("the server {server} cannot be reached: {why}")]
    Unreachable { server: String, why: String },
    /// With everything that is wrong with it.
    #[error("{0}")]
    Invalid(String),
    #[error("{0}")]
    NotFound(String),
    /// More than the server takes.
    #[error("{0}")]
    TooLarge(String),
    /// A token is missing, or may not do this.
    #[error("not allowed: {0}")]
    NotAllowed(String),
    /// The key belongs to another job, or the job has ended already.
    #[error("{0}")]
    Conflict(String),
    #[error("the server does not speak our language: {0}")]
    Unintelligible(String),
    #[error("the server failed: {0}")]
    Failed(String),
}

impl ClientError {
    #[allow(clippy::needless_pass_by_value, reason = "the shape `map_err` wants")]
    pub(crate) fn unintelligible(error: serde_json::Error) -> Self {
        Self::Unintelligible(error.to_string())
    }
}

/// Speaks to a server. Cheap to clone; all clones share a connection, which is made anew when it breaks.
#[derive(Clone, Debug)]
pub struct Client {
    server: String,
    jobs: JobsClient<Connected>,
    /// The same connection, for what REST alone has.
    connected: Connected,
    batcher: SubmitBatcher,
    patience: Duration,
}

impl Client {
    /// ```no_run
    /// # async fn example() -> Result<(), steadfast::ClientError> {
    /// use steadfast::{Client, Job, Step};
    ///
    /// let client = Client::connect("http://127.0.0.1:7117").await?;
    /// let job = Job::new("hello").step(Step::run("greet", "echo hello"));
    /// let id = client.submit(&job).await?;
    /// assert!(client.wait(&id).await?.is_success());
    /// # Ok(())
    /// # }
    /// ```
    pub async fn connect(server: impl Into<Server>) -> Result<Self, ClientError> {
        let dialer = server.into().dialer().map_err(|error| match error {
            RemoteError::Refused { message, .. } => ClientError::NotAllowed(message),
            error => ClientError::Address(error.to_string()),
        })?;
        let dialer = dialer.keep_alive();
        let server = dialer.address().to_owned();
        let connected = dialer.connect().await.map_err(|status| ClientError::Unreachable {
            server: server.clone(),
            why: status.message().to_owned(),
        })?;
        let jobs = JobsClient::new(connected.clone()).max_decoding_message_size(LARGEST_MESSAGE);
        let batcher = SubmitBatcher::new();
        Ok(Self { server, jobs, connected, batcher, patience: PATIENCE })
    }

    /// How long a server that went away is waited for. Otherwise a minute.
    #[must_use]
    pub fn patience(mut self, patience: Duration) -> Self {
        self.patience = patience;
        self
    }

    /// The job's id. It is durable when this returns. Tries again while the server is away; the job is
    /// accepted once, however often it is sent.
    pub async fn submit(&self, job: &Job) -> Result<String, ClientError> {
        self.submit_with_key(job, &new_key()?).await
    }

    /// The same job under the same key is one job, whichever client submits it and whenever.
    pub async fn submit_with_key(&self, job: &Job, key: &str) -> Result<String, ClientError> {
        let file = serde_json::to_string(job).map_err(ClientError::unintelligible)?;
        self.send(file, job.attached(), key).await
    }

    /// A job file, YAML or JSON, that needs no other files.
    pub async fn submit_file(&self, text: &str, key: &str) -> Result<String, ClientError> {
        self.send(text.to_owned(), Vec::new(), key).await
    }

    async fn send(
        &self,
        file: String,
        files: Vec<proto::AttachedFile>,
        key: &str,
    ) -> Result<String, ClientError> {
        let request = proto::SubmitJobRequest { file, files, idempotency_key: key.to_owned() };
        let mut pauses = self.pauses();
        loop {
            let answer = if SubmitBatcher::takes(&request) {
                self.batcher.submit(&self.jobs, request.clone()).await
            } else {
                let answer = self.jobs.clone().submit_job(request.clone()).await;
                answer.map(|answer| answer.into_inner().job_id)
            };
            match answer {
                Ok(id) => return Ok(id),
                Err(status) => pauses.after(status).await?,
            }
        }
    }

    /// [Submits](Self::submit) the job and [waits](Self::wait) for it, in one call.
    ///
    /// ```no_run
    /// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
    /// # let client = steadfast::Client::connect("http://127.0.0.1:7117").await?;
    /// use steadfast::{Job, Step};
    ///
    /// let job = Job::new("resize").step(Step::call("one", "resize").input(&"cat.png")?);
    /// assert!(client.run(&job).await?.is_success());
    /// # Ok(())
    /// # }
    /// ```
    pub async fn run(&self, job: &Job) -> Result<Status, ClientError> {
        self.run_with_key(job, &new_key()?).await
    }

    /// The same job under the same key is run once: who asks again waits for it, or hears at once how it ended.
    pub async fn run_with_key(&self, job: &Job, key: &str) -> Result<Status, ClientError> {
        let file = serde_json::to_string(job).map_err(ClientError::unintelligible)?;
        let files = job.attached();
        let submit = proto::SubmitJobRequest { file, files, idempotency_key: key.to_owned() };
        let request = proto::NewJob { kind: Some(Kind::Submit(submit)) };
        let mut pauses = self.pauses();
        loop {
            let mut jobs = self.jobs.clone();
            let mut told = match jobs.run_job(request.clone()).await {
                Ok(told) => told.into_inner(),
                Err(status) => {
                    pauses.after(status).await?;
                    continue;
                }
            };
            let mut id = None;
            let status = loop {
                match told.message().await {
                    Ok(Some(proto::RunJobResponse { job: Some(job), .. })) => {
                        return Status::read(job);
                    }
                    Ok(Some(begun)) => id = Some(begun.job_id),
                    Ok(None) => break tonic::Status::unavailable("the server ended the stream"),
                    Err(status) => break status,
                }
            };
            // The server went away: the job is known by its id, or by its key.
            match id {
                Some(id) => return self.wait(&id).await,
                None => pauses.after(status).await?,
            }
        }
    }

    pub async fn status(&self, job: &str) -> Result<Status, ClientError> {
        let request = proto::GetJobStatusRequest { job_id: job.to_owned() };
        let answer = self.ask(|mut jobs| {
            let request = request.clone();
            async move { jobs.get_job_status(request).await }
        });
        Status::read(answer.await?.job.unwrap_or_default())
    }

    /// The newest first.
    pub async fn list(&self, query: &Query) -> Result<Vec<Summary>, ClientError> {
        let mut found = Vec::new();
        let mut cursor = String::new();
        while let Some(request) = query.page(found.len(), cursor) {
            let page = self.ask(|mut jobs| {
                let request = request.clone();
                async move { jobs.list_jobs(request).await }
            });
            let page = page.await?;
            found.extend(page.jobs.into_iter().map(Summary::from));
            cursor = page.next_cursor;
            if cursor.is_empty() {
                break;
            }
        }
        Ok(found)
    }

    /// Returns when the job has ended, with how it stands then.
    pub async fn wait(&self, job: &str) -> Result<Status, ClientError> {
        let mut watch = self.told(job, true);
        loop {
            let told = watch.next().await?;
            if is_over(&told) {
                return Status::read(told);
            }
        }
    }

    /// How the job stands now, and again after changes, until it has ended: the last one is how it ended.
    /// Goes on when the server was away.
    pub fn watch(
        &self,
        job: &str,
    ) -> impl Stream<Item = Result<Status, ClientError>> + Send + use<> {
        stream::unfold(Some(self.told(job, false)), |watch| async {
            let mut watch = watch?;
            match watch.next().await {
                Ok(told) if !is_over(&told) => Some((Status::read(told), Some(watch))),
                told => Some((told.and_then(Status::read), None)),
            }
        })
    }

    /// A job that is cancelled is never retried. Cancelling it again changes nothing; one that has ended
    /// otherwise is a [conflict](ClientError::Conflict).
    pub async fn cancel(&self, job: &str) -> Result<(), ClientError> {
        let request = proto::TerminateJobRequest { job_id: job.to_owned(), reason: String::new() };
        let answer = self.ask(|mut jobs| {
            let request = request.clone();
            async move { jobs.terminate_job(request).await }
        });
        answer.await.map(drop)
    }

    /// As often as it takes, while the server is away. The call is a plain `Fn`: of an `AsyncFn` the compiler
    /// cannot tell that its futures are `Send`, and then no task could be spawned that calls the client.
    async fn ask<T, C, F>(&self, call: C) -> Result<T, ClientError>
    where
        C: Fn(JobsClient<Connected>) -> F,
        F: Future<Output = Result<tonic::Response<T>, tonic::Status>>,
    {
        let mut pauses = self.pauses();
        loop {
            match call(self.jobs.clone()).await {
                Ok(answer) => return Ok(answer.into_inner()),
                Err(status) => pauses.after(status).await?,
            }
        }
    }

    fn told(&self, job: &str, end_only: bool) -> Watch {
        let request = proto::WatchJobRequest { job_id: job.to_owned(), end_only };
        Watch { client: self.clone(), request, open: None }
    }

    fn pauses(&self) -> Pauses {
        let (server, until) = (self.server.clone(), now() + self.patience);
        let left = LocalToken::Client.found(&server).map(|token| token.0);
        Pauses { server, until, next: FIRST_PAUSE, left }
    }
}

/// So that a request whose answer was lost can be sent again. It begins with the time: keys that come one after the
/// other lie side by side in the store's index.
#[allow(clippy::disallowed_methods, reason = "nothing depends on the time in a key")]
fn new_key() -> Result<String, ClientError> {
    /// Of this process. With the number of the key no other is the same.
    static RANDOM: OnceLock<u64> = OnceLock::new();
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let random = match RANDOM.get() {
        Some(random) => *random,
        None => {
            let drawn = getrandom::u64();
            let drawn = drawn.map_err(|error| ClientError::Failed(error.to_string()))?;
            *RANDOM.get_or_init(|| drawn)
        }
    };
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let since_1970 = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    Ok(format!("{:011x}{random:016x}{number:x}", since_1970.as_millis()))
}

fn is_over(told: &proto::JobStatus) -> bool {
    use proto::JobState as Wire;
    !matches!(told.state(), Wire::Unspecified | Wire::Pending | Wire::Running | Wire::Paused)
}

struct Watch {
    client: Client,
    request: proto::WatchJobRequest,
    /// And since when.
    open: Option<(Streaming<proto::JobStatus>, Instant)>,
}

impl Watch {
    async fn next(&mut self) -> Result<proto::JobStatus, ClientError> {
        let mut pauses = self.client.pauses();
        loop {
            let status = match &mut self.open {
                Some((open, since)) => {
                    let status = match open.message().await {
                        Ok(Some(told)) => return Ok(told),
                        Ok(None) => tonic::Status::unavailable("the server ended the stream"),
                        Err(status) => status,
                    };
                    // The server was there all the while: what there is of patience is for the next time.
                    if since.elapsed() > LONGEST_PAUSE {
                        pauses = self.client.pauses();
                    }
                    status
                }
                None => match self.client.jobs.clone().watch_job(self.request.clone()).await {
                    Ok(opened) => {
                        self.open = Some((opened.into_inner(), now()));
                        continue;
                    }
                    Err(status) => status,
                },
            };
            self.open = None;
            pauses.after(status).await?;
        }
    }
}

#[allow(clippy::disallowed_methods, reason = "patience is measured with the monotonic clock")]
fn now() -> Instant {
    Instant::now()
}

/// Before the next try, for as long as it is worth one.
struct Pauses {
    server: String,
    until: Instant,
    next: Duration,
    /// The token that an `up` had left before anything was asked.
    left: Option<String>,
}

/// Of an `up` of this user at this address.
fn left_token(server: &str) -> Option<String> {
    LocalToken::Client.find(server).map(|token| token.0)
}

impl Pauses {
    fn begin_anew(&mut self, patience: Duration) {
        (self.until, self.next) = (now() + patience, FIRST_PAUSE);
    }

    async fn after(&mut self, status: tonic::Status) -> Result<(), ClientError> {
        let message = status.message().to_owned();
        match status.code() {
            // A connection that breaks on the way has no code of its own.
            Code::Unavailable | Code::Unknown | Code::Cancelled => {}
            // A connection that broke, not the server's word: that has no cause here.
            Code::Internal if std::error::Error::source(&status).is_some() => {}
            // It has no room now.
            Code::ResourceExhausted => {
                if now() >= self.until {
                    return Err(ClientError::Failed(message));
                }
            }
            Code::OutOfRange => return Err(ClientError::TooLarge(message)),
            Code::InvalidArgument => return Err(ClientError::Invalid(message)),
            Code::NotFound => return Err(ClientError::NotFound(message)),
            // It was started again, and has another token now.
            Code::Unauthenticated if left_token(&self.server) != self.left => {
                self.left = left_token(&self.server);
            }
            Code::Unauthenticated | Code::PermissionDenied => {
                return Err(ClientError::NotAllowed(message));
            }
            Code::AlreadyExists | Code::FailedPrecondition | Code::Aborted => {
                return Err(ClientError::Conflict(message));
            }
            _ => return Err(ClientError::Failed(message)),
        }
        let left = self.until.saturating_duration_since(now());
        if left.is_zero() {
            return Err(ClientError::Unreachable { server: self.server.clone(), why: message });
        }
        let pause = self.next.min(left);
        self.next = (self.next * 2).min(LONGEST_PAUSE);
        tokio::time::sleep(pause).await;
        Ok(())
    }
}
