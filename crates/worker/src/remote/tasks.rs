//! Attempts that are no processes: functions of the program that this worker is part of, and calls of web
//! services.
//!
//! Each is a task of the runtime, without a folder of its own. It is watched over by nothing but itself: a timer
//! exists only while one is wanted, and a function that ends at once has met none. A function that keeps its
//! thread busy without ever waiting cannot be ended by anybody.

use std::any::Any;
use std::fmt;
use std::future::{Future, poll_fn};
use std::panic::AssertUnwindSafe;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;
use steadfast_core::event::AttemptId;

use futures_util::FutureExt as _;
use proto::assignment::Action;
use steadfast_api::{WorkerReport, awaiting_report, proto, to_report};
use steadfast_core::outcome::{ErrorText, Failure, FailureKind, Outcome};
use steadfast_core::plan::Http;
use tokio::time::{Instant, sleep_until};

use super::attempt;
use super::executor::{Cut, Executor, settle};
use super::task_reports::Printed;
use crate::http::{Called, HttpOrder};
use crate::task_control::{End, TaskControl};
use crate::{Ended, OUTPUT_CAP};

/// More often nobody wants to know how far an attempt is, and what it writes into its log.
const PROGRESS_EVERY: Duration = Duration::from_secs(1);

pub type Task = Pin<Box<dyn Future<Output = WorkerReport> + Send>>;

/// What `call` steps can name.
pub trait Functions: Send + Sync + fmt::Debug {
    fn names(&self) -> Vec<String>;

    /// Begins when it is polled. `None`: there is no function of this name.
    fn call(&self, call: Call) -> Option<Task>;
}

/// One attempt of a function.
#[derive(Debug)]
pub struct Call {
    pub name: String,
    /// JSON.
    pub input: String,
    /// What else the server said of the attempt.
    pub assignment: proto::Assignment,
    pub control: TaskControl,
}

/// A task that runs.
#[derive(Clone, Debug)]
pub(super) struct Running {
    pub(super) attempt: proto::AttemptRef,
    control: TaskControl,
    cut: Option<Cut>,
}

impl Running {
    pub(super) fn new(attempt: proto::AttemptRef) -> Self {
        Self { attempt, control: TaskControl::new(), cut: None }
    }

    pub(super) fn cut(&mut self, cut: Cut, end: End) {
        cut.instead_of(&mut self.cut);
        self.control.tell(end);
    }

    pub(super) fn why_cut(&self) -> Option<Cut> {
        self.cut
    }
}

/// Such an attempt is a task.
pub(super) fn is_one(assignment: &proto::Assignment) -> bool {
    matches!(assignment.action, Some(Action::Call(_) | Action::HttpJson(_)))
}

impl Executor {
    /// Its slot is taken, and it is known to run.
    pub(super) fn start_task(
        self: &Arc<Self>,
        key: AttemptId,
        running: Running,
        mut assignment: proto::Assignment,
    ) {
        let Running { attempt, control, .. } = running;
        let limit = |ms: u64| Some(ms).filter(|ms| *ms > 0).map(Duration::from_millis);
        let (mut timeout, mut silence) =
            (limit(assignment.timeout_ms), limit(assignment.heartbeat_ms));
        let task = match assignment.action.take() {
            Some(Action::Call(proto::Call { name, input_json })) => {
                let call = Call { name, input: input_json, assignment, control: control.clone() };
                self.call(call)
            }
            Some(Action::HttpJson(json)) => {
                // A call has its own, which says what it waited for; and it is silent until it is over.
                let longest = timeout.take();
                silence = None;
                self.service(&json, longest, assignment)
            }
            _ => Err(attempt::permanent("unsupported", "this is no function".to_owned())),
        };
        let executor = self.clone();
        let watch = Watch { executor, key, attempt, control, timeout, silence };
        self.runtime.spawn(async move {
            let ended = match task {
                Ok(task) => watch.over(task).await,
                Err(outcome) => Some(WorkerReport::Ended(outcome)),
            };
            watch.executor.task_ended(&watch, ended);
        });
    }

