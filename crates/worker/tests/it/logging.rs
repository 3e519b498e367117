//! The log: byte for byte, bounded, and never in the way of the outcome.

use std::fs;
use std::process::Command;

use steadfast_core::outcome::{FailureKind, Outcome};
use steadfast_worker::Attempt;

use super::{Folder, kind, outcome};

#[test]
fn output_is_kept_byte_for_byte_and_in_order() {
    let folder = Folder::new();
    let bytes: Vec<u8> =
        (0..200_000u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    fs::write(folder.path("bytes"), &bytes).unwrap();
    assert_eq!(outcome(&folder.shell("cat bytes; cat bytes >&2; printf end")), Outcome::OK);
    assert_eq!(
        fs::read(folder.path("logs/attempt.log")).unwrap(),
        [&bytes[..], &bytes, b"end"].concat()
    );
}

#[test]
fn when_something_was_printed_is_kept_beside_the_log_if_it_took_its_time() {
    let folder = Folder::new();
    let times = folder.path("logs/attempt.times");
    let timed = |script: &str| Attempt { log_times: true, ..folder.shell(script) };
    assert_eq!(outcome(&timed("echo a; echo b")), Outcome::OK);
    assert!(!times.exists(), "all at once");
    assert_eq!(outcome(&timed("echo a; sleep 0.3; echo bc; echo d")), Outcome::OK);
    let text = fs::read_to_string(&times).unwrap();
    let marks: Vec<(u64, u64)> = text
        .lines()
        .map(|line| line.split_once(' ').unwrap())
        .map(|(offset, ms)| (offset.parse().unwrap(), ms.parse().unwrap()))
        .collect();
    assert_eq!(marks.iter().map(|(offset, _)| *offset).collect::<Vec<_>>()[..2], [0, 2], "{text}");
    assert!(marks[1].1 - marks[0].1 >= 200, "{text}");
}

/// Holds a log against what was printed: head, the line, tail, and not a byte unaccounted for.
fn check(log: &[u8], printed: &[u8], cap: usize) {
    let room = cap + 64;
    if printed.len() <= room {
        assert_eq!(log, printed);
        return;
    }
    assert_eq!(log.len(), room);
    let head = cap / 2;
    assert_eq!(log[..head], printed[..head]);
    let rest = &log[head..];
    let rest = if head == 0 || printed[head - 1] == b'\n' {
        rest
    } else {
        rest.strip_prefix(b"\n").unwrap()
    };
    let line = rest.split_inclusive(|byte| *byte == b'\n').next().unwrap();
    let text = std::str::from_utf8(line).unwrap();
    let left_out: usize = text
        .strip_prefix("… ")
        .and_then(|text| text.strip_suffix(" bytes left out …\n"))
        .unwrap()
        .parse()
        .unwrap();
    let end = &rest[line.len()..];
    assert!(end.len() >= cap - cap / 2);
    assert_eq!(head + left_out + end.len(), printed.len());
    assert_eq!(end, &printed[printed.len() - end.len()..]);
}

#[test]
fn head_and_tail_are_right_at_every_size() {
    let folder = Folder::new();
    let printed: Vec<u8> =
        (0..700u32).flat_map(|line| format!("{line:05}\n").into_bytes()).collect();
    fs::write(folder.path("printed"), &printed).unwrap();
    for cap in [0, 1, 2, 7, 100, 1000] {
        for size in [1, 63, 64, 65, 66, 71, 164, 165, 1063, 1064, 1065, 1066, 1264, 2000, 4200] {
            let mut attempt = folder.argv(&["head", "-c", &size.to_string(), "printed"]);
            attempt.log_cap = cap;
            assert_eq!(outcome(&attempt), Outcome::OK);
            let log = fs::read(&attempt.log).unwrap();
            check(&log, &printed[..size], cap as usize);
            fs::remove_file(&attempt.log).unwrap();
        }
    }
}

#[test]
fn a_flood_keeps_its_head_and_its_tail() {
    let folder = Folder::new();
    let mut attempt = folder.shell("seq 1 23000000; exit 9");
    attempt.log_cap = 1 << 20;
    assert_eq!(kind(&attempt), FailureKind::Exited(9));
    let log = fs::read(&attempt.log).unwrap();
    assert_eq!(log.len(), (1 << 20) + 64);
    assert!(log.starts_with(b"1\n2\n3\n"));
    assert!(log.ends_with(b"\n22999999\n23000000\n"));
    // Digits and line ends of all the numbers.
    let printed: u64 = 9 * 2
        + 90 * 3
        + 900 * 4
        + 9_000 * 5
        + 90_000 * 6
        + 900_000 * 7
        + 9_000_000 * 8
        + 13_000_001 * 9;
    let text = String::from_utf8(log).unwrap();
    let (head, rest) = text.split_once("… ").unwrap();
    let (left_out, end) = rest.split_once(" bytes left out …\n").unwrap();
    // The line may have had to break one of the printed lines.
    let head = if head.len() > 1 << 19 { &head[..1 << 19] } else { head };
    assert_eq!(head.len() as u64 + left_out.parse::<u64>().unwrap() + end.len() as u64, printed);
    // No number is missing or out of order on either side.
    let numbers =
        |text: &str| text.lines().map(|line| line.parse::<u64>().unwrap()).collect::<Vec<_>>();
    let head = numbers(&head[..=head.rfind('\n').unwrap()]);
    assert!(head.iter().copied().eq(1..=head.len() as u64));
    let end = numbers(&end[end.find('\n').unwrap() + 1..]);
    assert!(end.iter().copied().eq(23_000_001 - end.len() as u64..=23_000_000));
}

#[test]
fn a_log_that_cannot_be_written_does_not_cost_the_outcome() {
    let folder = Folder::new();
    fs::write(folder.path("logs"), "a file where a folder should be").unwrap();
    assert_eq!(kind(&folder.shell("seq 1 100000; exit 8")), FailureKind::Exited(8));
}

/// A file system of 1 MiB, if we may mount one.
struct Small(Folder);

impl Small {
    fn mount() -> Option<Self> {
        let folder = Folder::new();
        let options = ["-t", "tmpfs", "-o", "size=1m", "tmpfs"];
        let mounted = Command::new("mount").args(options).arg(folder.path("")).output().ok()?;
        mounted.status.success().then_some(Self(folder))
    }
}

impl Drop for Small {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(self.0.path("")).status();
    }
}

#[test]
fn a_full_disk_does_not_cost_the_outcome_and_is_noted() {
    let Some(small) = Small::mount() else {
        eprintln!("skipped: mounting a small file system takes root");
        return;
    };
    let folder = Folder::new();
    let mut attempt = folder.shell("seq 1 1000000; exit 8");
    attempt.log = small.0.path("logs/attempt.log");
    assert_eq!(kind(&attempt), FailureKind::Exited(8));
    let log = fs::read_to_string(&attempt.log).unwrap();
    assert!(log.starts_with("1\n2\n3\n"));
    assert!(log.ends_with("more bytes could not be written: the disk is nearly full …\n"), "{log}");
    let disk = rustix::fs::statvfs(small.0.path("")).unwrap();
    assert!(disk.f_bavail > disk.f_blocks / 20, "something is left for reports");
}
