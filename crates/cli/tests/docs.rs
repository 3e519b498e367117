//! Every example in the README and under docs/ is executed, and what it shows is what comes out.
//!
//! A block marked ```` ```yaml title="job.yaml" ```` becomes that file, in a folder of the page's own
//! (with a copy of examples/ in it). A ```` ```console ```` block holds commands after `$ ` and what
//! they print. `(exit N)` as the last line tells an exit status other than 0. Blocks of other kinds
//! are only read by people.
//!
//! What differs from time to time is left out of a page: a line `...` stands for any lines, and `…` for
//! any characters of one word. Where a command's output has such a word, the spaces between words do
//! not count: columns are as wide as what is in them.
//!
//! A page may have servers and workers:
//!
//! | command | means |
//! |---|---|
//! | `steadfast up &` | started, and left alone until the page ends; it is waited for until it is there |
//! | `python3 service.py 7117 &` | the same, of what a page needs beside them |
//! | `kill %2`, `kill -9 %2` | ends the second of those, and waits until it has ended |
//! | `JOB=$(…)` | `$JOB` is set in the commands after it |
//!
//! The port 7117 of a page is a free one in truth, which the environment names to servers, clients and
//! workers. A page with curl or python3 is left out where there is none.
//!
//! `UPDATE_DOCS=1 cargo test -p steadfast-cli --test docs` writes what comes out into the pages.

mod common;

use std::fs::{self, File};
use std::net::{TcpListener, TcpStream};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use common::wait_for;
use rustix::process::{Pid, Signal, kill_process_group};

/// As pages write it.
const PORT: &str = "7117";

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn pages() -> Vec<PathBuf> {
    let mut pages = vec![root().join("README.md")];
    let mut folders = vec![root().join("docs")];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).expect("docs/ is there") {
            let path = entry.expect("readable").path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|ext| ext == "md") {
                pages.push(path);
            }
        }
    }
    pages.sort();
    pages.retain(|page| page.exists());
    pages
}

/// Where the commands of a page run, and what they have left behind.
#[derive(Debug)]
struct Place<'a> {
    folder: &'a Path,
    /// For its server, if it has one.
    port: Option<u16>,
    begun: Vec<Begun>,
    variables: Vec<(String, String)>,
}

/// A command that goes on while the page does.
#[derive(Debug)]
struct Begun {
    child: Child,
    prints: PathBuf,
    /// One of our servers or workers, not what a page needs beside them.
    is_ours: bool,
}

impl Begun {
    fn has_ended(&mut self) -> bool {
        self.child.try_wait().expect("a child").is_some()
    }

    fn signal(&self, signal: Signal) {
        let group = Pid::from_raw(self.child.id() as i32).expect("a process");
        // It may just have ended by itself.
        let _ = kill_process_group(group, signal);
    }

    fn end(&mut self, signal: Signal) {
        if !self.has_ended() {
            self.signal(signal);
            wait_for("the end of what was killed", || self.has_ended().then_some(()));
        }
    }

    fn printed(&self) -> String {
        fs::read_to_string(&self.prints).unwrap_or_default()
    }
}

/// Also where an example has failed: nothing outlives its page.
impl Drop for Begun {
    fn drop(&mut self) {
        if matches!(self.child.try_wait(), Ok(None)) {
            self.signal(Signal::KILL);
            let _ = self.child.wait();
        }
    }
}

impl<'a> Place<'a> {
    fn new(folder: &'a Path, text: &str) -> Self {
        let serves = text.lines().any(|line| line.starts_with("$ ") && line.ends_with(" &"));
        let port = serves.then(|| {
            let any = TcpListener::bind(("127.0.0.1", 0)).expect("a free port");
            any.local_addr().expect("an address").port()
        });
        Self { folder, port, begun: vec![], variables: vec![] }
    }

    /// What a page says, as it is done here.
    fn truly(&self, text: &str) -> String {
        match self.port {
            Some(port) => text.replace(PORT, &port.to_string()),
            None => text.to_owned(),
        }
    }

