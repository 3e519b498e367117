//! Web services as steps, with the real program: a service of the test's own on loopback misbehaves on
//! purpose, and keeps what it was sent.
//!
//! What is tested is what a user sees, and what the service sees.

#[path = "../common/mod.rs"]
mod common;
#[path = "../e2e"]
#[allow(dead_code, unused_imports, reason = "the other binary uses the rest")]
mod e2e {
    pub(crate) mod harness;
    pub(crate) mod rest;
}
#[path = "../helpers/mod.rs"]
mod helpers;

mod argyll;
mod backup;
mod guard;
mod items;
mod later;
mod odd;
mod outage;
mod secrets;
mod served;
mod service;
mod signed;
mod told;
mod undone;

use serde_json::Value;

/// A job with one step, `call`. `rest`: its keys besides `http`, one for each line.
fn job(http: &str, rest: &[&str]) -> String {
    let http = format!("http: {{ {http} }}");
    let keys = [&[http.as_str()], rest].concat().join("\n    ");
    format!("name: services\nsteps:\n  call:\n    {keys}\n")
}

/// The events of that name.
fn named<'a>(events: &'a [Value], name: &str) -> Vec<&'a Value> {
    events.iter().filter(|event| event["event"] == name).collect()
}
