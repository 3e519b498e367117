//! What pages show.

use serde_json::{Value, json};
use steadfast_api::ItemState;
use steadfast_core::event::CompletionReason;
use steadfast_core::verdict::StopReason;

use super::super::actions::LAST_EXACT;
use super::status::item;
use super::{count, counts, flag, list, object, or_null, reference, roles, text, texts};

pub(super) fn views() -> Vec<(&'static str, Value)> {
    vec![
        ("Me", me()),
        ("JobsChanged", jobs_changed()),
        ("ItemsPage", items_page()),
        ("ItemOfStep", item_of_step()),
        ("ItemName", item_name()),
        ("Accounts", accounts()),
        ("Decision", decision()),
        ("StoredPlan", stored_plan()),
        ("StoredStep", stored_step()),
        ("BudgetUse", budget_use()),
        ("WhatIf", what_if()),
        ("WhatIfAnswer", what_if_answer()),
        ("JudgedVerdict", judged_verdict()),
        ("Overview", overview()),
        ("Actions", actions()),
        ("ActionsAnswer", actions_answer()),
    ]
}

pub(crate) fn item_states() -> Value {
    json!({"type": "string", "enum": ItemState::ALL.map(ItemState::name)})
}

/// Why items are given up, and why jobs end.
pub(crate) fn end_reasons() -> Value {
    let stops = StopReason::ALL.iter().map(|reason| reason.name());
    let mut all: Vec<&str> =
        stops.chain(CompletionReason::ALL.iter().map(|reason| reason.name())).collect();
    all.sort_unstable();
    all.dedup();
    json!({"type": "string", "enum": all})
}

fn me() -> Value {
    let may = object(&[("read", flag()), ("submit", flag()), ("admin", flag())]);
    let server = object(&[
        ("version", text()),
        ("store", json!({"type": "string", "enum": ["sqlite", "postgres"]})),
        ("now_ms", count()),
    ]);
    object(&[
        ("name", or_null(text())),
        ("auth", json!({"type": "string", "enum": ["required", "none"]})),
        ("scopes", list(&text())),
        ("may", may),
        ("server", server),
    ])
}

fn jobs_changed() -> Value {
    object(&[
        ("ids", list(&super::id())),
        ("more", flag()),
        ("counts", reference("JobCounts")),
        ("as_of", text()),
    ])
}

fn items_page() -> Value {
    object(&[
        ("step", text()),
        ("datacenter", or_null(text())),
        ("total", or_null(count())),
        ("counts", counts()),
        ("items", list(&reference("ItemOfStep"))),
        ("next", or_null(count())),
    ])
}

fn item_of_step() -> Value {
    let mut item = item();
    if let Some(required) = item["required"].as_array_mut() {
        required.push(json!("deferrals"));
    }
    item["properties"]["deferrals"] = count();
    item["properties"]["attempts_left_out"] = json!({
        "type": "boolean",
        "description": "The attempts of an item beyond the first hundred are not here, but for one that runs. \
                        `GET /v1/jobs/{id}/attempts` has them all.",
    });
    item
}

fn item_name() -> Value {
    let mut name = object(&[
        ("name", text()),
        ("datacenter", or_null(text())),
        ("step", text()),
        ("role", roles()),
        ("item", count()),
    ]);
    name["properties"]["value"] = json!({"description": "The element of `for_each`."});
    name
}

fn accounts() -> Value {
    let limit = || or_null(count());
    object(&[
        ("failures", count()),
        ("max_attempts", limit()),
        ("preemptions", count()),
        ("max_preemptions", limit()),
        ("deferrals", count()),
        ("max_deferrals", limit()),
        ("delay_spent_ms", count()),
        ("downtime_ms", count()),
        ("delay_budget_ms", limit()),
        ("window_ms", limit()),
        ("job_retries", count()),
        ("job_budget", limit()),
        ("step_retries", count()),
        ("step_budget", limit()),
    ])
}

fn decision() -> Value {
    let verdict = json!({"type": "string", "enum": ["complete", "retry", "stop"]});
    let mut decision = object(&[("verdict", verdict)]);
    decision["properties"]["cause"] =
        json!({"type": "string", "enum": ["failure", "preemption", "deferral"]});
    decision["properties"]["delay_ms"] = count();
    decision["properties"]["due_at_ms"] = count();
    decision["properties"]["reason"] = text();
    decision
}

