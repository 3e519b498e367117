//! Looking at jobs of the data folder: list, status, history, replay. Nothing here writes.

use std::io::{self, Write};
use std::path::Path;

use steadfast_api::{Attempts, JobStatus, ShownState};
use steadfast_core::apply::fold;
use steadfast_core::event::{Event, RecordedEvent};
use steadfast_core::job::Job;
use steadfast_core::select::ItemSelector;
use steadfast_core::time::human_ms;
use steadfast_server::queries::{self, JobFilter, Listed};
use steadfast_store::{Row, SqliteStore, Store};

use crate::args::{Common, ListArgs, Output};
use crate::clock;
use crate::data::{self, Data};
use crate::input::Wrong;
use crate::style::{Align, BOLD, DIM, GOOD, Table, inert, paint, state_style};
use crate::summary::heading;
use crate::{Done, Exit, input, view};

/// Why a command that looks could not answer.
pub(crate) enum CliError {
    Found(Wrong),
    /// Nobody could be told; a reader that has seen enough is no mistake.
    Output(io::Error),
}

impl From<Wrong> for CliError {
    fn from(wrong: Wrong) -> Self {
        Self::Found(wrong)
    }
}

impl From<String> for CliError {
    fn from(message: String) -> Self {
        Self::Found(message.into())
    }
}

impl From<io::Error> for CliError {
    fn from(error: io::Error) -> Self {
        Self::Output(error)
    }
}

/// Runs a command that looks; what it cannot find is the caller's mistake.
pub(crate) fn looking(
    folder: Option<&Path>,
    output: Output,
    look: impl FnOnce(&Data, &mut SqliteStore) -> Result<Exit, CliError>,
) -> Done {
    let done = Data::at(folder).map_err(CliError::from).and_then(|data| {
        let store = data.look()?;
        let none = || {
            let root = data.folder.root().display();
            Wrong::no_job(format!("nothing was ever run with the data folder {root}"))
        };
        look(&data, &mut store.ok_or_else(none)?)
    });
    match done {
        Ok(exit) => Ok(exit),
        Err(CliError::Found(Wrong { code, message })) => {
            input::refuse(code, &message, output).map(|()| Exit::Wrong)
        }
        Err(CliError::Output(error)) => Err(error),
    }
}

pub(crate) fn print(text: &str) -> io::Result<()> {
    anstream::stdout().lock().write_all(text.as_bytes())
}

#[allow(clippy::needless_pass_by_value, reason = "the shape `map_err` wants")]
fn text(error: impl ToString) -> String {
    error.to_string()
}

/// Of a list that asks for less than all.
pub(crate) const NO_MATCH: &str = "no jobs match\n";

pub(crate) fn list(args: &ListArgs) -> Done {
    let data = Data::at(args.common.data.as_deref());
    if data.as_ref().is_ok_and(|data| data.look().is_ok_and(|store| store.is_none())) {
        match args.common.output {
            Output::Json => input::print_json(&serde_json::json!({"jobs": [], "next": null}))?,
            Output::Human => println!("no jobs yet; start one with `steadfast run job.yaml`"),
        }
        return Ok(Exit::Ok);
    }
    looking(args.common.data.as_deref(), args.common.output, |data, store| {
        let filter =
            JobFilter { state: args.state, name: args.name.clone(), label: args.label.clone() };
        let cursor = args.cursor.as_deref();
        let page =
            queries::list(store, &|job| data.folder.is_run(job), &filter, cursor, args.limit)
                .map_err(text)?;
        if args.common.output == Output::Json {
            let jobs: Vec<_> = page
                .jobs
                .iter()
                .map(|Listed { row, state, damage }| {
                    let mut shown = serde_json::json!({
                        "id": row.id, "name": row.name, "state": state,
                        "submitted_at_ms": row.submitted_at, "finished_at_ms": row.finished_at,
                        "labels": row.labels, "retried_from": row.retried_from,
                    });
                    if let Some(why) = damage {
                        shown["reason"] = why.as_str().into();
                    }
                    shown
                })
                .collect();
            let answer = serde_json::json!({"jobs": jobs, "next": page.next});
            input::print_json(&answer)?;
            return Ok(Exit::Ok);
        }
        if page.jobs.is_empty() {
            print(NO_MATCH)?;
            return Ok(Exit::Ok);
        }
        let mut table = Table::new(&[
            ("job", Align::Left),
            ("name", Align::Left),
            ("state", Align::Left),
            ("started", Align::Right),
            ("took", Align::Right),
        ]);
        let now = clock::now();
        for Listed { row, state, .. } in &page.jobs {
            let took = match (state, row.finished_at) {
                (ShownState::Interrupted | ShownState::Stuck, _) => String::new(),
                (_, end) => coarse(end.unwrap_or(now).since(row.submitted_at)),
            };
            table.row(vec![
                (row.id.to_string(), BOLD),
                (row.name.clone(), anstyle::Style::new()),
                (state.to_string(), state_style(*state)),
                (format!("{} ago", coarse(now.since(row.submitted_at))), DIM),
                (took, DIM),
            ]);
        }
        print(&table.render(""))?;
        if let Some(next) = page.next {
            print(&paint(DIM, format!("more with --cursor {next}\n")))?;
        }
        Ok(Exit::Ok)
    })
}

