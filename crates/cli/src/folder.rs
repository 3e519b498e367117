//! Jobs of a data folder, or of a database. Nothing here writes.

use std::collections::HashMap;
use std::fmt::Display;
use std::io;
use std::sync::Arc;

use serde_json::Value;
use steadfast_api::{AttemptName, Attempts, JobStatus, JobsPage, LogRow, ReadinessPage};
use steadfast_core::apply::apply;
use steadfast_core::event::{Event, ItemId};
use steadfast_core::explain::{Explainer, Explanation};
use steadfast_core::job::Job;
use steadfast_core::plan::Plan;
use steadfast_core::select::ItemSelector;
use steadfast_core::time::Timestamp;
use steadfast_server::arriving::is_arriving;
use steadfast_server::queries::{self, FoldedJob, JobFilter, NoAnswer, WhatIfAnswer};
use steadfast_store::{Blobs, LogName, Reader};

use crate::args::{ListArgs, LocalArgs, Output};
use crate::data::{self, Data, JobOwner};
use crate::error::{CliError, conclude};
use crate::input::{self, Wrong};
use crate::logs::Times;
use crate::source::{
    Activity, Answer, JobSource, ListWords, Replay, SeePiece, StoredEvent, fold_events,
};
use crate::summary::JobOverview;
use crate::{Done, Exit, clock, view};

/// Bytes of a log that are read at once.
const CHUNK: usize = 64 << 10;

/// Runs a command on what is kept here; what it cannot find is the caller's mistake.
pub(crate) fn on_folder(
    data: Result<Data, String>,
    output: Output,
    command: impl FnOnce(&Data, &mut dyn Reader) -> Result<Exit, CliError>,
) -> Done {
    let source = data.map_err(CliError::from).and_then(FolderSource::new);
    let done = source.and_then(|mut source| {
        let (data, store) = source.parts()?;
        command(data, store)
    });
    conclude(done, output)
}

pub(crate) struct FolderSource {
    data: Data,
    /// None: nothing was ever run with this folder.
    store: Option<Box<dyn Reader>>,
    /// The job that was asked for last, as far as its log has been read: `logs -f` asks again every tick.
    known: Option<(Job, JobOwner)>,
    order: LogOrder,
}

/// Which attempt began when, of the job whose logs are shown: the events that say so.
#[derive(Debug, Default)]
struct LogOrder {
    job: String,
    begun: HashMap<(ItemId, u32), u64>,
    seq: u64,
}

impl FolderSource {
    pub(crate) fn open(args: &LocalArgs) -> Result<Self, CliError> {
        Self::new(Data::of(args)?)
    }

    fn new(data: Data) -> Result<Self, CliError> {
        let store = data.look()?;
        Ok(Self { data, store, known: None, order: LogOrder::default() })
    }

    fn parts(&mut self) -> Result<(&Data, &mut dyn Reader), CliError> {
        let Self { data, store, .. } = self;
        let root = data.folder.root().display();
        let none = || Wrong::no_job(format!("nothing was ever run with the data folder {root}"));
        Ok((data, &mut **store.as_mut().ok_or_else(none)?))
    }

    fn store(&mut self) -> Result<&mut dyn Reader, CliError> {
        self.parts().map(|(_, store)| store)
    }

    pub(crate) fn find(&mut self, name: &str) -> Result<String, CliError> {
        Ok(data::find(self.store()?, name)?.id.to_string())
    }

    /// As it is stored now. Of the job that was asked for last only the events since are read.
    fn job(&mut self, id: &str) -> Result<(&Data, &Job, JobOwner), CliError> {
        let known = match self.known.take().filter(|(job, _)| *job.id == *id) {
            None => data::owned(self.store()?, id)?,
            Some((mut job, owner)) => {
                let after = job.seq;
                data::each_event(self.store()?, id, after, |record| {
                    apply(&mut job, &record).map(drop).map_err(|error| error.to_string())
                })?;
                (job, owner)
            }
        };
        let (job, owner) = self.known.insert(known);
        Ok((&self.data, job, *owner))
    }

    fn select(&mut self, id: &str, step: Option<&str>) -> Result<ItemSelector, CliError> {
        let Some(step) = step else { return Ok(ItemSelector::default()) };
        let none = |why| Wrong::no_job(format!("job {id}: {why}"));
        Ok(self.accepted(id)?.1.select(step).map_err(none)?)
    }

