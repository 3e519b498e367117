//! All that a data folder or a database has, moved to the other.

use std::fs;
use std::ops::ControlFlow;

use serde_json::json;
use steadfast_core::event::JobId;
use steadfast_server::SETTINGS;
use steadfast_store::transfer::{
    MoveError, MoveOptions, MoveProgress, Moved, move_jobs, undo_move,
};
use steadfast_store::{is_postgres, movable_at};

use crate::args::{MigrateArgs, Output};
use crate::{Done, Exit, clock, input};

/// Between two words on how far it is.
const TELL_EVERY_MS: u64 = 5000;
/// Of jobs that are left behind, so many are named.
const NAMED: usize = 5;

pub(super) fn run(from: &str, to: &str, args: &MigrateArgs) -> Done {
    let output = args.common.output;
    let (from, to) = (place(from), place(to));
    let done = if args.undo { undo(&from, &to, output) } else { all(&from, &to, args) };
    match done {
        Ok(told) => told.map(|()| Exit::Ok),
        Err(error) => {
            let wrong = error.to_string();
            input::refuse("not_possible", &wrong, output).map(|()| Exit::Wrong)
        }
    }
}

/// A folder by the name that it has wherever one is.
fn place(given: &str) -> String {
    if is_postgres(given) {
        return given.to_owned();
    }
    let absolute = || std::path::absolute(given);
    fs::canonicalize(given)
        .or_else(|_| absolute())
        .map_or_else(|_| given.to_owned(), |path| path.display().to_string())
}

type MoveResult = Result<std::io::Result<()>, MoveError>;

fn all(from: &str, to: &str, args: &MigrateArgs) -> MoveResult {
    let (source, target) = (movable_at(from)?, movable_at(to)?);
    let options = MoveOptions { settings: &SETTINGS, skip_stuck: args.skip_stuck };
    let mut told_at = None;
    let moved = move_jobs(&*source, &*target, &options, clock::now(), &mut |at| {
        let now = clock::now();
        if told_at.is_none_or(|told| now.since(told) >= TELL_EVERY_MS) || at.jobs == at.of {
            let MoveProgress { jobs, of } = at;
            eprintln!("{jobs} of {of} jobs are moved and verified");
            told_at = Some(now);
        }
        ControlFlow::Continue(())
    })?;
    let place = target.place();
    Ok(match args.common.output {
        Output::Json => input::print_json(&json!({
            "from": source.place(), "to": place, "moved": moved,
        })),
        Output::Human => {
            tell(&moved, &source.place(), &place, to);
            Ok(())
        }
    })
}

fn tell(moved: &Moved, from: &str, place: &str, to: &str) {
    let Moved { jobs, open, files, logs, left, skipped } = moved;
    let count = |n: u64, one: &str| format!("{n} {one}{}", if n == 1 { "" } else { "s" });
    println!(
        "{place}: {}, {open} of them open, {} and {} are here, and were read back",
        count(*jobs, "job"),
        count(*files, "file"),
        count(*logs, "log")
    );
    if !left.is_empty() {
        println!(
            "{} of `run` stay at {from}, for `steadfast resume`: {}",
            count(left.len() as u64, "open job"),
            named(left)
        );
    }
    if !skipped.is_empty() {
        println!(
            "{} cannot be read, and stay at {from}: {}",
            count(skipped.len() as u64, "job"),
            named(skipped)
        );
    }
    let flag = if is_postgres(to) { "--store" } else { "--data" };
    println!("start the server with {flag} {place}; none starts with {from} any more");
}

fn named(jobs: &[JobId]) -> String {
    let some: Vec<&str> = jobs.iter().take(NAMED).map(|job| &**job).collect();
    let more = if jobs.len() > NAMED { ", …" } else { "" };
    format!("{}{more}", some.join(", "))
}

fn undo(from: &str, to: &str, output: Output) -> MoveResult {
    let (source, target) = (movable_at(from)?, movable_at(to)?);
    undo_move(&*source, &*target)?;
    let (from, to) = (source.place(), target.place());
    Ok(match output {
        Output::Json => input::print_json(&json!({ "from": from, "to": to, "undone": true })),
        Output::Human => {
            println!("{from} has its jobs again, as they were; no server starts with {to}");
            Ok(())
        }
    })
}
