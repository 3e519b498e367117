//! Jobs of `run` while a server is up, as it is on most machines: at the default address, on the user's own
//! data folder; or on the database that the environment names.

use std::process::{Command, Output};

use rusqlite::Connection;
use rustix::process::Signal;
use serde_json::Value;

use super::harness::{Place, Process, STORE_URL, Server, address_of_its_own, gated, wait_for};

/// A user's home, where the default server listens at a port of its own.
struct Home {
    place: Place,
    listen: String,
}

const FOLDER: &str = "home/steadfast";

impl Home {
    fn new() -> Self {
        Self { place: Place::new(), listen: address_of_its_own() }
    }

    /// For what is about the folder, or the file in it.
    fn with_data_folder() -> Self {
        Self { place: Place::with_data_folders(), ..Self::new() }
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = self.place.command(args);
        command.env("XDG_DATA_HOME", self.place.path("home"));
        command.env("XDG_CONFIG_HOME", self.place.path("config"));
        command.env("STEADFAST_SERVER__LISTEN", &self.listen);
        command
    }

    fn call(&self, args: &[&str]) -> Output {
        self.command(args).output().expect("the program starts")
    }

    /// What a command that ends with that status prints.
    #[track_caller]
    fn says(&self, exit: i32, args: &[&str]) -> String {
        let output = self.call(args);
        assert_eq!(output.status.code(), Some(exit), "{args:?}: {output:?}");
        String::from_utf8(output.stdout).expect("text")
    }

    #[track_caller]
    fn json(&self, args: &[&str]) -> Value {
        serde_json::from_str(&self.says(0, &[args, &["-o", "json"]].concat())).expect("JSON")
    }

    fn states(&self, args: &[&str]) -> Vec<(String, String)> {
        let list = self.json(args);
        let jobs = list["jobs"].as_array().expect("jobs").iter();
        let text = |value: &Value| value.as_str().expect("text").to_owned();
        jobs.map(|job| (text(&job["name"]), text(&job["state"]))).collect()
    }

    fn server(&self, folder: &str) -> Server {
        let server = self.place.server().data(folder).at(&self.listen);
        match self.place.database("data") {
            None => server.start_up(),
            Some(url) => server.set(STORE_URL, &url).start_up(),
        }
    }

    /// A job that waits for its gate, under way.
    fn run(&self, name: &str) -> Process {
        self.run_with(name, "b: { needs: [a], run: 'true' }", &[])
    }

    fn run_with(&self, name: &str, steps: &str, args: &[&str]) -> Process {
        let before = self.place.lines("ran").len();
        let script = serde_json::to_string(&gated(&self.place, "gate")).expect("text");
        let file = self.place.text(&format!("{name}.yaml"));
        let job = format!("name: {name}\nsteps: {{ a: {{ run: {script} }}, {steps} }}\n");
        std::fs::write(&file, job).expect("writes");
        let run = Process::start(self.command(&[&["run", &file], args].concat()));
        self.place.has_lines("ran", before + 1);
        run
    }

    /// One whose process is gone.
    fn interrupted(&self, name: &str) {
        self.is_interrupted(self.run(name), name);
    }

    fn is_interrupted(&self, run: Process, name: &str) {
        run.kill();
        // A step that is about to become a process has the lock for a moment longer.
        wait_for("the lock", || {
            let states = self.states(&["list", "--name", name]);
            (states[0].1 == "interrupted").then_some(())
        });
    }
}

fn of(name: &str, state: &str) -> (String, String) {
    (name.to_owned(), state.to_owned())
}

