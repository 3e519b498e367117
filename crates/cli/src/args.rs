//! What can be typed.

use std::path::PathBuf;

use clap::builder::styling::{AnsiColor, Styles};
use clap::{Parser, Subcommand, ValueEnum};
use clap_complete::Shell;

const STYLES: Styles = Styles::styled()
    .header(AnsiColor::Green.on_default().bold())
    .usage(AnsiColor::Green.on_default().bold())
    .literal(AnsiColor::Cyan.on_default().bold())
    .placeholder(AnsiColor::Cyan.on_default());

/// Runs jobs of flaky steps, and says why for every retry.
#[derive(Debug, Parser)]
#[command(name = "steadfast", version, styles = STYLES, max_term_width = 100)]
pub(crate) struct Args {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    Plan(PlanArgs),
    Rehearse(RehearseArgs),
    /// Print a completion script for a shell
    ///
    /// For bash: `steadfast completions bash > ~/.local/share/bash-completion/completions/steadfast`
    Completions {
        shell: Shell,
    },
}

/// Check a job file and show what its retries will do
///
/// For each step: the effective policy and where each value comes from, the delays, the limit that
/// binds first, the worst case in time. Nothing runs.
///
/// Exit status: 0 the file is valid, 2 it is not.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example: steadfast plan examples/flaky-pipeline.yaml")]
pub(crate) struct PlanArgs {
    /// The job file, YAML or JSON; `-` reads standard input
    pub(crate) file: PathBuf,
    #[arg(short, long, value_enum, default_value_t)]
    pub(crate) output: Output,
}

/// Play a job on a virtual clock with scripted outcomes
#[derive(Debug, clap::Args)]
#[command(
    long_about = REHEARSE,
    after_help = "Example: steadfast rehearse examples/flaky-pipeline.yaml \
                  --script examples/flaky-pipeline.script.yaml"
)]
pub(crate) struct RehearseArgs {
    /// The job file, YAML or JSON; `-` reads standard input
    pub(crate) file: PathBuf,
    /// The outcomes to play; without it every attempt succeeds at once
    #[arg(long, value_name = "FILE")]
    pub(crate) script: Option<PathBuf>,
    /// How many attempts run at once in each datacenter [default: no limit]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) slots: Option<u32>,
    /// Stop after so many decisions
    #[arg(long, value_name = "N", default_value_t = 1_000_000)]
    pub(crate) max_decisions: usize,
    /// Go on after a best-effort job has ended, to see its late results
    #[arg(long)]
    pub(crate) late: bool,
    #[arg(short, long, value_enum, default_value_t)]
    pub(crate) output: Output,
}

const REHEARSE: &str = "\
Play a job on a virtual clock with scripted outcomes

The whole job goes through the real engine, in milliseconds of real time: every decision with its
accounts, and the end. A script maps steps to the outcomes their attempts meet in turn; the last
one repeats, and a step without an entry succeeds:

  fetch: [exit:1@30s, ok]

Keys:      STEP, STEP[2], DC/STEP, DC/STEP[2]; STEP! is its fallback, STEP~ its compensation
Outcomes:  ok, ok=JSON, exit:N, signal:N, fail, permanent, not_completed (each of these three also
           with =TEXT), timeout, lost, not_started, http:STATUS, defer:DUR, never; @DUR after any
           of them is how long it takes
           down:DUR between two of them: the engine is down for so long

Exit status: 0 the job succeeded, 1 it failed or never ends, 3 partial, 4 cancelled, 2 the input is
wrong or --max-decisions was reached.";

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Output {
    /// For people
    #[default]
    Human,
    /// For programs
    Json,
}
