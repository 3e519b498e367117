//! A `PostgreSQL` of a test's own: made in a temporary folder, on a free port of this machine, for as long as its process lives.
//!
//! All of it is done by a shell that waits for the end of its input, which the system closes however the process ends. So nothing is left
//! of it, also if a test panics or is killed. The shell is that of another user where tests run as root, whom `initdb` refuses.

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{Ipv4Addr, TcpListener};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, OnceLock};

use super::connection::{Connection, Database};

/// `$1`: the folder of the programs, `$2`: the port, `$3`: more settings. Says READY when it takes connections, and after each
/// command that it reads.
const SCRIPT: &str = r#"
trap '' INT TERM HUP
dir=$(mktemp -d "${TMPDIR:-/tmp}/steadfast-postgres.XXXXXX") || exit 1
stop() { "$bin/pg_ctl" -D "$dir/data" -m immediate -s stop >/dev/null 2>&1; }
start() {
    "$bin/pg_ctl" -D data -s -w -t 300 -l log -o "-p $port -c listen_addresses=127.0.0.1 \
        -c unix_socket_directories='' -c max_connections=200 $settings" start >start.log 2>&1 \
        || { cat start.log log; exit 1; }
}
bin=$1 port=$2 settings=$3
trap 'stop; rm -rf "$dir"' EXIT
cd "$dir" || exit 1
"$bin/initdb" -D data -U steadfast -A trust -E UTF8 --locale=C --no-sync >init.log 2>&1 \
    || { cat init.log; exit 1; }
if [ -n "$TLS_KEY" ]; then
    (umask 077 && printf %s "$TLS_KEY" >data/server.key && printf %s "$TLS_CERT" >data/server.crt)
    settings="$settings -c ssl=on"
fi
start
echo READY
while read -r command; do
    case $command in stop) stop ;; start) start ;; esac
    echo READY
done
"#;

/// Another program may take a free port before we do.
const PORTS_TRIED: u32 = 3;

#[derive(Debug)]
pub struct TestCluster {
    port: u16,
    made: AtomicU32,
    shell: Mutex<Shell>,
}

/// Ends when its input does.
#[derive(Debug)]
struct Shell {
    process: Child,
    /// None: it is to end.
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
}

impl Drop for Shell {
    fn drop(&mut self) {
        self.input = None;
        let _ = self.process.wait();
    }
}

impl Shell {
    /// What it says instead is why it ends.
    fn is_ready(&mut self) -> bool {
        let mut said = String::new();
        self.output.read_line(&mut said).expect("it is read");
        if said.trim() == "READY" {
            return true;
        }
        self.output.read_to_string(&mut said).expect("it is read");
        eprintln!("PostgreSQL does not start: {said}");
        false
    }
}

