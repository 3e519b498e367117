//! The shapes of bodies, for the document. What a job file may hold comes from the table that reads it.

mod status;
mod views;

use serde_json::{Map, Value, json};
use steadfast_api::ShownState;
use steadfast_core::event::LONGEST_REASON;

use status::{attempt, item, job_status, run, step};
pub(super) use views::{end_reasons, item_states};

/// All schemas that the routes name.
pub(super) fn schemas() -> Map<String, Value> {
    let mut all = job_file();
    let more = [
        ("Submission", submission()),
        ("ManyJobs", list(&one_of_many())),
        ("ManyAnswers", list(&json!({"oneOf": [reference("Created"), reference("Problem")]}))),
        ("Created", created()),
        ("Unconfirmed", object(&[("id", id()), ("code", text()), ("detail", text())])),
        ("Warning", warning()),
        ("Command", command()),
        ("Again", again()),
        ("JobsPage", page("jobs", &reference("JobRow"))),
        ("JobRow", job_row()),
        ("JobCounts", object(&[("by_state", counts()), ("open", count())])),
        ("JobStatus", job_status()),
        ("Run", run()),
        ("Step", step()),
        ("Item", item()),
        ("Attempt", object(&attempt())),
        ("EventsPage", events_page()),
        ("Event", event()),
        ("Explanation", explanation()),
        ("AttemptsPage", page("attempts", &reference("AttemptOfJob"))),
        ("AttemptOfJob", attempt_of_job()),
        ("OutputsPage", page("outputs", &reference("Output"))),
        ("Output", output()),
        ("ReadinessPage", readiness_page()),
        ("Readiness", readiness()),
        ("LogsPage", page("logs", &reference("Log"))),
        ("Log", log()),
        ("LogTimes", object(&[("times", list(&log_time()))])),
        ("Callback", callback()),
        ("CallbackTaken", object(&[("counted", flag())])),
        ("Workers", object(&[("workers", list(&reference("Worker")))])),
        ("Worker", worker()),
        ("Problem", problem()),
    ];
    all.extend(more.into_iter().chain(views::views()).map(|(name, it)| (name.to_owned(), it)));
    all
}

pub(super) fn job_states() -> Value {
    let all: Vec<&str> = ShownState::all().map(ShownState::name).collect();
    json!({"type": "string", "enum": all})
}

pub(super) const fn problem_title(status: u16) -> &'static str {
    match status {
        400 => "Something in the request is not valid.",
        401 => "The token or the signature is missing or not good, or not any more.",
        403 => {
            "The token may not do this, or the request names another server or comes from another's page."
        }
        404 => "There is no such thing.",
        409 => "Not possible as things are now.",
        413 => "The body is too large.",
        415 => "The content type is not accepted here.",
        429 => "Too often, or too much of earlier answers is unread; try again later.",
        503 => "The server cannot take it now; try again.",
        507 => "The server's disk is full.",
        _ => "Something went wrong in the server.",
    }
}

/// What a request shows where the server wants to know who asks.
pub(super) fn token() -> Value {
    json!({
        "type": "http", "scheme": "bearer",
        "description": "As `steadfast token create` printed it. A server that was started with `--auth none` wants none.",
    })
}

/// The file's schema, with its definitions where a document like this has them.
fn job_file() -> Map<String, Value> {
    let mut schema = moved(steadfast_jobfile::schema());
    let definitions = match schema.as_object_mut().and_then(|schema| {
        schema.remove("$schema");
        schema.remove("$defs")
    }) {
        Some(Value::Object(definitions)) => definitions,
        _ => Map::new(),
    };
    let definitions =
        definitions.into_iter().map(|(name, value)| (format!("JobFile_{name}"), value));
    std::iter::once(("JobFile".to_owned(), schema)).chain(definitions).collect()
}

fn moved(value: Value) -> Value {
    match value {
        Value::Object(map) => {
            let entries = map.into_iter().map(|(key, value)| {
                let name = value.as_str().and_then(|text| text.strip_prefix("#/$defs/"));
                match name {
                    Some(name) => (key, reference(&format!("JobFile_{name}"))["$ref"].take()),
                    None => (key, moved(value)),
                }
            });
            entries.collect()
        }
        Value::Array(list) => list.into_iter().map(moved).collect(),
        other => other,
    }
}

fn reference(name: &str) -> Value {
    json!({ "$ref": format!("#/components/schemas/{name}") })
}

