//! What a worker needs to know of an attempt: the step's action with everything filled in.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::Value;
use steadfast_core::event::{Role, SourceFile};
use steadfast_core::job::Job;
use steadfast_core::plan::{Action, Cwd, Http, Resources};
use steadfast_core::template::Scope;

use crate::batch::Assignment;

#[derive(Clone, Debug, PartialEq)]
pub struct Work {
    pub assignment: Assignment,
    pub step: String,
    /// What the attempt's folder is called.
    pub folder: String,
    pub datacenter: Option<String>,
    /// `{{ item }}`; none for a step without `for_each`, a fallback or a compensation.
    pub item: Option<Value>,
    /// Or why it cannot be filled in.
    pub action: Result<Action, String>,
    pub env: BTreeMap<String, String>,
    pub cwd: Option<Cwd>,
    pub files: Vec<String>,
    pub secrets: Vec<String>,
    pub ports: Vec<String>,
    pub resources: Resources,
    pub timeout_ms: Option<u64>,
    /// The longest silence of a service or function.
    pub heartbeat_ms: Option<u64>,
    /// What an earlier attempt of the item said last about how far it was.
    pub progress: Option<Arc<Value>>,
    pub source: Option<Arc<SourceFile>>,
}

impl Work {
    pub(crate) fn of(job: &Job, assignment: Assignment) -> Self {
        let id = assignment.item;
        let plan = &job.plan;
        let step = plan.step(id.step);
        let secrets = matches!(plan.action_of(id), Some(Action::Http(_)));
        let scope = Scope::new(job, id, assignment.attempt, secrets);
        let action = plan.action_of(id).ok_or_else(|| "there is nothing to run".to_owned());
        let mut action = action.and_then(|action| filled(action, plan.input_of(id), &scope));
        let mut env = BTreeMap::new();
        for (name, text) in plan.surroundings().env.iter().chain(&step.surroundings.env) {
            match scope.text(text) {
                Ok(value) => drop(env.insert(name.clone(), value)),
                // Written for the items; a fallback or compensation runs without it.
                Err(_) if id.role != Role::Item => {}
                Err(why) => action = action.and(Err(format!("env {name}: {why}"))),
            }
        }
        let both =
            |of: fn(&steadfast_core::plan::ProcessEnvironment) -> &Vec<String>| -> Vec<String> {
                of(plan.surroundings()).iter().chain(of(&step.surroundings)).cloned().collect()
            };
        Self {
            step: step.name.clone(),
            folder: plan.folder_name(&job.id, id, assignment.attempt),
            datacenter: plan.datacenter(id.run).map(str::to_owned),
            item: job.item_value(id).filter(|_| id.role == Role::Item),
            action,
            env,
            cwd: step.surroundings.cwd.or(plan.surroundings().cwd),
            files: both(|around| &around.files),
            secrets: both(|around| &around.secrets),
            ports: step.ports.clone(),
            resources: step.resources,
            timeout_ms: plan.timeout_ms_of(id),
            heartbeat_ms: step.heartbeat_ms,
            progress: job.live(id).and_then(|item| Some(item.progress.as_ref()?.said.clone())),
            source: job.source.clone(),
            assignment,
        }
    }
}

fn filled(action: &Action, input: Option<&Value>, scope: &Scope) -> Result<Action, String> {
    let map = |map: &BTreeMap<String, String>| -> Result<BTreeMap<String, String>, String> {
        map.iter().map(|(key, text)| Ok((key.clone(), scope.text(text)?))).collect()
    };
    Ok(match action {
        Action::Run(command) => Action::Run(command.clone()),
        Action::Argv(argv) => {
            Action::Argv(argv.iter().map(|text| scope.text(text)).collect::<Result<_, _>>()?)
        }
        Action::Http(http) => Action::Http(Http {
            url: scope.url(&http.url)?,
            headers: map(&http.headers)?,
            query: map(&http.query)?,
            body: http.body.as_ref().map(|body| scope.json(body)).transpose()?,
            method: http.method.clone(),
            expect: http.expect,
            mode: http.mode,
            redirects: http.redirects,
        }),
        Action::Call { name, .. } => {
            Action::Call { name: name.clone(), input: scope.json(input.unwrap_or(&Value::Null))? }
        }
    })
}
