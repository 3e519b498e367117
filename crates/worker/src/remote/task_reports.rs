//! What tasks say: how they ended, kept in memory until it is acknowledged, how far they are, and their logs.
//!
//! Their reports need no disk: a worker that dies takes its functions along, and they are lost with it. So
//! they go to the stream as they come, many at a time, past the outbox and its logs.

use std::collections::{HashMap, VecDeque};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use steadfast_core::event::AttemptId;

use proto::FromWorker;
use proto::from_worker::Kind;
use steadfast_api::proto;
use tokio::sync::mpsc;
use tokio_stream::Stream;

use super::executor::Executor;
use crate::task_control::TaskControl;

/// Bytes of a log in one message.
const CHUNK: usize = 64 << 10;
/// Taken together: enough to share the cost, few enough that a beat is not held up.
const TOGETHER: usize = 64;

#[derive(Debug, Default)]
pub(super) struct TaskReports {
    /// Not acknowledged.
    kept: HashMap<AttemptId, Kept>,
    unsent: VecDeque<Kind>,
    /// How far those are that have not ended: what a session took may not have arrived.
    latest: HashMap<AttemptId, proto::Progress>,
    /// Those that have written into their logs, until their reports are acknowledged.
    printed: HashMap<AttemptId, Printed>,
    /// Of the session there is, or was.
    session: u64,
    waker: Option<Waker>,
}

#[derive(Debug)]
struct Kept {
    /// Sent before the report, because it is how far the attempt got.
    last: Option<proto::Progress>,
    report: proto::Report,
}

/// Whose log it is, and where it lies.
#[derive(Debug)]
pub(super) struct Printed {
    pub(super) attempt: proto::AttemptRef,
    pub(super) control: TaskControl,
}

impl Printed {
    fn output(&self, offset: u64, bytes: &[u8]) -> impl Iterator<Item = Kind> {
        bytes.chunks(CHUNK).zip(0..).map(move |(chunk, number)| {
            Kind::Output(proto::Output {
                attempt: Some(self.attempt.clone()),
                offset: offset + number * CHUNK as u64,
                bytes: chunk.to_vec().into(),
                last: false,
            })
        })
    }
}

impl TaskReports {
    /// A session begins: what was not acknowledged is said again. Its number.
    fn begin(&mut self) -> u64 {
        self.session += 1;
        self.unsent.clear();
        // Before the reports: of an attempt that is over nobody takes a log.
        for printed in self.printed.values() {
            self.unsent.extend(printed.output(0, &printed.control.taken_log()));
        }
        self.unsent.extend(self.latest.values().cloned().map(Kind::Progress));
        for Kept { last, report } in self.kept.values() {
            self.unsent.extend(last.clone().map(Kind::Progress));
            self.unsent.push_back(Kind::Report(report.clone()));
        }
        self.waker = None;
        self.session
    }

    /// Whom to wake, once nothing is locked: it may speak now.
    #[must_use]
    pub(super) fn welcomed(&mut self) -> Option<Waker> {
        self.waker.take()
    }

    /// Likewise.
    #[must_use]
    pub(super) fn progress(&mut self, key: &AttemptId, progress: proto::Progress) -> Option<Waker> {
        self.latest.insert(key.clone(), progress.clone());
        self.unsent.push_back(Kind::Progress(progress));
        self.waker.take()
    }

    /// Likewise: what the task has written since the last time.
    #[must_use]
    pub(super) fn log(
        &mut self,
        key: &AttemptId,
        printed: impl Fn() -> Printed,
        control: &TaskControl,
    ) -> Option<Waker> {
        let (offset, bytes) = control.take_log()?;
        let printed = self.printed.entry(key.clone()).or_insert_with(printed);
        self.unsent.extend(printed.output(offset, &bytes));
        self.waker.take()
    }

    /// Likewise.
    #[must_use]
    pub(super) fn report(
        &mut self,
        key: AttemptId,
        last: Option<proto::Progress>,
        report: proto::Report,
    ) -> Option<Waker> {
        let before = self.latest.remove(&key);
        self.unsent.extend(last.clone().map(Kind::Progress));
        self.unsent.push_back(Kind::Report(report.clone()));
        self.kept.insert(key, Kept { last: last.or(before), report });
        self.waker.take()
    }

    /// Nobody wants to hear of it any more.
    pub(super) fn forget(&mut self, key: &AttemptId) {
        self.latest.remove(key);
        self.printed.remove(key);
    }

    pub(super) fn acknowledged(&mut self, key: &AttemptId) -> bool {
        self.printed.remove(key);
        self.kept.remove(key).is_some()
    }

    pub(super) fn keeps(&self, key: &AttemptId) -> bool {
        self.kept.contains_key(key)
    }

    pub(super) fn attempts(&self) -> impl Iterator<Item = proto::AttemptRef> {
        self.kept.values().filter_map(|kept| kept.report.attempt.clone())
    }

    pub(super) fn is_empty(&self) -> bool {
        self.kept.is_empty()
    }
}

/// Everything a session sends: what the outbox makes, one by one, and what tasks say.
#[derive(Debug)]
pub(super) struct Outgoing {
    executor: Arc<Executor>,
    outbox: mpsc::Receiver<FromWorker>,
    session: u64,
    taken: VecDeque<Kind>,
}

impl Outgoing {
    /// Takes the reports over from the session before.
    pub(super) fn new(executor: &Arc<Executor>, outbox: mpsc::Receiver<FromWorker>) -> Self {
        let session = executor.state().task_reports.begin();
        Self { executor: executor.clone(), outbox, session, taken: VecDeque::new() }
    }
}

impl Stream for Outgoing {
    type Item = FromWorker;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<FromWorker>> {
        let this = self.get_mut();
        // First, because beats are among it; and hello is.
        if let Poll::Ready(next) = this.outbox.poll_recv(context) {
            return Poll::Ready(next);
        }
        if this.taken.is_empty() {
            let mut state = this.executor.state();
            // Before the welcome nothing is said but hello.
            let is_ours = state.task_reports.session == this.session && state.client.is_some();
            let task_reports = &mut state.task_reports;
            if is_ours {
                let some = task_reports.unsent.len().min(TOGETHER);
                this.taken.extend(task_reports.unsent.drain(..some));
            }
            if this.taken.is_empty() {
                if task_reports.session == this.session {
                    task_reports.waker = Some(context.waker().clone());
                }
                return Poll::Pending;
            }
        }
        let kind = this.taken.pop_front();
        Poll::Ready(Some(FromWorker { kind }))
    }
}
