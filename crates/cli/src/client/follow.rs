//! A job followed to its end: `wait` and `watch`. A server that goes away is waited for, and the
//! events go on where they stopped.

use std::time::Duration;

use steadfast_api::{JobStatus, ShownState};
use steadfast_core::apply::fold;
use steadfast_core::event::RecordedEvent;
use steadfast_core::job::Job;
use tokio::sync::mpsc::{Receiver, Sender, channel};
use tokio::time::{Instant, MissedTickBehavior, interval, sleep, sleep_until};

use super::api::{Answer, Client};
use super::overview;
use super::sse::{Frame, Parser};
use crate::args::Output;
use crate::error::CliError;
use crate::run::exit_of;
use crate::style::{DIM, paint};
use crate::view::View;
use crate::{Exit, clock, input, jobs};

/// How long a server may be away without `--timeout`.
const PATIENCE: Duration = Duration::from_mins(10);
/// Before it is asked for again, doubling.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(2);
/// How often the picture is drawn anew.
const TICK: Duration = Duration::from_millis(100);
/// More than one drawing shows is not held: the server keeps the rest.
const WAITING: usize = 256;

enum Notifications {
    Event(Frame),
    /// It answers, whether or not it has something to tell.
    There,
    /// It is asked for again.
    Away(CliError),
    /// Nothing more comes.
    Gone(CliError),
}

/// The job's events from the first on, until it is over, over any number of connections.
fn events(client: &Client, id: &str) -> Receiver<Notifications> {
    let (tell, told) = channel(WAITING);
    tokio::spawn(read(client.clone(), id.to_owned(), tell));
    told
}

