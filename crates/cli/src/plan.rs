//! `steadfast plan`: what the retries of a job will do.

use std::io::Write;

use serde_json::{Map, Value, json};
use steadfast_core::backoff::Jitter;
use steadfast_core::forecast::{BindingLimit, Forecast, forecast, retries_at_most};
use steadfast_core::plan::{
    Action, AfterFailure, Allowance, BudgetCounts, ForEach, LateResults, Plan, Step,
};
use steadfast_core::time::human_ms;
use steadfast_jobfile::{JobFile, Source, policy_view};

use crate::args::{Output, PlanArgs};
use crate::graph::graph;
use crate::input::Shape;
use crate::style::{Align, BOLD, DIM, GOOD, NOTE, Table, WAIT, paint};
use crate::{Done, Exit, input};

/// Delays that the table of a step shows before it says "and so on".
const SHOWN_DELAYS: usize = 12;

pub(crate) fn run(args: &PlanArgs) -> Done {
    let read = input::job_or(&args.file, args.output, Shape::Validity)?;
    let Some((job, source)) = read else {
        return Ok(Exit::Wrong);
    };
    match args.output {
        Output::Json => input::print_json(&to_json(&job))?,
        Output::Human => {
            anstream::stdout().lock().write_all(to_text(&job).as_bytes())?;
            input::warn(&job.warnings, &source);
        }
    }
    Ok(Exit::Ok)
}

fn to_json(job: &JobFile) -> Value {
    let plan = &job.plan;
    let steps: Map<String, Value> = (0..plan.steps().len())
        .map(|i| {
            let step = &plan.steps()[i];
            let forecast = forecast(plan, i as u32);
            let policy = policy_view(&step.policy, &job.steps[i].policy);
            let policy: Map<String, Value> = policy
                .into_iter()
                .map(|(key, value, source)| {
                    (key.to_owned(), json!({"value": value, "source": source.name()}))
                })
                .collect();
            let value = json!({
                "needs": step.needs.iter().map(|&need| &plan.step(need).name).collect::<Vec<_>>(),
                "policy": policy,
                "delays_ms": forecast.delays_ms,
                "binding_limit": forecast.binding_limit,
                "jitter": forecast.jitter,
                "delay_total_ms": forecast.delay_total_ms,
                "worst_case_ms": forecast.worst_case_ms,
            });
            (step.name.clone(), value)
        })
        .collect();
    json!({
        "valid": true,
        "warnings": job.warnings,
        "job": {
            "name": plan.name(),
            "retry_budget": budget_json(job),
            "best_effort": best_effort_json(job),
            "retries_at_most": retries_at_most(plan),
        },
        "steps": steps,
    })
}

fn budget_json(job: &JobFile) -> Value {
    let Some(budget) = job.plan.budget() else { return Value::Null };
    let share = |share: Option<Allowance>, source: Option<Source>| {
        share.map(|share| {
            json!({
                "requested": share.requested,
                "effective": share.effective,
                "source": source.unwrap_or_default().name(),
            })
        })
    };
    let mut map = Map::new();
    map.insert("total".into(), json!(share(budget.total, job.budget.total)));
    map.insert("per_step".into(), json!(share(budget.per_step, job.budget.per_step)));
    let counts = job.budget.counts.unwrap_or_default().name();
    map.insert("counts".into(), json!({"value": budget.counts, "source": counts}));
    if let Some(ratio) = budget.ratio {
        let source = |source: Option<Source>| source.unwrap_or_default().name();
        map.insert(
            "ratio".into(),
            json!({"value": ratio.ratio, "source": source(job.budget.ratio)}),
        );
        map.insert(
            "floor".into(),
            json!({"value": ratio.floor, "source": source(job.budget.floor)}),
        );
    }
    Value::Object(map)
}

fn best_effort_json(job: &JobFile) -> Value {
    let (Some(best), Some(from)) = (job.plan.best_effort(), job.best_effort) else {
        return Value::Null;
    };
    let part = |value: Value, source: Source| json!({"value": value, "source": source.name()});
    json!({
        "min_datacenters": part(json!(best.min_datacenters), from.min_datacenters),
        "deadline": part(json!(best.deadline_ms), from.deadline),
        "grace": part(json!(best.grace_ms), from.grace),
        "late_results": part(json!(best.late_results), from.late_results),
    })
}

