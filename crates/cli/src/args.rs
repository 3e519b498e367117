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
    Run(RunArgs),
    Up(UpArgs),
    Server(ServerArgs),
    Worker(Box<WorkerArgs>),
    /// Make, list and revoke the tokens of a server
    Token {
        #[command(subcommand)]
        command: TokenCommand,
    },
    Purge(PurgeArgs),
    Resume(ResumeArgs),
    Plan(PlanArgs),
    Rehearse(RehearseArgs),
    Retry(RetryArgs),
    /// Cancel a job: nothing of it starts any more, and what runs is ended
    Cancel(JobArgs),
    List(ListArgs),
    /// Show where a job stands
    Status(JobArgs),
    Logs(LogsArgs),
    /// Print the events of a job: everything that happened, in order
    ///
    /// With `-o json`, one event per line, as it is stored.
    History(JobArgs),
    Explain(ExplainArgs),
    /// Fold a job's log again and compare it with the live state
    ///
    /// Exit status: 0 they are equal, 1 they are not, 2 there is no such job.
    Replay(JobArgs),
    /// Print a completion script for a shell
    ///
    /// For bash: `steadfast completions bash > ~/.local/share/bash-completion/completions/steadfast`
    Completions {
        shell: Shell,
    },
}

/// Run a job here to its end
///
/// Nothing else is needed: the job is stored in the data folder, its steps run as processes on this
/// machine, and whatever happens to this program, `steadfast resume JOB` goes on where it stood.
/// Ctrl-C ends what runs and says how to go on; twice kills it.
///
/// Exit status: 0 succeeded, 1 failed, 3 partial, 4 cancelled, 130 interrupted, 2 the input is wrong.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example: steadfast run examples/flaky-download.yaml")]
pub(crate) struct RunArgs {
    /// The job file, YAML or JSON; `-` reads standard input
    pub(crate) file: PathBuf,
    #[command(flatten)]
    pub(crate) here: Here,
    #[command(flatten)]
    pub(crate) common: Common,
}

/// Server and worker in one process, on this machine
///
/// The quickest way to a server: it listens on 127.0.0.1:7117, and one worker with the cores and the
/// memory of this machine runs what is submitted.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Example: steadfast up    then: steadfast submit examples/flaky-download.yaml"
)]
pub(crate) struct UpArgs {
    #[command(flatten)]
    pub(crate) serve: ServeArgs,
    /// How many attempts run at once [default: twice the cores, at least 8]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub(crate) slots: Option<u32>,
    /// Where the worker is, for jobs with datacenters
    #[arg(long, value_name = "DC")]
    pub(crate) datacenter: Option<String>,
}

/// The server alone: REST and gRPC on one port
///
/// Takes jobs, keeps them, and has workers run them. Stopped and started again it goes on where it
/// stood, with what its workers run meanwhile.
///
/// Exit status: 0 it was told to stop, 2 it must not or cannot start like this, 1 it failed.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example: steadfast server --listen 127.0.0.1:7117 --data ./data")]
pub(crate) struct ServerArgs {
    #[command(flatten)]
    pub(crate) serve: ServeArgs,
    /// Print a file of all settings, with what they mean, and end
    #[arg(long)]
    pub(crate) print_config: bool,
}

