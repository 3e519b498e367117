//! Servers and workers of a test, each with a folder of its own, all gone when the test is.

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead as _, BufReader, Read};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU16, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use rustix::process::{Pid, Signal, kill_process};
use steadfast_store::testing::TestCluster;

pub(crate) use super::rest::{Server, ask, attempt_states, attempt_workers, item, number, step};

/// The setting that puts a server's jobs into a database.
pub(crate) const STORE_URL: &str = "STEADFAST_STORE__URL";
/// The setting that puts its files and logs into an object store.
pub(crate) const BLOBS_URL: &str = "STEADFAST_BLOBS__URL";
/// Nothing here takes as long unless it hangs.
pub(super) const LONG: Duration = Duration::from_secs(40);

#[allow(clippy::disallowed_methods, reason = "bounds on waiting need a clock")]
pub(crate) fn now() -> Instant {
    Instant::now()
}

/// As events have it.
#[allow(clippy::disallowed_methods, reason = "held against the times in a log")]
pub(crate) fn unix_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").as_millis() as u64
}

/// Time that must pass because nothing is to happen in it; never instead of something that happens.
#[allow(clippy::disallowed_methods, reason = "a silence has a length")]
pub(crate) fn pass(time: Duration) {
    std::thread::sleep(time);
}

/// Waits until there is something.
#[track_caller]
pub(crate) fn wait_for<T>(what: &str, look: impl FnMut() -> Option<T>) -> T {
    wait_or(look, || panic!("waited in vain for {what}"))
}

#[track_caller]
pub(super) fn wait_or<T>(mut look: impl FnMut() -> Option<T>, vain: impl FnOnce() -> T) -> T {
    let until = now() + LONG;
    loop {
        if let Some(found) = look() {
            return found;
        }
        if now() >= until {
            return vain();
        }
        pass(Duration::from_millis(20));
    }
}

/// Where a job is read of a server that ends now, or of one that has no data folder and goes on.
pub(crate) fn at_the_end(place: &Place, server: &mut Server) -> [String; 2] {
    if in_postgres().is_some() {
        return ["--server".to_owned(), server.url()];
    }
    server.process.signal(Signal::TERM);
    assert!(server.process.ends().success(), "{}", server.process.said());
    ["--data".to_owned(), place.text("data")]
}

/// A folder for everything of one test.
#[derive(Debug)]
pub(crate) struct Place {
    folder: tempfile::TempDir,
    /// By data folders, if servers keep nothing there.
    databases: Option<Mutex<BTreeMap<String, String>>>,
}

/// With `STEADFAST_TEST_STORE=postgres` servers have a database in the place of each data folder, but for tests that are about the folder.
fn in_postgres() -> Option<&'static TestCluster> {
    let store = std::env::var("STEADFAST_TEST_STORE").unwrap_or_default();
    (store == "postgres").then(TestCluster::shared)?
}

impl Place {
    pub(crate) fn new() -> Self {
        let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a folder");
        Self { folder, databases: Some(Mutex::default()) }
    }

    /// Servers keep their jobs in data folders, whatever the other tests' do.
    pub(crate) fn with_data_folders() -> Self {
        let mut place = Self::new();
        place.databases = None;
        place
    }

    /// The URL of the database that is in the place of a data folder.
    pub(crate) fn database(&self, data: &str) -> Option<String> {
        let (databases, cluster) = (self.databases.as_ref()?, in_postgres()?);
        let mut databases = databases.lock().expect("unpoisoned");
        Some(databases.entry(data.to_owned()).or_insert_with(|| cluster.database()).clone())
    }

    /// With `STEADFAST_TEST_BLOBS=objects` servers have files and logs in a folder of objects, but for tests that are about the data folder.
    fn objects(&self) -> Option<String> {
        let blobs = std::env::var("STEADFAST_TEST_BLOBS").unwrap_or_default();
        (blobs == "objects" && self.databases.is_some()).then(|| {
            let folder = self.path("objects");
            fs::create_dir_all(&folder).expect("a folder");
            format!("file://{}", folder.display())
        })
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(crate) fn text(&self, name: &str) -> String {
        self.path(name).to_str().expect("plain").to_owned()
    }

    pub(crate) fn read(&self, name: &str) -> String {
        fs::read_to_string(self.path(name)).unwrap_or_default()
    }

    pub(crate) fn lines(&self, name: &str) -> Vec<String> {
        self.read(name).lines().map(str::to_owned).collect()
    }

    /// What scripts wait for.
    pub(crate) fn open(&self, gate: &str) {
        fs::write(self.path(gate), "").expect("writes");
    }

    #[track_caller]
    pub(crate) fn has_lines(&self, name: &str, count: usize) -> Vec<String> {
        wait_for(&format!("{count} lines in {name}"), || {
            let lines = self.lines(name);
            (lines.len() >= count).then_some(lines)
        })
    }

    pub(crate) fn server(&self) -> ServerOrder<'_> {
        ServerOrder {
            place: self,
            data: "data".to_owned(),
            listen: "127.0.0.1:0".to_owned(),
            auth: "none",
            settings: Vec::new(),
        }
    }

