//! Starting: exit codes, environment, folders, programs that cannot be started; ports.

use std::collections::HashSet;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use rustix::process::Signal;
use serde_json::json;
use steadfast_core::outcome::{FailureKind, Outcome};
use steadfast_worker::Ports;

use super::{Folder, error, kind, outcome};

fn make_file(folder: &Folder, name: &str, text: &str, mode: u32) {
    let path = folder.path(name);
    fs::write(&path, text).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
}

#[test]
fn exit_code_0_succeeds_and_leaves_no_file() {
    let folder = Folder::new();
    assert_eq!(outcome(&folder.argv(&["true"])), Outcome::OK);
    assert_eq!(fs::read_dir(folder.path("")).unwrap().count(), 0);
}

#[test]
fn exit_codes_and_signals_are_told_apart() {
    let folder = Folder::new();
    assert_eq!(kind(&folder.shell("exit 1")), FailureKind::Exited(1));
    assert_eq!(kind(&folder.shell("exit 137")), FailureKind::Exited(137));
    assert_eq!(kind(&folder.shell("exit 255")), FailureKind::Exited(255));
    assert_eq!(kind(&folder.shell("kill -9 $$")), FailureKind::Signalled(9));
    assert_eq!(kind(&folder.shell("kill -SEGV $$")), FailureKind::Signalled(11));
    assert_eq!(kind(&folder.shell("no-such-program-at-all")), FailureKind::Exited(127));
}

#[test]
fn a_missing_program_is_named() {
    let folder = Folder::new();
    for program in ["no-such-program", "./no-such-program", "/no/such/program", ""] {
        let (kind, message) = error(&folder.argv(&[program]));
        assert_eq!(kind, "not_found", "{message}");
        assert!(message.contains(&format!("{program:?}")), "{message}");
    }
    assert_eq!(error(&folder.argv(&[])).0, "not_found");
}

#[test]
fn what_cannot_be_executed_says_why() {
    let folder = Folder::new();
    make_file(&folder, "plain", "#!/bin/sh\n", 0o644);
    make_file(&folder, "no-shebang", "echo hello\n", 0o755);
    make_file(&folder, "no-interpreter", "#!/no/such/interpreter\n", 0o755);
    let (kind, message) = error(&folder.argv(&["./plain"]));
    assert_eq!(kind, "not_executable", "{message}");
    let (kind, message) = error(&folder.argv(&["./no-shebang"]));
    assert_eq!(kind, "not_executable", "{message}");
    assert!(message.contains("#!"), "{message}");
    let (kind, message) = error(&folder.argv(&["./no-interpreter"]));
    assert_eq!(kind, "not_found");
    assert!(message.contains("interpreter"), "{message}");
    let (kind, message) = error(&folder.argv(&["/"]));
    assert_eq!(kind, "not_executable", "{message}");
}

#[test]
fn a_bare_name_without_a_known_format_is_not_run_as_a_shell_script() {
    let folder = Folder::new();
    make_file(&folder, "no-shebang", "exit 0\n", 0o755);
    make_file(&folder, "plain", "#!/bin/sh\n", 0o644);
    let mut attempt = folder.argv(&["no-shebang"]);
    attempt.env = vec![("PATH".to_owned(), folder.path("").display().to_string())];
    assert_eq!(error(&attempt).0, "not_executable");
    attempt.command = folder.argv(&["plain"]).command;
    assert_eq!(error(&attempt).0, "not_executable");
}

#[test]
fn a_bare_name_is_looked_up_in_the_path_of_the_attempt() {
    let folder = Folder::new();
    fs::create_dir(folder.path("bin")).unwrap();
    make_file(&folder, "bin/tool", "#!/bin/sh\nexit 7\n", 0o755);
    for path in ["bin:/bin", "/nowhere:bin"] {
        let mut attempt = folder.argv(&["tool"]);
        attempt.env = vec![("PATH".to_owned(), path.to_owned())];
        assert_eq!(kind(&attempt), FailureKind::Exited(7));
    }
}

#[test]
fn too_many_arguments_are_a_failure_of_their_own() {
    let folder = Folder::new();
    let long = "x".repeat(1 << 20);
    let (kind, message) = error(&folder.argv(&["true", &long]));
    assert_eq!(kind, "argument_list_too_long");
    assert!(message.len() < 200, "{message}");
    assert_eq!(error(&folder.shell(&long)).0, "argument_list_too_long");
}

#[test]
fn a_nul_in_an_argument_is_refused() {
    let folder = Folder::new();
    assert_eq!(error(&folder.argv(&["true", "a\0b"])).0, "spawn_failed");
}

