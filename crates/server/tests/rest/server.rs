//! A server as it is, but for its workers: what a step runs says how its attempts end.

use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};
use std::time::SystemTime;

use axum::extract::State;
use futures_util::StreamExt as _;
use serde_json::Value;
use steadfast_api::WorkerInfo;
use steadfast_core::decide::Input;
use steadfast_core::event::{JobId, RecordedEvent};
use steadfast_core::outcome::{Failure, FailureKind, Outcome};
use steadfast_core::plan::Action;
use steadfast_core::time::Timestamp;
use steadfast_engine::{
    Assignment, Clock, Inbox, Live, Observer, Ownership, Placement, Slots, Work, Workers,
};
use steadfast_jobfile::Operator;
use steadfast_server::callbacks::{CallbackHandler, CallbackTokens, Secrets};
use steadfast_server::commands::JobCommands;
use steadfast_server::error::ApiError;
use steadfast_server::health::Health;
use steadfast_server::http::{App, Limits, WorkerQueries, router};
use steadfast_server::notifications::Notifications;
use steadfast_server::observability::RecentActivity;
use steadfast_server::queries::{JobReader, Projector};
use steadfast_server::shared_answers::SharedAnswers;
use steadfast_server::tokens::{Granted, Scope, WorkerBinding};
use steadfast_server::unread::{Client, Unread};
use steadfast_store::{Folder, Journal as _, Owner, SqliteStore};

use super::watched::WatchedStorage;

pub(crate) struct Server {
    pub url: String,
    pub folder: Folder,
    /// What requests read from.
    pub watched: WatchedStorage,
    pub notifications: Notifications,
    pub unread: Unread,
    pub client: reqwest::Client,
    /// Without what the guard leaves in requests.
    pub routes: axum::Router,
    _root: tempfile::TempDir,
    _live: Live,
}

#[allow(clippy::disallowed_methods, reason = "a server has a clock")]
fn now() -> Timestamp {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap();
    Timestamp(since.as_millis() as u64)
}

#[derive(Debug)]
pub(crate) struct RealTime;

impl Clock for RealTime {
    fn now(&self) -> Timestamp {
        now()
    }

    fn monotonic_ms(&self) -> u64 {
        now().0
    }
}

/// What `large` gives.
pub(crate) const LARGE: usize = 900 << 10;
/// A token may leave so much unread.
pub(crate) const UNREAD: usize = 3 << 20;

/// `ok` succeeds, so does `large`, `fail` exits with 1, `hold` never ends; each prints a line.
struct Scripted(Sender<Work>);

impl Scripted {
    fn new(inbox: Inbox, folder: Folder) -> Self {
        let (sender, works) = channel::<Work>();
        std::thread::spawn(move || {
            for work in works {
                let Assignment { job, item, attempt, token, .. } = &work.assignment;
                let log = folder.log(job, &work.step, *item, *attempt);
                std::fs::create_dir_all(log.parent().unwrap()).unwrap();
                std::fs::write(&log, format!("attempt {attempt} of {}\n", work.step)).unwrap();
                let Ok(Action::Run(script)) = &work.action else { panic!("{work:?}") };
                let outcome = match script.as_str() {
                    "ok" => Outcome::Succeeded { output: Some("done".into()) },
                    "large" => Outcome::Succeeded { output: Some("x".repeat(LARGE).into()) },
                    "fail" => Outcome::Failed(Failure::new(FailureKind::Exited(1))),
                    _ => continue,
                };
                inbox.report(job, Input::Report { item: *item, token: *token, outcome });
            }
        });
        Self(sender)
    }
}

impl Workers for Scripted {
    fn assign(&mut self, work: Box<Work>) {
        let _ = self.0.send(*work);
    }
    fn withdraw(&mut self, _: Assignment) {}
    fn settled(&mut self, _: &JobId, _: u64) {}
}

struct EventSender(Notifications, Projector);

impl Observer for EventSender {
    fn committed(&mut self, job: &JobId, records: Vec<RecordedEvent>) {
        self.1.committed(job, &records);
        self.0.told(job, &records);
    }
}

#[derive(Debug)]
struct OneWorker;