    pub(crate) fn worker(&self, server: &str, name: &str) -> WorkerOrder<'_> {
        let server = server.to_owned();
        let folder = format!("worker-{name}");
        WorkerOrder {
            place: self,
            server,
            name: name.to_owned(),
            folder,
            args: vec![],
            env: vec![],
        }
    }

    pub(crate) fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_steadfast"));
        command.args(args).stdin(Stdio::null());
        // By it a process is found that is to go when the test goes.
        command.env("STEADFAST_TEST_PLACE", self.folder.path());
        for (name, _) in std::env::vars() {
            if name.starts_with("STEADFAST_") || name.starts_with("BEST_EFFORT_") {
                command.env_remove(name);
            }
        }
        command.env("STEADFAST_TEST_PLACE", self.folder.path()).env("NO_COLOR", "1");
        command.envs(self.database("data").map(|url| (STORE_URL, url)));
        command
    }

    /// What a command prints that ends well.
    #[track_caller]
    pub(crate) fn call(&self, args: &[&str]) -> String {
        let output = self.command(args).output().expect("the program starts");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).expect("text")
    }

    /// Processes of this test that are there, whoever started them.
    fn processes(&self) -> Vec<u32> {
        let folder = self.folder.path().to_str().expect("plain").as_bytes();
        let is_ours = |pid: u32| {
            let mut environ = Vec::new();
            fs::File::open(format!("/proc/{pid}/environ"))
                .and_then(|mut file| file.read_to_end(&mut environ))
                .is_ok_and(|_| environ.windows(folder.len()).any(|part| part == folder))
        };
        let entries = fs::read_dir("/proc").expect("/proc");
        let pids = entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
        pids.filter(|pid| is_ours(*pid)).collect()
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        // A worker that was killed leaves what it ran, and that may be about to start something.
        while let left @ [_, ..] = &self.processes()[..] {
            for pid in left.iter().filter_map(|pid| Pid::from_raw(*pid as i32)) {
                let _ = kill_process(pid, Signal::KILL);
            }
            pass(Duration::from_millis(5));
        }
    }
}

/// A process of the program: killed when it is dropped.
#[derive(Debug)]
pub(crate) struct Process {
    child: Child,
    lines: Receiver<String>,
    said: Arc<Mutex<String>>,
}

impl Process {
    pub(crate) fn start(mut command: Command) -> Self {
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("the program starts");
        let stdout = BufReader::new(child.stdout.take().expect("piped"));
        let mut stderr = child.stderr.take().expect("piped");
        let (send, lines) = channel();
        std::thread::spawn(move || {
            for line in stdout.lines().map_while(Result::ok) {
                let _ = send.send(line);
            }
        });
        let said = Arc::<Mutex<String>>::default();
        let hearing = said.clone();
        std::thread::spawn(move || {
            let mut part = [0; 4096];
            while let Ok(count @ 1..) = stderr.read(&mut part) {
                let text = String::from_utf8_lossy(&part[..count]);
                hearing.lock().expect("unpoisoned").push_str(&text);
            }
        });
        Self { child, lines, said }
    }

    /// Of a server, which says first where it listens.
    #[track_caller]
    pub(crate) fn address(&self) -> String {
        let first = self.lines.recv_timeout(LONG);
        let first = first.unwrap_or_else(|_| panic!("no server: {}", self.said()));
        first.rsplit_once("http://").expect("its address").1.to_owned()
    }

    /// What it has written to its error output.
    pub(crate) fn said(&self) -> String {
        self.said.lock().expect("unpoisoned").clone()
    }

    #[track_caller]
    pub(crate) fn says(&self, words: &str) {
        wait_or(
            || self.said().contains(words).then_some(()),
            || panic!("it never says {words:?}, but {}", self.said()),
        );
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).expect("it has not been waited for");
    }

    /// With -9.
    pub(crate) fn kill(mut self) {
        self.child.kill().expect("ours to kill");
        self.child.wait().expect("a child");
    }

    #[track_caller]
    pub(crate) fn ends(&mut self) -> ExitStatus {
        wait_for("its end", || self.child.try_wait().expect("a child"))
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        if std::thread::panicking() {
            eprintln!("--- process {} said\n{}", self.pid(), self.said());
        }
    }
}

#[must_use]
pub(crate) struct ServerOrder<'a> {
    place: &'a Place,
    data: String,
    listen: String,
    auth: &'static str,
    settings: Vec<(&'static str, String)>,
}

