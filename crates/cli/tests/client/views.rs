//! A job looks the same wherever it is looked at.

use crate::common::wait_for;
use crate::{HOLD, TestBed};

/// What `status` shows of a job, asked of the server and of its data folder: the same.
#[track_caller]
fn stands(bed: &TestBed, id: &str) -> String {
    let shown = |args: &[&str]| {
        let text = bed.says(args);
        // The server of this test does not hold its folder.
        let hints = ["output: ", "why: ", "it goes on when a server is started"];
        let fact = |line: &&str| !hints.iter().any(|hint| line.starts_with(hint));
        // A second may pass between the two.
        let same = |line: &str| match line.split_once(" for ") {
            Some((state, _)) if !line.starts_with(' ') => state.to_owned(),
            _ => line.to_owned(),
        };
        text.lines().skip(1).filter(fact).map(same).collect::<Vec<_>>().join("\n")
    };
    let data = bed.server.folder.root().to_str().expect("plain");
    loop {
        let there = shown(&["status", id]);
        let here = shown(&["status", id, "--data", data]);
        // A job that moves on while it is looked at is looked at again.
        if shown(&["status", id]) == there {
            assert_eq!(here, there);
            return there;
        }
    }
}

#[test]
fn status_shows_the_same_of_a_job_wherever_it_is_asked() {
    let bed = TestBed::new("same-view");
    let id = bed.submit(HOLD);
    wait_for("the attempt", || (bed.server.holds() == 1).then_some(()));
    assert_eq!(stands(&bed, &id), "  ▶ a  running · attempt 1\nrunning");
    bed.server.call_out();
    wait_for("progress", || {
        (bed.says(&["status", &id, "-o", "json"]).contains("\"p\"")).then_some(())
    });
    let waits = "  ▶ a  running · attempt 1 waits for its callback · {\"p\":1}\nrunning";
    assert_eq!(stands(&bed, &id), waits);
    bed.says(&["cancel", &id]);
    bed.call(&["wait", &id]);
    assert!(stands(&bed, &id).starts_with("  – a  cancelled\n"));

    let many = bed.submit("name: j\nsteps: { a: { run: hold, for_each: [x, y, z] } }");
    wait_for("the attempts", || (bed.server.holds() == 4).then_some(()));
    bed.server.call_out();
    wait_for("the callbacks", || {
        (stands(&bed, &many).contains("· 0 of 3 · 3 waiting for callbacks")).then_some(())
    });
    bed.says(&["cancel", &many]);
    wait_for("the end", || {
        (stands(&bed, &many).contains("– a  cancelled · 0 of 3, 3 cancelled")).then_some(())
    });

    let later = "name: j\nsteps: { a: { run: fail, retry: { backoff: fixed, initial_delay: 1h, \
                 max_delay: 1h } } }";
    let later = bed.submit(later);
    wait_for("a retry", || {
        (stands(&bed, &later).contains("running · attempt 2 in ")).then_some(())
    });
    assert!(stands(&bed, &later).contains("exit code 1"));
}

#[test]
fn what_stood_in_was_undone_or_failed_is_told_in_the_same_words() {
    let bed = TestBed::new("same-words");
    let id = bed.ended(
        "name: j\nretry: { max_attempts: 2, backoff: fixed, initial_delay: 1ms }\nsteps:\n  \
         a: { run: ok, compensate: { run: ok } }\n  \
         b: { run: fail, needs: [a], on_failure: { run: ok, then: continue } }\n  \
         c: { run: fail, for_each: [x, y], max_failed: 2, needs: [a] }\n  \
         d: { run: fail, for_each: [x], needs: [b, c] }\n",
    );
    let told = stands(&bed, &id);
    let lines = [
        "  ✓ a  succeeded · undone",
        "  ✗ b  failed · 2 attempts · fallback ran",
        "    b All attempts are used: exit code 1",
        "      attempt 2 of b prints ü",
        "  ✓ c  succeeded · 0 of 2, 2 failed · 4 attempts",
        "    c[0] x All attempts are used: exit code 1",
        "  ✗ d  failed · 2 attempts",
        "    d[0] x All attempts are used: exit code 1",
    ];
    for line in lines {
        assert!(told.lines().any(|told| told == line), "{line} is not in\n{told}");
    }
}
