//! Arguments of commands about jobs, on a server or in a data folder.

use std::path::PathBuf;
use std::time::Duration;

use serde_json::Value;
use steadfast_api::ShownState;
use steadfast_core::event::Requester;

use super::{Here, JOB, JobName, LocalArgs, Output, Remote, age, duration};

/// Hand a job to a server, and print its id
///
/// The files that it names in `files` go with it. Should the connection break, it is tried again
/// with the same idempotency key: it is one job, whatever happens.
///
/// With --each the file has a job in each line, as JSON, and each is accepted or refused by itself: the ids are printed
/// in order, what is wrong with a line beside them.
///
/// Exit status: 0 accepted, 2 the input is wrong, 5 no server; with --wait as `steadfast wait`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples: steadfast submit --wait examples/flaky-pipeline.yaml\n          \
                        steadfast submit --each jobs.ndjson > ids.txt"
)]
pub(crate) struct SubmitArgs {
    /// The job file, YAML or JSON; `-` reads standard input
    pub(crate) file: PathBuf,
    /// The file has many jobs, one in each line
    #[arg(long, conflicts_with = "wait")]
    pub(crate) each: bool,
    /// Wait for its end, and show it as it goes
    #[arg(long)]
    pub(crate) wait: bool,
    /// The same key with the same file is the same job, with --each each of its lines [default: a new one each time]
    #[arg(long, value_name = "KEY")]
    pub(crate) idempotency_key: Option<String>,
    #[arg(short, long, value_enum, default_value_t)]
    pub(crate) output: Output,
    #[command(flatten)]
    pub(crate) remote: Remote,
}

/// Wait until a job of a server has ended, and tell how
///
/// A server that restarts meanwhile is waited for: within --timeout, or for ten minutes without one.
///
/// Exit status: 0 succeeded, 1 failed, 3 partial, 4 cancelled, 124 it goes on after --timeout,
/// 130 interrupted, 5 no server or lost it.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example: steadfast wait last --timeout 30m")]
pub(crate) struct WaitArgs {
    #[command(flatten)]
    pub(crate) job: JobName,
    /// Stop waiting after so long; the job goes on
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    pub(crate) timeout: Option<Duration>,
    #[arg(short, long, value_enum, default_value_t)]
    pub(crate) output: Output,
    #[command(flatten)]
    pub(crate) remote: Remote,
}

/// A job of a server.
#[derive(Debug, clap::Args)]
pub(crate) struct ServerJobArgs {
    #[command(flatten)]
    pub(crate) job: JobName,
    #[arg(short, long, value_enum, default_value_t)]
    pub(crate) output: Output,
    #[command(flatten)]
    pub(crate) remote: Remote,
}

/// A job of a server or of the data folder.
#[derive(Debug, clap::Args)]
pub(crate) struct EitherJobArgs {
    #[command(flatten)]
    pub(crate) of: JobArgs,
    #[command(flatten)]
    pub(crate) remote: Remote,
}

/// Why an operator does something to a job.
#[derive(Debug, Default, clap::Args)]
pub(crate) struct ReasonArg {
    /// Why, for whoever reads the job's history
    #[arg(long, value_name = "TEXT", value_parser = reason)]
    pub(crate) reason: Option<String>,
}

fn reason(text: &str) -> Result<String, String> {
    Requester::local(Some(text)).map_err(|why| why.to_string())?;
    Ok(text.to_owned())
}

#[derive(Debug, clap::Args)]
pub(crate) struct CancelArgs {
    #[command(flatten)]
    pub(crate) of: JobArgs,
    #[command(flatten)]
    pub(crate) why: ReasonArg,
    #[command(flatten)]
    pub(crate) remote: Remote,
}

#[derive(Debug, clap::Args)]
pub(crate) struct PauseArgs {
    #[command(flatten)]
    pub(crate) of: ServerJobArgs,
    #[command(flatten)]
    pub(crate) why: ReasonArg,
}

#[derive(Debug, clap::Args)]
pub(crate) struct HistoryArgs {
    #[command(flatten)]
    pub(crate) of: JobArgs,
    /// Only of this step or item, as it is printed: fetch, index[2], eu-west/index[2], publish!
    #[arg(long, value_name = "STEP")]
    pub(crate) step: Option<String>,
    #[command(flatten)]
    pub(crate) remote: Remote,
}

