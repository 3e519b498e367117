//! Processes that mean harm, run for real: each ends, as a typed outcome, and leaves nothing behind.

#[path = "poison/folder.rs"]
mod folder;
mod helpers;

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use helpers::{Place, left_of};
use serde_json::{Value, json};

/// From SIGTERM to SIGKILL, as docs/run.md promises.
const KILL_GRACE_MS: u64 = 5000;
const LOG_CAP: u64 = 64 << 20;

fn took_ms(attempt: &Value) -> u64 {
    let at = |key: &str| attempt[key].as_u64().expect("a time");
    at("finished_at_ms") - at("started_at_ms")
}

fn stderr(output: &std::process::Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// The files of a folder, whatever lies between.
fn files_under(folder: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(folder) else { return vec![] };
    let paths = entries.map(|entry| entry.expect("readable").path());
    paths.flat_map(|path| if path.is_dir() { files_under(&path) } else { vec![path] }).collect()
}

#[test]
fn a_flood_of_output_keeps_head_and_tail_and_the_memory_flat() {
    // The parent of a step's shell is the program itself.
    let place = Place::new("poison-flood");
    let ran = place.run(
        r#"
name: flood
steps:
  before: { run: 'grep VmHWM "/proc/$PPID/status" > "$PLACE/before"' }
  flood:
    needs: [before]
    run: 'echo the head; head -c 2000000000 /dev/zero; echo; echo the tail'
  after: { needs: [flood], run: 'grep VmHWM "/proc/$PPID/status" > "$PLACE/after"' }
"#,
    );
    assert_eq!((ran.exit, ran.state()), (Some(0), "succeeded"), "{}", ran.status);
    let high_water = |name: &str| -> u64 {
        let line = place.read(name);
        line.split_whitespace().nth(1).and_then(|kb| kb.parse().ok()).expect("kilobytes")
    };
    let grown = high_water("after").saturating_sub(high_water("before"));
    assert!(grown < 32 * 1024, "2 GB of output took {grown} kB of memory");
    // One that took long has its times beside it.
    let mut files = files_under(&place.path("data/logs"));
    files.retain(|file| file.extension().is_some_and(|kind| kind == "log"));
    let [log] = &files[..] else { panic!("one log, not {files:?}") };
    let log = fs::read(log).expect("readable");
    assert!(log.len() as u64 <= LOG_CAP + 64, "{} bytes", log.len());
    assert!(log.starts_with(b"the head\n"));
    assert!(log.ends_with(b"\nthe tail\n"));
    let note = " bytes left out …\n".as_bytes();
    assert!(log.windows(note.len()).any(|part| part == note), "what is missing is not told");
}

#[test]
fn what_ignores_sigterm_is_killed_after_the_grace() {
    let place = Place::new("poison-ignores");
    let ran = place.run(
        r#"
name: ignores
steps:
  deaf:
    run: 'trap "" TERM; echo deaf; while :; do sleep 1; done'
    timeout: 200ms
    retry: { max_attempts: 1 }
"#,
    );
    assert_eq!(ran.exit, Some(1));
    let attempt = ran.last_attempt("deaf");
    assert_eq!(attempt["state"], "timed_out");
    assert!(took_ms(attempt) >= 200 + KILL_GRACE_MS, "it had its grace: {attempt}");
    assert_eq!(left_of(ran.id()), [""; 0]);
    assert_eq!(place.steadfast(&["logs", "last"]).stdout, b"deaf\n");
}

#[test]
fn what_the_end_of_the_job_cuts_off_has_its_grace() {
    let place = Place::new("poison-cut");
    let ran = place.run(
        r#"
name: cut
retry: { max_attempts: 1 }
steps:
  fails: { run: 'until [ -e "$PLACE/up" ]; do sleep 0.01; done; exit 1' }
  tidy:
    run: |
      trap 'sleep 0.3; echo tidied; exit' TERM
      echo > "$PLACE/up"
      while :; do sleep 0.01; done
"#,
    );
    assert_eq!((ran.exit, ran.state()), (Some(1), "failed"));
    assert_eq!(ran.last_attempt("tidy")["state"], "killed");
    let said = place.steadfast(&["logs", "last", "tidy"]).stdout;
    assert!(said.ends_with(b"tidied\n"), "{}", String::from_utf8_lossy(&said));
    assert_eq!(left_of(ran.id()), [""; 0]);
}

#[test]
fn grandchildren_that_hold_the_pipe_hold_up_nothing() {
    let place = Place::new("poison-pipe");
    let ran = place.run(
        r#"
name: pipe
steps:
  parent: { run: 'sleep 1000 & echo done' }
  escaped:
    run: |
      setsid sh -c 'echo gone > "$PLACE/escaped"; exec sleep 1000' &
      until [ -s "$PLACE/escaped" ]; do sleep 0.01; done
"#,
    );
    assert_eq!((ran.exit, ran.state()), (Some(0), "succeeded"), "{}", ran.status);
    assert!(took_ms(ran.last_attempt("parent")) < 500_000);
    assert_eq!(left_of(ran.id()), [""; 0]);
    assert_eq!(place.steadfast(&["logs", "last", "parent"]).stdout, b"done\n");
}

#[test]
fn escapees_and_a_swarm_are_gone_after_the_timeout() {
    // Each tells when it is complete; until then its timeout must not have passed.
    let place = Place::new("poison-escapees");
    let ran = place.run(
        r#"
name: escapees
retry: { max_attempts: 1 }
goals: [end]
steps:
  escapee:
    run: |
      setsid sh -c 'echo $$ > "$PLACE/escapee"; exec sleep 1000' > /dev/null 2>&1 &
      until [ -s "$PLACE/escapee" ]; do sleep 0.01; done
      sleep 1000
    timeout: 3s
    on_failure:
      # One that is dead and waits to be collected has no command line.
      run: '! grep -q sleep "/proc/$(cat "$PLACE/escapee")/cmdline"'
      then: continue
  swarm:
    run: |
      i=0
      while [ "$i" -lt 50 ]; do sleep 1000 & i=$((i + 1)); done
      echo complete > "$PLACE/swarm"
      wait
    timeout: 3s
    on_failure: continue
  end: { needs: [escapee, swarm], run: 'true' }
"#,
    );
    assert_eq!((ran.exit, ran.state()), (Some(0), "succeeded"), "{}", ran.status);
    for step in ["escapee", "swarm"] {
        assert_eq!(ran.last_attempt(step)["state"], "timed_out");
        assert!(!place.read(step).is_empty(), "it was there");
    }
    // The fallback looked: the escapee went with its attempt, not only with the job.
    assert_eq!(ran.step("escapee")["fallback"]["state"], "succeeded");
    assert_eq!(left_of(ran.id()), [""; 0]);
}

#[test]
fn what_cannot_start_says_what_is_wrong_with_it() {
    let place = Place::new("poison-start");
    let formless = place.write("formless", [0, 1, 2, 3]);
    fs::set_permissions(&formless, fs::Permissions::from_mode(0o755)).expect("chmod");
    place.write("plain", "#!/bin/sh\n");
    let long = "x".repeat(200_000);
    let job = format!(
        r#"
name: start
retry: {{ max_attempts: 1 }}
goals: [end]
steps:
  missing: {{ argv: [no-such-program-anywhere], on_failure: continue }}
  formless: {{ argv: [./formless], on_failure: continue }}
  plain: {{ argv: [./plain], on_failure: continue }}
  long: {{ argv: [echo, "{long}"], on_failure: continue }}
  shell: {{ run: no-such-program-anywhere, on_failure: continue }}
  end: {{ needs: [missing, formless, plain, long, shell], run: 'true' }}
"#
    );
    let ran = place.run(&job);
    assert_eq!(ran.exit, Some(0), "{}", ran.status);
    for (step, words) in [
        ("missing", "cannot start \"no-such-program-anywhere\": no such program"),
        ("formless", "neither a program nor a script that begins with #!"),
        ("plain", "the file is not marked as executable"),
        ("long", "its arguments and environment are too large"),
    ] {
        let attempt = ran.last_attempt(step);
        assert_eq!(attempt["state"], "not_completed", "{step}");
        let error = attempt["error"].as_str().expect("an error");
        assert!(error.contains(words), "{step}: {error}");
    }
    let shell = ran.last_attempt("shell");
    assert_eq!((&shell["state"], &shell["exit_code"]), (&json!("failed"), &json!(127)));
}

#[test]
fn output_is_kept_byte_for_byte() {
    let place = Place::new("poison-bytes");
    let bytes: Vec<u8> =
        (0..=255u8).cycle().take(100_000).chain(*b"\x1b[2J\r\n\0no newline").collect();
    place.write("bytes", &bytes);
    let ran = place.run("name: bytes\nsteps: { s: { run: 'cat bytes; cat bytes >&2' } }\n");
    assert_eq!(ran.exit, Some(0));
    let logs = place.steadfast(&["logs", "last", "s"]);
    assert!(logs.stdout == [&bytes[..], &bytes].concat(), "{} bytes", logs.stdout.len());
}

#[test]
fn a_signal_is_not_an_exit_status() {
    let place = Place::new("poison-signal");
    let ran = place.run(
        r"
name: signal
retry: { max_attempts: 1 }
goals: [end]
steps:
  killed: { run: 'kill -9 $$', on_failure: continue }
  exited: { run: 'exit 137', on_failure: continue }
  end: { needs: [killed, exited], run: 'true' }
",
    );
    let how = |step: &str| {
        let attempt = ran.last_attempt(step);
        (attempt["signal"].clone(), attempt["exit_code"].clone(), attempt["error"].clone())
    };
    assert_eq!(how("killed"), (json!(9), Value::Null, json!("killed by signal 9")));
    assert_eq!(how("exited"), (Value::Null, json!(137), json!("exit code 137")));
}

#[test]
fn an_output_that_is_not_json_or_too_large_is_a_failure() {
    let place = Place::new("poison-output");
    let ran = place.run(
        r#"
name: output
retry: { max_attempts: 1 }
goals: [end]
steps:
  invalid: { run: 'echo "{half" > "$STEADFAST_OUTPUT"', on_failure: continue }
  large: { run: 'head -c 1048577 /dev/zero | tr "\0" 1 > "$STEADFAST_OUTPUT"', on_failure: continue }
  fits: { run: '{ echo "\"\c"; head -c 1048574 /dev/zero | tr "\0" x; echo "\"\c"; } > "$STEADFAST_OUTPUT"' }
  pipe: { run: 'mkfifo "$STEADFAST_OUTPUT"', on_failure: continue }
  empty: { run: ': > "$STEADFAST_OUTPUT"' }
  end: { needs: [invalid, large, fits, pipe, empty], run: 'true' }
"#,
    );
    assert_eq!(ran.exit, Some(0), "{}", ran.step("fits")["items"][0]["last_error"]);
    for (step, words) in [
        ("invalid", "the output is not JSON"),
        ("large", "the output is larger than 1048576 bytes"),
        ("pipe", "it is not a regular file"),
    ] {
        let attempt = ran.last_attempt(step);
        assert_eq!(attempt["state"], "not_completed", "{step}");
        let error = attempt["error"].as_str().expect("an error");
        assert!(error.contains(words), "{step}: {error}");
    }
    assert_eq!(ran.item("empty")["output"], Value::Null);
    let kept = ran.item("fits")["output"].as_str().expect("a text");
    assert_eq!(kept.len(), (1 << 20) - 2);
}

#[test]
fn a_process_finds_itself_where_the_contract_says() {
    let place = Place::new("poison-env");
    place.write("beside", "the job file\n");
    let file = place.write(
        "job.yaml",
        r#"
name: surroundings
env: { OF_JOB: job, BOTH: job }
steps:
  plain:
    for_each: [a, { "k": 1 }]
    env: { OF_STEP: "{{ item_index }}", BOTH: step }
    ports: [metrics, the-api]
    run: |
      env > "$PLACE/env-$STEADFAST_ITEM_INDEX"
      pwd > "$PLACE/pwd-$STEADFAST_ITEM_INDEX"
      ls -d "$STEADFAST_WORKDIR" >> "$PLACE/pwd-$STEADFAST_ITEM_INDEX"
  own:
    cwd: attempt
    files: [beside]
    run: |
      [ "$(pwd)" = "$STEADFAST_WORKDIR" ] || exit 1
      cat beside
      cat
"#,
    );
    // Called from elsewhere: the job file's folder counts.
    let args = ["run".as_ref(), file.as_os_str(), "--keep".as_ref()];
    let output = place.command(args).current_dir("/").env("CALLER", "inherited").output();
    let output = output.expect("the program starts");
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let status = place.status();
    let id = status["id"].as_str().expect("an id");
    let shown = String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!(shown.lines().next(), Some(id), "`run` prints the id first");

    let work = place.path("data/work").join(id);
    for (index, item) in [(0, "a"), (1, r#"{"k":1}"#)] {
        let env = place.read(&format!("env-{index}"));
        let value = |name: &str| {
            let line = env.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix('='));
            line.unwrap_or_else(|| panic!("no {name} in {env}")).to_owned()
        };
        let workdir = work.join(format!("plain_{index}_attempt_1"));
        for (name, wanted) in [
            ("STEADFAST_JOB_ID", id),
            ("STEADFAST_STEP", "plain"),
            ("STEADFAST_ITEM", item),
            ("STEADFAST_ITEM_INDEX", &index.to_string()),
            ("STEADFAST_ATTEMPT", "1"),
            ("STEADFAST_DATACENTER", ""),
            ("STEADFAST_WORKDIR", workdir.to_str().expect("plain")),
            ("STEADFAST_OUTPUT", workdir.join("output.json").to_str().expect("plain")),
            ("OF_JOB", "job"),
            ("OF_STEP", &index.to_string()),
            ("BOTH", "step"),
            ("CALLER", "inherited"),
        ] {
            assert_eq!(value(name), wanted, "{name}");
        }
        assert!(value("STEADFAST_ATTEMPT_TOKEN").starts_with(id));
        let port = |name: &str| value(name).parse::<u16>().expect("a port");
        let (metrics, api) = (port("STEADFAST_PORT_METRICS"), port("STEADFAST_PORT_THE_API"));
        assert!(metrics > 0 && api > 0 && metrics != api);
        let folders = format!("{}\n{}\n", place.folder.display(), workdir.display());
        assert_eq!(place.read(&format!("pwd-{index}")), folders);
    }
    assert_eq!(place.steadfast(&["logs", "last", "own"]).stdout, b"the job file\n");
    let token = |index: u32| {
        let env = place.read(&format!("env-{index}"));
        env.lines().find(|line| line.starts_with("STEADFAST_ATTEMPT_TOKEN")).map(str::to_owned)
    };
    assert_ne!(token(0), token(1), "each attempt has its own");
}

#[test]
fn working_folders_go_unless_they_are_kept() {
    let place = Place::new("poison-keep");
    let job = "name: keep\nsteps: { s: { cwd: attempt, run: 'echo 1 > mine' } }\n";
    let ran = place.run(job);
    assert!(!place.path("data/work").join(ran.id()).exists());
    let ran = place.run_file(&place.path("job.yaml"), &["--keep"]);
    let mine = place.path("data/work").join(ran.id());
    let mine = mine.join(format!("{}_attempt_1/mine", ran.id()));
    assert_eq!(fs::read_to_string(mine).expect("kept"), "1\n");
    assert!(files_under(&place.path("data/locks")).is_empty(), "a job that ended is not locked");
}

#[test]
fn what_cannot_be_run_is_refused_before_anything_runs() {
    let place = Place::new("poison-refused");
    let refused = |job: &str, words: &str| {
        let file = place.write("job.yaml", job);
        let args = ["run".as_ref(), file.as_os_str()];
        let output = place.command(args).env_remove("THE_SECRET").output().expect("starts");
        assert_eq!(output.status.code(), Some(2), "{output:?}");
        assert!(output.stdout.is_empty(), "{output:?}");
        assert!(stderr(&output).contains(words), "{}", stderr(&output));
    };
    refused(
        "name: j\nsteps: { first: { run: 'echo > \"$PLACE/ran\"' }, s: { run: 'true', secrets: [THE_SECRET] } }\n",
        "step `s` needs the secret THE_SECRET, which is not in the environment",
    );
    refused(
        "name: j\nsteps: { first: { run: 'echo > \"$PLACE/ran\"' }, s: { call: index } }\n",
        "step `s` calls the function `index`, and `run` has no functions",
    );
    refused(
        "name: j\nsteps: { s: { run: 'true', on_failure: { call: undo } } }\n",
        "step `s` calls the function `undo`",
    );
    assert!(!place.path("ran").exists(), "nothing ran");
    let list = place.steadfast(&["list", "-o", "json"]);
    let list: Value = serde_json::from_slice(&list.stdout).expect("JSON");
    assert_eq!(list["jobs"], json!([]), "nothing was stored");
}

#[test]
fn a_secret_reaches_the_process_and_is_written_nowhere() {
    let place = Place::new("poison-secret");
    let file = place.write(
        "job.yaml",
        "name: j\nsteps: { s: { run: '[ ${#THE_SECRET} = 16 ]', secrets: [THE_SECRET] } }\n",
    );
    let args = ["run".as_ref(), file.as_os_str(), "--keep".as_ref()];
    let output = place.command(args).env("THE_SECRET", "hunter2-and-more").output();
    assert_eq!(output.expect("starts").status.code(), Some(0));
    let secret = b"hunter2-and-more";
    for path in files_under(&place.path("data")) {
        let content = fs::read(&path).expect("readable");
        assert!(!content.windows(secret.len()).any(|part| part == secret), "{}", path.display());
    }
}