/// Of commands that serve.
#[derive(Debug, clap::Args)]
pub(crate) struct ServeArgs {
    /// Where to listen; port 0 takes a free one [default: 127.0.0.1:7117]
    #[arg(long, value_name = "ADDRESS:PORT")]
    pub(crate) listen: Option<String>,
    /// Whether requests need a token [default: on loopback none, elsewhere required]
    #[arg(long, value_enum)]
    pub(crate) auth: Option<AuthArg>,
    /// The file of settings; `steadfast server --print-config` prints one
    #[arg(long, value_name = "FILE", env = "STEADFAST_CONFIG")]
    pub(crate) config: Option<PathBuf>,
    #[arg(long, value_name = "DIR", env = "STEADFAST_DATA", help = DATA)]
    pub(crate) data: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum AuthArg {
    Required,
    None,
}

/// A worker: runs what a server assigns to it
///
/// SIGTERM is a preemption notice: what runs is told to end, has its grace, and is reported as lost
/// with the worker, which costs the job no failure. Everything that runs is killed when the server has
/// not answered for as long as the lease.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Example: steadfast worker --server http://127.0.0.1:7117 --name w1 --slots 4"
)]
pub(crate) struct WorkerArgs {
    /// The server's address
    #[arg(
        long,
        value_name = "URL",
        env = "STEADFAST_SERVER",
        default_value = "http://127.0.0.1:7117"
    )]
    pub(crate) server: String,
    /// Its token, of scope worker
    #[arg(long, env = "STEADFAST_TOKEN", hide_env_values = true)]
    pub(crate) token: Option<String>,
    /// Unique among the server's workers [default: the name of this machine]
    #[arg(long)]
    pub(crate) name: Option<String>,
    /// Where it is, for jobs with datacenters
    #[arg(long, value_name = "DC")]
    pub(crate) datacenter: Option<String>,
    /// How many attempts run at once [default: twice the cores, at least 8]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub(crate) slots: Option<u32>,
    /// What steps can ask for, any number of times
    #[arg(long = "label", value_name = "KEY=VALUE", value_parser = pair)]
    pub(crate) labels: Vec<(String, String)>,
    /// Cores to give away [default: those there are]
    #[arg(long, value_name = "N")]
    pub(crate) cpu: Option<f64>,
    /// Memory to give away, such as 2g [default: what there is]
    #[arg(long, value_name = "SIZE", value_parser = size)]
    pub(crate) memory: Option<u64>,
    /// A variable of this environment that steps get, any number of times
    #[arg(long = "pass-env", value_name = "NAME")]
    pub(crate) pass_env: Vec<String>,
    /// A folder with a file for each secret [default: `secrets` in the worker's folder]
    #[arg(long, value_name = "DIR")]
    pub(crate) secrets: Option<PathBuf>,
    /// The worker's own folder [default: worker-NAME in the data folder]
    #[arg(long, value_name = "DIR", env = "STEADFAST_WORKER_FOLDER")]
    pub(crate) folder: Option<PathBuf>,
    /// From SIGTERM to SIGKILL when the worker is told to go
    #[arg(long, value_name = "DURATION", default_value = "25s", value_parser = duration)]
    pub(crate) grace: std::time::Duration,
    /// Keep the working folders of all attempts
    #[arg(long)]
    pub(crate) keep: bool,
    /// Who vouches for the server, in PEM [default: whom this system trusts]
    #[arg(long, value_name = "FILE")]
    pub(crate) ca: Option<PathBuf>,
    /// Who this worker is, in PEM, if the server wants to know
    #[arg(long, value_name = "FILE", requires = "key")]
    pub(crate) cert: Option<PathBuf>,
    /// The key of --cert
    #[arg(long, value_name = "FILE", requires = "cert")]
    pub(crate) key: Option<PathBuf>,
}

fn pair(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once('=').ok_or("a label is KEY=VALUE")?;
    Ok((name.to_owned(), value.to_owned()))
}

fn duration(text: &str) -> Result<std::time::Duration, String> {
    steadfast_jobfile::parse_duration(text).map(std::time::Duration::from_millis)
}

fn size(text: &str) -> Result<u64, String> {
    steadfast_jobfile::parse_size(text)
}