/// Everything in it is always there.
/// `job`: how it ended, for who waited.
fn created() -> Value {
    let mut created = object(&[("id", id()), ("warnings", list(&reference("Warning")))]);
    created["properties"]["job"] = reference("JobStatus");
    created
}

fn object(properties: &[(&str, Value)]) -> Value {
    let names: Vec<&str> = properties.iter().map(|(name, _)| *name).collect();
    let properties: Map<String, Value> =
        properties.iter().map(|(name, value)| ((*name).to_owned(), value.clone())).collect();
    json!({"type": "object", "required": names, "properties": properties})
}

fn list(items: &Value) -> Value {
    json!({"type": "array", "items": items})
}

fn or_null(mut value: Value) -> Value {
    match value.get("type") {
        Some(kind) => {
            value["type"] = json!([kind, "null"]);
            value
        }
        None => json!({"anyOf": [value, {"type": "null"}]}),
    }
}

fn page(name: &str, items: &Value) -> Value {
    object(&[(name, list(items)), ("next", or_null(text()))])
}

fn text() -> Value {
    json!({"type": "string"})
}

fn id() -> Value {
    json!({"type": "string", "pattern": "^[0-9a-z]{26}$"})
}

fn count() -> Value {
    json!({"type": "integer", "minimum": 0})
}

fn flag() -> Value {
    json!({"type": "boolean"})
}

fn counts() -> Value {
    json!({"type": "object", "additionalProperties": count()})
}

fn texts() -> Value {
    json!({"type": "object", "additionalProperties": {"type": "string"}})
}

/// What is wrong with its job is told in the answer of that job, not of the request.
fn one_of_many() -> Value {
    json!({
        "type": "object",
        "additionalProperties": false,
        "required": ["job"],
        "properties": {
            "job": {"description": "A job file, as JSON."},
            "idempotency_key": {"type": ["string", "null"]},
        },
    })
}

fn submission() -> Value {
    let base64 = json!({
        "type": "string", "contentEncoding": "base64",
        "pattern": "^([A-Za-z0-9+/]{4})*([A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?$",
    });
    json!({
        "type": "object",
        "additionalProperties": false,
        "required": ["file"],
        "properties": {
            "file": {"type": "string", "description": "The job file, YAML or JSON."},
            "files": {
                "type": "array",
                "description": "What `files` in it names.",
                "items": {
                    "type": "object",
                    "additionalProperties": false,
                    "required": ["path", "content_base64"],
                    "properties": {
                        "path": {"type": "string", "description": "Relative, without `..`."},
                        "content_base64": base64,
                        "executable": {"type": "boolean", "default": false},
                    },
                },
            },
        },
    })
}

fn again() -> Value {
    json!({
        "type": "object",
        "additionalProperties": false,
        "properties": {
            "from": {
                "type": ["string", "null"],
                "description": "That step and all that need it run again even if they succeeded.",
            },
            "grant": {
                "type": ["integer", "null"], "minimum": 0, "maximum": u32::MAX,
                "description": "So many more attempts and so much more budget.",
            },
            "reason": reason(),
        },
    })
}

fn reason() -> Value {
    json!({
        "type": ["string", "null"], "minLength": 1, "maxLength": LONGEST_REASON, "pattern": r"\S",
        "description": "Why, for whoever reads the job's history.",
    })
}

fn command() -> Value {
    json!({
        "type": "object",
        "additionalProperties": false,
        "properties": {"reason": reason()},
    })
}

fn warning() -> Value {
    object(&[
        ("code", json!({"type": "string", "description": "Stable, for programs."})),
        ("path", text()),
        ("line", count()),
        ("message", text()),
    ])
}

fn job_row() -> Value {
    let mut states = job_states();
    if let Some(names) = states["enum"].as_array_mut() {
        names.push(json!("stuck"));
    }
    let mut row = object(&[
        ("id", id()),
        ("name", text()),
        ("state", states),
        ("submitted_at_ms", count()),
        ("finished_at_ms", or_null(count())),
        ("labels", texts()),
        ("retried_from", or_null(id())),
        ("stop_reason", or_null(text())),
    ]);
    // What cannot be read of one that is stuck.
    row["properties"]["reason"] = text();
    row
}

fn output() -> Value {
    object(&[
        ("datacenter", or_null(text())),
        ("step", text()),
        ("item", count()),
        ("output", json!({"description": "What the item wrote as its output."})),
    ])
}

