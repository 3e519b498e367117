//! `steadfast logs` of a data folder; and how logs are chosen and printed, wherever they come from.

use std::fs::File;
use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::path::{Path, PathBuf};

use steadfast_core::event::ItemId;
use steadfast_core::job::Job;
use steadfast_core::plan::{Action, Plan, Step};
use steadfast_core::select::ItemSelector;
use steadfast_server::arriving::is_arriving;
use steadfast_store::log_times;

use crate::args::LogsArgs;
use crate::data::{self, Data};
use crate::input::Wrong;
use crate::jobs::{self, CliError};
use crate::style::{DIM, paint};
use crate::{Done, Exit, clock};

mod print;

pub(crate) use print::{LastLines, Printer, Times};

/// Bytes of a log that are read at once.
const CHUNK: usize = 64 << 10;

pub(crate) fn logs(args: &LogsArgs, job: &str) -> Done {
    jobs::looking(args.common.data.as_deref(), args.common.output, |data, store| {
        let row = data::find(store, job)?;
        let only = match &args.step {
            None => ItemSelector::default(),
            Some(name) => {
                let select = data::state(store, &row.id)?.plan.select(name);
                let none = |why| Wrong::no_job(format!("job {}: {why}", row.id));
                select.map_err(none)?
            }
        };
        let mut shown: Vec<Shown> = Vec::new();
        let since = since_ms(args);
        let mut printer = Printer::new(args);
        loop {
            let job = data::state(store, &row.id)?;
            let files = log_files(data, &job, only, args.attempt);
            for path in files.map_err(|error| error.to_string())? {
                if !shown.iter().any(|known| known.path == path) {
                    let from = begin(&path, args.tail, since)?;
                    shown.push(Shown { path, from });
                }
            }
            printer.headed |= shown.len() > 1;
            for log in &mut shown {
                log.print(&mut printer)?;
            }
            printer.flush()?;
            if !args.follow || job.is_over() {
                printer.end()?;
                shown.iter().filter(|log| log.is_arriving(data, &job)).for_each(|log| {
                    tell_arriving(&log.name());
                });
                if shown.is_empty() {
                    tell_no_log(&job.plan, args);
                }
                return Ok(Exit::Ok);
            }
            if let Some(rests) = data.rests(&job) {
                printer.end()?;
                let state = data.shown_state(&job);
                anstream::eprintln!("{}", paint(DIM, format!("{state}; {rests}")));
                return Ok(Exit::Ok);
            }
            clock::wait_a_little();
        }
    })
}

/// The moment from which on something counts, if not everything does.
pub(crate) fn since_ms(args: &LogsArgs) -> Option<u64> {
    let ms = args.since?.as_millis().min(u128::from(u64::MAX)) as u64;
    Some(clock::now().0.saturating_sub(ms))
}

/// Whether nothing of a job, or of one of its steps, has a log: services print nothing here.
pub(crate) fn only_calls(plan: &Plan, step: Option<&str>) -> bool {
    let only = step.and_then(|name| plan.select(name).ok()?.step);
    let asked = |other: &&Step| only.is_none_or(|only| plan.step(only).name == other.name);
    let mut actions = plan.steps().iter().filter(asked).flat_map(Step::actions);
    actions.all(|action| matches!(action, Action::Http(_)))
}

/// Beside what is printed, which stays empty: nobody need wonder what became of the log.
pub(crate) fn tell_no_log(plan: &Plan, args: &LogsArgs) {
    let step = args.step.as_deref();
    let what = step.map_or_else(|| "this job".to_owned(), |name| format!("`{name}`"));
    let text = match args.attempt {
        _ if only_calls(plan, step) => format!(
            "{what} only calls services, which print nothing here; `steadfast explain` tells how \
             it went"
        ),
        Some(attempt) => format!("no attempt {attempt} of {what} has printed anything"),
        None => format!("{what} has printed nothing"),
    };
    anstream::eprintln!("{}", paint(DIM, text));
}

