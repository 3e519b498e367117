//! `steadfast run` and `resume`: their arguments, what is shown, and the signals. The run itself is
//! [`steadfast::run`].

use std::io::{self, Write as _};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use steadfast::run::{Finished, Resumed, RunEnd, RunError, RunOptions, RunView};
use steadfast_api::{JobStatus, ShownState};
use steadfast_core::event::{AcceptedJob, JobId, JobState, RecordedEvent};
use steadfast_core::job::Job;
use steadfast_core::time::Timestamp;
use steadfast_store::{RunClaimError, StoreError};

use crate::args::{Here, Output, ResumeArgs, RunArgs};
use crate::data::{self, Data, JobOwner};
use crate::input::Wrong;
use crate::style::{BOLD, error_prefix, paint};
use crate::view::View;
use crate::{Done, Exit, folder, input, signals};

pub(crate) use steadfast::run::default_slots;

pub(crate) fn run(args: &RunArgs) -> Done {
    let Some((job, source)) = input::job(&args.file, args.common.output)? else {
        return Ok(Exit::Wrong);
    };
    if args.common.output == Output::Human {
        input::warn(&job.warnings, &source);
    }
    let path = std::path::absolute(&args.file).unwrap_or_else(|_| args.file.clone());
    let from_stdin = args.file == Path::new("-");
    let text = (!from_stdin).then_some(&source.text[..]);
    let mut accepted = AcceptedJob::new(steadfast::run::new_id(), Arc::new(job.plan));
    accepted.source = Some(steadfast::run::source(path.display().to_string(), text));
    let begun = steadfast::run::check(&accepted.plan).map_err(Wrong::from);
    let done = begun.and_then(|()| {
        let data = Data::of(&args.common)?;
        start(&data, &args.here, args.common.output, accepted)
    });
    conclude(done, args.common.output)
}

/// A new job, to its end.
pub(crate) fn start(
    data: &Data,
    here: &Here,
    output: Output,
    accepted: AcceptedJob,
) -> Result<Exit, Wrong> {
    let id = accepted.id.clone();
    let mut shown = Shown::new(output)?;
    let finished = steadfast::run::start(&options(data, here), accepted, &mut shown)?;
    shown.tell_end(data, &id, finished)
}

pub(crate) fn resume(args: &ResumeArgs, job: &str) -> Done {
    conclude(try_resume(args, job), args.common.output)
}

pub(crate) fn conclude(done: Result<Exit, Wrong>, output: Output) -> Done {
    match done {
        Ok(exit) => Ok(exit),
        Err(wrong) => input::refuse(wrong.code, &wrong.message, output).map(|()| wrong.exit()),
    }
}

impl From<RunError> for Wrong {
    fn from(error: RunError) -> Self {
        let message = match &error {
            RunError::Unsupported(why) => {
                return Self { code: "unsupported", message: why.clone() };
            }
            RunError::SourceUnreadable { .. } => format!("{error}; --changed goes on without it"),
            RunError::SourceChanged { .. } => {
                format!("{error}; run it anew, or give --changed to go on with the job as it was")
            }
            _ => error.to_string(),
        };
        let code = if is_away(&error) { input::NO_DATABASE } else { "not_possible" };
        Self { code, message }
    }
}

/// The database cannot be reached.
fn is_away(error: &RunError) -> bool {
    let store = match error {
        RunError::Store(error) => Some(error),
        RunError::Claim(RunClaimError::Io { why, .. }) => {
            why.get_ref().and_then(|inner| inner.downcast_ref::<StoreError>())
        }
        _ => None,
    };
    matches!(store, Some(StoreError::Unavailable { .. }))
}

fn try_resume(args: &ResumeArgs, job: &str) -> Result<Exit, Wrong> {
    if args.why.reason.is_some() {
        return Err(
            "--reason is for a job that was paused on a server; this one goes on here".into()
        );
    }
    let data = Data::of(&args.common)?;
    let none = || Wrong::no_job(format!("there is no job {job}"));
    let mut store = data.look()?.ok_or_else(none)?;
    let row = data::find(&mut *store, job)?;
    drop(store);
    let mut shown = Shown::new(args.common.output)?;
    let options = options(&data, &args.here);
    let resumed = Resumed::open(&options.place, &row.id, args.changed, &mut shown)?;
    let finished = steadfast::run::resume(&options, resumed, &mut shown)?;
    shown.tell_end(&data, &row.id, finished)
}