    fn shell(&self, script: &str) -> Command {
        let program = Path::new(env!("CARGO_BIN_EXE_steadfast"));
        let path = std::env::var("PATH").expect("a PATH");
        let mut shell = Command::new("sh");
        shell
            .args(["-c", script])
            .current_dir(self.folder)
            .env("PATH", format!("{}:{path}", program.parent().expect("a folder").display()))
            .env("NO_COLOR", "1")
            .env("STEADFAST_DATA", self.folder.join("kept"))
            .env("XDG_DATA_HOME", self.folder.join("home"))
            // Nor is a server of whoever runs the tests for the pages.
            .env("XDG_CONFIG_HOME", self.folder.join("home"))
            .env("XDG_STATE_HOME", self.folder.join("home"))
            .env_remove("STEADFAST_SERVER")
            .env_remove("STEADFAST_TOKEN")
            .env_remove("STEADFAST_CONFIG")
            .envs(self.variables.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::null());
        if let Some(port) = self.port {
            shell.env("STEADFAST_SERVER__LISTEN", format!("127.0.0.1:{port}"));
            // Before there is a server, a page is about this machine.
            if self.begun.iter().any(|begun| begun.is_ours) {
                shell.env("STEADFAST_SERVER", format!("http://127.0.0.1:{port}"));
            }
        }
        shell
    }

    /// What the command printed.
    fn run(&mut self, command: &str) -> String {
        if let Some(command) = command.strip_suffix(" &") {
            self.begin(command);
            return String::new();
        }
        if let Some(job) = command.strip_prefix("kill ").filter(|rest| rest.contains('%')) {
            self.end(job);
            return String::new();
        }
        let command = self.truly(command);
        if let Some((name, _)) = command.split_once("=$(").filter(|_| command.ends_with(')')) {
            let set = self.shell(&format!("{command} && printf %s \"${name}\"")).output();
            let set = set.expect("runs");
            assert!(set.status.success(), "{command}: {set:?}");
            let value = String::from_utf8(set.stdout).expect("text");
            self.variables.push((name.to_owned(), value));
            return String::new();
        }
        let output = self.shell(&format!("{{ {command}\n}} 2>&1")).output().expect("runs");
        let mut text = String::from_utf8(output.stdout).expect("text");
        match output.status.code() {
            Some(0) => {}
            code => {
                if !text.is_empty() && !text.ends_with('\n') {
                    text.push('\n');
                }
                text.push_str(&format!("(exit {})\n", code.expect("an exit code")));
            }
        }
        if let Some(port) = self.port {
            text = text.replace(&format!(":{port}"), &format!(":{PORT}"));
        }
        // A trailing space cannot be seen in a page.
        text.lines().flat_map(|line| [line.trim_end(), "\n"]).collect()
    }

    fn begin(&mut self, command: &str) {
        let port = self.port.expect("a page with a server has a port");
        let prints = self.folder.join(format!("background-{}.txt", self.begun.len() + 1));
        let file = File::create(&prints).expect("a file");
        // With `env`, variables may stand before the program.
        let script = format!("exec env {}", self.truly(command));
        let child = self
            .shell(&script)
            .env("STEADFAST_SERVER", format!("http://127.0.0.1:{port}"))
            .stdout(file.try_clone().expect("a file"))
            .stderr(file)
            .process_group(0)
            .spawn()
            .expect("starts");
        let is_ours = command.contains("steadfast ");
        let mut begun = Begun { child, prints, is_ours };
        let is = |word: &str| command.contains(&format!("steadfast {word}"));
        let (serves, works) = (is("up") || is("server") || !is_ours, is("up") || is("worker"));
        wait_for(command, || {
            assert!(!begun.has_ended(), "`{command}` ended:\n{}", begun.printed());
            let listens = !serves || TcpStream::connect(("127.0.0.1", port)).is_ok();
            let connected = !works || begun.printed().contains(" connected ");
            (listens && connected).then_some(())
        });
        self.begun.push(begun);
    }