async fn read(client: Client, id: String, tell: Sender<Notifications>) {
    let (mut after, mut pause) = (0, FIRST_PAUSE);
    loop {
        let trouble = match one_connection(&client, &id, &mut after, &mut pause, &tell).await {
            // All was sent, or the command has ended.
            Ok(()) => return,
            Err(trouble) => trouble,
        };
        let passing = trouble.is_passing();
        let news =
            if passing { Notifications::Away(trouble) } else { Notifications::Gone(trouble) };
        if tell.send(news).await.is_err() || !passing {
            return;
        }
        sleep(pause).await;
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

async fn one_connection(
    client: &Client,
    id: &str,
    after: &mut u64,
    pause: &mut Duration,
    tell: &Sender<Notifications>,
) -> Result<(), CliError> {
    let mut response = client.follow(id, *after).await?;
    if tell.send(Notifications::There).await.is_err() {
        return Ok(());
    }
    let mut parser = Parser::default();
    loop {
        let chunk = response.chunk().await.map_err(|error| client.unreached(&error))?;
        let Some(bytes) = chunk else {
            return Err(client.ended());
        };
        *pause = FIRST_PAUSE;
        for frame in parser.feed(&bytes).map_err(|why| client.odd(why))? {
            if let Some(id) = frame.id.as_ref().and_then(|id| id.parse().ok()) {
                *after = id;
            }
            let last = matches!(frame.event.as_str(), "end" | "interrupted");
            if tell.send(Notifications::Event(frame)).await.is_err() || last {
                return Ok(());
            }
        }
    }
}

/// How long the server has been away by now, and whether that was said.
struct Absence {
    since: Option<Instant>,
    why: String,
    patience: Option<Duration>,
}

impl Absence {
    fn new(patience: Option<Duration>) -> Self {
        Self { since: None, why: String::new(), patience }
    }

    /// An error: it was for too long.
    fn away(&mut self, client: &Client, id: &str, trouble: &CliError) -> Result<(), CliError> {
        self.why = trouble.reason();
        let since = match self.since {
            Some(since) => since,
            None => {
                let said = format!("lost the server at {}, waiting for it", client.address());
                anstream::eprintln!("{}", paint(DIM, said));
                *self.since.insert(Instant::now())
            }
        };
        match self.patience {
            Some(patience) if since.elapsed() > patience => Err(self.lost(client, id)),
            _ => Ok(()),
        }
    }

    fn back(&mut self) {
        if self.since.take().is_some() {
            anstream::eprintln!("{}", paint(DIM, "it is back"));
        }
    }

    fn lost(&self, client: &Client, id: &str) -> CliError {
        let hint = format!("`{}`", client.hint(&format!("wait {id}")));
        CliError::Lost { address: client.address(), why: self.why.clone(), hint }
    }
}

pub(super) async fn wait(
    client: &Client,
    id: &str,
    timeout: Option<Duration>,
    output: Output,
) -> Result<Exit, CliError> {
    let mut absence = Absence::new(timeout.is_none().then_some(PATIENCE));
    let ended = tokio::select! {
        ended = ended(client, id, &mut absence) => Some(ended?),
        () = passed(timeout) => None,
        interrupted = tokio::signal::ctrl_c() => {
            interrupted?;
            return Ok(left(client, id));
        }
    };
    let Some(ended) = ended else {
        if absence.since.is_some() {
            return Err(absence.lost(client, id));
        }
        let hint = client.hint(&format!("wait {id}"));
        anstream::eprintln!("job {id} goes on; wait for it again with {hint}");
        if output == Output::Json {
            input::print_text(&client.status(id).await?.text)?;
        }
        return Ok(Exit::TimedOut);
    };
    tell_end(client, &ended, output).await?;
    Ok(exit_of(ended.value.state))
}

async fn passed(timeout: Option<Duration>) {
    match timeout {
        Some(timeout) => sleep_until(Instant::now() + timeout).await,
        None => std::future::pending().await,
    }
}

fn left(client: &Client, id: &str) -> Exit {
    anstream::eprintln!(
        "the job goes on; look at it with {}",
        client.hint(&format!("status {id}"))
    );
    Exit::Interrupted
}

/// The status once the job has a final state; runs may go on after a best-effort completion.
async fn ended(
    client: &Client,
    id: &str,
    absence: &mut Absence,
) -> Result<Answer<JobStatus>, CliError> {
    // A server that cannot be reached at the beginning is an error at once, not waited for.
    let status = client.status(id).await?;
    if status.value.state.is_terminal() || status.value.state == ShownState::Interrupted {
        return Ok(status);
    }
    let mut told = events(client, id);
    loop {
        match told.recv().await {
            Some(Notifications::There) => absence.back(),
            Some(Notifications::Event(frame)) => {
                if matches!(frame.event.as_str(), "JobEnded" | "end" | "interrupted") {
                    return status_of(client, id, absence).await;
                }
            }
            Some(Notifications::Away(trouble)) => absence.away(client, id, &trouble)?,
            Some(Notifications::Gone(trouble)) => return Err(trouble),
            None => return status_of(client, id, absence).await,
        }
    }
}

/// The server has just said that the job has ended; should it go away now, it is waited for.
async fn status_of(
    client: &Client,
    id: &str,
    absence: &mut Absence,
) -> Result<Answer<JobStatus>, CliError> {
    loop {
        match client.status(id).await {
            Err(trouble) if trouble.is_passing() => absence.away(client, id, &trouble)?,
            answer => return answer,
        }
        sleep(FIRST_PAUSE).await;
    }
}

async fn tell_end(
    client: &Client,
    ended: &Answer<JobStatus>,
    output: Output,
) -> Result<(), CliError> {
    match output {
        Output::Json => input::print_text(&ended.text)?,
        Output::Human => {
            let overview = overview::overview(client, &ended.value).await;
            let now_ms = clock::now().0;
            jobs::print(&match ended.value.state {
                ShownState::Interrupted => overview.under_way(now_ms),
                _ => overview.ended(now_ms),
            })?;
        }
    }
    Ok(())
}

/// Shown as it goes, until nothing of it goes on any more.
pub(super) async fn watch(client: &Client, id: &str, output: Output) -> Result<Exit, CliError> {
    // A server that cannot be reached at the beginning is an error at once, not waited for.
    client.status(id).await?;
    match show(client, id, output, |event| event == "end").await? {
        None => Ok(left(client, id)),
        Some(ended) => {
            if let Some(ended) = ended {
                tell_end(client, &ended, output).await?;
            }
            Ok(Exit::Ok)
        }
    }
}

/// Shown as it goes, until it has a final state; the exit status tells which. The server has just taken the job: should it be away
/// now, it is waited for.
pub(super) async fn attend(client: &Client, id: &str) -> Result<Exit, CliError> {
    let output = Output::Human;
    let shown = show(client, id, output, |event| matches!(event, "JobEnded" | "end")).await?;
    let Some(Some(ended)) = shown else { return Ok(left(client, id)) };
    tell_end(client, &ended, output).await?;
    Ok(exit_of(ended.value.state))
}

/// The last status, for people; programs were told every event. None: the user has pressed Ctrl-C.
async fn show(
    client: &Client,
    id: &str,
    output: Output,
    is_last: impl Fn(&str) -> bool,
) -> Result<Option<Option<Answer<JobStatus>>>, CliError> {
    let mut view = View::new(output);
    let mut job: Option<Job> = None;
    let mut absence = Absence::new(Some(PATIENCE));
    let mut tick = interval(TICK);
    tick.set_missed_tick_behavior(MissedTickBehavior::Skip);
    let mut told = events(client, id);
    loop {
        tokio::select! {
            news = told.recv() => match news {
                Some(Notifications::There) => absence.back(),
                Some(Notifications::Event(frame)) => {
                    let is_event = !matches!(frame.event.as_str(), "end" | "interrupted");
                    if output == Output::Json && is_event {
                        input::print_text(&frame.data)?;
                    } else if is_event {
                        see(client, &mut view, &mut job, &frame)?;
                    }
                    if !is_event || is_last(&frame.event) {
                        break;
                    }
                }
                Some(Notifications::Away(trouble)) => {
                    view.end();
                    absence.away(client, id, &trouble)?;
                }
                Some(Notifications::Gone(trouble)) => {
                    view.end();
                    return Err(trouble);
                }
                None => break,
            },
            _ = tick.tick() => {
                if let Some(job) = &job && absence.since.is_none() {
                    view.draw(job, clock::now());
                }
            }
            interrupted = tokio::signal::ctrl_c() => {
                interrupted?;
                view.end();
                return Ok(None);
            }
        }
    }
    view.end();
    Ok(Some(match output {
        Output::Human => Some(status_of(client, id, &mut absence).await?),
        Output::Json => None,
    }))
}

fn see(
    client: &Client,
    view: &mut View,
    job: &mut Option<Job>,
    frame: &Frame,
) -> Result<(), CliError> {
    let unreadable = |why: String| {
        client.odd(format!("its events cannot be read ({why}); it may be newer than this program"))
    };
    let record: RecordedEvent =
        serde_json::from_str(&frame.data).map_err(|error| unreadable(error.to_string()))?;
    view.event(job.as_ref(), &record);
    fold(job, &record).map_err(|illegal| unreadable(illegal.to_string()))?;
    Ok(())
}
