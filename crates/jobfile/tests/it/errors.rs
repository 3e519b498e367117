use std::fmt::Write;

use crate::{read, shown, step};

/// Everything that can be wrong, as its author would write it.
const WHOLE_FILES: &[&str] = &[
    "",
    "# nothing\n",
    "null\n",
    "- a\n- b\n",
    "hello\n",
    "name: j\nsteps: {}\n",
    "steps: { a: { run: x } }\n",
    "name: j\n",
    "nmae: j\nsteps: { a: { run: x } }\n",
    "name: j\nstep: { a: { run: x } }\n",
    "name: j\nsteps:\n  a: { run: x }\n  a: { run: y }\n",
    "name: j\ntasks: { a: { run: x } }\nretries: 3\n",
    "name: j\nname: k\nsteps: { a: { rum: x, retry: { max_atempts: 3 } } }\n",
    "name: j\nsteps:\n\ta: { run: x }\n",
    "name: j: k\n",
    "name: j\nsteps: { a: { run: x }\n",
    "name: !!str j\nsteps: { a: { run: x } }\n",
    "name: j\nsteps: { a: { <<: { run: x } } }\n",
    "name: j\nsteps: { a: { run: *x } }\n",
    "name: &a [*a]\n",
    "name: j\nsteps: { a: { run: x } }\n---\nname: k\n",
    "name: j\n? [a]\n: b\nsteps: { a: { run: x } }\n",
    "name: \"a\\0b\"\nsteps: { a: { run: x } }\n",
    "name: 5\nsteps: { a: { run: x } }\n",
    "name: 'a;b'\nsteps: { a: { run: x } }\n",
    "name: ' '\nsteps: { a: { run: x } }\n",
    "name: j\nsteps: { 'a b': { run: x }, '': { run: x } }\n",
    "name: j\nsteps: [a]\n",
    "name: j\nsteps: { a: echo, b: }\n",
    "name: j\ntimeout: 30\nsteps: { a: { run: x } }\n",
    "name: j\ntimeout: 0s\ngoals: []\npriority: 1e3\nsteps: { a: { run: x } }\n",
    "name: j\nnot_before: tomorrow\nsteps: { a: { run: x } }\n",
    "name: j\nnot_before: in 5\nsteps: { a: { run: x } }\n",
    "name: j\ngoals: [b, a, a]\nsteps: { a: { run: x } }\n",
    "name: j\ndatacenters: [east, 'we st', east]\nsteps: { a: { run: x } }\n",
    "name: j\ndatacenters: [east]\nbest_effort: { min_datacenters: 2 }\nsteps: { a: { run: x } }\n",
    "name: j\nbest_effort: { min_datacenters: 0, deadline: 0s, late_results: drop }\nsteps: { a: { run: x } }\n",
    "name: j\nbest_effort: true\nbest_effort_min_dcs: 4\nbest_effort_deadline_seconds: .nan\nsteps: { a: { run: x } }\n",
    "name: j\nbest_effort: 3\nsteps: { a: { run: x } }\n",
    "name: j\nbest_effort: { deadline: 5m }\nbest_effort_min_dcs: 1\nsteps: { a: { run: x } }\n",
    "name: j\nretry_budget: lots\nsteps: { a: { run: x } }\n",
    "name: j\nretry_budget: { total: -1, ratio: .inf }\nsteps: { a: { run: x } }\n",
    "name: j\nretry_budget: { total: 3 }\nretry_budget_per_workflow: 1\nsteps: { a: { run: x } }\n",
    "name: j\nenv: { 'A-B': 1, STEADFAST_JOB_ID: x, C: [1], D: '{{ item }}' }\nsecrets: [a b]\nsteps: { a: { run: x } }\n",
    "name: j\nfiles: [/etc/passwd, ../x, 'a\\b', '', 7]\nlabels: { 'a b': c, d: \"e\\nf\" }\nsteps: { a: { run: x } }\n",
    "name: j\nretry_config: { attempts: 3 }\nsteps: { a: { run: x } }\n",
    "name: j\nretry: { max_attempts: 0, multiplier: .nan }\nsteps: { a: { run: x }, b: { run: x, retry: { jitter: full } } }\n",
    "name: j\nretry: { max_delay: 30s }\nsteps: { a: { run: x, retry: { initial_delay: 1m } }, b: { run: x, retry: { backoff: [1s, 2m] } } }\n",
    "name: j\nretry: { initial_delay: 1m }\nsteps: { a: { run: x, retry: { max_delay: 30s } } }\n",
    "name: j\nsteps:\n  a: { run: x, needs: [c] }\n  b: { run: x, needs: [a] }\n  c: { run: x, needs: [b] }\n",
    "name: j\nsteps:\n  fetch: { run: x, needs: ['', fetsh, 3] }\n  b: { run: x, needs: fetch }\n  c: { run: x, needs: [b, b] }\n",
    "name: j\nsteps:\n  a: { argv: [x, '{{ steps.b.output }}'] }\n  b: { argv: [x, '{{ steps.b.output }}', '{{ steps.c.output }}'], for_each: [1] }\n",
    "name: j\nsteps:\n  a: { run: x }\n  b: { argv: [x, '{{ steps.a.output }}', '{{ steps.a.outputs }}'] }\n",
    "name: j\nsteps:\n  a: { run: x, for_each: [1] }\n  b: { run: x, for_each: { output: a }, needs: [] }\n  c: { run: x, for_each: { output: a.b }, needs: [a] }\n",
    "name: \"\\e[31m${\\a}\"\nsteps: { a: { run: x } }\n",
];

