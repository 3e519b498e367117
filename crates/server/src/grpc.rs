//! gRPC: the `Jobs` service, health and reflection.
//!
//! Translates requests into what the reader and the commands take, and their answers back. Who may ask is
//! not decided here.

mod launch;
mod many;
mod watch;

use std::pin::Pin;
use std::sync::Arc;

use futures_util::{StreamExt as _, stream};
use steadfast_api::proto::jobs_server::{Jobs, JobsServer};
use steadfast_api::proto::new_job::Kind;
use steadfast_api::proto::workers_server::WorkersServer;
use steadfast_api::{JobRow, JobStatus, RunStatus, ShownState, proto, wire_state};
use steadfast_core::event::JobId;
use steadfast_jobfile::fluster::{self, FlusterDefaults};
use steadfast_jobfile::{Operator, Warning};
use tokio::sync::Semaphore;
use tokio_stream::Stream;
use tonic::service::Routes;
use tonic::{Request, Response, Status, Streaming};
use tonic_health::server::HealthReporter;

use crate::caller::Caller;
use crate::commands::{JobCommands, Submission, Submitted};
use crate::end_of_job::EndOfJob;
use crate::error::ApiError;
use crate::notifications::Notifications;
use crate::queries::{JobFilter, JobReader, job_id};
use crate::sessions::WorkerSessions;

/// The largest request: a job file of 10 MiB, and some files with it.
pub const LARGEST_REQUEST: usize = 16 << 20;
/// Jobs of a page if nothing is said, and at most.
const PAGE: usize = 100;
const MOST_PER_PAGE: usize = 1000;

#[derive(Clone, Debug)]
pub struct JobsService {
    reader: JobReader,
    commands: JobCommands,
    notifications: Notifications,
    operator: Arc<Operator>,
    defaults: FlusterDefaults,
    page: usize,
    most_per_page: usize,
}

impl JobsService {
    pub fn new(
        reader: JobReader,
        commands: JobCommands,
        notifications: Notifications,
        operator: Arc<Operator>,
        defaults: FlusterDefaults,
    ) -> Self {
        let (page, most_per_page) = (PAGE, MOST_PER_PAGE);
        Self { reader, commands, notifications, operator, defaults, page, most_per_page }
    }

    /// Jobs of a page if nothing is said, and at most.
    #[must_use]
    pub fn with_pages(self, page: usize, most_per_page: usize) -> Self {
        Self { page: page.min(most_per_page), most_per_page, ..self }
    }

    /// `id`: of the job, if it is a new one.
    async fn take(&self, id: JobId, job: proto::NewJob) -> Result<Submitted, ApiError> {
        match job.kind {
            Some(Kind::Submit(request)) => self.submit(id, request).await,
            // Thousands of these are under way at once, and few of them are this.
            Some(Kind::Launch(request)) => Box::pin(self.launch(id, *request)).await,
            None => Err(ApiError::BadRequest("there is no job in it".to_owned())),
        }
    }

    async fn launch(
        &self,
        id: JobId,
        mut request: proto::LaunchJobRequest,
    ) -> Result<Submitted, ApiError> {
        let key = key(std::mem::take(&mut request.idempotency_key));
        let digest = launch::digest(&request);
        let (job, files) = launch::job(request);
        match fluster::plan(&job, self.defaults, &self.operator) {
            Ok(plan) => {
                let (warnings, plan) = (fluster::warnings(&plan), Arc::new(plan));
                self.commands.submit(Submission { id, plan, files, warnings, key, digest }).await
            }
            // The same request again is the same job: what is valid may have changed since.
            Err(wrong) => {
                let known = self.commands.known(key.as_deref(), &digest).await?;
                known.ok_or_else(|| ApiError::BadRequest(wrong.to_string()))
            }
        }
    }

    async fn submit(
        &self,
        id: JobId,
        request: proto::SubmitJobRequest,
    ) -> Result<Submitted, ApiError> {
        let proto::SubmitJobRequest { file, files, idempotency_key } = request;
        let files = files.into_iter().map(launch::attached).collect();
        let (file, key) = (file.into_bytes(), key(idempotency_key));
        self.commands.submit_file(id, file, "job.yaml", files, key).await
    }

    fn limit(&self, asked: i32) -> Result<usize, ApiError> {
        let most = self.most_per_page;
        match usize::try_from(asked) {
            Ok(0) => Ok(self.page),
            Ok(limit) if limit <= most => Ok(limit),
            _ => Err(ApiError::BadRequest(format!("limit: from 1 to {most}, not {asked}"))),
        }
    }
}

