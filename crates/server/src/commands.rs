//! What people and programs want of jobs: taken to the engine, answered once it is durable.
//!
//! Nothing is decided here. An idempotency key is used under a lock of its own until its submission is durable, so that
//! one key is one job however many ask at once, and each is told its id.

mod control;
mod dry_run;
mod files;
mod keys;
mod loaded;

use std::sync::Arc;

use sha2::{Digest as _, Sha256};
use steadfast_core::event::{AcceptedJob, JobId, Requester};
use steadfast_core::hex::hex;
use steadfast_core::plan::{Action, HttpMode, Plan};
use steadfast_core::retry_job::{CannotRetry, retry_job};
use steadfast_engine::{Answer, CommandError, Inbox, Reply, Request, SendError};
use steadfast_jobfile::{JobFile, Operator, Problem, Warning, load};
use steadfast_store::{Blobs, IdempotencyKey};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};
use tokio::time::timeout;

use crate::error::ApiError;
use crate::hand_over::{CONFIRM, HAND_OVER, confirmed, hand_over};
use crate::health::Health;
use crate::peers::Peers;
use crate::queries::JobReader;

use keys::{Keys, check_key, known_by_key};
use loaded::{Loaded, LoadedJob};

pub use dry_run::JobAction;
pub use files::Attached;
pub use steadfast_store::AttachedFile;

/// Job files up to this many bytes are read where they arrive, in much less than a millisecond.
const READ_HERE: usize = 8 << 10;
/// Larger ones that are read at the same time: reading one of 10 MiB takes a core for about a second, and goes on
/// when its client has left.
const READ_AT_ONCE: usize = 4;
/// Of requests with many jobs, what is in memory until it is answered. What is more waits at the clients.
const MANY_KIB: usize = 64 << 10;
/// Submissions whose files are written at the same time: a stalled disk holds no more threads than this.
const WRITE_AT_ONCE: usize = 4;

#[derive(Clone, Debug)]
pub struct JobCommands {
    inbox: Inbox,
    reader: JobReader,
    operator: Arc<Operator>,
    blobs: Arc<dyn Blobs>,
    keys: Keys,
    attached: Attached,
    health: Health,
    /// Services know where to call back.
    callbacks: bool,
    loaded: Loaded,
    /// Turns to read a job file.
    reading: Arc<Semaphore>,
    /// Turns to write the files of one.
    writing: Arc<Semaphore>,
    /// See [`MANY_KIB`].
    many: Arc<Semaphore>,
    peers: Peers,
}

/// Of many jobs in one request, so many are on their way to the store: some of its groups. Each is a few KB until it is durable: four times
/// as many leave the processor's cache to nothing else, and cost a tenth more.
pub const AT_ONCE: usize = 512;

/// Why a submission did not become a job.
enum Refused {
    Before(ApiError),
    /// The engine ended with it: whether it did is known once it is back.
    Stopped,
}

impl From<ApiError> for Refused {
    fn from(why: ApiError) -> Self {
        Self::Before(why)
    }
}

impl From<Refused> for ApiError {
    fn from(why: Refused) -> Self {
        match why {
            Refused::Before(why) => why,
            Refused::Stopped => CommandError::Stopped.into(),
        }
    }
}

/// A job that is to be run.
#[derive(Clone, Debug)]
pub struct Submission {
    /// If it is not known by its key.
    pub id: JobId,
    pub plan: Arc<Plan>,
    pub files: Vec<AttachedFile>,
    /// What the door found odd about it.
    pub warnings: Vec<Warning>,
    pub key: Option<String>,
    /// Of everything that makes the submission what it is: [`digest`].
    pub digest: String,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Submitted {
    pub id: JobId,
    /// It was submitted before, with the same key and body.
    pub existing: bool,
    /// What is valid and will still surprise, by this server's settings.
    pub warnings: Vec<Warning>,
}

/// How a job is to be run again.
#[derive(Clone, Debug, Default)]
pub struct RetryRequest {
    /// That step and all that need it run again even if they succeeded.
    pub from: Option<String>,
    /// More attempts and budget.
    pub grant: Option<u32>,
    pub requested: Requester,
    pub key: Option<String>,
}

/// Of the parts of a submission, in order.
pub fn digest<'a>(parts: impl IntoIterator<Item = &'a [u8]>) -> String {
    let mut hash = Sha256::new();
    for part in parts {
        // With its length, so that no two lists of parts are the same bytes.
        hash.update((part.len() as u64).to_le_bytes());
        hash.update(part);
    }
    hex(&hash.finalize())
}

