//! Arguments of commands that serve, and that look after a server's data folder.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Subcommand, ValueEnum};
use steadfast_api::ShownState;
use steadfast_worker::TOKEN_VARIABLE;

use super::{Common, DATA, LocalArgs, OutboundArgs, age, duration};

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
    #[command(flatten)]
    pub(crate) place: StoreArgs,
    /// How many shards a database's schema is made with, 1 to 1,024; fixed then [default: 64]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub(crate) shards: Option<u16>,
    #[command(flatten)]
    pub(crate) blobs: BlobArgs,
}

const STORE: &str = "The PostgreSQL database of jobs, files, logs and tokens, postgres://USER@HOST/NAME, or STEADFAST_STORE__URL; others \
     on this machine see a password that is typed here [default: the data folder]";

/// Where a server keeps its jobs, if not in a data folder.
#[derive(Debug, clap::Args)]
pub(crate) struct StoreArgs {
    #[arg(long, value_name = "URL", env = "STEADFAST_STORE__URL", hide_env = true, help = STORE)]
    pub(crate) store: Option<String>,
}

impl StoreArgs {
    /// None: the data folder. An empty variable is none.
    pub(crate) fn url(&self) -> Option<&str> {
        self.store.as_deref().filter(|url| !url.is_empty())
    }
}

const BLOBS: &str = "The object store of attached files and logs, s3://BUCKET/PREFIX or file:///FOLDER, or STEADFAST_BLOBS__URL \
     [default: where jobs are]";

/// Where a server keeps attached files and logs, if not where its jobs are.
#[derive(Debug, clap::Args)]
pub(crate) struct BlobArgs {
    #[arg(long = "blobs", value_name = "URL", env = "STEADFAST_BLOBS__URL", hide_env = true, help = BLOBS)]
    pub(crate) url: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum AuthArg {
    Required,
    None,
}

/// A worker: runs what a server assigns to it, or several do
///
/// SIGTERM is a preemption notice: what runs is told to end, has its grace, and is reported as lost
/// with the worker, which costs the job no failure. Everything that runs for a server is killed when it has
/// not answered for as long as the lease.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Example: steadfast worker --server http://127.0.0.1:7117 --name w1 --slots 4"
)]
pub(crate) struct WorkerArgs {
    /// The server's address; of several, any number of times, or with commas between them
    #[arg(
        long = "server",
        value_name = "URL",
        value_delimiter = ',',
        env = "STEADFAST_SERVER",
        default_value = "http://127.0.0.1:7117"
    )]
    pub(crate) servers: Vec<String>,
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
        place: StoreArgs,
        #[command(flatten)]
        common: Common,
    },
    /// List the tokens there are; not what they are
    List {
        #[command(flatten)]
        place: StoreArgs,
        #[command(flatten)]
        common: Common,
    },
    /// Take a token back
    Revoke {
        /// The id of the token, as `list` shows it
        id: String,
        #[command(flatten)]
        place: StoreArgs,
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
    pub(crate) common: LocalArgs,
    #[command(flatten)]
    pub(crate) blobs: BlobArgs,
}

/// Look at what a server stands on: settings, disk, database, clock, jobs that are stuck
///
/// With the server up or down; changes nothing, but for an object that is written to an object store and removed again. Reads all
/// of a data folder's database: a second for a gigabyte.
///
/// Exit status: 0 nothing is wrong (there may be warnings), 1 something is.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example: steadfast doctor --data ./data")]
pub(crate) struct DoctorArgs {
    /// The server's file of settings
    #[arg(long, value_name = "FILE", env = "STEADFAST_CONFIG")]
    pub(crate) config: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) place: StoreArgs,
    #[command(flatten)]
    pub(crate) blobs: BlobArgs,
    #[command(flatten)]
    pub(crate) common: Common,
}

/// Move a data folder to a database or back; or make the schema in one, for servers whose user may not
///
/// With --from and --to everything goes: ended and open jobs with their timers, files and logs, tokens, keys. Stop all servers first;
/// workers may stay. Every job is read back and folded, and only then is the source marked as moved. Stopped at any moment, the same command goes on.
///
/// With --store the schema is made. A server does it by itself if its user may. Needs the right to (`GRANT CREATE ON DATABASE … TO …`); what
/// is there already is left as it is.
///
/// Exit status: 0 all is done, 2 it is not, and why is said.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples: steadfast migrate --from ./data --to postgres://steadfast@db/steadfast\n          \
                  steadfast migrate --store postgres://admin@db/steadfast --grant steadfast"
)]
pub(crate) struct MigrateArgs {
    /// The data folder, or the URL of the database, that the jobs are in
    #[arg(long, value_name = "DIR|URL", requires = "to")]
    pub(crate) from: Option<String>,
    /// Where they are to be: a database or a folder without jobs
    #[arg(long, value_name = "URL|DIR", requires = "from")]
    pub(crate) to: Option<String>,
    /// Take a move back that no server has used yet: the jobs are those of --from again
    #[arg(long, requires = "to")]
    pub(crate) undo: bool,
    /// Leave jobs behind whose stored log cannot be read
    #[arg(long, requires = "to", conflicts_with = "undo")]
    pub(crate) skip_stuck: bool,
    /// The database, with a user who may make a schema in it
    #[arg(
        long,
        value_name = "URL",
        env = "STEADFAST_STORE__URL",
        hide_env = true,
        required_unless_present = "from"
    )]
    pub(crate) store: Option<String>,
    /// The user of the server's URL: may work with all of the schema, and change nothing about it
    #[arg(long, value_name = "USER", conflicts_with = "from")]
    pub(crate) grant: Option<String>,
    /// How many shards the schema is made with, 1 to 1,024: parts of the jobs, of which each server has some. Fixed then, and
    /// another number is refused [default: 64]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub(crate) shards: Option<u16>,
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
