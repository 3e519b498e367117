//! A plan put back into the words of a job file: what is stored of a job is its plan, and people read files.
//!
//! What a file leaves out is left out here too, so that the text is about as long as the file was. Loaded again it gives the same plan,
//! but for what a long `for_each` is cut to and what a dialect calls things.

use serde_json::{Map, Value, json};
use steadfast_core::backoff::{Backoff, Jitter};
use steadfast_core::duration::duration_text;
use steadfast_core::plan::{
    Action, AfterFailure, Allowance, Budget, BudgetCounts, Cwd, DAY_MS, ForEach, Http, HttpExpect,
    HttpMode, MaxFailed, NotBefore, Plan, ProcessEnvironment, StepDraft,
};
use steadfast_core::policy::{PolicyDraft, RuleAction, RuleDraft};

use crate::units::size_text;

/// Elements of a `for_each` that are written out.
const ELEMENTS: usize = 100;

/// The job file, as YAML.
pub fn job_text(plan: &Plan) -> String {
    let mut text = String::new();
    block(&Value::Object(job(plan)), 0, &mut text);
    for step in plan.steps() {
        if let ForEach::List(values) = &step.for_each
            && values.len() > ELEMENTS
        {
            let more = values.len() - ELEMENTS;
            text.push_str(&format!("# {}: for_each has {more} elements more\n", step.name));
        }
    }
    text
}

fn job(plan: &Plan) -> Map<String, Value> {
    let mut to = Map::new();
    to.insert("name".into(), json!(plan.name()));
    let draft = plan.draft();
    let mut put = |key: &str, value: Option<Value>| {
        if let Some(value) = value {
            to.insert(key.to_owned(), value);
        }
    };
    put("labels", Some(json!(plan.labels())).filter(|_| !plan.labels().is_empty()));
    put("priority", Some(json!(draft.priority)).filter(|_| draft.priority != 0));
    put("timeout", plan.timeout_ms().map(time));
    put("not_before", plan.not_before().map(not_before));
    put("retry_budget", plan.budget().map(budget));
    put("goals", Some(json!(draft.goals)).filter(|_| !draft.goals.is_empty()));
    put("datacenters", Some(json!(draft.datacenters)).filter(|_| !draft.datacenters.is_empty()));
    put(
        "best_effort",
        plan.best_effort().map(|best| {
            let mut to = Map::new();
            if let Some(least) = best.min_requested {
                to.insert("min_datacenters".into(), json!(least));
            }
            to.insert("deadline".into(), time(best.deadline_ms));
            if best.grace_ms > 0 {
                to.insert("grace".into(), time(best.grace_ms));
            }
            to.insert("late_results".into(), json!(best.late_results));
            Value::Object(to)
        }),
    );
    surroundings(plan.surroundings(), &mut to);
    let steps = draft.steps.iter().map(|of| (of.name.clone(), Value::Object(step(of))));
    to.insert("steps".into(), Value::Object(steps.collect()));
    to
}

fn step(of: &StepDraft) -> Map<String, Value> {
    let mut to = action(&of.action);
    let mut put = |key: &str, value: Option<Value>| {
        if let Some(value) = value {
            to.insert(key.to_owned(), value);
        }
    };
    put("needs", Some(json!(of.needs)).filter(|_| !of.needs.is_empty()));
    put(
        "for_each",
        match &of.for_each {
            ForEach::Once => None,
            ForEach::List(values) => Some(json!(values[..values.len().min(ELEMENTS)])),
            ForEach::Range(items) => Some(json!({ "range": items })),
            ForEach::Output { step, path } => {
                let path = path.iter().map(|part| format!(".{part}"));
                Some(
                    json!({ "output": std::iter::once(step.clone()).chain(path).collect::<String>() }),
                )
            }
        },
    );
    put("parallelism", of.parallelism.map(|most| json!(most)));
    put(
        "max_failed",
        match of.max_failed {
            MaxFailed::Count(0) => None,
            MaxFailed::Count(most) => Some(json!(most)),
            MaxFailed::Percent(most) => Some(json!(format!("{most}%"))),
        },
    );
    put("timeout", of.timeout_ms.map(time));
    put("heartbeat", of.heartbeat_ms.map(time));
    let forever = Some(json!("0s"));
    let scheduling = of.scheduling_timeout_ms.map_or(forever, |ms| Some(time(ms)));
    put("scheduling_timeout", scheduling.filter(|_| of.scheduling_timeout_ms != Some(DAY_MS)));
    let mut resources = Map::new();
    if let Some(cpu) = of.resources.cpu {
        resources.insert("cpu".into(), json!(cpu));
    }
    if let Some(bytes) = of.resources.memory_bytes {
        resources.insert("memory".into(), json!(size_text(bytes)));
    }
    put("resources", Some(Value::Object(resources.clone())).filter(|_| !resources.is_empty()));
    put("labels", Some(json!(of.labels)).filter(|_| !of.labels.is_empty()));
    put("ports", Some(json!(of.ports)).filter(|_| !of.ports.is_empty()));
    put(
        "on_failure",
        of.on_failure.as_ref().map(|then| match (&then.action, then.then) {
            (None, AfterFailure::Fail) => json!("stop"),
            (None, AfterFailure::Continue) => json!("continue"),
            (Some(aside), after) => {
                let mut to = action(aside);
                if after == AfterFailure::Continue {
                    to.insert("then".into(), json!("continue"));
                }
                Value::Object(to)
            }
        }),
    );
    put("compensate", of.compensate.as_ref().map(|aside| Value::Object(action(aside))));
    let retry = retry(of.policy.draft());
    put("retry", Some(Value::Object(retry.clone())).filter(|_| !retry.is_empty()));
    surroundings(&of.surroundings, &mut to);
    to
}