/// The same, below a step that is otherwise right.
const STEPS: &[&str] = &[
    "argv: [x]",
    "input: 3",
    "retry: { retry_limit: 3 }",
    "retry: { retries: 3, delay: 5s }",
    "depends_on: [other]",
    "retries: 3",
    "timeout-minutes: 5",
    "environment: { A: b }",
    "continue-on-error: true",
    "retry: { max_attempts: 0 }",
    "retry: { max_attempts: -1 }",
    "retry: { max_attempts: 1.5 }",
    "retry: { max_attempts: many }",
    "retry: { max_attempts: 99999999999999999999 }",
    "retry: { max_attempts: 5000000000 }",
    "retry:",
    "retry: 3",
    "retry: { retryable: maybe, backoff: quadratic, jitter: true }",
    "retry: { initial_delay: 30, max_delay: -5s, window: 1.5s, delay_budget: 5 blinks }",
    "retry: { initial_delay: 40000d, window: [1s] }",
    "retry: { initial_delay: 2m, max_delay: 1m }",
    "retry: { multiplier: 0.5 }",
    "retry: { backoff: fixed, multiplier: .inf }",
    "retry: { initial_delay: 200, max_delay: 500ms }",
    "retry: { backoff: [] }",
    "retry: { backoff: [1s, 2] }",
    "retry: { jitter: 1.5 }",
    "retry: { exit_codes: { retry: [0, 256, x], stop: 1.5 } }",
    "retry: { exit_codes: { retry: [0, 256] } }",
    "retry: { rules: [{ exit: 1 }, { then: stop }, { error: '(', then: stop }, { signal: 99, then: retry }, 3] }",
    "retry: { rules: [{ timeout: false, then: stop }, { http_status: 42, then: stop, delay: 1s }] }",
    "retry: { backoff_base_ms: 5, initial_delay: 5ms, max_backoff_ms: 1s }",
    "retry: { backoff_base_ms: 5000, max_backoff_ms: 10 }",
    "retry_config: { attempts: 0, jitter: true, jitter_factor: 2, backoff: { exponential: { base: 0.1 } } }",
    "retry_config: { backoff: { linear: { increment: 5 }, exponential: {} }, retry_budget: 20 }",
    "work_config: { max_retries: -2, backoff: 1s, backoff_type: fibonacci }",
    "work_config: { max_retries: 2, backoff: 2000, max_backoff: 1000 }",
    "work_config: { parallelism: 2 }\n    parallelism: 3",
    "retry: {}\n    retry_config: {}\n    work_config: {}",
    "timeout: 0s",
    "heartbeat: 0s\n    scheduling_timeout: never",
    "parallelism: 0",
    "max_failed: 101%",
    "max_failed: x%",
    "max_failed: half",
    "for_each: 3",
    "for_each: { range: 1000001 }",
    "for_each: { range: 3, output: x }",
    "for_each: { output: .x }",
    "for_each: [.nan]",
    "resources: { cpu: 0, memory: 512 }",
    "resources: { cpu: two, memory: 1MB, disk: 3g }",
    "ports: [http, HTTP, 'a b']",
    "on_failure: explode",
    "on_failure: {}",
    "on_failure: { run: x, argv: [y] }",
    "on_failure: { fallback: { comand: x } }",
    "on_failure: { http: { url: 'http://a', timeout: 3s } }",
    "compensate: {}",
    "env: { A: '{{ item }}' }",
    "env: { A: '{{ itm }}', B: '{{ item', C: '{{ steps.nope.output }}' }",
    "cwd: home",
];

