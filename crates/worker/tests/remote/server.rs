//! A server on loopback that does what a test says, and nothing else but answering beats.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
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
        let (lease_ms, beat_ms) = (lease.as_millis() as u64, beat.as_millis() as u64);
        self.say(to_worker::Kind::Welcome(proto::Welcome {
            lease_ms,
            beat_ms,
            proof: PROOF.to_vec(),
        }))
        .await;
    }

    /// With nothing between them in which the worker could say anything.
    pub(crate) async fn welcome_and_undrain(&self) {
        let (lease_ms, beat_ms) = (LONG.as_millis() as u64 * 10, 50);
        let welcome = proto::Welcome { lease_ms, beat_ms, proof: PROOF.to_vec() };
        let both = [to_worker::Kind::Welcome(welcome), to_worker::Kind::Undrain(proto::Undrain {})];
        for (kind, room) in both.into_iter().zip(self.to.reserve_many(2).await.expect("room")) {
            room.send(Ok(proto::ToWorker { kind: Some(kind) }));
        }
    }

    pub(crate) async fn assign(&self, assignment: &proto::Assignment) {
        self.say(to_worker::Kind::Assignment(assignment.clone())).await;
    }

    pub(crate) async fn withdraw(&self, assignment: &proto::Assignment) {
        let attempt = assignment.attempt.clone();
        self.say(to_worker::Kind::Withdrawal(proto::Withdrawal { attempt })).await;
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

    pub(crate) async fn output(&mut self) -> proto::Output {
        self.hear(|kind| match kind {
            from_worker::Kind::Output(output) => Some(output.clone()),
            _ => None,
        })
        .await
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
        let mut log = Vec::new();
        while !String::from_utf8_lossy(&log).contains(text) {
            put(&mut log, &self.output_of(assignment).await);
        }
    }

    /// What others print meanwhile waits for its turn.
    async fn output_of(&mut self, assignment: &proto::Assignment) -> proto::Output {
        self.hear(|kind| match kind {
            from_worker::Kind::Output(output) if output.attempt == assignment.attempt => {
                Some(output.clone())
            }
            _ => None,
        })
        .await
    }

    /// The whole log of an attempt, as the messages give it.
    pub(crate) async fn whole_log(&mut self, assignment: &proto::Assignment) -> Vec<u8> {
        let mut log = Vec::new();
        loop {
            let output = self.output_of(assignment).await;
            put(&mut log, &output);
            if output.last {
                return log;
            }
        }
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

fn put(log: &mut Vec<u8>, output: &proto::Output) {
    let offset = output.offset as usize;
    assert!(offset <= log.len(), "there is a hole before {offset}");
    log.truncate(offset);
    log.extend(&output.bytes);
    assert!(output.bytes.len() <= 64 * 1024);
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
        let session = Session { hello, authorization, from, to, aside: Vec::new() };
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
}
