//! What a job gave: the outputs of the runs that count. Of large ones a part: a result is shown with every
//! status, and a job may give gigabytes.

use std::fmt;
use std::marker::PhantomData;

use serde::de::{MapAccess, Visitor};
use serde::ser::SerializeMap as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;

use crate::job::Job;
use crate::plan::ForEach;

/// Of a fan-out the first `MOST_OUTPUTS` are part of a result; its log has them all.
pub const MOST_OUTPUTS: u32 = 100;
/// Outputs are shown while all together are no more, as JSON: what one output may have.
const SHOWN_BYTES: usize = 1 << 20;

/// Room for what is shown of outputs. The first one is shown however large it is: a job that gives one output
/// shows it.
#[derive(Clone, Debug, Default)]
pub struct ShownOutputs {
    bytes: usize,
}

impl ShownOutputs {
    /// Whether this one is shown beside those before it.
    pub fn has_room_for(&mut self, output: &Value) -> bool {
        let size = json_bytes(output);
        let fits = self.bytes == 0 || self.bytes.saturating_add(size) <= SHOWN_BYTES;
        if fits {
            self.bytes = self.bytes.saturating_add(size);
        }
        fits
    }
}

/// How long a value is as JSON.
pub fn json_bytes(value: &Value) -> usize {
    struct Count(usize);
    impl std::io::Write for Count {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0 += bytes.len();
            Ok(bytes.len())
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
    let mut count = Count(0);
    // Counting cannot fail, and a value has no keys but texts.
    let _ = serde_json::to_writer(&mut count, value);
    count.0
}

/// Of a job that has ended. Its shape follows the job file, not how many datacenters succeeded.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct JobResult {
    /// Those whose run counts, in the order of the job file; none where the job names none.
    pub datacenters: Vec<String>,
    /// By step. Of a job with datacenters: by step, then by datacenter. A step without `for_each` has its output
    /// there, one with it the list of its items' outputs. What gave no output is not there.
    pub outputs: OrderedMap<Value>,
    /// How many outputs are not shown, by step: of large fan-outs, or because all of them would be too large.
    #[serde(default = "OrderedMap::new", skip_serializing_if = "OrderedMap::is_empty")]
    pub left_out: OrderedMap<u32>,
}

/// A map in the order of the plan.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct OrderedMap<T>(pub Vec<(String, T)>);

impl<T> OrderedMap<T> {
    pub const fn new() -> Self {
        Self(vec![])
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn get(&self, name: &str) -> Option<&T> {
        self.0.iter().find(|(known, _)| known == name).map(|(_, value)| value)
    }
}

impl<T: Serialize> Serialize for OrderedMap<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.0.len()))?;
        for (name, value) in &self.0 {
            map.serialize_entry(name, value)?;
        }
        map.end()
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for OrderedMap<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Entries<T>(PhantomData<T>);
        impl<'de, T: Deserialize<'de>> Visitor<'de> for Entries<T> {
            type Value = OrderedMap<T>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a map")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut entries = Vec::new();
                while let Some(entry) = map.next_entry()? {
                    entries.push(entry);
                }
                Ok(OrderedMap(entries))
            }
        }
        deserializer.deserialize_map(Entries(PhantomData))
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
            outputs: OrderedMap(vec![]),
            left_out: OrderedMap(vec![]),
        };
        let mut shown = ShownOutputs::default();
        for (step, draft) in self.plan.steps().iter().enumerate() {
            let step = step as u32;
            let mut by_datacenter = serde_json::Map::new();
            let mut only = None;
            let mut left_out = 0;
            for &run in &counted {
                let (output, more) = self.shown_output(run, step, &mut shown);
                left_out += more;
                match (output, datacenter(run)) {
                    (None, _) => {}
                    (Some(output), Some(name)) => drop(by_datacenter.insert(name, output)),
                    (output, None) => only = output,
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

    /// What a step gave in a run, as far as there is room for it, and how many outputs are not in it.
    fn shown_output(&self, run: u32, step: u32, shown: &mut ShownOutputs) -> (Option<Value>, u32) {
        let Some(state) = self.step_run(run, step).filter(|state| !state.outputs.is_empty()) else {
            return (None, 0);
        };
        if self.plan.step(step).for_each == ForEach::Once {
            let Some(output) = state.outputs.get(&0) else { return (None, 0) };
            return if shown.has_room_for(output) { (Some(output.clone()), 0) } else { (None, 1) };
        }
        // A list is shown from its beginning, so that its places are those of the items.
        let mut outputs = vec![];
        for index in 0..state.items.min(MOST_OUTPUTS) {
            let output = state.outputs.get(&index);
            if output.is_some_and(|output| !shown.has_room_for(output)) {
                break;
            }
            outputs.push(output.cloned().unwrap_or(Value::Null));
        }
        let left_out = state.items - outputs.len() as u32;
        (Some(outputs).filter(|outputs| !outputs.is_empty()).map(Value::Array), left_out)
    }
}
