//! The job file as its author meets it.

mod dialects;
mod errors;
mod explained;
mod fuzz;
mod layers;
mod limits;
mod schema;
mod warnings;

use steadfast_jobfile::{JobFile, Operator, PROBLEM_CODES, Problem, load};

/// Jobs that load, each with something of the language in it.
pub const VALID: &[&str] = &[
    include_str!("valid/nightly.yaml"),
    include_str!("valid/everything.yaml"),
    include_str!("valid/dialects.yaml"),
    include_str!("valid/plain.json"),
];

pub fn read(text: &str) -> Result<JobFile, Vec<Problem>> {
    load("job.yaml", text.as_bytes(), &Operator::default())
}

pub fn valid(text: &str) -> JobFile {
    read(text).unwrap_or_else(|problems| panic!("{text}\n{}", shown(&problems)))
}

/// A job of one step, `s`, with these lines below its `run`.
pub fn step(lines: &str) -> String {
    format!("name: j\nsteps:\n  s:\n    run: 'true'\n    {lines}\n")
}

/// One line for each problem: its place, code, path, message and help.
pub fn shown(problems: &[Problem]) -> String {
    let line = |p: &Problem| {
        let known = PROBLEM_CODES.iter().any(|(code, _)| *code == p.code);
        assert!(known, "{} is not documented", p.code);
        let help = p.help.as_ref().map(|help| format!("\n    = {help}"));
        format!(
            "  {}:{}+{} {} {}: {}{}",
            p.line,
            p.column,
            p.length,
            p.code,
            if p.path.is_empty() { "-" } else { &p.path },
            p.message,
            help.unwrap_or_default()
        )
    };
    problems.iter().map(line).collect::<Vec<_>>().join("\n")
}

#[test]
fn every_valid_job_loads() {
    for text in VALID {
        valid(text);
    }
}
