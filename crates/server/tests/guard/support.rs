//! A server on a free loopback port, with a route of every class behind the guard.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::body::Bytes;
use axum::routing::{get, post};
use steadfast_core::time::Timestamp;
use steadfast_server::config::{Auth, ServerSettings};
use steadfast_server::guard::Guard;
use steadfast_server::listen::{ListenOptions, serve};
use steadfast_server::tls;
use steadfast_server::tokens::{Scope, Tokens};
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

/// Longer than anything here takes that works.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

pub(crate) fn kept_in(folder: &std::path::Path) -> Arc<dyn steadfast_store::Settings> {
    Arc::new(steadfast_store::FolderSettings::new(folder.to_owned()))
}

pub(crate) struct Running {
    pub(crate) address: SocketAddr,
    pub(crate) tokens: Arc<Tokens>,
    pub(crate) now: Arc<AtomicU64>,
    _folder: tempfile::TempDir,
    stop: Option<oneshot::Sender<()>>,
    pub(crate) done: JoinHandle<()>,
}

impl Running {
    pub(crate) async fn start(auth: Auth, settings: ServerSettings) -> Self {
        Self::start_with(auth, settings, routes()).await
    }

    pub(crate) async fn start_with(auth: Auth, settings: ServerSettings, app: Router) -> Self {
        steadfast_server::tls::use_ring();
        let folder = tempfile::tempdir().expect("a folder");
        let tokens = Arc::new(Tokens::open(kept_in(folder.path())).expect("no tokens yet"));
        let now = Arc::new(AtomicU64::new(1000));
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("bound");
        let clock = Arc::clone(&now);
        let clock = move || Timestamp(clock.load(Ordering::Relaxed));
        let guard = Guard::new(&settings, auth, address, Arc::clone(&tokens), clock);
        let tls = tls::server_config(&settings).expect("valid TLS files");
        let options = ListenOptions::new(&settings, tls);
        let (stop, stopped) = oneshot::channel();
        let stopped = async {
            let _ = stopped.await;
        };
        let done = tokio::spawn(serve(listener, guard.protect(app), options, stopped));
        Self { address, tokens, now, _folder: folder, stop: Some(stop), done }
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    pub(crate) fn token(&self, scope: Scope) -> String {
        self.tokens.create(scope, None, None, Timestamp(0)).expect("a token").text
    }

    pub(crate) fn stop(&mut self) {
        let _ = self.stop.take().expect("running").send(());
    }
}

/// What was logged.
#[derive(Clone, Default)]
pub(crate) struct Log(Arc<Mutex<Vec<u8>>>);

impl Log {
    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.0.lock().expect("whole")).into_owned()
    }
}

impl std::io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().expect("whole").write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// For a handler that is asked once.
pub(crate) fn once<T>(value: T) -> impl Fn() -> T + Clone {
    let kept = Arc::new(Mutex::new(Some(value)));
    move || kept.lock().expect("whole").take().expect("asked once")
}

/// What answers says that it was reached, in its own way.
pub(crate) fn routes() -> Router {
    let grpc = || async { tonic::Status::unimplemented("reached").into_http::<axum::body::Body>() };
    Router::new()
        .route("/", get(reached))
        .route("/assets/{*file}", get(reached))
        .route("/healthz", get(reached))
        .route("/readyz", get(reached))
        .route("/metrics", get(reached))
        .route("/openapi.json", get(reached))
        .route("/v1/jobs", get(reached).post(length))
        .route("/v1/jobs/{id}", get(reached))
        .route("/v1/jobs/{id}/cancel", post(reached))
        .route("/v1/workers/{name}/drain", post(reached))
        .route("/v1/callbacks/{token}", post(reached))
        .route("/steadfast.v1.Jobs/{method}", post(grpc))
        .route("/steadfast.v1.Workers/{method}", post(grpc))
        .route("/grpc.health.v1.Health/{method}", post(grpc))
        .route("/grpc.reflection.v1.ServerReflection/{method}", post(grpc))
}

async fn reached() -> &'static str {
    "reached"
}

async fn length(body: Bytes) -> String {
    body.len().to_string()
}
