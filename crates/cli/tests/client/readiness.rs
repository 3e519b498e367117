//! `steadfast readiness`, of a server and of its data folder.

use serde_json::Value;

use crate::TestBed;
use crate::common::wait_for;

const JOB: &str = "name: j\nretry: { backoff: fixed, initial_delay: 1h, max_delay: 1h }\nsteps:\n  \
                   a: { run: fail, retry: { max_attempts: unlimited } }\n  \
                   b: { run: hold, for_each: { range: 1000 }, parallelism: 1 }\n  \
                   c: { run: fail, retry: { retryable: false }, on_failure: { then: continue } }\n  \
                   d: { run: hold, needs: [c] }\n";

/// Without the time at which it was asked.
fn page(bed: &TestBed, args: &[&str]) -> Value {
    let mut page = bed.json(args);
    assert!(page["at_ms"].take().is_u64(), "{page}");
    page
}

/// Once nothing happens to the job any more by itself.
fn settled(bed: &TestBed) -> String {
    let id = bed.submit(JOB);
    wait_for("three ends and two attempts", || {
        let rows = bed.json(&["readiness", &id])["readiness"].take();
        let reason = |row: usize| rows[row]["reason"].as_str().unwrap_or_default().to_owned();
        let is = [reason(0), reason(1), reason(3), reason(4)];
        (is == ["backing_off", "running", "not_retryable", "running"]).then_some(())
    });
    id
}

#[test]
fn a_server_and_its_data_folder_say_alike_what_may_start() {
    let bed = TestBed::new("readiness");
    let id = settled(&bed);
    let data = bed.server.folder.root().to_str().expect("plain");
    let there = page(&bed, &["readiness", &id]);
    assert_eq!(page(&bed, &["readiness", &id, "--data", data]), there);
    assert_eq!(there["readiness"][2]["items"], 999);
    let by_two = |cursor: &[&str]| {
        let args = [&["readiness", &id, "--limit", "2"], cursor].concat();
        let of_folder = page(&bed, &[&args[..], &["--data", data]].concat());
        let page = page(&bed, &args);
        assert_eq!(of_folder, page);
        page
    };
    let mut all = by_two(&[]);
    while let Some(next) = all["next"].as_str().map(str::to_owned) {
        let mut more = by_two(&["--cursor", &next]);
        all["next"] = more["next"].take();
        let rows = more["readiness"].as_array().expect("rows").clone();
        all["readiness"].as_array_mut().expect("rows").extend(rows);
    }
    assert_eq!(all, there);
    for place in [&[][..], &["--data", data]] {
        let why = bed.refuses(&[&["readiness", &id, "--cursor", "x"], place].concat());
        assert!(why.contains('x'), "{why}");
    }
}

#[test]
fn people_see_what_may_start_in_a_table() {
    let bed = TestBed::new("readiness-table");
    let id = settled(&bed);
    let lines = |args: &[&str]| -> Vec<String> {
        let words = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
        bed.says(args).lines().map(words).collect()
    };
    let table = lines(&["readiness", &id]);
    assert_eq!(table[0], "item needs attempts failures eligible retry ready");
    assert!(table[1].starts_with("a met 1 1 yes in "), "{table:?}");
    assert!(table[1].ends_with(" backing off"), "{table:?}");
    let rest = [
        "b[0] met 1 0 of 3 yes running",
        "b[1-999] met 0 0 of 3 yes parallelism",
        "c met 1 1 of 3 no not retryable",
        "d met 1 0 of 3 yes running",
    ];
    assert_eq!(table[2..], rest);
    bed.says(&["pause", &id]);
    assert_eq!(lines(&["readiness", &id])[3], "b[1-999] met 0 0 of 3 yes paused");
    let few = lines(&["readiness", &id, "--limit", "1"]);
    assert_eq!((few.len(), few[2].as_str()), (3, "more with --cursor 0.1.0.0"));
    assert!(few[1].starts_with("a met"), "{few:?}");
}
