//! Connections: accepted, bounded in number and time, served, ended. HTTP/1 and HTTP/2 on one port, with
//! TLS or without.
//!
//! What is slow costs its own connection and nobody else: each has so long to send a first request, to
//! take what is written to it, and to lie idle. A request that has begun is never cut, so that sessions
//! and event streams last as long as they like. Nothing here knows what is served.

mod busy;
mod connection_counts;
mod descriptors;
mod write_timeout;

use std::convert::Infallible;
use std::future::Future;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::ConnectInfo;
use hyper::body::Incoming;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use tokio::io::{AsyncRead, AsyncWrite, DuplexStream};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;
use tower::ServiceExt;

use crate::config::ServerSettings;
use busy::{Busy, Held};
use connection_counts::ConnectionCounts;
pub(crate) use connection_counts::network;
pub use descriptors::connections_within;
use write_timeout::WriteTimeout;

/// How often a silent HTTP/2 peer is asked whether it is there, and how long it may take to answer: a
/// session whose worker is gone must not look alive.
const PING: Duration = Duration::from_secs(20);
/// After this a connection that was told to end is dropped.
const FAREWELL: Duration = Duration::from_secs(1);
/// What a server without an address is called.
pub const INSIDE: SocketAddr = SocketAddr::V4(SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0));
/// When the machine has no more of what a connection needs, others must end first.
const EXHAUSTED: Duration = Duration::from_millis(100);

#[derive(Clone, Debug)]
pub struct ListenOptions {
    pub max_connections: usize,
    /// Of one address; further ones are closed at once.
    pub max_connections_per_address: usize,
    pub max_streams: u32,
    pub max_headers: usize,
    pub max_header_bytes: usize,
    pub header_timeout: Duration,
    pub write_timeout: Duration,
    pub idle_timeout: Duration,
    pub shutdown_grace: Duration,
    pub tls_handshake_timeout: Duration,
    pub tls: Option<Arc<rustls::ServerConfig>>,
}

impl ListenOptions {
    pub fn new(settings: &ServerSettings, tls: Option<Arc<rustls::ServerConfig>>) -> Self {
        Self {
            max_connections: settings.max_connections as usize,
            max_connections_per_address: settings.max_connections_per_address as usize,
            max_streams: settings.max_streams,
            max_headers: settings.max_headers as usize,
            max_header_bytes: settings.max_header_bytes,
            header_timeout: Duration::from_millis(settings.header_timeout_ms),
            write_timeout: Duration::from_millis(settings.write_timeout_ms),
            idle_timeout: Duration::from_millis(settings.idle_timeout_ms),
            shutdown_grace: Duration::from_millis(settings.shutdown_grace_ms),
            tls_handshake_timeout: Duration::from_millis(settings.tls_handshake_timeout_ms),
            tls,
        }
    }
}

/// Where connections come from.
#[derive(Debug)]
pub enum Listener {
    Network(TcpListener),
    /// From within this process: pipes.
    Inside(mpsc::Receiver<DuplexStream>),
}

enum Connection {
    Network(TcpStream, SocketAddr),
    Inside(DuplexStream),
}

impl From<TcpListener> for Listener {
    fn from(listener: TcpListener) -> Self {
        Self::Network(listener)
    }
}

impl Listener {
    async fn accept(&mut self) -> std::io::Result<Connection> {
        match self {
            Self::Network(listener) => {
                let (stream, peer) = listener.accept().await?;
                Ok(Connection::Network(stream, peer))
            }
            Self::Inside(pipes) => match pipes.recv().await {
                Some(pipe) => Ok(Connection::Inside(pipe)),
                // Nobody is left who could come.
                None => std::future::pending().await,
            },
        }
    }
}

/// Serves until `shutdown`; then takes no more, lets requests end within the grace, and returns.
pub async fn serve(
    entrance: impl Into<Listener>,
    app: Router,
    options: ListenOptions,
    shutdown: impl Future<Output = ()>,
) {
    let mut entrance = entrance.into();
    let (stop, stopped) = watch::channel(false);
    let grace = options.shutdown_grace;
    // More wait in the listener's own queue, where they cost next to nothing.
    let places = Arc::new(Semaphore::new(options.max_connections));
    let addresses = ConnectionCounts::new(options.max_connections_per_address);
    let server = Arc::new(Server { http: builder(&options), app, options, stopped });
    let mut connections = JoinSet::new();
    let mut shutdown = pin!(shutdown);
    let mut told_full = false;
    loop {
        if places.available_permits() == 0 && !told_full {
            tracing::warn!(
                max = server.options.max_connections,
                "all connections are taken; more wait"
            );
        }
        told_full = places.available_permits() == 0;
        let next = async {
            let place = Arc::clone(&places).acquire_owned().await;
            (place, entrance.accept().await)
        };
        let (place, accepted) = tokio::select! {
            biased;
            () = &mut shutdown => break,
            Some(_) = connections.join_next() => continue,
            next = next => next,
        };
        match accepted {
            Ok(Connection::Network(stream, peer)) => {
                let Some(counted) = addresses.admit(peer.ip()) else {
                    tracing::debug!(%peer, "this address has all the connections it may have");
                    continue;
                };
                let server = Arc::clone(&server);
                connections.spawn(async move {
                    server.connection(stream, peer).await;
                    drop((place, counted));
                });
            }
            Ok(Connection::Inside(pipe)) => {
                let server = Arc::clone(&server);
                connections.spawn(async move {
                    server.serve(pipe, INSIDE).await;
                    drop(place);
                });
            }
            // The peer went away before it was its turn.
            Err(error) if is_of_one_connection(&error) => {}
            Err(error) => {
                tracing::error!(%error, "cannot accept connections");
                tokio::time::sleep(EXHAUSTED).await;
            }
        }
    }
    drop(entrance);
    stop.send_replace(true);
    let all = async { while connections.join_next().await.is_some() {} };
    if timeout(grace, all).await.is_err() {
        tracing::info!(connections = connections.len(), "the grace is over; connections are cut");
        connections.shutdown().await;
    }
}