    fn call(&self, call: Call) -> Result<Task, Outcome> {
        let name = call.name.clone();
        let task = self.config.functions.as_ref().and_then(|functions| functions.call(call));
        // The server knows what we have: it is wrong, or another one's.
        task.ok_or_else(|| {
            let why = format!("this worker has no function {name:?}");
            attempt::permanent("unknown_function", why)
        })
    }

    fn service(
        self: &Arc<Self>,
        json: &str,
        timeout: Option<Duration>,
        assignment: proto::Assignment,
    ) -> Result<Task, Outcome> {
        let http: Http = serde_json::from_str(json).map_err(|error| {
            attempt::permanent("assignment_refused", format!("the request is not one: {error}"))
        })?;
        let Some(caller) = self.caller.clone() else {
            let why = "this worker calls no web services".to_owned();
            return Err(attempt::permanent("unsupported", why));
        };
        let executor = self.clone();
        Ok(Box::pin(async move {
            let secrets = match executor.secrets.find(&assignment.secrets) {
                Ok(secrets) => secrets.into_iter().collect(),
                Err(why) => return WorkerReport::Ended(attempt::secret_missing(why)),
            };
            let attempt = assignment.attempt.unwrap_or_default();
            let text = |text: &'_ String| Some(text.clone()).filter(|text| !text.is_empty());
            let (datacenter, callback_url) =
                (text(&assignment.datacenter), text(&assignment.callback_url));
            let order = HttpOrder {
                http: &http,
                job_id: &attempt.job_id,
                step: &attempt.step_name,
                item: attempt.item(),
                datacenter: datacenter.as_deref(),
                attempt: attempt.attempt,
                callback_url: callback_url.as_deref(),
                timeout,
                secrets: &secrets,
            };
            match caller.call(&order).await {
                Called::Ended(outcome) => WorkerReport::Ended(outcome),
                Called::AwaitsCallback => WorkerReport::AwaitsCallback,
            }
        }))
    }

    /// `None`: it was dropped before it ended.
    fn task_ended(self: &Arc<Self>, watch: &Watch, said: Option<WorkerReport>) {
        let (key, attempt) = (&watch.key, watch.attempt.clone());
        let mut state = self.state();
        state.busy -= 1;
        let lease_over = state.lease_is_over();
        let Some(mut running) = state.tasks.remove(key) else { return };
        if lease_over {
            Cut::LeaseEnded.instead_of(&mut running.cut);
        }
        let report = match said {
            Some(WorkerReport::AwaitsCallback) if running.cut.is_none() => awaiting_report(attempt),
            said => {
                let ended = match said {
                    Some(WorkerReport::Ended(outcome)) => {
                        Ended::Outcome(outcome.within(OUTPUT_CAP as usize))
                    }
                    Some(WorkerReport::AwaitsCallback) | None => Ended::Stopped,
                };
                let (outcome, why) = settle(running.cut, ended, true, "");
                to_report(attempt, &outcome, why)
            }
        };
        let waker = if running.cut == Some(Cut::Withdrawn) {
            state.task_reports.forget(key);
            None
        } else {
            let written = state.task_reports.log(key, || watch.printed(), &watch.control);
            let last = watch.control.take_progress().map(|progress| watch.progress(progress));
            written.or(state.task_reports.report(key.clone(), last, report))
        };
        let matters = state.draining.is_some() || state.is_idle();
        drop(state);
        if let Some(waker) = waker {
            waker.wake();
        }
        self.fill();
        if matters {
            self.tell();
        }
    }
}

/// Of one task.
struct Watch {
    executor: Arc<Executor>,
    key: AttemptId,
    attempt: proto::AttemptRef,
    control: TaskControl,
    timeout: Option<Duration>,
    silence: Option<Duration>,
}

