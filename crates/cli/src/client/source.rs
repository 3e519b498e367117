//! Jobs of a server, for the commands that look at jobs. Each question is asked on a runtime of this thread.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::sync::Arc;

use serde_json::Value;
use steadfast_api::{
    AttemptName, Attempts, JobStatus, JobsPage, LogRow, ReadinessPage, ShownState,
};
use steadfast_core::explain::Explanation;
use steadfast_core::plan::Plan;
use steadfast_core::time::Timestamp;
use steadfast_server::queries::WhatIfAnswer;
use tokio::runtime::Runtime;

use super::api::{Address, Client};
use super::{find, overview};
use crate::args::ListArgs;
use crate::error::CliError;
use crate::logs::Times;
use crate::source::{
    Activity, Answer, JobSource, ListWords, Replay, SeePiece, StoredEvent, fold_events,
};
use crate::summary::JobOverview;

/// Events, attempts and logs that are asked for at once.
const PAGE: &str = "1000";
/// Of a job that goes on: how often a status is asked for that no event came during.
const TRIES: u32 = 20;

pub(super) struct ServerSource {
    client: Client,
    /// Taken when this is dropped.
    runtime: Option<Runtime>,
    /// Which attempt began when, of the job whose logs are shown.
    order: AttemptOrder,
}

impl Drop for ServerSource {
    /// Whatever still waits for the server is let go.
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

impl ServerSource {
    pub(super) fn new(address: Address) -> Result<Self, CliError> {
        let client = Client::new(address)?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        Ok(Self { client, runtime: Some(runtime), order: AttemptOrder::default() })
    }

    pub(super) fn find(&self, name: &str) -> Result<String, CliError> {
        self.ask(async |client| find::find(client, name).await)
    }

    /// Waits for what the server answers.
    pub(super) fn ask<T>(
        &self,
        ask: impl AsyncFnOnce(&Client) -> Result<T, CliError>,
    ) -> Result<T, CliError> {
        match &self.runtime {
            Some(runtime) => runtime.block_on(ask(&self.client)),
            None => Err(CliError::wrong("the connection has been given up")),
        }
    }

    fn get<T>(&self, path: &[&str], query: &[(&str, &str)]) -> Result<Answer<T>, CliError> {
        let text = self.ask(async |client| client.text(path, query).await)?;
        Ok(Answer::Sent { text, address: self.client.address() })
    }
}

impl JobSource for ServerSource {
    fn list_words(&self) -> ListWords {
        ListWords { begun: "submitted", first: "hand one over with `steadfast submit job.yaml`" }
    }

    fn list(&mut self, query: &ListArgs) -> Result<Answer<JobsPage>, CliError> {
        let limit = query.limit.to_string();
        let label = query.label.as_ref().map(|(name, value)| format!("{name}={value}"));
        let given = [
            ("state", query.state.map(ShownState::name)),
            ("name", query.name.as_deref()),
            ("label", label.as_deref()),
            ("cursor", query.cursor.as_deref()),
            ("limit", Some(limit.as_str())),
        ];
        let given: Vec<(&str, &str)> =
            given.into_iter().filter_map(|(name, value)| Some((name, value?))).collect();
        self.get(&["jobs"], &given)
    }

    fn status(&mut self, id: &str) -> Result<Answer<JobStatus>, CliError> {
        self.get(&["jobs", id], &[])
    }

    fn overview(&mut self, id: &str) -> Result<JobOverview, CliError> {
        let status = self.status(id)?.read()?;
        self.ask(async |client| Ok(overview::overview(client, &status).await))
    }

    fn accepted(&mut self, id: &str) -> Result<(Timestamp, Arc<Plan>), CliError> {
        self.ask(async |client| {
            let found = find::accepted(client, id).await?;
            found.ok_or_else(|| client.odd("the job has no first event"))
        })
    }

    fn events(
        &mut self,
        id: &str,
        after: u64,
        see: &mut dyn FnMut(StoredEvent) -> Result<(), CliError>,
    ) -> Result<u64, CliError> {
        let mut after = after;
        loop {
            let from = after.to_string();
            let query = [("after", from.as_str()), ("limit", PAGE)];
            let page = self.ask(async |client| client.events(id, &query).await)?;
            for event in page.events {
                after = after.max(event["seq"].as_u64().unwrap_or(0));
                see(StoredEvent::Sent(event))?;
            }
            match page.next {
                Some(next) if next >= after && next > from.parse().unwrap_or(0) => after = next,
                _ => return Ok(after),
            }
        }
    }

    fn unreadable(&self, why: &dyn Display) -> CliError {
        self.client.odd(format!("its events cannot be read ({why}); `history -o json` shows them"))
    }

    fn explain(&mut self, id: &str, step: Option<&str>) -> Result<Answer<Explanation>, CliError> {
        let query = step.map(|step| ("step", step));
        self.get(&["jobs", id, "explain"], query.as_slice())
    }

