//! A server on loopback that does what a test says, and nothing else but answering beats.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use proto::workers_server::{Workers, WorkersServer};
use proto::{from_worker, to_worker};
use steadfast_api::proto;
use tokio::sync::mpsc;
use tokio::time::timeout;
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::server::TcpIncoming;
use tonic::{Request, Response, Status, Streaming};

/// Longer than anything here takes, so that a failure is a failure and not a hang.
pub(crate) const LONG: Duration = Duration::from_secs(30);

/// That the server has let a worker in.
pub(crate) const PROOF: &[u8] = b"you were here";

/// What the server shares with the test.
#[derive(Default)]
pub(crate) struct Shared {
    /// Every session is refused with this.
    pub(crate) refusal: Mutex<Option<Status>>,
    /// So many were.
    pub(crate) refused: AtomicU32,
    /// Beats are not answered.
    pub(crate) deaf: AtomicBool,
    /// By path; and whether it is executable.
    pub(crate) files: Mutex<HashMap<String, (Vec<u8>, bool)>>,
    pub(crate) fetched: AtomicU32,
    pub(crate) logs: Mutex<Logs>,
    /// A piece of a log is answered with this.
    pub(crate) log_refusal: Mutex<Option<Status>>,
    /// A piece of a log is not answered while this is held.
    pub(crate) log_gate: tokio::sync::Mutex<()>,
    /// What an attempt may print; 0: as much as it likes.
    pub(crate) log_bytes: AtomicU64,
    pub(crate) output_bytes: AtomicU64,
}

/// What was sent by `SendLog`.
#[derive(Default)]
pub(crate) struct Logs {
    pub(crate) chunks: Vec<proto::LogChunk>,
    /// By attempt; and whether it is whole.
    whole: HashMap<String, (Vec<u8>, bool)>,
    /// Chunks that a test has taken.
    taken: usize,
}

impl Logs {
    /// A server has so much of a log already.
    pub(crate) fn has(&mut self, name: &str, bytes: &[u8]) {
        self.chunks.clear();
        self.whole.insert(name.to_owned(), (bytes.to_vec(), false));
    }
}

fn named(attempt: Option<&proto::AttemptRef>) -> String {
    attempt.map(|attempt| attempt.id().to_string()).unwrap_or_default()
}

pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    pub(crate) shared: Arc<Shared>,
    sessions: mpsc::UnboundedReceiver<Session>,
}

/// One session, in the test's hands. Dropping it ends it.
pub(crate) struct Session {
    pub(crate) hello: proto::Hello,
    pub(crate) authorization: Option<String>,
    from: mpsc::UnboundedReceiver<from_worker::Kind>,
    to: mpsc::Sender<Result<proto::ToWorker, Status>>,
    /// What came while something else was waited for.
    aside: Vec<from_worker::Kind>,
    shared: Arc<Shared>,
}

struct Service {
    shared: Arc<Shared>,
    sessions: mpsc::UnboundedSender<Session>,
}

impl Server {
    pub(crate) fn start() -> Self {
        Self::start_at(([127, 0, 0, 1], 0).into())
    }

    pub(crate) fn start_at(address: SocketAddr) -> Self {
        let incoming = TcpIncoming::bind(address).unwrap();
        let address = incoming.local_addr().unwrap();
        let shared = Arc::new(Shared::default());
        let (sessions, received) = mpsc::unbounded_channel();
        let service = Service { shared: shared.clone(), sessions };
        tokio::spawn(
            tonic::transport::Server::builder()
                .add_service(WorkersServer::new(service))
                .serve_with_incoming(incoming),
        );
        Self { address, shared, sessions: received }
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// The next session, before its welcome.
    pub(crate) async fn knock(&mut self) -> Session {
        timeout(LONG, self.sessions.recv()).await.expect("a session").unwrap()
    }

    /// The next session, with a lease that no test outlives.
    pub(crate) async fn session(&mut self) -> Session {
        let session = self.knock().await;
        session.welcome(LONG * 10, Duration::from_millis(50)).await;
        session
    }

    pub(crate) fn file(&self, path: &str, bytes: &[u8], executable: bool) {
        let mut files = self.shared.files.lock().unwrap();
        files.insert(path.to_owned(), (bytes.to_vec(), executable));
    }
}

impl Session {
    async fn say(&self, kind: to_worker::Kind) {
        self.to
            .send(Ok(proto::ToWorker { kind: Some(kind) }))
            .await
            .expect("a worker that listens");
    }

    pub(crate) async fn welcome(&self, lease: Duration, beat: Duration) {
        self.say(to_worker::Kind::Welcome(self.welcome_with(lease, beat))).await;
    }

    fn welcome_with(&self, lease: Duration, beat: Duration) -> proto::Welcome {
        proto::Welcome {
            lease_ms: lease.as_millis() as u64,
            beat_ms: beat.as_millis() as u64,
            proof: PROOF.to_vec(),
            log_bytes: self.shared.log_bytes.load(Ordering::SeqCst),
            output_bytes: self.shared.output_bytes.load(Ordering::SeqCst),
            peers: vec![],
            ..proto::Welcome::default()
        }
    }

