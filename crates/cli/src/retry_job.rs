//! A person steps in: `retry` runs an ended job again, `cancel` ends one.

use steadfast::run::{RunError, new_id};
use steadfast_core::event::{JobState, Requester};
use steadfast_core::retry_job::retry_job;
use steadfast_store::RunClaimError;

use crate::args::{LocalArgs, Output, ReasonArg, RetryArgs};
use crate::clock;
use crate::data::{self, Data, JobOwner};
use crate::input::Wrong;
use crate::run::{Shown, conclude, start};
use crate::{Done, Exit, folder, input};

/// How often the answer of the process that runs the job is looked for.
const LOOKS: u32 = 300;

pub(crate) fn retry(args: &RetryArgs, job: &str) -> Done {
    conclude(try_retry(args, job), args.common.output)
}

fn try_retry(args: &RetryArgs, job: &str) -> Result<Exit, Wrong> {
    let data = Data::of(&args.common)?;
    let none = || Wrong::no_job(format!("there is no job {job}"));
    let mut store = data.look()?.ok_or_else(none)?;
    let row = data::find(&mut *store, job)?;
    let (old, owner) = data::owned(&mut *store, &row.id)?;
    drop(store);
    if owner == JobOwner::Server {
        return Err(format!(
            "job {} was submitted to a server: start one with this {}, and retry it there",
            row.id,
            data.what()
        )
        .into());
    }
    let accepted = retry_job(&old, new_id(), args.from.as_deref(), args.grant);
    let mut accepted = accepted.map_err(|error| error.to_string())?;
    accepted.requested = local(&args.why)?;
    start(&data, &args.here, args.common.output, accepted)
}

/// The user who works on the data folder, or the database, itself.
fn local(why: &ReasonArg) -> Result<Requester, Wrong> {
    Requester::local(why.reason.as_deref()).map_err(|why| why.to_string().into())
}

pub(crate) fn cancel(common: &LocalArgs, why: &ReasonArg, job: &str) -> Done {
    conclude(try_cancel(common, why, job), common.output)
}

fn try_cancel(common: &LocalArgs, why: &ReasonArg, job: &str) -> Result<Exit, Wrong> {
    let requested = local(why)?;
    let data = Data::of(common)?;
    let none = || Wrong::no_job(format!("there is no job {job}"));
    let mut store = data.look()?.ok_or_else(none)?;
    let row = data::find(&mut *store, job)?;
    let (job, owner) = data::owned(&mut *store, &row.id)?;
    if job.is_over() {
        return Err(format!("job {} has ended: {}", row.id, row.state).into());
    }
    data.may_write(&job, owner)?;
    let place = data.place(None);
    match place.claim(&row.id) {
        Ok(claim) => {
            let mut shown = Shown::new(common.output)?;
            steadfast::run::cancel(&place, claim, job, requested, &mut shown)?;
        }
        Err(error @ RunClaimError::Io { .. }) => return Err(RunError::from(error).into()),
        Err(RunClaimError::Run { .. }) => {
            // The process that runs it looks for this.
            place.ask_to_cancel(&row.id, &requested)?;
            for _ in 0..LOOKS {
                if data::state(&mut *store, &row.id)?.state() == JobState::Cancelled {
                    break;
                }
                clock::wait_a_little();
            }
        }
    }
    let mut store = data.open()?;
    let job = data::state(&mut *store, &row.id)?;
    match common.output {
        Output::Json => {
            let status = folder::status_of(&data, &mut *store, &row.id)?;
            input::print_json(&status).map_err(|error| error.to_string())?;
        }
        Output::Human => println!("{} {}", row.id, job.state()),
    }
    Ok(if job.state() == JobState::Cancelled { Exit::Ok } else { Exit::Failed })
}