#[test]
fn an_interrupted_job_is_that_everywhere_with_and_without_a_server() {
    let home = Home::new();
    home.interrupted("nightly");
    for server in [None, Some(home.server(FOLDER))] {
        let goes_on = home.run("hourly");
        let all = [of("hourly", "running"), of("nightly", "interrupted")];
        assert_eq!(home.states(&["list"]), all);
        assert_eq!(
            home.states(&["list", "--state", "interrupted"]),
            [of("nightly", "interrupted")]
        );
        assert_eq!(home.states(&["list", "--state", "running"]), [of("hourly", "running")]);
        let paged = home.json(&["list", "--state", "interrupted", "--limit", "1"]);
        assert_eq!(paged["jobs"].as_array().map(Vec::len), Some(1), "{paged}");
        assert_eq!(home.json(&["status", "nightly"])["state"], "interrupted");
        assert_eq!(home.json(&["status", "hourly"])["state"], "running");
        let status = home.says(0, &["status", "nightly"]);
        let id = home.json(&["status", "nightly"])["id"].as_str().expect("an id").to_owned();
        assert!(
            status.ends_with(&format!("interrupted; go on with steadfast resume {id}\n")),
            "{status}"
        );
        let line = home.says(0, &["list", "--state", "interrupted"]);
        assert!(line.lines().nth(1).is_some_and(|line| line.contains("interrupted")), "{line}");
        if let Some(server) = &server {
            let rest = server.get(&format!("/v1/jobs/{id}")).json();
            assert_eq!(rest["state"], "interrupted");
            let rest = server.get("/v1/jobs?state=interrupted").json();
            assert_eq!(rest["jobs"][0]["id"], id.as_str());
            let rest = server.get("/v1/jobs?state=running").json();
            assert_eq!(rest["jobs"].as_array().map(Vec::len), Some(1), "{rest}");
            // Whoever waits for it would wait for ever.
            assert!(home.says(130, &["wait", "nightly"]).contains("interrupted; go on with"));
            assert!(home.says(0, &["watch", "nightly"]).contains("interrupted; go on with"));
        }
        goes_on.signal(Signal::KILL);
        drop(goes_on);
        home.says(0, &["cancel", "hourly"]);
        home.says(0, &["purge", "--older", "0s", "--data", &home.place.text(FOLDER)]);
    }
}

#[test]
fn nothing_of_an_interrupted_job_is_ready() {
    let home = Home::new();
    let run = home.run_with("nightly", "b: { run: 'true' }", &["--slots", "1"]);
    let row = |page: Value, row: usize| {
        let row = &page["readiness"][row];
        (row["ready"].as_bool(), row["reason"].as_str().map(str::to_owned))
    };
    let ready = || row(home.json(&["readiness", "nightly"]), 1);
    assert_eq!(ready(), (Some(true), None));
    home.is_interrupted(run, "nightly");
    let interrupted = (Some(false), Some("interrupted".to_owned()));
    assert_eq!(ready(), interrupted);
    let server = home.server(FOLDER);
    let id = home.json(&["status", "nightly"])["id"].as_str().expect("an id").to_owned();
    assert_eq!(row(server.get(&format!("/v1/jobs/{id}/readiness")).json(), 1), interrupted);
}

