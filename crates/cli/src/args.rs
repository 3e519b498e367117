//! What can be typed.

mod jobs;
mod serve;

use std::path::PathBuf;
use std::time::Duration;

use clap::builder::styling::{AnsiColor, Styles};
use clap::{Parser, Subcommand, ValueEnum};
use clap_complete::Shell;
use steadfast_worker::http::{Allowed, Outbound};

use crate::client::Token;

pub(crate) use jobs::{
    CancelArgs, DrainArgs, EitherJobArgs, ExplainArgs, HistoryArgs, ListArgs, LogsArgs, OpenArgs,
    PauseArgs, ReadinessArgs, ReasonArg, ResumeArgs, RetryArgs, ServerJobArgs, SubmitArgs,
    WaitArgs, WorkersArgs,
};
pub(crate) use serve::{
    AuthArg, BackupArgs, DoctorArgs, MigrateArgs, PurgeArgs, ScopeArg, ServeArgs, ServerArgs,
    StoreArgs, TokenCommand, UpArgs, WorkerArgs,
};

const STYLES: Styles = Styles::styled()
    .header(AnsiColor::Green.on_default().bold())
    .usage(AnsiColor::Green.on_default().bold())
    .literal(AnsiColor::Cyan.on_default().bold())
    .placeholder(AnsiColor::Cyan.on_default());

const WHERE: &str = "\
list, status, logs, history, explain, readiness, resume, cancel and retry are about the jobs of a server; with \
--data, or STEADFAST_DATA and no server named, or when nobody answers at the default address, about \
those of a data folder; with --store, or STEADFAST_STORE__URL and no server named, about those of a database.";

/// Runs jobs of flaky steps, and says why for every retry.
#[derive(Debug, Parser)]
#[command(
    name = "steadfast",
    version,
    styles = STYLES,
    max_term_width = 100,
    after_help = WHERE
)]
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
    Backup(BackupArgs),
    Doctor(DoctorArgs),
    Migrate(MigrateArgs),
    Resume(ResumeArgs),
    Plan(PlanArgs),
    Rehearse(RehearseArgs),
    Submit(SubmitArgs),
    Wait(WaitArgs),
    /// Watch a job of a server until nothing of it goes on any more
    ///
    /// On a terminal a picture that is drawn anew, otherwise a line for what happens; with `-o json`
    /// one event per line. A server that restarts is waited for. Ctrl-C leaves the job as it is.
    #[command(after_help = "Example: steadfast watch last")]
    Watch(ServerJobArgs),
    Retry(RetryArgs),
    /// Cancel a job: nothing of it starts any more, and what runs is ended
    ///
    /// Who cancelled it, and why, stays in its history.
    #[command(after_help = "Example: steadfast cancel last --reason 'wrong input'")]
    Cancel(CancelArgs),
    /// Pause a job of a server: nothing of it starts until `resume`, and what runs goes on
    #[command(after_help = "Example: steadfast pause last")]
    Pause(PauseArgs),
    List(ListArgs),
    /// Show where a job stands
    ///
    /// With `-o json`, what `GET /v1/jobs/{id}` answers.
    #[command(after_help = "Example: steadfast status last")]
    Status(EitherJobArgs),
    Logs(LogsArgs),
    /// Print the events of a job: everything that happened, in order
    ///
    /// With `-o json`, one event per line, as it is stored.
    #[command(after_help = "Example: steadfast history last")]
    History(HistoryArgs),
    Explain(ExplainArgs),
    Open(OpenArgs),
    Readiness(ReadinessArgs),
    /// Fold a job's log again and compare it with the live state
    ///
    /// Of a data folder or a database: the log with the stored state. Of a server: the events that it gives with the status that it
    /// shows.
    ///
    /// Exit status: 0 they are equal, 1 they are not, 2 there is no such job.
    #[command(after_help = "Example: steadfast replay last")]
    Replay(EitherJobArgs),
    /// List the workers of a server, and what they are doing
    #[command(after_help = "Example: steadfast workers")]
    Workers(WorkersArgs),
    Drain(DrainArgs),
    /// Take a drain back: the worker gets new work again
    ///
    /// Of a worker that still has something to finish, or is away. One that has left is started again instead.
    #[command(after_help = "Example: steadfast undrain rack-3")]
    Undrain(DrainArgs),
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
/// With --store the job and its logs are in a database, `postgres://USER@HOST/NAME`: any machine that reaches it can look at the job, and
/// go on with it.
///
/// Exit status: 0 succeeded, 1 failed, 3 partial, 4 cancelled, 130 interrupted, 2 the input is wrong, 5 the database is away.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example: steadfast run examples/flaky-download.yaml")]
pub(crate) struct RunArgs {
    /// The job file, YAML or JSON; `-` reads standard input
    pub(crate) file: PathBuf,
    #[command(flatten)]
    pub(crate) here: Here,
    #[command(flatten)]
    pub(crate) common: LocalArgs,
}

fn duration(text: &str) -> Result<Duration, String> {
    steadfast_jobfile::parse_duration(text).map(Duration::from_millis)
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
    /// How long the database of --store may be away before the run ends, to be resumed
    #[arg(
        long,
        value_name = "DURATION",
        env = "STEADFAST_STORE__OUTAGE_TOLERANCE",
        hide_env = true,
        default_value = "60s",
        value_parser = duration
    )]
    pub(crate) outage_tolerance: Duration,
    #[command(flatten)]
    pub(crate) outbound: OutboundArgs,
}

