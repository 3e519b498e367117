//! What workers and servers say to each other, in the words of the protocol (`workers.proto`), without its bytes.

use std::collections::BTreeSet;

use steadfast_api::WorkerReport;
use steadfast_core::event::{AttemptId, ItemId};
use steadfast_engine::{Assignment, Credits, Work};

/// An attempt, as its server has named it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct AttemptName {
    pub(crate) id: AttemptId,
    pub(crate) item: ItemId,
    pub(crate) attempt: u32,
}

impl From<&Assignment> for AttemptName {
    fn from(assignment: &Assignment) -> Self {
        let Assignment { item, attempt, .. } = *assignment;
        Self { id: assignment.id(), item, attempt }
    }
}

/// How a worker introduces itself.
#[derive(Clone, Debug)]
pub(crate) struct Hello {
    pub(crate) incarnation: String,
    pub(crate) returning: bool,
    pub(crate) holds: BTreeSet<AttemptId>,
    /// By scope: what others have assigned, and whether this life was welcome there.
    pub(crate) elsewhere: Vec<(String, Vec<AttemptName>, bool)>,
    pub(crate) credits: Option<u32>,
}

#[derive(Clone, Debug)]
pub(crate) enum FromWorker {
    Hello(Box<Hello>),
    Beat(u64),
    Report(AttemptName, WorkerReport),
    Progress(AttemptName, u32),
    Draining,
    Undrained,
    Credits(Credits),
    Closed,
}

#[derive(Clone, Debug)]
pub(crate) enum ToWorker {
    Welcome { scope: String, epoch: u64, not_held: BTreeSet<AttemptId> },
    Beat(u64),
    Assignment { work: Box<Work>, scope: String, epoch: u64 },
    Withdrawal { id: AttemptId, scope: String, epoch: u64 },
    TookOver { scope: String, epoch: u64, attempts: Vec<AttemptName> },
    Acknowledged { id: AttemptId },
    Drain,
    Undrain,
    CreditsTaken(u64),
    Wanted,
    Closed,
}

impl FromWorker {
    pub(crate) const fn name(&self) -> &'static str {
        match self {
            Self::Hello(_) => "hello",
            Self::Beat(_) => "beat",
            Self::Report(..) => "report",
            Self::Progress(..) => "progress",
            Self::Draining => "draining",
            Self::Undrained => "undrained",
            Self::Credits(_) => "credits",
            Self::Closed => "closed",
        }
    }
}

impl ToWorker {
    pub(crate) const fn name(&self) -> &'static str {
        match self {
            Self::Welcome { .. } => "welcome",
            Self::Beat(_) => "beat",
            Self::Assignment { .. } => "assignment",
            Self::Withdrawal { .. } => "withdrawal",
            Self::TookOver { .. } => "took over",
            Self::Acknowledged { .. } => "acknowledged",
            Self::Drain => "drain",
            Self::Undrain => "undrain",
            Self::CreditsTaken(_) => "credits taken",
            Self::Wanted => "wanted",
            Self::Closed => "closed",
        }
    }

    /// The attempts that it is about.
    pub(crate) fn about(&self) -> String {
        let list = |ids: Vec<&AttemptId>| {
            ids.into_iter().map(|id| format!(" {id}")).collect::<Vec<_>>().concat()
        };
        match self {
            Self::Welcome { not_held, .. } if !not_held.is_empty() => {
                format!(", without{}", list(not_held.iter().collect()))
            }
            Self::Assignment { work, .. } => format!(" {}", work.assignment.id()),
            Self::TookOver { attempts, .. } => list(attempts.iter().map(|name| &name.id).collect()),
            Self::Withdrawal { id, .. } | Self::Acknowledged { id } => format!(" {id}"),
            _ => String::new(),
        }
    }
}