    /// `%1` or `-9 %1`.
    fn end(&mut self, job: &str) {
        let (signal, job) = match job.strip_prefix("-9 ") {
            Some(job) => (Signal::KILL, job),
            None => (Signal::TERM, job),
        };
        let number: usize = job.strip_prefix('%').and_then(|n| n.parse().ok()).expect("kill %N");
        self.begun[number - 1].end(signal);
    }
}

/// Runs a page's commands; the page as it should read, and how many commands it has.
fn run_page(text: &str, folder: &Path) -> (String, usize) {
    let mut place = Place::new(folder, text);
    let mut page = String::new();
    let mut commands = 0;
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        page.push_str(line);
        page.push('\n');
        let Some(info) = line.strip_prefix("```") else { continue };
        let body: Vec<&str> = lines.by_ref().take_while(|line| *line != "```").collect();
        if info == "console" {
            let (shown, count) = run_block(&body, &mut place);
            page.push_str(&shown);
            commands += count;
        } else {
            let title = info.split_once("title=\"").and_then(|(_, rest)| rest.split_once('"'));
            if let Some((name, _)) = title {
                let text = place.truly(&body.join("\n")) + "\n";
                fs::write(folder.join(name), text).expect("writes the example");
            }
            for line in body {
                page.push_str(line);
                page.push('\n');
            }
        }
        page.push_str("```\n");
    }
    // Workers before the server that they report to.
    while let Some(mut begun) = place.begun.pop() {
        begun.end(Signal::TERM);
    }
    (page, commands)
}

fn run_block(body: &[&str], place: &mut Place) -> (String, usize) {
    let mut shown = String::new();
    let mut commands = 0;
    let mut at = 0;
    while at < body.len() {
        let command = body[at].strip_prefix("$ ").expect("a console block begins with `$ `");
        let end = (at + 1..body.len()).find(|&i| body[i].starts_with("$ ")).unwrap_or(body.len());
        let output = place.run(command);
        shown.push_str(&format!("$ {command}\n"));
        shown.push_str(&elide(&output, &body[at + 1..end]));
        commands += 1;
        at = end;
    }
    (shown, commands)
}

/// What came out, with the page's own `...` and `…` kept where what they hide fits.
fn elide(output: &str, expected: &[&str]) -> String {
    let lines: Vec<&str> = output.lines().collect();
    let loose = expected.iter().any(|line| line.contains('…'));
    if !expected.is_empty() && matches(&lines, expected, loose) {
        return expected.join("\n") + "\n";
    }
    output.to_owned()
}

fn matches(lines: &[&str], expected: &[&str], loose: bool) -> bool {
    match expected.split_first() {
        None => lines.is_empty(),
        Some((&"...", rest)) => (0..=lines.len()).any(|skip| matches(&lines[skip..], rest, loose)),
        Some((line, rest)) => {
            lines.first().is_some_and(|first| fits(first, line, loose))
                && matches(&lines[1..], rest, loose)
        }
    }
}

fn fits(line: &str, expected: &str, loose: bool) -> bool {
    if !loose {
        return line == expected;
    }
    let (said, wanted) = (line.split_whitespace(), expected.split_whitespace());
    said.clone().count() == wanted.clone().count() && said.zip(wanted).all(word_fits)
}

fn word_fits((word, expected): (&str, &str)) -> bool {
    let Some((begins, rest)) = expected.split_once('…') else { return word == expected };
    let Some(word) = word.strip_prefix(begins) else { return false };
    word.char_indices()
        .map(|(at, _)| at)
        .chain([word.len()])
        .any(|at| word_fits((&word[at..], rest)))
}

