//! A job and its logs, as they go.

use super::*;

#[test]
fn logs_are_told_in_order_and_followed_to_the_end() {
    let mut bed = TestBed::new("logs");
    let id = bed.ended("name: l\nsteps: { z: { run: ok }, a: { run: ok, needs: [z] } }");
    let both = "== z_0_attempt_1 ==\nattempt 1 of z prints ü\n\
                == a_0_attempt_1 ==\nattempt 1 of a prints ü\n";
    assert_eq!(bed.says(&["logs", &id]), both);
    assert_eq!(bed.says(&["logs", &id, "a"]), "attempt 1 of a prints ü\n");
    assert!(bed.refuses(&["logs", &id, "none"]).contains("no step"));
    let text = bed.says(&["logs", &id, "a", "-o", "json"]);
    let piece: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(piece["text"], "attempt 1 of a prints ü\n");
    assert_eq!((&piece["step"], &piece["offset"]), (&"a".into(), &0.into()));

    let id = bed.submit("name: l\nsteps: { a: { run: hold }, b: { run: ok, needs: [a] } }");
    let mut following = bed.start(&["logs", "-f", &id]);
    let mut lines = BufReader::new(following.stdout.take().unwrap()).lines().map(Result::unwrap);
    assert_eq!(lines.next().unwrap(), "attempt 1 of a prints ü");
    bed.server.release();
    let rest: Vec<String> = lines.collect();
    assert_eq!(rest, ["== b_0_attempt_1 ==", "attempt 1 of b prints ü"]);
    assert_eq!(exit(&following.wait_with_output().unwrap()), Some(0));
    bed.server.close();
}

#[test]
fn a_job_is_watched_to_its_end() {
    let bed = TestBed::new("watch");
    let id = bed.submit(HOLD);
    let mut watching = bed.start(&["watch", &id]);
    let mut lines = BufReader::new(watching.stdout.take().unwrap()).lines().map(Result::unwrap);
    assert_eq!(lines.next().unwrap(), "a attempt 1 started");
    bed.server.release();
    let rest: Vec<String> = lines.collect();
    assert_eq!(rest[0], "a succeeded");
    assert!(rest.iter().any(|line| line.starts_with("succeeded after")), "{rest:?}");
    assert_eq!(exit(&watching.wait_with_output().unwrap()), Some(0));
}
