//! Where attempts can run.

use std::sync::Arc;

use crate::fleet::{Fleet, FleetRules};
use crate::slots::Slots;

#[derive(Debug)]
pub enum Placement {
    /// In one place, which goes by this name, with these slots. `incarnation`: by what its attempts are told from those of other places of
    /// that name, if a job may go on there.
    Here { slots: Slots, worker: Arc<str>, incarnation: Option<Arc<str>> },
    /// On workers that come and go.
    Fleet(Box<Fleet>),
}

impl Placement {
    pub fn here(slots: Slots, worker: &str) -> Self {
        Self::Here { slots, worker: worker.into(), incarnation: None }
    }

    pub fn here_as(slots: Slots, worker: &str, incarnation: &str) -> Self {
        Self::Here { slots, worker: worker.into(), incarnation: Some(incarnation.into()) }
    }

    pub fn fleet(rules: FleetRules) -> Self {
        Self::Fleet(Box::new(Fleet::new(rules)))
    }
}