impl Watch {
    fn progress(&self, progress_json: String) -> proto::Progress {
        proto::Progress { attempt: Some(self.attempt.clone()), progress_json }
    }

    fn printed(&self) -> Printed {
        Printed { attempt: self.attempt.clone(), control: self.control.clone() }
    }

    /// How far it is, and what it has written.
    fn speak(&self) {
        let mut state = self.executor.state();
        let written = state.task_reports.log(&self.key, || self.printed(), &self.control);
        let progress = self.control.take_progress();
        let progressed = progress
            .and_then(|progress| state.task_reports.progress(&self.key, self.progress(progress)));
        drop(state);
        for waker in [written, progressed].into_iter().flatten() {
            waker.wake();
        }
    }

    fn has_something_to_say(&self) -> bool {
        self.control.has_progress() || self.control.has_log()
    }

    /// Until it has ended, or is dropped: then there is nothing to be said.
    async fn over(&self, task: Task) -> Option<WorkerReport> {
        let mut task = pin!(AssertUnwindSafe(task).catch_unwind());
        // Most are short: those that end at once need no watching.
        let first = poll_fn(|context| Poll::Ready(task.as_mut().poll(context))).await;
        if let Poll::Ready(done) = first {
            return Some(done.unwrap_or_else(|panic| panicked(&*panic)));
        }
        let begun = now();
        let timeout = self.timeout.map(|timeout| begun + timeout);
        let mut heard = begun;
        let mut said = None;
        // What is to be said instead of what the task says, and when it is dropped.
        let mut instead = None;
        let mut dropped = None;
        loop {
            let at = now();
            if self.control.spoke() {
                heard = at;
            }
            if self.has_something_to_say()
                && said.is_none_or(|said: Instant| at >= said + PROGRESS_EVERY)
            {
                said = Some(at);
                self.speak();
            }
            match self.control.end() {
                End::Killed => return instead,
                End::Soon if dropped.is_none() => dropped = Some(now() + self.grace()),
                End::NotYet | End::Asked | End::Soon => {}
            }
            let silent = self.silence.filter(|_| instead.is_none()).map(|silence| heard + silence);
            let over = timeout.filter(|_| instead.is_none());
            let word =
                said.filter(|_| self.has_something_to_say()).map(|said| said + PROGRESS_EVERY);
            let next = [dropped, silent, over, word].into_iter().flatten().min();
            let at = tokio::select! {
                biased;
                done = &mut task => {
                    let done = done.unwrap_or_else(|panic| panicked(&*panic));
                    return instead.or(Some(done));
                }
                () = self.control.stirred() => continue,
                () = sleep_until(next.unwrap_or(begun)), if next.is_some() => now(),
            };
            let is_past = |moment: Option<Instant>| moment.is_some_and(|moment| moment <= at);
            if is_past(dropped) {
                return instead;
            }
            if is_past(over) {
                instead = Some(WorkerReport::Ended(FailureKind::TimedOut.into()));
            } else if is_past(silent) {
                let ms = self.silence.unwrap_or_default().as_millis() as u64;
                instead = Some(WorkerReport::Ended(Outcome::silent(ms)));
            }
            if instead.is_some() {
                self.control.tell(End::Soon);
            }
            if is_past(word) {
                said = Some(at);
                self.speak();
            }
        }
    }

    /// Only who listens can make use of one.
    fn grace(&self) -> Duration {
        if self.control.listens() { self.executor.config.kill_grace } else { Duration::ZERO }
    }
}

fn panicked(panic: &(dyn Any + Send)) -> WorkerReport {
    let text = panic.downcast_ref::<&str>().copied();
    let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    let message = format!("the function panicked: {}", text.unwrap_or("without a word"));
    let error = Some(ErrorText { kind: Some("panic".to_owned()), message });
    WorkerReport::Ended(Outcome::Failed(Failure {
        error,
        ..Failure::new(FailureKind::HandlerFailed)
    }))
}

fn now() -> Instant {
    Instant::from_std(crate::now())
}