/// Jobs, health and reflection, for a router that has its own answer for what it does not know. The
/// reporter is for saying that the end is near.
pub async fn routes(
    jobs: JobsService,
) -> Result<(Routes, HealthReporter), tonic_reflection::server::Error> {
    let (reporter, health) = tonic_health::server::health_reporter();
    reporter.set_serving::<JobsServer<JobsService>>().await;
    reporter.set_serving::<WorkersServer<WorkerSessions>>().await;
    let described = || {
        tonic_reflection::server::Builder::configure()
            .register_encoded_file_descriptor_set(proto::DESCRIPTOR)
            .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
    };
    // Older clients ask the older one.
    let (v1, v1alpha) = (described().build_v1()?, described().build_v1alpha()?);
    let routes = Routes::from(axum::Router::new())
        .add_service(JobsServer::new(jobs).max_decoding_message_size(LARGEST_REQUEST))
        .add_service(health)
        .add_service(v1)
        .add_service(v1alpha);
    Ok((routes, reporter))
}

/// The status of a job with so many steps and items is written at once, in some microseconds.
const TOLD_HERE: usize = 16;
/// A large job's status takes a while to write, and some megabytes: more than so many wait.
static WRITING: Semaphore = Semaphore::const_new(4);

async fn told(status: Arc<JobStatus>) -> Result<proto::JobStatus, ApiError> {
    let shown =
        |run: &RunStatus| run.steps.0.iter().map(|(_, step)| 1 + step.items.len()).sum::<usize>();
    if status.runs.iter().map(shown).sum::<usize>() <= TOLD_HERE {
        return Ok(proto::JobStatus::from(&*status));
    }
    let _turn = WRITING.acquire().await.map_err(ApiError::internal)?;
    let writing = tokio::task::spawn_blocking(move || proto::JobStatus::from(&*status));
    writing.await.map_err(ApiError::internal)
}

fn warned(warnings: Vec<Warning>) -> Vec<proto::Warning> {
    let warning = |Warning { code, path, line, message }| {
        let code = String::from(code);
        proto::Warning { code, path, line, message }
    };
    warnings.into_iter().map(warning).collect()
}

fn key(text: String) -> Option<String> {
    (!text.is_empty()).then_some(text)
}

#[tonic::async_trait]
impl Jobs for JobsService {
    type RunJobStream = Pin<Box<dyn Stream<Item = Result<proto::RunJobResponse, Status>> + Send>>;
    type SubmitJobsStream =
        Pin<Box<dyn Stream<Item = Result<proto::SubmitJobsResponse, Status>> + Send>>;
    type WatchJobStream = Pin<Box<dyn Stream<Item = Result<proto::JobStatus, Status>> + Send>>;

    async fn launch_job(
        &self,
        request: Request<proto::LaunchJobRequest>,
    ) -> Result<Response<proto::LaunchJobResponse>, Status> {
        let submitted = self.launch(self.commands.new_id()?, request.into_inner()).await?;
        let (job_id, warnings) = (submitted.id.to_string(), warned(submitted.warnings));
        Ok(Response::new(proto::LaunchJobResponse { job_id, warnings }))
    }

    async fn submit_job(
        &self,
        request: Request<proto::SubmitJobRequest>,
    ) -> Result<Response<proto::SubmitJobResponse>, Status> {
        let submitted = self.submit(self.commands.new_id()?, request.into_inner()).await?;
        let (job_id, warnings) = (submitted.id.to_string(), warned(submitted.warnings));
        Ok(Response::new(proto::SubmitJobResponse { job_id, warnings }))
    }

    async fn submit_jobs(
        &self,
        request: Request<Streaming<proto::SubmitJobsRequest>>,
    ) -> Result<Response<Self::SubmitJobsStream>, Status> {
        // A client that goes on submitting would hold up the server's end. What it has sent is answered; the rest it sends again.
        let messages = request.into_inner().take_until(Box::pin(self.notifications.closed()));
        let told = many::answers(self.clone(), messages);
        Ok(Response::new(Box::pin(told)))
    }

