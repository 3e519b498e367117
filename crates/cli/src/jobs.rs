//! Looking at jobs, wherever they are: list, status, history, replay.

use std::io::{self, Write};

use steadfast_api::ShownState;
use steadfast_core::apply::fold;
use steadfast_core::event::{Event, RecordedEvent};
use steadfast_core::job::Job;
use steadfast_core::select::ItemSelector;
use steadfast_core::time::human_ms;

use crate::args::{ListArgs, Output};
use crate::error::CliError;
use crate::input::Wrong;
use crate::source::{JobSource, StoredEvent};
use crate::style::{Align, BOLD, DIM, GOOD, Table, inert, paint, state_style};
use crate::{Exit, clock, input, view};

pub(crate) fn print(text: &str) -> io::Result<()> {
    anstream::stdout().lock().write_all(text.as_bytes())
}

pub(crate) fn list(source: &mut dyn JobSource, args: &ListArgs) -> Result<Exit, CliError> {
    let page = source.list(args)?;
    if args.common.output == Output::Json {
        page.print_json()?;
        return Ok(Exit::Ok);
    }
    let (page, words) = (page.read()?, source.list_words());
    if page.jobs.is_empty() {
        let ListArgs { state, name, label, cursor, .. } = args;
        let is_part = state.is_some() || name.is_some() || label.is_some() || cursor.is_some();
        print(&if is_part {
            "no jobs match\n".to_owned()
        } else {
            format!("no jobs yet; {}\n", words.first)
        })?;
        return Ok(Exit::Ok);
    }
    let mut table = Table::new(&[
        ("job", Align::Left),
        ("name", Align::Left),
        ("state", Align::Left),
        (words.begun, Align::Right),
        ("took", Align::Right),
    ]);
    let now = clock::now();
    for row in page.jobs {
        let took = match (row.state, row.finished_at_ms) {
            // When it stopped is not known.
            (ShownState::Interrupted | ShownState::Stuck, _) => String::new(),
            (_, end) => coarse(end.unwrap_or(now).since(row.submitted_at_ms)),
        };
        table.row(vec![
            (row.id, BOLD),
            (row.name, anstyle::Style::new()),
            (row.state.to_string(), state_style(row.state)),
            (format!("{} ago", coarse(now.since(row.submitted_at_ms))), DIM),
            (took, DIM),
        ]);
    }
    print(&table.render(""))?;
    if let Some(next) = page.next {
        print(&paint(DIM, format!("more with --cursor {next}\n")))?;
    }
    Ok(Exit::Ok)
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

pub(crate) fn status(
    source: &mut dyn JobSource,
    id: &str,
    output: Output,
) -> Result<Exit, CliError> {
    match output {
        Output::Json => source.status(id)?.print_json()?,
        Output::Human => print(&source.overview(id)?.page(clock::now().0))?,
    }
    Ok(Exit::Ok)
}

pub(crate) fn history(
    source: &mut dyn JobSource,
    id: &str,
    step: Option<&str>,
    output: Output,
) -> Result<Exit, CliError> {
    let mut history = History::new(output, step);
    let mut unreadable = None;
    let told = source.events(id, 0, &mut |event| match (output, step) {
        // As it is stored or sent, also if this program cannot fold it.
        (Output::Json, None) => Ok(history.write(&event)?),
        _ => history.tell(event).map_err(|error| match error {
            HistoryError::Unreadable(why) => {
                unreadable = Some(why.clone());
                why.into()
            }
            HistoryError::Wrong(wrong) => wrong.into(),
            HistoryError::Output(error) => error.into(),
        }),
    });
    if let Some(why) = unreadable {
        return Err(source.unreadable(&why));
    }
    told?;
    history.out.flush()?;
    Ok(Exit::Ok)
}

/// A log, told event by event.
struct History {
    job: Option<Job>,
    output: Output,
    /// The name of the part that is asked for, and what it means.
    step: Option<String>,
    only: ItemSelector,
    out: io::BufWriter<anstream::AutoStream<io::StdoutLock<'static>>>,
}

enum HistoryError {
    /// An event that this program does not understand, or that cannot follow those before it.
    Unreadable(String),
    Wrong(Wrong),
    Output(io::Error),
}

impl From<io::Error> for HistoryError {
    fn from(error: io::Error) -> Self {
        Self::Output(error)
    }
}

impl History {
    fn new(output: Output, step: Option<&str>) -> Self {
        let (step, only) = (step.map(str::to_owned), ItemSelector::default());
        let out = io::BufWriter::new(anstream::stdout().lock());
        Self { job: None, output, step, only, out }
    }

    /// For programs.
    fn write(&mut self, record: &impl serde::Serialize) -> io::Result<()> {
        serde_json::to_writer(&mut self.out, record)?;
        self.out.write_all(b"\n")
    }

    /// The events come from the first on, each after the one before.
    fn tell(&mut self, event: StoredEvent) -> Result<(), HistoryError> {
        let record = event.read().map_err(|why| HistoryError::Unreadable(why.to_string()))?;
        if let (Some(step), Event::JobAccepted(accepted)) = (&self.step, &record.event) {
            let none = |why| Wrong::no_job(format!("job {}: {why}", accepted.id));
            let only = accepted.plan.select(step).map_err(none);
            self.only = only.map_err(HistoryError::Wrong)?;
        }
        if self.is_asked_for(&record.event) {
            match self.output {
                Output::Json => self.write(&record)?,
                Output::Human => self.say(&record)?,
            }
        }
        fold(&mut self.job, &record).map_err(|why| HistoryError::Unreadable(why.to_string()))
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

pub(crate) fn replay(
    source: &mut dyn JobSource,
    id: &str,
    output: Output,
) -> Result<Exit, CliError> {
    let replay = source.replay(id)?;
    match output {
        Output::Json => input::print_json(&serde_json::json!({
            "job": id, "events": replay.events, "equal": replay.is_equal, "state": replay.state,
        }))?,
        Output::Human if replay.is_equal => print(&format!(
            "{} {} events give {}: {}\n",
            paint(GOOD, "✓"),
            replay.events,
            replay.against,
            inert(&replay.state)
        ))?,
        Output::Human => return Err(replay.complaint.into()),
    }
    Ok(if replay.is_equal { Exit::Ok } else { Exit::Failed })
}
