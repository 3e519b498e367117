//! The program from outside: exit statuses, streams, and what it does with input that means harm.

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Output};

use serde_json::Value;

fn steadfast(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_steadfast")).args(args).output().expect("the program starts")
}

fn file(name: &str, text: impl AsRef<[u8]>) -> String {
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
    fs::write(&path, text).expect("writes");
    path.to_str().expect("a plain path").to_owned()
}

fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).expect("text")
}

fn json(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout).expect("JSON on stdout")
}

#[track_caller]
fn refused(job: &str, words: &[&str]) {
    let output = steadfast(&["plan", job]);
    let stderr = stderr(&output);
    assert_eq!(output.status.code(), Some(2), "{stderr}");
    assert!(output.stdout.is_empty());
    for word in words {
        assert!(stderr.contains(word), "{word:?} is not in {stderr}");
    }
}

#[test]
fn harmful_files_end_in_a_clear_answer() {
    refused(&file("huge.yaml", vec![b'a'; 50_000_000]), &["50000000 bytes; at most 10485760"]);
    let mut bomb = "a0: &a0 [x, x, x, x, x, x, x, x, x]\n".to_owned();
    for n in 1..12 {
        let list = vec![format!("*a{}", n - 1); 9].join(", ");
        bomb.push_str(&format!("a{n}: &a{n} [{list}]\n"));
    }
    refused(&file("bomb.yaml", bomb), &["too_large", "bomb.yaml:"]);
    refused(&file("deep.yaml", "[".repeat(100_000)), &["too_deep"]);
    refused(&file("bytes.yaml", [0xff, 0xfe, 0x00]), &["UTF-8"]);
    let base = "name: j\nsteps:\n  s:\n    run: 'true'\n    ";
    let with = |rest: &str| format!("{base}{rest}\n");
    let nan = with("retry_config: { backoff: { exponential: { base: .nan } } }");
    refused(&file("nan.yaml", nan), &["base", "nan.yaml:5:"]);
    refused(&file("inf.yaml", with("retry: { multiplier: 1e999 }")), &["inf.yaml:5:"]);
    refused(&file("many.yaml", with("for_each: { range: 1000001 }")), &["1000000", "many.yaml:5:"]);
    refused("/nowhere/job.yaml", &["cannot read /nowhere/job.yaml: there is no such file"]);
    refused(env!("CARGO_TARGET_TMPDIR"), &["it is a folder"]);
    let escape = "name: \"\\e[2Jgone\"\nsteps: {}\n";
    let output = steadfast(&["plan", &file("escape.yaml", escape)]);
    assert!(!output.stderr.contains(&0x1b), "{}", stderr(&output));
}

#[test]
fn a_multiplier_of_1e308_waits_its_cap() {
    let job =
        "name: j\nsteps: { s: { run: 'true', retry: { multiplier: 1e308, max_attempts: 4 } } }";
    let plan = json(&steadfast(&["plan", &file("steep.yaml", job), "-o", "json"]));
    assert_eq!(plan["steps"]["s"]["delays_ms"], serde_json::json!([1000, 60_000, 60_000]));
}

#[test]
fn a_fan_out_of_a_million_is_planned_without_being_held() {
    let job = "name: j\nsteps: { s: { run: 'true', for_each: { range: 1000000 } } }";
    let plan = json(&steadfast(&["plan", &file("million.yaml", job), "-o", "json"]));
    assert_eq!(plan["job"]["retries_at_most"], 2_000_000);
}

#[test]
fn plan_counts_and_shows_what_runs_when_a_step_fails() {
    let job = "name: j\nsteps:\n  a:\n    http: { url: \"http://127.0.0.1:9/a\" }\n    \
               compensate: { run: ./undo.sh }\n  b:\n    needs: [a]\n    run: 'true'\n    \
               on_failure: { argv: [./else.sh, now], then: continue }\n";
    let job = file("asides.yaml", job);
    let text = String::from_utf8(steadfast(&["plan", &job]).stdout).expect("text");
    let parts = [
        "at most 8 retries of the whole job",
        "worst case 1m33s · a service may ask for longer (Retry-After, up to 1h a retry)",
        "undone by: run ./undo.sh (by the same policy)",
        "on failure: argv ./else.sh now, then goes on (by the same policy)",
    ];
    for part in parts {
        assert!(text.contains(part), "{part} is not in\n{text}");
    }
    assert_eq!(text.matches("Retry-After").count(), 1, "{text}");
    let plan = json(&steadfast(&["plan", &job, "-o", "json"]));
    assert_eq!(plan["steps"]["a"]["worst_case_ms"], 93_000);
}

#[test]
fn a_mistake_far_right_in_a_long_line_is_told_at_its_column() {
    let steps: Vec<String> = (0..9).map(|n| format!("s{n}: {{ run: ok, retries: 1 }}")).collect();
    let long = file("long.yaml", format!("name: j\nsteps: {{ {} }}\n", steps.join(", ")));
    let errors = json(&steadfast(&["plan", &long, "-o", "json"]))["errors"].clone();
    let errors = errors.as_array().expect("errors");
    assert_eq!(errors.len(), 9);
    let told = stderr(&steadfast(&["plan", &long]));
    for error in errors {
        let place = format!("long.yaml:2:{}\n", error["column"]);
        assert_eq!(told.matches(&place).count(), 1, "{place} in {told}");
    }
}