    async fn run_job(
        &self,
        request: Request<proto::NewJob>,
    ) -> Result<Response<Self::RunJobStream>, Status> {
        let take = |id| self.take(id, request.into_inner());
        let (submitted, end) =
            EndOfJob::submit(&self.reader, &self.notifications, self.commands.new_id()?, take)
                .await?;
        let job_id = submitted.id.to_string();
        let warnings = warned(submitted.warnings);
        let begun = proto::RunJobResponse { job_id: job_id.clone(), warnings, job: None };
        let ended = async move {
            let job = Some(told(end.status().await?).await?);
            Ok(proto::RunJobResponse { job_id, warnings: vec![], job })
        };
        let told = stream::once(async { Ok(begun) }).chain(stream::once(ended));
        Ok(Response::new(Box::pin(told)))
    }

    async fn get_job_status(
        &self,
        request: Request<proto::GetJobStatusRequest>,
    ) -> Result<Response<proto::GetJobStatusResponse>, Status> {
        let status = self.reader.status(&request.into_inner().job_id).await?;
        Ok(Response::new(proto::GetJobStatusResponse { job: Some(told(status).await?) }))
    }

    async fn watch_job(
        &self,
        request: Request<proto::WatchJobRequest>,
    ) -> Result<Response<Self::WatchJobStream>, Status> {
        let proto::WatchJobRequest { job_id: id, end_only } = request.into_inner();
        let id = job_id(&id)?;
        if end_only {
            let end = EndOfJob::of(&self.reader, &self.notifications, id).await?;
            let end = stream::once(async move { Ok(told(end.status().await?).await?) });
            return Ok(Response::new(Box::pin(end)));
        }
        let changes = self.notifications.follow(&id);
        let status = self.reader.status(&id).await?;
        let watched = watch::statuses(self.reader.clone(), id, status, changes);
        Ok(Response::new(Box::pin(watched)))
    }

    async fn terminate_job(
        &self,
        request: Request<proto::TerminateJobRequest>,
    ) -> Result<Response<proto::TerminateJobResponse>, Status> {
        let caller = Caller::of(request.extensions());
        let proto::TerminateJobRequest { job_id, reason } = request.into_inner();
        let requested = caller.requests(key(reason).as_deref())?;
        self.commands.cancel(&job_id, requested).await?;
        Ok(Response::new(proto::TerminateJobResponse {}))
    }

    async fn list_jobs(
        &self,
        request: Request<proto::ListJobsRequest>,
    ) -> Result<Response<proto::ListJobsResponse>, Status> {
        let proto::ListJobsRequest { state, name, label, limit, cursor } = request.into_inner();
        let filter = JobFilter {
            states: read_state(&state)?.into_iter().collect(),
            name: key(name),
            label: read_label(&label)?,
            ..JobFilter::default()
        };
        let page = self.reader.list(filter, key(cursor), self.limit(limit)?).await?;
        Ok(Response::new(proto::ListJobsResponse {
            jobs: page.jobs.into_iter().map(summary).collect(),
            next_cursor: page.next.unwrap_or_default(),
        }))
    }
}

fn summary(row: JobRow) -> proto::JobSummary {
    let ms = |at: steadfast_core::time::Timestamp| i64::try_from(at.0).unwrap_or(i64::MAX);
    proto::JobSummary {
        job_id: row.id,
        name: row.name,
        state: wire_state(row.state).into(),
        submitted_at_ms: ms(row.submitted_at_ms),
        finished_at_ms: row.finished_at_ms.map_or(0, ms),
    }
}

/// Our word for a state, or the one that this API shows for it.
fn read_state(text: &str) -> Result<Option<ShownState>, ApiError> {
    if text.is_empty() {
        return Ok(None);
    }
    let fits = |state: &ShownState| text == state.name() || text == wire_word(*state);
    let found = ShownState::all().find(fits);
    if found.is_none() {
        let names: Vec<&str> = ShownState::all().map(ShownState::name).collect();
        let names = names.join(", ");
        return Err(ApiError::BadRequest(format!("state: one of {names}, not {text:?}")));
    }
    Ok(found)
}

fn wire_word(state: ShownState) -> String {
    wire_state(state).as_str_name().trim_start_matches("JOB_STATE_").to_lowercase()
}

fn read_label(text: &str) -> Result<Option<(String, String)>, ApiError> {
    if text.is_empty() {
        return Ok(None);
    }
    let pair = text.split_once('=').filter(|(name, _)| !name.is_empty());
    let pair = pair.map(|(name, value)| (name.to_owned(), value.to_owned()));
    match pair {
        Some(pair) => Ok(Some(pair)),
        None => Err(ApiError::BadRequest(format!("label: key=value, not {text:?}"))),
    }
}
