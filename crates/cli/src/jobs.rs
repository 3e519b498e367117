//! Looking at jobs of the data folder: list, status, logs, history, replay. Nothing here writes.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use steadfast_api::{Attempts, JobStatus};
use steadfast_core::apply::fold;
use steadfast_core::event::{Event, JobState, Recorded};
use steadfast_core::job::Job;
use steadfast_core::plan::{Action, Plan, Step};
use steadfast_core::time::human_ms;
use steadfast_store::{Filter, Row, SqliteStore, Store};

use crate::args::{JobArgs, ListArgs, LogsArgs, Output};
use crate::clock;
use crate::data::{self, Data};
use crate::paint::{Align, BOLD, DIM, GOOD, Table, inert, paint, state_style};
use crate::standing::heading;
use crate::{Done, Exit, input, view};

/// Why a command that looks could not answer.
pub(crate) enum Trouble {
    Found(String),
    /// Nobody could be told; a reader that has seen enough is no mistake.
    Told(io::Error),
}

impl From<String> for Trouble {
    fn from(message: String) -> Self {
        Self::Found(message)
    }
}

impl From<io::Error> for Trouble {
    fn from(error: io::Error) -> Self {
        Self::Told(error)
    }
}

/// Runs a command that looks; what it cannot find is the caller's mistake.
pub(crate) fn looking(
    folder: Option<&Path>,
    output: Output,
    look: impl FnOnce(&Data, &mut SqliteStore) -> Result<Exit, Trouble>,
) -> Done {
    let done = Data::at(folder).map_err(Trouble::from).and_then(|data| {
        let store = data.look()?;
        let none = || {
            format!("nothing was ever run with the data folder {}", data.folder.root().display())
        };
        look(&data, &mut store.ok_or_else(none)?)
    });
    match done {
        Ok(exit) => Ok(exit),
        Err(Trouble::Found(message)) => {
            input::refuse("not_found", &message, output).map(|()| Exit::Wrong)
        }
        Err(Trouble::Told(error)) => Err(error),
    }
}

pub(crate) fn print(text: &str) -> io::Result<()> {
    anstream::stdout().lock().write_all(text.as_bytes())
}