#[tonic::async_trait]
impl WorkerQueries for OneWorker {
    async fn list(&self) -> Result<Vec<WorkerInfo>, ApiError> {
        Ok(vec![WorkerInfo {
            name: "w1".to_owned(),
            datacenter: None,
            state: "connected".to_owned(),
            why: None,
            slots: 4,
            credits: 4,
            busy: 0,
            cpu: Some(4.0),
            cpu_used: 0.0,
            memory_bytes: None,
            memory_used: 0,
            lease_left_ms: 30_000,
            labels: [("disk".to_owned(), "ssd".to_owned())].into(),
            functions: vec![],
        }])
    }

    async fn queue_by_reason(&self) -> Result<Vec<(String, u64)>, ApiError> {
        Ok(vec![])
    }

    async fn why_not_running(&self, _: &str) -> Result<Vec<((u32, u32), String)>, ApiError> {
        Ok(vec![])
    }

    async fn undrain(&self, name: &str) -> Result<(), ApiError> {
        self.drain(name).await
    }

    async fn drain(&self, name: &str) -> Result<(), ApiError> {
        let none = || ApiError::NotFound(format!("there is no worker {name:?}"));
        (name == "w1").then_some(()).ok_or_else(none)
    }
}

/// What the guard leaves in a request: whose token it came with, named by a header here, and how much it may leave unread.
async fn named(
    State(unread): State<Unread>,
    mut request: axum::extract::Request,
) -> axum::extract::Request {
    let name = request.headers().get("as-token").and_then(|name| name.to_str().ok());
    if let Some(name) = name.map(str::to_owned) {
        let allowance = unread.allowance(Client::Token(name.clone()));
        request.extensions_mut().insert(allowance);
        let granted = Granted {
            id: "0123456789".to_owned(),
            name: Some(name),
            scope: Scope::Submit,
            binding: WorkerBinding::default(),
        };
        request.extensions_mut().insert(granted);
    }
    request
}

impl Server {
    pub(crate) async fn start() -> Self {
        Self::with(Operator::default(), 0).await
    }

    pub(crate) async fn with(operator: Operator, kept_free: u64) -> Self {
        let root = tempfile::tempdir().unwrap();
        let folder = Folder::new(root.path().to_owned());
        let notifications = Notifications::new();
        let operator = Arc::new(operator);
        let mut store = SqliteStore::open(&folder.database()).unwrap();
        let owner = store.take(Owner::SHARD, Timestamp(0), None).unwrap();
        let live = Live::start(
            Box::new(store),
            Box::new(RealTime),
            Placement::here(Slots::unlimited(), "w1"),
            Ownership::alone(owner),
            |inbox| Scripted::new(inbox, folder.clone()),
            Box::new(EventSender(notifications.clone(), Projector::start(folder.storage()))),
        );
        let watched = WatchedStorage::new(folder.storage());
        let reader = JobReader::open(Arc::new(watched.clone()), 3).unwrap();
        let inbox = live.inbox().clone();
        let commands = JobCommands::new(
            inbox.clone(),
            reader.clone(),
            operator.clone(),
            folder.storage().blobs(),
            Health::new(folder.storage().space(), kept_free),
        );
        let callbacks = CallbackHandler::new(
            CallbackTokens::open(&*folder.storage().settings()).unwrap(),
            Secrets::default(),
            inbox.clone(),
            reader.clone(),
            1 << 20,
            Arc::new(now),
        );
        let app = App {
            callbacks,
            commands,
            reader,
            notifications: notifications.clone(),
            shared: SharedAnswers::default(),
            clock: Arc::new(now),
            operator,
            workers: Arc::new(OneWorker),
            blobs: folder.storage().blobs(),
            limits: Limits::default(),
            recent: RecentActivity::default(),
            started_at: now(),
        };
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let unread = Unread::new(UNREAD);
        let as_token = axum::middleware::map_request_with_state(unread.clone(), named);
        let routes = router(app);
        let named = routes.clone().layer(as_token);
        tokio::spawn(async move { axum::serve(listener, named).await });
        steadfast_server::tls::use_ring();
        let client = reqwest::Client::builder().no_proxy().build().unwrap();
        Self {
            url,
            folder,
            watched,
            notifications,
            unread,
            client,
            routes,
            _root: root,
            _live: live,
        }
    }

