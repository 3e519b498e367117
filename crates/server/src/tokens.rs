//! Tokens: made, listed, revoked, checked. They live in one file of the data folder, so that the
//! commands work with the server up or down; a server sees that the file has changed.
//!
//! A token is 256 random bits, so there is nothing to guess and one SHA-256 is the right hash: slow
//! hashes are for what people choose. The file has the hash only; the token itself is printed once and
//! never written or logged. What a scope allows is decided in `guard`.

use std::fmt;
use std::io;
use std::sync::{Arc, PoisonError, RwLock};

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use steadfast_core::hex::hex;
use steadfast_core::time::Timestamp;
use steadfast_store::{Settings, Version};
use subtle::ConstantTimeEq;

mod binding;

pub use binding::WorkerBinding;

pub(crate) const FILE: &str = "tokens.json";
const VERSION: u32 = 1;
/// Far more than anybody needs, and still read in a moment.
const MOST: usize = 10_000;
const LONGEST_NAME: usize = 100;

/// What a token is good for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Scope {
    /// To see everything.
    Read,
    /// And to submit jobs and decide about them.
    Submit,
    /// To be a worker, and nothing else.
    Worker,
    /// Everything but to be a worker.
    Admin,
}

impl Scope {
    pub const ALL: [Self; 4] = [Self::Read, Self::Submit, Self::Worker, Self::Admin];

    pub const fn name(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Submit => "submit",
            Self::Worker => "worker",
            Self::Admin => "admin",
        }
    }

    /// A worker runs what others submit; whoever holds its token must not submit or see anything.
    pub const fn allows(self, wanted: Self) -> bool {
        match self {
            Self::Admin => !matches!(wanted, Self::Worker),
            Self::Submit => matches!(wanted, Self::Submit | Self::Read),
            Self::Read => matches!(wanted, Self::Read),
            Self::Worker => matches!(wanted, Self::Worker),
        }
    }
}

impl fmt::Display for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl std::str::FromStr for Scope {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let found = Self::ALL.into_iter().find(|scope| scope.name() == text);
        found.ok_or_else(|| format!("{text:?} is not a scope; write read, submit, worker or admin"))
    }
}

/// A token as the file has it: everything but the token.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Token {
    pub id: String,
    pub name: Option<String>,
    pub scope: Scope,
    pub created_at_ms: u64,
    /// None: never.
    pub expires_at_ms: Option<u64>,
    #[serde(default, skip_serializing_if = "WorkerBinding::is_free")]
    pub binding: WorkerBinding,
    sha256: String,
}

impl Token {
    pub fn is_expired(&self, now: Timestamp) -> bool {
        self.expires_at_ms.is_some_and(|at| now.0 >= at)
    }
}

/// Who asks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Granted {
    pub id: String,
    pub name: Option<String>,
    pub scope: Scope,
    pub binding: WorkerBinding,
}

/// Why a token that was good is so no more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoLonger {
    #[error("the token was revoked; `steadfast token create` makes a new one")]
    Revoked,
    #[error("the token has expired; `steadfast token create` makes a new one")]
    Expired,
}

/// A new token. `text` is what its owner presents; it exists nowhere else.
#[derive(Clone)]
pub struct Created {
    pub id: String,
    pub text: String,
}

impl fmt::Debug for Created {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Created").field("id", &self.id).finish_non_exhaustive()
    }
}

#[derive(Debug, thiserror::Error)]
pub enum TokenError {
    #[error("{place}: {error}")]
    Io { place: String, error: io::Error },
    #[error(
        "{place} is not a file of tokens: {error}; restore it, or remove it and make new tokens"
    )]
    Malformed { place: String, error: String },
    #[error("a token's name has 1 to {LONGEST_NAME} characters that can be printed")]
    Name,
    #[error("a token is bound to {0} of 1 to {LONGEST_NAME} characters that can be printed")]
    Binding(&'static str),
    #[error("there are {MOST} tokens already; `steadfast token revoke` those that are not used")]
    TooMany,
    #[error("there is no token `{0}`; `steadfast token list` shows them")]
    Unknown(String),
    #[error("the system gives no random numbers: {0}")]
    Random(getrandom::Error),
}

#[derive(Debug, Serialize, Deserialize)]
struct Contents {
    version: u32,
    tokens: Vec<Token>,
}

#[derive(Debug, Default)]
struct Known {
    /// None: what there is could not be read.
    version: Option<Version>,
    tokens: Vec<Token>,
}

#[derive(Debug)]
pub struct Tokens {
    settings: Arc<dyn Settings>,
    known: RwLock<Known>,
}

impl Tokens {
    /// None if nothing is kept of any.
    pub fn open(settings: Arc<dyn Settings>) -> Result<Self, TokenError> {
        let (version, tokens) = read(&*settings)?;
        Ok(Self { settings, known: RwLock::new(Known { version: Some(version), tokens }) })
    }

    pub fn create(
        &self,
        scope: Scope,
        name: Option<&str>,
        expires: Option<Timestamp>,
        now: Timestamp,
    ) -> Result<Created, TokenError> {
        self.make(scope, name, WorkerBinding::default(), expires, now)
    }

    /// One of scope `worker` that is good for some workers only.
    pub fn create_bound(
        &self,
        binding: WorkerBinding,
        name: Option<&str>,
        expires: Option<Timestamp>,
        now: Timestamp,
    ) -> Result<Created, TokenError> {
        binding.check()?;
        self.make(Scope::Worker, name, binding, expires, now)
    }

