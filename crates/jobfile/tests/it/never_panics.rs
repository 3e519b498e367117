use proptest::prelude::*;
use steadfast_core::template;
use steadfast_jobfile::{Operator, load, parse_duration, parse_size};

use crate::VALID;

fn check(text: &[u8]) {
    if let Err(problems) = load("j.yaml", text, &Operator::default()) {
        assert!(!problems.is_empty());
        for problem in problems {
            assert!(problem.line > 0 && problem.column > 0 && problem.length > 0);
            let help = problem.help.as_deref().unwrap_or_default();
            for text in [&problem.message, &problem.path, help] {
                assert!(!text.contains(char::is_control), "{problem:?}");
            }
        }
    }
}

/// Pieces that mean something somewhere.
const PIECES: &[&str] = &[
    ": ",
    "- ",
    "\n",
    "  ",
    "{",
    "}",
    "[",
    "]",
    "&a ",
    "*a",
    "!t ",
    "|",
    ">",
    "\"",
    "'",
    "#",
    "?",
    "<<: *a",
    "---\n",
    "\t",
    "\r",
    "{{ item }}",
    "{{",
    "}}",
    "unlimited",
    "-1",
    "0",
    "1e400",
    ".nan",
    "99999999999999999999",
    "30s",
    "5%",
    "null",
    "retry: ",
    "steps: ",
    "é",
    "\u{feff}",
    "\u{85}",
    "\\",
];

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(400) })]

    #[test]
    fn on_bytes(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        check(&bytes);
    }

    #[test]
    fn on_pieces(pieces in proptest::collection::vec(proptest::sample::select(PIECES), 0..40)) {
        check(pieces.concat().as_bytes());
    }

    #[test]
    fn on_jobs_with_something_replaced(
        job in proptest::sample::select(VALID),
        edits in proptest::collection::vec((any::<prop::sample::Index>(), 0usize..12, proptest::sample::select(PIECES)), 1..4),
    ) {
        let mut text = job.as_bytes().to_vec();
        for (at, length, piece) in edits {
            let start = at.index(text.len());
            let end = (start + length).min(text.len());
            text.splice(start..end, piece.bytes());
        }
        check(&text);
    }

    #[test]
    fn on_small_texts(text in ".{0,30}") {
        let _ = parse_duration(&text);
        let _ = parse_size(&text);
        let _ = template::parse(&text);
    }
}
