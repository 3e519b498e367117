//! What attempts have printed, from a server, in the order in which they began.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use steadfast_core::event::{Event, Recorded};
use steadfast_core::plan::Plan;

use super::api::Client;
use super::look;
use super::shapes::{AttemptOfJob, Log};
use super::trouble::Trouble;
use crate::args::LogsArgs;
use crate::jobs::Pieces;
use crate::{Exit, jobs};

/// Printing is no event, so it is looked for.
const LOOK: Duration = Duration::from_millis(300);
/// Logs, and attempts, that are asked for at once.
const PAGE: &str = "1000";

pub(super) async fn logs(client: &Client, args: &LogsArgs) -> Result<Exit, Trouble> {
    let id = look::find(client, &args.job).await?;
    let mut order = Order::default();
    let mut shown: BTreeMap<String, u64> = BTreeMap::new();
    let mut pieces = Pieces::new(args.common.output);
    loop {
        // Asked before the logs are: what is printed before the end is seen.
        let over = !args.follow || client.status(&id).await?.value.is_over();
        let mut logs = listed(client, &id, args.step.as_deref()).await?;
        order.learn(client, &id, logs.len()).await?;
        logs.sort_by_cached_key(|log| (order.of(&log.of), log.name.clone()));
        pieces.headed |= logs.len() > 1;
        for log in &logs {
            let from = shown.entry(log.name.clone()).or_default();
            if log.size > *from {
                copy(client, &id, log, from, &mut pieces).await?;
            }
        }
        pieces.flush()?;
        if over {
            if logs.is_empty()
                && let Some(plan) = plan(client, &id).await
            {
                jobs::tell_no_log(&plan, args.step.as_deref());
            }
            return Ok(Exit::Ok);
        }
        tokio::time::sleep(LOOK).await;
    }
}

/// What the job does is in its first event.
pub(super) async fn plan(client: &Client, id: &str) -> Option<Arc<Plan>> {
    let first = client.events(id, &[("limit", "1")]).await.ok()?.events.into_iter().next()?;
    match serde_json::from_value::<Recorded>(first).ok()?.event {
        Event::JobAccepted(accepted) => Some(accepted.plan),
        _ => None,
    }
}

async fn listed(client: &Client, id: &str, step: Option<&str>) -> Result<Vec<Log>, Trouble> {
    let mut logs = Vec::new();
    let mut cursor: Option<String> = None;
    loop {
        let mut query = vec![("limit", PAGE)];
        query.extend(step.map(|step| ("step", step)));
        query.extend(cursor.as_deref().map(|cursor| ("cursor", cursor)));
        let page = client.logs(id, &query).await?;
        logs.extend(page.logs);
        // One that does not move would go on for ever.
        match page.next {
            Some(next) if cursor.as_ref() != Some(&next) => cursor = Some(next),
            _ => return Ok(logs),
        }
    }
}

async fn copy(
    client: &Client,
    id: &str,
    log: &Log,
    from: &mut u64,
    pieces: &mut Pieces,
) -> Result<(), Trouble> {
    let mut response = client.log(id, &log.of.step, &log.name, *from).await?;
    // Of text for programs a character may come in two chunks.
    let mut held: Vec<u8> = Vec::new();
    while let Some(chunk) = response.chunk().await.map_err(|error| client.unreached(&error))? {
        held.extend_from_slice(&chunk);
        let used = pieces.piece(&log.of.step, &log.name, *from, &held)?;
        held.drain(..used);
        *from += used as u64;
    }
    Ok(())
}

/// Which attempt began when.
#[derive(Default)]
struct Order {
    begun: BTreeMap<AttemptOfJob, usize>,
    cursor: Option<String>,
}

impl Order {
    /// One log needs no order.
    async fn learn(&mut self, client: &Client, id: &str, logs: usize) -> Result<(), Trouble> {
        while logs > 1 && self.begun.len() < logs {
            let mut query = vec![("limit", PAGE)];
            query.extend(self.cursor.as_deref().map(|cursor| ("cursor", cursor)));
            let page = client.attempts(id, &query).await?;
            for attempt in page.attempts {
                let next = self.begun.len();
                self.begun.entry(attempt).or_insert(next);
            }
            match page.next {
                Some(next) if self.cursor.as_ref() != Some(&next) => self.cursor = Some(next),
                _ => break,
            }
        }
        Ok(())
    }

    fn of(&self, attempt: &AttemptOfJob) -> usize {
        self.begun.get(attempt).copied().unwrap_or(usize::MAX)
    }
}
