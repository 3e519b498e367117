//! A person steps in: `retry` runs an ended job again, `cancel` ends one.

use steadfast_core::decide::Input;
use steadfast_core::event::{JobId, JobState, RecordedEvent, Requester};
use steadfast_core::retry_job::retry_job;
use steadfast_engine::{Assignment, Live, Observer, Ownership, Placement, Work, Workers};

use crate::args::{Common, Output, ReasonArg, RetryArgs};
use crate::clock::{self, SystemClock};
use crate::data::{self, Data};
use crate::input::Wrong;
use crate::run::{Session, adopted, conclude, new_id};
use crate::{Done, Exit, folder, input};

/// How often the answer of the process that runs the job is looked for.
const LOOKS: u32 = 300;

pub(crate) fn retry(args: &RetryArgs, job: &str) -> Done {
    conclude(try_retry(args, job), args.common.output)
}

fn try_retry(args: &RetryArgs, job: &str) -> Result<Exit, Wrong> {
    let data = Data::at(args.common.data.as_deref())?;
    let none = || Wrong::no_job(format!("there is no job {job}"));
    let mut store = data.look()?.ok_or_else(none)?;
    let row = data::find(&mut store, job)?;
    let old = data::state(&mut store, &row.id)?;
    drop(store);
    if data::is_of_a_server(&old) {
        return Err(format!(
            "job {} was submitted to a server: start one with this data folder, and retry it there",
            row.id
        )
        .into());
    }
    let id = new_id();
    let accepted = retry_job(&old, id.clone(), args.from.as_deref(), args.grant);
    let mut accepted = accepted.map_err(|error| error.to_string())?;
    accepted.requested = local(&args.why)?;
    let session =
        Session { id, plan: accepted.plan.clone(), here: &args.here, output: args.common.output };
    let begin = |live: &Live| live.inbox().submit(accepted, None);
    session.open(args.common.data.as_deref(), None, begin)
}

/// The user who works on the data folder itself.
fn local(why: &ReasonArg) -> Result<Requester, Wrong> {
    Requester::local(why.reason.as_deref()).map_err(|why| why.to_string().into())
}

pub(crate) fn cancel(common: &Common, why: &ReasonArg, job: &str) -> Done {
    conclude(try_cancel(common, why, job), common.output)
}

fn try_cancel(common: &Common, why: &ReasonArg, job: &str) -> Result<Exit, Wrong> {
    let requested = local(why)?;
    let data = Data::at(common.data.as_deref())?;
    let none = || Wrong::no_job(format!("there is no job {job}"));
    let mut store = data.look()?.ok_or_else(none)?;
    let row = data::find(&mut store, job)?;
    let job = data::state(&mut store, &row.id)?;
    if job.is_over() {
        return Err(format!("job {} has ended: {}", row.id, row.state).into());
    }
    data.may_write(&job)?;
    match data.lock(&row.id) {
        Ok(lock) => {
            let (adopted, owner) = adopted(&data, &mut store, &row.id, &lock)?;
            drop(store);
            let live = Live::start(
                Box::new(data.open()?),
                Box::new(SystemClock),
                Placement::here(steadfast_engine::Slots::unlimited(), "cancel"),
                Ownership { owner, loader: None },
                |_| NoWorkers,
                Box::new(NoWorkers),
            );
            live.inbox().drain();
            live.inbox().adopt(adopted)?;
            live.inbox().command(&row.id, Input::Cancel(requested))?;
            live.stop().map_err(|error| error.to_string())?;
            data.forget_lock(&row.id);
        }
        Err(_) => {
            // The process that runs it looks for this.
            data.ask_to_cancel(&row.id, &requested)?;
            for _ in 0..LOOKS {
                if data::state(&mut store, &row.id)?.state() == JobState::Cancelled {
                    break;
                }
                clock::wait_a_little();
            }
        }
    }
    let mut store = data.open()?;
    let job = data::state(&mut store, &row.id)?;
    match common.output {
        Output::Json => {
            let status = folder::status_of(&data, &mut store, &row.id)?;
            input::print_json(&status).map_err(|error| error.to_string())?;
        }
        Output::Human => println!("{} {}", row.id, job.state()),
    }
    Ok(if job.state() == JobState::Cancelled { Exit::Ok } else { Exit::Failed })
}

/// Nothing starts while a job is cancelled, and no view follows it.
struct NoWorkers;

impl Workers for NoWorkers {
    fn assign(&mut self, _: Box<Work>) {}
    fn withdraw(&mut self, _: Assignment) {}
    fn settled(&mut self, _: &JobId, _: u64) {}
}

impl Observer for NoWorkers {
    fn committed(&mut self, _: &JobId, _: Vec<RecordedEvent>) {}
}
