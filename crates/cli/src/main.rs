//! The one program. It parses and prints; every rule is elsewhere.

mod args;
mod backup;
mod client;
mod clock;
mod data;
mod doctor;
mod error;
mod explain;
mod folder;
mod graph;
mod input;
mod jobs;
mod logs;
mod migrate;
mod plan;
mod purge;
mod readiness;
mod rehearse;
mod retry_job;
mod run;
mod screen;
mod serve;
mod signals;
mod source;
mod style;
mod summary;
mod timeline;
mod token;
mod view;

use std::io::{self, Write};
use std::process::ExitCode;

use clap::parser::ValueSource;
use clap::{CommandFactory, FromArgMatches};

use args::{Args, Command};

/// What a job is made of is made by one thread and dropped by another, thousands of times a second: an eighth of a
/// server's time with the system's allocator.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// The exit statuses that scripts can rely on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Exit {
    Ok = 0,
    Failed = 1,
    /// The input, the usage or a name is wrong.
    Wrong = 2,
    Partial = 3,
    Cancelled = 4,
    /// There is no server, or it went away.
    NoServer = 5,
    /// What was waited for has not happened in time; as `timeout` says it.
    TimedOut = 124,
    Interrupted = 130,
}

/// A command's end. What went wrong has been said on stderr by then.
type Done = io::Result<Exit>;

/// Clap tells people what is wrong with what they typed; a program that asked for JSON gets that too.
fn misused(error: &clap::Error) -> ! {
    let typed: Vec<_> = std::env::args().collect();
    let wants_json = typed
        .windows(2)
        .any(|two| two == ["-o", "json"] || two == ["--output", "json"])
        || typed.iter().any(|one| one == "--output=json" || one == "-ojson" || one == "-o=json");
    if error.use_stderr() && wants_json {
        let text = error.render().to_string();
        let message = text.lines().next().unwrap_or_default().trim_start_matches("error: ");
        let error = serde_json::json!({ "code": "usage", "message": message });
        let _ = input::print_json(&serde_json::json!({ "error": error }));
    }
    error.exit()
}

fn main() -> ExitCode {
    // `CI` in the environment would colour a dumb terminal too.
    if screen::is_dumb() && std::env::var_os("CLICOLOR_FORCE").is_none() {
        anstream::ColorChoice::Never.write_global();
    }
    let mut matches = Args::command().try_get_matches().unwrap_or_else(|error| misused(&error));
    let is_typed = |flag: &str| {
        matches.subcommand().is_some_and(|(_, of)| {
            of.try_contains_id(flag).is_ok()
                && of.value_source(flag) == Some(ValueSource::CommandLine)
        })
    };
    let typed = client::TypedPlace { data: is_typed("data"), store: is_typed("store") };
    let args = Args::from_arg_matches_mut(&mut matches).unwrap_or_else(|error| error.exit());
    // Before there is a second thread: what holds a token, or what is the operator's, shows it to no job.
    match &args.command {
        Command::Up(_) | Command::Server(_) | Command::Worker(_) => {
            steadfast_worker::keep_private(&[c"STEADFAST_TOKEN"]);
        }
        _ => steadfast_worker::keep_private(&[]),
    }
    let routing = client::Routing { typed };
    let done = match &args.command {
        Command::Run(args) => run::run(args),
        Command::Up(args) => serve::up(args),
        Command::Server(args) => serve::server(args),
        Command::Worker(args) => serve::worker(args),
        Command::Token { command } => token::run(command),
        Command::Purge(args) => purge::run(args),
        Command::Backup(args) => backup::run(args),
        Command::Doctor(args) => doctor::run(args),
        Command::Migrate(args) => migrate::run(args),
        Command::Resume(args) => routing.resume(args),
        Command::Submit(args) => client::submit(args),
        Command::Wait(args) => client::wait(args),
        Command::Watch(args) => client::watch(args),
        Command::Retry(args) => routing.retry(args),
        Command::Cancel(args) => routing.cancel(args),
        Command::Pause(args) => client::pause(args),
        Command::List(args) => routing.list(args),
        Command::Status(args) => routing.status(args),
        Command::Logs(args) => routing.logs(args),
        Command::History(args) => routing.history(args),
        Command::Replay(args) => routing.replay(args),
        Command::Explain(args) => routing.explain(args),
        Command::Open(args) => client::open(args),
        Command::Readiness(args) => routing.readiness(args),
        Command::Workers(args) => client::workers(args),
        Command::Drain(args) => client::drain(args),
        Command::Undrain(args) => client::undrain(args),
        Command::Plan(args) => plan::run(args),
        Command::Rehearse(args) => rehearse::run(args, routing),
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
            anstream::eprintln!("{}cannot write the answer: {error}", style::error_prefix());
            ExitCode::from(Exit::Failed as u8)
        }
    }
}
