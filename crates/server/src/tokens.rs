//! Tokens: made, listed, revoked, checked. They live in one file of the data folder, so that the
//! commands work with the server up or down; a server sees that the file has changed.
//!
//! A token is 256 random bits, so there is nothing to guess and one SHA-256 is the right hash: slow
//! hashes are for what people choose. The file has the hash only; the token itself is printed once and
//! never written or logged. What a scope allows is decided in `guard`.

use std::fmt;
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::{PoisonError, RwLock};

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use steadfast_core::time::Timestamp;
use subtle::ConstantTimeEq;

mod binding;

pub use binding::WorkerBinding;

const FILE: &str = "tokens.json";
const LOCK: &str = "tokens.lock";
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
    #[error("{path}: {error}")]
    Io { path: PathBuf, error: io::Error },
    #[error(
        "{path} is not a file of tokens: {error}; restore it, or remove it and make new tokens"
    )]
    Malformed { path: PathBuf, error: String },
    #[error("others can write to {path}: `chmod 600` it, after a look at what is in it")]
    Writable { path: PathBuf },
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

/// What tells one state of the file from the next. It is replaced whole, so that each has its own inode.
type Stamp = Option<(u64, i64, i64, u64)>;

#[derive(Debug, Default)]
struct Known {
    stamp: Stamp,
    tokens: Vec<Token>,
}

#[derive(Debug)]
pub struct Tokens {
    folder: PathBuf,
    known: RwLock<Known>,
}

impl Tokens {
    /// The tokens of a data folder; none if it has no file of them.
    pub fn open(folder: &Path) -> Result<Self, TokenError> {
        let (stamp, tokens) = read(&folder.join(FILE))?;
        Ok(Self { folder: folder.to_owned(), known: RwLock::new(Known { stamp, tokens }) })
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
        Ok(read(&self.path())?.1)
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
        let path = self.path();
        let stamp = stamp(&path);
        {
            let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
            if matches!(&stamp, Ok(stamp) if *stamp == known.stamp) {
                return;
            }
        }
        let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
        match read(&path) {
            Ok((stamp, tokens)) => {
                if stamp != known.stamp {
                    tracing::info!(tokens = tokens.len(), "tokens were read again");
                }
                *known = Known { stamp, tokens };
            }
            Err(error) => {
                if !known.tokens.is_empty() {
                    tracing::error!(%error, "tokens cannot be read: none is accepted until they can");
                }
                known.tokens.clear();
                // So that the file is tried again at the next request.
                known.stamp = Some((0, 0, 0, 0));
            }
        }
    }

    fn path(&self) -> PathBuf {
        self.folder.join(FILE)
    }

    /// One change at a time, whichever process makes it; all or nothing, and durable.
    fn change(
        &self,
        change: impl FnOnce(&mut Vec<Token>) -> Result<(), TokenError>,
    ) -> Result<(), TokenError> {
        let at = |path: &Path| {
            let path = path.to_owned();
            move |error| TokenError::Io { path, error }
        };
        fs::create_dir_all(&self.folder).map_err(at(&self.folder))?;
        let lock_path = self.folder.join(LOCK);
        let lock = private(&lock_path, false).map_err(at(&lock_path))?;
        lock.lock().map_err(at(&lock_path))?;
        let path = self.path();
        let (_, mut tokens) = read(&path)?;
        change(&mut tokens)?;
        let new_path = self.folder.join("tokens.json.new");
        let write = || -> io::Result<()> {
            let mut file = private(&new_path, true)?;
            // An earlier one, of a process that died, may have had other rights.
            file.set_permissions(fs::Permissions::from_mode(0o600))?;
            serde_json::to_writer_pretty(&mut file, &Contents { version: VERSION, tokens })?;
            file.write_all(b"\n")?;
            file.sync_all()?;
            fs::rename(&new_path, &path)?;
            File::open(&self.folder)?.sync_all()
        };
        write().map_err(at(&path))
    }
}

fn printable(name: &str) -> bool {
    let length = name.chars().count();
    (1..=LONGEST_NAME).contains(&length) && !name.chars().any(char::is_control)
}

fn private(path: &Path, empty: bool) -> io::Result<File> {
    let mut options = fs::OpenOptions::new();
    options.write(true).create(true).truncate(empty).mode(0o600).open(path)
}

fn stamp(path: &Path) -> io::Result<Stamp> {
    match fs::metadata(path) {
        Ok(meta) => Ok(Some((meta.ino(), meta.ctime(), meta.ctime_nsec(), meta.len()))),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

fn read(path: &Path) -> Result<(Stamp, Vec<Token>), TokenError> {
    let at = |error| TokenError::Io { path: path.to_owned(), error };
    // Of the state before what is read: a change in between is seen the next time.
    let stamp = stamp(path).map_err(at)?;
    let text = match fs::read(path) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok((None, Vec::new())),
        Err(error) => return Err(at(error)),
    };
    if fs::metadata(path).map_err(at)?.mode() & 0o022 != 0 {
        return Err(TokenError::Writable { path: path.to_owned() });
    }
    let malformed = |error| TokenError::Malformed { path: path.to_owned(), error };
    let contents: Contents =
        serde_json::from_slice(&text).map_err(|error| malformed(error.to_string()))?;
    if contents.version != VERSION {
        return Err(malformed(format!("version {} is not known", contents.version)));
    }
    Ok((stamp, contents.tokens))
}

fn random_hex<const BYTES: usize>() -> Result<String, TokenError> {
    let mut bytes = [0; BYTES];
    getrandom::fill(&mut bytes).map_err(TokenError::Random)?;
    Ok(hex(&bytes))
}

fn hash(secret: &str) -> String {
    hex(&Sha256::digest(secret.as_bytes()))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |text, byte| text + &format!("{byte:02x}"))
}
