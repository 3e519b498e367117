//! The one thing a step does, and what stands around its processes.

use std::collections::BTreeMap;

use steadfast_core::plan::{
    Action, AfterFailure, Cwd, Http, HttpExpect, HttpMode, MAX_LABELS, OnFailure,
    ProcessEnvironment,
};
use steadfast_core::template::{Reference, looks_templated};

use crate::keys;
use crate::node::Span;
use crate::problem::quote;
use crate::reader::{At, Block, Reader};
use crate::references::{Scope, TemplateUse};

/// Set for every process, so that a job cannot mislead its own steps.
const RESERVED_ENV: [&str; 10] = [
    "STEADFAST_JOB_ID",
    "STEADFAST_STEP",
    "STEADFAST_ITEM",
    "STEADFAST_ITEM_INDEX",
    "STEADFAST_ATTEMPT",
    "STEADFAST_ATTEMPT_TOKEN",
    "STEADFAST_DATACENTER",
    "STEADFAST_WORKDIR",
    "STEADFAST_OUTPUT",
    "STEADFAST_ERROR",
];

/// They are the connection's, whatever a step would say.
const CONNECTION_HEADERS: [&str; 6] =
    ["connection", "content-length", "te", "trailer", "transfer-encoding", "upgrade"];

/// Files that a job or a step names, folders counted as one: as many as a server takes.
const MOST_FILES: usize = 1000;
const MOST_SECRETS: usize = 100;

/// An action, and what an `http` says about time.
#[derive(Debug)]
pub(crate) struct ReadAction<'n> {
    pub(crate) action: Action,
    pub(crate) http_timeout: Option<At<'n>>,
    pub(crate) default_timeout_ms: Option<u64>,
}

