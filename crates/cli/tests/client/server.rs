//! A server as it is, but for its workers: what a step runs says how its attempts end. Its door can
//! be closed and opened again, as a restart looks from outside.

use std::net::{SocketAddr, TcpListener};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime};

use axum::extract::Request;
use axum::middleware::{Next, from_fn};
use steadfast_api::WorkerInfo;
use steadfast_core::decide::Input;
use steadfast_core::event::{JobId, RecordedEvent};
use steadfast_core::outcome::{ErrorText, Failure, FailureKind, Outcome};
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
use steadfast_server::queries::JobReader;
use steadfast_server::shared_answers::SharedAnswers;
use steadfast_store::{Folder, Journal as _, Owner, SqliteStore};
use tokio::runtime::Runtime;

/// What a terminal must never be given.
pub(crate) const HOSTILE: &str = "\x1b[2J\x1b]0;mine\x07\u{9b}31m\u{202e}";

#[allow(clippy::disallowed_methods, reason = "a server has a clock")]
fn now() -> Timestamp {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).expect("after 1970");
    Timestamp(since.as_millis() as u64)
}

#[derive(Debug)]
struct RealTime(Instant);

impl Clock for RealTime {
    fn now(&self) -> Timestamp {
        now()
    }

    fn monotonic_ms(&self) -> u64 {
        self.0.elapsed().as_millis() as u64
    }
}

type Held = Arc<Mutex<Vec<Work>>>;

/// `ok` succeeds, `fail` exits with 1, `hostile` fails with an error that is an attack, `fail-in DC`
/// fails there only, `hold` waits for [`Server::release`]; each prints a line.
struct Scripted(Sender<Work>);

fn outcome(script: &str, datacenter: Option<&str>) -> Option<Outcome> {
    let failure = Failure::new(FailureKind::Exited(1));
    match script.split_once(' ').unwrap_or((script, "")) {
        ("fail", _) => Some(Outcome::Failed(failure)),
        ("fail-in", dc) if datacenter == Some(dc) => Some(Outcome::Failed(failure)),
        ("ok" | "fail-in", _) => Some(Outcome::OK),
        ("hostile", _) => {
            let error = Some(ErrorText { kind: None, message: HOSTILE.to_owned() });
            Some(Outcome::Failed(Failure { error, ..failure }))
        }
        _ => None,
    }
}

