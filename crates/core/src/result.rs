//! What a job gave: the outputs of the runs that count.

use serde::ser::SerializeMap as _;
use serde::{Serialize, Serializer};
use serde_json::Value;

use crate::job::Job;
use crate::plan::ForEach;

/// Of a fan-out the first so many outputs are part of a result; its log has them all.
pub const MOST_OUTPUTS: u32 = 100;

/// Of a job that has ended. Its shape follows the job file, not how many datacenters succeeded.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct JobResult {
    /// Those whose run counts, in the order of the job file; none where the job names none.
    pub datacenters: Vec<String>,
    /// By step. Of a job with datacenters: by step, then by datacenter. A step without `for_each` has its output
    /// there, one with it the list of its items' outputs. What gave no output is not there.
    pub outputs: InOrder<Value>,
    /// Outputs of large fan-outs that are not shown, by step.
    #[serde(skip_serializing_if = "InOrder::is_empty")]
    pub left_out: InOrder<u32>,
}

/// A map in the order of the plan.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct InOrder<T>(pub Vec<(String, T)>);

impl<T> InOrder<T> {
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn get(&self, name: &str) -> Option<&T> {
        self.0.iter().find(|(known, _)| known == name).map(|(_, value)| value)
    }
}

impl<T: Serialize> Serialize for InOrder<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.0.len()))?;
        for (name, value) in &self.0 {
            map.serialize_entry(name, value)?;
        }
        map.end()
    }
}

impl Job {
    /// None until it has ended. A run counts if it succeeded before the job ended, or later with
    /// `late_results: update_result`.
    pub fn result(&self) -> Option<JobResult> {
        if !self.state().is_terminal() {
            return None;
        }
        let counted: Vec<u32> =
            (0..self.runs.len() as u32).filter(|&run| self.runs[run as usize].counted).collect();
        let datacenter = |run: u32| self.plan.datacenter(run).map(str::to_owned);
        let mut result = JobResult {
            datacenters: counted.iter().filter_map(|&run| datacenter(run)).collect(),
            outputs: InOrder(vec![]),
            left_out: InOrder(vec![]),
        };
        for (step, draft) in self.plan.steps().iter().enumerate() {
            let step = step as u32;
            let mut by_datacenter = serde_json::Map::new();
            let mut only = None;
            let mut left_out = 0;
            for &run in &counted {
                let Some((output, more)) = self.shown_output(run, step) else { continue };
                left_out += more;
                match datacenter(run) {
                    Some(name) => drop(by_datacenter.insert(name, output)),
                    None => only = Some(output),
                }
            }
            if !by_datacenter.is_empty() {
                only = Some(Value::Object(by_datacenter));
            }
            result.outputs.0.extend(only.map(|output| (draft.name.clone(), output)));
            if left_out > 0 {
                result.left_out.0.push((draft.name.clone(), left_out));
            }
        }
        Some(result)
    }

    /// What a step gave in a run, and how many outputs of a large fan-out are not in it.
    fn shown_output(&self, run: u32, step: u32) -> Option<(Value, u32)> {
        let state = self.step_run(run, step)?;
        if state.outputs.is_empty() {
            return None;
        }
        if self.plan.step(step).for_each == ForEach::Once {
            return state.outputs.get(&0).map(|output| (output.clone(), 0));
        }
        let shown = state.items.min(MOST_OUTPUTS);
        let output = |index| state.outputs.get(&index).cloned().unwrap_or(Value::Null);
        Some(((0..shown).map(output).collect(), state.items - shown))
    }
}
