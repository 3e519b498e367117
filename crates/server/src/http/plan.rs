//! What a job was accepted to do, as `plan` shows it. The file that it was read from is not stored; what is, is put in its words.

use serde_json::{Map, Value, json};
use steadfast_core::forecast::{forecast, retries_at_most};
use steadfast_core::plan::{Action, ForEach, Plan, Step};
use steadfast_jobfile::{Sources, job_text, policy_view};

pub(super) fn view(plan: &Plan) -> Value {
    let steps: Map<String, Value> = (0..plan.steps().len() as u32)
        .map(|index| (plan.step(index).name.clone(), step(plan, index)))
        .collect();
    let goals: Vec<&str> = plan.goals().iter().map(|goal| &*plan.step(*goal).name).collect();
    let datacenters = Some(plan.datacenters()).filter(|all| !all.is_empty());
    json!({
        "job": {
            "name": plan.name(),
            "labels": plan.labels(),
            "priority": plan.priority(),
            "timeout_ms": plan.timeout_ms(),
            "retry_budget": plan.budget(),
            "best_effort": plan.best_effort(),
            "retries_at_most": retries_at_most(plan),
        },
        "steps": steps,
        "goals": goals,
        "datacenters": datacenters,
        "file": { "text": job_text(plan), "reconstructed": true },
    })
}

fn step(plan: &Plan, index: u32) -> Value {
    let step = plan.step(index);
    let forecast = forecast(plan, index);
    json!({
        "needs": step.needs.iter().map(|&need| &*plan.step(need).name).collect::<Vec<_>>(),
        "goal": step.goal,
        "action": action_name(&step.action),
        "policy": policy(step),
        "for_each": for_each(&step.for_each),
        "items": step.for_each.items(),
        "parallelism": step.parallelism,
        "max_failed": step.max_failed,
        "timeout_ms": step.timeout_ms,
        "heartbeat_ms": step.heartbeat_ms,
        "scheduling_timeout_ms": step.scheduling_timeout_ms,
        "labels": step.labels,
        "resources": step.resources,
        "on_failure": step.on_failure.as_ref().map(|then| json!({
            "action": then.action.as_ref().map(action_name), "then": then.then,
        })),
        "compensate": step.compensate.as_ref().map(action_name),
        "delays_ms": forecast.delays_ms,
        "binding_limit": forecast.binding_limit,
        "jitter": forecast.jitter,
        "delay_total_ms": forecast.delay_total_ms,
        "worst_case_ms": forecast.worst_case_ms,
    })
}

fn policy(step: &Step) -> Map<String, Value> {
    let keys = policy_view(&step.policy, &Sources::default()).into_iter();
    keys.map(|(key, value, default)| {
        let source = step.policy_sources.get(key).map_or(default.name(), |given| given);
        (key.to_owned(), json!({ "value": value, "source": source }))
    })
    .collect()
}

const fn action_name(action: &Action) -> &'static str {
    match action {
        Action::Run(_) => "run",
        Action::Argv(_) => "argv",
        Action::Http(_) => "http",
        Action::Call { .. } => "call",
    }
}

fn for_each(for_each: &ForEach) -> Value {
    match for_each {
        ForEach::Once => Value::Null,
        ForEach::List(values) => json!({ "list": values.len() }),
        ForEach::Range(items) => json!({ "range": items }),
        ForEach::Output { step, path } => json!({ "output_of": step, "path": path }),
    }
}