#[test]
fn a_missing_folder_is_not_mistaken_for_a_missing_program() {
    let folder = Folder::new();
    fs::write(folder.path("file"), "").unwrap();
    for cwd in ["missing", "file"] {
        let mut attempt = folder.argv(&["true"]);
        attempt.cwd = folder.path(cwd);
        let (kind, message) = error(&attempt);
        assert_eq!(kind, "workdir", "{message}");
        assert!(message.contains(cwd), "{message}");
    }
}

#[test]
fn the_environment_is_inherited_only_if_asked() {
    let folder = Folder::new();
    let mut attempt = folder.shell("env > seen; pwd > where");
    attempt.env = vec![("OWN".to_owned(), "a b=c".to_owned())];
    assert_eq!(outcome(&attempt), Outcome::OK);
    let seen = folder.read("seen");
    let names: HashSet<_> = seen.lines().filter_map(|line| line.split('=').next()).collect();
    // Set by cargo, and not passed on.
    assert!(!names.contains("CARGO_PKG_NAME"));
    assert!(names.contains("PATH"));
    assert!(seen.contains("OWN=a b=c\n"));
    assert!(seen.contains(&format!("STEADFAST_OUTPUT={}\n", attempt.output.display())));
    assert!(seen.contains(&format!("{}={}\n", attempt.mark.0, attempt.mark.1)));
    assert_eq!(
        folder.read("where").trim(),
        folder.path("").to_str().unwrap().trim_end_matches('/')
    );

    attempt.inherit_env = true;
    assert_eq!(outcome(&attempt), Outcome::OK);
    let seen = folder.read("seen");
    assert!(seen.contains("CARGO_PKG_NAME=steadfast-worker\n"));
    assert!(seen.contains("OWN=a b=c\n"));
}

#[test]
fn of_variables_with_the_same_name_the_last_counts() {
    let folder = Folder::new();
    let mut attempt = folder.argv(&["env"]);
    attempt.inherit_env = true;
    attempt.mark.0 = "MARK".to_owned();
    let set = [("OWN", "1"), ("MARK", "stolen"), ("CARGO_PKG_NAME", "mine"), ("OWN", "2")];
    attempt.env = set.map(|(name, value)| (name.to_owned(), value.to_owned())).to_vec();
    assert_eq!(outcome(&attempt), Outcome::OK);
    let seen = folder.read("logs/attempt.log");
    let values = |name: &str| -> Vec<_> {
        let variables = seen.lines().filter_map(|line| line.split_once('='));
        variables.filter(|(found, _)| *found == name).map(|(_, value)| value).collect()
    };
    assert_eq!(values("OWN"), ["2"]);
    assert_eq!(values("MARK"), [attempt.mark.1.as_str()]);
    assert_eq!(values("CARGO_PKG_NAME"), ["mine"]);
}

#[test]
fn a_nul_in_the_environment_is_refused() {
    let folder = Folder::new();
    let mut attempt = folder.argv(&["true"]);
    attempt.env = vec![("OWN".to_owned(), "a\0b".to_owned())];
    assert_eq!(error(&attempt).0, "spawn_failed");
}

/// Several at once, so that each could get what was opened for another.
#[test]
fn nothing_of_ours_is_open_or_blocked_in_a_process() {
    // Which `exec` does not close.
    let _open = rustix::io::dup(fs::File::open("/dev/null").unwrap()).unwrap();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..20 {
                    let folder = Folder::new();
                    // `ls` itself opens the fourth.
                    assert_eq!(outcome(&folder.argv(&["ls", "/proc/self/fd"])), Outcome::OK);
                    assert_eq!(folder.read("logs/attempt.log"), "0\n1\n2\n3\n");
                    let signals = folder.argv(&["grep", "^Sig", "/proc/self/status"]);
                    assert_eq!(outcome(&signals), Outcome::OK);
                    let seen = folder.read("logs/attempt.log");
                    let set = |name: &str| {
                        let line = seen.lines().find_map(|line| line.strip_prefix(name)).unwrap();
                        u64::from_str_radix(line.trim(), 16).unwrap()
                    };
                    assert_eq!(set("SigBlk:"), 0);
                    // Rust ignores SIGPIPE, which is not for others.
                    assert_eq!(set("SigIgn:") & (1 << (Signal::PIPE.as_raw() - 1)), 0);
                }
            });
        }
    });
}

#[test]
fn a_process_leads_a_group_of_its_own() {
    let folder = Folder::new();
    let attempt = folder.shell("cut -d ' ' -f 1,5 /proc/$$/stat");
    assert_eq!(outcome(&attempt), Outcome::OK);
    let seen = folder.read("logs/attempt.log");
    let (process, group) = seen.trim().split_once(' ').unwrap();
    assert_eq!(process, group);
}

#[test]
fn stdin_is_empty() {
    let folder = Folder::new();
    assert_eq!(outcome(&folder.shell("cat > seen")), Outcome::OK);
    assert_eq!(folder.read("seen"), "");
}