fn action(action: &Action) -> Map<String, Value> {
    let mut to = Map::new();
    match action {
        Action::Run(script) => drop(to.insert("run".into(), json!(script))),
        Action::Argv(words) => drop(to.insert("argv".into(), json!(words))),
        Action::Http(request) => drop(to.insert("http".into(), Value::Object(http(request)))),
        Action::Call { name, input } => {
            to.insert("call".into(), json!(name));
            if !input.is_null() {
                to.insert("input".into(), input.clone());
            }
        }
    }
    to
}

fn http(request: &Http) -> Map<String, Value> {
    let Http { method, url, headers, query, body, mode, expect, redirects } = request;
    let mut to = Map::new();
    to.insert("method".into(), json!(method));
    to.insert("url".into(), json!(url));
    if !headers.is_empty() {
        to.insert("headers".into(), json!(headers));
    }
    if !query.is_empty() {
        to.insert("query".into(), json!(query));
    }
    if let Some(body) = body {
        to.insert("body".into(), body.clone());
    }
    if *mode == HttpMode::Async {
        to.insert("mode".into(), json!("async"));
    }
    if *expect == HttpExpect::Envelope {
        to.insert("expect".into(), json!("envelope"));
    }
    if *redirects > 0 {
        to.insert("redirects".into(), json!(redirects));
    }
    to
}

fn surroundings(of: &ProcessEnvironment, to: &mut Map<String, Value>) {
    if !of.env.is_empty() {
        to.insert("env".into(), json!(of.env));
    }
    if let Some(cwd) = of.cwd {
        let word = match cwd {
            Cwd::Source => "source",
            Cwd::Attempt => "attempt",
        };
        to.insert("cwd".into(), json!(word));
    }
    if !of.files.is_empty() {
        to.insert("files".into(), json!(of.files));
    }
    if !of.secrets.is_empty() {
        to.insert("secrets".into(), json!(of.secrets));
    }
}

fn budget(of: &Budget) -> Value {
    let mut to = Map::new();
    // AD-44's 0 asks for the default, which a native 0 does not.
    let asked = |of: Allowance| if of.requested == 0 { of.effective } else { of.requested };
    if let Some(total) = of.total {
        to.insert("total".into(), json!(asked(total)));
    }
    if let Some(share) = of.per_step {
        to.insert("per_step".into(), json!(asked(share)));
    }
    if let Some(ratio) = of.ratio {
        to.insert("ratio".into(), json!(ratio.ratio));
        to.insert("floor".into(), json!(ratio.floor));
    }
    if of.counts == BudgetCounts::All {
        to.insert("counts".into(), json!("all"));
    }
    Value::Object(to)
}

fn not_before(of: NotBefore) -> Value {
    match of {
        NotBefore::InMs(ms) => json!(format!("in {}", duration_text(ms))),
        NotBefore::At(at) => {
            let at =
                i64::try_from(at.0).ok().and_then(|ms| jiff::Timestamp::from_millisecond(ms).ok());
            json!(at.map(|at| at.to_string()))
        }
    }
}

