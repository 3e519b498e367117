//! Where a command goes: to a server, or to the data folder.
//!
//! Flags come first, then the environment, then the profile file, then the default address. Asks
//! the default address alone, and that only whether a server listens.

use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::time::Duration;

use reqwest::Url;
use steadfast_worker::TOKEN_VARIABLE;

use super::api::{Address, Trust, is_loopback};
use super::profile::{self, NamedProfile, Profiles};
use super::token::Token;
use crate::args::Remote;
use crate::style::{WAIT, inert, paint};

const PORT: u16 = 7117;
/// For an answer of the default port of this machine: enough also where it is very busy.
const LOOK: Duration = Duration::from_millis(300);

/// What was said about where to go.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TargetOptions<'a> {
    pub(crate) remote: &'a Remote,
    /// A data folder or a database is named, by a flag or the environment.
    pub(crate) is_named: bool,
    pub(crate) typed: TypedPlace,
}

/// Which flags of this machine's jobs were typed, not found in the environment.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct TypedPlace {
    pub(crate) data: bool,
    pub(crate) store: bool,
}

impl TypedPlace {
    /// What it is about.
    fn flag(self) -> Option<(&'static str, &'static str)> {
        match self {
            Self { store: true, .. } => Some(("--store", "a database")),
            Self { data: true, .. } => Some(("--data", "a folder")),
            _ => None,
        }
    }
}

#[derive(Debug)]
pub(crate) enum Target {
    Local,
    Server(Address),
}

/// The environment, handed in.
type Env<'a> = &'a dyn Fn(&str) -> Option<String>;

/// Of commands that a data folder can answer too.
pub(crate) fn of_job(said: TargetOptions) -> Result<Target, String> {
    match named(said, &from_env)? {
        Choice::Data => Ok(Target::Local),
        Choice::Server(address) => Ok(Target::Server(address)),
        Choice::Nothing if !somebody_listens() => Ok(Target::Local),
        Choice::Nothing => default_address(said.remote, &from_env).map(Target::Server),
    }
}

/// Of commands that only a server can answer.
pub(crate) fn server(remote: &Remote) -> Result<Address, String> {
    let said = TargetOptions { remote, is_named: false, typed: TypedPlace::default() };
    match named(said, &from_env)? {
        Choice::Server(address) => Ok(address),
        Choice::Data | Choice::Nothing => default_address(remote, &from_env),
    }
}

/// Whether a command without flags goes to a server that the environment or a profile names.
pub(crate) fn names_a_server() -> bool {
    let remote = Remote::default();
    let said = TargetOptions { remote: &remote, is_named: false, typed: TypedPlace::default() };
    matches!(choice(said, &from_env), Ok(Choice::Server(_)))
}

fn from_env(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

fn somebody_listens() -> bool {
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, default_port(&from_env)));
    TcpStream::connect_timeout(&address, LOOK).is_ok()
}

#[derive(Debug)]
enum Choice {
    Data,
    Server(Address),
    Nothing,
}

fn named(said: TargetOptions, env: Env) -> Result<Choice, String> {
    match choice(said, env)? {
        Choice::Server(address) => trusting(address, said.remote, env).map(Choice::Server),
        other => Ok(other),
    }
}

/// `--ca` and `STEADFAST_CA` are trusted instead of the profile's `ca`.
fn trusting(mut address: Address, remote: &Remote, env: Env) -> Result<Address, String> {
    if let Some(path) = remote.ca.clone().or_else(|| env("STEADFAST_CA").map(PathBuf::from)) {
        let pem = std::fs::read(&path)
            .map_err(|error| format!("cannot read --ca {}: {error}", path.display()))?;
        address.trust.ca = Some(pem);
    }
    Ok(checked(address))
}