/// Of whatever calls web services.
#[derive(Debug, Default, clap::Args)]
pub(crate) struct OutboundArgs {
    /// Addresses that `http` steps may call although they are not the internet's: loopback, private,
    /// link-local, or a block as 10.0.0.0/8
    #[arg(
        long = "allow-outbound",
        value_name = "WHERE",
        env = "STEADFAST_ALLOW_OUTBOUND",
        value_delimiter = ','
    )]
    allow: Vec<Allowed>,
    /// Certificates, in PEM, of those who vouch for services besides whom the system trusts
    #[arg(long = "outbound-ca", value_name = "FILE")]
    roots: Vec<PathBuf>,
}

impl OutboundArgs {
    pub(crate) fn elsewhere(&self) -> Outbound {
        let (allow, more_roots) = (self.allow.clone(), self.roots.clone());
        Outbound { allow, more_roots, ..Outbound::default() }
    }

    /// What is on this machine may be called by what a person starts on it.
    pub(crate) fn here(&self) -> Outbound {
        let mut outbound = self.elsewhere();
        outbound.allow.push(Allowed::Loopback);
        outbound
    }
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

/// Of commands on jobs that are kept here: in a data folder, or in a database.
#[derive(Debug, clap::Args)]
pub(crate) struct LocalArgs {
    #[arg(long, value_name = "DIR", env = "STEADFAST_DATA", help = DATA)]
    pub(crate) data: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) place: StoreArgs,
    #[arg(short, long, value_enum, default_value_t)]
    pub(crate) output: Output,
}

/// Which server, of commands that can go to one.
#[derive(Debug, Default, clap::Args)]
#[command(next_help_heading = "Server")]
pub(crate) struct Remote {
    #[arg(long, value_name = "URL", help = SERVER)]
    pub(crate) server: Option<String>,
    #[arg(long, value_name = "TOKEN", help = TOKEN)]
    pub(crate) token: Option<Token>,
    /// The file that holds it instead, or `STEADFAST_TOKEN_FILE`
    #[arg(long, value_name = "FILE", conflicts_with = "token")]
    pub(crate) token_file: Option<PathBuf>,
    /// Who vouches for the server, in PEM, or `STEADFAST_CA` [default: whom this system trusts]
    #[arg(long, value_name = "FILE")]
    pub(crate) ca: Option<PathBuf>,
    /// A server and its token by name, from ~/.config/steadfast/config.toml
    #[arg(long, value_name = "NAME")]
    pub(crate) profile: Option<String>,
}

const SERVER: &str = "The server's address, or STEADFAST_SERVER [default: http://127.0.0.1:7117]";
/// Never shown, so the environment's value is not either.
const TOKEN: &str = "What the server knows you by, or STEADFAST_TOKEN";

const JOB: &str =
    "The job's id or the beginning of it, its name (the newest of that name), or `last`";

/// Which job, in a word, or two: `last NAME`.
#[derive(Debug, clap::Args)]
pub(crate) struct JobName {
    #[arg(value_name = "JOB", required = true, num_args = 1..=2, help = JOB)]
    words: Vec<String>,
}

impl JobName {
    pub(crate) fn text(&self) -> String {
        self.words.join(" ")
    }
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
    /// The job file, YAML or JSON; `-` reads standard input; with --from the job itself unless given
    #[arg(required_unless_present = "from")]
    pub(crate) file: Option<PathBuf>,
    /// The outcomes to play; without it every attempt succeeds at once
    #[arg(long, value_name = "FILE")]
    pub(crate) script: Option<PathBuf>,
    /// Play what happened to a job: its id or the beginning of it, its name, or `last`
    #[arg(long, value_name = "JOB", conflicts_with = "script")]
    pub(crate) from: Option<String>,
    /// Write what happened to it as a script, to be changed and played with --script
    #[arg(long, value_name = "FILE", requires = "from")]
    pub(crate) write_script: Option<PathBuf>,
    /// How many attempts run at once in each datacenter [default: no limit]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) slots: Option<u32>,
    /// Stop after so many decisions
    #[arg(long, value_name = "N", default_value_t = 1_000_000)]
    pub(crate) max_decisions: usize,
    /// Go on after a best-effort job has ended, to see its late results
    #[arg(long)]
    pub(crate) late: bool,
    #[command(flatten)]
    pub(crate) common: LocalArgs,
    #[command(flatten)]
    pub(crate) remote: Remote,
}

const REHEARSE: &str = "\
Play a job on a virtual clock with scripted outcomes

The whole job goes through the real engine, in milliseconds of real time: every decision with its
accounts, and the end. A script maps steps to the outcomes their attempts meet in turn; the last
one repeats, and a step without an entry succeeds:

  fetch: [exit:1@30s, ok]

Keys:      STEP, STEP[2], DC/STEP, DC/STEP[2]; STEP! is its fallback, STEP~ its compensation
Outcomes:  ok, ok=JSON, exit:N, signal:N, http:STATUS, fail, permanent, not_completed, timeout (each
           of these also with =TEXT, what it said), lost, not_started, defer:DUR, never; @DUR after
           any of them is how long it takes
           down:DUR between two of them: the engine is down for so long

With --from, what really happened to a job is played, each attempt as long as it took: against the job
as it was, or against a file in which you have changed its retries.

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
