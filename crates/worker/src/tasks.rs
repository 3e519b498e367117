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
use std::task::Poll;
use std::time::Duration;

use futures_util::FutureExt as _;
use steadfast_api::{WorkerReport, proto};
use steadfast_core::event::AttemptId;
use steadfast_core::outcome::{ErrorText, Failure, FailureKind, Outcome};
use tokio::time::{Instant, sleep_until};

use crate::task_control::{End, TaskControl};
use crate::transport::{AttemptOf, Transport};

/// More often nobody wants to know how far an attempt is, and what it writes into its log.
const PROGRESS_EVERY: Duration = Duration::from_secs(1);

pub type Task = Pin<Box<dyn Future<Output = WorkerReport> + Send>>;

/// A task, and how long it may take.
pub struct TimedTask {
    pub task: Task,
    pub timeout: Option<Duration>,
    /// The longest silence.
    pub silence: Option<Duration>,
}

impl fmt::Debug for TimedTask {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { timeout, silence, .. } = self;
        f.debug_struct("TimedTask")
            .field("timeout", timeout)
            .field("silence", silence)
            .finish_non_exhaustive()
    }
}

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

/// Of one task.
pub(crate) struct Watch<'a, T: Transport> {
    pub(crate) transport: &'a T,
    pub(crate) key: &'a AttemptId,
    pub(crate) attempt: &'a AttemptOf<T>,
    pub(crate) control: &'a TaskControl,
}

impl<T: Transport> Watch<'_, T> {
    fn speak(&self) {
        self.transport.said(self.key, self.attempt, self.control);
    }

    fn has_something_to_say(&self) -> bool {
        self.control.has_progress() || self.control.has_log()
    }

    /// Until it has ended. `None`: it was dropped before, and there is nothing to be said.
    pub(crate) async fn over(&self, task: TimedTask) -> Option<WorkerReport> {
        let TimedTask { task, timeout, silence } = task;
        let mut task = pin!(AssertUnwindSafe(task).catch_unwind());
        // Most are short: those that end at once need no watching.
        let first = poll_fn(|context| Poll::Ready(task.as_mut().poll(context))).await;
        if let Poll::Ready(done) = first {
            return Some(done.unwrap_or_else(|panic| panicked(&*panic)));
        }
        let begun = now();
        let timeout = timeout.map(|timeout| begun + timeout);
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
            let silent = silence.filter(|_| instead.is_none()).map(|silence| heard + silence);
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
                let ms = silence.unwrap_or_default().as_millis() as u64;
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
        if self.control.listens() { self.transport.grace() } else { Duration::ZERO }
    }
}

fn panicked(panic: &(dyn Any + Send)) -> WorkerReport {
    let message = format!("the function panicked: {}", panic_text(panic));
    let error = Some(ErrorText { kind: Some("panic".to_owned()), message });
    WorkerReport::Ended(Outcome::Failed(Failure {
        error,
        ..Failure::new(FailureKind::HandlerFailed)
    }))
}

pub(crate) fn panic_text(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("without a word")
}

fn now() -> Instant {
    Instant::from_std(crate::now())
}