fn choice(said: TargetOptions, env: Env) -> Result<Choice, String> {
    let TargetOptions { remote, is_named, typed } = said;
    if let Some((typed, place)) = typed.flag() {
        let beside = [
            ("--server", remote.server.is_some()),
            ("--profile", remote.profile.is_some()),
            ("--token", remote.token.is_some()),
            ("--token-file", remote.token_file.is_some()),
        ];
        return match beside.into_iter().find(|(_, given)| *given) {
            None => Ok(Choice::Data),
            Some((flag, _)) => Err(format!(
                "{typed} is for the jobs of {place}, {flag} for those of a server; give one of them"
            )),
        };
    }
    let typed = typed_token(remote)?;
    let named = token_of_env(env)?;
    let token = || typed.clone().or_else(|| named.clone());
    let profile = remote.profile.as_deref().map(|name| profile_named(name, env)).transpose()?;
    if let Some(server) = &remote.server {
        let url = address(server, "--server")?;
        let (trust, profiled) =
            profile.map_or((Trust::default(), None), |profile| (profile.trust, profile.token));
        let flags = match &remote.profile {
            Some(name) => format!(" --server {server} --profile {name}"),
            None => format!(" --server {server}"),
        };
        // A profile that was typed says more than an environment.
        let token = typed.clone().or(profiled).or_else(token);
        return Ok(Choice::Server(Address { url, token, trust, flags, is_default: false }));
    }
    if let Some(profile) = profile {
        let flags = format!(" --profile {}", profile.name);
        let token = typed.clone().or_else(|| profile.token.clone()).or_else(token);
        return Ok(Choice::Server(of_profile(profile, token, flags)?));
    }
    if let Some(server) = env("STEADFAST_SERVER") {
        let url = address(&server, "STEADFAST_SERVER")?;
        let (token, flags) = (token(), String::new());
        let address = Address { url, token, trust: Trust::default(), flags, is_default: false };
        return Ok(Choice::Server(address));
    }
    if is_named {
        return Ok(Choice::Data);
    }
    let default = match profile::path(env) {
        None => None,
        Some(path) => Profiles::read(&path)?.map_or(Ok(None), |profiles| profiles.default())?,
    };
    match default {
        None => Ok(Choice::Nothing),
        Some(profile) => {
            let token = token().or_else(|| profile.token.clone());
            Ok(Choice::Server(of_profile(profile, token, String::new())?))
        }
    }
}

fn profile_named(name: &str, env: Env) -> Result<NamedProfile, String> {
    let Some(path) = profile::path(env) else {
        return Err("there is no home folder to look for profiles in; give --server URL".into());
    };
    match Profiles::read(&path)? {
        Some(profiles) => profiles.find(name, "--profile"),
        None => {
            let (path, name) = (path.display(), inert(name));
            Err(format!(
                "--profile names `{name}`, and there is no {path}; write one with a \
                 [profiles.{name}] that has a `server`"
            ))
        }
    }
}

fn of_profile(
    profile: NamedProfile,
    token: Option<Token>,
    flags: String,
) -> Result<Address, String> {
    let url = address(&profile.server, &format!("{}: `server`", profile.place))?;
    Ok(Address { url, token, trust: profile.trust, flags, is_default: false })
}

/// Where a server that is started here, with this environment, listens.
fn default_port(env: Env) -> u16 {
    let listen = env("STEADFAST_SERVER__LISTEN");
    let port = listen.and_then(|listen| listen.rsplit_once(':')?.1.parse().ok());
    port.filter(|port| *port != 0).unwrap_or(PORT)
}

fn default_address(remote: &Remote, env: Env) -> Result<Address, String> {
    let url = format!("http://127.0.0.1:{}", default_port(env))
        .parse()
        .expect("the default address is one");
    let token = typed_token(remote)?.map_or_else(|| token_of_env(env), |typed| Ok(Some(typed)))?;
    Ok(Address { url, token, trust: Trust::default(), flags: String::new(), is_default: true })
}

fn typed_token(remote: &Remote) -> Result<Option<Token>, String> {
    match &remote.token_file {
        Some(path) => Token::read(path).map(Some),
        None => Ok(remote.token.clone()),
    }
}

fn token_of_env(env: Env) -> Result<Option<Token>, String> {
    match (env(TOKEN_VARIABLE), env("STEADFAST_TOKEN_FILE")) {
        (Some(token), _) => Ok(Some(Token::from(token))),
        (None, Some(path)) => Token::read(Path::new(&path)).map(Some),
        (None, None) => Ok(None),
    }
}

/// `by`: who says it.
fn address(text: &str, by: &str) -> Result<Url, String> {
    let wrong = |why: &str| {
        Err(format!("{by} {why}; write it as http://127.0.0.1:{PORT} or https://jobs.example.org"))
    };
    let Ok(url) = Url::parse(text) else {
        return wrong("is not an address");
    };
    if !url.username().is_empty() || url.password().is_some() {
        return wrong("must not have a password in it, for that a token is there");
    }
    if !matches!(url.scheme(), "http" | "https") || !url.has_host() {
        return wrong("must begin with http:// or https://");
    }
    if url.query().is_some() || url.fragment().is_some() {
        return wrong("ends before any `?` or `#`");
    }
    Ok(url)
}

