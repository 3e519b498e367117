//! Commands against a server, over its REST. Asks and prints; every rule is in the server.
//!
//! | room | duty |
//! |---|---|
//! | `place`, `whose`, `profile`, `token` | where to go, and with what |
//! | `api`, `shapes`, `trouble` | requests, answers, and what goes wrong with them |
//! | `submit`, `files` | a job file and what it names, handed over once |
//! | `follow`, `sse` | a job followed to its end, over restarts of the server |
//! | `look`, `logs`, `standing` | what there is to see |
//!
//! Nothing here but `whose` opens a data folder.

mod api;
mod error;
mod files;
mod follow;
mod logs;
mod profile;
mod queries;
mod replay;
mod shapes;
mod sse;
mod submit;
mod summary;
mod target;
mod token;
mod whose;

use std::path::Path;

use steadfast_core::event::RecordedEvent;

use api::Client;
use error::{ClientError, conclude};
use target::{Target, TargetOptions};
use whose::JobPlace;

use crate::args::{
    CancelArgs, Common, DrainArgs, EitherJobArgs, ExplainArgs, Here, HistoryArgs, ListArgs,
    LogsArgs, Output, PauseArgs, Remote, ResumeArgs, RetryArgs, ServerJobArgs, SubmitArgs,
    WaitArgs, WorkersArgs,
};
use crate::{Done, Exit, explain, jobs, retry_job, run};

pub(crate) use token::Token;

pub(crate) fn submit(args: &SubmitArgs) -> Done {
    on_server(&args.remote, args.output, async |client| submit::submit(&client, args).await)
}

pub(crate) fn wait(args: &WaitArgs) -> Done {
    on_server(&args.remote, args.output, async |client| {
        let id = queries::find(&client, &args.job.text()).await?;
        follow::wait(&client, &id, args.timeout, args.output).await
    })
}

pub(crate) fn watch(args: &ServerJobArgs) -> Done {
    on_server(&args.remote, args.output, async |client| {
        let id = queries::find(&client, &args.job.text()).await?;
        follow::watch(&client, &id, args.output).await
    })
}

pub(crate) fn pause(args: &PauseArgs) -> Done {
    let PauseArgs { of, why } = args;
    on_server(&of.remote, of.output, async |client| {
        queries::command(&client, &of.job.text(), "pause", why, of.output).await
    })
}

pub(crate) fn workers(args: &WorkersArgs) -> Done {
    on_server(&args.remote, args.output, async |client| {
        queries::workers(&client, args.output).await
    })
}

pub(crate) fn drain(args: &DrainArgs) -> Done {
    on_server(&args.remote, args.output, async |client| {
        queries::drain(&client, &args.worker, args.output).await
    })
}

