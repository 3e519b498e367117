//! The same with a real S3 server on this machine: moto, from `PyPI`, in an environment of its own in the target folder.

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use steadfast_store::{Blobs, Severity};

use super::{chunk, file, log, objects, progress, suite};

/// What makes it the same next year.
const MOTO: &str = "moto[server]==5.2.5";
/// The bucket's URL, for the process in which the cases run.
const URL: &str = "STEADFAST_TEST_S3";
const SECRET: &str = "hunter2hunter2";

/// Ends with its input, which the system closes however the test ends.
const SCRIPT: &str = r#"
"$1" -H 127.0.0.1 -p "$2" >/dev/null 2>&1 &
server=$!
trap 'kill "$server" 2>/dev/null; wait "$server" 2>/dev/null' EXIT
read -r _
"#;

struct Server {
    shell: Child,
    port: u16,
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.shell.stdin.take());
        let _ = self.shell.wait();
    }
}

impl Server {
    /// None, after a loud word: it cannot be installed here.
    fn start() -> Option<Self> {
        let program = installed().or_else(|| {
            eprintln!("SKIPPED: {MOTO} CANNOT BE INSTALLED HERE, SO NOTHING WAS TESTED ON S3");
            None
        })?;
        let free = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
        let port = free.local_addr().expect("it has an address").port();
        drop(free);
        let mut shell = Command::new("/bin/sh");
        shell.args(["-c", SCRIPT, "sh"]).arg(program).arg(port.to_string());
        let shell = shell.stdin(Stdio::piped()).spawn().expect("a shell");
        let server = Self { shell, port };
        let is_there = (0..600).any(|_| {
            #[allow(clippy::disallowed_methods, reason = "nobody says when it listens")]
            std::thread::sleep(Duration::from_millis(100));
            server.make("bucket")
        });
        assert!(is_there, "moto does not answer");
        Some(server)
    }

    /// A bucket. False: nobody listens yet.
    fn make(&self, bucket: &str) -> bool {
        let Ok(mut stream) = TcpStream::connect((Ipv4Addr::LOCALHOST, self.port)) else {
            return false;
        };
        let request = format!(
            "PUT /{bucket} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
        );
        let mut answer = String::new();
        stream.write_all(request.as_bytes()).is_ok()
            && stream.read_to_string(&mut answer).is_ok()
            && answer.starts_with("HTTP/1.1 200")
    }

    fn url(&self) -> String {
        format!("s3://bucket/some/where?endpoint=http://127.0.0.1:{}", self.port)
    }
}

fn installed() -> Option<PathBuf> {
    let place = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("moto");
    let program = place.join("bin/moto_server");
    let done = |command: &mut Command| command.status().is_ok_and(|status| status.success());
    let is_made = place.join("installed").exists()
        || (done(Command::new("python3").args(["-m", "venv", "--clear"]).arg(&place))
            && done(Command::new(place.join("bin/pip")).args(["install", "--quiet", MOTO]))
            && std::fs::write(place.join("installed"), MOTO).is_ok());
    is_made.then_some(program)
}

/// A process of its own, because that is what has an environment, and keys belong into it.
fn in_its_own_process(case: &str, url: &str) {
    let status = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", case, "--ignored", "--nocapture"])
        .env(URL, url)
        .env("AWS_ACCESS_KEY_ID", "AKIATEST")
        .env("AWS_SECRET_ACCESS_KEY", SECRET)
        .env("AWS_REGION", "eu-central-1")
        .status()
        .unwrap();
    assert!(status.success(), "{case}");
}

#[test]
fn in_a_bucket() {
    let Some(server) = Server::start() else { return };
    in_its_own_process("s3::everything_is_kept_in_a_bucket", &server.url());
    let url = server.url();
    drop(server);
    in_its_own_process("s3::a_store_that_is_away_is_told_of", &url);
}

fn url() -> String {
    std::env::var(URL).expect("it is set by the test that runs this one")
}