#[test]
fn every_example_in_the_docs_does_what_it_shows() {
    let update = std::env::var_os("UPDATE_DOCS").is_some();
    let mut wrong = vec![];
    let mut commands = 0;
    for page in pages() {
        let name = page.strip_prefix(root()).unwrap_or(&page).display().to_string();
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name.replace('/', "_"));
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(folder.join("examples")).expect("a folder");
        for example in fs::read_dir(root().join("examples")).expect("examples/ is there") {
            let path = example.expect("readable").path();
            fs::copy(&path, folder.join("examples").join(path.file_name().expect("a name")))
                .expect("copies");
        }
        let text = fs::read_to_string(&page).expect("readable");
        let asks = |program: &&str| {
            let word = format!("{program} ");
            text.lines().any(|line| line.starts_with("$ ") && line.contains(&word))
        };
        let missing = |program: &&str| Command::new(program).arg("--version").output().is_err();
        if let Some(program) = ["curl", "python3"].iter().filter(|p| asks(p)).find(|p| missing(p)) {
            println!("{name} is left out: there is no {program}");
            continue;
        }
        let (now, count) = run_page(&text, &folder);
        commands += count;
        if now == text {
            continue;
        }
        if update {
            fs::write(&page, now).expect("writable");
        } else {
            let line = text.lines().zip(now.lines()).position(|(a, b)| a != b);
            let line = line.unwrap_or_else(|| text.lines().count().min(now.lines().count()));
            let (a, b) = (text.lines().nth(line), now.lines().nth(line));
            wrong.push(format!("{name}:{}\n  page:    {a:?}\n  program: {b:?}", line + 1));
        }
    }
    assert!(commands > 0, "no example was executed");
    assert!(wrong.is_empty(), "run with UPDATE_DOCS=1 and look:\n{}", wrong.join("\n"));
}

/// Whoever looks for something begins at the index, and at the README.
#[test]
fn the_index_has_every_page() {
    let docs = root().join("docs");
    let index = fs::read_to_string(docs.join("README.md")).expect("readable");
    let readme = fs::read_to_string(root().join("README.md")).expect("readable");
    let mut missing = vec![];
    for page in pages().iter().filter(|page| page.parent() == Some(&docs)) {
        let name = page.file_name().and_then(|name| name.to_str()).expect("plain");
        if name != "README.md" && !index.contains(&format!("]({name})")) {
            missing.push(format!("docs/README.md has no link to {name}"));
        }
    }
    for folder in ["seeds"] {
        let list = fs::read_to_string(docs.join(folder).join("README.md")).expect("readable");
        assert!(index.contains(&format!("]({folder}/README.md)")), "{folder}");
        for page in pages().iter().filter(|page| page.parent() == Some(&docs.join(folder))) {
            let name = page.file_name().and_then(|name| name.to_str()).expect("plain");
            if name != "README.md" && !list.contains(&format!("({name}")) {
                missing.push(format!("docs/{folder}/README.md has no link to {name}"));
            }
        }
    }
    assert!(readme.contains("](docs/README.md)"), "the README leads to the index");
    assert!(missing.is_empty(), "{}", missing.join("\n"));
}

/// By its name: what looks like one is one.
#[test]
fn every_test_that_a_page_names_is_there() {
    let mut sources = String::new();
    let mut folders = vec![root().join("crates")];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).expect("sources") {
            let path = entry.expect("readable").path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|ext| ext == "rs") {
                sources += &fs::read_to_string(&path).expect("text");
            }
        }
    }
    let page = fs::read_to_string(root().join("docs/reliability.md")).expect("the page");
    let words = page.split('`').skip(1).step_by(2);
    let is_test = |word: &&str| {
        word.matches('_').count() > 3
            && word.chars().all(|c| c == '_' || c.is_ascii_lowercase() || c.is_ascii_digit())
    };
    let named: Vec<&str> = words.filter(is_test).collect();
    assert!(named.len() > 50, "{}", named.len());
    let missing: Vec<_> =
        named.iter().filter(|name| !sources.contains(&format!("fn {name}("))).collect();
    assert!(missing.is_empty(), "{missing:#?}");
}
