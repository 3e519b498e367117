//! Fluster's job: one command, with everything around it, as a plan of one step.
//!
//! Translated into the job file that says the same, so that names, sizes and variables obey the rules
//! of every other job. Braces mean nothing in Fluster, and mean nothing in what is made of it.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};
use steadfast_core::plan::Plan;
use steadfast_core::policy::{Problem, Problems};

use super::{FlusterDefaults, FlusterRetry, policy_with};
use crate::{Operator, load};

/// The one step of it.
const STEP: &str = "main";

#[derive(Clone, Debug, Default, PartialEq)]
pub struct FlusterJob {
    pub name: String,
    pub entrypoint: Option<Entrypoint>,
    pub env: BTreeMap<String, String>,
    /// 0: not said.
    pub cpu: f64,
    /// Empty: not said.
    pub memory: String,
    pub ports: Vec<String>,
    pub labels: BTreeMap<String, String>,
    /// 0: it waits for ever.
    pub scheduling_timeout_seconds: i32,
    pub timeout_ms: Option<i64>,
    /// Paths of what comes with it.
    pub files: Vec<String>,
    pub retry: FlusterRetry,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Entrypoint {
    Argv(Vec<String>),
    /// For `/bin/sh -c`.
    Script(String),
}

/// The plan that it asks for; the problems speak of its own fields.
pub fn plan(
    job: &FlusterJob,
    defaults: FlusterDefaults,
    operator: &Operator,
) -> Result<Plan, Problems> {
    let mut wrong = Vec::new();
    let mut problem = |path: &str, message: &str| {
        let (path, message) = (path.to_owned(), message.to_owned());
        wrong.push(Problem { code: "invalid_value", path, message, help: None });
    };
    if job.entrypoint.is_none() {
        problem("entrypoint", "a command or a script is needed");
    }
    if !job.cpu.is_finite() || job.cpu < 0.0 {
        problem("resources.cpu", "cpu is a number of cores, or 0 for no wish");
    }
    let policy = policy_with(&job.retry, defaults).map_err(|problems| {
        let own = problems.0.into_iter();
        wrong.extend(own.map(|found| Problem { path: format!("retry.{}", found.path), ..found }));
    });
    // The `.json` makes what is read JSON and nothing else.
    let loaded = load("launch.json", file(job).to_string().as_bytes(), operator);
    let loaded = loaded.map_err(|problems| {
        wrong.extend(problems.into_iter().map(|found| Problem {
            code: found.code,
            path: field(&found.path, job),
            message: found.message,
            // It says what to write into a file.
            help: None,
        }));
    });
    match (policy, loaded) {
        (Ok(policy), Ok(loaded)) if wrong.is_empty() => {
            let mut draft = loaded.plan.draft();
            for step in &mut draft.steps {
                step.policy = policy.clone();
                step.spelling = super::spelling();
            }
            Plan::new(draft)
        }
        _ => Err(Problems(wrong)),
    }
}

/// The job file that says the same, retries aside.
fn file(job: &FlusterJob) -> Value {
    let (key, action, env) = process(job);
    let mut step = Map::new();
    step.insert(key.to_owned(), action);
    step.insert("env".to_owned(), json!(env));
    step.insert("labels".to_owned(), json!(job.labels));
    step.insert("ports".to_owned(), json!(job.ports));
    step.insert("files".to_owned(), json!(job.files));
    let waits = format!("{}s", job.scheduling_timeout_seconds);
    step.insert("scheduling_timeout".to_owned(), json!(waits));
    if let Some(ms) = job.timeout_ms {
        step.insert("timeout".to_owned(), json!(format!("{ms}ms")));
    }
    let mut resources = Map::new();
    if job.cpu.is_finite() && job.cpu > 0.0 {
        resources.insert("cpu".to_owned(), json!(job.cpu));
    }
    if !job.memory.is_empty() {
        resources.insert("memory".to_owned(), json!(job.memory));
    }
    step.insert("resources".to_owned(), Value::Object(resources));
    json!({ "name": job.name, "steps": { STEP: step } })
}

/// The action's key, the action, and the variables. A job file fills in what stands in double braces
/// everywhere but in `run`: what has them goes there, quoted.
fn process(job: &FlusterJob) -> (&'static str, Value, BTreeMap<&str, &str>) {
    let braces = |text: &str| text.contains("{{");
    let mut env = BTreeMap::new();
    let mut script = String::new();
    for (name, value) in &job.env {
        if braces(value) {
            script += &format!("export {name}={}\n", quoted(value));
        }
        // Its name is checked there in any case.
        env.insert(name.as_str(), if braces(value) { "" } else { value.as_str() });
    }
    match &job.entrypoint {
        Some(Entrypoint::Argv(argv))
            if !argv.is_empty() && (!script.is_empty() || argv.iter().any(|word| braces(word))) =>
        {
            let words: Vec<String> = argv.iter().map(|word| quoted(word)).collect();
            script += &format!("exec {}", words.join(" "));
            ("run", json!(script), env)
        }
        Some(Entrypoint::Argv(argv)) => ("argv", json!(argv), env),
        Some(Entrypoint::Script(text)) if text.trim().is_empty() => ("run", json!(""), env),
        Some(Entrypoint::Script(text)) => ("run", json!(script + text), env),
        // It is refused already; the rest is looked at all the same.
        None => ("run", json!("true"), env),
    }
}

/// One word for a shell, whatever is in it.
fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', r"'\''"))
}

