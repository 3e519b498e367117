//! Commands against a server, over its REST. Asks and prints; every rule is in the server.
//!
//! | module | duty |
//! |---|---|
//! | `target`, `profile`, `token` | where to go, and with what |
//! | `routing`, `locate` | whether a data folder or a server answers |
//! | `api`, `shapes` | requests and answers |
//! | `source`, `find`, `overview` | a server as a [`JobSource`](crate::source::JobSource) |
//! | `submit`, `files` | a job file and what it names, handed over once |
//! | `submit_each` | a file with a job in each line |
//! | `follow`, `sse` | a job followed to its end, over restarts of the server |
//! | `commands` | what a server is told to do; its workers |
//! | `open` | the dashboard, in a browser |
//!
//! Nothing here but `routing` and `locate` opens a data folder.

mod api;
mod commands;
mod files;
mod find;
mod follow;
mod locate;
mod open;
mod overview;
mod profile;
mod routing;
mod shapes;
mod source;
mod sse;
mod submit;
mod submit_each;
mod target;
mod token;

use api::Client;
use source::ServerSource;

use crate::args::{
    DrainArgs, OpenArgs, Output, PauseArgs, Remote, ServerJobArgs, SubmitArgs, WaitArgs,
    WorkersArgs,
};
use crate::error::{CliError, conclude};
use crate::{Done, Exit};

pub(crate) use routing::Routing;
pub(crate) use target::{TypedPlace, names_a_server};
pub(crate) use token::Token;

pub(crate) fn submit(args: &SubmitArgs) -> Done {
    on_server(&args.remote, args.output, async |client| {
        if args.each {
            submit_each::submit_each(client, args).await
        } else {
            submit::submit(client, args).await
        }
    })
}

pub(crate) fn wait(args: &WaitArgs) -> Done {
    on_server(&args.remote, args.output, async |client| {
        let id = find::find(client, &args.job.text()).await?;
        follow::wait(client, &id, args.timeout, args.output).await
    })
}

pub(crate) fn watch(args: &ServerJobArgs) -> Done {
    on_server(&args.remote, args.output, async |client| {
        let id = find::find(client, &args.job.text()).await?;
        follow::watch(client, &id, args.output).await
    })
}

pub(crate) fn pause(args: &PauseArgs) -> Done {
    let PauseArgs { of, why } = args;
    on_server(&of.remote, of.output, async |client| {
        let id = find::find(client, &of.job.text()).await?;
        commands::command(client, &id, "pause", why, of.output).await
    })
}

pub(crate) fn workers(args: &WorkersArgs) -> Done {
    on_server(&args.remote, args.output, async |client| {
        commands::workers(client, args.output).await
    })
}

pub(crate) fn open(args: &OpenArgs) -> Done {
    on_server(&args.remote, Output::Human, async |client| open::open(client, args).await)
}

pub(crate) fn drain(args: &DrainArgs) -> Done {
    on_server(&args.remote, args.output, async |client| {
        commands::drain(client, &args.worker, args.output).await
    })
}

pub(crate) fn undrain(args: &DrainArgs) -> Done {
    on_server(&args.remote, args.output, async |client| {
        commands::undrain(client, &args.worker, args.output).await
    })
}

fn on_server(
    remote: &Remote,
    output: Output,
    ask: impl AsyncFnOnce(&Client) -> Result<Exit, CliError>,
) -> Done {
    let address = target::server(remote).map_err(CliError::wrong);
    conclude(address.and_then(ServerSource::new).and_then(|source| source.ask(ask)), output)
}