impl Reader<'_> {
    /// The action among a block's keys; the table has said that there is one.
    pub(crate) fn action<'n>(&mut self, block: &Block<'n>, scope: Scope) -> Option<ReadAction<'n>> {
        let plain = |action| ReadAction { action, http_timeout: None, default_timeout_ms: None };
        if block.has("input") && !block.has("call") {
            let message = "`input` is for `call` alone".to_owned();
            self.bad_at("conflicting_keys", &block.path("input"), block.key_span("input"), message);
        }
        if let Some(at) = block.get("run") {
            return self.run(&at).map(Action::Run).map(plain);
        }
        if let Some(at) = block.get("argv") {
            return self.argv(&at, scope).map(Action::Argv).map(plain);
        }
        if let Some(at) = block.get("http") {
            return self.http(&at, block.key_span("http"), scope);
        }
        let name = self.name(&block.get("call")?, "a function's name", ".:");
        let input = match block.get("input") {
            Some(at) => self.templated(&at, scope),
            None => Some(serde_json::Value::Null),
        };
        let (name, input) = name.zip(input)?;
        Some(plain(Action::Call { name, input }))
    }

    fn run(&mut self, at: &At) -> Option<String> {
        let text = self.text(at)?;
        if text.trim().is_empty() {
            self.bad("missing_value", at, "there is no command".into()).help =
                Some("write `run: echo hello`".into());
            return None;
        }
        if let Some(reference) = looks_templated(text) {
            let instead = match reference {
                Reference::Item { .. } => "the item is in `$STEADFAST_ITEM`",
                Reference::ItemIndex => "the index is in `$STEADFAST_ITEM_INDEX`",
                Reference::JobId => "the job's id is in `$STEADFAST_JOB_ID`",
                Reference::Attempt => "the attempt is in `$STEADFAST_ATTEMPT`",
                Reference::Secret { .. } => "a secret is in the variable of its name",
                Reference::Output { .. } | Reference::Outputs { .. } => {
                    "put the output into `env`, which is templated, or write `argv`"
                }
            };
            let message = format!("`run` is never templated: {instead}");
            self.warn("template_in_run", at.path.clone(), at.node.span().line, message);
        }
        Some(text.to_owned())
    }

    fn argv(&mut self, at: &At, scope: Scope) -> Option<Vec<String>> {
        let items = self.list(at, "[./index.sh, --fast]")?;
        if items.is_empty() {
            self.bad("missing_value", at, "there is no program to run".into()).help =
                Some("write `argv: [./index.sh]`".into());
            return None;
        }
        let mut argv = Vec::with_capacity(items.len());
        for item in &items {
            let word = self.written(item)?;
            self.template(item, &word, scope);
            argv.push(word);
        }
        if argv[0].is_empty() {
            self.bad("missing_value", &items[0], "the program has no name".into());
        }
        Some(argv)
    }

    fn http<'n>(&mut self, at: &At<'n>, owner: Span, scope: Scope) -> Option<ReadAction<'n>> {
        let before = self.uses.len();
        let block = self.block(at, Some(owner), &keys::HTTP)?;
        let methods = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"];
        let method =
            block.get("method").and_then(|at| self.word(&at, &methods.map(|word| (word, word))));
        let modes = [("sync", HttpMode::Sync), ("async", HttpMode::Async)];
        let mode = block.get("mode").and_then(|at| self.word(&at, &modes));
        let mode = mode.unwrap_or_default();
        let expects = [("any", HttpExpect::Any), ("envelope", HttpExpect::Envelope)];
        let expect = block.get("expect").and_then(|at| self.word(&at, &expects));
        let redirects = block.get("redirects").and_then(|at| self.redirects(&at));
        self.header_names(&block);
        let headers = self.pairs(&block, "headers", scope);
        let query = self.pairs(&block, "query", scope);
        let body = block.get("body").and_then(|at| self.templated(&at, scope));
        let url = self.url(&block.get("url")?, scope)?;
        self.uses[before..].iter_mut().for_each(TemplateUse::in_http);
        let http = Http {
            method: method.unwrap_or("POST").to_owned(),
            url,
            headers,
            query,
            body,
            mode,
            expect: expect.unwrap_or_default(),
            redirects: redirects.unwrap_or_default(),
        };
        Some(ReadAction {
            action: Action::Http(http),
            http_timeout: block.get("timeout"),
            default_timeout_ms: Some(mode.default_timeout_ms()),
        })
    }

    fn redirects(&mut self, at: &At) -> Option<u8> {
        match self.count(at, 0)? {
            few @ 0..=10 => Some(few as u8),
            many => {
                let message = format!("{many} redirects are too many");
                self.bad("invalid_value", at, message).help =
                    Some("write at most `redirects: 10`".into());
                None
            }
        }
    }

    fn url(&mut self, at: &At, scope: Scope) -> Option<String> {
        let text = self.text(at)?;
        self.template(at, text, scope);
        let rest = text
            .strip_prefix("http://")
            .or_else(|| text.strip_prefix("https://"))
            .or_else(|| text.starts_with("{{").then_some(text));
        if rest.is_none_or(|rest| rest.is_empty() || rest.starts_with('/')) {
            let message = format!("{} is not an http or https address", quote(text));
            self.bad("invalid_value", at, message).help =
                Some("write it as `http://127.0.0.1:9000/path`".into());
            return None;
        }
        if let Some((message, help)) = wrong_in_address(text) {
            self.bad("invalid_value", at, message).help = Some(help.into());
            return None;
        }
        Some(text.to_owned())
    }

    /// What a request would refuse to send is said before anything runs.
    fn header_names(&mut self, block: &Block) {
        let Some(at) = block.get("headers") else { return };
        let mut lines = BTreeMap::new();
        for entry in at.node.as_map().into_iter().flatten() {
            let value = at.entry(entry);
            let (name, span) = (&*entry.key, entry.key_span);
            let lower = name.to_ascii_lowercase();
            let first = lines.insert(lower.clone(), (name, span.line));
            if !is_header_name(name) {
                let message = format!("{} is not the name of a header", quote(name));
                self.bad_at("invalid_name", &value.path, span, message);
            } else if CONNECTION_HEADERS.contains(&&*lower) {
                let message = format!("the header {name} belongs to the connection");
                self.bad_at("invalid_name", &value.path, span, message).help =
                    Some("leave it out; it is sent by itself where it is needed".into());
            } else if let Some((other, line)) = first.filter(|(other, _)| *other != name) {
                let message = format!(
                    "{} is already written on line {line}, as {}: the case of a header's name does \
                     not matter",
                    quote(name),
                    quote(other)
                );
                self.bad_at("duplicate_key", &value.path, span, message).help =
                    Some("remove one of the two".into());
            }
            if entry.value.as_str().is_some_and(|text| text.contains(['\r', '\n'])) {
                let message = format!("the header {name} cannot hold a line break");
                self.bad("invalid_value", &value, message);
            }
        }
    }

    fn pairs(&mut self, block: &Block, key: &str, scope: Scope) -> BTreeMap<String, String> {
        let Some(at) = block.get(key) else {
            return BTreeMap::new();
        };
        let entries = self.entries(&at, "{ Accept: text/plain }").unwrap_or_default();
        let mut pairs = BTreeMap::new();
        for entry in entries {
            let at = at.entry(entry);
            if let Some(value) = self.written(&at) {
                self.template(&at, &value, scope);
                pairs.insert(entry.key.to_string(), value);
            }
        }
        pairs
    }

    pub(crate) fn on_failure(&mut self, at: &At, owner: Span, scope: Scope) -> Option<OnFailure> {
        if at.node.as_map().is_none() {
            let words = [("stop", AfterFailure::Fail), ("continue", AfterFailure::Continue)];
            let then = self.word(at, &words)?;
            let says_something = then == AfterFailure::Continue;
            return says_something.then_some(OnFailure { action: None, then });
        }
        let block = self.block(at, Some(owner), &keys::ON_FAILURE)?;
        let acts = ["run", "argv", "http", "call"].iter().any(|key| block.has(key));
        let then = match block.get("then") {
            Some(at) => {
                let words = [("fail", AfterFailure::Fail), ("continue", AfterFailure::Continue)];
                self.word(&at, &words)?
            }
            None => AfterFailure::Fail,
        };
        if let Some(at) = block.get("fallback") {
            let fallback = self.block(&at, Some(block.key_span("fallback")), &keys::FALLBACK)?;
            let command = self.run(&fallback.get("command")?)?;
            return Some(OnFailure {
                action: Some(Action::Run(command)),
                then: AfterFailure::Continue,
            });
        }
        if !acts && !block.has("then") {
            let message = "`on_failure` says neither what to run nor what to do then".to_owned();
            self.bad_at("missing_value", &at.path, owner, message).help =
                Some("write `on_failure: { run: ./rollback.sh }` or `on_failure: continue`".into());
        }
        let action = self.action(&block, scope);
        self.no_timeout_here(action.as_ref());
        let action = action.map(|read| read.action);
        Some(OnFailure { action, then })
    }

    pub(crate) fn compensate(&mut self, at: &At, owner: Span, scope: Scope) -> Option<Action> {
        let block = self.block(at, Some(owner), &keys::COMPENSATE)?;
        let read = self.action(&block, scope);
        self.no_timeout_here(read.as_ref());
        read.map(|read| read.action)
    }

    /// Only a step's own attempts have a timeout to set.
    fn no_timeout_here(&mut self, read: Option<&ReadAction>) {
        if let Some(at) = read.and_then(|read| read.http_timeout.as_ref()) {
            let message = "a timeout is set for the step, not here".to_owned();
            self.bad("conflicting_keys", at, message).help = Some("remove it".into());
        }
    }

    /// `env`, `cwd`, `files` and `secrets`, which jobs and steps both have.
    pub(crate) fn surroundings(&mut self, block: &Block, scope: Scope) -> ProcessEnvironment {
        let mut around = ProcessEnvironment::default();
        if let Some(at) = block.get("env") {
            for entry in self.entries(&at, "{ NAME: value }").unwrap_or_default() {
                let value = at.entry(entry);
                self.env_name(&entry.key, &value.path, entry.key_span);
                if let Some(text) = self.written(&value) {
                    self.template(&value, &text, scope);
                    around.env.insert(entry.key.to_string(), text);
                }
            }
        }
        if let Some(at) = block.get("cwd") {
            around.cwd = self.word(&at, &[("source", Cwd::Source), ("attempt", Cwd::Attempt)]);
        }
        if let Some(at) = block.get("files") {
            let items = self.short_list(&at, "[index.sh]", MOST_FILES, "files");
            let items = items.unwrap_or_default();
            around.files = items.iter().filter_map(|item| self.file(item)).collect();
        }
        if let Some(at) = block.get("secrets") {
            let items = self.short_list(&at, "[API_KEY]", MOST_SECRETS, "secrets");
            for item in items.unwrap_or_default() {
                if let Some(name) = self.text(&item) {
                    self.env_name(name, &item.path, item.node.span());
                    around.secrets.push(name.to_owned());
                }
            }
        }
        around
    }

    fn env_name(&mut self, name: &str, path: &str, span: Span) {
        let first = |c: char| c.is_ascii_alphabetic() || c == '_';
        let fits = name.starts_with(first) && name.chars().all(|c| first(c) || c.is_ascii_digit());
        let message = if RESERVED_ENV.contains(&name) || name.starts_with("STEADFAST_PORT_") {
            format!("`{name}` is set by Steadfast itself")
        } else if !fits {
            format!("{} is not a name for a variable: letters, digits and `_`", quote(name))
        } else if name.len() > 200 {
            "a variable's name has at most 200 characters".to_owned()
        } else {
            return;
        };
        self.bad_at("invalid_name", path, span, message);
    }

    fn file(&mut self, at: &At) -> Option<String> {
        let text = self.text(at)?;
        let message = if text.is_empty() {
            "a file needs a name".to_owned()
        } else if text.starts_with('/') || text.starts_with('~') {
            format!("{} is not relative to the job file", quote(text))
        } else if text.split('/').any(|part| part == "..") {
            format!("{} leads out of the job file's folder", quote(text))
        } else if text.contains('\\') || text.chars().any(char::is_control) {
            format!("{} contains a character that paths cannot have here", quote(text))
        } else {
            return Some(text.to_owned());
        };
        self.bad("invalid_value", at, message).help =
            Some("write a path inside the job file's folder, as `scripts/index.sh`".into());
        None
    }

    pub(crate) fn labels(&mut self, block: &Block) -> BTreeMap<String, String> {
        let Some(at) = block.get("labels") else {
            return BTreeMap::new();
        };
        let mut labels = BTreeMap::new();
        let entries = self.entries(&at, "{ team: search }").unwrap_or_default();
        if entries.len() > MAX_LABELS {
            let message = format!("at most {MAX_LABELS} labels, not {}", entries.len());
            self.bad("invalid_value", &at, message);
            return labels;
        }
        for entry in entries {
            let value = at.entry(entry);
            self.check_name(&entry.key, "a label", "./", &value.path, entry.key_span);
            let Some(text) = self.written(&value) else {
                continue;
            };
            if text.chars().count() > 200 || text.chars().any(char::is_control) {
                let message = "a label's value is printable and at most 200 characters long";
                self.bad("invalid_value", &value, message.into());
            }
            labels.insert(entry.key.to_string(), text);
        }
        labels
    }
}