/// What a place in the job file is called in Fluster's request.
fn field(path: &str, job: &FlusterJob) -> String {
    let run = match job.entrypoint {
        Some(Entrypoint::Argv(_)) => "entrypoint.command.argv",
        _ => "entrypoint.script",
    };
    let names = [
        ("argv", "entrypoint.command.argv"),
        ("run", run),
        ("env", "environment.env_vars"),
        ("scheduling_timeout", "scheduling_timeout_seconds"),
        ("timeout", "timeout_ms"),
    ];
    let Some(inner) = path.strip_prefix("steps.main.") else {
        return if path.is_empty() { "request".to_owned() } else { path.to_owned() };
    };
    let key = &inner[..inner.find(['.', '[']).unwrap_or(inner.len())];
    let named = names.iter().find(|(name, _)| *name == key).map_or(key, |(_, field)| field);
    format!("{named}{}", &inner[key.len()..])
}

#[cfg(test)]
mod tests {
    use steadfast_core::plan::Action;

    use super::*;

    fn job(argv: &[&str]) -> FlusterJob {
        let argv = argv.iter().map(ToString::to_string).collect();
        let entrypoint = Some(Entrypoint::Argv(argv));
        FlusterJob { name: "flaky-job".into(), entrypoint, ..FlusterJob::default() }
    }

    fn made(job: &FlusterJob) -> Plan {
        plan(job, FlusterDefaults::default(), &Operator::default()).expect("valid")
    }

    #[test]
    fn everything_that_is_asked_for_is_in_the_plan() {
        let asked = FlusterJob {
            cpu: 1.5,
            memory: "512m".into(),
            env: [("A".into(), "1".into())].into(),
            ports: vec!["metrics".into()],
            labels: [("gpu".into(), "yes".into())].into(),
            timeout_ms: Some(1500),
            scheduling_timeout_seconds: 7,
            files: vec!["call.pickle".into(), "lib/run.py".into()],
            retry: FlusterRetry { max_retries_failure: Some(5), ..FlusterRetry::default() },
            ..job(&["true"])
        };
        let plan = made(&asked);
        let step = plan.step(0);
        assert_eq!((plan.name(), step.name.as_str()), ("flaky-job", "main"));
        assert_eq!(step.action, Action::Argv(vec!["true".into()]));
        assert_eq!(step.resources.cpu, Some(1.5));
        assert_eq!(step.resources.memory_bytes, Some(512 << 20));
        assert_eq!((step.timeout_ms, step.scheduling_timeout_ms), (Some(1500), Some(7000)));
        assert_eq!((step.labels["gpu"].as_str(), step.ports[0].as_str()), ("yes", "metrics"));
        assert_eq!(step.surroundings.env["A"], "1");
        assert_eq!(step.surroundings.files, ["call.pickle", "lib/run.py"]);
        assert_eq!(step.policy.draft().max_attempts, Some(6));
        assert_eq!(made(&job(&["true"])).step(0).scheduling_timeout_ms, None, "for ever");
    }

    #[test]
    fn braces_mean_nothing() {
        let mut asked = job(&["docker", "ps", "--format", "{{ .Names }} it's {{ attempt }}"]);
        let words = r"exec 'docker' 'ps' '--format' '{{ .Names }} it'\''s {{ attempt }}'";
        assert_eq!(made(&asked).step(0).action, Action::Run(words.into()));
        asked.env.insert("FORMAT".into(), "{{ x }}".into());
        let both = format!("export FORMAT='{{{{ x }}}}'\n{words}");
        assert_eq!(made(&asked).step(0).action, Action::Run(both));
    }

    #[test]
    fn a_budget_that_the_operator_requires_holds_here_too() {
        let operator = Operator { budget_required: true, ..Operator::default() };
        let plan = plan(&job(&["true"]), FlusterDefaults::default(), &operator).expect("valid");
        assert!(plan.budget().is_some());
    }

    #[test]
    fn everything_that_is_wrong_is_told_by_its_own_field() {
        let odd = FlusterJob {
            name: "a\tb".into(),
            entrypoint: Some(Entrypoint::Argv(vec![])),
            env: [("STEADFAST_JOB_ID".into(), "{{".into()), ("B-C".into(), "2".into())].into(),
            cpu: f64::NAN,
            memory: "512".into(),
            ports: vec!["x y".into()],
            labels: [("ä".into(), "1".into())].into(),
            timeout_ms: Some(0),
            scheduling_timeout_seconds: -1,
            files: vec!["a".into(), "../b".into()],
            retry: FlusterRetry { max_retries_failure: Some(-1), ..FlusterRetry::default() },
        };
        let refused = plan(&odd, FlusterDefaults::default(), &Operator::default());
        let Problems(wrong) = refused.expect_err("refused");
        let paths: Vec<&str> = wrong.iter().map(|problem| problem.path.as_str()).collect();
        for field in [
            "name",
            "entrypoint.command.argv",
            "environment.env_vars.STEADFAST_JOB_ID",
            "environment.env_vars.B-C",
            "resources.cpu",
            "resources.memory",
            "ports[0]",
            "labels.ä",
            "files[1]",
            "timeout_ms",
            "scheduling_timeout_seconds",
            "retry.max_retries_failure",
        ] {
            assert!(paths.contains(&field), "{field}: {paths:?}");
        }
        let empty = FlusterJob { name: "a".into(), ..FlusterJob::default() };
        let refused = plan(&empty, FlusterDefaults::default(), &Operator::default());
        let told = refused.expect_err("refused").to_string();
        assert_eq!(told, "entrypoint: a command or a script is needed");
    }
}
