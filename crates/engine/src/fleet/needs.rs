//! What an attempt wants of a worker.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use steadfast_core::event::ItemId;
use steadfast_core::plan::{Action, Plan, milli_cpus};

use super::WorkerSpec;

/// Stored with jobs that wait for a worker, so short where nothing special is wanted.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Needs {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) datacenter: Option<String>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) labels: BTreeMap<String, String>,
    #[serde(skip_serializing_if = "is_none")]
    pub(crate) cpu_milli: u64,
    #[serde(skip_serializing_if = "is_none")]
    pub(crate) memory: u64,
    #[serde(skip_serializing_if = "Capability::is_processes")]
    pub(crate) skill: Capability,
    /// It may wait at a worker for a slot: if it is lost with the worker before it began, it is tried
    /// again, and while it waits it keeps nothing from others.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub(crate) may_wait: bool,
}

#[allow(clippy::trivially_copy_pass_by_ref)] // the shape serde wants
fn is_none(amount: &u64) -> bool {
    *amount == 0
}

/// What its worker must be able to do.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Capability {
    #[default]
    Processes,
    Http,
    Function(String),
}

impl Capability {
    fn is_processes(&self) -> bool {
        *self == Self::Processes
    }
}

impl Needs {
    pub(crate) fn of(plan: &Plan, item: ItemId) -> Self {
        let step = plan.step(item.step);
        let (cpu_milli, memory) =
            (step.resources.cpu_milli(), step.resources.memory_bytes.unwrap_or(0));
        Self {
            datacenter: plan.datacenter(item.run).map(str::to_owned),
            labels: step.labels.clone(),
            cpu_milli,
            memory,
            skill: match plan.action_of(item) {
                Some(Action::Call { name, .. }) => Capability::Function(name.clone()),
                Some(Action::Http(_)) => Capability::Http,
                _ => Capability::Processes,
            },
            may_wait: step.policy.survives_loss() && cpu_milli == 0 && memory == 0,
        }
    }

    /// Whether an idle worker of this kind could run it.
    pub(crate) fn fits(&self, spec: &WorkerSpec) -> bool {
        self.place_fits(spec)
            && self.labels_fit(spec)
            && self.kind_fits(spec)
            && spec.cpu.is_none_or(|cpu| self.cpu_milli <= milli_cpus(cpu))
            && spec.memory_bytes.is_none_or(|memory| self.memory <= memory)
    }

    pub(crate) fn place_fits(&self, spec: &WorkerSpec) -> bool {
        self.datacenter.is_none() || self.datacenter == spec.datacenter
    }

    pub(crate) fn labels_fit(&self, spec: &WorkerSpec) -> bool {
        self.labels.iter().all(|(name, value)| spec.labels.get(name) == Some(value))
    }

    pub(crate) fn kind_fits(&self, spec: &WorkerSpec) -> bool {
        match &self.skill {
            Capability::Function(function) => spec.functions.contains(function),
            Capability::Http => spec.http,
            Capability::Processes => spec.processes,
        }
    }
}