    fn make(
        &self,
        scope: Scope,
        name: Option<&str>,
        binding: WorkerBinding,
        expires: Option<Timestamp>,
        now: Timestamp,
    ) -> Result<Created, TokenError> {
        if name.is_some_and(|name| !printable(name)) {
            return Err(TokenError::Name);
        }
        let (id, secret) = (random_hex::<5>()?, random_hex::<32>()?);
        self.change(|tokens| {
            if tokens.len() >= MOST {
                return Err(TokenError::TooMany);
            }
            tokens.push(Token {
                id: id.clone(),
                name: name.map(str::to_owned),
                scope,
                created_at_ms: now.0,
                expires_at_ms: expires.map(|at| at.0),
                binding,
                sha256: hash(&secret),
            });
            Ok(())
        })?;
        let text = format!("sf_{id}_{secret}");
        Ok(Created { id, text })
    }

    /// Oldest first, the expired ones too.
    pub fn list(&self) -> Result<Vec<Token>, TokenError> {
        Ok(read(&*self.settings)?.1)
    }

    /// From the next request on it is not accepted, and from the next beat on no worker's session with it.
    pub fn revoke(&self, id: &str) -> Result<(), TokenError> {
        self.change(|tokens| {
            let before = tokens.len();
            tokens.retain(|token| token.id != id);
            if tokens.len() == before {
                return Err(TokenError::Unknown(id.to_owned()));
            }
            Ok(())
        })
    }

    /// How many would be accepted now.
    pub fn usable(&self, now: Timestamp) -> Result<usize, TokenError> {
        Ok(self.list()?.iter().filter(|token| !token.is_expired(now)).count())
    }

    /// Whose token this is, if it is one. A file that has changed is read again first; while it cannot
    /// be read, no token is accepted.
    pub fn check(&self, presented: &str, now: Timestamp) -> Option<Granted> {
        self.refresh();
        let (id, secret) = presented.strip_prefix("sf_")?.split_once('_')?;
        let presented = hash(secret);
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
        // The id is no secret, so that finding it may take as long as it takes.
        let token = known.tokens.iter().find(|token| token.id == id)?;
        let same = token.sha256.as_bytes().ct_eq(presented.as_bytes());
        (bool::from(same) && !token.is_expired(now)).then(|| Granted {
            id: token.id.clone(),
            name: token.name.clone(),
            scope: token.scope,
            binding: token.binding.clone(),
        })
    }

    /// Whether one that was accepted still is. While the file cannot be read, none is.
    pub fn still(&self, id: &str, now: Timestamp) -> Result<(), NoLonger> {
        self.refresh();
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
        let token = known.tokens.iter().find(|token| token.id == id).ok_or(NoLonger::Revoked)?;
        if token.is_expired(now) { Err(NoLonger::Expired) } else { Ok(()) }
    }

    fn refresh(&self) {
        let version = self.settings.version(FILE).ok();
        {
            let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
            if version.is_some() && version == known.version {
                return;
            }
        }
        let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
        match read(&*self.settings) {
            Ok((version, tokens)) => {
                let version = Some(version);
                if version != known.version {
                    tracing::info!(tokens = tokens.len(), "tokens were read again");
                }
                *known = Known { version, tokens };
            }
            Err(error) => {
                if !known.tokens.is_empty() {
                    tracing::error!(%error, "tokens cannot be read: none is accepted until they can");
                }
                // Tried again at the next request.
                *known = Known::default();
            }
        }
    }

    /// One change at a time, whichever process makes it; all or nothing, and durable.
    fn change(
        &self,
        change: impl FnOnce(&mut Vec<Token>) -> Result<(), TokenError>,
    ) -> Result<(), TokenError> {
        let mut change = Some(change);
        let mut refused = None;
        let changed = self.settings.change(FILE, &mut |bytes| {
            let applied = parse(&*self.settings, bytes).and_then(|mut tokens| {
                let change = change.take().expect("called once");
                change(&mut tokens).map(|()| tokens)
            });
            let tokens = applied.map_err(|why| {
                refused = Some(why);
                io::Error::other("refused")
            })?;
            let mut text = serde_json::to_vec_pretty(&Contents { version: VERSION, tokens })?;
            text.push(b'\n');
            Ok(text)
        });
        match (refused, changed) {
            (Some(why), _) => Err(why),
            (None, changed) => changed.map_err(|error| unreadable(&*self.settings, error)),
        }
    }
}

fn printable(name: &str) -> bool {
    let length = name.chars().count();
    (1..=LONGEST_NAME).contains(&length) && !name.chars().any(char::is_control)
}

fn unreadable(settings: &dyn Settings, error: io::Error) -> TokenError {
    TokenError::Io { place: settings.place(FILE), error }
}

fn read(settings: &dyn Settings) -> Result<(Version, Vec<Token>), TokenError> {
    let (version, bytes) = settings.get(FILE).map_err(|error| unreadable(settings, error))?;
    Ok((version, parse(settings, bytes)?))
}

fn parse(settings: &dyn Settings, bytes: Option<Vec<u8>>) -> Result<Vec<Token>, TokenError> {
    let Some(text) = bytes else { return Ok(Vec::new()) };
    let malformed = |error| TokenError::Malformed { place: settings.place(FILE), error };
    let contents: Contents =
        serde_json::from_slice(&text).map_err(|error| malformed(error.to_string()))?;
    if contents.version != VERSION {
        return Err(malformed(format!("version {} is not known", contents.version)));
    }
    Ok(contents.tokens)
}

fn random_hex<const BYTES: usize>() -> Result<String, TokenError> {
    let mut bytes = [0; BYTES];
    getrandom::fill(&mut bytes).map_err(TokenError::Random)?;
    Ok(hex(&bytes))
}

fn hash(secret: &str) -> String {
    hex(&Sha256::digest(secret.as_bytes()))
}
