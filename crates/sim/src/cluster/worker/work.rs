//! An attempt as the executor has it, with its fate.

use steadfast_core::event::AttemptId;
use steadfast_worker::Resources;

use crate::cluster::fates::AttemptFate;
use crate::cluster::messages::AttemptName;

#[derive(Clone, Debug)]
pub(crate) struct SimWork {
    pub(super) name: AttemptName,
    pub(super) server: usize,
    pub(super) is_task: bool,
    pub(super) takes: Resources,
    pub(super) timeout_ms: Option<u64>,
    pub(super) fate: AttemptFate,
}

impl steadfast_worker::Work for SimWork {
    type Attempt = AttemptName;

    fn id(&self) -> AttemptId {
        self.name.id.clone()
    }

    fn attempt(&self) -> AttemptName {
        self.name.clone()
    }

    fn is_task(&self) -> bool {
        self.is_task
    }

    fn takes(&self) -> Resources {
        self.takes
    }

    fn source(&self) -> usize {
        self.server
    }
}