impl JobCommands {
    pub fn new(
        inbox: Inbox,
        reader: JobReader,
        operator: Arc<Operator>,
        blobs: Arc<dyn Blobs>,
        health: Health,
    ) -> Self {
        let (keys, attached, callbacks) = (Keys::default(), Attached::default(), true);
        let reading = Arc::new(Semaphore::new(READ_AT_ONCE));
        let writing = Arc::new(Semaphore::new(WRITE_AT_ONCE));
        let many = Arc::new(Semaphore::new(MANY_KIB));
        let loaded = Loaded::default();
        Self {
            inbox,
            reader,
            operator,
            blobs,
            keys,
            attached,
            health,
            callbacks,
            loaded,
            reading,
            writing,
            many,
            peers: Peers::none(),
        }
    }

    /// There are other servers.
    #[must_use]
    pub(crate) fn beside(mut self, peers: Peers) -> Self {
        self.peers = peers;
        self
    }

    /// How much may come with a job.
    #[must_use]
    pub fn attaching(mut self, attached: Attached) -> Self {
        self.attached = attached;
        self
    }

    pub fn attached(&self) -> Attached {
        self.attached
    }

    /// Nobody knows how services reach this server.
    #[must_use]
    pub fn without_callbacks(mut self) -> Self {
        self.callbacks = false;
        self
    }

    /// A job file and what came with it. `name` is what messages call it.
    pub async fn submit_file(
        &self,
        id: JobId,
        text: Vec<u8>,
        name: &str,
        files: Vec<AttachedFile>,
        key: Option<String>,
    ) -> Result<Submitted, ApiError> {
        let executable = |file: &AttachedFile| [u8::from(file.executable)];
        let flags: Vec<[u8; 1]> = files.iter().map(executable).collect();
        let attached = files.iter().zip(&flags);
        let parts = attached.flat_map(|(file, flag)| [file.path.as_bytes(), &file.content, flag]);
        let digest = digest(std::iter::once(text.as_slice()).chain(parts));
        let known = (text.len() <= READ_HERE).then(|| self.loaded.get(&digest, &text)).flatten();
        let (plan, warnings) = match known {
            Some(loaded) => loaded,
            // Boxed, here and below: what most submissions do not need would be moved along with thousands of them.
            None => match Box::pin(self.load_and_keep(text, name, &digest)).await? {
                Ok(loaded) => loaded,
                // The same body again is the same job, whatever reading it gives: what is valid may have changed.
                Err(problems) => {
                    let known = Box::pin(self.known(key.as_deref(), &digest)).await?;
                    return known.ok_or(ApiError::InvalidJob(problems));
                }
            },
        };
        self.submit(Submission { id, plan, files, warnings, key, digest }).await
    }

    async fn load_and_keep(
        &self,
        text: Vec<u8>,
        name: &str,
        digest: &str,
    ) -> Result<Result<LoadedJob, Vec<Problem>>, ApiError> {
        let small = (text.len() <= READ_HERE).then(|| text.clone());
        let loaded = self.load(text, name).await?.map(|job| {
            let warnings = [job.warnings, job.worker_warnings].concat();
            (Arc::new(job.plan), warnings)
        });
        if let (Some(text), Ok(loaded)) = (small, &loaded) {
            self.loaded.put(digest, &text, loaded, &self.operator);
        }
        Ok(loaded)
    }

    async fn load(
        &self,
        text: Vec<u8>,
        name: &str,
    ) -> Result<Result<JobFile, Vec<Problem>>, ApiError> {
        if text.len() <= READ_HERE {
            return Ok(load(name, &text, &self.operator));
        }
        let (operator, name) = (self.operator.clone(), name.to_owned());
        // Who left while waiting for a turn leaves nothing to be done.
        let turn = self.reading.clone().acquire_owned().await.map_err(ApiError::internal)?;
        let loaded = tokio::task::spawn_blocking(move || {
            let _until_it_is_read = turn;
            load(&name, &text, &operator)
        });
        Ok(loaded.await?)
    }

    pub async fn submit(&self, submission: Submission) -> Result<Submitted, ApiError> {
        let Submission { id, plan, files, warnings, key, digest } = submission;
        let fits = self.fits(&plan).and_then(|()| files::checked(files, &plan, self.attached));
        let files = match fits {
            Ok(files) => files,
            // It may have fitted when it was submitted first.
            Err(why) => {
                return Box::pin(self.known(key.as_deref(), &digest)).await?.ok_or(why);
            }
        };
        let accepted = Box::new(AcceptedJob::new(id.clone(), plan));
        let blobs = self.blobs.clone();
        let has_files = !files.is_empty();
        let put = has_files.then_some(move || files::put(&*blobs, &id, &files));
        let submitted = self.accept(accepted, put, key, digest).await?;
        Ok(Submitted { warnings, ..submitted })
    }

