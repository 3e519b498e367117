//! Runs simulated clusters: many seeds, one seed with its trace, or all defects that are to be found.

use std::process::ExitCode;

use steadfast_core::defects::Defect;
use steadfast_sim::cluster::{Parts, Sweep, hunt, run, shrink};

const USAGE: &str = "\
sim --seeds N [--from S] [--threads T] [--bug NAME]   many seeds; prints how often each thing occurred
    [--keep-going]                                    goes on after a seed that fails, and lists all of them
sim --seed S [--bug NAME] [--jobs 0,2] [--faults 1]   one seed, with its trace; of its jobs and faults only these
sim --shrink S [--bug NAME]                           a failing seed, with as few jobs and faults as still fail
sim --bugs [--seeds N]                                after how many seeds each defect is found, and by which check";

/// In a sweep of so many seeds everything must have occurred.
const LARGE: u64 = 1000;

#[derive(Default)]
struct Options {
    seeds: Option<u64>,
    from: u64,
    seed: Option<u64>,
    shrink: Option<u64>,
    threads: usize,
    bug: Option<Defect>,
    bugs: bool,
    keeps_going: bool,
    parts: Parts,
}

fn main() -> ExitCode {
    let options = match read(std::env::args().skip(1)) {
        Ok(options) => options,
        Err(why) => {
            eprintln!("{why}\n\n{USAGE}");
            return ExitCode::from(2);
        }
    };
    let bug = options.bug.map(|bug| format!(" --bug {}", bug.name())).unwrap_or_default();
    if options.bugs {
        return bugs(options.seeds.unwrap_or(200), options.bug);
    }
    if let Some(seed) = options.seed {
        let run = run(seed, &options.parts, options.bug, true);
        print!("{}", run.trace);
        println!("{} events, {} ms of virtual time", run.events, run.ended_at);
        return match run.violation {
            Some(violation) => {
                println!("seed {seed} violates {violation}");
                ExitCode::FAILURE
            }
            None => ExitCode::SUCCESS,
        };
    }
    if let Some(seed) = options.shrink {
        return made_smaller(seed, options.bug, &bug);
    }
    let Some(seeds) = options.seeds else {
        eprintln!("{USAGE}");
        return ExitCode::from(2);
    };
    let threads = if options.threads > 0 {
        options.threads
    } else {
        std::thread::available_parallelism().map_or(1, usize::from)
    };
    let Options { from, bug: defect, keeps_going, .. } = options;
    let swept = Sweep { from, seeds, threads, defect, keeps_going }.run();
    print!("{}", swept.counts);
    println!("{} seeds from {}, {} events", swept.seeds, options.from, swept.events);
    for found in &swept.found {
        println!("seed {} violates {}", found.seed, found.violation);
    }
    match &*swept.found {
        [found] if !keeps_going => return made_smaller(found.seed, defect, &bug),
        [] => {}
        all => {
            println!("{} of {} seeds fail", all.len(), swept.seeds);
            return ExitCode::FAILURE;
        }
    }
    let missing = swept.counts.missing();
    if seeds >= LARGE && !missing.is_empty() {
        println!("never occurred: {}", missing.join("; "));
        return ExitCode::FAILURE;
    }
    ExitCode::SUCCESS
}

fn made_smaller(seed: u64, defect: Option<Defect>, bug: &str) -> ExitCode {
    let (parts, violation) = shrink(seed, defect);
    let Some(violation) = violation else {
        println!("seed {seed} does not fail");
        return ExitCode::SUCCESS;
    };
    let list = |some: Option<Vec<usize>>| {
        let some: Vec<String> = some.unwrap_or_default().iter().map(usize::to_string).collect();
        if some.is_empty() { "none".to_owned() } else { some.join(",") }
    };
    println!("{violation}");
    println!(
        "replay: sim --seed {seed}{bug} --jobs {} --faults {}",
        list(parts.jobs),
        list(parts.faults)
    );
    println!("keep:   add `{seed} WHY` to crates/sim/seeds.txt");
    ExitCode::FAILURE
}

fn bugs(seeds: u64, only: Option<Defect>) -> ExitCode {
    let mut all_found = true;
    println!("| defect | found after | by |\n|---|---|---|");
    for defect in Defect::ALL.iter().filter(|defect| only.is_none_or(|only| only == **defect)) {
        match hunt(*defect, seeds) {
            Some((after, violation)) => {
                println!("| {} | {after} seeds | {} |", defect.name(), violation.invariant);
            }
            None => {
                all_found = false;
                println!("| {} | not within {seeds} | |", defect.name());
            }
        }
    }
    if all_found { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn read(mut words: impl Iterator<Item = String>) -> Result<Options, String> {
    let mut options = Options::default();
    while let Some(word) = words.next() {
        if word == "--bugs" {
            options.bugs = true;
            continue;
        }
        if word == "--keep-going" {
            options.keeps_going = true;
            continue;
        }
        let value = words.next().ok_or_else(|| format!("{word} wants a value"))?;
        let number = || value.parse().map_err(|_| format!("{word} wants a number, not {value:?}"));
        match &*word {
            "--seeds" => options.seeds = Some(number()?),
            "--from" => options.from = number()?,
            "--seed" => options.seed = Some(number()?),
            "--shrink" => options.shrink = Some(number()?),
            "--threads" => options.threads = number()? as usize,
            "--jobs" => options.parts.jobs = Some(list(&value)?),
            "--faults" => options.parts.faults = Some(list(&value)?),
            "--bug" => {
                let bug = Defect::ALL.iter().find(|defect| defect.name() == value);
                options.bug = Some(*bug.ok_or_else(|| format!("there is no defect {value:?}"))?);
            }
            _ => return Err(format!("{word} is not an option")),
        }
    }
    Ok(options)
}

fn list(value: &str) -> Result<Vec<usize>, String> {
    let numbers = value.split(',').filter(|number| !number.is_empty() && *number != "none");
    numbers.map(|n| n.trim().parse().map_err(|_| format!("{n:?} is not a number"))).collect()
}