#[derive(Debug, Subcommand)]
pub(crate) enum TokenCommand {
    /// Make a token, and print it this once
    ///
    /// Works with the server up or down. What is kept of it cannot be used in its place.
    #[command(after_help = "Example: steadfast token create --scope worker --name rack-3")]
    Create {
        /// read: see everything; submit: and submit jobs; admin: and all else; worker: be one
        #[arg(long, value_enum)]
        scope: ScopeArg,
        /// Whose it is, for people
        #[arg(long)]
        name: Option<String>,
        /// When it ends to be good for anything, such as 90d [default: never]
        #[arg(long, value_name = "DURATION", value_parser = age)]
        expires: Option<std::time::Duration>,
        #[command(flatten)]
        common: Common,
    },
    /// List the tokens there are; not what they are
    List {
        #[command(flatten)]
        common: Common,
    },
    /// Take a token back
    Revoke {
        /// The id of the token, as `list` shows it
        id: String,
        #[command(flatten)]
        common: Common,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ScopeArg {
    Read,
    Submit,
    Worker,
    Admin,
}

/// Remove ended jobs with their events, logs and files
#[derive(Debug, clap::Args)]
#[command(after_help = "Example: steadfast purge --older 30d")]
pub(crate) struct PurgeArgs {
    /// Only jobs that ended so long ago, such as 30d
    #[arg(long, value_name = "DURATION", value_parser = age)]
    pub(crate) older: std::time::Duration,
    #[command(flatten)]
    pub(crate) common: Common,
}

/// A duration, in which days are allowed.
fn age(text: &str) -> Result<std::time::Duration, String> {
    let days = text.strip_suffix('d').and_then(|days| days.parse::<u64>().ok());
    match days {
        Some(days) => Ok(std::time::Duration::from_secs(days.saturating_mul(86_400))),
        None => duration(text).map_err(|_| format!("{text:?} is not a time such as 30d or 12h")),
    }
}

/// Of commands that run a job on this machine.
#[derive(Debug, clap::Args)]
pub(crate) struct Here {
    /// How many processes run at once [default: twice the cores, at least 8]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub(crate) slots: Option<u32>,
    /// Keep the working folders of all attempts
    #[arg(long)]
    pub(crate) keep: bool,
}

/// Of commands on the local data folder.
#[derive(Debug, clap::Args)]
pub(crate) struct Common {
    #[arg(long, value_name = "DIR", env = "STEADFAST_DATA", help = DATA)]
    pub(crate) data: Option<PathBuf>,
    #[arg(short, long, value_enum, default_value_t)]
    pub(crate) output: Output,
}

const DATA: &str =
    "Where jobs, logs and working folders are kept [default: the user's data folder]";

/// Go on with a job that was interrupted
///
/// Processes that the interrupted run left behind are ended first; their attempts count as losses
/// of the worker, not as failures. Budgets and delays go on where they stood.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example: steadfast resume last")]
pub(crate) struct ResumeArgs {
    /// The job's id, the beginning of it, or `last`
    pub(crate) job: String,
    /// Go on although the job file has changed; the job stays as it was accepted
    #[arg(long)]
    pub(crate) changed: bool,
    #[command(flatten)]
    pub(crate) here: Here,
    #[command(flatten)]
    pub(crate) common: Common,
}

/// Run a job that has ended again, as a new job that keeps what succeeded
///
/// Without --grant everything that did not succeed starts anew, under the same limits. With it, what
/// failed goes on where it stood, with so many more attempts, and as many more retries in the budget.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example: steadfast retry last --grant 2")]
pub(crate) struct RetryArgs {
    /// The job's id, the beginning of it, or `last`
    pub(crate) job: String,
    /// Run this step and all that need it again, also if they succeeded
    #[arg(long, value_name = "STEP")]
    pub(crate) from: Option<String>,
    /// Attempts and retries to give on top
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) grant: Option<u32>,
    #[command(flatten)]
    pub(crate) here: Here,
    #[command(flatten)]
    pub(crate) common: Common,
}

/// List the jobs of the data folder, newest first
#[derive(Debug, clap::Args)]
#[command(after_help = "Example: steadfast list --state failed")]
pub(crate) struct ListArgs {
    /// Only jobs in this state
    #[arg(long)]
    pub(crate) state: Option<String>,
    /// Only jobs of this name
    #[arg(long)]
    pub(crate) name: Option<String>,
    #[arg(long, default_value_t = 50)]
    pub(crate) limit: usize,
    /// Go on after an earlier page
    #[arg(long)]
    pub(crate) cursor: Option<String>,
    #[command(flatten)]
    pub(crate) common: Common,
}

#[derive(Debug, clap::Args)]
pub(crate) struct JobArgs {
    /// The job's id, the beginning of it, or `last`
    pub(crate) job: String,
    #[command(flatten)]
    pub(crate) common: Common,
}

/// Print what the steps of a job have written
#[derive(Debug, clap::Args)]
#[command(after_help = "Example: steadfast logs last fetch")]
pub(crate) struct LogsArgs {
    /// The job's id, the beginning of it, or `last`
    pub(crate) job: String,
    /// Only of this step
    pub(crate) step: Option<String>,
    /// Go on as more is written, until the job ends
    #[arg(short, long)]
    pub(crate) follow: bool,
    #[arg(long, value_name = "DIR", env = "STEADFAST_DATA", help = DATA)]
    pub(crate) data: Option<PathBuf>,
}

/// Say why a job is where it is: each decision, its accounts, and what would have changed it
#[derive(Debug, clap::Args)]
#[command(after_help = "Example: steadfast explain last publish")]
pub(crate) struct ExplainArgs {
    /// The job's id, the beginning of it, or `last`
    pub(crate) job: String,
    /// Only of this step
    pub(crate) step: Option<String>,
    #[command(flatten)]
    pub(crate) common: Common,
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