pub(crate) fn undrain(args: &DrainArgs) -> Done {
    on_server(&args.remote, args.output, async |client| {
        queries::undrain(&client, &args.worker, args.output).await
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
        let said = self.said(&args.remote, args.common.data.as_deref());
        match target::of_job(said) {
            Err(why) => conclude(Err(ClientError::Wrong(why)), args.common.output),
            Ok(Target::Local) => jobs::list(args),
            Ok(Target::Server(address)) => {
                let unnamed = address.is_default;
                let there = async |client| queries::list(&client, args).await;
                let done = conclude(asking(address, there), args.common.output);
                if unnamed && args.common.output == Output::Human && done.is_ok() {
                    whose::tell_of_folder();
                }
                done
            }
        }
    }

    pub(crate) fn status(self, args: &EitherJobArgs) -> Done {
        let (common, job) = (&args.of.common, args.of.job.text());
        let there = async |client, id: String| queries::status(&client, &id, common.output).await;
        self.choose(&args.remote, common, &job, there, |job| jobs::status(common, job))
    }

    pub(crate) fn history(self, args: &HistoryArgs) -> Done {
        let (common, job, step) = (&args.of.common, args.of.job.text(), args.step.as_deref());
        let there =
            async |client, id: String| queries::history(&client, &id, step, common.output).await;
        self.choose(&args.remote, common, &job, there, |job| jobs::history(common, job, step))
    }

    pub(crate) fn replay(self, args: &EitherJobArgs) -> Done {
        let (common, job) = (&args.of.common, args.of.job.text());
        let there = async |client, id: String| replay::replay(&client, &id, common.output).await;
        self.choose(&args.remote, common, &job, there, |job| jobs::replay(common, job))
    }

    pub(crate) fn cancel(self, args: &CancelArgs) -> Done {
        let (common, job, why) = (&args.of.common, args.of.job.text(), &args.why);
        let there = async |client, id: String| {
            queries::command(&client, &id, "cancel", why, common.output).await
        };
        self.choose(&args.remote, common, &job, there, |job| retry_job::cancel(common, why, job))
    }

    /// The events of a job, wherever it is; `Exit::Ok` if they were all handed over.
    pub(crate) fn log(
        self,
        remote: &Remote,
        common: &Common,
        job: &str,
        log: &mut Vec<RecordedEvent>,
    ) -> Done {
        let log = std::cell::RefCell::new(log);
        let there = async |client, id: String| {
            let events = queries::log(&client, &id).await?;
            log.borrow_mut().extend(events);
            Ok(Exit::Ok)
        };
        self.choose(remote, common, job, there, |job| {
            let mut log = log.borrow_mut();
            jobs::log(common, job, &mut log)
        })
    }

    pub(crate) fn logs(self, args: &LogsArgs) -> Done {
        let there = async |client, id: String| logs::logs(&client, args, &id).await;
        let here = |job: &str| crate::logs::logs(args, job);
        self.choose(&args.remote, &args.common, &args.job, there, here)
    }

    pub(crate) fn explain(self, args: &ExplainArgs) -> Done {
        let there = async |client, id: String| queries::explain(&client, args, &id).await;
        let here = |job: &str| explain::run(args, job);
        self.choose(&args.remote, &args.common, &args.job, there, here)
    }

    pub(crate) fn resume(self, args: &ResumeArgs) -> Done {
        let there = async |client, id: String| {
            no_flags_of_a_run(&args.here, args.changed)?;
            queries::command(&client, &id, "resume", &args.why, args.common.output).await
        };
        let here = |job: &str| run::resume(args, job);
        self.choose(&args.remote, &args.common, &args.job.text(), there, here)
    }

    pub(crate) fn retry(self, args: &RetryArgs) -> Done {
        let there = async |client, id: String| {
            no_flags_of_a_run(&args.here, false)?;
            submit::retry(&client, args, &id).await
        };
        let here = |job: &str| retry_job::retry(args, job);
        self.choose(&args.remote, &args.common, &args.job.text(), there, here)
    }

    fn said<'a>(self, remote: &'a Remote, data: Option<&'a Path>) -> TargetOptions<'a> {
        TargetOptions { remote, data, data_typed: self.data_typed }
    }

    /// Where the job is. At the default address, which nobody named, jobs of `run` are still this
    /// machine's: a server on the same folder lists them, and cannot run them.
    fn choose(
        self,
        remote: &Remote,
        common: &Common,
        job: &str,
        there: impl AsyncFnOnce(Client, String) -> Result<Exit, ClientError>,
        here: impl FnOnce(&str) -> Done,
    ) -> Done {
        let address = match target::of_job(self.said(remote, common.data.as_deref())) {
            Err(why) => return conclude(Err(ClientError::Wrong(why)), common.output),
            Ok(Target::Local) => return here(job),
            Ok(Target::Server(address)) => address,
        };
        let mut is_here = None;
        let unnamed = address.is_default;
        let asked = asking(address, async |client| {
            let id = match whose::find(&client, job, unnamed).await? {
                JobPlace::Here(id) => {
                    is_here = Some(id);
                    return Ok(Exit::Ok);
                }
                JobPlace::There(id) => id,
            };
            there(client, id).await
        });
        match is_here {
            Some(id) => here(&id),
            None => conclude(asked, common.output),
        }
    }
}

/// Whether the environment or the profile file names a server, which a command without flags goes to.
pub(crate) fn names_a_server() -> bool {
    target::names_a_server()
}

/// What is meant for a job that runs here would be passed over in silence otherwise.
fn no_flags_of_a_run(here: &Here, changed: bool) -> Result<(), ClientError> {
    let given = [("--slots", here.slots.is_some()), ("--keep", here.keep), ("--changed", changed)];
    match given.into_iter().find(|(_, given)| *given) {
        None => Ok(()),
        Some((flag, _)) => Err(ClientError::Wrong(format!(
            "{flag} is for jobs that run here, and this goes to a server; give --data DIR for a \
             job of a data folder"
        ))),
    }
}

fn on_server(
    remote: &Remote,
    output: Output,
    ask: impl AsyncFnOnce(Client) -> Result<Exit, ClientError>,
) -> Done {
    let address = target::server(remote).map_err(ClientError::Wrong);
    conclude(address.and_then(|address| asking(address, ask)), output)
}

fn asking(
    address: api::Address,
    ask: impl AsyncFnOnce(Client) -> Result<Exit, ClientError>,
) -> Result<Exit, ClientError> {
    let client = Client::new(address)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let done = runtime.block_on(ask(client));
    // Whatever still waits for the server is let go.
    runtime.shutdown_background();
    done
}
