//! `run` with a database: its job is seen, resumed and cancelled from other machines, which are other data folders here.

use std::fs;
use std::time::Duration;

use rustix::process::Signal;
use serde_json::Value;
use steadfast_store::testing::{TestCluster, query};

use super::harness::{
    Place, Process, STORE_URL, attempt_states, gated, is_there, item, pass, step, wait_for,
};

/// A database, and machines that have it.
struct Machines {
    place: Place,
    url: String,
}

impl Machines {
    fn new(cluster: &TestCluster) -> Self {
        Self { place: Place::with_data_folders(), url: cluster.database() }
    }

    fn on(&self, machine: &str, args: &[&str]) -> Process {
        let data = self.place.text(machine);
        let place = ["--store", &self.url, "--data", &data];
        Process::start(self.place.command(&[args, &place].concat()))
    }

    /// What a command that ends with that status prints.
    #[track_caller]
    fn says(&self, machine: &str, exit: i32, args: &[&str]) -> String {
        let data = self.place.text(machine);
        let place = ["--store", &self.url, "--data", &data];
        let output = self.place.command(&[args, &place].concat()).output().expect("it starts");
        assert_eq!(output.status.code(), Some(exit), "{args:?}: {output:?}");
        String::from_utf8(if exit == 2 { output.stderr } else { output.stdout }).expect("text")
    }

    #[track_caller]
    fn json(&self, machine: &str, args: &[&str]) -> Value {
        let text = self.says(machine, 0, &[args, &["-o", "json"]].concat());
        serde_json::from_str(&text).expect("JSON")
    }

    fn state(&self, machine: &str, job: &str) -> String {
        self.json(machine, &["status", job])["state"].as_str().expect("a state").to_owned()
    }

    fn file(&self, name: &str, steps: &str) -> String {
        let file = self.place.text(&format!("{name}.yaml"));
        let text = format!("name: {name}\nretry: {{ max_attempts: 1 }}\nsteps: {{ {steps} }}\n");
        fs::write(&file, text).expect("writes");
        file
    }

    /// A job that waits for its gate, under way on a machine.
    fn run(&self, machine: &str, name: &str, more: &[&str]) -> (Process, String) {
        let before = self.place.lines("ran").len();
        let script = format!("echo on {name}; {}", gated(&self.place, "gate"));
        let script = serde_json::to_string(&script).expect("text");
        let steps = format!("a: {{ run: {script} }}, b: {{ needs: [a], run: echo done }}");
        let file = self.file(name, &steps);
        let run = self.on(machine, &[&["run", &file], more].concat());
        self.place.has_lines("ran", before + 1);
        let job = self.json(machine, &["status", name])["id"].as_str().expect("an id").to_owned();
        (run, job)
    }

    fn events(&self, job: &str) -> usize {
        self.says("elsewhere", 0, &["history", job, "-o", "json"]).lines().count()
    }
}

/// Processes that carry the job's mark.
fn pids_of(job: &str) -> Vec<String> {
    let mark = format!("STEADFAST_JOB_ID={job}");
    let entries = fs::read_dir("/proc").expect("/proc").flatten();
    let pids = entries.filter_map(|entry| entry.file_name().into_string().ok());
    let carries = |pid: &String| {
        let environ = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        environ.split(|byte| *byte == 0).any(|it| it == mark.as_bytes())
    };
    pids.filter(carries).collect()
}

/// One test, because a cluster takes long to start and each test may be a process.
#[test]
fn jobs_of_run_are_kept_in_postgres() {
    let Some(cluster) = TestCluster::shared() else { return };
    what_ran_on_one_machine_is_seen_from_another(cluster);
    a_run_that_was_killed_goes_on_elsewhere(cluster);
    one_that_lives_is_not_taken_over(cluster);
    a_run_that_wakes_up_after_it_was_taken_over_writes_nothing(cluster);
    of_two_who_resume_one_wins(cluster);
    an_interrupted_run_goes_on_elsewhere_at_once(cluster);
    a_job_is_cancelled_and_purged_from_elsewhere(cluster);
    two_machines_are_up_with_one_database(cluster);
}

