//! What can be typed.

use std::path::PathBuf;
use std::time::Duration;

use clap::builder::styling::{AnsiColor, Styles};
use clap::{Parser, Subcommand, ValueEnum};
use clap_complete::Shell;
use steadfast_api::ShownState;
use steadfast_core::event::Requester;
use steadfast_worker::TOKEN_VARIABLE;
use steadfast_worker::http::{Allowed, Outbound};

use crate::client::Token;

const STYLES: Styles = Styles::styled()
    .header(AnsiColor::Green.on_default().bold())
    .usage(AnsiColor::Green.on_default().bold())
    .literal(AnsiColor::Cyan.on_default().bold())
    .placeholder(AnsiColor::Cyan.on_default());

const WHERE: &str = "\
list, status, logs, history, explain, resume, cancel and retry are about the jobs of a server; with \
--data, or STEADFAST_DATA and no server named, or when nobody answers at the default address, about \
those of a data folder.";

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
    /// Fold a job's log again and compare it with the live state
    ///
    /// Of a data folder: the log with the stored state. Of a server: the events that it gives with the status that it
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
    #[command(flatten)]
    pub(crate) outbound: OutboundArgs,
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
    /// Whether requests need a token [default: on loopback none, elsewhere required; `up` requires one everywhere
    /// and leaves it for the programs of this user]
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
    /// Its token, of scope worker; others on this machine see what is typed here
    #[arg(long, env = "STEADFAST_TOKEN", hide_env_values = true)]
    pub(crate) token: Option<String>,
    /// The file that holds it instead
    #[arg(long, value_name = "FILE", env = "STEADFAST_TOKEN_FILE")]
    pub(crate) token_file: Option<PathBuf>,
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
    #[arg(long = "pass-env", value_name = "NAME", value_parser = passed_on)]
    pub(crate) pass_env: Vec<String>,
    /// A secret that steps may have which name it, any number of times; `*` stands for anything [default: none]
    #[arg(long = "secret", value_name = "NAME")]
    pub(crate) secret_names: Vec<String>,
    /// A folder with a file for each secret [default: `secrets` in the worker's folder]
    #[arg(long, value_name = "DIR")]
    pub(crate) secrets: Option<PathBuf>,
    /// Who attempts run as, if the worker is root: a user, or a range of numbers such as 70000-70031, of
    /// which each attempt has one of its own
    #[arg(long, value_name = "USER")]
    pub(crate) user: Option<String>,
    #[arg(long, value_name = "DIR", env = "STEADFAST_DATA", help = DATA)]
    pub(crate) data: Option<PathBuf>,
    /// The worker's own folder [default: worker-NAME in the data folder]
    #[arg(long, value_name = "DIR", env = "STEADFAST_WORKER_FOLDER")]
    pub(crate) folder: Option<PathBuf>,
    /// From SIGTERM to SIGKILL when the worker is told to go
    #[arg(long, value_name = "DURATION", default_value = "25s", value_parser = duration)]
    pub(crate) grace: Duration,
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
    #[command(flatten)]
    pub(crate) outbound: OutboundArgs,
}

fn passed_on(text: &str) -> Result<String, String> {
    if text == TOKEN_VARIABLE {
        return Err(
            "it is what the server knows this worker by, and nothing for its steps".to_owned()
        );
    }
    Ok(text.to_owned())
}

fn pair(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once('=').ok_or("a label is KEY=VALUE")?;
    Ok((name.to_owned(), value.to_owned()))
}

fn duration(text: &str) -> Result<Duration, String> {
    steadfast_jobfile::parse_duration(text).map(Duration::from_millis)
}

fn size(text: &str) -> Result<u64, String> {
    steadfast_jobfile::parse_size(text)
}

