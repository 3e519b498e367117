//! From what is known of an attempt to a process that can be started: its command, its environment, its
//! ports.
//!
//! Makes no folder and reads no file; how the place is furnished is the caller's to say, because a run on
//! one's own machine and a worker differ in it.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use steadfast_core::event::ItemId;

use crate::{Attempt, Command, ERROR_VARIABLE, Mask, Port, Ports, User, error_beside};

/// The environment variable that tells whose a process is; its value is `JOB.TOKEN`.
pub const MARK: &str = "STEADFAST_ATTEMPT_TOKEN";
/// From SIGTERM to SIGKILL, where nobody says otherwise.
pub const KILL_GRACE: Duration = Duration::from_secs(5);
/// Bytes kept of what an attempt prints.
pub const LOG_CAP: u64 = 64 << 20;
/// Bytes that an attempt may leave in `$STEADFAST_OUTPUT`.
pub const OUTPUT_CAP: u64 = 1 << 20;

/// What is to be run, as the job has it.
#[derive(Clone, Debug)]
pub struct Order<'a> {
    pub job: &'a str,
    pub step: &'a str,
    pub item: ItemId,
    /// From 1.
    pub attempt: u32,
    pub token: u64,
    /// The element of the step's `for_each`.
    pub value: Option<&'a Value>,
    pub datacenter: Option<&'a str>,
    pub command: Command,
    /// Names.
    pub ports: &'a [String],
    pub timeout: Option<Duration>,
}

/// Where it is run.
#[derive(Clone, Debug)]
pub struct Surroundings {
    /// The job's own variables, over what the place gives; ours win.
    pub env: Vec<(String, String)>,
    pub inherit_env: bool,
    /// Set like variables, and taken out of everything that is said of the attempt.
    pub secrets: Vec<(String, String)>,
    pub user: Option<Arc<User>>,
    pub grouped: bool,
    /// The attempt's own.
    pub folder: PathBuf,
    pub cwd: PathBuf,
    pub log: PathBuf,
    pub log_cap: u64,
    pub log_times: bool,
    pub output: PathBuf,
    pub output_cap: u64,
    pub kill_grace: Duration,
}

/// The ports are the attempt's until they are dropped. The error is about them: there is none left.
pub fn prepare(
    order: Order<'_>,
    place: Surroundings,
    ports: &Ports,
) -> io::Result<(Attempt, Vec<Port>)> {
    let Order { job, step, item, attempt, token, .. } = order;
    let value = match order.value {
        Some(Value::String(text)) => text.clone(),
        Some(value) => value.to_string(),
        None => String::new(),
    };
    let mask = Mask::new(place.secrets.iter().map(|(_, value)| value));
    let mut env = place.env;
    env.extend(place.secrets);
    let ours = [
        ("STEADFAST_JOB_ID", job.to_owned()),
        ("STEADFAST_STEP", step.to_owned()),
        ("STEADFAST_ITEM", value),
        ("STEADFAST_ITEM_INDEX", item.index.to_string()),
        ("STEADFAST_ATTEMPT", attempt.to_string()),
        ("STEADFAST_DATACENTER", order.datacenter.unwrap_or_default().to_owned()),
        ("STEADFAST_WORKDIR", place.folder.display().to_string()),
        (ERROR_VARIABLE, error_beside(&place.output).display().to_string()),
        // What programs written for Fluster read; it counts attempts from 0.
        ("FLUSTER_JOB_ID", job.to_owned()),
        ("FLUSTER_ATTEMPT_ID", attempt.saturating_sub(1).to_string()),
    ];
    env.extend(ours.map(|(name, value)| (name.to_owned(), value)));
    let mut taken = Vec::new();
    for name in order.ports {
        let port = ports.take()?;
        let name = name.to_ascii_uppercase().replace('-', "_");
        env.push((format!("STEADFAST_PORT_{name}"), port.number().to_string()));
        taken.push(port);
    }
    let attempt = Attempt {
        command: order.command,
        env,
        inherit_env: place.inherit_env,
        cwd: place.cwd,
        log: place.log,
        log_cap: place.log_cap,
        log_times: place.log_times,
        output: place.output,
        output_cap: place.output_cap,
        timeout: order.timeout,
        kill_grace: place.kill_grace,
        mark: (MARK.to_owned(), format!("{job}.{token}")),
        mask,
        user: place.user,
        grouped: place.grouped,
    };
    Ok((attempt, taken))
}