#[test]
#[ignore = "`in_a_bucket` runs it, with a server"]
fn everything_is_kept_in_a_bucket() {
    let case = std::cell::Cell::new(0);
    suite(|| {
        case.set(case.get() + 1);
        let url = url().replace("/where", &format!("/where-{}", case.get()));
        Box::new(objects(&url)) as Box<dyn Blobs>
    });
    what_one_server_begins_another_one_goes_on_with();
    what_a_server_has_missed_it_does_not_write_over();
    let found = objects(&url()).examine();
    assert_eq!(found.severity, Severity::Ok, "{found:?}");
    let found = objects(&url().replace("bucket", "nothing")).examine();
    assert_eq!(found.severity, Severity::Problem, "{found:?}");
}

fn what_one_server_begins_another_one_goes_on_with() {
    let (one, other) = (objects(&url()), objects(&url()));
    let log = log("moves");
    let long = vec![b'a'; 300_000];
    assert_eq!(
        one.write_log(&log, chunk(0, &long, false), true).unwrap(),
        progress(300_000, false)
    );
    // Not kept yet, or it is: nobody may rely on it.
    one.write_log(&log, chunk(300_000, b"bb", false), true).unwrap();
    let from = other.write_log(&log, chunk(0, b"", false), true).unwrap().length;
    assert!(from == 300_000 || from == 300_002, "{from}");
    assert!(other.is_partial(&log));
    let rest = &b"bbc"[(from - 300_000) as usize..];
    assert_eq!(
        other.write_log(&log, chunk(from, rest, true), true).unwrap(),
        progress(300_003, true)
    );
    other.mark_whole(&log).unwrap();
    let told = one.write_log(&log, chunk(0, b"", false), true).unwrap();
    assert_eq!(told, progress(300_003, true), "whoever asks is told what is kept");
    assert_eq!(one.open_log(&log).unwrap().read(299_999, 9).unwrap(), b"abbc");
    other.put_files("moved", &[file("a", vec![1], true)].into()).unwrap();
    assert_eq!(one.file_names("moved", "a").unwrap(), ["a"]);
    one.remove("job");
    one.remove("moved");
    assert_eq!(other.log_size(&log).unwrap(), None);
    assert!(objects(&url()).file_names("moved", "a").is_err());
}

fn what_a_server_has_missed_it_does_not_write_over() {
    let (stale, new) = (objects(&url()), objects(&url()));
    let log = log("fenced");
    stale.write_log(&log, chunk(0, b"one\n", false), true).unwrap();
    new.write_log(&log, chunk(0, b"", false), true).unwrap();
    new.write_log(&log, chunk(4, b"two\n", true), true).unwrap();
    new.mark_whole(&log).unwrap();
    // A piece that was long on its way, by a server that knows of nothing.
    let late = stale.write_log(&log, chunk(4, b"2", true), true);
    assert_eq!(late.unwrap_err().kind(), std::io::ErrorKind::AlreadyExists);
    assert_eq!(new.open_log(&log).unwrap().read(0, 99).unwrap(), b"one\ntwo\n");
    assert_eq!(stale.open_log(&log).unwrap().read(0, 99).unwrap(), b"one\ntwo\n");
}

#[test]
#[ignore = "`in_a_bucket` runs it, when the server is gone"]
fn a_store_that_is_away_is_told_of() {
    let blobs = objects(&url());
    let errors = [
        blobs.put_files("job", &[file("a", vec![1], false)].into()).unwrap_err(),
        blobs.write_log(&log("one"), chunk(0, b"x", true), true).unwrap_err(),
        blobs.log_size(&log("two")).unwrap_err(),
        blobs.file_names("job", "a").unwrap_err(),
    ];
    for error in errors {
        assert_eq!(error.kind(), std::io::ErrorKind::NotConnected, "{error}");
        let text = format!("{error} {error:?} {blobs:?}");
        assert!(text.contains("s3://bucket/some/where"), "{text}");
        assert!(!text.contains(SECRET) && !text.contains("AKIATEST"), "{text}");
    }
    let found = blobs.examine();
    assert_eq!(found.severity, Severity::Problem, "{found:?}");
}
