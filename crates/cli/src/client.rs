//! Commands against a server, over its REST. Asks and prints; every rule is in the server.
//!
//! | room | duty |
//! |---|---|
//! | `place`, `profile`, `token` | where to go, and with what |
//! | `api`, `shapes`, `trouble` | requests, answers, and what goes wrong with them |
//! | `submit`, `files` | a job file and what it names, handed over once |
//! | `follow`, `sse` | a job followed to its end, over restarts of the server |
//! | `look`, `logs`, `standing` | what there is to see |
//!
//! Nothing here opens a data folder.

mod api;
mod files;
mod follow;
mod logs;
mod look;
mod place;
mod profile;
mod shapes;
mod sse;
mod standing;
mod submit;
mod token;
mod trouble;

use std::path::Path;

use api::Client;
use place::{Place, Said};
use trouble::{Trouble, conclude};

use crate::args::{
    DrainArgs, EitherJobArgs, ExplainArgs, Here, ListArgs, LogsArgs, Output, Remote, ResumeArgs,
    RetryArgs, ServerJobArgs, SubmitArgs, WaitArgs, WorkersArgs,
};
use crate::{Done, Exit, again, explain, jobs, run};

pub(crate) use token::Token;

pub(crate) fn submit(args: &SubmitArgs) -> Done {
    on_server(&args.remote, args.output, async |client| submit::submit(&client, args).await)
}

pub(crate) fn wait(args: &WaitArgs) -> Done {
    on_server(&args.remote, args.output, async |client| {
        let id = look::find(&client, &args.job).await?;
        follow::wait(&client, &id, args.timeout, args.output).await
    })
}

pub(crate) fn watch(args: &ServerJobArgs) -> Done {
    on_server(&args.remote, args.output, async |client| {
        let id = look::find(&client, &args.job).await?;
        follow::watch(&client, &id, args.output).await
    })
}

pub(crate) fn pause(args: &ServerJobArgs) -> Done {
    on_server(&args.remote, args.output, async |client| {
        look::wish(&client, &args.job, "pause", args.output).await
    })
}

pub(crate) fn workers(args: &WorkersArgs) -> Done {
    on_server(&args.remote, args.output, async |client| look::workers(&client, args.output).await)
}

pub(crate) fn drain(args: &DrainArgs) -> Done {
    on_server(&args.remote, args.output, async |client| {
        look::drain(&client, &args.worker, args.output).await
    })
}

/// Commands that a data folder answers too.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Either {
    /// `--data` was typed, not found in the environment.
    pub(crate) data_typed: bool,
}

impl Either {
    pub(crate) fn list(self, args: &ListArgs) -> Done {
        let there = async |client| look::list(&client, args).await;
        self.choose(&args.remote, args.common.data.as_deref(), args.common.output, there, || {
            jobs::list(args)
        })
    }

    pub(crate) fn status(self, args: &EitherJobArgs) -> Done {
        let of = &args.of;
        let there = async |client| look::status(&client, &of.job, of.common.output).await;
        self.choose(&args.remote, of.common.data.as_deref(), of.common.output, there, || {
            jobs::status(of)
        })
    }

    pub(crate) fn history(self, args: &EitherJobArgs) -> Done {
        let of = &args.of;
        let there = async |client| look::history(&client, &of.job, of.common.output).await;
        self.choose(&args.remote, of.common.data.as_deref(), of.common.output, there, || {
            jobs::history(of)
        })
    }

    pub(crate) fn cancel(self, args: &EitherJobArgs) -> Done {
        let of = &args.of;
        let there = async |client| look::wish(&client, &of.job, "cancel", of.common.output).await;
        self.choose(&args.remote, of.common.data.as_deref(), of.common.output, there, || {
            again::cancel(of)
        })
    }

    pub(crate) fn logs(self, args: &LogsArgs) -> Done {
        let there = async |client| logs::logs(&client, args).await;
        self.choose(&args.remote, args.common.data.as_deref(), args.common.output, there, || {
            jobs::logs(args)
        })
    }

    pub(crate) fn explain(self, args: &ExplainArgs) -> Done {
        let there = async |client| look::explain(&client, args).await;
        let here = || explain::run(args);
        self.choose(&args.remote, args.common.data.as_deref(), args.common.output, there, here)
    }

    pub(crate) fn resume(self, args: &ResumeArgs) -> Done {
        let there = async |client| {
            no_flags_of_a_run(&args.here, args.changed)?;
            look::wish(&client, &args.job, "resume", args.common.output).await
        };
        let here = || run::resume(args);
        self.choose(&args.remote, args.common.data.as_deref(), args.common.output, there, here)
    }

    pub(crate) fn retry(self, args: &RetryArgs) -> Done {
        let there = async |client| {
            no_flags_of_a_run(&args.here, false)?;
            submit::retry(&client, args).await
        };
        let here = || again::retry(args);
        self.choose(&args.remote, args.common.data.as_deref(), args.common.output, there, here)
    }

    fn choose(
        self,
        remote: &Remote,
        data: Option<&Path>,
        output: Output,
        there: impl AsyncFnOnce(Client) -> Result<Exit, Trouble>,
        here: impl FnOnce() -> Done,
    ) -> Done {
        let said = Said { remote, data, data_typed: self.data_typed };
        match place::of_job(said) {
            Err(why) => conclude(Err(Trouble::Wrong(why)), output),
            Ok(Place::Local) => here(),
            Ok(Place::Server(address)) => conclude(asking(address, there), output),
        }
    }
}

/// What is meant for a job that runs here would be passed over in silence otherwise.
fn no_flags_of_a_run(here: &Here, changed: bool) -> Result<(), Trouble> {
    let given = [("--slots", here.slots.is_some()), ("--keep", here.keep), ("--changed", changed)];
    match given.into_iter().find(|(_, given)| *given) {
        None => Ok(()),
        Some((flag, _)) => Err(Trouble::Wrong(format!(
            "{flag} is for jobs that run here, and this goes to a server; give --data DIR for a \
             job of a data folder"
        ))),
    }
}

fn on_server(
    remote: &Remote,
    output: Output,
    ask: impl AsyncFnOnce(Client) -> Result<Exit, Trouble>,
) -> Done {
    let address = place::server(remote).map_err(Trouble::Wrong);
    conclude(address.and_then(|address| asking(address, ask)), output)
}

fn asking(
    address: api::Address,
    ask: impl AsyncFnOnce(Client) -> Result<Exit, Trouble>,
) -> Result<Exit, Trouble> {
    let client = Client::new(address)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let done = runtime.block_on(ask(client));
    // Whatever still waits for the server is let go.
    runtime.shutdown_background();
    done
}
