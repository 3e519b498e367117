//! The one writer. Inputs come in, core decides, the group is committed, and only then does it let out what it
//! means for workers and callers.
//!
//! Nothing here knows sockets, SQL, processes or what time it is: a driver hands in `now`, carries
//! reports in and assignments out, and owns the store. A server, `run`, a rehearsal and a simulation are
//! drivers of the same [`Controller`].
//!
//! **What a decision lets out cannot be had without a commit**: [`Group::committed`] is the only way to it.

mod batch;
mod controller;
mod crash;
mod dispatch;
mod driver;
mod engine;
mod fleet;
mod hash;
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

pub use batch::Assignment;
pub use controller::{
    Arrival, Controller, Group, Loaded, Outgoing, Outputs, Parked, ReplyId, Request,
};
pub use crash::crash_point;
pub use driver::{Clock, Live, Observer, Ownership, Patience, Stepped, Stopped, Workers};
pub use engine::Engine;
pub use fleet::{
    CreditNotice, Credits, Fleet, FleetNotification, FleetRules, Identity, Missed, NameInUse,
    Undraining, WorkerInfo, WorkerSpec, WorkerState,
};
pub use inbox::{Adopted, Answer, CommandError, Inbox, Lost, Reply, SendError};
pub use load::{Loader, Unreadable, of_snapshot, state, state_of};
pub use placement::Placement;
pub use slots::Slots;
pub use work::Work;
pub use workers::Arriving;
