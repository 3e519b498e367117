//! A connection to a web service: its name looked up once, every address checked, and the connection
//! made to exactly the address that was checked. TLS on top where the address says https.
//!
//! Nothing else in the crate opens a connection for an `http` step, so redirects and connections that
//! are kept for later are held by the same check.

use std::error::Error;
use std::fmt;
use std::io::{self, IoSlice};
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use hyper::Uri;
use hyper_util::client::legacy::connect::{Connected, Connection};
use hyper_util::rt::TokioIo;
use rustls::crypto::ring;
use rustls::{ClientConfig, RootCertStore};
use rustls_pki_types::{CertificateDer, ServerName};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpStream, lookup_host};
use tokio::sync::OnceCell;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::address::{Allowed, Class, refused};

/// A name may have more addresses than anybody waits for.
const MOST_ADDRESSES: usize = 8;
/// How long one address may take while there is another to try.
const ADDRESS_PATIENCE: Duration = Duration::from_secs(3);

#[derive(Debug, thiserror::Error)]
pub(super) enum ConnectError {
    #[error(
        "{host} is not called: {address} is {}, which the operator has not allowed \
         (--allow-outbound {} would)",
        class.describe(), class.allowed_by(*address)
    )]
    Refused { host: String, address: IpAddr, class: Class },
    #[error("the name {host} cannot be looked up: {error}")]
    Unresolved { host: String, error: io::Error },
    #[error("the name {host} has no address")]
    NoAddress { host: String },
    #[error("cannot connect to {host} at {address}: {error}")]
    Unreachable { host: String, address: SocketAddr, error: io::Error },
    #[error("no TLS with {host}: {error}")]
    Tls { host: String, error: Box<dyn Error + Send + Sync> },
}

pub(super) type Boxed<T> = Pin<Box<dyn Future<Output = T> + Send>>;
/// What a name stands for; asked once for each connection.
pub(super) type Resolver =
    Arc<dyn Fn(String, u16) -> Boxed<io::Result<Vec<SocketAddr>>> + Send + Sync>;

pub(super) fn system_resolver() -> Resolver {
    Arc::new(|host, port| Box::pin(async move { Ok(lookup_host((host, port)).await?.collect()) }))
}

#[derive(Clone)]
pub(super) struct Connector(Arc<Reach>);

struct Reach {
    allow: Vec<Allowed>,
    resolver: Resolver,
    more_roots: Vec<CertificateDer<'static>>,
    /// Made by the first https: whoever calls none need not read the system's certificates.
    tls: OnceCell<TlsConnector>,
}

impl Connector {
    pub(super) fn new(
        allow: Vec<Allowed>,
        more_roots: Vec<CertificateDer<'static>>,
        resolver: Resolver,
    ) -> Self {
        Self(Arc::new(Reach { allow, resolver, more_roots, tls: OnceCell::new() }))
    }
}

impl tower::Service<Uri> for Connector {
    type Response = TokioIo<Stream>;
    type Error = ConnectError;
    type Future = Boxed<Result<TokioIo<Stream>, ConnectError>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), ConnectError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, to: Uri) -> Self::Future {
        let reach = Arc::clone(&self.0);
        Box::pin(async move { reach.connect(&to).await.map(TokioIo::new) })
    }
}

impl Reach {
    async fn connect(&self, to: &Uri) -> Result<Stream, ConnectError> {
        let secure = to.scheme_str() == Some("https");
        let host = to.host().unwrap_or_default().trim_matches(['[', ']']);
        let port = to.port_u16().unwrap_or(if secure { 443 } else { 80 });
        let stream = self.reach(host, port).await?;
        if !secure {
            return Ok(Stream::Plain(stream));
        }
        let wrong = |error| ConnectError::Tls { host: host.to_owned(), error };
        let name = ServerName::try_from(host.to_owned()).map_err(|error| wrong(error.into()))?;
        let tls = self.tls().await.map_err(wrong)?;
        let stream = tls.connect(name, stream).await.map_err(|error| wrong(error.into()))?;
        Ok(Stream::Tls(Box::new(stream)))
    }

    async fn reach(&self, host: &str, port: u16) -> Result<TcpStream, ConnectError> {
        let host_text = || host.to_owned();
        let addresses = match host.parse::<IpAddr>() {
            Ok(address) => vec![SocketAddr::new(address, port)],
            Err(_) => (self.resolver)(host_text(), port)
                .await
                .map_err(|error| ConnectError::Unresolved { host: host_text(), error })?,
        };
        let mut trouble = ConnectError::NoAddress { host: host_text() };
        let mut open = Vec::new();
        for address in addresses {
            let checked = SocketAddr::new(address.ip().to_canonical(), port);
            match refused(checked.ip(), &self.allow) {
                None => open.push(checked),
                Some(class) => {
                    let address = checked.ip();
                    trouble = ConnectError::Refused { host: host_text(), address, class };
                }
            }
        }
        open.truncate(MOST_ADDRESSES);
        while !open.is_empty() {
            let address = open.remove(0);
            let connecting = TcpStream::connect(address);
            let connected = if open.is_empty() {
                connecting.await
            } else {
                let timed = tokio::time::timeout(ADDRESS_PATIENCE, connecting).await;
                timed.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
            };
            match connected {
                Ok(stream) => {
                    // Requests are written whole; only latency is lost without it.
                    let _ = stream.set_nodelay(true);
                    return Ok(stream);
                }
                Err(error) => {
                    trouble = ConnectError::Unreachable { host: host_text(), address, error };
                }
            }
        }
        Err(trouble)
    }

