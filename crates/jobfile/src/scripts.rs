//! Scripts that stand beside the job file and do not travel with it.
//!
//! `run` starts processes in the job file's folder, where `./index.sh` is. A worker starts them in the
//! attempt's own folder, which holds nothing but the job's `files`.

use std::collections::BTreeSet;

use steadfast_core::plan::{Action, Cwd, Plan, ProcessEnvironment, Step};

use crate::problem::{Positions, Warning};

/// What is wrong with these scripts everywhere, and what only on workers elsewhere.
pub(crate) fn unlisted(plan: &Plan, places: &Positions) -> (Vec<Warning>, Vec<Warning>) {
    let (mut everywhere, mut on_workers) = (vec![], vec![]);
    let mut told = BTreeSet::new();
    for step in plan.steps() {
        let around = [plan.surroundings(), &step.surroundings];
        let cwd = step.surroundings.cwd.or(plan.surroundings().cwd);
        let some_listed = around.iter().any(|around| !around.files.is_empty());
        for (place, action) in actions(step) {
            let Some((key, script)) = script(action) else { continue };
            if cwd == Some(Cwd::Source) || listed(&around, script) || !told.insert(script) {
                continue;
            }
            let path = format!("steps.{}{place}.{key}", step.name);
            let line = places.locate(&path).line;
            let write = format!("add `files: [{script}]`");
            let because = match (cwd, some_listed) {
                (Some(Cwd::Attempt), _) => "`cwd: attempt` starts it where only `files` are",
                (_, true) => "`files` names others, and a worker gets no more than those",
                (_, false) => "a worker starts it where only the job's `files` are",
            };
            let message = format!("`{script}` is not in `files`: {because}; {write}");
            let to = if cwd == Some(Cwd::Attempt) || some_listed {
                &mut everywhere
            } else {
                &mut on_workers
            };
            to.push(Warning { code: "script_not_in_files", path, line, message });
        }
    }
    (everywhere, on_workers)
}

fn actions(step: &Step) -> impl Iterator<Item = (&'static str, &Action)> {
    let fallback = step.on_failure.as_ref().and_then(|then| then.action.as_ref());
    [("", Some(&step.action)), (".on_failure", fallback), (".compensate", step.compensate.as_ref())]
        .into_iter()
        .filter_map(|(place, action)| Some((place, action?)))
}

/// `index.sh` of `./index.sh --all`: what is plainly a file beside the job's.
fn script(action: &Action) -> Option<(&'static str, &str)> {
    let (key, word) = match action {
        Action::Run(command) => ("run", command.split_whitespace().next()?),
        Action::Argv(argv) => ("argv", argv.first()?.as_str()),
        Action::Http(_) | Action::Call { .. } => return None,
    };
    let file = word.strip_prefix("./")?;
    let plain = |c: char| c.is_ascii_alphanumeric() || "._-/".contains(c);
    (!file.is_empty() && file.chars().all(plain)).then_some((key, file))
}

fn listed(around: &[&ProcessEnvironment], script: &str) -> bool {
    let same = |file: &String| file.strip_prefix("./").unwrap_or(file) == script;
    let inside = |file: &String| {
        script.strip_prefix(file.trim_end_matches('/')).is_some_and(|rest| rest.starts_with('/'))
    };
    around.iter().any(|around| around.files.iter().any(|file| same(file) || inside(file)))
}
