//! What attempts have printed, from a server, in the order in which they began.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use steadfast_api::ShownState;
use steadfast_core::event::{Event, RecordedEvent};
use steadfast_core::plan::Plan;

use super::api::Client;
use super::error::ClientError;
use super::shapes::{AttemptOfJob, Log};
use crate::Exit;
use crate::args::LogsArgs;
use crate::logs::{LastLines, Printer, since_ms, tell_arriving, tell_no_log};

/// Printing is no event, so it is looked for.
const LOOK: Duration = Duration::from_millis(300);
/// Logs, and attempts, that are asked for at once.
const PAGE: &str = "1000";
/// Bytes in which the last lines are looked for at once.
const TAIL_CHUNK: u64 = 256 << 10;

pub(super) async fn logs(client: &Client, args: &LogsArgs, id: &str) -> Result<Exit, ClientError> {
    let since = since_ms(args);
    let mut order = Order::default();
    let mut shown: BTreeMap<String, u64> = BTreeMap::new();
    let mut printer = Printer::new(args);
    loop {
        // Asked before the logs are: what is printed before the end is seen.
        let over = !args.follow || is_over(client, id).await?;
        let mut logs = listed(client, id, args.step.as_deref()).await?;
        logs.retain(|log| args.attempt.is_none_or(|attempt| log.of.attempt == attempt));
        order.learn(client, id, logs.len()).await?;
        logs.sort_by_cached_key(|log| (order.of(&log.of), log.name.clone()));
        printer.headed |= logs.len() > 1;
        for log in &logs {
            let from = match shown.get(&log.name) {
                Some(from) => *from,
                None => begin(client, id, log, args.tail, since).await?,
            };
            let to = if log.size > from {
                copy(client, id, log, from, &mut printer).await?
            } else {
                from
            };
            shown.insert(log.name.clone(), to);
        }
        printer.flush()?;
        if over {
            printer.end()?;
            logs.iter().filter(|log| log.arriving).for_each(|log| tell_arriving(&log.name));
            if logs.is_empty()
                && let Some(plan) = plan(client, id).await
            {
                tell_no_log(&plan, args);
            }
            return Ok(Exit::Ok);
        }
        tokio::time::sleep(LOOK).await;
    }
}

/// What the job does is in its first event.
pub(super) async fn plan(client: &Client, id: &str) -> Option<Arc<Plan>> {
    let first = client.events(id, &[("limit", "1")]).await.ok()?.events.into_iter().next()?;
    match serde_json::from_value::<RecordedEvent>(first).ok()?.event {
        Event::JobAccepted(accepted) => Some(accepted.plan),
        _ => None,
    }
}

async fn listed(client: &Client, id: &str, step: Option<&str>) -> Result<Vec<Log>, ClientError> {
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

/// Nothing more comes of it; of an interrupted job only once it is resumed.
async fn is_over(client: &Client, id: &str) -> Result<bool, ClientError> {
    let status = client.status(id).await?.value;
    Ok(status.is_over() || status.state == ShownState::Interrupted)
}

/// Where printing begins: nothing before the last lines, nor before the moment.
async fn begin(
    client: &Client,
    id: &str,
    log: &Log,
    tail: Option<u64>,
    since: Option<u64>,
) -> Result<u64, ClientError> {
    let mut from = 0;
    if let Some(since) = since {
        let times = client.log_times(id, &log.of.step, &log.name).await?;
        from = times.since(since).unwrap_or(log.size);
    }
    if let Some(lines) = tail {
        let mut last = LastLines::new(lines);
        let mut end = log.size;
        while end > from {
            let start = end.saturating_sub(TAIL_CHUNK).max(from);
            let mut bytes = Vec::new();
            let mut response = client.log(id, &log.of.step, &log.name, start).await?;
            // It may have grown since; what is behind the end was seen.
            while bytes.len() < (end - start) as usize
                && let Some(chunk) =
                    response.chunk().await.map_err(|error| client.unreached(&error))?
            {
                bytes.extend_from_slice(&chunk);
            }
            bytes.truncate((end - start) as usize);
            end = start;
            if last.before(start, &bytes) {
                break;
            }
        }
        from = from.max(last.begin());
    }
    Ok(from)
}

async fn copy(
    client: &Client,
    id: &str,
    log: &Log,
    mut from: u64,
    printer: &mut Printer,
) -> Result<u64, ClientError> {
    if printer.wants_times() {
        printer.times = client.log_times(id, &log.of.step, &log.name).await?;
    }
    let mut response = client.log(id, &log.of.step, &log.name, from).await?;
    // Of text for programs a character may come in two chunks.
    let mut held: Vec<u8> = Vec::new();
    while let Some(chunk) = response.chunk().await.map_err(|error| client.unreached(&error))? {
        held.extend_from_slice(&chunk);
        let used = printer.piece(&log.of.step, &log.name, from, &held)?;
        held.drain(..used);
        from += used as u64;
    }
    Ok(from)
}

/// Which attempt began when.
#[derive(Default)]
struct Order {
    begun: BTreeMap<AttemptOfJob, usize>,
    cursor: Option<String>,
}

impl Order {
    /// One log needs no order.
    async fn learn(&mut self, client: &Client, id: &str, logs: usize) -> Result<(), ClientError> {
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
