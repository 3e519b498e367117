//! Where attempts come from, and where it is said how they ended: a controller in this process, or a server.

use std::io;
use std::time::Duration;

use steadfast_core::event::AttemptId;
use steadfast_core::outcome::Outcome;

use crate::executor::{Settled, Work};
use crate::tasks::TimedTask;
use crate::{Ended, Stop, TaskControl};

/// What an attempt of `T` is reported as.
pub type AttemptOf<T> = <<T as Transport>::Work as Work>::Attempt;

/// What a [`Driver`](crate::Driver) runs, and who is told of it. Called on the driver's threads and tasks, with
/// nothing locked.
pub trait Transport: Send + Sync + Sized + 'static {
    type Work: Work + Send + 'static;

    /// [`report`](Self::report) waits for a disk: the slot is another attempt's meanwhile.
    const REPORTS_WAIT: bool;

    /// Runs it as a process on this thread, to its end; and, for people, why it did not begin. This is when folders
    /// are made and ports taken. `started` is called once there is a process.
    fn run(&self, work: &Self::Work, stop: &Stop, started: &dyn Fn()) -> (Ended, String);

    /// What becomes of an attempt that this machine has no descriptors left for.
    fn unwatchable(&self, error: &io::Error) -> Outcome;

    /// Makes it a task. An error is how it ended.
    fn task(&self, work: Self::Work, control: &TaskControl) -> Result<TimedTask, Outcome>;

    /// For a task that begins.
    fn control(&self, _work: &Self::Work) -> TaskControl {
        TaskControl::new(crate::LOG_CAP)
    }

    /// A task that goes on has said how far it is, or has written into its log.
    fn said(&self, _key: &AttemptId, _attempt: &AttemptOf<Self>, _control: &TaskControl) {}

    /// How long a task that listens has to end, once it is told to.
    fn grace(&self) -> Duration;

    /// How an attempt ended, or that it is handed back. Once for each that was assigned, unless it was withdrawn
    /// while it waited.
    fn report(
        &self,
        key: &AttemptId,
        settled: Settled<AttemptOf<Self>>,
        control: Option<&TaskControl>,
    );

    /// It was withdrawn while it was reported.
    fn withdrawn(&self, _key: &AttemptId, _attempt: &AttemptOf<Self>) {}

    /// Something may be worth a look: nothing is in hand any more, or something is while nothing new is taken.
    fn changed(&self) {}
}
