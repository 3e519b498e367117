//! Which server, and how to reach it.

use std::fmt;
use std::path::PathBuf;

use steadfast_worker::remote::{ClientTls, Connector, Dialer, LocalToken, RemoteError, Token};

/// A server, for a [`Client`](crate::Client) or a [`Worker`](crate::Worker).
///
/// An address alone is one too: `"http://127.0.0.1:7117"`.
///
/// ```
/// use steadfast::Server;
///
/// let server = Server::new("https://jobs.example.org").token("…").ca("ca.pem");
/// ```
#[derive(Clone)]
pub struct Server {
    pub(crate) address: String,
    pub(crate) token: Option<Token>,
    pub(crate) tls: Option<ClientTls>,
    pub(crate) door: Option<Connector>,
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Server").field("address", &self.address).finish_non_exhaustive()
    }
}

impl Server {
    /// `http://host:port`, or `https://`.
    pub fn new(address: impl Into<String>) -> Self {
        Self { address: address.into(), token: None, tls: None, door: None }
    }

    /// As `steadfast token create` printed it. Without one, a `steadfast up` of the same user on this machine lets
    /// its user's programs in.
    #[must_use]
    pub fn token(mut self, token: impl Into<String>) -> Self {
        self.token = Some(Token(token.into()));
        self
    }

    /// A file in PEM: who vouches for the server. Otherwise: whom the system trusts.
    #[must_use]
    pub fn ca(mut self, path: impl Into<PathBuf>) -> Self {
        self.tls.get_or_insert_default().ca = Some(path.into());
        self
    }

    /// Files in PEM: who we are, if the server wants to know.
    #[must_use]
    pub fn identity(mut self, certificate: impl Into<PathBuf>, key: impl Into<PathBuf>) -> Self {
        self.tls.get_or_insert_default().identity = Some((certificate.into(), key.into()));
        self
    }

    pub(crate) fn dialer(&self) -> Result<Dialer, RemoteError> {
        let (token, tls) = (self.token.as_ref(), self.tls.as_ref());
        Dialer::new(&self.address, token, tls, self.door.clone(), LocalToken::Client)
    }
}

impl From<&str> for Server {
    fn from(address: &str) -> Self {
        Self::new(address)
    }
}

impl From<String> for Server {
    fn from(address: String) -> Self {
        Self::new(address)
    }
}

impl From<&String> for Server {
    fn from(address: &String) -> Self {
        Self::new(address)
    }
}

impl From<&Server> for Server {
    fn from(server: &Server) -> Self {
        server.clone()
    }
}