impl TestCluster {
    /// The one of this process. None, after a loud word: there is no `PostgreSQL` on this machine.
    pub fn shared() -> Option<&'static Self> {
        static SHARED: OnceLock<Option<TestCluster>> = OnceLock::new();
        SHARED.get_or_init(|| Self::start("")).as_ref()
    }

    /// With settings of its own, such as `-c fsync=off`.
    pub fn start(settings: &str) -> Option<Self> {
        Self::start_with(settings, None)
    }

    /// That speaks TLS, with a certificate and its key in PEM.
    pub fn start_with_tls(certificate: &str, key: &str) -> Option<Self> {
        Self::start_with("", Some((certificate, key)))
    }

    fn start_with(settings: &str, tls: Option<(&str, &str)>) -> Option<Self> {
        let Some(programs) = programs() else {
            eprintln!(
                "SKIPPED: THERE IS NO POSTGRESQL HERE (no `initdb` in PATH or \
                 /usr/lib/postgresql/*/bin), SO NOTHING WAS TESTED ON IT"
            );
            return None;
        };
        let started = (0..PORTS_TRIED).find_map(|_| Self::start_at(&programs, settings, tls));
        Some(started.expect("PostgreSQL starts"))
    }

    fn start_at(programs: &Path, settings: &str, tls: Option<(&str, &str)>) -> Option<Self> {
        let free = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
        let port = free.local_addr().expect("it has an address").port();
        drop(free);
        let mut shell = Command::new("/bin/sh");
        shell.args(["-c", SCRIPT, "sh"]).arg(programs).arg(port.to_string()).arg(settings);
        if let Some((certificate, key)) = tls {
            shell.env("TLS_CERT", certificate).env("TLS_KEY", key);
        }
        // Whoever reads what a test says is not to wait for what outlives it by a moment.
        shell.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).current_dir("/");
        if rustix::process::geteuid().is_root() {
            let (user, group) = unprivileged();
            shell.uid(user).gid(group);
        }
        let mut process = shell.spawn().expect("a shell");
        let output = BufReader::new(process.stdout.take().expect("it is piped"));
        let mut shell = Shell { input: process.stdin.take(), output, process };
        let is_ready = shell.is_ready();
        let (made, shell) = (AtomicU32::new(0), Mutex::new(shell));
        is_ready.then_some(Self { port, made, shell })
    }

    /// All of its processes end at once, without a word to anybody.
    pub fn crash(&self) {
        self.command("stop");
    }

    /// After a crash, on the same port.
    pub fn restart(&self) {
        self.command("start");
    }

    fn command(&self, command: &str) {
        let mut shell = self.shell.lock().expect("no test panicked in here");
        let input = shell.input.as_mut().expect("it is not to end");
        writeln!(input, "{command}").expect("it listens");
        assert!(shell.is_ready(), "{command}");
    }

    fn url(&self, database: &str) -> String {
        format!("postgres://steadfast@127.0.0.1:{}/{database}", self.port)
    }

    /// The URL of a new, empty database.
    pub fn database(&self) -> String {
        let name = format!("test_{}", self.made.fetch_add(1, Ordering::Relaxed));
        execute(&self.url("postgres"), &format!("CREATE DATABASE {name}"));
        self.url(&name)
    }
}

/// Statements by somebody else, on a connection of their own.
pub fn execute(url: &str, sql: &str) {
    let database = Database::new(url).expect("a URL");
    Connection::unprepared(&database).batch(sql).expect("it is done");
}

/// A transaction that is open while `meanwhile` runs.
pub fn hold(url: &str, sql: &str, meanwhile: impl FnOnce()) {
    let database = Database::new(url).expect("a URL");
    let mut connection = Connection::unprepared(&database);
    connection.batch(&format!("BEGIN; {sql}")).expect("it is done");
    meanwhile();
    connection.batch("ROLLBACK").expect("it is over");
}

/// The rows of the answer, each as the text of a record, such as `(1,true)`.
pub fn query(url: &str, sql: &str) -> Vec<String> {
    Client::new(url).rows(&format!("SELECT (row.*)::text FROM ({sql}) AS row"))
}

/// One who asks the database many things.
#[derive(Debug)]
pub struct Client(Connection);

impl Client {
    pub fn new(url: &str) -> Self {
        Self(Connection::unprepared(&Database::new(url).expect("a URL")))
    }

    /// The rows of the answer, each as the JSON of an object.
    pub fn json(&mut self, sql: &str) -> Vec<serde_json::Value> {
        let rows = self.rows(&format!("SELECT to_json(row.*)::text FROM ({sql}) AS row"));
        rows.iter().map(|row| serde_json::from_str(row).expect("JSON")).collect()
    }

    fn rows(&mut self, sql: &str) -> Vec<String> {
        let rows = self.0.read(sql, &[]).expect("it is answered");
        rows.iter().map(|row| row.get(0)).collect()
    }
}

/// The folder with `initdb` and `pg_ctl`.
fn programs() -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let installed = fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let mut installed: Vec<_> = installed.map(|entry| entry.path().join("bin")).collect();
    installed.sort();
    let mut folders = std::env::split_paths(&path).chain(installed.into_iter().rev());
    folders.find(|folder| folder.join("initdb").exists() && folder.join("pg_ctl").exists())
}

/// The numbers of a user who is not root, and has a name.
fn unprivileged() -> (u32, u32) {
    let users = fs::read_to_string("/etc/passwd").expect("there are users");
    let named = |name: &str| {
        let user = users.lines().find(|line| line.split(':').next() == Some(name))?;
        let mut numbers = user.split(':').skip(2).map(str::parse);
        Some((numbers.next()?.ok()?, numbers.next()?.ok()?))
    };
    named("postgres").or_else(|| named("nobody")).expect("a user `postgres` or `nobody`")
}