fn retry(draft: &PolicyDraft) -> Map<String, Value> {
    let built_in = PolicyDraft::default();
    let mut to = Map::new();
    let mut put = |key: &str, differs: bool, value: Value| {
        if differs {
            to.insert(key.to_owned(), value);
        }
    };
    let limit = |limit: Option<u32>| limit.map_or(json!("unlimited"), |most| json!(most));
    put("max_attempts", draft.max_attempts != built_in.max_attempts, limit(draft.max_attempts));
    put("retryable", !draft.retryable, json!(false));
    let growth = match &draft.backoff {
        Backoff::Fixed => json!("fixed"),
        Backoff::Linear { .. } => json!("linear"),
        Backoff::Exponential { .. } => json!("exponential"),
        Backoff::Fibonacci => json!("fibonacci"),
        Backoff::List(delays) => delays.iter().map(|ms| time(*ms)).collect(),
    };
    put("backoff", !matches!(draft.backoff, Backoff::Exponential { .. }), growth);
    let initial = draft.initial_delay_ms;
    put("initial_delay", initial != built_in.initial_delay_ms, time(initial));
    put("max_delay", draft.max_delay_ms.is_some(), time(draft.max_delay_ms.unwrap_or(0)));
    if let Backoff::Exponential { multiplier } = draft.backoff {
        put("multiplier", multiplier != 2.0, json!(multiplier));
    }
    if let Backoff::Linear { increment_ms } = draft.backoff {
        put("increment", increment_ms != initial, time(increment_ms));
    }
    let jitter = match draft.jitter {
        Jitter::None => json!("none"),
        Jitter::Full => json!("full"),
        Jitter::Equal => json!("equal"),
        Jitter::Decorrelated => json!("decorrelated"),
        Jitter::Factor(factor) => json!(factor),
    };
    put("jitter", draft.jitter != Jitter::None, jitter);
    let most = draft.max_retry_after_ms;
    put("max_retry_after", most != built_in.max_retry_after_ms, time(most));
    put("delay_budget", draft.delay_budget_ms.is_some(), time(draft.delay_budget_ms.unwrap_or(0)));
    put("window", draft.window_ms.is_some(), time(draft.window_ms.unwrap_or(0)));
    let written = draft.max_preemptions_written;
    let differs = written || draft.max_preemptions != built_in.max_preemptions;
    put("max_preemptions", differs, limit(draft.max_preemptions));
    put("max_deferrals", draft.max_deferrals != built_in.max_deferrals, limit(draft.max_deferrals));
    let mut codes = Map::new();
    if !draft.exit_retry.is_empty() {
        codes.insert("retry".into(), json!(draft.exit_retry));
    }
    if !draft.exit_stop.is_empty() {
        codes.insert("stop".into(), json!(draft.exit_stop));
    }
    put("exit_codes", !codes.is_empty(), Value::Object(codes));
    put("rules", !draft.rules.is_empty(), draft.rules.iter().map(rule).collect());
    to
}

fn rule(of: &RuleDraft) -> Value {
    let mut to = Map::new();
    for (key, codes) in
        [("exit", &of.exit), ("signal", &of.signal), ("http_status", &of.http_status)]
    {
        if let Some(codes) = codes {
            to.insert(key.into(), json!(codes));
        }
    }
    if let Some(error) = &of.error {
        to.insert("error".into(), json!(error));
    }
    if of.timeout {
        to.insert("timeout".into(), json!(true));
    }
    let then = match of.then {
        RuleAction::Retry => "retry",
        RuleAction::Stop => "stop",
        RuleAction::Defer => "defer",
    };
    to.insert("then".into(), json!(then));
    if let Some(delay) = of.delay_ms {
        to.insert("delay".into(), time(delay));
    }
    Value::Object(to)
}

fn time(ms: u64) -> Value {
    json!(duration_text(ms))
}

/// Maps of maps in lines of their own, whatever is short in one.
fn block(value: &Value, indent: usize, to: &mut String) {
    let Value::Object(map) = value else {
        to.push_str(&format!("{}\n", flow(value)));
        return;
    };
    let margin = "  ".repeat(indent);
    for (key, value) in map {
        to.push_str(&format!("{margin}{}:", plain(key)));
        match value {
            Value::Object(inner) if !inner.is_empty() && !is_short(value) => {
                to.push('\n');
                block(value, indent + 1, to);
            }
            Value::Array(list) if !list.is_empty() && !is_short(value) => {
                to.push('\n');
                for element in list {
                    to.push_str(&format!("{margin}  - {}\n", flow(element)));
                }
            }
            Value::String(text) if is_script(text) => {
                to.push_str(if text.ends_with('\n') { " |\n" } else { " |-\n" });
                for line in text.trim_end_matches('\n').split('\n') {
                    let line =
                        if line.is_empty() { String::new() } else { format!("{margin}  {line}") };
                    to.push_str(&format!("{line}\n"));
                }
            }
            _ => to.push_str(&format!(" {}\n", flow(value))),
        }
    }
}