    /// As one of several servers that share jobs.
    pub(crate) async fn welcome_as(&self, scope: &str, epoch: u64) {
        let welcome = self.welcome_with(LONG * 10, Duration::from_millis(50));
        let scope = scope.to_owned();
        self.say(to_worker::Kind::Welcome(proto::Welcome { scope, epoch, ..welcome })).await;
    }

    /// The attempts of a shard are this server's from now on.
    pub(crate) async fn take_over(&self, scope: &str, epoch: u64, of: &[&proto::Assignment]) {
        let attempts = of.iter().filter_map(|assignment| assignment.attempt.clone()).collect();
        let took_over = proto::TookOver { scope: scope.to_owned(), epoch, attempts };
        self.say(to_worker::Kind::TookOver(took_over)).await;
    }

    /// With nothing between them in which the worker could say anything.
    pub(crate) async fn welcome_and_undrain(&self) {
        let welcome = self.welcome_with(LONG * 10, Duration::from_millis(50));
        let both = [to_worker::Kind::Welcome(welcome), to_worker::Kind::Undrain(proto::Undrain {})];
        for (kind, room) in both.into_iter().zip(self.to.reserve_many(2).await.expect("room")) {
            room.send(Ok(proto::ToWorker { kind: Some(kind) }));
        }
    }

    pub(crate) async fn assign(&self, assignment: &proto::Assignment) {
        self.say(to_worker::Kind::Assignment(assignment.clone())).await;
    }

    pub(crate) async fn withdraw(&self, assignment: &proto::Assignment) {
        let proto::Assignment { attempt, scope, epoch, .. } = assignment.clone();
        let withdrawal = proto::Withdrawal { attempt, scope, epoch };
        self.say(to_worker::Kind::Withdrawal(withdrawal)).await;
    }

    pub(crate) async fn acknowledge(&self, report: &proto::Report) {
        let attempt = report.attempt.clone();
        let acknowledgement = proto::Acknowledgement { attempt, counted: true };
        self.say(to_worker::Kind::Acknowledgement(acknowledgement)).await;
    }

    pub(crate) async fn drain(&self) {
        self.say(to_worker::Kind::Drain(proto::Drain {})).await;
    }

    pub(crate) async fn undrain(&self) {
        self.say(to_worker::Kind::Undrain(proto::Undrain {})).await;
    }

    /// Its answer to that.
    pub(crate) async fn undrained(&mut self) {
        self.hear(|kind| matches!(kind, from_worker::Kind::Undrained(_)).then_some(())).await;
    }

    /// The first thing said that `wanted` has a use for; the rest waits for its turn.
    async fn hear<T>(&mut self, wanted: impl Fn(&from_worker::Kind) -> Option<T>) -> T {
        if let Some(at) = self.aside.iter().position(|kind| wanted(kind).is_some()) {
            return wanted(&self.aside.remove(at)).unwrap();
        }
        loop {
            let kind =
                timeout(LONG, self.from.recv()).await.expect("it is said").expect("a session");
            match wanted(&kind) {
                Some(found) => return found,
                None => self.aside.push(kind),
            }
        }
    }

    pub(crate) async fn report(&mut self) -> proto::Report {
        self.hear(|kind| match kind {
            from_worker::Kind::Report(report) => Some(report.clone()),
            _ => None,
        })
        .await
    }

    /// The next piece of a log.
    pub(crate) async fn output(&mut self) -> proto::LogChunk {
        self.look(|logs| {
            let chunk = logs.chunks.get(logs.taken)?.clone();
            logs.taken += 1;
            Some(chunk)
        })
        .await
    }

    /// Waits for something about logs.
    async fn look<T>(&mut self, mut find: impl FnMut(&mut Logs) -> Option<T>) -> T {
        let looked = timeout(LONG, async {
            loop {
                if let Some(found) = find(&mut self.shared.logs.lock().unwrap()) {
                    return found;
                }
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        });
        looked.await.expect("it is printed")
    }

    pub(crate) async fn draining(&mut self) -> String {
        self.hear(|kind| match kind {
            from_worker::Kind::Draining(draining) => Some(draining.why.clone()),
            _ => None,
        })
        .await
    }

    /// Waits until an attempt has printed this.
    pub(crate) async fn printed(&mut self, assignment: &proto::Assignment, text: &str) {
        let name = named(assignment.attempt.as_ref());
        self.look(|logs| {
            let (log, _) = logs.whole.get(&name)?;
            String::from_utf8_lossy(log).contains(text).then_some(())
        })
        .await;
    }

    /// The whole log of an attempt. Its report is acknowledged, as the end of a log follows that, and put aside.
    pub(crate) async fn whole_log(&mut self, assignment: &proto::Assignment) -> Vec<u8> {
        let report = self
            .hear(|kind| match kind {
                from_worker::Kind::Report(report) if report.attempt == assignment.attempt => {
                    Some(report.clone())
                }
                _ => None,
            })
            .await;
        assert!(report.log_follows, "{report:?}");
        self.acknowledge(&report).await;
        self.aside.push(from_worker::Kind::Report(report));
        self.end_of_log(assignment).await
    }

    /// The same of one whose report was acknowledged, or is not wanted.
    pub(crate) async fn end_of_log(&mut self, assignment: &proto::Assignment) -> Vec<u8> {
        let name = named(assignment.attempt.as_ref());
        self.look(|logs| {
            let (log, whole) = logs.whole.get(&name)?;
            whole.then(|| log.clone())
        })
        .await
    }

    /// What was said before what was waited for.
    pub(crate) fn aside(&self) -> &[from_worker::Kind] {
        &self.aside
    }

    /// Everything that was said until now and not asked for.
    pub(crate) fn unasked(&mut self) -> Vec<from_worker::Kind> {
        while let Ok(kind) = self.from.try_recv() {
            self.aside.push(kind);
        }
        std::mem::take(&mut self.aside)
    }

    /// The worker ends the session, having said nothing but what is returned.
    pub(crate) async fn ended(&mut self) -> Vec<from_worker::Kind> {
        while let Some(kind) = timeout(LONG, self.from.recv()).await.expect("it ends") {
            self.aside.push(kind);
        }
        std::mem::take(&mut self.aside)
    }
}

#[tonic::async_trait]
impl Workers for Service {
    type SessionStream = ReceiverStream<Result<proto::ToWorker, Status>>;
    type GetFileStream = ReceiverStream<Result<proto::FileChunk, Status>>;

