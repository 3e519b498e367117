//! The data folder under odd circumstances: a full disk, several programs, readers that leave.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::PathBuf;
use std::process::{Command, Stdio};

use serde_json::{Value, json};

use crate::helpers::Place;
use crate::stderr;

/// A small disk; taken away when dropped.
struct Disk(PathBuf);

impl Disk {
    fn mount(at: PathBuf, size: &str) -> Option<Self> {
        fs::create_dir_all(&at).expect("a folder");
        let options = format!("size={size},mode=700");
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", &options, "tmpfs"]).arg(&at);
        match mount.output() {
            Ok(output) if output.status.success() => Some(Self(at)),
            Ok(output) => {
                eprintln!("skipped: cannot mount a small disk: {}", stderr(&output));
                None
            }
            Err(error) => {
                eprintln!("skipped: cannot mount a small disk: {error}");
                None
            }
        }
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

#[test]
fn a_full_disk_is_said_corrupts_nothing_and_can_be_gone_on_from() {
    let place = Place::new("poison-disk");
    let at = place.path("data");
    // One that an earlier run could not take away.
    let _ = Command::new("umount").arg("-l").arg(&at).output();
    let Some(_disk) = Disk::mount(at, "8m") else { return };
    let file = place.write(
        "job.yaml",
        r#"
name: full
steps:
  before: { run: 'true' }
  fill: { needs: [before], run: '[ -e "$PLACE/freed" ] || cat /dev/zero > "$PLACE/data/fill"; true' }
  after: { needs: [fill], run: echo after }
"#,
    );
    let path = file.to_str().expect("plain");
    let output = place.steadfast(&["run", path]);
    assert!(!matches!(output.status.code(), None | Some(0 | 101)), "{output:?}");
    assert!(stderr(&output).contains("the disk is full"), "{}", stderr(&output));
    let status = place.status();
    assert_eq!(status["state"], "interrupted", "looking works on a full disk");
    place.replays();

    place.write("freed", "");
    fs::remove_file(place.path("data/fill")).expect("freed");
    let output = place.steadfast(&["resume", "last", "-o", "json"]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let status = place.status();
    assert_eq!(status["state"], "succeeded");
    let fill = &status["runs"][0]["steps"]["fill"]["items"][0];
    assert_eq!((&fill["failures"], &fill["preemptions"]), (&json!(0), &json!(1)), "{fill}");
    place.replays();
    assert_eq!(place.steadfast(&["logs", "last", "after"]).stdout, b"after\n");
}

#[test]
fn logs_of_a_step_that_does_not_exist_are_not_empty_but_refused() {
    let place = Place::new("poison-logs");
    place.run("name: j\nsteps: { s: { run: 'true' } }\n");
    assert_eq!(place.steadfast(&["logs", "last", "s"]).status.code(), Some(0));
    let output = place.steadfast(&["logs", "last", "../../locks"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("has no step `../../locks`"), "{}", stderr(&output));
}

#[test]
fn a_job_from_standard_input_can_be_resumed() {
    let place = Place::new("poison-stdin");
    let job = "name: j\nsteps: { s: { run: '[ $STEADFAST_ATTEMPT -gt 1 ] || { kill -9 $PPID; sleep 1000; }' } }\n";
    let file = place.write("job.yaml", job);
    let output = place.command(["run", "-"]).stdin(fs::File::open(file).expect("opens")).output();
    assert_eq!(output.expect("starts").status.code(), None, "killed");
    let output = place.steadfast(&["resume", "last"]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
}

#[test]
fn two_runs_share_the_data_folder_but_no_job() {
    let place = Place::new("poison-two");
    place.write("other.yaml", "name: other\nsteps: { s: { run: 'true' } }\n");
    let file = place.write(
        "job.yaml",
        r#"
name: outer
retry: { max_attempts: 1 }
steps:
  other: { run: '"$STEADFAST" run other.yaml' }
  again: { needs: [other], run: '"$STEADFAST" resume "$STEADFAST_JOB_ID"; [ $? = 2 ]' }
"#,
    );
    let args = ["run".as_ref(), file.as_os_str()];
    let program = env!("CARGO_BIN_EXE_steadfast");
    let output = place.command(args).env("STEADFAST", program).output().expect("starts");
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let id = String::from_utf8_lossy(&output.stdout).lines().next().expect("an id").to_owned();
    let said = String::from_utf8(place.steadfast(&["logs", &id, "again"]).stdout).expect("text");
    assert!(said.contains(&format!("job {id} is being run by another process")), "{said}");
    let list = place.steadfast(&["list", "--state", "succeeded", "-o", "json"]);
    let list: Value = serde_json::from_slice(&list.stdout).expect("JSON");
    assert_eq!(list["jobs"].as_array().map(Vec::len), Some(2), "{list}");
}

#[test]
fn a_reader_of_a_job_that_has_seen_enough_is_no_error() {
    let place = Place::new("poison-reader");
    place.run("name: j\nsteps: { s: { run: 'seq 100000' } }\n");
    for command in ["status last", "status last -o json", "logs last", "history last", "list"] {
        // The reader reads nothing, and the program begins once it is gone.
        let script = format!("{{ cat; \"$0\" {command}; echo $? >&2; }} < \"$1\" | exec 3> \"$1\"");
        let fifo = place.path("fifo");
        if !fifo.exists() {
            assert!(Command::new("mkfifo").arg(&fifo).status().expect("mkfifo").success());
        }
        let output = Command::new("sh")
            .args(["-c", &script, env!("CARGO_BIN_EXE_steadfast")])
            .arg(&fifo)
            .env("STEADFAST_DATA", place.path("data"))
            .output()
            .expect("runs");
        assert_eq!(stderr(&output), "0\n", "{command}");
    }
}

#[test]
fn a_job_whose_logs_are_followed_is_not_read_from_its_beginning_again() {
    let place = Place::new("poison-follow");
    let job = "name: j\nsteps: { s: { run: 'echo one; until [ -e \"$PLACE/go\" ]; do sleep 0.02; \
               done; echo two' } }\n";
    let file = place.write("job.yaml", job);
    let mut run = place.command(["run".as_ref(), file.as_os_str()]);
    let mut run = run.stdout(Stdio::piped()).spawn().expect("starts");
    let mut said = BufReader::new(run.stdout.take().expect("piped")).lines().map(Result::unwrap);
    assert!(said.any(|line| line.contains("attempt 1 started")));
    let mut follows = place.command(["logs", "-f", "last"]);
    let mut follows = follows.stdout(Stdio::piped()).spawn().expect("starts");
    let mut lines = BufReader::new(follows.stdout.take().expect("piped")).lines();
    assert_eq!(lines.next().expect("a line").expect("text"), "one");
    // From now on a reader that begins anew finds no beginning.
    let database = rusqlite::Connection::open(place.path("data/steadfast.db")).expect("opens");
    database.busy_timeout(std::time::Duration::from_secs(10)).expect("waits");
    assert!(database.execute("DELETE FROM events", []).expect("deletes") > 0);
    place.write("go", "");
    assert_eq!(lines.map(Result::unwrap).collect::<Vec<_>>(), ["two"]);
    assert_eq!(follows.wait().expect("ends").code(), Some(0));
    said.for_each(drop);
    assert_eq!(run.wait().expect("ends").code(), Some(0));
}
