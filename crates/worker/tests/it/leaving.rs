//! What an attempt leaves behind when it has ended by itself.

use std::fs;

use steadfast_core::outcome::{ErrorText, Outcome};
use steadfast_worker::{Attempt, Ended, Mask, Stop, run};

use crate::{Folder, is_alive};

/// Starts what is to outlive it, in a session of its own and with nothing open, and waits for its number.
fn leaving(how: &str) -> String {
    format!(
        "{how} sh -c 'echo $$ > left.new; mv left.new left; exec sleep 1000' < /dev/null > /dev/null 2>&1 &
         until [ -e left ]; do sleep 0.01; done"
    )
}

fn ran(attempt: &Attempt) -> Ended {
    run(attempt, &Stop::new().unwrap())
}

fn left(folder: &Folder) -> i32 {
    folder.read("left").trim().parse().unwrap()
}

#[test]
fn what_left_its_session_and_closed_its_output_is_killed_when_the_attempt_has_ended() {
    let folder = Folder::new();
    let ended = ran(&folder.shell(&leaving("setsid")));
    assert_eq!(ended, Ended::Outcome(Outcome::Succeeded { output: None }));
    assert!(!is_alive(left(&folder)));
}

#[test]
fn a_control_group_reaches_what_dropped_its_environment_too() {
    let folder = Folder::new();
    let grouped = |script: &str| Attempt { grouped: true, ..folder.shell(script) };
    ran(&grouped("cat /proc/self/cgroup"));
    let own = folder.read("logs/attempt.log");
    if !own.contains("steadfast-") {
        println!("left out: this process can make no control groups, and is in {own}");
        return;
    }
    ran(&grouped(&leaving("setsid env -i")));
    assert!(!is_alive(left(&folder)));
    // And nothing of the groups is left.
    let path = own.lines().find_map(|line| line.strip_prefix("0::")).unwrap();
    for mount in ["/sys/fs/cgroup", "/sys/fs/cgroup/unified"] {
        assert!(!fs::exists(format!("{mount}{path}")).unwrap());
    }
}

#[test]
fn secrets_are_in_nothing_that_is_said_of_an_attempt() {
    let folder = Folder::new();
    let secrets = ["s3cret-of-mine".to_owned()];
    let masked = |script: &str| Attempt { mask: Mask::new(&secrets), ..folder.shell(script) };
    let script = r#"printf 'begin s3cret-'; sleep 0.05; printf 'of-mine end\n'
        echo '{"said": "s3cret-of-mine!"}' > "$STEADFAST_OUTPUT""#;
    let output = serde_json::json!({ "said": "…!" });
    assert_eq!(ran(&masked(script)), Ended::Outcome(Outcome::Succeeded { output: Some(output) }));
    assert_eq!(folder.read("logs/attempt.log"), "begin … end\n");
    let script = r#"echo '{"message": "no s3cret-of-mine here"}' > output.error; exit 3"#;
    let Ended::Outcome(Outcome::Failed(failure)) = ran(&masked(script)) else {
        panic!("it has failed")
    };
    let error = ErrorText { kind: None, message: "no … here".to_owned() };
    assert_eq!(failure.error, Some(error));
}