    async fn session(
        &self,
        request: Request<Streaming<proto::FromWorker>>,
    ) -> Result<Response<Self::SessionStream>, Status> {
        if let Some(status) = self.shared.refusal.lock().unwrap().clone() {
            self.shared.refused.fetch_add(1, Ordering::SeqCst);
            return Err(status);
        }
        let header = request.metadata().get("authorization");
        let authorization = header.map(|value| value.to_str().unwrap().to_owned());
        let mut said = request.into_inner();
        let Some(from_worker::Kind::Hello(hello)) = said.message().await?.and_then(|m| m.kind)
        else {
            return Err(Status::invalid_argument("no hello"));
        };
        let (to, told) = mpsc::channel(100);
        let (heard, from) = mpsc::unbounded_channel();
        let shared = self.shared.clone();
        let session = Session { hello, authorization, from, to, aside: Vec::new(), shared };
        // Only the test keeps the stream open.
        let answers = session.to.downgrade();
        let shared = self.shared.clone();
        tokio::spawn(async move {
            while let Ok(Some(proto::FromWorker { kind: Some(kind) })) = said.message().await {
                if let from_worker::Kind::Beat(beat) = kind {
                    if !shared.deaf.load(Ordering::SeqCst)
                        && let Some(to) = answers.upgrade()
                    {
                        let kind = Some(to_worker::Kind::Beat(beat));
                        let _ = to.send(Ok(proto::ToWorker { kind })).await;
                    }
                } else if heard.send(kind).is_err() {
                    return;
                }
            }
        });
        let _ = self.sessions.send(session);
        Ok(Response::new(ReceiverStream::new(told)))
    }

    async fn get_file(
        &self,
        request: Request<proto::GetFileRequest>,
    ) -> Result<Response<Self::GetFileStream>, Status> {
        self.shared.fetched.fetch_add(1, Ordering::SeqCst);
        let proto::GetFileRequest { attempt, path, worker } = request.into_inner();
        // As it was assigned, and by the worker's name: real servers want both.
        if worker != "w1" || attempt.is_none_or(|attempt| attempt.proof.is_empty()) {
            return Err(Status::permission_denied("not assigned"));
        }
        let found = self.shared.files.lock().unwrap().get(&path).cloned();
        let (bytes, executable) = found.ok_or_else(|| Status::not_found(path))?;
        let (sender, receiver) = mpsc::channel(10);
        tokio::spawn(async move {
            let mut executable = executable;
            for bytes in bytes.chunks(1_000) {
                let bytes = bytes.to_vec();
                let _ = sender.send(Ok(proto::FileChunk { bytes, executable })).await;
                executable = false;
            }
        });
        Ok(Response::new(ReceiverStream::new(receiver)))
    }

    async fn send_log(
        &self,
        request: Request<proto::LogChunk>,
    ) -> Result<Response<proto::LogAck>, Status> {
        let _gate = self.shared.log_gate.lock().await;
        if let Some(status) = self.shared.log_refusal.lock().unwrap().clone() {
            return Err(status);
        }
        let chunk = request.into_inner();
        assert_eq!(chunk.worker, "w1");
        assert!(chunk.bytes.len() <= 1 << 20);
        let mut logs = self.shared.logs.lock().unwrap();
        let (log, whole) = logs.whole.entry(named(chunk.attempt.as_ref())).or_default();
        let offset = chunk.offset as usize;
        if offset <= log.len() && (!chunk.bytes.is_empty() || chunk.last) {
            log.truncate(offset);
            log.extend(&chunk.bytes);
            *whole |= chunk.last;
        }
        let answer = proto::LogAck { length: log.len() as u64, complete: *whole };
        logs.chunks.push(chunk);
        Ok(Response::new(answer))
    }
}
