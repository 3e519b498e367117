//! The tokens of `steadfast up`: for programs of the user who started it, and of nobody else on the machine.
//!
//! `up` writes them into a file that only its user can read, in the folder for the state of programs:
//! `$XDG_STATE_HOME/steadfast/up-PORT.json`, or `~/.local/state/steadfast/up-PORT.json`. Whoever has no token and
//! speaks to that port of this machine looks there. They end with `up`.

use std::collections::HashMap;
use std::fs::{self, DirBuilder, File};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use rustix::process::geteuid;
use serde_json::{Value, json};
use url::{Host, Url};

use super::Token;
use crate::lease::clock;

/// What was found is believed for so long: a client asks with every call, and an `up` takes longer to be started anew.
const BELIEVED: Duration = Duration::from_millis(50);

/// By which and the server's address: when it was looked for, and what was found.
type Found = HashMap<LocalToken, HashMap<String, (Duration, Option<Token>)>>;

static FOUND: Mutex<Option<Found>> = Mutex::new(None);

/// Of the tokens that `up` makes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LocalToken {
    /// For who submits jobs and looks at them.
    Client,
    Worker,
}

impl LocalToken {
    const fn name(self) -> &'static str {
        match self {
            Self::Client => "client",
            Self::Worker => "worker",
        }
    }

    /// The same as [`find`](Self::find), of a moment ago perhaps.
    pub fn found(self, server: &str) -> Option<Token> {
        let mut all = FOUND.lock().unwrap_or_else(PoisonError::into_inner);
        let known = all.get_or_insert_default().get(&self).and_then(|found| found.get(server));
        if let Some((at, token)) = known
            && clock().saturating_sub(*at) < BELIEVED
        {
            return token.clone();
        }
        drop(all);
        self.find(server)
    }

    /// The one for a server's address, if that is on this machine and an `up` of this user has left one.
    pub fn find(self, server: &str) -> Option<Token> {
        let (at, token) = (clock(), self.read(server));
        let mut all = FOUND.lock().unwrap_or_else(PoisonError::into_inner);
        let found = all.get_or_insert_default().entry(self).or_default();
        found.insert(server.to_owned(), (at, token.clone()));
        token
    }

    fn read(self, server: &str) -> Option<Token> {
        let file = File::open(path(is_here(server)?)?).ok()?;
        let about = file.metadata().ok()?;
        // What others can write may be a trap, and what they can read is no secret.
        if about.uid() != geteuid().as_raw() || about.mode() & 0o077 != 0 {
            return None;
        }
        let tokens: Value = serde_json::from_reader(file).ok()?;
        tokens.get(self.name())?.as_str().map(|text| Token(text.to_owned()))
    }
}

/// The port of an address that is on this machine and without TLS, as those of `up` are.
pub(super) fn is_here(server: &str) -> Option<u16> {
    let url = Url::parse(server).ok().filter(|url| url.scheme() == "http")?;
    let here = match url.host()? {
        Host::Domain(name) => name == "localhost",
        Host::Ipv4(ip) => ip.is_loopback(),
        Host::Ipv6(ip) => ip.is_loopback(),
    };
    url.port_or_known_default().filter(|_| here)
}

/// Taken away when it goes.
#[derive(Debug)]
pub struct LocalTokens {
    path: PathBuf,
    inode: u64,
}

impl LocalTokens {
    /// For programs of this user that speak to this port.
    pub fn leave(port: u16, client: &Token, worker: &Token) -> io::Result<Self> {
        let nowhere = || {
            io::Error::other(
                "there is no home folder to leave its token in: set HOME, or say with --auth who may come in",
            )
        };
        let path = path(port).ok_or_else(nowhere)?;
        let folder = path.parent().ok_or_else(nowhere)?;
        if !folder.exists() {
            DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
        }
        let draft = path.with_extension(format!("{}", std::process::id()));
        let _ = fs::remove_file(&draft);
        let mut file = File::options().write(true).create_new(true).mode(0o600).open(&draft)?;
        let [client_name, worker_name] =
            [LocalToken::Client, LocalToken::Worker].map(LocalToken::name);
        let text = json!({ client_name: client.0, worker_name: worker.0 });
        writeln!(file, "{text}")?;
        let inode = file.metadata()?.ino();
        fs::rename(&draft, &path)?;
        Ok(Self { path, inode })
    }
}

impl Drop for LocalTokens {
    fn drop(&mut self) {
        // Another `up` may have the port by now.
        if fs::metadata(&self.path).is_ok_and(|about| about.ino() == self.inode) {
            let _ = fs::remove_file(&self.path);
        }
    }
}

fn path(port: u16) -> Option<PathBuf> {
    let from =
        |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let state = from("XDG_STATE_HOME").or_else(|| Some(from("HOME")?.join(".local/state")))?;
    Some(state.join("steadfast").join(format!("up-{port}.json")))
}