    /// In the order in which their attempts began.
    fn sort(&mut self, id: &str, logs: &mut [(ItemId, LogRow)]) -> Result<(), CliError> {
        if logs.len() < 2 {
            return Ok(());
        }
        let mut order = std::mem::take(&mut self.order);
        if order.job != id {
            order = LogOrder { job: id.to_owned(), ..LogOrder::default() };
        }
        let LogOrder { begun, seq, .. } = &mut order;
        let after = *seq;
        data::each_event(self.store()?, id, after, |record| -> Result<(), String> {
            if let Event::AttemptStarted { item, attempt, .. } = record.event {
                begun.insert((item, attempt), record.seq);
            }
            *seq = record.seq;
            Ok(())
        })?;
        logs.sort_by_cached_key(|(item, log)| {
            (begun.get(&(*item, log.of.attempt)).copied(), log.name.clone())
        });
        self.order = order;
        Ok(())
    }
}

fn log_name(id: &str, log: &LogRow) -> LogName {
    LogName { job: id.into(), step: log.of.step.clone(), name: log.name.clone() }
}

/// The status of a job.
pub(crate) fn status_of(
    data: &Data,
    reader: &mut dyn Reader,
    id: &str,
) -> Result<JobStatus, String> {
    let status = FoldedJob::default().status(reader, &id.into()).map_err(text)?;
    let status = Arc::unwrap_or_clone(status);
    Ok(if data.storage.is_run(id) { status } else { status.without_a_process() })
}

#[allow(clippy::needless_pass_by_value, reason = "the shape `map_err` wants")]
fn text(error: impl Display) -> String {
    error.to_string()
}

impl JobSource for FolderSource {
    fn list_words(&self) -> ListWords {
        ListWords { begun: "started", first: "start one with `steadfast run job.yaml`" }
    }

    fn list(&mut self, query: &ListArgs) -> Result<Answer<JobsPage>, CliError> {
        let Self { data, store, .. } = self;
        let Some(store) = store else { return Ok(Answer::Made(JobsPage::default())) };
        let ListArgs { state, name, label, cursor, limit, .. } = query;
        let filter = JobFilter {
            states: state.iter().copied().collect(),
            name: name.clone(),
            label: label.clone(),
            ..JobFilter::default()
        };
        let is_run = |job: &str| data.storage.is_run(job);
        let page = queries::list(&mut **store, &is_run, &filter, cursor.as_deref(), *limit);
        Ok(Answer::Made(page.map_err(text)?))
    }

    fn status(&mut self, id: &str) -> Result<Answer<JobStatus>, CliError> {
        if let Some(why) = self.store()?.damage(id).map_err(text)? {
            let (name, submitted_at, finished_at) = self.row(id)?;
            let status = JobStatus::stuck(id, name, submitted_at, finished_at, why);
            return Ok(Answer::Made(status));
        }
        let (data, store) = self.parts()?;
        Ok(Answer::Made(status_of(data, store, id)?))
    }

    fn overview(&mut self, id: &str) -> Result<JobOverview, CliError> {
        if let Some(why) = self.store()?.damage(id).map_err(text)? {
            let (name, submitted_at, _) = self.row(id)?;
            let purge = self.data.hint("purge", id);
            return Ok(JobOverview::stuck(id, name, submitted_at, &why, &purge));
        }
        let (data, job, owner) = self.job(id)?;
        Ok(view::overview(job, owner, data))
    }

    fn accepted(&mut self, id: &str) -> Result<(Timestamp, Arc<Plan>), CliError> {
        if let Some((job, _)) = self.known.as_ref().filter(|(job, _)| *job.id == *id) {
            return Ok((job.accepted_at, job.plan.clone()));
        }
        let first = self.store()?.events(id, 0, 1).map_err(text)?.pop();
        match first.map(|record| (record.at, record.event)) {
            Some((at, Event::JobAccepted(accepted))) => Ok((at, accepted.plan)),
            _ => Err(format!("job {id} has no events").into()),
        }
    }

    fn events(
        &mut self,
        id: &str,
        mut after: u64,
        see: &mut dyn FnMut(StoredEvent) -> Result<(), CliError>,
    ) -> Result<u64, CliError> {
        data::each_event(self.store()?, id, after, |record| {
            after = record.seq;
            see(StoredEvent::Stored(Box::new(record)))
        })?;
        Ok(after)
    }

    fn unreadable(&self, why: &dyn Display) -> CliError {
        why.to_string().into()
    }

    fn explain(&mut self, id: &str, step: Option<&str>) -> Result<Answer<Explanation>, CliError> {
        let mut explainer = Explainer::new(self.select(id, step)?);
        data::each_event(self.store()?, id, 0, |record| explainer.see(&record).map_err(text))?;
        Ok(Answer::Made(explainer.explanation(clock::now()).map_err(text)?))
    }

