//! The profile file: servers by name, so that addresses and tokens need not be typed.
//!
//! ```toml
//! default = "prod"
//!
//! [profiles.prod]
//! server = "https://jobs.example.org"
//! token_file = "prod.token"   # or token = "…"
//! ca = "company-ca.pem"       # paths are relative to this file
//! cert = "me.pem"             # and `key`, if the server wants to know who connects
//! ```
//!
//! Reads that one file and what it names. What is wrong is said with its line, never with what
//! stands there: it may be a token.

use std::collections::BTreeMap;
use std::ops::Range;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use toml::Spanned;

use super::api::Trust;
use super::token::Token;
use crate::style::{WAIT, inert, paint};

#[derive(Debug)]
pub(crate) struct Profiles {
    path: PathBuf,
    text: String,
    file: File,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    default: Option<Spanned<String>>,
    #[serde(default)]
    profiles: BTreeMap<String, Profile>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Profile {
    server: Spanned<String>,
    token: Option<Token>,
    token_file: Option<Spanned<PathBuf>>,
    ca: Option<Spanned<PathBuf>>,
    cert: Option<Spanned<PathBuf>>,
    key: Option<Spanned<PathBuf>>,
}

/// What a profile says, its files read.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct NamedProfile {
    pub(crate) name: String,
    pub(crate) server: String,
    /// `config.toml line 4`
    pub(crate) place: String,
    pub(crate) token: Option<Token>,
    pub(crate) trust: Trust,
}

/// Where the file is, if there is a home to have one in.
pub(crate) fn path(env: impl Fn(&str) -> Option<String>) -> Option<PathBuf> {
    let folder = match (env("XDG_CONFIG_HOME"), env("HOME")) {
        (Some(config), _) => PathBuf::from(config),
        (None, Some(home)) => PathBuf::from(home).join(".config"),
        (None, None) => return None,
    };
    Some(folder.join("steadfast").join("config.toml"))
}

impl Profiles {
    /// None: there is no such file.
    pub(crate) fn read(path: &Path) -> Result<Option<Self>, String> {
        match std::fs::read_to_string(path) {
            Ok(text) => Self::parse(path, text).map(Some),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(format!("cannot read {}: {error}", path.display())),
        }
    }

    fn parse(path: &Path, text: String) -> Result<Self, String> {
        let file = toml::from_str(&text).map_err(|error| {
            let place = place(path, &text, error.span());
            format!("{place}: {}", inert(error.message()))
        })?;
        Ok(Self { path: path.to_owned(), text, file })
    }

    pub(crate) fn default(&self) -> Result<Option<NamedProfile>, String> {
        let Some(name) = &self.file.default else { return Ok(None) };
        let at = format!("{}: `default`", place(&self.path, &self.text, Some(name.span())));
        self.find(name.get_ref(), &at).map(Some)
    }

    /// `by`: who says the name, for the error if there is none of that name.
    pub(crate) fn find(&self, name: &str, by: &str) -> Result<NamedProfile, String> {
        let Some(profile) = self.file.profiles.get(name) else {
            let known: Vec<&str> = self.file.profiles.keys().map(String::as_str).collect();
            let known = match known.as_slice() {
                [] => "it has none".to_owned(),
                names => format!("it has {}", names.join(", ")),
            };
            let (name, known) = (inert(name), inert(&known));
            let file = self.path.display();
            return Err(format!("{by} names the profile `{name}`, which {file} lacks; {known}"));
        };
        let at = |span: Range<usize>| place(&self.path, &self.text, Some(span));
        let token = match (&profile.token, &profile.token_file) {
            (Some(_), Some(file)) => {
                return Err(format!(
                    "{}: `token` and `token_file` are two tokens; keep one of them",
                    at(file.span())
                ));
            }
            (Some(token), None) => {
                warn_if_others_read(&self.path);
                Some(token.clone())
            }
            (None, Some(file)) => {
                let path = self.beside(file.get_ref());
                let read = Token::read(&path);
                Some(read.map_err(|why| format!("{}: {why}", at(file.span())))?)
            }
            (None, None) => None,
        };
        let read = |file: &Spanned<PathBuf>| {
            let path = self.beside(file.get_ref());
            std::fs::read(&path).map_err(|error| {
                format!("{}: cannot read {}: {error}", at(file.span()), path.display())
            })
        };
        let ca = profile.ca.as_ref().map(read).transpose()?;
        let identity = match (&profile.cert, &profile.key) {
            (Some(cert), Some(key)) => Some([read(cert)?, read(key)?].join(&b'\n')),
            (Some(one), None) | (None, Some(one)) => {
                let at = at(one.span());
                return Err(format!("{at}: `cert` and `key` belong together; give both or none"));
            }
            (None, None) => None,
        };
        Ok(NamedProfile {
            name: name.to_owned(),
            server: profile.server.get_ref().clone(),
            place: at(profile.server.span()),
            token,
            trust: Trust { ca, identity },
        })
    }