#[test]
fn problems_are_json_for_programs_and_text_for_people() {
    let job = file("wrong.yaml", "name: j\nsteps: { s: { run: 'true', retries: 3 } }\n");
    let output = steadfast(&["plan", &job, "-o", "json"]);
    assert_eq!(output.status.code(), Some(2));
    let answer = json(&output);
    assert_eq!(answer["valid"], false);
    let error = &answer["errors"][0];
    let place = (&error["code"], &error["path"], &error["line"], &error["column"]);
    let expect = (&"unknown_key".into(), &"steps.s.retries".into(), &2.into(), &28.into());
    assert_eq!(place, expect);
    assert!(stderr(&output).contains("wrong.yaml:2:28"), "{}", stderr(&output));
}

#[test]
fn the_exit_status_tells_how_the_job_ended() {
    let job = file(
        "exits.yaml",
        "name: j\ndatacenters: [a, b]\nbest_effort: { min_datacenters: 2, deadline: 1m }\n\
         steps: { s: { run: 'true', retry: { max_attempts: 1 } } }\n",
    );
    let end = |name: &str, script: &str| {
        let script = file(name, script);
        steadfast(&["rehearse", &job, "--script", &script]).status.code()
    };
    assert_eq!(end("ok.yaml", "{}"), Some(0));
    assert_eq!(end("failed.yaml", "s: ['exit:1']"), Some(1));
    assert_eq!(end("partial.yaml", "a/s: ['exit:1']"), Some(3));
    assert_eq!(end("wrong-script.yaml", "t: [ok]"), Some(2));
    assert_eq!(steadfast(&["rehearse"]).status.code(), Some(2));
    assert_eq!(steadfast(&["plan", &job, "-o", "xml"]).status.code(), Some(2));
    assert_eq!(steadfast(&["rehearse", &job, "--slots", "0"]).status.code(), Some(2));
    let endless = file(
        "endless.yaml",
        "name: j\nsteps: { s: { run: 'true', retry: { max_attempts: unlimited } } }",
    );
    let script = file("fails.yaml", "s: ['exit:1']");
    let output = steadfast(&[
        "rehearse",
        &endless,
        "--script",
        &script,
        "--max-decisions",
        "50",
        "-o",
        "json",
    ]);
    assert_eq!(output.status.code(), Some(2));
    assert_eq!(json(&output)["error"]["code"], "too_many_decisions");
}

#[test]
fn a_job_can_come_from_standard_input() {
    let output = Command::new("sh")
        .args(["-c", "printf 'name: j\\nsteps: { s: { run: x } }' | \"$0\" plan -"])
        .arg(env!("CARGO_BIN_EXE_steadfast"))
        .output()
        .expect("runs");
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
}

#[test]
fn a_reader_that_has_seen_enough_is_no_error() {
    let job =
        file("pipe.yaml", "name: j\nsteps: { s: { run: 'true', for_each: { range: 20000 } } }");
    let output = Command::new("sh")
        .args(["-c", "{ \"$0\" rehearse \"$1\" -o json; echo $? >&2; } | head -c 10"])
        .args([env!("CARGO_BIN_EXE_steadfast"), &job])
        .output()
        .expect("runs");
    assert_eq!(stderr(&output), "0\n");
}

#[test]
fn colour_is_for_terminals_and_can_be_switched_off() {
    let job = file("colour.yaml", "name: j\nsteps: { s: { run: 'true' } }");
    let run = |force: bool, no_color: bool| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_steadfast"));
        command.args(["plan", &job]).env_remove("NO_COLOR").env_remove("CLICOLOR_FORCE");
        if force {
            command.env("CLICOLOR_FORCE", "1");
        }
        if no_color {
            command.env("NO_COLOR", "1");
        }
        command.output().expect("runs").stdout.contains(&0x1b)
    };
    assert!(!run(false, false), "not a terminal");
    assert!(run(true, false), "forced");
    assert!(!run(false, true));
}

#[test]
fn completions_exist_for_every_shell() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let output = steadfast(&["completions", shell]);
        assert_eq!(output.status.code(), Some(0));
        let text = String::from_utf8(output.stdout).expect("text");
        assert!(text.contains("rehearse") && text.contains("max-decisions"), "{shell}");
    }
}

#[test]
fn doctor_says_what_is_wrong_and_what_to_do_and_makes_nothing() {
    let absent = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("never-made");
    let data = ["--data", absent.to_str().expect("a plain path")];
    let look = |more: &[&str]| steadfast(&[&["doctor", "-o", "json"], &data[..], more].concat());
    let well = look(&[]);
    assert_eq!(well.status.code(), Some(0), "{}", stderr(&well));
    assert!(!absent.exists());
    let wrong = look(&["--config", &file("wrong.toml", "[server]\nlisten_on = 1\n")]);
    assert_eq!(wrong.status.code(), Some(1));
    let settings = &json(&wrong)["findings"][0];
    assert_eq!(settings["check"], "settings");
    assert_eq!(settings["severity"], "problem");
    assert!(settings["advice"].as_str().is_some_and(|advice| advice.contains("--print-config")));
    let nobody = look(&["--store", "postgres://nobody@127.0.0.1:1/nothing"]);
    assert_eq!(nobody.status.code(), Some(1));
}