fn readiness_page() -> Value {
    object(&[
        ("job", id()),
        ("at_ms", count()),
        ("readiness", list(&reference("Readiness"))),
        ("next", or_null(text())),
    ])
}

fn readiness() -> Value {
    object(&[
        ("name", text()),
        ("datacenter", or_null(text())),
        ("step", text()),
        ("role", roles()),
        ("item", count()),
        ("items", or_null(count())),
        ("dependencies_satisfied", flag()),
        ("attempts", or_null(count())),
        ("failures", or_null(count())),
        ("max_attempts", or_null(count())),
        ("retryable", flag()),
        ("eligible", flag()),
        ("next_retry_at_ms", or_null(count())),
        ("ready", flag()),
        ("reason", or_null(text())),
    ])
}

fn roles() -> Value {
    json!({"type": "string", "enum": ["item", "fallback", "compensation"]})
}

fn attempt_of_job() -> Value {
    let mut properties = vec![
        ("datacenter", or_null(text())),
        ("step", text()),
        ("role", roles()),
        ("item", count()),
    ];
    properties.extend(attempt());
    object(&properties)
}

fn events_page() -> Value {
    object(&[("events", list(&reference("Event"))), ("next", or_null(count()))])
}

fn event() -> Value {
    let mut event = object(&[
        ("seq", json!({"type": "integer", "minimum": 1})),
        ("at", count()),
        ("event", text()),
    ]);
    event["description"] = json!("Beside these, what the kind of event has to tell.");
    event
}

fn explanation() -> Value {
    let sentence = |more: &[(&str, Value)]| {
        let mut properties = vec![("name", text()), ("sentence", text())];
        properties.extend_from_slice(more);
        object(&properties)
    };
    let job = sentence(&[
        ("id", id()),
        ("state", job_states()),
        ("reason", or_null(text())),
        ("until_ms", or_null(count())),
    ]);
    let step = sentence(&[
        ("step", text()),
        ("state", text()),
        ("datacenter", or_null(text())),
        ("rescued", flag()),
    ]);
    let any = || json!({"type": "object"});
    object(&[
        ("job", job),
        ("steps", list(&step)),
        ("waiting", list(&any())),
        ("verdicts", list(&any())),
        ("left_out", object(&[("steps", count()), ("waiting", count()), ("verdicts", count())])),
    ])
}

fn log() -> Value {
    object(&[
        ("step", text()),
        ("name", text()),
        ("datacenter", or_null(text())),
        ("role", roles()),
        ("item", count()),
        ("attempt", count()),
        ("size", count()),
        ("arriving", flag()),
    ])
}

fn log_time() -> Value {
    object(&[("offset", count()), ("at_ms", count())])
}

fn callback() -> Value {
    json!({
        "type": "object",
        "description": "With `success` the attempt has ended; without it, `progress` says how far it is.",
        "properties": {
            "success": flag(),
            "output": {"description": "Of a success: what later steps read."},
            "permanent": {"type": "boolean", "description": "Of a failure: trying again cannot help."},
            "defer": {"type": "string", "description": "Of a failure: try again after so long, as `30s`; it is not charged as a failure."},
            "error": {"description": "Of a failure: a text, or `type` and `message`."},
            "progress": {"description": "Anything, at most 64 KiB."},
        },
        "anyOf": [{"required": ["success"]}, {"required": ["progress"]}],
    })
}

fn worker() -> Value {
    object(&[
        ("name", text()),
        ("datacenter", or_null(text())),
        ("state", text()),
        ("why", or_null(text())),
        ("slots", count()),
        ("credits", count()),
        ("busy", count()),
        ("cpu", or_null(json!({ "type": "number", "minimum": 0 }))),
        ("cpu_used", json!({ "type": "number", "minimum": 0 })),
        ("memory_bytes", or_null(count())),
        ("memory_used", count()),
        ("lease_left_ms", count()),
        ("labels", texts()),
        ("functions", list(&text())),
    ])
}

fn problem() -> Value {
    let mistake = object(&[
        ("code", text()),
        ("path", text()),
        ("line", count()),
        ("column", count()),
        ("message", text()),
        ("help", or_null(text())),
    ]);
    let mut problem = object(&[
        ("type", text()),
        ("title", text()),
        ("status", count()),
        ("code", json!({"type": "string", "description": "Stable, for programs."})),
        ("detail", text()),
    ]);
    problem["properties"]["errors"] = list(&mistake);
    problem["properties"]["missing"] = list(&text());
    problem
}