/// Of an attempt that has ended: what is printed is not all of it.
pub(crate) fn tell_arriving(name: &str) {
    let text = format!("the rest of the log {name} has not arrived from its worker yet");
    anstream::eprintln!("{}", paint(DIM, text));
}

/// A log, and how far it was printed.
struct Shown {
    path: PathBuf,
    from: u64,
}

impl Shown {
    fn name(&self) -> String {
        self.path.file_stem().unwrap_or_default().to_string_lossy().into_owned()
    }

    fn step(&self) -> String {
        let step = self.path.parent().and_then(Path::file_name).unwrap_or_default();
        step.to_string_lossy().into_owned()
    }

    fn is_arriving(&self, data: &Data, job: &Job) -> bool {
        let step = self.step();
        let index = job.plan.find(&step);
        let of = index.and_then(|index| ItemId::read_attempt_name(index, &step, &self.name()));
        let blobs = data.folder.storage().blobs();
        of.is_some_and(|(item, attempt)| is_arriving(&*blobs, job, item, attempt))
    }

    /// What has come since the last time.
    fn print(&mut self, printer: &mut Printer) -> Result<(), CliError> {
        let mut file = File::open(&self.path)?;
        if file.metadata()?.len() <= self.from {
            return Ok(());
        }
        let (name, step) = (self.name(), self.step());
        if printer.wants_times() {
            printer.times = Times::new(log_times(&self.path)?);
        }
        file.seek(SeekFrom::Start(self.from))?;
        let mut chunk = vec![0; CHUNK];
        loop {
            let count = file.read(&mut chunk)?;
            if count == 0 {
                return Ok(());
            }
            let used = printer.piece(&step, &name, self.from, &chunk[..count])?;
            self.from += used as u64;
            if used < count {
                file.seek(SeekFrom::Start(self.from))?;
            }
        }
    }
}

/// Where printing begins: nothing before the last lines, nor before the moment.
fn begin(path: &Path, tail: Option<u64>, since: Option<u64>) -> io::Result<u64> {
    let mut from = 0;
    if let Some(since) = since {
        let length = path.metadata()?.len();
        from = Times::new(log_times(path)?).since(since).unwrap_or(length);
    }
    if let Some(lines) = tail {
        let mut file = File::open(path)?;
        let mut end = file.metadata()?.len();
        let mut last = LastLines::new(lines);
        let mut chunk = Vec::new();
        while end > 0 {
            let start = end.saturating_sub(CHUNK as u64);
            chunk.resize((end - start) as usize, 0);
            file.seek(SeekFrom::Start(start))?;
            file.read_exact(&mut chunk)?;
            end = start;
            if last.before(start, &chunk) {
                break;
            }
        }
        from = from.max(last.begin());
    }
    Ok(from)
}

/// Those that were asked for, in the order they were begun.
fn log_files(
    data: &Data,
    job: &Job,
    only: ItemSelector,
    attempt: Option<u32>,
) -> io::Result<Vec<PathBuf>> {
    let folder = data.folder.logs(&job.id);
    let mut files = Vec::new();
    for (index, step) in job.plan.steps().iter().map(|step| &step.name).enumerate() {
        let index = index as u32;
        if only.step.is_some_and(|only| only != index) {
            continue;
        }
        for path in files_in(&folder.join(step))? {
            let name = path.file_stem().and_then(|name| name.to_str()).unwrap_or_default();
            let is_log = path.extension().is_some_and(|kind| kind == "log");
            let of = ItemId::read_attempt_name(index, step, name);
            let is_asked_for = |(item, number): (ItemId, u32)| {
                only.has(item) && attempt.is_none_or(|attempt| attempt == number)
            };
            if !is_log || !of.is_some_and(is_asked_for) {
                continue;
            }
            let about = path.metadata()?;
            files.push((about.created().or_else(|_| about.modified())?, path));
        }
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
