//! A server with its engine and store on loopback, and a worker that does what a job's arguments say.

use std::sync::{Arc, OnceLock};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use steadfast_api::proto::jobs_client::JobsClient;
use steadfast_api::proto::{
    Command, Entrypoint, GetJobStatusRequest, JobStatus, LaunchJobRequest, RetryConfig,
    WatchJobRequest, entrypoint,
};
use steadfast_core::decide::Input;
use steadfast_core::event::{JobId, RecordedEvent};
use steadfast_core::outcome::{Failure, FailureKind, Outcome};
use steadfast_core::plan::Action;
use steadfast_core::time::Timestamp;
use steadfast_engine::{
    Assignment, Clock, Inbox, Live, Observer, Ownership, Placement, Slots, Work, Workers,
};
use steadfast_jobfile::Operator;
use steadfast_jobfile::fluster::FlusterDefaults;
use steadfast_server::commands::JobCommands;
use steadfast_server::grpc::{JobsService, routes};
use steadfast_server::health::Health;
use steadfast_server::notifications::Notifications;
use steadfast_server::queries::JobReader;
use steadfast_store::{Folder, Journal as _, Owner, SqliteStore};
use tempfile::TempDir;
use tonic::transport::Channel;

pub(crate) struct Place {
    pub(crate) channel: Channel,
    pub(crate) jobs: JobsClient<Channel>,
    pub(crate) folder: Folder,
    live: Option<Live>,
    _here: TempDir,
}

impl Place {
    pub(crate) async fn new() -> Self {
        Self::with(FlusterDefaults::default(), Slots::unlimited()).await
    }

    pub(crate) async fn with(defaults: FlusterDefaults, slots: Slots) -> Self {
        Self::of(Operator::default(), defaults, slots).await
    }

    pub(crate) async fn of(operator: Operator, defaults: FlusterDefaults, slots: Slots) -> Self {
        let here = tempfile::tempdir().expect("a folder");
        let folder = Folder::new(here.path().to_owned());
        let mut store = SqliteStore::open(&folder.database()).expect("a store");
        let notifications = Notifications::new();
        let owner = store.take(Owner::SHARD, Timestamp(0), None).expect("it writes");
        let live = Live::start(
            Box::new(store),
            Box::new(RealClock),
            Placement::here(slots, "w1"),
            Ownership::alone(owner),
            Scripted,
            Box::new(EventSender(notifications.clone())),
        );
        let reader = JobReader::open(folder.storage(), 2).expect("readers");
        let operator = Arc::new(operator);
        let inbox = live.inbox().clone();
        let commands = JobCommands::new(
            inbox,
            reader.clone(),
            operator.clone(),
            folder.storage().blobs(),
            Health::new(folder.storage().space(), 0),
        );
        let service = JobsService::new(reader, commands, notifications, operator, defaults);
        let (routes, _) = routes(service).await.expect("the descriptor is valid");
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        let router = routes.into_axum_router();
        tokio::spawn(async move { axum::serve(listener, router).await });
        let channel = Channel::from_shared(format!("http://{address}")).expect("an address");
        let channel = channel.connect().await.expect("it listens");
        let jobs = JobsClient::new(channel.clone());
        Self { channel, jobs, folder, live: Some(live), _here: here }
    }

    /// Launches a job whose attempts end so, one after the other; the last repeats.
    pub(crate) async fn launch(&mut self, outcomes: &[&str], retry: RetryConfig) -> String {
        let request = LaunchJobRequest { retry: Some(retry), ..request(outcomes) };
        self.jobs.launch_job(request).await.expect("taken").into_inner().job_id
    }

    pub(crate) async fn status(&mut self, job: &str) -> JobStatus {
        let request = GetJobStatusRequest { job_id: job.to_owned() };
        let answer = self.jobs.get_job_status(request).await.expect("there");
        answer.into_inner().job.expect("a status")
    }

    /// Every status until the last.
    pub(crate) async fn watch(&mut self, job: &str) -> Vec<JobStatus> {
        self.watch_until(job, |_| false).await
    }

    /// Every status until one that is waited for, or the last.
    pub(crate) async fn watch_until(
        &mut self,
        job: &str,
        enough: impl Fn(&JobStatus) -> bool,
    ) -> Vec<JobStatus> {
        let request = WatchJobRequest { job_id: job.to_owned(), end_only: false };
        let mut stream = self.jobs.watch_job(request).await.expect("there").into_inner();
        let mut all = Vec::new();
        while let Some(status) = stream.message().await.expect("a status") {
            let stop = enough(&status);
            all.push(status);
            if stop {
                break;
            }
        }
        all
    }

    pub(crate) async fn end(&mut self, job: &str) -> JobStatus {
        self.watch(job).await.pop().expect("at least one")
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if let Some(live) = self.live.take() {
            let _ = live.stop();
        }
    }
}

pub(crate) fn request(outcomes: &[&str]) -> LaunchJobRequest {
    let argv = outcomes.iter().map(ToString::to_string).collect();
    let kind = entrypoint::Kind::Command(Command { argv });
    LaunchJobRequest {
        name: "flaky-job".to_owned(),
        entrypoint: Some(Entrypoint { kind: Some(kind) }),
        ..LaunchJobRequest::default()
    }
}

/// Reports what the arguments say, at once: the first of the first attempt.
struct Scripted(Inbox);

impl Workers for Scripted {
    fn assign(&mut self, work: Box<Work>) {
        let outcomes = match work.action.expect("it can be filled in") {
            Action::Argv(argv) => argv,
            Action::Run(script) => vec![script],
            other => panic!("{other:?} is not for this worker"),
        };
        let Assignment { job, item, attempt, token, .. } = work.assignment;
        let said = &outcomes[(attempt as usize - 1).min(outcomes.len() - 1)];
        if let Some(outcome) = outcome(said) {
            self.0.report(&job, Input::Report { item, token, outcome });
        }
    }

    fn withdraw(&mut self, _: Assignment) {}

    fn settled(&mut self, _: &JobId, _: u64) {}
}

/// None: nothing is ever reported.
fn outcome(text: &str) -> Option<Outcome> {
    let failed = |kind| Some(Outcome::Failed(Failure::new(kind)));
    let (word, rest) = text.split_once([':', '=']).unwrap_or((text, ""));
    match word {
        "ok" if rest.is_empty() => Some(Outcome::OK),
        "ok" => Some(Outcome::Succeeded { output: Some(rest.parse().expect("JSON")) }),
        "exit" => failed(FailureKind::Exited(rest.parse().expect("a code"))),
        "signal" => failed(FailureKind::Signalled(rest.parse().expect("a signal"))),
        "lost" => Some(Outcome::LOST),
        "never" => None,
        _ => panic!("{text:?} is no outcome"),
    }
}

struct EventSender(Notifications);

impl Observer for EventSender {
    fn committed(&mut self, job: &JobId, records: Vec<RecordedEvent>) {
        self.0.told(job, &records);
    }
}

#[derive(Debug)]
struct RealClock;

impl Clock for RealClock {
    #[allow(clippy::disallowed_methods, reason = "the engine runs in real time here")]
    fn now(&self) -> Timestamp {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970");
        Timestamp(since.as_millis() as u64)
    }

    #[allow(clippy::disallowed_methods, reason = "the engine runs in real time here")]
    fn monotonic_ms(&self) -> u64 {
        static BEGAN: OnceLock<Instant> = OnceLock::new();
        BEGAN.get_or_init(Instant::now).elapsed().as_millis() as u64
    }
}