fn stored_plan() -> Value {
    let job = object(&[
        ("name", text()),
        ("labels", texts()),
        ("priority", json!({"type": "integer"})),
        ("timeout_ms", or_null(count())),
        ("retry_budget", or_null(json!({"type": "object"}))),
        ("best_effort", or_null(json!({"type": "object"}))),
        ("retries_at_most", or_null(count())),
    ]);
    let file = object(&[("text", text()), ("reconstructed", flag())]);
    object(&[
        ("job", job),
        ("steps", json!({"type": "object", "additionalProperties": reference("StoredStep")})),
        ("goals", list(&text())),
        ("datacenters", or_null(list(&text()))),
        ("file", or_null(file)),
    ])
}

fn stored_step() -> Value {
    let value = object(&[
        ("value", json!({"description": "Durations in milliseconds; null is none or unlimited."})),
        (
            "source",
            json!({"type": "string", "description": "Who gave it: `default`, `operator`, `job`, `step`, or the dialect that it was written in."}),
        ),
    ]);
    let any = || or_null(json!({"type": "object"}));
    object(&[
        ("needs", list(&text())),
        ("goal", flag()),
        ("action", json!({"type": "string", "enum": ["run", "argv", "http", "call"]})),
        ("policy", json!({"type": "object", "additionalProperties": value})),
        ("for_each", any()),
        ("items", or_null(count())),
        ("parallelism", or_null(count())),
        ("max_failed", json!({"type": "object"})),
        ("timeout_ms", or_null(count())),
        ("heartbeat_ms", or_null(count())),
        ("scheduling_timeout_ms", or_null(count())),
        ("labels", texts()),
        ("resources", json!({"type": "object"})),
        ("on_failure", any()),
        ("compensate", or_null(text())),
        ("delays_ms", list(&count())),
        ("binding_limit", text()),
        ("jitter", any()),
        ("delay_total_ms", or_null(count())),
        ("worst_case_ms", or_null(count())),
    ])
}

fn budget_use() -> Value {
    let used = || vec![("used", count()), ("limit", or_null(count()))];
    let mut of_step = vec![("step", text())];
    of_step.extend(used());
    let draw = object(&[
        ("seq", count()),
        ("at_ms", count()),
        ("item", reference("ItemName")),
        ("attempt", count()),
        ("cause", text()),
        ("job_retries_before", count()),
        ("job_retries_after", count()),
        ("step_retries_after", count()),
    ]);
    object(&[
        ("total", object(&used())),
        ("per_step", list(&object(&of_step))),
        ("draws", list(&draw)),
        ("left_out", count()),
    ])
}

fn what_if() -> Value {
    json!({
        "type": "object",
        "additionalProperties": false,
        "required": ["with"],
        "properties": {
            "step": {
                "type": ["string", "null"],
                "description": "Only this step has the other policy, named as in explanations; default: all.",
            },
            "with": {
                "type": "object",
                "description": "Keys of a `retry` block, written as in a job file, and `retry_budget`. What is left out stays as it was.",
                "propertyNames": {"enum": steadfast_jobfile::KEYS.iter().copied().chain(["retry_budget"]).collect::<Vec<_>>()},
            },
        },
    })
}

fn what_if_answer() -> Value {
    let key = object(&[("from", json!({})), ("to", json!({}))]);
    object(&[
        ("policy", json!({"type": "object", "additionalProperties": key})),
        ("verdicts", list(&reference("JudgedVerdict"))),
        ("summary", text()),
        ("differs", count()),
        ("left_out", count()),
    ])
}