    async fn tls(&self) -> Result<TlsConnector, Box<dyn Error + Send + Sync>> {
        let make = || async {
            let more = self.more_roots.clone();
            // Reads files.
            tokio::task::spawn_blocking(move || client_config(more)).await?
        };
        self.tls.get_or_try_init(make).await.cloned()
    }
}

/// Whom the system trusts, and whom the operator trusts besides.
fn client_config(
    more: Vec<CertificateDer<'static>>,
) -> Result<TlsConnector, Box<dyn Error + Send + Sync>> {
    let mut roots = RootCertStore::empty();
    // Systems carry certificates that are broken or too old for us; the others still vouch.
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    roots.add_parsable_certificates(more);
    let mut config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()?
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(TlsConnector::from(Arc::new(config)))
}

impl fmt::Debug for Connector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connector").field("allow", &self.0.allow).finish_non_exhaustive()
    }
}

#[derive(Debug)]
pub(super) enum Stream {
    Plain(TcpStream),
    Tls(Box<TlsStream<TcpStream>>),
}

impl Connection for Stream {
    fn connected(&self) -> Connected {
        match self {
            Self::Tls(stream) if stream.get_ref().1.alpn_protocol() == Some(b"h2") => {
                Connected::new().negotiated_h2()
            }
            _ => Connected::new(),
        }
    }
}

/// The same of whichever it is.
macro_rules! either {
    ($self:expr, $stream:ident => $what:expr) => {
        match $self.get_mut() {
            Self::Plain($stream) => {
                let $stream = Pin::new($stream);
                $what
            }
            Self::Tls($stream) => {
                let $stream = Pin::new($stream);
                $what
            }
        }
    };
}

impl AsyncRead for Stream {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        either!(self, stream => stream.poll_read(cx, into))
    }
}

impl AsyncWrite for Stream {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        either!(self, stream => stream.poll_write(cx, bytes))
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        either!(self, stream => stream.poll_write_vectored(cx, slices))
    }

    fn is_write_vectored(&self) -> bool {
        match self {
            Self::Plain(stream) => stream.is_write_vectored(),
            Self::Tls(stream) => stream.is_write_vectored(),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        either!(self, stream => stream.poll_flush(cx))
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        either!(self, stream => stream.poll_shutdown(cx))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use tokio::net::TcpListener;

    use super::*;

    /// Answers the first lookup with the first list, the second with the second, and so on.
    fn scripted(answers: Vec<Vec<SocketAddr>>) -> (Resolver, Arc<AtomicUsize>) {
        let asked = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&asked);
        let resolver: Resolver = Arc::new(move |_, _| {
            let n = count.fetch_add(1, Ordering::SeqCst);
            let answer = answers[n.min(answers.len() - 1)].clone();
            Box::pin(async move { Ok(answer) })
        });
        (resolver, asked)
    }

    fn socket(text: &str) -> SocketAddr {
        text.parse().expect(text)
    }

    fn reach(allow: &[&str], resolver: Resolver) -> Connector {
        let allow = allow.iter().map(|word| word.parse().expect("a word")).collect();
        Connector::new(allow, vec![], resolver)
    }

    async fn listening() -> (TcpListener, u16) {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let port = listener.local_addr().expect("an address").port();
        (listener, port)
    }

    #[tokio::test]
    async fn a_name_that_changes_its_address_does_not_lead_inside() {
        let (listener, port) = listening().await;
        // 127.0.0.2 stands for the internet: allowed, and nobody listens there.
        let outside = SocketAddr::new([127, 0, 0, 2].into(), port);
        let inside = SocketAddr::new([127, 0, 0, 1].into(), port);
        let (resolver, asked) = scripted(vec![vec![outside], vec![inside]]);
        let connector = reach(&["127.0.0.2"], resolver);
        let first = connector.0.reach("rebinds.example", port).await;
        assert!(
            matches!(first, Err(ConnectError::Unreachable { address, .. }) if address == outside)
        );
        assert_eq!(asked.load(Ordering::SeqCst), 1, "one lookup for one connection");
        let second = connector.0.reach("rebinds.example", port).await;
        assert!(matches!(second, Err(ConnectError::Refused { .. })), "{second:?}");
        let nobody = listener.into_std().expect("a socket").accept().expect_err("nobody came");
        assert_eq!(nobody.kind(), io::ErrorKind::WouldBlock);
    }

    #[tokio::test]
    async fn an_allowed_address_beside_a_refused_one_is_the_one_that_is_used() {
        let (_listener, port) = listening().await;
        let (outside, inside) = (socket("127.0.0.2:1"), SocketAddr::new([127, 0, 0, 1].into(), 1));
        let (resolver, _) = scripted(vec![vec![outside, inside, socket("10.0.0.1:1")]]);
        let stream = reach(&["127.0.0.1"], resolver).0.reach("both.example", port).await;
        assert_eq!(stream.expect("connected").peer_addr().expect("an address").ip(), inside.ip());
    }

    #[tokio::test]
    async fn the_next_address_is_tried_if_one_is_dead() {
        let (_listener, port) = listening().await;
        let dead = SocketAddr::new([127, 0, 0, 2].into(), port);
        let alive = SocketAddr::new([127, 0, 0, 1].into(), port);
        let (resolver, _) = scripted(vec![vec![dead, alive]]);
        let stream = reach(&["loopback"], resolver).0.reach("two.example", port).await;
        assert_eq!(stream.expect("connected").peer_addr().expect("an address"), alive);
    }

    #[tokio::test]
    async fn a_name_without_addresses_says_so() {
        let (resolver, _) = scripted(vec![vec![]]);
        let none = reach(&[], resolver).0.reach("empty.example", 80).await;
        assert!(matches!(none, Err(ConnectError::NoAddress { .. })), "{none:?}");
    }
}
