//! The conformance cases of tests/vectors, through the real program. A case names paths into what
//! `plan` or `rehearse` prints as JSON, or words of an error.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;
use steadfast_core::verdict::StopReason;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn steadfast(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_steadfast"))
        .args(args)
        .env("NO_COLOR", "1")
        .output()
        .expect("the program starts")
}

/// `a.b.0.c` walks into maps and lists; a last `#` is the length.
fn lookup(value: &Value, path: &str) -> Option<Value> {
    path.split('.').try_fold(value.clone(), |value, part| match (&value, part) {
        (Value::Array(list), "#") => Some(list.len().into()),
        (Value::Object(map), "#") => Some(map.len().into()),
        (Value::Array(list), index) => list.get(index.parse::<usize>().ok()?).cloned(),
        (Value::Object(map), key) => map.get(key).cloned(),
        _ => None,
    })
}

fn same(want: &Value, got: &Value) -> bool {
    match (want.as_f64(), got.as_f64()) {
        (Some(want), Some(got)) => (want - got).abs() < 1e-3,
        _ => want == got,
    }
}

fn run_case(case: &Value, folder: &Path) -> Vec<String> {
    let text = |key: &str| case.get(key).and_then(Value::as_str);
    let strings = |key: &str| -> Vec<&str> {
        let list = case.get(key).and_then(Value::as_array);
        list.into_iter().flatten().filter_map(Value::as_str).collect()
    };
    let job = folder.join("job.yaml");
    let job_path = job.to_str().expect("a plain path");
    fs::write(&job, text("job").expect("a job")).expect("writes");
    if case.get("error").is_some() {
        let output = steadfast(&["plan", job_path]);
        let stderr = String::from_utf8_lossy(&output.stderr).to_lowercase();
        let mut wrong = vec![];
        if output.status.code() != Some(2) {
            wrong.push(format!("{}, not exit status 2", output.status));
        }
        let missing = strings("error").into_iter().filter(|word| !stderr.contains(*word));
        wrong.extend(missing.map(|word| format!("stderr lacks {word:?}: {stderr}")));
        return wrong;
    }
    let script = folder.join("script.yaml");
    let mut args = vec!["plan", job_path, "-o", "json"];
    let wanted = case.get("rehearse").or(case.get("plan")).and_then(Value::as_object);
    if case.get("rehearse").is_some() {
        fs::write(&script, text("script").unwrap_or("{}")).expect("writes");
        args[0] = "rehearse";
        args.extend(["--script", script.to_str().expect("a plain path")]);
    }
    args.extend(strings("args"));
    let output = steadfast(&args);
    let Ok(answer) = serde_json::from_slice::<Value>(&output.stdout) else {
        return vec![format!("no JSON: {}", String::from_utf8_lossy(&output.stderr))];
    };
    let mut wrong = vec![];
    for (path, want) in wanted.expect("something to check") {
        match lookup(&answer, path) {
            Some(got) if same(want, &got) => {}
            got => wrong.push(format!("{path}: want {want}, got {got:?}")),
        }
    }
    let warnings = answer.get("warnings").and_then(Value::as_array);
    let codes: Vec<&str> =
        warnings.into_iter().flatten().filter_map(|warning| warning["code"].as_str()).collect();
    let missing = strings("warns").into_iter().filter(|code| !codes.contains(code));
    wrong.extend(missing.map(|code| format!("no warning {code:?} in {codes:?}")));
    if let Some(reason) = text("reaches") {
        let decisions = answer["decisions"].as_array().expect("decisions");
        if !decisions.iter().any(|decision| decision["reason"] == *reason) {
            wrong.push(format!("{reason} was not reached"));
        }
    }
    wrong
}

fn cases() -> Vec<(String, Value)> {
    let mut files: Vec<PathBuf> = fs::read_dir(root().join("tests/vectors"))
        .expect("tests/vectors is there")
        .map(|entry| entry.expect("readable").path())
        .collect();
    files.sort();
    files
        .iter()
        .flat_map(|file| {
            let name = file.file_stem().expect("a name").to_string_lossy().into_owned();
            let text = fs::read_to_string(file).expect("readable");
            let cases: Vec<Value> = serde_json::from_str(&text).expect("a list of cases");
            cases.into_iter().map(move |case| (name.clone(), case))
        })
        .collect()
}

#[test]
fn every_conformance_case_holds() {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("vectors");
    fs::create_dir_all(&folder).expect("a folder");
    let mut wrong = vec![];
    for (file, case) in cases() {
        let id = case["id"].as_str().expect("an id");
        wrong.extend(run_case(&case, &folder).into_iter().map(|w| format!("{file}/{id}: {w}")));
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// A reason that no test reaches may not exist; one that the docs do not list is a riddle.
#[test]
fn every_stop_reason_is_reached_and_told() {
    let reached: BTreeSet<String> = cases()
        .iter()
        .filter_map(|(_, case)| Some(case.get("reaches")?.as_str()?.into()))
        .collect();
    let docs = fs::read_to_string(root().join("docs/stop-reasons.md")).expect("the page is there");
    for reason in StopReason::ALL {
        assert!(docs.contains(&format!("## {reason}\n")), "docs/stop-reasons.md lacks {reason}");
        // Nobody cancels a rehearsal: core's `a_cancel_takes_what_waits_with_it` reaches that one.
        if reason != StopReason::Cancelled {
            assert!(reached.contains(reason.name()), "no case reaches {reason}");
        }
    }
}