fn what_ran_on_one_machine_is_seen_from_another(cluster: &TestCluster) {
    let machines = Machines::new(cluster);
    let says = |args: &[&str]| machines.says("b", 0, args);
    assert!(says(&["list"]).contains("no jobs yet"));
    let file = machines.file(
        "flaky",
        "a: { run: 'echo first; test $STEADFAST_ATTEMPT = 2', \
        retry: { max_attempts: 3, initial_delay: 10ms } }, b: { needs: [a], run: 'echo second' }",
    );
    let ran = machines.says("a", 0, &["run", &file]);
    let job = ran.lines().next().expect("an id").to_owned();
    assert!(ran.contains("✓ b  succeeded"), "{ran}");
    assert!(ran.contains(&format!("--store {}", machines.url)), "how to look at it: {ran}");
    assert!(says(&["list"]).contains("flaky"));
    let status = machines.json("b", &["status", "last"]);
    assert_eq!(attempt_states(item(&status)), ["failed", "succeeded"], "{status:#}");
    let logs = says(&["logs", &job]);
    let order = ["a_0_attempt_1", "a_0_attempt_2", "b_0_attempt_1"].map(|name| logs.find(name));
    assert!(order.is_sorted() && order[0].is_some(), "{logs}");
    assert_eq!(says(&["logs", &job, "b"]), "second\n");
    assert!(says(&["logs", &job, "b", "--timestamps"]).contains("Z second"));
    assert!(says(&["explain", &job]).contains("a attempt 1"));
    assert!(says(&["history", &job]).contains("succeeded"));
    assert!(says(&["replay", &job]).contains("give the live state: succeeded"));
    assert!(says(&["readiness", &job]).is_ascii());
    assert!(!machines.place.path("a").join("steadfast.db").exists(), "there is no other database");
    assert!(!machines.place.path("a").join("logs").join(&job).exists(), "they are in the database");
    assert!(says(&["retry", &job, "--from", "b"]).contains("✓ b  succeeded"));
    assert_eq!(says(&["purge", "--older", "0s"]), "2 jobs are gone\n");
    for table in ["jobs", "owners", "logs", "log_pieces"] {
        let left = query(&machines.url, &format!("SELECT count(*) FROM steadfast.{table}"));
        assert_eq!(left, ["(0)"], "{table}");
    }
    let wrong = machines.place.command(&["list", "--store", "a-folder"]).output().expect("starts");
    assert_eq!(wrong.status.code(), Some(2), "{wrong:?}");
}

fn a_run_that_was_killed_goes_on_elsewhere(cluster: &TestCluster) {
    let machines = Machines::new(cluster);
    let (run, job) = machines.run("a", "killed", &[]);
    // What it printed is there while it runs.
    wait_for("its log", || {
        machines.says("b", 0, &["logs", &job]).contains("on killed").then_some(())
    });
    run.kill();
    wait_for("the end of its term", || {
        (machines.state("b", "killed") == "interrupted").then_some(())
    });
    let rests = machines.says("b", 0, &["status", "killed"]);
    assert!(rests.contains(&format!("resume {job} --store {}", machines.url)), "{rests}");
    machines.place.open("gate");
    assert!(machines.says("b", 0, &["resume", &job]).contains("✓ b  succeeded"));
    let status = machines.json("a", &["status", &job]);
    // There is no folder of it here, and it had begun all the same.
    assert_eq!(attempt_states(item(&status)), ["worker_lost", "succeeded"], "{status:#}");
    assert_eq!(step(&status, 0)["items"][0]["preemptions"], 1, "{status:#}");

    // On the same machine its lock says that it is gone.
    fs::remove_file(machines.place.path("gate")).expect("removes");
    let (run, job) = machines.run("a", "again", &[]);
    run.kill();
    machines.place.open("gate");
    assert!(machines.says("a", 0, &["resume", &job]).contains("✓ b  succeeded"));
}

