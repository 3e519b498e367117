//! The one writer. Inputs come in, core decides, the batch is committed, and only then do its effects
//! go out.
//!
//! Nothing here knows sockets, SQL, processes or what time it is: the driver hands in `now`, carries
//! reports in and effects out, and owns the log. A server, `run`, a rehearsal and a simulation are
//! drivers of the same [`Engine`].
//!
//! **Effects cannot be had without a commit**: [`Batch::commit`] is the only way to them.

mod batch;
mod controller;
mod crash;
mod driver;
mod engine;
mod fleet;
mod inbox;
mod load;
mod mailbox;
mod placement;
mod prefetch;
mod queue;
mod slots;
mod timers;
mod watchdogs;
mod work;
mod workers;

pub use batch::{Assignment, Batch, Effect, Log};
pub use controller::{Controller, Group, Loaded, Outgoing, Outputs, Parked, ReplyId, Request};
pub use crash::crash_point;
pub use driver::{Clock, Live, Observer, Ownership, Stopped, Workers};
pub use engine::{Engine, Unknown};
pub use fleet::{
    Fleet, FleetNotification, FleetRules, Identity, Missed, NameInUse, Undraining, WorkerInfo,
    WorkerSpec, WorkerState,
};
pub use inbox::{Adopted, Answer, CommandError, Inbox, Lost, Reply, SendError};
pub use load::{Loader, Unreadable, state};
pub use placement::Placement;
pub use slots::Slots;
pub use work::Work;
pub use workers::Arriving;
