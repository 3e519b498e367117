//! The tables of keys as a JSON Schema, for editors. It says shapes; what a shape cannot say, such as
//! which steps exist, only [`crate::load`] does.

use serde_json::{Map, Value, json};

use crate::keys::{self, Shape, Table};

/// Draft 2020-12. `docs/job.schema.json` holds what this gives.
pub fn schema() -> Value {
    let mut schema = Map::new();
    schema.insert("$schema".into(), json!("https://json-schema.org/draft/2020-12/schema"));
    schema.insert("title".into(), json!("Steadfast job file"));
    if let Value::Object(job) = block(&keys::JOB) {
        schema.extend(job);
    }
    let mut definitions = Map::new();
    for (name, table) in SHARED {
        definitions.insert((*name).into(), block(table));
    }
    definitions.insert("duration".into(), duration());
    schema.insert("$defs".into(), Value::Object(definitions));
    Value::Object(schema)
}

/// Blocks that stand in more than one place, or are long.
const SHARED: &[(&str, &Table)] =
    &[("step", &keys::STEP), ("retry", &keys::RETRY), ("rule", &keys::RULE), ("http", &keys::HTTP)];

fn duration() -> Value {
    // One optional part for each unit, from large to small; `m` must not be the beginning of `ms`.
    let part = |names: &[&str]| format!(r"([0-9]+\s*({})(?![A-Za-z])\s*)?", names.join("|"));
    let parts = steadfast_core::duration::unit_names().map(part).collect::<Vec<_>>().concat();
    json!({
        "type": "string",
        "description": "such as 500ms, 30s, 5m, 1h30m, or as humantime writes it: 1h 30m, 90sec, 2 minutes",
        "pattern": format!(r"^\s*(?=[0-9]){parts}$"),
    })
}

fn block(table: &'static Table) -> Value {
    let mut properties = Map::new();
    for key in table.keys {
        let mut value = shape(&key.shape);
        if let Value::Object(value) = &mut value {
            value.insert("description".into(), json!(key.doc));
            if key.name == "labels" {
                value.insert("maxProperties".into(), json!(steadfast_core::plan::MAX_LABELS));
            }
            // What must be there is not empty.
            if matches!(key.shape, Shape::MapOf(..)) && table.requires(key.name) {
                value.insert("minProperties".into(), json!(1));
            }
        }
        properties.insert(key.name.into(), value);
    }
    let mut block = Map::new();
    block.insert("type".into(), json!("object"));
    block.insert("additionalProperties".into(), json!(false));
    if !table.required.is_empty() {
        let required = table.required.iter().map(|(key, _)| json!(key));
        block.insert("required".into(), required.collect());
    }
    if !table.exactly_one.is_empty() {
        let one = table.exactly_one.iter().map(|key| json!({ "required": [key] }));
        block.insert("oneOf".into(), one.collect());
    }
    if !table.exclusive.is_empty() {
        let never = table.exclusive.iter().map(|(a, b)| json!({ "not": { "required": [a, b] } }));
        block.insert("allOf".into(), never.collect());
    }
    if table.names().any(|name| name == "input") {
        block.insert("dependentRequired".into(), json!({ "input": ["call"] }));
    }
    block.insert("properties".into(), Value::Object(properties));
    Value::Object(block)
}

fn shape(shape_of: &Shape) -> Value {
    let pattern = |pattern: &str| json!({ "type": "string", "pattern": pattern });
    match shape_of {
        Shape::Any => json!({}),
        Shape::Text => json!({ "type": "string" }),
        Shape::Name => pattern("^[A-Za-z0-9_-]{1,100}$"),
        Shape::FunctionName => pattern("^[A-Za-z0-9_.:-]{1,100}$"),
        Shape::EnvName => pattern("^[A-Za-z_][A-Za-z0-9_]*$"),
        Shape::JobName => json!({ "type": "string", "minLength": 1, "maxLength": 200 }),
        Shape::Flag => json!({ "type": "boolean" }),
        Shape::True => json!({ "const": true }),
        Shape::Duration => json!({ "$ref": "#/$defs/duration" }),
        Shape::Size => pattern("^[0-9]+([kKmMgGtT]|[kKmMgGtT][iI][bB])$"),
        Shape::NotBefore => json!({ "type": "string", "minLength": 1 }),
        Shape::Url => pattern(r"^(https?://[^/]|\{\{)"),
        Shape::File => pattern(r"^[^/~\\][^\\]*$"),
        Shape::Percent => pattern("^[0-9]+([.][0-9]+)?%$"),
        Shape::Count(least) => json!({ "type": "integer", "minimum": least }),
        Shape::Range => {
            json!({ "type": "integer", "minimum": 0, "maximum": steadfast_core::plan::MAX_ITEMS })
        }
        Shape::Number(least, most) if most.is_finite() => {
            json!({ "type": "number", "minimum": least, "maximum": most })
        }
        Shape::Number(least, _) => json!({ "type": "number", "minimum": least }),
        Shape::Limit(least) => json!({
            "oneOf": [{ "type": "integer", "minimum": least }, { "const": "unlimited" }]
        }),
        Shape::Word(words) => json!({ "enum": words }),
        Shape::ListOf(items) => json!({ "type": "array", "items": shape(items) }),
        Shape::MapOf(names, values) => json!({
            "type": "object",
            "propertyNames": shape(names),
            "additionalProperties": shape(values),
        }),
        Shape::Written => json!({ "type": ["string", "number", "boolean"] }),
        Shape::Block(table) => {
            match SHARED.iter().find(|(_, shared)| std::ptr::eq(*shared, *table)) {
                Some((name, _)) => json!({ "$ref": format!("#/$defs/{name}") }),
                None => block(table),
            }
        }
        Shape::OneOf(shapes) => {
            json!({ "oneOf": shapes.iter().map(shape).collect::<Vec<_>>() })
        }
    }
}