/// Several lines that YAML's literal blocks keep as they are.
fn is_script(text: &str) -> bool {
    let lines = text.strip_suffix('\n').unwrap_or(text);
    let is_kept = |line: &str| line.trim_end() == line && !line.chars().any(char::is_control);
    lines.contains('\n')
        && !lines.ends_with('\n')
        && !lines.starts_with([' ', '\n'])
        && lines.split('\n').all(is_kept)
}

fn is_short(value: &Value) -> bool {
    const SHORT: usize = 80;
    let is_flat = match value {
        Value::Object(map) => map.values().all(|inner| !inner.is_object()),
        _ => true,
    };
    is_flat && flow(value).len() <= SHORT
}

/// In one line.
fn flow(value: &Value) -> String {
    match value {
        Value::String(text) => plain(text),
        Value::Array(list) => format!("[{}]", list.iter().map(flow).collect::<Vec<_>>().join(", ")),
        Value::Object(map) if map.is_empty() => "{}".to_owned(),
        Value::Object(map) => {
            let entries = map.iter().map(|(key, value)| format!("{}: {}", plain(key), flow(value)));
            format!("{{ {} }}", entries.collect::<Vec<_>>().join(", "))
        }
        other => other.to_string(),
    }
}

/// Without quotes where it stays what it is.
fn plain(text: &str) -> String {
    let begins = text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_' || c == '/');
    let is_word = text.chars().all(|c| c.is_ascii_alphanumeric() || " _-./=".contains(c));
    let words = ["true", "false", "null", "yes", "no", "on", "off", "y", "n"];
    let is_other = words.contains(&text.to_ascii_lowercase().as_str());
    // A duration or a size begins with a digit, and is no number.
    let is_measure = text.starts_with(|c: char| c.is_ascii_digit())
        && text.ends_with(|c: char| c.is_ascii_alphabetic() || c == '%')
        && text.chars().all(|c| c.is_ascii_alphanumeric() || c == '%')
        && !text.contains(['e', 'E', 'x', 'o']);
    if ((begins && is_word && !is_other) || is_measure) && text.trim() == text {
        return text.to_owned();
    }
    Value::from(text).to_string()
}

#[cfg(test)]
mod tests {
    use steadfast_core::plan::PlanDraft;
    use steadfast_core::spelling::Spelling;

    use super::*;
    use crate::Operator;

    /// Without what a dialect calls things.
    fn native(plan: &Plan) -> PlanDraft {
        let mut draft = plan.draft();
        draft.spelling = Spelling::default();
        let shares = draft.budget.iter_mut().flat_map(|it| [&mut it.total, &mut it.per_step]);
        for share in shares.flatten().filter(|share| share.requested == 0) {
            share.requested = share.effective;
        }
        for step in &mut draft.steps {
            step.spelling = Spelling::default();
            step.policy_sources.clear();
        }
        draft
    }

    #[test]
    fn what_is_written_is_read_as_the_same_plan() {
        let valid = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/valid");
        let examples = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples");
        let mut files = 0;
        for folder in [valid, examples] {
            for entry in std::fs::read_dir(folder).expect("the folder") {
                let path = entry.expect("an entry").path();
                let name = path.display().to_string();
                if path.extension().is_none_or(|ending| ending != "yaml") {
                    continue;
                }
                let text = std::fs::read(&path).expect("readable");
                let Ok(file) = crate::load(&name, &text, &Operator::default()) else { continue };
                let written = job_text(&file.plan);
                let again = crate::load("again.yaml", written.as_bytes(), &Operator::default());
                let again = again.unwrap_or_else(|why| panic!("{name}:\n{written}\n{why:?}"));
                assert_eq!(native(&again.plan), native(&file.plan), "{name}:\n{written}");
                files += 1;
            }
        }
        assert!(files > 5, "{files} files");
    }

    #[test]
    fn scalars_stay_what_they_are() {
        for (text, written) in [
            ("hello world", "hello world"),
            ("true", "\"true\""),
            ("12", "\"12\""),
            ("1e3", "\"1e3\""),
            ("30s", "30s"),
            ("a: b", "\"a: b\""),
            ("", "\"\""),
            ("{{ item }}", "\"{{ item }}\""),
        ] {
            assert_eq!(plain(text), written);
        }
    }
}
