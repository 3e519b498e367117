//! The status of a job, and its parts.

use serde_json::{Value, json};

use super::{count, flag, id, job_states, list, object, or_null, reference, text};

pub(super) fn job_status() -> Value {
    let allowance = || or_null(object(&[("requested", count()), ("effective", count())]));
    let mut budget =
        object(&[("total", allowance()), ("per_step", allowance()), ("used", count())]);
    budget["properties"]["counts"] = json!({"enum": ["failures", "all"]});
    budget["properties"]["ratio"] = json!({"type": "number"});
    let completion = object(&[("reason", text()), ("ratio", json!({"type": "number"}))]);
    let mut status = object(&[
        ("id", id()),
        ("name", text()),
        ("state", job_states()),
        ("submitted_at_ms", count()),
        ("finished_at_ms", or_null(count())),
        ("completion", or_null(completion)),
        ("retried_from", or_null(id())),
        ("retry_budget", or_null(budget)),
        ("runs", list(&reference("Run"))),
    ]);
    let optional = [
        ("best_effort", best_effort()),
        ("cancel_request", request()),
        ("pause_request", request()),
        ("retry_request", request()),
        ("result", result()),
    ];
    for (name, schema) in optional {
        status["properties"][name] = schema;
    }
    status
}

fn best_effort() -> Value {
    let least = object(&[("requested", or_null(count())), ("effective", count())]);
    object(&[
        ("min_datacenters", least),
        ("deadline_ms", count()),
        ("deadline_at_ms", or_null(count())),
        ("grace_ms", count()),
        ("late_results", json!({"type": "string", "enum": ["log_only", "update_result"]})),
    ])
}

fn request() -> Value {
    let mut request =
        object(&[("at_ms", count()), ("by", or_null(text())), ("reason", or_null(text()))]);
    request["description"] = json!("Who asked for it and why, as far as that is known.");
    request
}

fn result() -> Value {
    let outputs = json!({
        "type": "object",
        "description": "By step; of a job with datacenters by step and datacenter. Of a fan-out a list.",
    });
    let mut result = object(&[("datacenters", list(&text())), ("outputs", outputs)]);
    result["description"] = json!("Once the job has ended: what the runs that count gave.");
    result["properties"]["left_out"] = json!({
        "type": "object", "additionalProperties": count(),
        "description": "By step: how many outputs are not in `outputs`, of which 1 MiB and 100 of a fan-out are shown. \
                        `GET /v1/jobs/{id}/outputs` has them all.",
    });
    result
}

pub(super) fn run() -> Value {
    let steps = json!({"type": "object", "additionalProperties": reference("Step")});
    let mut run =
        object(&[("datacenter", or_null(text())), ("state", job_states()), ("steps", steps)]);
    run["properties"]["late"] = json!({
        "type": "boolean", "description": "It ended after the job had. Absent: it did not.",
    });
    run
}

pub(super) fn step() -> Value {
    let counts = json!({"type": "object", "additionalProperties": count()});
    let mut step = object(&[
        ("state", text()),
        ("counts", counts),
        ("retries_used", count()),
        ("items", list(&reference("Item"))),
    ]);
    let skipped = json!({"type": "string", "description": "The step that failed before it."});
    let optional = [
        ("error", text()),
        ("skipped_because", skipped),
        ("fallback", reference("Item")),
        ("compensation", reference("Item")),
    ];
    for (name, schema) in optional {
        step["properties"][name] = schema;
    }
    step
}

pub(super) fn item() -> Value {
    let mut item = object(&[
        ("index", count()),
        ("value", json!({"description": "The element of `for_each`."})),
        ("state", text()),
        ("failures", count()),
        ("preemptions", count()),
        ("delay_spent_ms", count()),
        ("retry_available_at_ms", or_null(count())),
        ("last_error", or_null(text())),
        ("reason", or_null(text())),
        ("output", json!({"description": "What it wrote as its output."})),
        ("attempts", list(&reference("Attempt"))),
    ]);
    let said = json!({"description": "In the words of the attempt."});
    item["properties"]["output_left_out"] = json!({
        "type": "boolean",
        "description": "There is one that is not shown: all outputs of a status have 1 MiB together. \
                        `GET /v1/jobs/{id}/outputs` has them all.",
    });
    item["properties"]["value_left_out"] =
        json!({"type": "boolean", "description": "Likewise of its value."});
    item["properties"]["progress"] =
        object(&[("attempt", count()), ("at_ms", count()), ("said", said)]);
    item
}

pub(super) fn attempt() -> Vec<(&'static str, Value)> {
    vec![
        ("attempt", json!({"type": "integer", "minimum": 1})),
        ("worker", text()),
        ("state", text()),
        ("exit_code", or_null(count())),
        ("signal", or_null(count())),
        ("error", or_null(text())),
        ("started_at_ms", count()),
        ("finished_at_ms", or_null(count())),
        ("is_worker_failure", flag()),
    ]
}
