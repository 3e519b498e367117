//! The one writer. Inputs come in, core decides, the batch is committed, and only then do its effects
//! go out.
//!
//! Nothing here knows sockets, SQL, processes or what time it is: the driver hands in `now`, carries
//! reports in and effects out, and owns the log. A server, `run`, a rehearsal and a simulation are
//! drivers of the same [`Engine`].
//!
//! **Effects cannot be had without a commit**: [`Batch::commit`] is the only way to them.

mod batch;
mod crash;
mod engine;
mod fleet;
mod inbox;
mod live;
mod mailbox;
mod pace;
mod queue;
mod recover;
mod room;
mod slots;
mod timers;
mod watchdogs;
mod work;
mod workers;
mod writer;

pub use batch::{Assignment, Batch, Effect, Log};
pub use crash::crash_point;
pub use engine::{Engine, Unknown};
pub use fleet::{
    AttemptKey, Fleet, FleetNews, FleetRules, Identity, Missed, NameInUse, Undraining, WorkerSpec,
    WorkerState, WorkerView,
};
pub use inbox::{Adopted, Answer, Inbox, Lost, NotDone, Reply, Unheard};
pub use live::{Clock, Live, Observer, Stopped, Workers};
pub use recover::{Unreadable, adopt_all, state};
pub use room::Room;
pub use slots::Slots;
pub use work::Work;
pub use workers::Arriving;