#[test]
fn output_is_read_when_it_is_json() {
    let folder = Folder::new();
    let attempt = folder.shell(r#"echo '{"rows": [1, 2]}' > "$STEADFAST_OUTPUT""#);
    assert_eq!(outcome(&attempt), Outcome::Succeeded { output: Some(json!({"rows": [1, 2]})) });
    assert_eq!(
        outcome(&folder.shell("echo null > output.json")),
        Outcome::Succeeded { output: Some(json!(null)) }
    );
    assert_eq!(outcome(&folder.shell(": > output.json")), Outcome::OK);
    assert_eq!(outcome(&folder.shell("rm output.json")), Outcome::OK);
    assert_eq!(kind(&folder.shell("echo '{' > output.json; exit 3")), FailureKind::Exited(3));
}

#[test]
fn what_a_failed_process_says_of_its_error_is_in_its_failure() {
    let folder = Folder::new();
    let said = |script: &str| match outcome(&folder.shell(script)) {
        Outcome::Failed(failure) => {
            assert_eq!(failure.kind, FailureKind::Exited(3));
            failure.error.map(|error| (error.kind.unwrap_or_default(), error.message))
        }
        other => panic!("{other:?}"),
    };
    let text = |kind: &str, message: &str| Some((kind.to_owned(), message.to_owned()));
    let script =
        r#"echo '{"type": "ValueError", "message": "bad", "more": 1}' > output.error; exit 3"#;
    assert_eq!(said(script), text("ValueError", "bad"));
    let script = r#"echo '{"message": "esc \u001b[31m"}' > output.error; exit 3"#;
    assert_eq!(said(script), text("", "esc \u{1b}[31m"), "text is data");
    let script = r#"echo '{"type": "KeyError"}' > output.error; exit 3"#;
    assert_eq!(said(script), text("KeyError", "KeyError"));
    let full = "{ printf '{\"message\": \"'; head -c 16369 /dev/zero | tr '\\0' x; printf '\"}'; }";
    let script = format!("{full} > output.error; exit 3");
    assert_eq!(said(&script).map(|(_, message)| message.len()), Some(16_369));
    let script = format!("{full} > output.error; printf ' ' >> output.error; exit 3");
    assert_eq!(said(&script), None, "more than 16 KiB");
    for nothing in
        ["echo '{' > output.error", "echo '{\"type\": 1}' > output.error", "rm output.error"]
    {
        assert_eq!(said(&format!("{nothing}; exit 3")), None, "{nothing}");
    }
    let fifo = "rm -f output.error; mkfifo output.error; exit 3";
    assert_eq!(said(fifo), None);
    let succeeded = r#"rm output.error; echo '{"message": "no matter"}' > output.error"#;
    assert_eq!(outcome(&folder.shell(succeeded)), Outcome::OK);
}

#[test]
fn output_that_is_not_json_or_too_large_is_a_failure() {
    let folder = Folder::new();
    let (kind, message) = error(&folder.shell("echo hello > output.json"));
    assert_eq!(kind, "output_invalid", "{message}");
    assert_eq!(error(&folder.shell("printf '\\377' > output.json")).0, "output_invalid");
    let mut attempt = folder.shell("echo '\"12345678\"' > output.json");
    attempt.output_cap = 10;
    let (kind, message) = error(&attempt);
    assert_eq!(kind, "output_too_large");
    assert!(message.contains("10 bytes"), "{message}");
    attempt.output_cap = 11;
    assert_eq!(outcome(&attempt), Outcome::Succeeded { output: Some(json!("12345678")) });
}

#[test]
fn an_output_that_is_no_file_does_not_block() {
    let folder = Folder::new();
    assert_eq!(error(&folder.shell("mkfifo output.json")).0, "output_invalid");
    assert_eq!(
        error(&folder.shell("rm output.json; ln -s /dev/zero output.json")).0,
        "output_invalid"
    );
    assert_eq!(error(&folder.shell("rm output.json; mkdir output.json")).0, "output_invalid");
}

#[test]
fn ports_are_distinct_while_held_and_can_be_bound() {
    let ports = Ports::new();
    let held: Vec<_> = (0..200).map(|_| ports.take().unwrap()).collect();
    let numbers: HashSet<_> = held.iter().map(steadfast_worker::Port::number).collect();
    assert_eq!(numbers.len(), held.len());
    std::net::TcpListener::bind(("127.0.0.1", held[0].number())).unwrap();
}

/// The lint says so too, but any module could allow it.
#[test]
fn unsafe_code_is_in_one_module() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let mut folders = vec![crates.to_owned()];
    let mut found = Vec::new();
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs")
                && fs::read_to_string(&path).unwrap().contains(concat!("unsafe", " {"))
            {
                found.push(path);
            }
        }
    }
    assert_eq!(found, [crates.join("worker/src/spawn.rs")]);
}