fn is_header_name(name: &str) -> bool {
    let token = |b: u8| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b);
    !name.is_empty() && name.bytes().all(token)
}

/// What cannot be in an address, and what to write instead. Of what is templated only the worker knows.
fn wrong_in_address(text: &str) -> Option<(String, &'static str)> {
    // A reference may contain spaces; what is left of the address may not.
    let bare: String =
        text.split("{{").map(|part| part.rsplit("}}").next().unwrap_or(part)).collect();
    if bare.contains(' ') {
        let message = format!("there is a space in the address {}", quote(text));
        return Some((message, "write a space as `%20`"));
    }
    if bare.contains(|c: char| c.is_whitespace() || c.is_control()) {
        let message = format!("the address {} holds a character that cannot be sent", quote(text));
        return Some((message, "leave out line breaks, tabs and control characters"));
    }
    let (_, rest) = text.split_once("://")?;
    let host = rest.split(['/', '?', '#', '\\']).next()?;
    if host.contains('@') {
        let message = "there are credentials in the address".to_owned();
        return Some((message, "put them into the header `Authorization`, with a secret"));
    }
    let port = host.rsplit_once(':').map(|(_, port)| port)?;
    let templated = host.contains("{{");
    let digits = port.bytes().all(|b| b.is_ascii_digit());
    // An address of IPv6 has colons too, in brackets.
    if templated
        || port.ends_with(']')
        || (digits && (port.is_empty() || port.parse::<u16>().is_ok()))
    {
        return None;
    }
    let message = format!("{} is not a port", quote(port));
    Some((message, "write a number from 1 to 65535, as in `http://127.0.0.1:9000/path`"))
}