#[derive(Debug, clap::Args)]
pub(crate) struct WorkersArgs {
    #[arg(short, long, value_enum, default_value_t)]
    pub(crate) output: Output,
    #[command(flatten)]
    pub(crate) remote: Remote,
}

/// Give a worker nothing new: it finishes what it has
#[derive(Debug, clap::Args)]
#[command(after_help = "Example: steadfast drain rack-3")]
pub(crate) struct DrainArgs {
    /// The worker's name, as `steadfast workers` shows it
    pub(crate) worker: String,
    #[arg(short, long, value_enum, default_value_t)]
    pub(crate) output: Output,
    #[command(flatten)]
    pub(crate) remote: Remote,
}

/// Go on with a job that was interrupted, or that was paused on a server
///
/// Of a data folder or a database: processes that the interrupted run left behind are ended first; their attempts
/// count as losses of the worker, not as failures. Budgets and delays go on where they stood. With --store on any machine that has the
/// job file at the same place; a run elsewhere that has not been heard of for 3 s is taken for dead, and cannot write the job any more.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example: steadfast resume last")]
pub(crate) struct ResumeArgs {
    #[command(flatten)]
    pub(crate) job: JobName,
    /// Go on although the job file has changed; the job stays as it was accepted
    #[arg(long)]
    pub(crate) changed: bool,
    #[command(flatten)]
    pub(crate) why: ReasonArg,
    #[command(flatten)]
    pub(crate) here: Here,
    #[command(flatten)]
    pub(crate) common: LocalArgs,
    #[command(flatten)]
    pub(crate) remote: Remote,
}

/// Run a job that has ended again, as a new job that keeps what succeeded
///
/// Without --grant everything that did not succeed starts anew, under the same limits. With it, what
/// failed goes on where it stood, with so many more attempts, and as many more retries in the budget.
///
/// On a server the new job's id is printed, and nothing is waited for.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example: steadfast retry last --grant 2")]
pub(crate) struct RetryArgs {
    #[command(flatten)]
    pub(crate) job: JobName,
    /// Run this step and all that need it again, also if they succeeded
    #[arg(long, value_name = "STEP")]
    pub(crate) from: Option<String>,
    /// Attempts and retries to give on top
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) grant: Option<u32>,
    #[command(flatten)]
    pub(crate) why: ReasonArg,
    #[command(flatten)]
    pub(crate) here: Here,
    #[command(flatten)]
    pub(crate) common: LocalArgs,
    #[command(flatten)]
    pub(crate) remote: Remote,
}

/// List jobs, newest first
#[derive(Debug, clap::Args)]
#[command(after_help = "Example: steadfast list --state failed")]
pub(crate) struct ListArgs {
    /// Only jobs in this state: pending, running, paused, succeeded, partial, failed, cancelled or
    /// interrupted
    #[arg(long)]
    pub(crate) state: Option<ShownState>,
    /// Only jobs of this name
    #[arg(long)]
    pub(crate) name: Option<String>,
    /// Only jobs with this label
    #[arg(long, value_name = "NAME=VALUE", value_parser = label)]
    pub(crate) label: Option<(String, String)>,
    /// How many at most
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = limit)]
    pub(crate) limit: usize,
    /// Go on after an earlier page
    #[arg(long)]
    pub(crate) cursor: Option<String>,
    #[command(flatten)]
    pub(crate) common: LocalArgs,
    #[command(flatten)]
    pub(crate) remote: Remote,
}

fn label(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() => Ok((name.to_owned(), value.to_owned())),
        _ => Err("write it as NAME=VALUE".to_owned()),
    }
}

/// As many as a server gives at once.
fn limit(text: &str) -> Result<usize, String> {
    let number = text.parse().ok().filter(|limit| (1..=1000).contains(limit));
    number.ok_or_else(|| "it must be a whole number from 1 to 1000".to_owned())
}

#[derive(Debug, clap::Args)]
pub(crate) struct JobArgs {
    #[command(flatten)]
    pub(crate) job: JobName,
    #[command(flatten)]
    pub(crate) common: LocalArgs,
}