/// As fine as is of use: tenths of a second up to ten, then whole ones, rounded to the nearest.
pub(crate) fn coarse(ms: u64) -> String {
    let fine = match ms {
        ..1000 => 1,
        1000..10_000 => 100,
        _ => 1000,
    };
    human_ms((ms + fine / 2) / fine * fine)
}

pub(crate) fn status_of(data: &Data, store: &mut dyn Store, id: &str) -> Result<JobStatus, String> {
    let (job, attempts) = told(store, id)?;
    let status = JobStatus::new(&job, &attempts);
    Ok(if data.folder.is_run(id) { status } else { status.without_a_process() })
}

/// The whole log folded, and what it tells of the attempts.
fn told(store: &mut dyn Store, id: &str) -> Result<(Job, Attempts), String> {
    let mut attempts = Attempts::default();
    let mut job: Option<Job> = None;
    data::each_event(store, id, 0, |record| {
        attempts.add(&record);
        fold(&mut job, &record).map_err(text)
    })?;
    let job = job.ok_or_else(|| format!("job {id} has no events"))?;
    Ok((job, attempts))
}

pub(crate) fn status(common: &Common, job: &str) -> Done {
    looking(common.data.as_deref(), common.output, |data, store| {
        let row = data::find(store, job)?;
        if let Some(why) = store.damage(&row.id).map_err(text)? {
            return stuck(&row, &why, data, common.output);
        }
        if common.output == Output::Json {
            let status = status_of(data, store, &row.id)?;
            input::print_json(&status)?;
            return Ok(Exit::Ok);
        }
        let job = data::state(store, &row.id)?;
        print(&heading(job.plan.name(), &job.id))?;
        if job.finished_at.is_some() {
            print(&view::summary(&job, data))?;
        } else {
            print(&view::standing(&job, data, clock::now()))?;
        }
        Ok(Exit::Ok)
    })
}

/// What is left to say of a job whose log cannot be read.
fn stuck(row: &Row, why: &str, data: &Data, output: Output) -> Result<Exit, CliError> {
    let Row { id, name, submitted_at, finished_at, .. } = row;
    match output {
        Output::Json => input::print_json(&serde_json::json!({
            "id": id, "name": name, "state": ShownState::Stuck, "reason": why,
            "submitted_at_ms": submitted_at, "finished_at_ms": finished_at, "runs": [],
        }))?,
        Output::Human => {
            print(&heading(name, id))?;
            let state = paint(state_style(ShownState::Stuck), "stuck");
            let purge = data.hint("purge", id);
            print(&format!(
                "{state}: what is stored of it is damaged ({}); nothing of it runs. Restore a \
                 backup, or remove it with `{purge}`\n",
                inert(why)
            ))?;
        }
    }
    Ok(Exit::Ok)
}

pub(crate) fn history(common: &Common, job: &str, step: Option<&str>) -> Done {
    looking(common.data.as_deref(), common.output, |_, store| {
        let row = data::find(store, job)?;
        let mut history = History::new(common.output, step);
        data::each_event(store, &row.id, 0, |record| match (common.output, step) {
            // As it is stored, also if it could not be folded.
            (Output::Json, None) => Ok::<(), CliError>(history.write(&record)?),
            _ => history.tell(&record),
        })?;
        history.end()?;
        Ok(Exit::Ok)
    })
}

/// Every event of a job.
pub(crate) fn log(common: &Common, job: &str, log: &mut Vec<RecordedEvent>) -> Done {
    looking(common.data.as_deref(), common.output, |_, store| {
        let row = data::find(store, job)?;
        data::each_event(store, &row.id, 0, |record| {
            log.push(record);
            Ok::<(), CliError>(())
        })?;
        Ok(Exit::Ok)
    })
}