    fn beside(&self, path: &Path) -> PathBuf {
        self.path.parent().unwrap_or(Path::new("")).join(path)
    }
}

fn place(path: &Path, text: &str, span: Option<Range<usize>>) -> String {
    let before = span.and_then(|span| text.get(..span.start));
    let line = before.map_or(1, |before| before.matches('\n').count() + 1);
    format!("{} line {line}", path.display())
}

pub(super) fn warn_if_others_read(path: &Path) {
    // A pipe or a terminal is the user's own.
    let about = std::fs::metadata(path).ok().filter(std::fs::Metadata::is_file);
    let mode = about.map_or(0, |about| about.permissions().mode());
    if mode & 0o077 != 0 {
        let path = path.display();
        anstream::eprintln!(
            "{}{path} holds a token and others can read it; `chmod 600 {path}` keeps it yours",
            paint(WAIT.bold(), "warning: ")
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wrong(text: &str) -> String {
        let path = Path::new("/home/me/config.toml");
        let profiles = match Profiles::parse(path, text.to_owned()) {
            Err(why) => return why,
            Ok(profiles) => profiles,
        };
        profiles.default().expect_err("nothing is wrong")
    }

    #[test]
    fn what_is_wrong_is_said_with_its_line() {
        let cases = [
            ("default = \"a\"\n[profiles.b]\nserver = 'http://b'\n", "line 1: `default` names"),
            ("# mine\n\n[profiles.a]\nsever = 'http://a'\n", "line 4: unknown field `sever`"),
            ("[profiles.a]\ntoken = 'x'\n", "line 1: missing field `server`"),
            ("default = 'a'\n[profiles.a\n", "line 2: "),
            (
                "default = 'a'\n[profiles.a]\nserver = 'http://a'\ntoken_file = 'none-such'\n",
                "line 4: cannot read the token in /home/me/none-such",
            ),
            (
                "default = 'a'\n[profiles.a]\nserver = 'http://a'\nca = 'none-such.pem'\n",
                "line 4: cannot read /home/me/none-such.pem",
            ),
            (
                "default = 'a'\n[profiles.a]\nserver = 'x'\ntoken = 'a'\ntoken_file = 'b'\n",
                "line 5: `token` and `token_file`",
            ),
        ];
        for (text, says) in cases {
            let why = wrong(text);
            assert!(why.starts_with("/home/me/config.toml line "), "{why}");
            assert!(why.contains(says), "{why}\n  should say {says}");
        }
        let why = wrong("default = 'c'\n[profiles.a]\nserver='x'\n[profiles.b]\nserver='y'\n");
        assert!(why.ends_with("it has a, b"), "{why}");
    }

    #[test]
    fn a_token_in_the_wrong_place_is_not_quoted() {
        for text in [
            "[profiles.a]\nserver = 'x'\ntoken = 5318008\n",
            "[profiles.a]\nserver = 'x'\ntoken = ['5318008']\n",
            "[profiles.a]\nserver = 'x'\ntoken = '5318008' oops\n",
            "[profiles.a]\nserver = 'x'\ntoken = '5318008\n",
        ] {
            let why = wrong(text);
            assert!(why.contains("line 3"), "{why}");
            assert!(!why.contains("5318008"), "{why}");
        }
    }
}
