//! Rows that a disk has garbled: refused, and never taken for something else.

use std::sync::Arc;

use steadfast_core::event::RecordedEvent;
use steadfast_core::plan::{Plan, PlanDraft};
use steadfast_core::time::Timestamp;
use steadfast_fuzz::{Fuzz, Shape};

use super::*;

/// One of most kinds, and several of some.
const EVENTS: &str = include_str!("../dictionary.txt");

/// Rows as a store makes them, with what was put into them.
fn rows() -> Vec<(Lines, Vec<String>)> {
    let whole = |line: &str| format!("[{}]", line.trim_matches(['[', ']', '\n']));
    let lines = EVENTS.split(BETWEEN).flat_map(|it| it.split("],[")).map(whole);
    // What it says of a job that was accepted, and one word, are of no event.
    let is_event = |line: &String| serde_json::from_str::<(Timestamp, Event)>(line).is_ok();
    let lines: Vec<String> = lines.filter(is_event).collect();
    assert!(lines.len() > 19, "{lines:#?}");
    let mut rows = Vec::new();
    for (nth, size) in [(0, 1), (1, 2), (3, 7), (5, 3), (10, 9)] {
        let part = lines[nth..nth + size].to_vec();
        let first = nth as u64 + 2;
        let last = first + size as u64 - 1;
        rows.push((Lines { first, last, text: part.join(BETWEEN) }, part));
    }
    // Too short to be packed.
    let short = r#"[7,{"event":"JobPaused"}]"#.to_owned();
    rows.push((Lines { first: 2, last: 2, text: short.clone() }, vec![short]));
    rows
}

/// A row on a disk: its numbers, whether it is packed, its checksum, its bytes.
fn stored(row: &Lines) -> Vec<u8> {
    let (packed, crc) = row.packed();
    let (first, last) = (row.first.to_le_bytes(), row.last.to_le_bytes());
    let flag = [u8::from(packed.is_compressed())];
    [&first[..], &last, &flag, &crc.to_le_bytes(), packed.bytes()].concat()
}

fn read(
    bytes: &[u8],
    check: impl Fn(&StoredLines<'_>) -> i64,
) -> Result<Vec<RecordedEvent>, String> {
    let Some((head, bytes)) = bytes.split_at_checked(21) else { return Err("cut".to_owned()) };
    let number = |at: usize| u64::from_le_bytes(head[at..at + 8].try_into().expect("eight"));
    let crc = u32::from_le_bytes(head[17..].try_into().expect("four"));
    let mut row = StoredLines {
        first: number(0),
        last: number(8),
        bytes,
        is_compressed: head[16] & 1 == 1,
        crc: i64::from(crc),
    };
    row.crc = check(&row);
    let mut page = LogPage::new("a", row.first.saturating_sub(1), 100);
    let plan = |_: &PlanArguments| -> Result<Arc<Plan>, Damage> {
        Plan::new(PlanDraft::new("p", vec![])).map(Arc::new).map_err(|_| Damage::new("a", "p", "p"))
    };
    page.add(&row, plan).map_err(|damage| format!("{}: {}", damage.place, damage.why))?;
    Ok(page.into_events())
}

#[test]
fn a_garbled_row_is_refused_and_named() {
    let good: Vec<(Vec<u8>, Vec<String>)> =
        rows().into_iter().map(|(row, lines)| (stored(&row), lines)).collect();
    let corpus = good.iter().map(|(row, _)| row);
    Fuzz::new(Shape::Text, 20_000).corpus(corpus).run(|input| {
        let mut plain = input.to_vec();
        if let Some(flag) = plain.get_mut(16) {
            *flag &= 1;
        }
        let known = good.iter().find(|(row, _)| *row == plain);
        match (read(&plain, |row| row.crc), known) {
            (Err(why), None) => assert!(!why.is_empty()),
            (Ok(events), Some((_, lines))) => {
                let event = |line: &String| serde_json::from_str(line).expect("an event");
                let put: Vec<(Timestamp, Event)> = lines.iter().map(event).collect();
                let got: Vec<_> = events.into_iter().map(|it| (it.at, it.event)).collect();
                assert_eq!(got, put);
            }
            (read, known) => panic!("{read:?} of {:?}", known.is_some()),
        }
    });
}

/// A checksum that fits says nothing of a program that wrote nonsense.
#[test]
fn nonsense_with_a_checksum_is_read_or_refused_within_its_size() {
    let good: Vec<Vec<u8>> = rows().iter().map(|(row, _)| stored(row)).collect();
    Fuzz::new(Shape::Text, 20_000).corpus(&good).run(|input| {
        let _ = read(input, |row| i64::from(crc(row.first, row.last, row.bytes)));
    });
}

#[test]
fn an_event_that_can_be_read_is_written_as_it_was_read() {
    let lines: Vec<String> = rows().into_iter().flat_map(|(_, lines)| lines).collect();
    Fuzz::new(Shape::Text, 20_000).corpus(&lines).run(|input| {
        let Ok(read) = serde_json::from_slice::<(Timestamp, Event)>(input) else { return };
        let written = serde_json::to_string(&read).expect("an event is JSON");
        let again: (Timestamp, Event) = serde_json::from_str(&written).expect("it was written");
        assert_eq!(again, read, "{written}");
        assert!(!written.contains(BETWEEN), "{written}");
    });
}