impl Scripted {
    fn new(inbox: Inbox, folder: Folder, held: Held) -> Self {
        let (sender, works) = channel::<Work>();
        std::thread::spawn(move || {
            for work in works {
                let Assignment { job, item, attempt, token, .. } = &work.assignment;
                let log = folder.log(job, &work.step, *item, *attempt);
                std::fs::create_dir_all(log.parent().expect("a folder")).expect("a folder");
                let printed = format!("attempt {attempt} of {} prints ü\n", work.step);
                std::fs::write(&log, printed).expect("writes");
                let Ok(Action::Run(script)) = &work.action else { panic!("{work:?}") };
                match outcome(script, work.datacenter.as_deref()) {
                    None => held.lock().expect("nobody panics").push(work),
                    Some(outcome) => {
                        let report = Input::Report { item: *item, token: *token, outcome };
                        inbox.report(job, report);
                    }
                }
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

struct EventSender(Notifications);

impl Observer for EventSender {
    fn committed(&mut self, job: &JobId, records: Vec<RecordedEvent>) {
        self.0.told(job, &records);
    }
}

#[derive(Debug)]
struct OneWorker;

#[tonic::async_trait]
impl WorkerQueries for OneWorker {
    async fn list(&self) -> Result<Vec<WorkerInfo>, ApiError> {
        Ok(vec![WorkerInfo {
            name: "rack-3".to_owned(),
            datacenter: Some("eu-west".to_owned()),
            state: "quarantined".to_owned(),
            why: Some(format!("everything fails there{HOSTILE}")),
            slots: 4,
            credits: 4,
            busy: 1,
            cpu: Some(8.0),
            cpu_used: 1.5,
            memory_bytes: Some(3 << 29),
            memory_used: 512 << 20,
            lease_left_ms: 30_000,
            labels: [("disk".to_owned(), "ssd".to_owned())].into(),
            functions: vec![],
        }])
    }

    async fn undrain(&self, name: &str) -> Result<(), ApiError> {
        self.drain(name).await
    }

    async fn drain(&self, name: &str) -> Result<(), ApiError> {
        let none = || ApiError::NotFound(format!("there is no worker {name:?}"));
        (name == "rack-3").then_some(()).ok_or_else(none)
    }

    async fn queue_by_reason(&self) -> Result<Vec<(String, u64)>, ApiError> {
        Ok(vec![])
    }

    async fn why_not_running(&self, _: &str) -> Result<Vec<((u32, u32), String)>, ApiError> {
        Ok(vec![])
    }
}

pub(crate) struct Server {
    pub(crate) folder: Folder,
    pub(crate) address: SocketAddr,
    app: App,
    door: Option<Runtime>,
    held: Held,
    followers: Arc<AtomicUsize>,
    live: Option<Live>,
    _root: tempfile::TempDir,
}

impl Server {
    #[allow(clippy::disallowed_methods, reason = "a server has a clock")]
    pub(crate) fn with(operator: Operator, address: &str) -> Self {
        let root = tempfile::tempdir().expect("a folder");
        let folder = Folder::new(root.path().to_owned());
        let (notifications, held, operator) =
            (Notifications::new(), Held::default(), Arc::new(operator));
        let mut store = SqliteStore::open(&folder.database()).expect("a database");
        let owner = store.take(Owner::SHARD, Timestamp(0), None).expect("it writes");
        let live = Live::start(
            Box::new(store),
            Box::new(RealTime(Instant::now())),
            Placement::here(Slots::unlimited(), "w1"),
            Ownership::alone(owner),
            |inbox| Scripted::new(inbox, folder.clone(), held.clone()),
            Box::new(EventSender(notifications.clone())),
        );
        let reader = JobReader::open(folder.storage(), 3).expect("an reader");
        let inbox = live.inbox().clone();
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
            commands: JobCommands::new(
                inbox,
                reader.clone(),
                operator.clone(),
                folder.storage().blobs(),
                Health::new(folder.storage().space(), 0),
            ),
            reader,
            notifications,
            shared: SharedAnswers::default(),
            clock: Arc::new(now),
            operator,
            workers: Arc::new(OneWorker),
            blobs: folder.storage().blobs(),
            limits: Limits::default(),
            recent: RecentActivity::default(),
            started_at: now(),
        };
        let address = address.parse().expect("an address");
        let live = Some(live);
        let followers = Arc::default();
        let mut server =
            Self { folder, address, app, door: None, held, followers, live, _root: root };
        server.open();
        server
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Takes connections at its address, the same each time.
    pub(crate) fn open(&mut self) {
        let runtime = Runtime::new().expect("a runtime");
        let listener = TcpListener::bind(self.address).expect("the port is free");
        self.address = listener.local_addr().expect("an address");
        listener.set_nonblocking(true).expect("does not block");
        let followers = self.followers.clone();
        let count = move |request: Request, next: Next| {
            let follows = request.uri().path().ends_with("/events");
            followers.fetch_add(usize::from(follows), Ordering::SeqCst);
            next.run(request)
        };
        let app = router(self.app.clone()).layer(from_fn(count));
        runtime.spawn(async move {
            let listener = tokio::net::TcpListener::from_std(listener).expect("a listener");
            axum::serve(listener, app).await
        });
        self.door = Some(runtime);
    }

    /// Cuts all connections and takes no more.
    pub(crate) fn close(&mut self) {
        if let Some(door) = self.door.take() {
            door.shutdown_timeout(Duration::from_secs(10));
        }
    }

    /// How often somebody has asked for events.
    pub(crate) fn followers(&self) -> usize {
        self.followers.load(Ordering::SeqCst)
    }

    /// How many attempts wait to be released.
    pub(crate) fn holds(&self) -> usize {
        self.held.lock().expect("nobody panics").len()
    }

    /// Everything that is held is at a service now, and has said how far it is.
    pub(crate) fn call_out(&self) {
        let inbox = self.live.as_ref().expect("it lives").inbox();
        for work in self.held.lock().expect("nobody panics").iter() {
            let Assignment { job, item, token, .. } = work.assignment.clone();
            inbox.report(&job, Input::Awaits { item, token });
            let progress = Arc::new(serde_json::json!({"p": 1}));
            inbox.report(&job, Input::Progress { item, token, progress, by_callback: true });
        }
    }

    /// Everything that is held succeeds.
    pub(crate) fn release(&self) {
        let inbox = self.live.as_ref().expect("it lives").inbox();
        for work in self.held.lock().expect("nobody panics").drain(..) {
            let Assignment { job, item, token, .. } = work.assignment;
            inbox.report(&job, Input::Report { item, token, outcome: Outcome::OK });
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.close();
        if let Some(live) = self.live.take() {
            let _ = live.stop();
        }
    }
}
