//! Commands that a data folder and a server can both answer, and which of the two does.

use steadfast_core::event::RecordedEvent;

use super::api::Client;
use super::locate::{JobPlace, locate, tell_of_folder};
use super::source::ServerSource;
use super::target::{self, Target, TargetOptions, TypedPlace};
use super::{commands, submit};
use crate::args::{
    CancelArgs, EitherJobArgs, ExplainArgs, Here, HistoryArgs, ListArgs, LocalArgs, LogsArgs,
    Output, ReadinessArgs, Remote, ResumeArgs, RetryArgs,
};
use crate::error::{CliError, conclude};
use crate::folder::FolderSource;
use crate::source::JobSource;
use crate::{Done, Exit, explain, jobs, logs, readiness, retry_job, run};

#[derive(Clone, Copy, Debug)]
pub(crate) struct Routing {
    /// Whether `--data` or `--store` was typed, not found in the environment.
    pub(crate) typed: TypedPlace,
}

enum Route {
    /// The job's name, or its id if a server knew it.
    Folder(String),
    Server(Box<ServerSource>, String),
}

impl Routing {
    pub(crate) fn list(self, args: &ListArgs) -> Done {
        let output = args.common.output;
        match target::of_job(self.options(&args.remote, &args.common)) {
            Err(why) => conclude(Err(CliError::wrong(why)), output),
            Ok(Target::Local) => {
                let source = FolderSource::open(&args.common);
                conclude(source.and_then(|mut source| jobs::list(&mut source, args)), output)
            }
            Ok(Target::Server(address)) => {
                let unnamed = address.is_default;
                let source = ServerSource::new(address);
                let listed = source.and_then(|mut source| jobs::list(&mut source, args));
                let done = conclude(listed, output);
                if unnamed && output == Output::Human && done.is_ok() {
                    tell_of_folder();
                }
                done
            }
        }
    }

    pub(crate) fn status(self, args: &EitherJobArgs) -> Done {
        let (common, job) = (&args.of.common, args.of.job.text());
        self.look(&args.remote, common, &job, |source, id| jobs::status(source, id, common.output))
    }

    pub(crate) fn history(self, args: &HistoryArgs) -> Done {
        let (common, job, step) = (&args.of.common, args.of.job.text(), args.step.as_deref());
        self.look(&args.remote, common, &job, |source, id| {
            jobs::history(source, id, step, common.output)
        })
    }

    pub(crate) fn replay(self, args: &EitherJobArgs) -> Done {
        let (common, job) = (&args.of.common, args.of.job.text());
        self.look(&args.remote, common, &job, |source, id| jobs::replay(source, id, common.output))
    }

    pub(crate) fn logs(self, args: &LogsArgs) -> Done {
        self.look(&args.remote, &args.common, &args.job, |source, id| logs::logs(source, id, args))
    }

    pub(crate) fn explain(self, args: &ExplainArgs) -> Done {
        self.look(&args.remote, &args.common, &args.job, |source, id| {
            explain::run(source, id, args)
        })
    }

    pub(crate) fn readiness(self, args: &ReadinessArgs) -> Done {
        let (common, job) = (&args.of.common, args.of.job.text());
        self.look(&args.remote, common, &job, |source, id| readiness::run(source, id, args))
    }

    /// The events of a job; `Exit::Ok` if they were all handed over.
    pub(crate) fn log(
        self,
        remote: &Remote,
        common: &LocalArgs,
        job: &str,
        log: &mut Vec<RecordedEvent>,
    ) -> Done {
        self.look(remote, common, job, |source, id| {
            let mut sent = Vec::new();
            source.events(id, 0, &mut |event| {
                sent.push(event);
                Ok(())
            })?;
            for event in sent {
                log.push(event.read().map_err(|error| source.unreadable(&error))?);
            }
            Ok(Exit::Ok)
        })
    }

    pub(crate) fn cancel(self, args: &CancelArgs) -> Done {
        let (common, job, why) = (&args.of.common, args.of.job.text(), &args.why);
        let there = async |client: &Client, id: &str| {
            commands::command(client, id, "cancel", why, common.output).await
        };
        self.command(&args.remote, common, &job, there, |job| retry_job::cancel(common, why, job))
    }

    pub(crate) fn resume(self, args: &ResumeArgs) -> Done {
        let there = async |client: &Client, id: &str| {
            no_flags_of_a_run(&args.here, args.changed)?;
            commands::command(client, id, "resume", &args.why, args.common.output).await
        };
        let here = |job: &str| run::resume(args, job);
        self.command(&args.remote, &args.common, &args.job.text(), there, here)
    }

    pub(crate) fn retry(self, args: &RetryArgs) -> Done {
        let there = async |client: &Client, id: &str| {
            no_flags_of_a_run(&args.here, false)?;
            submit::retry(client, args, id).await
        };
        let here = |job: &str| retry_job::retry(args, job);
        self.command(&args.remote, &args.common, &args.job.text(), there, here)
    }

    fn look(
        self,
        remote: &Remote,
        common: &LocalArgs,
        job: &str,
        look: impl FnOnce(&mut dyn JobSource, &str) -> Result<Exit, CliError>,
    ) -> Done {
        let looked = self.route(remote, common, job).and_then(|route| match route {
            Route::Server(mut source, id) => look(&mut *source, &id),
            Route::Folder(name) => {
                let mut source = FolderSource::open(common)?;
                let id = source.find(&name)?;
                look(&mut source, &id)
            }
        });
        conclude(looked, common.output)
    }

    fn command(
        self,
        remote: &Remote,
        common: &LocalArgs,
        job: &str,
        there: impl AsyncFnOnce(&Client, &str) -> Result<Exit, CliError>,
        here: impl FnOnce(&str) -> Done,
    ) -> Done {
        match self.route(remote, common, job) {
            Err(error) => conclude(Err(error), common.output),
            Ok(Route::Folder(name)) => here(&name),
            Ok(Route::Server(source, id)) => {
                let done = source.ask(async |client| there(client, &id).await);
                conclude(done, common.output)
            }
        }
    }

    /// Where the job is. At the default address, which no flag named, jobs of `run` are still this machine's: a
    /// server on the same folder lists them, and cannot run them.
    fn route(self, remote: &Remote, common: &LocalArgs, job: &str) -> Result<Route, CliError> {
        let options = self.options(remote, common);
        let address = match target::of_job(options).map_err(CliError::wrong)? {
            Target::Local => return Ok(Route::Folder(job.to_owned())),
            Target::Server(address) => address,
        };
        let unnamed = address.is_default;
        let source = ServerSource::new(address)?;
        Ok(match locate(&source, job, unnamed)? {
            JobPlace::Folder(id) => Route::Folder(id),
            JobPlace::Server(id) => Route::Server(Box::new(source), id),
        })
    }

    fn options<'a>(self, remote: &'a Remote, common: &LocalArgs) -> TargetOptions<'a> {
        let is_named = common.data.is_some() || common.place.url().is_some();
        TargetOptions { remote, is_named, typed: self.typed }
    }
}

/// What is meant for a job that runs here would be passed over in silence otherwise.
fn no_flags_of_a_run(here: &Here, changed: bool) -> Result<(), CliError> {
    let given = [("--slots", here.slots.is_some()), ("--keep", here.keep), ("--changed", changed)];
    match given.into_iter().find(|(_, given)| *given) {
        None => Ok(()),
        Some((flag, _)) => Err(CliError::wrong(format!(
            "{flag} is for jobs that run here, and this goes to a server; give --data DIR for a \
             job of a data folder, --store URL for one of a database"
        ))),
    }
}