fn to_text(job: &JobFile) -> String {
    let plan = &job.plan;
    let mut text = heading(job);
    if let Some(graph) = graph(plan) {
        text.push('\n');
        text.push_str(&graph);
    }
    // Steps that would read the same are told once.
    let mut told: Vec<(Vec<&str>, String)> = Vec::new();
    for (i, step) in plan.steps().iter().enumerate() {
        let body = step_body(job, i);
        match told.iter_mut().find(|(_, other)| *other == body) {
            Some((names, _)) => names.push(&step.name),
            None => told.push((vec![&step.name], body)),
        }
    }
    for (names, body) in told {
        text.push('\n');
        if let [name] = names.as_slice() {
            let step = plan.find(name).map(|step| plan.step(step));
            let what = step.map(|step| about(plan, step)).unwrap_or_default();
            text.push_str(&format!("{}  {}\n", paint(BOLD, name), paint(DIM, what)));
        } else {
            let shown = names.iter().take(8).copied().collect::<Vec<_>>().join(", ");
            let more = names.len().saturating_sub(8);
            let more = if more > 0 { format!(" and {more} more") } else { String::new() };
            text.push_str(&format!("{}{more}  {}\n", paint(BOLD, shown), paint(DIM, "alike")));
        }
        text.push_str(&body);
    }
    text
}

fn heading(job: &JobFile) -> String {
    let plan = &job.plan;
    let count = |n: usize, one: &str| format!("{n} {one}{}", if n == 1 { "" } else { "s" });
    let goals = plan.goals().iter().map(|&goal| plan.step(goal).name.as_str());
    let mut facts = vec![count(plan.steps().len(), "step")];
    let shown: Vec<&str> = goals.clone().take(5).collect();
    let dots = if goals.count() > 5 { ", …" } else { "" };
    facts.push(format!("goals: {}{dots}", shown.join(", ")));
    if !plan.datacenters().is_empty() {
        facts.push(format!("datacenters: {}", plan.datacenters().join(", ")));
    }
    if let Some(ms) = plan.timeout_ms() {
        facts.push(format!("timeout {}", human_ms(ms)));
    }
    let budget = match plan.budget() {
        None => "no retry budget".to_owned(),
        Some(budget) => {
            let mut parts = vec![];
            if let Some(total) = budget.total {
                parts.push(format!("{} in all", total.effective));
            }
            if let Some(share) = budget.per_step {
                parts.push(format!("{} per step", share.effective));
            }
            if let Some(ratio) = budget.ratio {
                parts.push(format!("{} × items started, at least {}", ratio.ratio, ratio.floor));
            }
            format!("retry budget: {}", parts.join(", "))
        }
    };
    let counts_all = plan.budget().is_some_and(|budget| budget.counts == BudgetCounts::All);
    let losses = if counts_all { "lost workers included" } else { "lost workers aside" };
    let most = match retries_at_most(plan) {
        Some(0) if !counts_all => "no retries".to_owned(),
        Some(most) => format!("at most {} of the whole job, {losses}", count_retries(most)),
        None => "no bound on the retries of the whole job".to_owned(),
    };
    let mut text = format!(
        "{}  {}\n{}\n",
        paint(BOLD, plan.name()),
        paint(DIM, facts.join(" · ")),
        paint(DIM, format!("{budget} · {most}"))
    );
    if let (Some(best), Some(from)) = (plan.best_effort(), job.best_effort) {
        let late = match best.late_results {
            LateResults::LogOnly => "log_only",
            LateResults::UpdateResult => "update_result",
        };
        let facts = [
            ("at least", best.min_datacenters.to_string(), from.min_datacenters),
            ("deadline", human_ms(best.deadline_ms), from.deadline),
            ("grace", human_ms(best.grace_ms), from.grace),
            ("late results", late.to_owned(), from.late_results),
        ];
        let facts = facts.map(|(what, value, from)| format!("{what} {value} ({})", from.name()));
        text.push_str(&format!("{}\n", paint(DIM, format!("best effort: {}", facts.join(" · ")))));
    }
    text
}

fn count_retries(n: u64) -> String {
    if n == 1 { "1 retry".to_owned() } else { format!("{n} retries") }
}