    fn what_if(
        &mut self,
        id: &str,
        step: Option<&str>,
        with: &Value,
    ) -> Result<Answer<WhatIfAnswer>, CliError> {
        let operator = input::operator()?;
        self.select(id, step)?;
        let answer =
            queries::what_if(self.store()?, id, step, with.to_string().as_bytes(), &operator);
        let answer = answer.map_err(|why| match why {
            NoAnswer::Failed(why) => text(why),
            NoAnswer::Invalid(problems) => {
                let each = problems.iter().map(|problem| {
                    let help = problem.help.as_ref().map(|help| format!(" ({help})"));
                    format!("{}{}", problem.message, help.unwrap_or_default())
                });
                format!("the policy is not valid: {}", each.collect::<Vec<_>>().join("; "))
            }
        })?;
        Ok(Answer::Made(answer))
    }

    fn readiness(
        &mut self,
        id: &str,
        cursor: Option<&str>,
        limit: usize,
    ) -> Result<Answer<ReadinessPage>, CliError> {
        let (data, job, owner) = self.job(id)?;
        let page = queries::readiness(job, cursor, limit, clock::now()).map_err(text)?;
        let is_alone = owner == JobOwner::Run && !data.storage.is_run(id);
        Ok(Answer::Made(if is_alone { page.without_a_process() } else { page }))
    }

    fn replay(&mut self, id: &str) -> Result<Replay, CliError> {
        // Before the log is folded: that may be longer by then.
        let live = data::state(self.store()?, id)?;
        let (mut folded, mut attempts) = (None, Attempts::default());
        fold_events(self, id, &mut folded, &mut attempts)?;
        let folded = folded.ok_or_else(|| format!("job {id} has no events"))?;
        Ok(Replay {
            events: folded.seq,
            is_equal: live == folded,
            state: folded.state().to_string(),
            against: "the live state",
            complaint: format!("the log of {id} does not give its live state"),
        })
    }

    fn logs(&mut self, id: &str, step: Option<&str>) -> Result<Vec<LogRow>, CliError> {
        let only = self.select(id, step)?;
        let (data, job, _) = self.job(id)?;
        let mut logs = log_rows(&*data.storage.blobs(), job, only).map_err(text)?;
        self.sort(id, &mut logs)?;
        Ok(logs.into_iter().map(|(_, log)| log).collect())
    }

    fn read_log(
        &mut self,
        id: &str,
        log: &LogRow,
        from: u64,
        see: SeePiece<'_>,
    ) -> Result<(), CliError> {
        let reader = self.data.storage.blobs().open_log(&log_name(id, log))?;
        let mut offset = from;
        loop {
            let chunk = reader.read(offset, CHUNK)?;
            offset += chunk.len() as u64;
            if chunk.is_empty() || see(&chunk)?.is_break() {
                return Ok(());
            }
        }
    }

    fn log_times(&mut self, id: &str, log: &LogRow) -> Result<Times, CliError> {
        Ok(Times::new(self.data.storage.blobs().log_times(&log_name(id, log))?))
    }

    fn activity(&mut self, id: &str) -> Result<Activity, CliError> {
        let (data, job, owner) = self.job(id)?;
        Ok(match data.rests(job, owner) {
            _ if job.is_over() => Activity::Over,
            None => Activity::GoesOn,
            Some(rests) => Activity::Rests(format!("{}; {rests}", data.shown_state(job, owner))),
        })
    }
}

impl FolderSource {
    /// Its name, and when it began and ended, of a job whose log cannot be read.
    fn row(&mut self, id: &str) -> Result<(String, Timestamp, Option<Timestamp>), CliError> {
        let row = data::find(self.store()?, id)?;
        Ok((row.name, row.submitted_at, row.finished_at))
    }
}

fn log_rows(blobs: &dyn Blobs, job: &Job, only: ItemSelector) -> io::Result<Vec<(ItemId, LogRow)>> {
    let plan = &job.plan;
    let mut rows = Vec::new();
    for (index, step) in plan.steps().iter().map(|step| &step.name).enumerate() {
        let index = index as u32;
        if only.step.is_some_and(|only| only != index) {
            continue;
        }
        let mut names = Vec::new();
        blobs.each_log(&job.id, step, &mut |name| names.push(name.to_owned()))?;
        for name in names {
            let of = ItemId::read_attempt_name(index, step, &name);
            let Some((item, attempt)) = of.filter(|(item, _)| only.has(*item)) else { continue };
            let log = LogName { job: job.id.clone(), step: step.clone(), name };
            let Some(size) = blobs.log_size(&log)? else { continue };
            let datacenter = plan.datacenters().get(item.run as usize).cloned();
            let LogName { step, name, .. } = log;
            let of = AttemptName { datacenter, step, role: item.role, item: item.index, attempt };
            let arriving = is_arriving(blobs, job, item, attempt);
            rows.push((item, LogRow { of, name, size, arriving }));
        }
    }
    Ok(rows)
}
