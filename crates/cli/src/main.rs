//! The one program. It parses and prints; every rule is elsewhere.

mod again;
mod args;
mod clock;
mod data;
mod explain;
mod input;
mod jobs;
mod local;
mod paint;
mod plan;
mod purge;
mod rehearse;
mod run;
mod serve;
mod timeline;
mod token;
mod view;

use std::io::{self, Write};
use std::process::ExitCode;

use clap::{CommandFactory, Parser};

use args::{Args, Command};

/// The exit statuses that scripts can rely on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Exit {
    Ok = 0,
    Failed = 1,
    /// The input, the usage or a name is wrong.
    Wrong = 2,
    Partial = 3,
    Cancelled = 4,
    Interrupted = 130,
}

/// A command's end. What went wrong has been said on stderr by then.
type Done = io::Result<Exit>;

fn main() -> ExitCode {
    let args = Args::parse();
    let done = match &args.command {
        Command::Run(args) => run::run(args),
        Command::Up(args) => serve::up(args),
        Command::Server(args) => serve::server(args),
        Command::Worker(args) => serve::worker(args),
        Command::Token { command } => token::run(command),
        Command::Purge(args) => purge::run(args),
        Command::Resume(args) => run::resume(args),
        Command::Retry(args) => again::retry(args),
        Command::Cancel(args) => again::cancel(args),
        Command::List(args) => jobs::list(args),
        Command::Status(args) => jobs::status(args),
        Command::Logs(args) => jobs::logs(args),
        Command::History(args) => jobs::history(args),
        Command::Replay(args) => jobs::replay(args),
        Command::Explain(args) => explain::run(args),
        Command::Plan(args) => plan::run(args),
        Command::Rehearse(args) => rehearse::run(args),
        Command::Completions { shell } => {
            let mut script = Vec::new();
            clap_complete::generate(*shell, &mut Args::command(), "steadfast", &mut script);
            io::stdout().write_all(&script).map(|()| Exit::Ok)
        }
    };
    match done {
        Ok(exit) => ExitCode::from(exit as u8),
        // `steadfast … | head`: the reader has seen enough.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => ExitCode::SUCCESS,
        Err(error) => {
            anstream::eprintln!("{}cannot write the answer: {error}", paint::error_prefix());
            ExitCode::from(Exit::Failed as u8)
        }
    }
}
