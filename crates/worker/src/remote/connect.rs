//! Reaching the server, again and again, and saying once what is in the way.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use steadfast_api::proto::workers_client::WorkersClient;
use tonic::metadata::{Ascii, MetadataValue};
use tonic::service::interceptor::{InterceptedService, Interceptor};
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint, Identity};
use tonic::{Code, Request, Status};

use super::hand::Hand;
use super::{PATIENCE, RemoteConfig, RemoteError, session};

/// Pauses between tries: the first ones short, because a server that restarts is back soon.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(15);
/// An assignment carries what earlier steps printed out; the server's own limits are far below.
const LARGEST_MESSAGE: usize = 64 << 20;

pub(super) type Client = WorkersClient<InterceptedService<Channel, Authority>>;

/// Says who we are with every call.
#[derive(Clone, Debug)]
pub(super) struct Authority(Option<MetadataValue<Ascii>>);

impl Interceptor for Authority {
    fn call(&mut self, mut request: Request<()>) -> Result<Request<()>, Status> {
        if let Some(value) = &self.0 {
            request.metadata_mut().insert("authorization", value.clone());
        }
        Ok(request)
    }
}

#[derive(Debug)]
pub(super) struct Server {
    address: String,
    endpoint: Endpoint,
    authority: Authority,
}

impl Server {
    pub(super) fn new(config: &RemoteConfig) -> Result<Self, RemoteError> {
        let address = config.server.clone();
        let bad = |why: String| RemoteError::Address { address: address.clone(), why };
        let endpoint = Endpoint::from_shared(address.clone()).map_err(|e| bad(root(&e)))?;
        let secure = match endpoint.uri().scheme_str() {
            Some("http") => false,
            Some("https") => true,
            _ => return Err(bad("it begins neither with http:// nor with https://".to_owned())),
        };
        // No HTTP/2 keep-alive: the beats do that, and they know about leases.
        let mut endpoint = endpoint.connect_timeout(PATIENCE).tcp_nodelay(true);
        if secure {
            endpoint = endpoint.tls_config(tls(config)?).map_err(|error| bad(root(&error)))?;
        }
        let authority = match &config.token {
            None => None,
            Some(token) => {
                let mut value: MetadataValue<Ascii> =
                    format!("Bearer {}", token.0).parse().map_err(|_| RemoteError::Refused {
                        server: address.clone(),
                        message: "the token contains what no token contains".to_owned(),
                    })?;
                value.set_sensitive(true);
                Some(value)
            }
        };
        Ok(Self { address, endpoint, authority: Authority(authority) })
    }

    async fn connect(&self) -> Result<Client, Status> {
        let channel = self.endpoint.connect().await;
        let channel = channel.map_err(|error| Status::unavailable(root(&error)))?;
        let client = WorkersClient::with_interceptor(channel, self.authority.clone());
        Ok(client.max_decoding_message_size(LARGEST_MESSAGE))
    }
}

fn tls(config: &RemoteConfig) -> Result<ClientTlsConfig, RemoteError> {
    let read = |path: &Path| {
        fs::read(path)
            .map_err(|error| RemoteError::Tls { path: path.to_owned(), why: error.to_string() })
    };
    let given = config.tls.clone().unwrap_or_default();
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

/// One session after the other, for ever; returns what no further try can heal.
pub(super) async fn sessions(hand: &Arc<Hand>, server: Server) -> RemoteError {
    let mut tries = 0;
    let mut said = String::new();
    loop {
        let ended = match server.connect().await {
            Ok(client) => session::hold(hand, client).await,
            Err(status) => session::Ended { answered: false, welcomed: false, status },
        };
        if hand.state().leaving {
            return std::future::pending().await;
        }
        let status = ended.status;
        if !hand.is_welcomed() && will_not_heal(status.code()) {
            let message = status.message().to_owned();
            return RemoteError::Refused { server: server.address, message };
        }
        if ended.welcomed {
            said.clear();
        }
        let reason = reason(hand, &status, ended.welcomed);
        if said != reason {
            tracing::warn!(server = server.address, "{reason}");
            said = reason;
        }
        tries = if ended.answered { 0 } else { tries + 1 };
        tokio::time::sleep(pause(tries)).await;
    }
}

fn will_not_heal(code: Code) -> bool {
    matches!(code, Code::Unauthenticated | Code::PermissionDenied | Code::InvalidArgument)
}

fn reason(hand: &Hand, status: &Status, welcomed: bool) -> String {
    let message = status.message();
    match status.code() {
        Code::AlreadyExists => format!(
            "another worker is connected under the name {:?}: {message}. Each worker needs its own \
             name; trying on in case the other one goes",
            hand.config.name
        ),
        code if will_not_heal(code) => {
            format!("the server does not let this worker in any more: {message}; trying on")
        }
        _ if welcomed => format!("the connection was lost: {message}; what runs goes on"),
        _ => format!("the server cannot be reached: {message}; trying on"),
    }
}

/// Doubled with every try, and drawn from its upper half, so that workers who lost the same server do not
/// come back all at once.
fn pause(tries: u32) -> Duration {
    let longest = FIRST_PAUSE.saturating_mul(1 << tries.min(16)).min(LONGEST_PAUSE);
    let half = longest.as_millis() as u64 / 2;
    let draw = getrandom::u64().unwrap_or_default() % (half + 1);
    Duration::from_millis(half + draw)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_to_the_longest_and_are_never_none() {
        for tries in 0..100 {
            let pause = pause(tries);
            assert!(pause >= FIRST_PAUSE / 2 && pause <= LONGEST_PAUSE, "{tries}: {pause:?}");
        }
        assert!(pause(u32::MAX) >= LONGEST_PAUSE / 2);
    }
}
