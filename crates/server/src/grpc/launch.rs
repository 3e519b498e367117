//! `LaunchJob`: the request as Fluster's job, and as bytes that are the same for the same request.

use std::collections::BTreeMap;

use prost::Message as _;
use steadfast_api::proto;
use steadfast_jobfile::fluster::{Entrypoint, FlusterJob, FlusterRetry};

use crate::commands::{self, AttachedFile};

/// Of everything but the idempotency key, which is taken out before. Maps have no order on the wire, and
/// get one here.
pub(super) fn digest(request: &proto::LaunchJobRequest) -> String {
    let mut rest = request.clone();
    let labels = std::mem::take(&mut rest.labels);
    let env = rest.environment.as_mut().map(|around| std::mem::take(&mut around.env_vars));
    let env = env.unwrap_or_default();
    let rest = rest.encode_to_vec();
    let pairs = |map: &BTreeMap<String, String>| {
        map.iter().flat_map(|(name, value)| [name.clone(), value.clone()]).collect::<Vec<String>>()
    };
    let (labels, env) = (pairs(&labels), pairs(&env));
    // So that no label can pass for a variable.
    let count = (labels.len() as u64).to_le_bytes();
    let texts = labels.iter().chain(&env).map(String::as_bytes);
    commands::digest([b"launch".as_slice(), &rest, &count].into_iter().chain(texts))
}

/// The job, and what comes with it.
pub(super) fn job(request: proto::LaunchJobRequest) -> (FlusterJob, Vec<AttachedFile>) {
    let files: Vec<AttachedFile> = request.files.into_iter().map(attached).collect();
    let resources = request.resources.unwrap_or_default();
    let retry = request.retry.unwrap_or_default();
    let kind = request.entrypoint.and_then(|entrypoint| entrypoint.kind);
    let job = FlusterJob {
        name: request.name,
        entrypoint: kind.map(|kind| match kind {
            proto::entrypoint::Kind::Command(command) => Entrypoint::Argv(command.argv),
            proto::entrypoint::Kind::Script(script) => Entrypoint::Script(script),
        }),
        env: request.environment.unwrap_or_default().env_vars,
        cpu: resources.cpu,
        memory: resources.memory,
        ports: request.ports,
        labels: request.labels,
        scheduling_timeout_seconds: request.scheduling_timeout_seconds,
        timeout_ms: request.timeout_ms,
        files: files.iter().map(|file| file.path.clone()).collect(),
        retry: FlusterRetry {
            max_retries_failure: retry.max_retries_failure,
            max_retries_preemption: retry.max_retries_preemption,
            initial_retry_delay_ms: retry.initial_retry_delay_ms,
            max_retry_delay_ms: retry.max_retry_delay_ms,
            backoff_multiplier: retry.backoff_multiplier,
            retry_on_exit_codes: retry.retry_on_exit_codes,
            no_retry_on_exit_codes: retry.no_retry_on_exit_codes,
        },
    };
    (job, files)
}

pub(super) fn attached(file: proto::AttachedFile) -> AttachedFile {
    let proto::AttachedFile { path, content, executable } = file;
    AttachedFile { path, content, executable }
}