fn one_that_lives_is_not_taken_over(cluster: &TestCluster) {
    let machines = Machines::new(cluster);
    let (mut run, job) = machines.run("a", "alive", &[]);
    for machine in ["a", "b"] {
        let refused = machines.says(machine, 2, &["resume", &job]);
        let who = format!("is being run by another process right now: process {} on ", run.pid());
        assert!(refused.contains(&who), "{refused}");
    }
    assert_eq!(machines.state("b", &job), "running");
    machines.place.open("gate");
    assert!(run.ends().success(), "{}", run.said());
    assert_eq!(machines.place.lines("ran").len(), 1);
}

fn a_run_that_wakes_up_after_it_was_taken_over_writes_nothing(cluster: &TestCluster) {
    let machines = Machines::new(cluster);
    let (mut stopped, job) = machines.run("a", "stopped", &[]);
    stopped.signal(Signal::STOP);
    // It ends what the stopped one has running, which is on this machine.
    let mut second = machines.on("b", &["resume", &job]);
    machines.place.has_lines("ran", 2);
    let events = machines.events(&job);
    stopped.signal(Signal::CONT);
    assert_eq!(stopped.ends().code(), Some(1), "{}", stopped.said());
    let who = format!("job {job} was taken over by process {} on ", second.pid());
    assert!(stopped.said().contains(&who), "{}", stopped.said());
    // A report and a start of the second one would be events.
    assert_eq!(machines.events(&job), events, "the first one has written something");
    machines.place.open("gate");
    assert!(second.ends().success(), "{}", second.said());
    let status = machines.json("a", &["status", &job]);
    assert_eq!(attempt_states(item(&status)), ["worker_lost", "succeeded"], "{status:#}");
    assert!(machines.says("a", 0, &["replay", &job]).contains("give the live state"));
}

fn of_two_who_resume_one_wins(cluster: &TestCluster) {
    let machines = Machines::new(cluster);
    let (run, job) = machines.run("a", "wanted", &[]);
    run.kill();
    let mut both = ["b", "c"].map(|machine| machines.on(machine, &["resume", &job]));
    machines.place.has_lines("ran", 2);
    let loser = wait_for("the one that was slower", || {
        both.iter_mut().position(|one| one.said().contains("being run by another process"))
    });
    assert_eq!(both[loser].ends().code(), Some(2));
    machines.place.open("gate");
    assert!(both[1 - loser].ends().success(), "{}", both[1 - loser].said());
    assert_eq!(machines.place.lines("ran").len(), 2, "it ran once more, and not twice");
}

fn an_interrupted_run_goes_on_elsewhere_at_once(cluster: &TestCluster) {
    let machines = Machines::new(cluster);
    let (mut run, job) = machines.run("a", "ctrl-c", &[]);
    run.signal(Signal::INT);
    assert_eq!(run.ends().code(), Some(130), "{}", run.said());
    assert!(run.said().contains(&format!("go on with steadfast resume {job} --store ")));
    assert_eq!(machines.state("b", &job), "interrupted");
    machines.place.open("gate");
    assert!(machines.says("b", 0, &["resume", &job]).contains("✓ b  succeeded"));
    assert!(machines.says("a", 2, &["resume", &job]).contains("has ended: succeeded"));
}

fn a_job_is_cancelled_and_purged_from_elsewhere(cluster: &TestCluster) {
    let machines = Machines::new(cluster);
    let (mut run, job) = machines.run("a", "running", &[]);
    assert!(machines.says("b", 0, &["cancel", &job]).ends_with(" cancelled\n"));
    assert_eq!(run.ends().code(), Some(4), "{}", run.said());

    let (run, job) = machines.run("a", "dead", &[]);
    let server = machines.place.server().set(STORE_URL, &machines.url).start();
    let refused = machines.place.command(&["cancel", &job, "--server", &server.url()]);
    let refused = { refused }.output().expect("it starts");
    let told = String::from_utf8_lossy(&refused.stderr);
    assert!(told.contains("begun by `steadfast run`") && told.contains("--store"), "{told}");
    run.kill();
    assert!(machines.says("b", 0, &["cancel", &job]).ends_with(" cancelled\n"));
    assert_eq!(server.get(&format!("/v1/jobs/{job}")).json()["state"], "cancelled");

    let (run, job) = machines.run("a", "unwanted", &[]);
    run.kill();
    wait_for("the end of its term", || (machines.state("b", &job) == "interrupted").then_some(()));
    let purge = ["purge", "--older", "0s", "--state", "interrupted"];
    assert_eq!(machines.says("b", 0, &purge), "1 job is gone\n");
    assert!(machines.says("b", 2, &["status", &job]).contains("there is no job"));
}

