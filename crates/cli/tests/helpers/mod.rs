//! A folder of its own for each test, and the program run in it.

#![allow(dead_code, reason = "each test file uses a part of it")]

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde_json::Value;

/// Removed and made anew by each test, so that what a failed one left can be looked at.
#[derive(Debug)]
pub(crate) struct Place {
    pub(crate) folder: PathBuf,
}

impl Place {
    pub(crate) fn new(name: &str) -> Self {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(&folder).expect("a folder");
        Self { folder }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    pub(crate) fn write(&self, name: &str, content: impl AsRef<[u8]>) -> PathBuf {
        let path = self.path(name);
        fs::write(&path, content).expect("writes");
        path
    }

    #[track_caller]
    pub(crate) fn read(&self, name: &str) -> String {
        fs::read_to_string(self.path(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
    }

    /// The program with a data folder that nobody else has. `$PLACE` is the test's folder.
    pub(crate) fn command(&self, args: impl IntoIterator<Item = impl AsRef<OsStr>>) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_steadfast"));
        command
            .args(args)
            .env("STEADFAST_DATA", self.path("data"))
            .env("XDG_STATE_HOME", self.path("state"))
            .env("PLACE", &self.folder)
            .env("NO_COLOR", "1")
            .stdin(Stdio::null());
        command
    }

    pub(crate) fn steadfast(&self, args: &[&str]) -> Output {
        self.command(args).output().expect("the program starts")
    }

    /// Runs a job to its end and tells how it ended.
    #[track_caller]
    pub(crate) fn run(&self, job: &str) -> Ran {
        let file = self.write("job.yaml", job);
        self.run_file(&file, &[])
    }

    #[track_caller]
    pub(crate) fn run_file(&self, file: &Path, flags: &[&str]) -> Ran {
        let args = ["run".as_ref(), file.as_os_str(), "-o".as_ref(), "json".as_ref()];
        let args = args.into_iter().chain(flags.iter().map(OsStr::new));
        let output = self.command(args).output().expect("the program starts");
        let status = serde_json::from_slice(&output.stdout)
            .unwrap_or_else(|error| panic!("{error}: {output:?}"));
        Ran { exit: output.status.code(), status }
    }

    #[track_caller]
    pub(crate) fn status(&self) -> Value {
        let output = self.steadfast(&["status", "last", "-o", "json"]);
        serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {output:?}"))
    }

    /// The events of the last job.
    #[track_caller]
    pub(crate) fn history(&self) -> Vec<Value> {
        let output = self.steadfast(&["history", "last", "-o", "json"]);
        let text = String::from_utf8(output.stdout).expect("text");
        text.lines().map(|line| serde_json::from_str(line).expect("an event")).collect()
    }

    /// Folding the log again gives the stored state.
    #[track_caller]
    pub(crate) fn replays(&self) {
        let output = self.steadfast(&["replay", "last"]);
        assert_eq!(output.status.code(), Some(0), "{output:?}");
    }
}

/// How a job ended.
#[derive(Debug)]
pub(crate) struct Ran {
    pub(crate) exit: Option<i32>,
    pub(crate) status: Value,
}

impl Ran {
    pub(crate) fn id(&self) -> &str {
        self.status["id"].as_str().expect("an id")
    }

    pub(crate) fn state(&self) -> &str {
        self.status["state"].as_str().expect("a state")
    }

    #[track_caller]
    pub(crate) fn step(&self, name: &str) -> &Value {
        let step = &self.status["runs"][0]["steps"][name];
        assert!(step.is_object(), "no step {name} in {}", self.status);
        step
    }

    /// The one item of a step.
    #[track_caller]
    pub(crate) fn item(&self, step: &str) -> &Value {
        &self.step(step)["items"][0]
    }

    #[track_caller]
    pub(crate) fn last_attempt(&self, step: &str) -> &Value {
        let attempts = self.item(step)["attempts"].as_array().expect("attempts");
        attempts.last().expect("an attempt")
    }

    /// How many attempts each item of a step had.
    #[track_caller]
    pub(crate) fn attempts(&self, step: &str) -> Vec<usize> {
        let items = self.step(step)["items"].as_array().expect("items");
        items.iter().map(|item| item["attempts"].as_array().expect("attempts").len()).collect()
    }
}

/// The living processes that belong to a job, wherever they have gone.
pub(crate) fn left_of(job: &str) -> Vec<String> {
    let mark = format!("STEADFAST_JOB_ID={job}");
    let processes = fs::read_dir("/proc").expect("Linux").flatten().filter(|entry| {
        // One that has ended and waits to be collected has no environment.
        fs::read(entry.path().join("environ"))
            .is_ok_and(|text| text.split(|byte| *byte == 0).any(|one| one == mark.as_bytes()))
    });
    processes.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
}
