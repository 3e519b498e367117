//! `replay` against a server: the events that it gives, folded here, and the status that it shows must be the same.

use serde_json::{Value, json};
use steadfast_api::{Attempts, JobStatus};
use steadfast_core::apply::fold;
use steadfast_core::job::Job;

use super::api::Client;
use super::error::ClientError;
use super::queries;
use crate::args::Output;
use crate::style::{GOOD, paint};
use crate::{Exit, input, jobs};

/// Of a job that goes on: how often a status is asked for that no event came during.
const TRIES: u32 = 20;

pub(super) async fn replay(client: &Client, id: &str, output: Output) -> Result<Exit, ClientError> {
    let (mut job, mut attempts) = (None::<Job>, Attempts::default());
    let mut after = 0;
    for _ in 0..TRIES {
        after = learn(client, id, after, &mut job, &mut attempts).await?;
        let shown = client.status(id).await?;
        let before = after;
        after = learn(client, id, after, &mut job, &mut attempts).await?;
        if after != before {
            continue;
        }
        let Some(job) = &job else { return Err(queries::unreadable(client, &"there are none")) };
        let shown: Value = serde_json::from_str(&shown.text)
            .map_err(|error| client.odd(format!("its status cannot be read: {error}")))?;
        return told(client, job, &attempts, &shown, output);
    }
    Err(ClientError::Wrong(format!(
        "job {id} changes faster than it can be compared; replay it when it is paused or has ended"
    )))
}

/// Takes the events after `after`; the number of the last.
async fn learn(
    client: &Client,
    id: &str,
    after: u64,
    job: &mut Option<Job>,
    attempts: &mut Attempts,
) -> Result<u64, ClientError> {
    queries::each_event(client, id, after, |event| {
        let record = queries::readable(client, event)?;
        attempts.add(&record);
        fold(job, &record).map_err(|why| queries::unreadable(client, &why))
    })
    .await
}

fn told(
    client: &Client,
    job: &Job,
    attempts: &Attempts,
    shown: &Value,
    output: Output,
) -> Result<Exit, ClientError> {
    let status = JobStatus::new(job, attempts);
    let made = |status: &JobStatus| {
        serde_json::to_value(status).map_err(|error| queries::unreadable(client, &error))
    };
    // Whether a process of `run` is at it only the server knows.
    let same = made(&status)? == *shown || made(&status.without_a_process())? == *shown;
    match output {
        Output::Json => {
            let answer = json!({
                "job": job.id, "events": job.seq, "equal": same, "state": shown["state"],
            });
            input::print_json(&answer)?;
        }
        Output::Human if same => {
            let (sign, state) = (paint(GOOD, "✓"), job.state());
            jobs::print(&format!("{sign} {} events give the server's status: {state}\n", job.seq))?;
        }
        Output::Human => {
            return Err(ClientError::Wrong(format!(
                "the {} events of {} do not give the status that {} shows; is it of the same version?",
                job.seq,
                job.id,
                client.address()
            )));
        }
    }
    Ok(if same { Exit::Ok } else { Exit::Failed })
}