    /// Waits until there is room for jobs of so many bytes that come with others in one request. Kept until they are answered.
    pub async fn room_for_many(&self, bytes: usize) -> Result<OwnedSemaphorePermit, ApiError> {
        let kib = (bytes / 1024 + 1).min(MANY_KIB) as u32;
        self.many.clone().acquire_many_owned(kib).await.map_err(ApiError::internal)
    }

    /// A new id, for a job that this server takes.
    pub fn new_id(&self) -> Result<JobId, ApiError> {
        self.peers.new_id()
    }

    /// A new job that keeps what succeeded.
    pub async fn retry(&self, id: &str, how: RetryRequest) -> Result<Submitted, ApiError> {
        let old = self.reader.job(id).await?;
        let RetryRequest { from, grant, requested, key } = how;
        let grant_text = grant.map(|grant| grant.to_string()).unwrap_or_default();
        let from_text = from.as_deref().map(|step| format!("from {step}")).unwrap_or_default();
        let reason = requested.reason.as_deref().unwrap_or_default();
        let parts = ["retry", id, &from_text, &grant_text, reason];
        let digest = digest(parts.map(str::as_bytes));
        if let Some(known) = self.known(key.as_deref(), &digest).await? {
            return Ok(known);
        }
        let new = self.new_id()?;
        let accepted = retry_job(&old, new.clone(), from.as_deref(), grant);
        let mut accepted = accepted.map_err(cannot_retry)?;
        accepted.source = None;
        accepted.requested = requested;
        self.fits(&accepted.plan)?;
        let (blobs, before) = (self.blobs.clone(), old.id.clone());
        let wanted = files::wanted(&accepted.plan)?;
        let has_files = !wanted.is_empty();
        let put = has_files.then_some(move || files::copy(&*blobs, &before, &new, &wanted));
        self.accept(Box::new(accepted), put, key, digest).await
    }

    /// The job that was submitted before with this key and body.
    pub(crate) async fn known(
        &self,
        key: Option<&str>,
        digest: &str,
    ) -> Result<Option<Submitted>, ApiError> {
        let Some(key) = key else { return Ok(None) };
        check_key(key)?;
        match self.reader.find_key(key).await? {
            None => Ok(None),
            Some((id, known)) if known == digest => {
                Ok(Some(Submitted { id, existing: true, warnings: vec![] }))
            }
            Some((job, _)) => Err(ApiError::IdempotencyConflict { job }),
        }
    }

    /// `put` writes its files, if there are any.
    async fn accept(
        &self,
        accepted: Box<AcceptedJob>,
        put: Option<impl FnOnce() -> Result<(), ApiError> + Send + 'static>,
        key: Option<String>,
        digest: String,
    ) -> Result<Submitted, ApiError> {
        match put {
            Some(put) => Box::pin(self.accept_with_files(accepted, put, key, digest)).await,
            None => self.accept_alone(accepted, key, digest).await,
        }
    }

    /// Whether its key is taken, the store says when the job is written: nothing was done for it before.
    async fn accept_alone(
        &self,
        accepted: Box<AcceptedJob>,
        key: Option<String>,
        digest: String,
    ) -> Result<Submitted, ApiError> {
        let mut turn = None;
        if let Some(key) = &key {
            check_key(key)?;
            turn = Some(Arc::new(self.keys.turn(key).await?));
        }
        if let Err(why) = self.health.takes_jobs() {
            return Box::pin(self.known(key.as_deref(), &digest)).await?.ok_or(why);
        }
        let id = accepted.id.clone();
        let key = key.map(|key| IdempotencyKey { key, digest });
        let mut submit = self.submitting(accepted, key);
        let submit = |reply: Reply<Answer>| {
            // Until it is answered, also if its client has left: the next with this key would be told a wrong id.
            let turn = turn.clone();
            submit(Box::new(move |answer| {
                drop(turn);
                reply(answer);
            }))
        };
        let confirmation = hand_over(submit).await?;
        drop(turn);
        let Some(answer) = confirmed(confirmation).await else {
            return Err(ApiError::Unconfirmed { job: id });
        };
        match answer {
            Ok(()) => Ok(Submitted { id, existing: false, warnings: vec![] }),
            Err(why) => known_by_key(why),
        }
    }