fn what(action: &Action) -> String {
    let short = |text: &str| {
        let line: String = text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
        match line.char_indices().nth(50) {
            Some((end, _)) => format!("{}…", &line[..end]),
            None => line,
        }
    };
    match action {
        Action::Run(command) => format!("run {}", short(command)),
        Action::Argv(argv) => format!("argv {}", short(&argv.join(" "))),
        Action::Http(http) => format!("http {} {}", http.method, short(&http.url)),
        Action::Call { name, .. } => format!("call {name}"),
    }
}

fn about(plan: &Plan, step: &Step) -> String {
    let mut facts = vec![what(&step.action)];
    match &step.for_each {
        ForEach::Once => {}
        ForEach::List(list) => facts.push(format!("for each of {}", list.len())),
        ForEach::Range(count) => facts.push(format!("for each of {count}")),
        ForEach::Output { step, path } => {
            let place = [std::slice::from_ref(step), path].concat().join(".");
            facts.push(format!("for each of {place}"));
        }
    }
    if !step.needs.is_empty() {
        let needs = step.needs.iter().map(|&need| plan.step(need).name.as_str());
        facts.push(format!("after {}", needs.take(5).collect::<Vec<_>>().join(", ")));
    }
    facts.join(" · ")
}

fn step_body(job: &JobFile, index: usize) -> String {
    let step = &job.plan.steps()[index];
    let forecast = forecast(&job.plan, index as u32);
    let jittered = step.policy.delays().jitter() != Jitter::None;
    let mut columns = vec![("attempt", Align::Right), ("waits", Align::Right)];
    if jittered {
        columns.push(("with jitter", Align::Right));
    }
    columns.push(("in all", Align::Right));
    let mut table = Table::new(&columns);
    let blank = |text: &str| (text.to_owned(), DIM);
    let mut first = vec![("1".to_owned(), BOLD), blank("at once")];
    first.resize_with(columns.len(), || blank(""));
    table.row(first);
    let (mut elapsed, mut last) = (0u64, None);
    for (i, &delay) in forecast.delays_ms.iter().take(SHOWN_DELAYS).enumerate() {
        let (shortest, longest) = step.policy.delays().bounds_ms(i as u32 + 1, last);
        last = Some(longest);
        elapsed = elapsed.saturating_add(delay);
        let mut row = vec![((i + 2).to_string(), BOLD), (human_ms(delay), WAIT)];
        if jittered {
            row.push((format!("{} to {}", human_ms(shortest), human_ms(longest)), DIM));
        }
        row.push((human_ms(elapsed), DIM));
        table.row(row);
    }
    let mut text = table.render("  ");
    let hidden = forecast.retries.map(|all| all.saturating_sub(SHOWN_DELAYS as u64));
    match hidden {
        Some(0) => {}
        Some(more) => {
            text.push_str(&format!("{}\n", paint(DIM, format!("  … and {more} more"))));
        }
        None => text.push_str(&format!("{}\n", paint(DIM, "  … and on without end"))),
    }
    text.push_str(&format!("  {}\n", ends(&forecast, step)));
    text.push_str(&asides(step));
    text.push_str(&policy_lines(job, index));
    text
}

/// What runs when the step, or its run, has failed.
fn asides(step: &Step) -> String {
    let fallback =
        step.on_failure.as_ref().and_then(|then| Some((then.action.as_ref()?, then.then)));
    let fallback = fallback.map(|(action, then)| {
        let then = match then {
            AfterFailure::Fail => "fails",
            AfterFailure::Continue => "goes on",
        };
        format!("on failure: {}, then {then}", what(action))
    });
    let undo = step.compensate.as_ref().map(|action| format!("undone by: {}", what(action)));
    let mut text = String::new();
    for line in fallback.into_iter().chain(undo) {
        text.push_str(&format!("  {line} {}\n", paint(DIM, "(by the same policy)")));
    }
    text
}