#[test]
fn resume_and_cancel_do_what_run_says_while_a_server_is_up() {
    let home = Home::new();
    let server = home.server(FOLDER);
    let mut run = home.run("first");
    run.signal(Signal::INT);
    assert_eq!(run.ends().code(), Some(130));
    let hint = run.said();
    let hint = hint
        .lines()
        .find_map(|line| line.strip_prefix("interrupted; go on with "))
        .expect("a hint");
    home.place.open("gate");
    let words: Vec<&str> = hint.split(' ').skip(1).collect();
    let resumed = home.says(0, &words);
    assert!(resumed.contains("✓ b  succeeded"), "{resumed}");
    assert_eq!(home.json(&["status", "first"])["state"], "succeeded");

    std::fs::remove_file(home.place.path("gate")).expect("removes");
    home.interrupted("second");
    assert!(home.says(0, &["cancel", "second"]).ends_with(" cancelled\n"));
    assert_eq!(home.json(&["status", "second"])["state"], "cancelled");

    // One that runs here is asked by way of its folder.
    let mut run = home.run("third");
    assert!(home.says(0, &["cancel", "last"]).ends_with(" cancelled\n"));
    assert_eq!(run.ends().code(), Some(4));
    home.place.open("gate");
    assert!(home.says(0, &["retry", "last", "third"]).contains("✓ a  succeeded"));

    // The server's own jobs stay the server's.
    let id = server.submit(r#"{"name": "theirs", "steps": {"a": {"run": "true"}}}"#);
    server.end(&id);
    assert_eq!(home.json(&["status", "last"])["id"], id.as_str());
}

#[test]
fn a_server_says_whose_job_it_is_and_does_not_pretend_to_resume_it() {
    let home = Home::new();
    home.interrupted("nightly");
    let server = home.server(FOLDER);
    for wish in ["resume", "cancel", "pause"] {
        let output = home.call(&[wish, "nightly", "--server", &server.url()]);
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{wish}: {text}");
        assert!(text.contains("begun by `steadfast run`") && text.contains("--data"), "{text}");
    }
    let status = home.says(0, &["status", "nightly", "--server", &server.url()]);
    assert!(status.contains("--data DIR"), "{status}");
}

/// The hint of `run` is for whoever pastes it, whatever else the environment names.
#[test]
fn the_hint_names_the_folder_where_a_server_is_named() {
    let home = Home::with_data_folder();
    let server = home.server("elsewhere");
    let mut run = home.run("nightly");
    run.signal(Signal::INT);
    run.ends();
    // At the default address there is a server that knows nothing of it.
    assert_eq!(home.json(&["status", "nightly"])["state"], "interrupted");
    let list = home.call(&["list"]);
    let hint = String::from_utf8_lossy(&list.stderr).into_owned();
    assert!(hint.contains(&format!("steadfast list --data {}", home.place.text(FOLDER))), "{hint}");

    let with_server = |args: &[&str]| {
        let mut command = home.command(args);
        command.env("STEADFAST_SERVER", server.url());
        command
    };
    let file = home.place.text("nightly.yaml");
    let before = home.place.lines("ran").len();
    let mut run = Process::start(with_server(&["run", &file]));
    home.place.has_lines("ran", before + 1);
    run.signal(Signal::INT);
    run.ends();
    let said = run.said();
    let hint = said
        .lines()
        .find_map(|line| line.strip_prefix("interrupted; go on with "))
        .expect("a hint");
    assert!(hint.ends_with(&format!(" --data {}", home.place.text(FOLDER))), "{hint}");
    home.place.open("gate");
    let words: Vec<&str> = hint.split(' ').skip(1).collect();
    let output = with_server(&words).output().expect("the program starts");
    assert_eq!(output.status.code(), Some(0), "{output:?}");
}

#[test]
fn a_damaged_job_keeps_no_interrupted_one_from_being_purged() {
    let home = Home::with_data_folder();
    home.interrupted("broken");
    home.interrupted("nightly");
    let file = Connection::open(home.place.path(FOLDER).join("steadfast.db")).expect("ours");
    let id = home.json(&["status", "broken"])["id"].as_str().expect("an id").to_owned();
    let harm = "UPDATE events SET lines = \'x\' WHERE job = (SELECT n FROM jobs WHERE id = ?1)";
    assert!(file.execute(harm, [&id]).expect("it is text") > 0);
    drop(file);
    let purged = home.says(0, &["purge", "--older", "0s", "--state", "interrupted"]);
    assert_eq!(purged, "1 job is gone\n");
    assert_eq!(home.states(&["list"]), [of("broken", "stuck")]);
    let refused = home.call(&["purge", "--older", "0s", "--state", "stuck"]);
    let told = String::from_utf8_lossy(&refused.stderr);
    assert!(told.contains("go one by one"), "{told}");
    assert_eq!(home.says(0, &["purge", "broken"]), "1 job is gone\n");
}

#[test]
fn interrupted_jobs_are_purged_when_that_is_said() {
    let home = Home::new();
    home.interrupted("nightly");
    let goes_on = home.run("hourly");
    let purge = |more: &[&str]| home.says(0, &[&["purge", "--older", "0s"], more].concat());
    assert_eq!(purge(&[]), "there was nothing to purge\n");
    assert_eq!(purge(&["--state", "failed"]), "there was nothing to purge\n");
    let hour = home.says(0, &["purge", "--older", "1h", "--state", "interrupted"]);
    assert_eq!(hour, "there was nothing to purge\n");
    let id = home.json(&["status", "nightly"])["id"].as_str().expect("an id").to_owned();
    assert_eq!(purge(&["--state", "interrupted"]), "1 job is gone\n");
    assert_eq!(home.states(&["list"]), [of("hourly", "running")]);
    for left in ["work", "logs", "locks"] {
        let path = home.place.path(FOLDER).join(left);
        let names: Vec<_> = std::fs::read_dir(path).into_iter().flatten().flatten().collect();
        let name = |entry: &std::fs::DirEntry| entry.file_name().to_string_lossy().starts_with(&id);
        assert!(!names.iter().any(name), "{names:?}");
    }
    home.says(2, &["purge", "--older", "0s", "--state", "running"]);
    drop(goes_on);
}