fn options(data: &Data, here: &Here) -> RunOptions {
    RunOptions {
        place: data.place(Some(here.outage_tolerance)),
        slots: here.slots.unwrap_or_else(default_slots),
        keep: here.keep,
        outbound: here.outbound.here(),
    }
}

/// What whoever started the run sees of it.
pub(crate) struct Shown {
    view: View,
    output: Output,
    interrupts: Interrupts,
}

impl RunView for Shown {
    fn began(&mut self, job: &JobId, resumed: bool) {
        if self.output == Output::Human {
            anstream::println!("{job}");
            self.view.begin(resumed);
        }
    }

    fn event(&mut self, job: Option<&Job>, record: &RecordedEvent) {
        self.view.event(job, record);
    }

    fn draw(&mut self, job: &Job, now: Timestamp) {
        self.view.draw(job, now);
    }

    fn warn(&mut self, what: &str) {
        // The picture is drawn again below it.
        self.view.end();
        // The terminal may be what went away.
        let _ = writeln!(anstream::stderr(), "{what}");
    }

    fn interrupts(&self) -> usize {
        self.interrupts.count()
    }

    fn interrupting(&mut self) {
        self.view.note("interrupting: ending what runs; once more kills it");
    }
}

impl Shown {
    pub(crate) fn new(output: Output) -> Result<Self, String> {
        Ok(Self { view: View::new(output), output, interrupts: Interrupts::listen()? })
    }

    fn tell_end(mut self, data: &Data, id: &str, finished: Finished) -> Result<Exit, Wrong> {
        self.view.end();
        let Finished { end, job, attempts, claim } = finished;
        let stopped = match &end {
            RunEnd::Over | RunEnd::Interrupted => None,
            RunEnd::Failed(error) => Some((error, "go on with", "resume", Exit::Failed)),
            RunEnd::TakenOver(error) => Some((error, "see", "status", Exit::Failed)),
            RunEnd::Unavailable(error) => {
                Some((error, "when it is back, go on with", "resume", Exit::NoServer))
            }
        };
        if let Some((error, then, command, exit)) = stopped {
            let hint = paint(BOLD, data.hint(command, id));
            let _ = writeln!(anstream::stderr(), "{}{error}\n{then} {hint}", error_prefix());
            return Ok(exit);
        }
        let job = job.ok_or("the job was not stored")?;
        let over = matches!(end, RunEnd::Over);
        if self.output == Output::Json {
            let status = match attempts {
                Some(attempts) => JobStatus::new(&job, &attempts),
                None => folder::status_of(data, &mut *data.open()?, id)?,
            };
            // Of a job that has not ended, whose process we are still.
            let status = if over { status } else { status.without_a_process() };
            input::print_json(&status).map_err(|error| error.to_string())?;
        }
        // Nobody is at the job any more, and it is shown so.
        drop(claim);
        if over {
            if self.output == Output::Human {
                anstream::print!(
                    "{}",
                    crate::view::overview(&job, JobOwner::Run, data).ended(crate::clock::now().0)
                );
            }
            return Ok(exit_of(job.state()));
        }
        self.view.interrupted(&job, data);
        Ok(Exit::Interrupted)
    }
}

pub(crate) fn exit_of(state: impl Into<ShownState>) -> Exit {
    match state.into() {
        ShownState::Of(JobState::Succeeded) => Exit::Ok,
        ShownState::Of(JobState::Partial) => Exit::Partial,
        ShownState::Of(JobState::Cancelled) => Exit::Cancelled,
        ShownState::Interrupted => Exit::Interrupted,
        ShownState::Of(_) | ShownState::Stuck => Exit::Failed,
    }
}

/// How often somebody has pressed Ctrl-C, or asked us to end.
struct Interrupts(Arc<AtomicUsize>);

impl Interrupts {
    fn listen() -> Result<Self, String> {
        let count = Arc::new(AtomicUsize::new(0));
        let mut signals = signal_hook::iterator::Signals::new(signals::that_end_us())
            .map_err(|error: io::Error| format!("cannot listen for signals: {error}"))?;
        let counted = count.clone();
        std::thread::spawn(move || {
            for _ in signals.forever() {
                counted.fetch_add(1, Ordering::SeqCst);
            }
        });
        Ok(Self(count))
    }

    fn count(&self) -> usize {
        self.0.load(Ordering::SeqCst)
    }
}