    /// For [`hand_over`]: what the engine has no room for is kept for the next try.
    fn submitting(
        &self,
        accepted: Box<AcceptedJob>,
        key: Option<IdempotencyKey>,
    ) -> impl FnMut(Reply<Answer>) -> Result<(), SendError> {
        let mut unsent = Some(Request::Submit { accepted, key });
        move |reply| {
            let request = unsent.take().ok_or(SendError::Stopped)?;
            self.inbox.try_request(request, reply).map_err(|(why, request)| {
                unsent = Some(request);
                why
            })
        }
    }

    /// Its files are there before the job is: the worker that runs it finds them.
    async fn accept_with_files(
        &self,
        accepted: Box<AcceptedJob>,
        put: impl FnOnce() -> Result<(), ApiError> + Send + 'static,
        key: Option<String>,
        digest: String,
    ) -> Result<Submitted, ApiError> {
        let turn = match &key {
            Some(key) => Some(self.keys.turn(key).await?),
            None => None,
        };
        if let Some(known) = self.known(key.as_deref(), &digest).await? {
            return Ok(known);
        }
        self.health.takes_jobs()?;
        let id = accepted.id.clone();
        let key = key.map(|key| IdempotencyKey { key, digest });
        let (commands, job) = (self.clone(), id.clone());
        let (handed, is_handed) = oneshot::channel();
        // Its own task: a client that hangs up must not let go of the key, or of the files, half way.
        let accepting = tokio::spawn(async move {
            let _turn = turn;
            let taken = commands.take(accepted, put, key, handed).await;
            // Whether a job was taken that met the engine's end is not known: its files stay.
            if taken.as_ref().is_err_and(|why| !matches!(why, Refused::Stopped)) {
                let blobs = commands.blobs.clone();
                let _ = tokio::task::spawn_blocking(move || blobs.remove_files(&job)).await;
            }
            taken.map_err(ApiError::from)
        });
        match timeout(HAND_OVER * 2, is_handed).await {
            Err(_) => {
                let why =
                    "the server's disk does not take the job's files at the moment; try again";
                return Err(ApiError::Overloaded(why.to_owned()));
            }
            Ok(_handed_or_refused) => {}
        }
        match timeout(CONFIRM, accepting).await {
            Err(_) => Err(ApiError::Unconfirmed { job: id }),
            Ok(ended) => {
                ended.map_err(ApiError::internal)??;
                Ok(Submitted { id, existing: false, warnings: vec![] })
            }
        }
    }

    /// Until it is durable. `handed` is told, or dropped if it was refused before.
    async fn take(
        &self,
        accepted: Box<AcceptedJob>,
        put: impl FnOnce() -> Result<(), ApiError> + Send + 'static,
        key: Option<IdempotencyKey>,
        mut handed: oneshot::Sender<()>,
    ) -> Result<(), Refused> {
        let not_waited_for = || ApiError::Overloaded("the client did not wait for it".into());
        // Its files are in memory, and nothing counts them once it is answered.
        let turn = tokio::select! {
            turn = self.writing.clone().acquire_owned() => turn.map_err(ApiError::internal)?,
            () = handed.closed() => return Err(not_waited_for().into()),
        };
        let written = tokio::task::spawn_blocking(move || {
            let _turn = turn;
            put()
        });
        written.await.map_err(ApiError::internal)??;
        if handed.is_closed() {
            return Err(not_waited_for().into());
        }
        let confirmation = hand_over(self.submitting(accepted, key)).await?;
        let _ = handed.send(());
        match confirmation.await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(CommandError::Stopped)) | Err(_) => Err(Refused::Stopped),
            Ok(Err(why)) => Err(ApiError::from(why).into()),
        }
    }

    fn fits(&self, plan: &Plan) -> Result<(), ApiError> {
        let is_async =
            |action: &Action| matches!(action, Action::Http(http) if http.mode == HttpMode::Async);
        if !self.callbacks && plan.steps().iter().any(|step| step.actions().any(is_async)) {
            return Err(ApiError::BadRequest(
                "the job has a step with `mode: async`, and this server does not know by which address \
                 services could call back: it listens on all of them, or on none. Set `server.public_url`"
                    .to_owned(),
            ));
        }
        files::has_no_source(plan)
    }
}

#[allow(clippy::needless_pass_by_value, reason = "errors are handed over as they come")]
fn cannot_retry(why: CannotRetry) -> ApiError {
    match why {
        CannotRetry::NoSuchStep { .. } => ApiError::NotFound(why.to_string()),
        CannotRetry::Grant { .. } => ApiError::BadRequest(why.to_string()),
        why => ApiError::NotPossible(why.to_string()),
    }
}