#[allow(clippy::needless_pass_by_value, reason = "the shape `map_err` wants")]
fn text(error: impl ToString) -> String {
    error.to_string()
}

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
        let state = match &args.state {
            None => None,
            Some(name) => Some(state_named(name)?),
        };
        let filter =
            Filter { state, name: args.name.clone(), label: args.label.clone(), over: None };
        let mut page = store.list(&filter, args.cursor.as_deref(), args.limit).map_err(text)?;
        page.check(store).map_err(text)?;
        if args.common.output == Output::Json {
            let jobs: Vec<_> = page
                .jobs
                .iter()
                .map(|row| {
                    let mut shown = serde_json::json!({
                        "id": row.id, "name": row.name, "state": row.state,
                        "submitted_at_ms": row.submitted_at, "finished_at_ms": row.finished_at,
                        "retried_from": row.retried_from,
                    });
                    if let Some(why) = page.damaged.get(&row.id) {
                        shown["state"] = "stuck".into();
                        shown["reason"] = why.as_str().into();
                    }
                    shown
                })
                .collect();
            let answer = serde_json::json!({"jobs": jobs, "next": page.next});
            input::print_json(&answer)?;
            return Ok(Exit::Ok);
        }
        let mut table = Table::new(&[
            ("job", Align::Left),
            ("name", Align::Left),
            ("state", Align::Left),
            ("started", Align::Right),
            ("took", Align::Right),
        ]);
        let (now, served) = (clock::now(), data.is_served());
        for row in &page.jobs {
            let interrupted = !row.over && !served && !data.is_run(&row.id);
            let (state, took) = match row.finished_at {
                _ if page.damaged.contains_key(&row.id) => ("stuck".to_owned(), String::new()),
                None if interrupted => ("interrupted".to_owned(), String::new()),
                end => {
                    let until = end.unwrap_or(now);
                    (row.state.to_string(), coarse(until.since(row.submitted_at)))
                }
            };
            table.row(vec![
                (row.id.to_string(), BOLD),
                (row.name.clone(), anstyle::Style::new()),
                (state, state_style(row.state)),
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

/// To the second, where milliseconds are noise.
pub(crate) fn coarse(ms: u64) -> String {
    if ms < 1000 { human_ms(ms) } else { human_ms(ms / 1000 * 1000) }
}

pub(crate) fn state_named(name: &str) -> Result<JobState, String> {
    let quoted = serde_json::Value::String(name.to_owned());
    serde_json::from_value(quoted).map_err(|_| {
        format!(
            "`{name}` is not a state; write pending, running, paused, succeeded, partial, failed \
             or cancelled"
        )
    })
}

pub(crate) fn status_of(store: &mut dyn Store, id: &str) -> Result<JobStatus, String> {
    let (job, attempts) = told(store, id)?;
    Ok(JobStatus::new(&job, &attempts))
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

pub(crate) fn status(args: &JobArgs) -> Done {
    looking(args.common.data.as_deref(), args.common.output, |data, store| {
        let row = data::find(store, &args.job)?;
        if let Some(why) = store.damage(&row.id).map_err(text)? {
            return stuck(&row, &why, data, args.common.output);
        }
        if args.common.output == Output::Json {
            let status = status_of(store, &row.id)?;
            input::print_json(&status)?;
            return Ok(Exit::Ok);
        }
        let job = data::state(store, &row.id)?;
        print(&heading(job.plan.name(), &job.id))?;
        if job.finished_at.is_some() {
            print(&view::summary(&job, data))?;
        } else {
            print(&view::standing(&job, data, clock::now()))?;
            if let Some(rests) = data.rests(&job) {
                print(&paint(DIM, format!("{rests}\n")))?;
            }
        }
        Ok(Exit::Ok)
    })
}

/// What is left to say of a job whose log cannot be read.
fn stuck(row: &Row, why: &str, data: &Data, output: Output) -> Result<Exit, Trouble> {
    let Row { id, name, submitted_at, finished_at, .. } = row;
    match output {
        Output::Json => input::print_json(&serde_json::json!({
            "id": id, "name": name, "state": "stuck", "reason": why,
            "submitted_at_ms": submitted_at, "finished_at_ms": finished_at, "runs": [],
        }))?,
        Output::Human => {
            print(&heading(name, id))?;
            let state = paint(state_style(JobState::Failed), "stuck");
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

pub(crate) fn history(args: &JobArgs) -> Done {
    looking(args.common.data.as_deref(), args.common.output, |_, store| {
        let row = data::find(store, &args.job)?;
        let mut history = History::new();
        data::each_event(store, &row.id, 0, |record| match args.common.output {
            Output::Json => Ok::<(), Trouble>(history.write(&record)?),
            Output::Human => history.tell(&record),
        })?;
        history.end()?;
        Ok(Exit::Ok)
    })
}

/// A log, told event by event.
pub(crate) struct History {
    job: Option<Job>,
    out: io::BufWriter<anstream::AutoStream<io::StdoutLock<'static>>>,
}

impl History {
    pub(crate) fn new() -> Self {
        Self { job: None, out: io::BufWriter::new(anstream::stdout().lock()) }
    }

    pub(crate) fn end(mut self) -> io::Result<()> {
        self.out.flush()
    }

    /// For programs.
    pub(crate) fn write(&mut self, record: &impl serde::Serialize) -> io::Result<()> {
        serde_json::to_writer(&mut self.out, record)?;
        self.out.write_all(b"\n")
    }

    /// For people. The events come from the first on, each after the one before.
    pub(crate) fn tell(&mut self, record: &Recorded) -> Result<(), Trouble> {
        let since = self.job.as_ref().map_or(record.at, |job: &Job| job.accepted_at);
        let line = match (&self.job, &record.event) {
            (Some(job), _) => view::line(job, record).unwrap_or_else(|| plain(job, record)),
            (None, Event::JobAccepted(accepted)) => {
                format!("{} accepted", paint(BOLD, accepted.plan.name()))
            }
            (None, event) => paint(DIM, event.name()),
        };
        let head = format!("{:>5} {:>10}", record.seq, human_ms(record.at.since(since)));
        writeln!(self.out, "{}  {line}", paint(DIM, head))?;
        Ok(fold(&mut self.job, record).map_err(text)?)
    }
}

/// An event that the live view passes over, in words.
fn plain(job: &Job, record: &Recorded) -> String {
    let name = record.event.name();
    let mut words = String::new();
    for c in name.chars() {
        if c.is_uppercase() && !words.is_empty() {
            words.push(' ');
        }
        words.extend(c.to_lowercase());
    }
    let place = record.event.place().map(|(run, step, item)| match (step, item) {
        (_, Some(item)) => job.plan.item_name(item),
        (Some(step), None) => job.plan.step(step).name.clone(),
        (None, None) => job.plan.datacenter(run).unwrap_or("the").to_owned(),
    });
    match place {
        Some(place) => format!("{} {}", paint(BOLD, place), paint(DIM, words)),
        None => paint(DIM, words),
    }
}

pub(crate) fn replay(args: &JobArgs) -> Done {
    looking(args.common.data.as_deref(), args.common.output, |_, store| {
        let row = data::find(store, &args.job)?;
        let live = data::state(store, &row.id)?;
        let (folded, _) = told(store, &row.id)?;
        let same = live == folded;
        let events = folded.seq;
        match args.common.output {
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

pub(crate) fn logs(args: &LogsArgs) -> Done {
    looking(args.common.data.as_deref(), args.common.output, |data, store| {
        let row = data::find(store, &args.job)?;
        if let Some(name) = &args.step {
            let job = data::state(store, &row.id)?;
            if !job.plan.steps().iter().any(|step| step.name == *name) {
                return Err(format!("job {} has no step `{name}`", row.id).into());
            }
        }
        let folder = data.folder.logs(&row.id);
        let mut shown: Vec<(PathBuf, u64)> = Vec::new();
        let mut pieces = Pieces::new(args.common.output);
        loop {
            let over = data::state(store, &row.id)?.is_over();
            for path in log_files(&folder, args.step.as_deref()).map_err(text)? {
                if !shown.iter().any(|(known, _)| *known == path) {
                    shown.push((path, 0));
                }
            }
            pieces.headed |= shown.len() > 1;
            for (path, from) in &mut shown {
                copy_from(path, from, &mut pieces)?;
            }
            pieces.flush()?;
            if !args.follow || over {
                if shown.is_empty() {
                    let plan = data::state(store, &row.id)?.plan;
                    tell_no_log(&plan, args.step.as_deref());
                }
                return Ok(Exit::Ok);
            }
            if let Some(rests) = data.rests(&data::state(store, &row.id)?) {
                anstream::eprintln!("{}", paint(DIM, rests));
                return Ok(Exit::Ok);
            }
            clock::wait_a_little();
        }
    })
}

/// Whether nothing of a job, or of one of its steps, has a log: services print nothing here.
pub(crate) fn only_calls(plan: &Plan, step: Option<&str>) -> bool {
    let asked = |other: &&Step| step.is_none_or(|name| other.name == name);
    let mut actions = plan.steps().iter().filter(asked).flat_map(Step::actions);
    actions.all(|action| matches!(action, Action::Http(_)))
}

/// Beside what is printed, which stays empty: nobody need wonder what became of the log.
pub(crate) fn tell_no_log(plan: &Plan, step: Option<&str>) {
    if only_calls(plan, step) {
        let what = step.map_or_else(|| "this job".to_owned(), |name| format!("step `{name}`"));
        let text = format!(
            "{what} only calls services, which print nothing here; `steadfast explain` tells how \
             it went"
        );
        anstream::eprintln!("{}", paint(DIM, text));
    }
}

/// Of one step, or of all, in the order they were begun.
fn log_files(folder: &Path, step: Option<&str>) -> io::Result<Vec<PathBuf>> {
    let folders = match step {
        Some(step) => vec![folder.join(step)],
        None => files_in(folder)?,
    };
    let mut files = Vec::new();
    for path in
        folders.iter().map(|folder| files_in(folder)).collect::<Result<Vec<_>, _>>()?.concat()
    {
        let about = path.metadata()?;
        files.push((about.created().or_else(|_| about.modified())?, path));
    }
    files.sort();
    Ok(files.into_iter().map(|(_, path)| path).collect())
}

fn files_in(folder: &Path) -> io::Result<Vec<PathBuf>> {
    match std::fs::read_dir(folder) {
        Ok(entries) => entries.map(|entry| Ok(entry?.path())).collect(),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(vec![]),
        Err(error) => Err(error),
    }
}

/// What has come since the last time.
fn copy_from(path: &Path, from: &mut u64, pieces: &mut Pieces) -> io::Result<()> {
    let mut file = File::open(path)?;
    if file.metadata()?.len() <= *from {
        return Ok(());
    }
    let name = path.file_stem().unwrap_or_default().to_string_lossy();
    let step = path.parent().and_then(Path::file_name).unwrap_or_default().to_string_lossy();
    file.seek(SeekFrom::Start(*from))?;
    let mut chunk = vec![0; CHUNK];
    loop {
        let count = file.read(&mut chunk)?;
        if count == 0 {
            return Ok(());
        }
        let used = pieces.piece(&step, &name, *from, &chunk[..count])?;
        *from += used as u64;
        if used < count {
            file.seek(SeekFrom::Start(*from))?;
        }
    }
}

/// Bytes of a log that are read at once.
const CHUNK: usize = 64 << 10;

/// Logs as they are printed: byte for byte for people, in lines of JSON for programs.
pub(crate) struct Pieces {
    output: Output,
    /// There is more than one log, so each needs its name.
    pub(crate) headed: bool,
    last: String,
    in_line: bool,
    out: io::StdoutLock<'static>,
}

impl Pieces {
    pub(crate) fn new(output: Output) -> Self {
        let out = io::stdout().lock();
        Self { output, headed: false, last: String::new(), in_line: false, out }
    }

    pub(crate) fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }

    /// How much of it was taken: of text for programs, no half characters.
    pub(crate) fn piece(
        &mut self,
        step: &str,
        name: &str,
        offset: u64,
        bytes: &[u8],
    ) -> io::Result<usize> {
        if self.output == Output::Json {
            let bytes = &bytes[..whole(bytes)];
            let text = String::from_utf8_lossy(bytes);
            let line =
                serde_json::json!({"step": step, "log": name, "offset": offset, "text": text});
            writeln!(self.out, "{line}")?;
            return Ok(bytes.len());
        }
        if self.headed && self.last != name {
            let gap = if self.in_line { "\n" } else { "" };
            writeln!(self.out, "{gap}== {} ==", inert(name))?;
            name.clone_into(&mut self.last);
        }
        self.in_line = bytes.last().is_some_and(|last| *last != b'\n');
        self.out.write_all(bytes)?;
        Ok(bytes.len())
    }
}

/// Without the beginning of a character at the end, unless there is nothing else.
fn whole(bytes: &[u8]) -> usize {
    let tail = bytes.len().saturating_sub(3);
    let cut = (tail..bytes.len()).find(|&at| {
        let cut_off =
            |error: std::str::Utf8Error| error.valid_up_to() == 0 && error.error_len().is_none();
        std::str::from_utf8(&bytes[at..]).is_err_and(cut_off)
    });
    cut.filter(|at| *at > 0).unwrap_or(bytes.len())
}

#[cfg(test)]
mod tests {
    use super::whole;

    #[test]
    fn a_character_is_not_cut_in_half() {
        let text = "aé漢😀".as_bytes();
        let whole: Vec<usize> = (1..=text.len()).map(|end| whole(&text[..end])).collect();
        assert_eq!(whole, [1, 1, 3, 3, 3, 6, 6, 6, 6, 10]);
        assert_eq!(super::whole(b"\xff\xfe"), 2, "what is no text at all is not waited for");
        assert_eq!(super::whole(b"\xf0\x9f"), 2, "and an end that never comes neither");
    }
}