fn two_machines_are_up_with_one_database(cluster: &TestCluster) {
    let machines = Machines::new(cluster);
    let up = |data: &str| machines.place.server().set(STORE_URL, &machines.url).data(data);
    // Each has its own worker, and its own tokens: the second takes none of the first.
    let servers = [up("a"), up("b")].map(super::harness::ServerOrder::start_up);
    for server in &servers {
        let job = r#"{"name": "j", "steps": {"a": {"run": "echo hello"}}}"#;
        let id = server.submit(job);
        assert_eq!(server.end(&id)["state"], "succeeded");
        let workers = server.get("/v1/workers").json();
        let name = workers["workers"][0]["name"].as_str().expect("a worker").to_owned();
        assert!(name.starts_with("up-"), "{workers:#}");
    }
    let listed = machines.json("c", &["list"]);
    assert_eq!(listed["jobs"].as_array().map(Vec::len), Some(2), "{listed:#}");
    let mut third = up("a").try_start("up");
    assert_eq!(third.ends().code(), Some(2), "{}", third.said());
    third.says("another `up` runs with the data folder");
}

#[test]
fn a_run_outlives_an_outage_of_its_database() {
    // Of its own, so that nobody else's is away.
    let Some(cluster) = TestCluster::start("") else { return };
    let machines = Machines::new(&cluster);
    let (mut run, job) = machines.run("a", "patient", &[]);
    cluster.crash();
    run.says("nothing new starts until it is back");
    machines.place.open("gate");
    // Its process has ended; what comes next is not started by one that cannot write it down.
    pass(Duration::from_millis(500));
    cluster.restart();
    assert!(run.ends().success(), "{}", run.said());
    let status = machines.json("b", &["status", &job]);
    for step in ["a", "b"] {
        let item = &status["runs"][0]["steps"][step]["items"][0];
        assert_eq!(attempt_states(item), ["succeeded"], "{status:#}");
    }
    assert_eq!(machines.place.lines("ran").len(), 1);
    assert_eq!(machines.says("b", 0, &["logs", &job, "b"]), "done\n");

    fs::remove_file(machines.place.path("gate")).expect("removes");
    let (mut run, job) = machines.run("a", "impatient", &["--outage-tolerance", "1s"]);
    let pids = pids_of(&job);
    assert!(!pids.is_empty());
    cluster.crash();
    run.says("nothing new starts until it is back");
    machines.place.open("gate");
    assert_eq!(run.ends().code(), Some(5), "{}", run.said());
    let hint = format!("when it is back, go on with steadfast resume {job}");
    assert!(run.said().contains(&hint), "{}", run.said());
    assert!(!pids.iter().any(|pid| is_there(pid)), "nothing of it outlives it");
    let away =
        machines.place.command(&["list", "--store", &machines.url]).output().expect("starts");
    assert_eq!(away.status.code(), Some(5), "{away:?}");
    cluster.restart();
    assert!(machines.says("a", 0, &["resume", &job]).contains("✓ b  succeeded"));

    // Who presses Ctrl-C meanwhile does not wait for the database.
    fs::remove_file(machines.place.path("gate")).expect("removes");
    let (mut run, job) = machines.run("a", "hurried", &["--outage-tolerance", "1h"]);
    cluster.crash();
    run.says("nothing new starts until it is back");
    run.signal(Signal::INT);
    assert_eq!(run.ends().code(), Some(5), "{}", run.said());
    cluster.restart();
    machines.place.open("gate");
    assert!(machines.says("a", 0, &["resume", &job]).contains("✓ b  succeeded"));
}