fn is_of_one_connection(error: &std::io::Error) -> bool {
    use std::io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset, Interrupted};
    matches!(error.kind(), ConnectionAborted | ConnectionRefused | ConnectionReset | Interrupted)
}

fn builder(options: &ListenOptions) -> Builder<TokioExecutor> {
    let mut builder = Builder::new(TokioExecutor::new());
    builder
        .http1()
        .timer(TokioTimer::new())
        .max_headers(options.max_headers)
        .max_buf_size(options.max_header_bytes)
        // Ours counts from the connection on, and for HTTP/2 too.
        .header_read_timeout(None);
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_concurrent_streams(options.max_streams)
        .max_header_list_size(options.max_header_bytes as u32)
        .keep_alive_interval(PING)
        .keep_alive_timeout(PING);
    builder
}

struct Server {
    http: Builder<TokioExecutor>,
    app: Router,
    options: ListenOptions,
    stopped: watch::Receiver<bool>,
}

impl Server {
    async fn connection(&self, stream: TcpStream, peer: SocketAddr) {
        // Events are small, and wanted at once. Where it cannot be set they come a little later.
        let _ = stream.set_nodelay(true);
        let stream = WriteTimeout::new(stream, self.options.write_timeout);
        let Some(tls) = &self.options.tls else {
            return self.serve(stream, peer).await;
        };
        let handshake = TlsAcceptor::from(Arc::clone(tls)).accept(stream);
        match timeout(self.options.tls_handshake_timeout, handshake).await {
            Ok(Ok(stream)) => self.serve(stream, peer).await,
            Ok(Err(error)) => tracing::debug!(%peer, %error, "no TLS with this peer"),
            Err(_) => tracing::debug!(%peer, "the TLS handshake took too long"),
        }
    }

    async fn serve(&self, stream: impl AsyncRead + AsyncWrite + Unpin + 'static, peer: SocketAddr) {
        let busy = Busy::default();
        let service = hyper::service::service_fn(|request: hyper::Request<Incoming>| {
            let many = request.version() == hyper::Version::HTTP_2;
            let held = busy.request(many.then_some(self.options.write_timeout));
            let mut request = request.map(Body::new);
            request.extensions_mut().insert(ConnectInfo(peer));
            let answer = self.app.clone().oneshot(request);
            async move {
                let response = answer.await?;
                Ok::<_, Infallible>(response.map(|body| Held::new(body, held)))
            }
        });
        let mut connection = pin!(self.http.serve_connection(TokioIo::new(stream), service));
        let mut stopped = self.stopped.clone();
        let stopping = async move {
            // The sender lives as long as the loop that this connection belongs to.
            let _ = stopped.wait_for(|stopped| *stopped).await;
        };
        let mut idle = pin!(busy.idle(self.options.header_timeout, self.options.idle_timeout));
        let stopping = tokio::select! {
            ended = connection.as_mut() => return told(peer, ended),
            // Nobody is there for a farewell.
            () = busy.stalled(self.options.write_timeout) => return,
            () = &mut idle => false,
            () = stopping => true,
        };
        if stopping {
            connection.as_mut().graceful_shutdown();
            tokio::select! {
                ended = connection.as_mut() => return told(peer, ended),
                () = busy.stalled(self.options.write_timeout) => return,
                () = &mut idle => {}
            }
        }
        connection.as_mut().graceful_shutdown();
        if let Ok(ended) = timeout(FAREWELL, connection).await {
            told(peer, ended);
        }
    }
}

fn told(peer: SocketAddr, ended: Result<(), Box<dyn std::error::Error + Send + Sync>>) {
    if let Err(error) = ended {
        tracing::debug!(%peer, %error, "a connection broke");
    }
}
