//! The way to a server: over the network, with a token and TLS, or within the process.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use hyper_util::rt::TokioIo;
use tokio::io::DuplexStream;
use tokio::sync::mpsc;
use tonic::metadata::{Ascii, MetadataValue};
use tonic::service::interceptor::{InterceptedService, Interceptor};
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint, Identity};
use tonic::{Request, Status};

use super::local::{self, LocalToken};
use super::{ClientTls, PATIENCE, RemoteError, Token};

/// While an answer is waited for.
const PING_EVERY: Duration = Duration::from_secs(20);
/// Bytes under way within the process, in each direction.
const PIPE: usize = 256 << 10;

/// Where a server within this process takes connections: each is one end of a pipe.
pub type Connector = mpsc::Sender<DuplexStream>;

pub type Connected = InterceptedService<Channel, Authority>;

/// Says who we are with every call.
#[derive(Clone, Debug)]
pub struct Authority(Whose);

#[derive(Clone, Debug)]
enum Whose {
    Token(MetadataValue<Ascii>),
    /// Of an `up` at this address, which has others each time it is started.
    Local(Arc<str>, LocalToken),
    Nobodys,
}

impl Interceptor for Authority {
    fn call(&mut self, mut request: Request<()>) -> Result<Request<()>, Status> {
        let value = match &self.0 {
            Whose::Token(value) => Some(value.clone()),
            Whose::Local(server, which) => {
                which.found(server).and_then(|token| bearer(&token).ok())
            }
            Whose::Nobodys => None,
        };
        if let Some(value) = value {
            request.metadata_mut().insert("authorization", value);
        }
        Ok(request)
    }
}

#[derive(Clone, Debug)]
pub struct Dialer {
    address: String,
    endpoint: Endpoint,
    authority: Authority,
    door: Option<Connector>,
}

impl Dialer {
    /// Reads the files of `tls`, and connects to nothing yet. `door`: instead of the network. `which`: of the tokens
    /// that an `up` has left, if there is no token.
    pub fn new(
        address: &str,
        token: Option<&Token>,
        tls: Option<&ClientTls>,
        door: Option<Connector>,
        which: LocalToken,
    ) -> Result<Self, RemoteError> {
        let bad = |why: String| RemoteError::Address { address: address.to_owned(), why };
        let endpoint = Endpoint::from_shared(address.to_owned()).map_err(|e| bad(root(&e)))?;
        let secure = match endpoint.uri().scheme_str() {
            Some("http") => false,
            Some("https") => true,
            _ => return Err(bad("it begins neither with http:// nor with https://".to_owned())),
        };
        // No HTTP/2 keep-alive: a worker's beats do that, and they know about leases.
        let mut endpoint = endpoint.connect_timeout(PATIENCE).tcp_nodelay(true);
        if secure {
            endpoint = endpoint.tls_config(read(tls)?).map_err(|error| bad(root(&error)))?;
        }
        let whose = match token {
            Some(token) => Whose::Token(bearer(token).map_err(|()| RemoteError::Refused {
                server: address.to_owned(),
                message: "the token contains what no token contains".to_owned(),
            })?),
            None if door.is_none() && local::is_here(address).is_some() => {
                Whose::Local(address.into(), which)
            }
            None => Whose::Nobodys,
        };
        Ok(Self { address: address.to_owned(), endpoint, authority: Authority(whose), door })
    }

    /// A connection that is waited on and has died in silence is noticed.
    #[must_use]
    pub fn keep_alive(mut self) -> Self {
        let endpoint = self.endpoint.http2_keep_alive_interval(PING_EVERY);
        self.endpoint = endpoint.keep_alive_timeout(PATIENCE);
        self
    }

    pub fn address(&self) -> &str {
        &self.address
    }

    /// One that breaks is made anew by whoever uses it.
    pub async fn connect(&self) -> Result<Connected, Status> {
        let channel = match &self.door {
            None => self.endpoint.connect().await,
            Some(door) => {
                let door = door.clone();
                let through = move |_| {
                    let door = door.clone();
                    async move {
                        let (ours, theirs) = tokio::io::duplex(PIPE);
                        let gone = |_| std::io::Error::from(std::io::ErrorKind::ConnectionRefused);
                        door.send(theirs).await.map_err(gone)?;
                        Ok::<_, std::io::Error>(TokioIo::new(ours))
                    }
                };
                self.endpoint.connect_with_connector(tower::service_fn(through)).await
            }
        };
        let channel = channel.map_err(|error| Status::unavailable(root(&error)))?;
        Ok(InterceptedService::new(channel, self.authority.clone()))
    }
}

fn bearer(token: &Token) -> Result<MetadataValue<Ascii>, ()> {
    let mut value: MetadataValue<Ascii> = format!("Bearer {}", token.0).parse().map_err(|_| ())?;
    value.set_sensitive(true);
    Ok(value)
}

fn read(tls: Option<&ClientTls>) -> Result<ClientTlsConfig, RemoteError> {
    let read = |path: &Path| {
        fs::read(path)
            .map_err(|error| RemoteError::Tls { path: path.to_owned(), why: error.to_string() })
    };
    let given = tls.cloned().unwrap_or_default();
    let tls = match &given.ca {
        Some(ca) => ClientTlsConfig::new().ca_certificate(Certificate::from_pem(read(ca)?)),
        None => ClientTlsConfig::new().with_native_roots(),
    };
    Ok(match &given.identity {
        Some((certificate, key)) => {
            tls.identity(Identity::from_pem(read(certificate)?, read(key)?))
        }
        None => tls,
    })
}

/// The innermost reason: the outer ones say "transport error".
fn root(error: &tonic::transport::Error) -> String {
    let mut reason: &dyn std::error::Error = error;
    while let Some(inner) = reason.source() {
        reason = inner;
    }
    reason.to_string()
}
