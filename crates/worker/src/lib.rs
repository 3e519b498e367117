//! One attempt of a work item as a real process: started, watched, ended, and reported as an outcome;
//! [`http`], an attempt that a web service has; functions of the program; and the one [`Executor`] of all of them,
//! with its queue and slots. Where attempts come from is a [`Transport`]: a controller in the same process, or, in
//! [`remote`], a server.
//!
//! Knows no policy, no store and no engine: what to run is decided elsewhere, and so is what follows
//! from how it ended. Linux only.
//!
//! How far the killing reaches: the process group, and processes that left it (`setsid`) by the mark in
//! their environment, always. One that dropped its environment too is found where it cannot hide: in the
//! attempt's control group, if it has one; by its user, if that is the attempt's alone; or as an orphan, if
//! the program adopts those ([`adopt_orphans`]), as soon as no other attempt can have left it.

mod cgroup;
mod credits;
mod driver;
mod executor;
mod folders;
pub mod http;
mod lease;
mod log;
mod mask;
mod orphans;
mod output;
mod ports;
mod prepare;
mod processes;
pub mod remote;
mod resources;
mod run;
mod spawn;
mod start;
mod stop;
mod task_control;
mod tasks;
mod transport;
mod user;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use steadfast_core::outcome::Outcome;

pub use credits::{Credits, Grant, Source};
pub use driver::Driver;
pub use executor::{Assigned, Executor, LONGEST_WAIT, LeaseEnd, Said, Settled, Work};
pub use folders::Folders;
pub use lease::Lease;
pub use mask::Mask;
pub use orphans::adopt_orphans;
pub use ports::{Port, Ports};
pub use prepare::{KILL_GRACE, LOG_CAP, MARK, OUTPUT_CAP, Order, Surroundings, prepare};
pub use processes::kill_marked;
pub use resources::{Capacity, Resources};
pub use run::{PIPE_GRACE, run, run_and_tell};
pub use spawn::keep_private;
pub use stop::Stop;
pub use task_control::TaskControl;
pub use tasks::{Call, Functions, Task, TimedTask};
pub use transport::{AttemptOf, Transport};
pub use user::{User, UserError, Users};

/// Everything about one attempt, already decided by others.
#[derive(Clone, Debug)]
pub struct Attempt {
    pub command: Command,
    /// Set for the process. [`OUTPUT_VARIABLE`] and the mark are added, and win.
    pub env: Vec<(String, String)>,
    /// On top of the caller's environment; otherwise of [`PASSED_ON`] alone.
    pub inherit_env: bool,
    pub cwd: PathBuf,
    /// Stdout and stderr together, in the order written. Created, with its folders, by the first byte.
    pub log: PathBuf,
    /// Bytes kept of the log: half from its beginning, half from its end.
    pub log_cap: u64,
    /// Keep when it was printed beside the log.
    pub log_times: bool,
    /// Where the process may write JSON. Its folder is the caller's to make.
    pub output: PathBuf,
    pub output_cap: u64,
    pub timeout: Option<Duration>,
    /// From SIGTERM to SIGKILL.
    pub kill_grace: Duration,
    /// An environment variable and its value, unique to the attempt: whoever has it belongs to it.
    pub mark: (String, String),
    /// Taken out of its log, its output and its error.
    pub mask: Mask,
    /// Who it runs as, if not as the caller. Its folder is that user's already.
    pub user: Option<Arc<User>>,
    /// It runs in a control group of its own where there can be one, so that nothing of it outlives it.
    pub grouped: bool,
}

impl Attempt {
    /// Where the process may say what went wrong, as JSON: beside its output.
    pub fn error(&self) -> PathBuf {
        error_beside(&self.output)
    }
}

fn error_beside(output: &Path) -> PathBuf {
    output.with_extension("error")
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command {
    /// For `/bin/sh -c`.
    Shell(String),
    /// The program, looked up in the attempt's `PATH` if it is a bare name, and its arguments.
    Argv(Vec<String>),
}

/// How an attempt ended.
#[derive(Clone, Debug, PartialEq)]
pub enum Ended {
    Outcome(Outcome),
    /// It was told to stop before it ended by itself.
    Stopped,
}

/// Names the file of [`Attempt::output`] to the process.
pub const OUTPUT_VARIABLE: &str = "STEADFAST_OUTPUT";

/// Names the file of [`Attempt::error`] to the process; [`prepare`] sets it.
pub const ERROR_VARIABLE: &str = "STEADFAST_ERROR";

/// Where a worker, or who runs a command, may have its token. No process of an attempt inherits it.
pub const TOKEN_VARIABLE: &str = "STEADFAST_TOKEN";
/// What holds the password of the database that jobs of `run` are in: nothing for their steps either.
pub const STORE_VARIABLE: &str = "STEADFAST_STORE__URL";

/// What a process gets of the caller's environment if it does not inherit all of it.
pub const PASSED_ON: [&str; 4] = ["PATH", "HOME", "LANG", "TMPDIR"];

#[allow(
    clippy::disallowed_methods,
    reason = "deadlines of real processes need the monotonic clock"
)]
fn now() -> Instant {
    Instant::now()
}