fn overview() -> Value {
    let retries = object(&[("failure", count()), ("preemption", count()), ("deferral", count())]);
    let bucket = object(&[
        ("at_ms", count()),
        ("submitted", count()),
        ("succeeded", count()),
        ("failed", count()),
        ("attempts", count()),
        ("failures", count()),
        ("retries", retries),
        ("lateness_p50_ms", or_null(count())),
        ("lateness_p99_ms", or_null(count())),
    ]);
    let failing = object(&[
        ("job_name", text()),
        ("step", text()),
        ("failures", count()),
        ("last_error", text()),
        ("last_job", super::id()),
    ]);
    let budget = object(&[
        ("job", super::id()),
        ("name", text()),
        ("account", json!({"type": "string", "enum": ["job_budget", "step_budget"]})),
        ("used", count()),
        ("limit", count()),
    ]);
    let cell = object(&[("worker", text()), ("failures", count()), ("successes", count())]);
    let row =
        object(&[("job", super::id()), ("step", text()), ("item", text()), ("cells", list(&cell))]);
    object(&[
        ("from_ms", count()),
        ("bucket_ms", count()),
        ("throughput", list(&bucket)),
        ("top_failing_steps", list(&failing)),
        ("budgets_near_end", list(&budget)),
        ("grid", object(&[("workers", list(&text())), ("items", list(&row))])),
        ("queue", list(&object(&[("reason", text()), ("jobs", count())]))),
        ("since_ms", count()),
        ("scope", text()),
    ])
}

/// With `ids` or with `filter`; only a retry has a grant and a key.
fn actions() -> Value {
    let states = json!({"oneOf": [super::job_states(), {"type": "array", "minItems": 1, "items": super::job_states()}]});
    let moment = json!({"type": "integer", "minimum": 0, "maximum": LAST_EXACT});
    let filter = json!({
        "type": "object",
        "additionalProperties": false,
        "minProperties": 1,
        "description": "As the list of jobs takes them. At least one.",
        "properties": {
            "state": states,
            "name": text(),
            "label": {"type": "string", "pattern": "^[^=]+="},
            "text": text(),
            "since_ms": moment,
            "until_ms": moment,
            "reason": end_reasons(),
        },
    });
    let ids = json!({"type": "array", "maxItems": 500, "items": text()});
    let cursor = json!({"type": ["string", "null"], "pattern": "^[0-9]{1,18}$", "description": "The `next` of the answer before."});
    let of_all = || {
        json!({
            "reason": super::reason(),
            "dry_run": {"type": "boolean", "default": false, "description": "Say what would be done."},
        })
    };
    let one = |names: &[&str], which: &[(&str, &Value)], is_retry: bool| {
        let mut properties = of_all();
        properties["action"] = json!({"type": "string", "enum": names});
        for (name, value) in which {
            properties[*name] = (*value).clone();
        }
        if is_retry {
            properties["grant"] = json!({
                "type": ["integer", "null"], "minimum": 0, "maximum": u32::MAX,
                "description": "So many more attempts and so much more budget.",
            });
            properties["idempotency_key"] = json!({
                "type": ["string", "null"],
                "description": "Each job's is this, a slash and its id, so that the same may be sent again.",
            });
        }
        json!({
            "type": "object",
            "additionalProperties": false,
            "required": ["action", which[0].0],
            "properties": properties,
        })
    };
    let (others, retry): (&[&str], &[&str]) = (&["cancel", "pause", "resume"], &["retry"]);
    let (by_id, found) = ([("ids", &ids)], [("filter", &filter), ("cursor", &cursor)]);
    json!({ "oneOf": [
        one(others, &by_id, false), one(others, &found, false),
        one(retry, &by_id, true), one(retry, &found, true),
    ]})
}

fn actions_answer() -> Value {
    let mut result = object(&[
        ("id", text()),
        ("name", or_null(text())),
        ("state", or_null(super::job_states())),
        ("outcome", json!({"type": "string", "enum": ["ok", "would", "refused"]})),
    ]);
    result["properties"]["new_id"] = super::id();
    result["properties"]["problem"] = reference("Problem");
    object(&[
        ("matched", count()),
        ("more", flag()),
        ("next", or_null(text())),
        ("results", list(&result)),
    ])
}

fn judged_verdict() -> Value {
    object(&[
        ("seq", count()),
        ("at_ms", count()),
        ("item", reference("ItemName")),
        ("attempt", count()),
        ("outcome", or_null(text())),
        ("error", or_null(text())),
        ("recorded", reference("Decision")),
        ("judged", or_null(reference("Decision"))),
        ("differs", flag()),
        ("recorded_accounts", reference("Accounts")),
        ("judged_accounts", or_null(reference("Accounts"))),
        ("note", or_null(text())),
    ])
}