/// The code of a step or item that a job does not have.
pub(crate) const NO_PART: &str = "not_found";

/// A log, told event by event.
pub(crate) struct History {
    job: Option<Job>,
    output: Output,
    /// The name of the part that is asked for, and what it means.
    step: Option<String>,
    only: ItemSelector,
    out: io::BufWriter<anstream::AutoStream<io::StdoutLock<'static>>>,
}

impl History {
    pub(crate) fn new(output: Output, step: Option<&str>) -> Self {
        let (step, only) = (step.map(str::to_owned), ItemSelector::default());
        let out = io::BufWriter::new(anstream::stdout().lock());
        Self { job: None, output, step, only, out }
    }

    pub(crate) fn end(mut self) -> io::Result<()> {
        self.out.flush()
    }

    /// For programs.
    pub(crate) fn write(&mut self, record: &impl serde::Serialize) -> io::Result<()> {
        serde_json::to_writer(&mut self.out, record)?;
        self.out.write_all(b"\n")
    }

    /// The events come from the first on, each after the one before.
    pub(crate) fn tell(&mut self, record: &RecordedEvent) -> Result<(), CliError> {
        if let (Some(step), Event::JobAccepted(accepted)) = (&self.step, &record.event) {
            let only = accepted.plan.select(step);
            let none =
                |why| Wrong { code: NO_PART, message: format!("job {}: {why}", accepted.id) };
            self.only = only.map_err(none)?;
        }
        if self.is_asked_for(&record.event) {
            match self.output {
                Output::Json => self.write(record)?,
                Output::Human => self.say(record)?,
            }
        }
        Ok(fold(&mut self.job, record).map_err(text)?)
    }

    /// Of a part only what is about it.
    fn is_asked_for(&self, event: &Event) -> bool {
        match event.place() {
            _ if self.step.is_none() => true,
            Some((_, _, Some(item))) => self.only.has(item),
            Some((run, Some(step), None)) => {
                self.only.item.is_none() && self.only.has_step(run, step)
            }
            _ => false,
        }
    }

    fn say(&mut self, record: &RecordedEvent) -> io::Result<()> {
        let since = self.job.as_ref().map_or(record.at, |job: &Job| job.accepted_at);
        let line = match (&self.job, &record.event) {
            (Some(job), _) => view::line(job, record).unwrap_or_else(|| plain(job, record)),
            (None, Event::JobAccepted(accepted)) => {
                format!("{} accepted", paint(BOLD, accepted.plan.name()))
            }
            (None, event) => paint(DIM, event.name()),
        };
        let head = format!("{:>5} {:>10}", record.seq, human_ms(record.at.since(since)));
        writeln!(self.out, "{}  {line}", paint(DIM, head))
    }
}

/// An event that the live view passes over, in words.
fn plain(job: &Job, record: &RecordedEvent) -> String {
    let name = record.event.name();
    let mut words = String::new();
    for c in name.chars() {
        if c.is_uppercase() && !words.is_empty() {
            words.push(' ');
        }
        words.extend(c.to_lowercase());
    }
    let place = record.event.place().map(|(run, step, item)| match (step, item) {
        (_, Some(item)) => view::item_label(job, item),
        (Some(step), None) => paint(BOLD, &job.plan.step(step).name),
        (None, None) => paint(BOLD, job.plan.datacenter(run).unwrap_or("the")),
    });
    match place {
        Some(place) => format!("{place} {}", paint(DIM, words)),
        None => paint(DIM, words),
    }
}

pub(crate) fn replay(common: &Common, job: &str) -> Done {
    looking(common.data.as_deref(), common.output, |_, store| {
        let row = data::find(store, job)?;
        let live = data::state(store, &row.id)?;
        let (folded, _) = told(store, &row.id)?;
        let same = live == folded;
        let events = folded.seq;
        match common.output {
            Output::Json => {
                let answer = serde_json::json!({
                    "job": row.id, "events": events, "equal": same, "state": folded.state(),
                });
                input::print_json(&answer)?;
            }
            Output::Human if same => {
                let sign = paint(GOOD, "✓");
                print(&format!(
                    "{sign} {events} events give the live state: {}\n",
                    folded.state()
                ))?;
            }
            Output::Human => {
                return Err(format!("the log of {} does not give its live state", row.id).into());
            }
        }
        Ok(if same { Exit::Ok } else { Exit::Failed })
    })
}