impl ServerOrder<'_> {
    pub(crate) fn set(mut self, name: &'static str, value: &str) -> Self {
        self.settings.push((name, value.to_owned()));
        self
    }

    pub(crate) fn auth_required(mut self) -> Self {
        self.auth = "required";
        self
    }

    /// With beats a tenth of it.
    pub(crate) fn lease(self, ms: u64) -> Self {
        self.set("STEADFAST_WORKERS__LEASE", &format!("{ms}ms"))
            .set("STEADFAST_WORKERS__BEAT", &format!("{}ms", ms / 10))
    }

    /// Another folder than `data`.
    pub(crate) fn data(mut self, folder: &str) -> Self {
        folder.clone_into(&mut self.data);
        self
    }

    /// Where one can come back to.
    pub(crate) fn at_a_port_of_its_own(self) -> Self {
        self.at(&address_of_its_own())
    }

    /// Where one was before.
    pub(crate) fn at(mut self, address: &str) -> Self {
        address.clone_into(&mut self.listen);
        self
    }

    /// As a process that may not become a server.
    pub(crate) fn try_start(&self, program: &str) -> Process {
        let (data, listen) = (self.place.text(&self.data), &self.listen);
        let mut command = self
            .place
            .command(&[program, "--data", &data, "--listen", listen, "--auth", self.auth]);
        command.envs(self.place.database(&self.data).map(|url| (STORE_URL, url)));
        command.envs(self.place.objects().map(|url| (BLOBS_URL, url)));
        command.envs(self.settings.iter().map(|(name, value)| (*name, value)));
        Process::start(command)
    }

    #[track_caller]
    pub(crate) fn start(self) -> Server {
        self.start_as("server")
    }

    /// With a worker of its own.
    #[track_caller]
    pub(crate) fn start_up(self) -> Server {
        self.start_as("up")
    }

    #[track_caller]
    fn start_as(self, program: &str) -> Server {
        let process = self.try_start(program);
        let address = process.address();
        Server { process, address }
    }
}

/// No connection of anybody's takes its port while nobody listens there.
pub(crate) fn address_of_its_own() -> String {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let range = fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range");
    let lowest = range.ok().and_then(|range| range.split_whitespace().next()?.parse().ok());
    let below: u16 = lowest.filter(|lowest| *lowest > 20_000).unwrap_or(32_768);
    let first = (std::process::id() % 1000) as u16 * 10;
    let port = wait_for("a free port", || {
        let port = below - 1 - (first + NEXT.fetch_add(1, Ordering::Relaxed)) % 10_000;
        TcpListener::bind(("127.0.0.1", port)).is_ok().then_some(port)
    });
    format!("127.0.0.1:{port}")
}

#[must_use]
pub(crate) struct WorkerOrder<'a> {
    place: &'a Place,
    server: String,
    name: String,
    folder: String,
    args: Vec<String>,
    env: Vec<(String, String)>,
}

impl WorkerOrder<'_> {
    pub(crate) fn slots(self, slots: u32) -> Self {
        self.arg("--slots", &slots.to_string())
    }

    pub(crate) fn datacenter(self, datacenter: &str) -> Self {
        self.arg("--datacenter", datacenter)
    }

    pub(crate) fn arg(mut self, name: &str, value: &str) -> Self {
        self.args.extend([name.to_owned(), value.to_owned()]);
        self
    }

    pub(crate) fn env(mut self, name: &str, value: &str) -> Self {
        self.env.push((name.to_owned(), value.to_owned()));
        self
    }

    pub(crate) fn folder(mut self, folder: &str) -> Self {
        folder.clone_into(&mut self.folder);
        self
    }

    pub(crate) fn start(self) -> Process {
        let folder = self.place.text(&self.folder);
        let mut args = vec!["worker", "--server", &self.server, "--name", &self.name];
        args.extend(["--folder", &folder]);
        args.extend(self.args.iter().map(String::as_str));
        let mut command = self.place.command(&args);
        command.envs(self.env.iter().map(|(name, value)| (name, value)));
        Process::start(command)
    }
}

/// A script that says that it runs, and waits for its gate: `ran` has a line for each attempt.
pub(crate) fn gated(place: &Place, gate: &str) -> String {
    let (ran, gate) = (place.text("ran"), place.text(gate));
    format!(
        "echo $STEADFAST_ATTEMPT_TOKEN $STEADFAST_ATTEMPT >> {ran}; \
         while [ ! -e {gate} ]; do sleep 0.1; done"
    )
}

/// Whether something exists under that process id.
pub(crate) fn is_there(pid: &str) -> bool {
    // A zombie is nobody's process any more, only its number.
    let stat = fs::read_to_string(Path::new("/proc").join(pid).join("stat"));
    stat.is_ok_and(|stat| !stat.rsplit(')').next().is_some_and(|rest| rest.trim().starts_with('Z')))
}

/// A terminal is closed; or SIGTERM where whoever started the tests said with `nohup` that what they start
/// outlives its terminal.
pub(crate) fn hangup() -> Signal {
    let status = fs::read_to_string("/proc/self/status").expect("/proc");
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:")).expect("a mask");
    let ignored = u64::from_str_radix(mask.trim(), 16).expect("hexadecimal") & 1 == 1;
    if ignored { Signal::TERM } else { Signal::HUP }
}