const ACTIONS: &[&str] = &[
    "command: ./x.sh",
    "run: ''",
    "run: 5",
    "argv: []",
    "argv: ['']",
    "argv: [a, [b]]",
    "call: 'a b'",
    "call: f\n    input: [99999999999999999999]",
    "http: {}",
    "http: { url: ftp://x }",
    "http: { url: 'http://a b' }",
    "http: { url: 'http://a', method: post, mode: later, expect: all }",
    "http: { url: 'http://a', headers: { 'a b': 1, c: \"d\\ne\" }, query: [x] }",
    "http: { url: 'http://a', timeout: 3s }\n    timeout: 4s",
    "http: { url: 'http://a/b c' }",
    "http: { url: \"http://a/b\\tc\" }",
    "http: { url: 'http://a:99999/b' }",
    "http: { url: 'http://[::1]:x/b' }",
    "http: { url: 'https://user:pw@a/b' }",
    "http: { url: 'http://a', headers: { X-A: 1, x-a: 2 } }",
    "http:\n      url: 'http://a'\n      headers:\n        Accept: text/plain\n        Connection: close\n        content-length: 3\n        Upgrade: h2c",
    "needs: []",
];

#[test]
fn errors_name_the_place_and_what_to_write() {
    let files = WHOLE_FILES.iter().map(ToString::to_string);
    let steps = STEPS.iter().map(|lines| step(lines));
    let actions = ACTIONS.iter().map(|lines| format!("name: j\nsteps:\n  s:\n    {lines}\n"));
    let mut all = String::new();
    for text in files.chain(steps).chain(actions) {
        let problems = read(&text).expect_err(&text);
        let text: Vec<String> =
            text.lines().map(|line| format!("| {}", line.replace('\t', "→"))).collect();
        let _ = write!(all, "{}\n{}\n\n", text.join("\n"), shown(&problems));
    }
    // The rest needs files too large, or too odd, to be shown.
    let elsewhere = ["too_deep", "not_utf8", "more_problems"];
    for (code, _) in steadfast_jobfile::PROBLEM_CODES {
        let shown = all.contains(&format!(" {code} ")) || elsewhere.contains(code);
        assert!(shown, "{code} has no example");
    }
    insta::assert_snapshot!(all);
}

#[test]
fn bytes_that_are_not_text_are_named_by_their_offset() {
    let operator = steadfast_jobfile::Operator::default();
    let problems = steadfast_jobfile::load("j", b"name: j\nst\xffps: {}\n", &operator);
    assert_eq!(
        shown(&problems.expect_err("refused")),
        "  2:3+1 not_utf8 -: not UTF-8 text: byte 10 is invalid"
    );
}

#[test]
fn a_thousand_problems_are_a_hundred_and_a_number() {
    let mut text = "name: j\nsteps:\n  a:\n    run: x\n".to_owned();
    for n in 0..1000 {
        let _ = writeln!(text, "    wrong{n}: 1");
    }
    let problems = read(&text).expect_err("refused");
    assert_eq!(problems.len(), 101);
    assert_eq!(problems[100].message, "and 900 more");
}

#[test]
fn a_problem_is_json_for_programs() {
    let problems = read("name: j\nsteps: { a: { run: x, needs: [b] } }\n").expect_err("refused");
    let json = serde_json::to_value(&problems).expect("serializes");
    let expected = serde_json::json!([{
        "code": "unknown_step",
        "path": "steps.a.needs[0]",
        "line": 2,
        "column": 31,
        "message": "step `a` needs `b`, which does not exist",
        "help": "did you mean `a`?",
    }]);
    assert_eq!(json, expected);
}

#[test]
fn a_json_file_is_told_its_errors_in_json() {
    let operator = steadfast_jobfile::Operator::default();
    for (text, expected) in [
        (
            "{\"name\": \"j\",}",
            "1:14+1 syntax -: not valid JSON: expected a key in double quotes, found `}`",
        ),
        ("{\n\t\"a\" 1}", "2:6+1 syntax -: not valid JSON: expected `:`, found `1`"),
        ("[1 2]", "1:4+1 syntax -: not valid JSON: expected `,` or `]`, found `2`"),
        ("{\"a\": 01}", "1:7+1 syntax -: not valid JSON: expected a value, found `0`"),
        (
            "{\"a\": \"\\ud83d\"}",
            "1:14+1 syntax -: not valid JSON: half of a surrogate pair, found `\"`",
        ),
        ("{\"a\": \"", "1:8+1 syntax -: not valid JSON: expected `\"`, found the end"),
        ("{} x", "1:4+1 syntax -: not valid JSON: expected the end of the file, found `x`"),
    ] {
        let problems = steadfast_jobfile::load("j.json", text.as_bytes(), &operator);
        assert_eq!(shown(&problems.expect_err(text)).trim(), expected);
    }
}