#[derive(Debug, Subcommand)]
pub(crate) enum TokenCommand {
    /// Make a token, and print it this once
    ///
    /// Works with the server up or down. What is kept of it cannot be used in its place.
    ///
    /// A token of scope `worker` can be bound to a worker's name, its datacenter and its labels: with it nobody
    /// can pass for another worker, or attract jobs that are meant for others.
    #[command(
        after_help = "Example: steadfast token create --scope worker --worker rack-3 --label pool=gpu"
    )]
    Create {
        /// read: see everything; submit: and submit jobs; admin: and all else; worker: be one
        #[arg(long, value_enum)]
        scope: ScopeArg,
        /// Whose it is, for people
        #[arg(long)]
        name: Option<String>,
        /// How long it is good for, such as 90d [default: for ever]
        #[arg(long, value_name = "DURATION", value_parser = age)]
        expires: Option<std::time::Duration>,
        /// The one worker that may use it, by its name [default: any]
        #[arg(long, value_name = "NAME")]
        worker: Option<String>,
        /// Where a worker that uses it must be [default: anywhere]
        #[arg(long)]
        datacenter: Option<String>,
        /// A label that a worker that uses it has; with any of these it has exactly these; may be repeated
        #[arg(long = "label", value_name = "KEY=VALUE", value_parser = pair)]
        labels: Vec<(String, String)>,
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
///
/// By age, or the jobs that are named: those that have ended, and those that are stuck because what is
/// stored of them is damaged. Jobs that were interrupted can be resumed, and go only with `--state
/// interrupted`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example: steadfast purge --older 30d")]
pub(crate) struct PurgeArgs {
    /// Jobs by id, by name, or `last`
    #[arg(value_name = "JOB", required_unless_present = "older", conflicts_with_all = ["older", "state"])]
    pub(crate) jobs: Vec<String>,
    /// All jobs that ended, or were interrupted, so long ago, such as 30d
    #[arg(long, value_name = "DURATION", value_parser = age)]
    pub(crate) older: Option<Duration>,
    /// Only jobs in this state: one in which they have ended, or interrupted
    #[arg(long)]
    pub(crate) state: Option<ShownState>,
    #[command(flatten)]
    pub(crate) common: Common,
}

/// Copy the data folder to another one, with the server up or down
///
/// The copy is of one moment and has all that a restore needs: the database, the files and logs of its
/// jobs, the key of callbacks, the tokens. A server can be started with it as it is.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example: steadfast backup /backups/monday")]
pub(crate) struct BackupArgs {
    /// Where to: a folder that is empty or not there yet
    #[arg(value_name = "DIR")]
    pub(crate) dir: PathBuf,
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

/// Hand a job to a server, and print its id
///
/// The files that it names in `files` go with it. Should the connection break, it is tried again
/// with the same idempotency key: it is one job, whatever happens.
///
/// Exit status: 0 accepted, 2 the input is wrong, 5 no server; with --wait as `steadfast wait`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example: steadfast submit --wait examples/flaky-pipeline.yaml")]
pub(crate) struct SubmitArgs {
    /// The job file, YAML or JSON; `-` reads standard input
    pub(crate) file: PathBuf,
    /// Wait for its end, and show it as it goes
    #[arg(long)]
    pub(crate) wait: bool,
    /// The same key with the same file is the same job [default: a new one each time]
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

/// Why somebody does something to a job.
#[derive(Debug, Default, clap::Args)]
pub(crate) struct Why {
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
    pub(crate) why: Why,
    #[command(flatten)]
    pub(crate) remote: Remote,
}

#[derive(Debug, clap::Args)]
pub(crate) struct PauseArgs {
    #[command(flatten)]
    pub(crate) of: ServerJobArgs,
    #[command(flatten)]
    pub(crate) why: Why,
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
/// Of a data folder: processes that the interrupted run left behind are ended first; their attempts
/// count as losses of the worker, not as failures. Budgets and delays go on where they stood.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example: steadfast resume last")]
pub(crate) struct ResumeArgs {
    #[command(flatten)]
    pub(crate) job: JobName,
    /// Go on although the job file has changed; the job stays as it was accepted
    #[arg(long)]
    pub(crate) changed: bool,
    #[command(flatten)]
    pub(crate) why: Why,
    #[command(flatten)]
    pub(crate) here: Here,
    #[command(flatten)]
    pub(crate) common: Common,
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
    pub(crate) why: Why,
    #[command(flatten)]
    pub(crate) here: Here,
    #[command(flatten)]
    pub(crate) common: Common,
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
    pub(crate) common: Common,
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
    pub(crate) common: Common,
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
    pub(crate) common: Common,
    #[command(flatten)]
    pub(crate) remote: Remote,
}

/// Say why a job is where it is: each decision, its accounts, and what would have changed it
#[derive(Debug, clap::Args)]
#[command(after_help = "Example: steadfast explain last publish")]
pub(crate) struct ExplainArgs {
    #[arg(value_name = "JOB", help = JOB)]
    pub(crate) job: String,
    /// Only of this step or item, as it is printed: fetch, index[2], eu-west/index[2], publish!
    pub(crate) step: Option<String>,
    #[command(flatten)]
    pub(crate) common: Common,
    #[command(flatten)]
    pub(crate) remote: Remote,
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
    pub(crate) common: Common,
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