    fn what_if(
        &mut self,
        id: &str,
        step: Option<&str>,
        with: &Value,
    ) -> Result<Answer<WhatIfAnswer>, CliError> {
        let text = self.ask(async |client| client.what_if(id, step, with).await)?;
        Ok(Answer::Sent { text, address: self.client.address() })
    }

    fn readiness(
        &mut self,
        id: &str,
        cursor: Option<&str>,
        limit: usize,
    ) -> Result<Answer<ReadinessPage>, CliError> {
        let limit = limit.to_string();
        let mut query = vec![("limit", limit.as_str())];
        query.extend(cursor.map(|cursor| ("cursor", cursor)));
        self.get(&["jobs", id, "readiness"], &query)
    }

    /// The events that the server gives, folded here, and the status that it shows must be the same.
    fn replay(&mut self, id: &str) -> Result<Replay, CliError> {
        let (mut job, mut attempts) = (None, Attempts::default());
        let mut after = fold_events(self, id, &mut job, &mut attempts)?;
        for _ in 0..TRIES {
            let shown: Value = self.get(&["jobs", id], &[])?.read()?;
            let before = after;
            after = fold_events(self, id, &mut job, &mut attempts)?;
            if after != before {
                continue;
            }
            let Some(job) = &job else { return Err(self.unreadable(&"there are none")) };
            let made = |status: &JobStatus| serde_json::to_value(status).ok();
            let status = JobStatus::new(job, &attempts);
            // Whether a process of `run` is at it only the server knows.
            let is_equal = made(&status).as_ref() == Some(&shown)
                || made(&status.without_a_process()).as_ref() == Some(&shown);
            return Ok(Replay {
                events: job.seq,
                is_equal,
                state: shown["state"].as_str().unwrap_or_default().to_owned(),
                against: "the server's status",
                complaint: format!(
                    "the {} events of {id} do not give the status that {} shows; is it of the same \
                     version?",
                    job.seq,
                    self.client.address()
                ),
            });
        }
        Err(CliError::wrong(format!(
            "job {id} changes faster than it can be compared; replay it when it is paused or has \
             ended"
        )))
    }

    fn logs(&mut self, id: &str, step: Option<&str>) -> Result<Vec<LogRow>, CliError> {
        let mut logs = Vec::new();
        let mut cursor: Option<String> = None;
        loop {
            let mut query = vec![("limit", PAGE)];
            query.extend(step.map(|step| ("step", step)));
            query.extend(cursor.as_deref().map(|cursor| ("cursor", cursor)));
            let page = self.ask(async |client| client.logs(id, &query).await)?;
            logs.extend(page.logs);
            // One that does not move would go on for ever.
            match page.next {
                Some(next) if cursor.as_ref() != Some(&next) => cursor = Some(next),
                _ => break,
            }
        }
        let mut order = std::mem::take(&mut self.order);
        self.ask(async |client| order.learn(client, id, logs.len()).await)?;
        logs.sort_by_cached_key(|log| (order.of(&log.of), log.name.clone()));
        self.order = order;
        Ok(logs)
    }

    fn read_log(
        &mut self,
        id: &str,
        log: &LogRow,
        from: u64,
        see: SeePiece<'_>,
    ) -> Result<(), CliError> {
        self.ask(async |client| {
            let mut response = client.log(id, &log.of.step, &log.name, from).await?;
            while let Some(chunk) =
                response.chunk().await.map_err(|error| client.unreached(&error))?
            {
                if see(&chunk)?.is_break() {
                    break;
                }
            }
            Ok(())
        })
    }

    fn log_times(&mut self, id: &str, log: &LogRow) -> Result<Times, CliError> {
        self.ask(async |client| client.log_times(id, &log.of.step, &log.name).await)
    }

    fn activity(&mut self, id: &str) -> Result<Activity, CliError> {
        let status = self.status(id)?.read()?;
        // Of an interrupted job something comes only once it is resumed.
        let over = status.is_over() || status.state == ShownState::Interrupted;
        Ok(if over { Activity::Over } else { Activity::GoesOn })
    }
}

/// Which attempt of a job began when.
#[derive(Debug, Default)]
struct AttemptOrder {
    begun: BTreeMap<AttemptName, usize>,
    cursor: Option<String>,
}

impl AttemptOrder {
    /// One log needs no order.
    async fn learn(&mut self, client: &Client, id: &str, logs: usize) -> Result<(), CliError> {
        while logs > 1 && self.begun.len() < logs {
            let mut query = vec![("limit", PAGE)];
            query.extend(self.cursor.as_deref().map(|cursor| ("cursor", cursor)));
            let page = client.attempts(id, &query).await?;
            for attempt in page.attempts {
                let next = self.begun.len();
                self.begun.entry(attempt.name()).or_insert(next);
            }
            match page.next {
                Some(next) if self.cursor.as_ref() != Some(&next) => self.cursor = Some(next),
                _ => break,
            }
        }
        Ok(())
    }

    fn of(&self, attempt: &AttemptName) -> usize {
        self.begun.get(attempt).copied().unwrap_or(usize::MAX)
    }
}