    pub(crate) async fn get(&self, path: &str) -> Answer {
        Answer::of(self.client.get(format!("{}{path}", self.url))).await
    }

    pub(crate) async fn post(&self, path: &str) -> Answer {
        Answer::of(self.client.post(format!("{}{path}", self.url))).await
    }

    pub(crate) fn submission(&self, yaml: &str) -> reqwest::RequestBuilder {
        let request = self.client.post(format!("{}/v1/jobs", self.url));
        request.header("content-type", "application/yaml").body(yaml.to_owned())
    }

    /// The id of a job that was taken.
    pub(crate) async fn submit(&self, yaml: &str) -> String {
        let answer = Answer::of(self.submission(yaml)).await;
        assert_eq!(answer.status, 201, "{answer:?}");
        answer.json["id"].as_str().unwrap().to_owned()
    }

    pub(crate) async fn stream(&self, id: &str, last: Option<u64>) -> Stream {
        let mut request = self.client.get(format!("{}/v1/jobs/{id}/events", self.url));
        request = request.header("accept", "text/event-stream");
        if let Some(last) = last {
            request = request.header("last-event-id", last.to_string());
        }
        let response = request.send().await.unwrap();
        assert_eq!(response.status(), 200);
        assert_eq!(response.headers()["content-type"], "text/event-stream");
        Stream { bytes: Box::pin(response.bytes_stream()), text: String::new() }
    }

    /// All that happens until the job is over.
    pub(crate) async fn until_over(&self, id: &str) -> Vec<StreamedEvent> {
        let mut stream = self.stream(id, None).await;
        let mut all = vec![];
        while let Some(told) = stream.next().await {
            all.push(told);
        }
        all
    }
}

#[derive(Debug)]
pub(crate) struct Answer {
    pub status: u16,
    pub headers: reqwest::header::HeaderMap,
    pub text: String,
    /// Null, if it is none.
    pub json: Value,
}

impl Answer {
    pub(crate) async fn of(request: reqwest::RequestBuilder) -> Self {
        let response = request.send().await.unwrap();
        let (status, headers) = (response.status().as_u16(), response.headers().clone());
        let text = response.text().await.unwrap();
        let json = serde_json::from_str(&text).unwrap_or(Value::Null);
        Self { status, headers, text, json }
    }

    /// It is a problem with this status and code.
    #[track_caller]
    pub(crate) fn is_problem(&self, status: u16, code: &str) {
        assert_eq!(self.status, status, "{self:?}");
        assert_eq!(self.headers["content-type"], "application/problem+json");
        assert_eq!((&self.json["code"], &self.json["status"]), (&code.into(), &status.into()));
        for key in ["type", "title", "detail"] {
            assert!(self.json[key].as_str().is_some_and(|text| !text.is_empty()), "{self:?}");
        }
    }
}

#[derive(Debug, PartialEq)]
pub(crate) struct StreamedEvent {
    pub id: Option<u64>,
    pub event: String,
    pub data: Value,
}

type Bytes =
    std::pin::Pin<Box<dyn futures_util::Stream<Item = reqwest::Result<axum::body::Bytes>> + Send>>;

pub(crate) struct Stream {
    bytes: Bytes,
    text: String,
}

impl Stream {
    /// None: the server has ended the stream.
    pub(crate) async fn next(&mut self) -> Option<StreamedEvent> {
        loop {
            if let Some((one, rest)) = self.text.split_once("\n\n") {
                let field = |name: &str| {
                    let lines = one.lines().filter_map(|line| line.split_once(": "));
                    lines.filter(|(key, _)| *key == name).map(|(_, value)| value).next()
                };
                let told = field("event").map(|event| StreamedEvent {
                    id: field("id").map(|id| id.parse().unwrap()),
                    event: event.to_owned(),
                    data: serde_json::from_str(field("data").unwrap()).unwrap(),
                });
                let rest = rest.to_owned();
                self.text = rest;
                if told.is_some() {
                    return told;
                }
                continue;
            }
            let chunk = self.bytes.next().await?.unwrap();
            self.text.push_str(std::str::from_utf8(&chunk).unwrap());
        }
    }
}