/// `4 attempts`, or with jitter `4 or 5 attempts: delay_budget may bind first`.
fn attempts(forecast: &Forecast) -> String {
    let many = |attempts: Option<u64>| match attempts {
        Some(1) => "1 attempt, no retry".to_owned(),
        Some(n) => format!("{n} attempts"),
        None => "unlimited attempts".to_owned(),
    };
    let steady = forecast.retries.map(|n| n + 1);
    let Some(jitter) = forecast.jitter else { return many(steady) };
    let (least, most) = (jitter.attempts_at_least, jitter.attempts_at_most);
    let count = match (least, most) {
        (least, most) if least == most => many(least),
        (Some(least), Some(most)) if least + 1 == most => format!("{least} or {most} attempts"),
        (Some(least), Some(most)) => format!("{least} to {most} attempts"),
        (Some(least), None) => format!("{least} attempts or more"),
        (None, _) => many(None),
    };
    // What binds without jitter is told beside it.
    let (longest, shortest) = jitter.binding_limits;
    let others = [longest, shortest].into_iter().filter(|limit| *limit != forecast.binding_limit);
    let others: Vec<BindingLimit> = others.collect();
    match others[..] {
        [BindingLimit::None, ..] => format!("{count}: short delays may never end it"),
        [other, ..] if other == longest => format!("{count}: {} may bind first", other.name()),
        [other, ..] => format!("{count}: with short delays {} binds", other.name()),
        [] => count,
    }
}

fn ends(forecast: &Forecast, step: &Step) -> String {
    let attempts = attempts(forecast);
    // Where jitter can make something else bind, that is told before.
    let by = if attempts.contains(": ") { "else bound by" } else { "bound by" };
    let mut facts = vec![paint(GOOD, attempts)];
    facts.push(match forecast.binding_limit {
        BindingLimit::None => paint(WAIT, "nothing binds"),
        limit => format!("{by} {}", paint(NOTE, limit.name())),
    });
    if let Some(total) = forecast.delay_total_ms {
        facts.push(format!("delays {}", human_ms(total)));
    }
    facts.push(match forecast.worst_case_ms {
        Some(worst) => format!("worst case {}", human_ms(worst)),
        None if step.timeout_ms.is_none() => "worst case open: no timeout".to_owned(),
        None => "worst case open: no bound on the attempts".to_owned(),
    });
    if matches!(step.action, Action::Http(_)) && forecast.retries != Some(0) {
        let most = human_ms(step.policy.draft().max_retry_after_ms);
        facts.push(format!("a service may ask for longer (Retry-After, up to {most} a retry)"));
    }
    facts.join(" · ")
}

/// What was written somewhere, with where; what is default only in name.
fn policy_lines(job: &JobFile, index: usize) -> String {
    let policy = &job.plan.steps()[index].policy;
    let view = policy_view(policy, &job.steps[index].policy);
    let mut written = vec![];
    let mut defaults = vec![];
    for (key, value, source) in view {
        let shown = show(key, &value);
        match source {
            Source::Default if value.is_null() || shown.is_empty() || value == json!([]) => {}
            Source::Default => defaults.push(format!("{key} {shown}")),
            source => written
                .push(format!("{key} {shown} {}", paint(DIM, format!("({})", source.name())))),
        }
    }
    let mut text = String::new();
    if !written.is_empty() {
        text.push_str(&format!("  {}\n", written.join(" · ")));
    }
    if !defaults.is_empty() {
        text.push_str(&format!("  {}\n", paint(DIM, format!("default: {}", defaults.join(" · ")))));
    }
    text
}

fn show(key: &str, value: &Value) -> String {
    let is_time = matches!(
        key,
        "initial_delay" | "max_delay" | "increment" | "max_retry_after" | "delay_budget" | "window"
    );
    match value {
        Value::Null => "unlimited".to_owned(),
        Value::Number(ms) if is_time => ms.as_u64().map_or_else(|| ms.to_string(), human_ms),
        Value::String(text) => text.clone(),
        Value::Array(delays) if key == "backoff" => {
            let delays = delays.iter().filter_map(Value::as_u64).map(human_ms);
            format!("[{}]", delays.collect::<Vec<_>>().join(", "))
        }
        Value::Array(rules) if key == "rules" => format!("({})", rules.len()),
        Value::Object(lists) => {
            let lists = lists.iter().filter(|(_, codes)| **codes != json!([]));
            lists.map(|(name, codes)| format!("{name} {codes}")).collect::<Vec<_>>().join(", ")
        }
        other => other.to_string(),
    }
}