/// Print what the steps of a job have written
///
/// Byte for byte into a file or a pipe. On a terminal, what would move its cursor or change its colours is written
/// out, as `\u{1b}`, unless `--raw` is given. With `-o json`, a line for each piece: its step, log, offset and
/// text.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example: steadfast logs last fetch")]
pub(crate) struct LogsArgs {
    #[arg(value_name = "JOB", help = JOB)]
    pub(crate) job: String,
    /// Only of this step or item, as it is printed: fetch, index[2], eu-west/index[2], publish!
    pub(crate) step: Option<String>,
    /// Go on as more is written, until the job ends
    #[arg(short, long)]
    pub(crate) follow: bool,
    /// Only of this attempt, from 1, of each item
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) attempt: Option<u32>,
    /// Only the last lines of each attempt
    #[arg(long, value_name = "LINES")]
    pub(crate) tail: Option<u64>,
    /// Only what was printed in the last while, such as 10m
    #[arg(long, value_name = "DURATION", value_parser = age)]
    pub(crate) since: Option<Duration>,
    /// Begin each line with when it was printed, in UTC
    #[arg(long)]
    pub(crate) timestamps: bool,
    /// Byte for byte on a terminal too
    #[arg(long)]
    pub(crate) raw: bool,
    #[command(flatten)]
    pub(crate) common: LocalArgs,
    #[command(flatten)]
    pub(crate) remote: Remote,
}

/// Say why a job is where it is: each decision, its accounts, and what would have changed it
///
/// With --with, what would have been decided about the same outcomes under another policy: each recorded outcome is judged anew.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples: steadfast explain last publish\n          \
                  steadfast explain last fetch --with max_attempts=6 --with initial_delay=2s")]
pub(crate) struct ExplainArgs {
    #[arg(value_name = "JOB", help = JOB)]
    pub(crate) job: String,
    /// Only of this step or item, as it is printed: fetch, index[2], eu-west/index[2], publish!
    pub(crate) step: Option<String>,
    #[arg(long = "with", value_name = "KEY=VALUE", value_parser = policy_key, help = WITH)]
    pub(crate) with: Vec<(String, Value)>,
    #[command(flatten)]
    pub(crate) common: LocalArgs,
    #[command(flatten)]
    pub(crate) remote: Remote,
}

const WITH: &str = "What if this key of its retry policy had been so, as a job file writes it: max_attempts=6, \
                    exit_codes.stop=[2], retry_budget.total=5";

/// A value as a job file has it: JSON, or text without quotes.
fn policy_key(text: &str) -> Result<(String, Value), String> {
    match text.split_once('=') {
        Some((key, value)) if !key.trim().is_empty() && !value.trim().is_empty() => {
            let value = value.trim();
            let read = serde_json::from_str(value).unwrap_or_else(|_| Value::from(value));
            Ok((key.trim().to_owned(), read))
        }
        _ => Err("write it as KEY=VALUE, such as max_attempts=6".to_owned()),
    }
}

/// Open the dashboard of a server in a browser, and print its address
///
/// With a job, the page of that job. The browser is that of $BROWSER, or the system's.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example: steadfast open last")]
pub(crate) struct OpenArgs {
    #[arg(value_name = "JOB", help = JOB)]
    pub(crate) job: Option<String>,
    /// Only print the address
    #[arg(long)]
    pub(crate) print: bool,
    #[command(flatten)]
    pub(crate) remote: Remote,
}

/// Say which items of a job may start now, and what keeps the others
///
/// An item may start when what its step needs is met, its retry is due, it is eligible for another attempt, and its job
/// is not held up. Items in a row that are alike, such as those of a fan-out that have not started, are one line.
///
/// With `-o json`, what `GET /v1/jobs/{id}/readiness` answers.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example: steadfast readiness last")]
pub(crate) struct ReadinessArgs {
    #[command(flatten)]
    pub(crate) of: JobArgs,
    /// How many lines at most
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = limit)]
    pub(crate) limit: usize,
    /// Go on after an earlier page
    #[arg(long)]
    pub(crate) cursor: Option<String>,
    #[command(flatten)]
    pub(crate) remote: Remote,
}
