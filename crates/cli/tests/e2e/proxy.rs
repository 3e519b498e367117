//! Between workers and a server: passes everything on, but for some of the beats.

use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use steadfast_api::proto;
use steadfast_api::proto::from_worker::Kind;
use steadfast_api::proto::workers_client::WorkersClient;
use steadfast_api::proto::workers_server::{Workers, WorkersServer};
use tokio::runtime::Runtime;
use tokio_stream::{Stream, StreamExt as _};
use tonic::transport::server::TcpIncoming;
use tonic::transport::{Channel, Endpoint, Server};
use tonic::{Request, Response, Status, Streaming};

use super::harness::wait_for;

pub(crate) struct Proxy {
    /// Everything of it ends with it.
    _runtime: Runtime,
    address: SocketAddr,
    seen: Arc<Seen>,
}

struct Seen {
    beats: AtomicU64,
    dropped: AtomicU64,
    sessions: AtomicU64,
    percent: u64,
    chance: Mutex<u64>,
}

impl Seen {
    /// Whether this beat gets lost.
    fn drops(&self) -> bool {
        let mut chance = self.chance.lock().expect("unpoisoned");
        *chance ^= *chance << 13;
        *chance ^= *chance >> 7;
        *chance ^= *chance << 17;
        let lost = *chance % 100 < self.percent;
        self.beats.fetch_add(1, Ordering::Relaxed);
        self.dropped.fetch_add(u64::from(lost), Ordering::Relaxed);
        lost
    }
}

impl Proxy {
    pub(crate) fn start(server: &str, percent: u64, seed: u64) -> Self {
        let runtime = Runtime::new().expect("a runtime");
        let seen = Arc::new(Seen {
            beats: AtomicU64::new(0),
            dropped: AtomicU64::new(0),
            sessions: AtomicU64::new(0),
            percent,
            chance: Mutex::new(seed | 1),
        });
        let endpoint = Endpoint::from_shared(server.to_owned()).expect("an address");
        let between = Between { endpoint, seen: seen.clone() };
        let address = runtime.block_on(async {
            let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
            let address = listener.local_addr().expect("an address");
            let serving = Server::builder()
                .add_service(WorkersServer::new(between))
                .serve_with_incoming(TcpIncoming::from(listener));
            tokio::spawn(serving);
            address
        });
        Self { _runtime: runtime, address, seen }
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Beats that came, and those of them that went no further.
    pub(crate) fn counts(&self) -> (u64, u64) {
        (self.seen.beats.load(Ordering::Relaxed), self.seen.dropped.load(Ordering::Relaxed))
    }

    pub(crate) fn sessions(&self) -> u64 {
        self.seen.sessions.load(Ordering::Relaxed)
    }

    #[track_caller]
    pub(crate) fn until_beats(&self, wanted: u64) {
        wait_for("beats", || (self.counts().0 >= wanted).then_some(()));
    }
}

struct Between {
    endpoint: Endpoint,
    seen: Arc<Seen>,
}

impl Between {
    async fn onward(&self) -> Result<WorkersClient<Channel>, Status> {
        let channel = self.endpoint.connect().await;
        Ok(WorkersClient::new(channel.map_err(|error| Status::unavailable(error.to_string()))?))
    }
}

type Out<T> = Pin<Box<dyn Stream<Item = Result<T, Status>> + Send>>;

#[tonic::async_trait]
impl Workers for Between {
    type SessionStream = Out<proto::ToWorker>;
    type GetFileStream = Out<proto::FileChunk>;

    async fn session(
        &self,
        request: Request<Streaming<proto::FromWorker>>,
    ) -> Result<Response<Self::SessionStream>, Status> {
        let seen = self.seen.clone();
        seen.sessions.fetch_add(1, Ordering::Relaxed);
        let said = request.into_inner();
        // What breaks on one side ends the other.
        let onward = said
            .map_while(Result::ok)
            .filter(move |message| !matches!(message.kind, Some(Kind::Beat(_))) || !seen.drops());
        let told = self.onward().await?.session(onward).await?.into_inner();
        Ok(Response::new(Box::pin(told)))
    }

    async fn get_file(
        &self,
        request: Request<proto::GetFileRequest>,
    ) -> Result<Response<Self::GetFileStream>, Status> {
        let chunks = self.onward().await?.get_file(request.into_inner()).await?.into_inner();
        Ok(Response::new(Box::pin(chunks)))
    }

    async fn send_log(
        &self,
        request: Request<proto::LogChunk>,
    ) -> Result<Response<proto::LogAck>, Status> {
        self.onward().await?.send_log(request.into_inner()).await
    }
}
