//! Where attempts can run.

use std::sync::Arc;

use crate::fleet::{Fleet, FleetRules};
use crate::slots::Slots;

#[derive(Debug)]
pub enum Placement {
    /// In one place, which goes by this name, with these slots.
    Here { slots: Slots, worker: Arc<str> },
    /// On workers that come and go.
    Fleet(Box<Fleet>),
}

impl Placement {
    pub fn here(slots: Slots, worker: &str) -> Self {
        Self::Here { slots, worker: worker.into() }
    }

    pub fn fleet(rules: FleetRules) -> Self {
        Self::Fleet(Box::new(Fleet::new(rules)))
    }
}
