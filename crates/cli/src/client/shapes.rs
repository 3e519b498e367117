//! Answers that only this program reads. Those about jobs and workers are `steadfast_api`'s.

use serde::Deserialize;
use serde_json::Value;

#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Created {
    pub(crate) id: String,
    #[serde(default)]
    pub(crate) warnings: Vec<Warning>,
}

/// What the server found odd about a job file.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Warning {
    pub(crate) code: String,
    pub(crate) path: String,
    pub(crate) line: u32,
    pub(crate) message: String,
}

/// Events stay as they are: a newer server may say more than this program knows.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct EventsPage {
    pub(crate) events: Vec<Value>,
    pub(crate) next: Option<u64>,
}