fn checked(address: Address) -> Address {
    if address.token.is_some() && address.url.scheme() == "http" && !is_loopback(&address.url) {
        let shown = address.url.as_str().trim_end_matches('/');
        anstream::eprintln!(
            "{}the token goes to {shown} unencrypted; https:// keeps it from being read on the way",
            paint(WAIT.bold(), "warning: ")
        );
    }
    address
}

#[cfg(test)]
mod tests {
    use super::*;

    fn remote(server: Option<&str>, profile: Option<&str>) -> Remote {
        Remote {
            server: server.map(str::to_owned),
            profile: profile.map(str::to_owned),
            token: None,
            token_file: None,
            ca: None,
        }
    }

    fn choice(remote: &Remote, data: Option<(&str, bool)>, env: &[(&str, &str)]) -> String {
        let find = |name: &str| {
            env.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned())
        };
        let typed = TypedPlace { data: data.is_some_and(|(_, typed)| typed), store: false };
        let said = TargetOptions { remote, is_named: data.is_some(), typed };
        match named(said, &find) {
            Ok(Choice::Data) => "data".to_owned(),
            Ok(Choice::Nothing) => "nothing".to_owned(),
            Ok(Choice::Server(address)) => {
                let token = address.token.map(|token| token.header().expect("a token"));
                let token = token.map(|token| token.to_str().expect("text").to_owned());
                format!("{} {}", address.url, token.unwrap_or_default()).trim().to_owned()
            }
            Err(why) => why,
        }
    }

    #[test]
    fn flags_win_over_the_environment_and_that_over_the_profile_file() {
        let home = tempfile::tempdir().expect("a folder");
        let folder = home.path().join("steadfast");
        std::fs::create_dir(&folder).expect("a folder");
        std::fs::write(
            folder.join("config.toml"),
            "default = 'prod'\n[profiles.prod]\nserver = 'https://prod'\ntoken_file = 'token'\n\
             [profiles.lab]\nserver = 'http://127.0.0.1:9'\n",
        )
        .expect("writes");
        std::fs::write(folder.join("token"), "of-prod\n").expect("writes");
        let config = ("XDG_CONFIG_HOME", home.path().to_str().expect("plain"));
        let server = ("STEADFAST_SERVER", "http://localhost:1");
        let token = ("STEADFAST_TOKEN", "of-env");
        let none = remote(None, None);
        let typed = Some(("d", true));
        let found = Some(("d", false));

        let nowhere = [("HOME", "/nonexistent")];
        assert_eq!(choice(&none, None, &nowhere), "nothing");
        assert_eq!(choice(&none, None, &[]), "nothing");
        assert_eq!(choice(&none, typed, &[server, config]), "data");
        assert_eq!(choice(&none, found, &[config]), "data");
        assert_eq!(choice(&none, found, &[server, config]), "http://localhost:1/");
        assert_eq!(choice(&none, None, &[config]), "https://prod/ Bearer of-prod");
        assert_eq!(choice(&none, None, &[config, token]), "https://prod/ Bearer of-env");
        let flag = remote(Some("http://localhost:2"), None);
        assert_eq!(
            choice(&flag, found, &[server, config, token]),
            "http://localhost:2/ Bearer of-env"
        );
        // The token of a profile is for that profile's server.
        assert_eq!(choice(&flag, None, &[config]), "http://localhost:2/");
        let lab = remote(None, Some("lab"));
        assert_eq!(
            choice(&lab, found, &[server, config, token]),
            "http://127.0.0.1:9/ Bearer of-env"
        );
        let prod = remote(None, Some("prod"));
        assert_eq!(choice(&prod, None, &[server, config, token]), "https://prod/ Bearer of-prod");
    }

    #[test]
    fn what_contradicts_itself_is_refused() {
        let flag = remote(Some("http://localhost:2"), None);
        let why = choice(&flag, Some(("d", true)), &[]);
        assert!(why.contains("--data") && why.contains("--server"), "{why}");
        let why = choice(&remote(None, Some("lab")), None, &[("XDG_CONFIG_HOME", "/nonexistent")]);
        assert!(why.contains("/nonexistent/steadfast/config.toml"), "{why}");
        for wrong in ["localhost:7117", "ftp://x", "http://", "http://me:hunter2@x", "http://x?a"] {
            let why = choice(&remote(Some(wrong), None), None, &[]);
            assert!(why.starts_with("--server ") && !why.contains("hunter2"), "{wrong}: {why}");
        }
    }
}
