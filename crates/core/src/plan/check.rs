//! What makes a plan impossible, all of it, each with its place and what to write instead.

use std::collections::{BTreeMap, HashSet};

use super::reach::Reachability;
use super::{ForEach, MAX_DATACENTERS, MAX_ITEMS, MAX_STEPS, MaxFailed, PlanDraft, StepDraft};
use crate::policy::Problem;

/// Problems that are told; the rest of a plan with this many is not looked at.
const MOST: usize = 1000;
/// How many of them come with a guess at what was meant, which is the slow part.
const GUESSES: usize = 20;
/// Names that a guess is made among, and the longest text that may have been meant as one.
const GUESSED_AMONG: usize = 1000;
const LONGEST_GUESSED: usize = 100;
/// Each names up to [`MAX_STEPS`] steps.
const MOST_CYCLES: usize = 10;

#[derive(Default)]
pub(super) struct PlanCheck {
    pub(super) problems: Vec<Problem>,
}

impl PlanCheck {
    fn bad(&mut self, code: &'static str, path: String, message: String, help: Option<String>) {
        if !self.is_full() {
            self.problems.push(Problem { code, path, message, help });
        }
    }

    fn is_full(&self) -> bool {
        self.problems.len() >= MOST
    }

    fn guess(&self, written: &str, index: &BTreeMap<String, u32>) -> Option<String> {
        let guessing = self.problems.len() < GUESSES;
        nearest(written, index.keys().map(String::as_str).filter(|_| guessing))
    }

    pub(super) fn index(&mut self, draft: &PlanDraft) -> BTreeMap<String, u32> {
        if draft.steps.is_empty() {
            let help = "add at least one, as `steps: { hello: { run: echo hello } }`".to_owned();
            self.bad("missing_value", "steps".into(), "a job needs steps".into(), Some(help));
        }
        if draft.steps.len() > MAX_STEPS {
            let message = format!("{} steps; at most {MAX_STEPS} are allowed", draft.steps.len());
            self.bad("too_large", "steps".into(), message, None);
            return BTreeMap::new();
        }
        let mut index = BTreeMap::new();
        for (i, step) in draft.steps.iter().enumerate() {
            if index.insert(step.name.clone(), i as u32).is_some() {
                let path = format!("steps.{}", step.name);
                let message = format!("there are two steps named `{}`", step.name);
                self.bad("duplicate_key", path, message, None);
            }
        }
        index
    }

    pub(super) fn needs(
        &mut self,
        draft: &PlanDraft,
        index: &BTreeMap<String, u32>,
    ) -> Vec<Vec<u32>> {
        let mut all = Vec::with_capacity(draft.steps.len());
        for step in &draft.steps {
            let mut needs = Vec::with_capacity(step.needs.len());
            let mut known = HashSet::with_capacity(step.needs.len());
            for (i, need) in step.needs.iter().enumerate() {
                if self.is_full() {
                    break;
                }
                let path = || format!("steps.{}.needs[{i}]", step.name);
                match index.get(need) {
                    None => {
                        let message =
                            format!("step `{}` needs `{need}`, which does not exist", step.name);
                        let help = self.guess(need, index);
                        self.bad("unknown_step", path(), message, help);
                    }
                    Some(need_index) if !known.insert(*need_index) => {
                        let message = format!("`{need}` is listed twice");
                        self.bad("duplicate_value", path(), message, Some("remove one".into()));
                    }
                    Some(&need_index) => needs.push(need_index),
                }
            }
            all.push(needs);
        }
        all
    }

    pub(super) fn goals(&mut self, draft: &PlanDraft, index: &BTreeMap<String, u32>) {
        let mut known = HashSet::with_capacity(draft.goals.len());
        for (i, goal) in draft.goals.iter().enumerate() {
            if self.is_full() {
                break;
            }
            if !index.contains_key(goal) {
                let message = format!("the goal `{goal}` is not a step");
                let help = self.guess(goal, index);
                self.bad("unknown_step", format!("goals[{i}]"), message, help);
            } else if !known.insert(goal) {
                let message = format!("the goal `{goal}` is listed twice");
                let help = Some("remove one".to_owned());
                self.bad("duplicate_value", format!("goals[{i}]"), message, help);
            }
        }
    }

    pub(super) fn datacenters(&mut self, draft: &PlanDraft) {
        let count = draft.datacenters.len();
        if count > MAX_DATACENTERS {
            let message = format!("{count} datacenters; at most {MAX_DATACENTERS} are allowed");
            self.bad("too_large", "datacenters".into(), message, None);
            return;
        }
        let mut known = HashSet::with_capacity(count);
        for (i, name) in draft.datacenters.iter().enumerate() {
            if !known.insert(name) {
                let message = format!("the datacenter `{name}` is listed twice");
                let help = Some("remove one".to_owned());
                self.bad("duplicate_value", format!("datacenters[{i}]"), message, help);
            }
        }
        if let Some(best_effort) = &draft.best_effort {
            let path = || "best_effort.min_datacenters".to_owned();
            let count = count.max(1);
            if best_effort.min_datacenters as usize > count {
                let message = format!(
                    "min_datacenters is {}, but the job has {count} datacenter{}",
                    best_effort.min_datacenters,
                    if count == 1 { "" } else { "s" },
                );
                let help = Some(format!("write at most `min_datacenters: {count}`"));
                self.bad("invalid_value", path(), message, help);
            }
            if best_effort.min_datacenters == 0 {
                let message = "min_datacenters 0 would succeed without any result".to_owned();
                let help = Some("write `min_datacenters: 1` or more".to_owned());
                self.bad("invalid_value", path(), message, help);
            }
        }
        if let Some(ratio) = draft.budget.and_then(|budget| budget.ratio)
            && !(ratio.ratio.is_finite() && ratio.ratio >= 0.0)
        {
            let message = format!("ratio must be a number, 0 or more, not {}", ratio.ratio);
            self.bad("invalid_value", "retry_budget.ratio".into(), message, None);
        }
    }

    pub(super) fn steps(&mut self, draft: &PlanDraft) {
        for step in &draft.steps {
            let path = |key: &str| format!("steps.{}.{key}", step.name);
            if step.parallelism == Some(0) {
                let help = Some("write `parallelism: 1` or more, or leave it out".to_owned());
                let message = "parallelism 0 would never start an item".to_owned();
                self.bad("invalid_value", path("parallelism"), message, help);
            }
            if let MaxFailed::Percent(percent) = step.max_failed
                && !(0.0..=100.0).contains(&percent)
            {
                let message = format!("max_failed lies between 0% and 100%, not {percent}%");
                self.bad("invalid_value", path("max_failed"), message, None);
            }
            if step.timeout_ms == Some(0) {
                let help = Some("leave it out for no timeout".to_owned());
                let message = "a timeout of 0 would end every attempt at once".to_owned();
                self.bad("invalid_value", path("timeout"), message, help);
            }
            let items = match &step.for_each {
                ForEach::List(items) => items.len(),
                ForEach::Range(count) => *count as usize,
                ForEach::Once | ForEach::Output { .. } => 1,
            };
            if items > MAX_ITEMS as usize {
                let message = format!("{items} items; at most {MAX_ITEMS} are allowed");
                let help = Some("split the work over several jobs, or give each item more".into());
                self.bad("too_large", path("for_each"), message, help);
            }
        }
    }

    /// Depth first, with the path kept, so that a cycle can be named in the order it runs.
    pub(super) fn cycles(&mut self, draft: &PlanDraft, needs: &[Vec<u32>]) {
        #[derive(Clone, Copy, PartialEq)]
        enum VisitState {
            New,
            Open,
            Done,
        }
        let mut marks = vec![VisitState::New; needs.len()];
        for start in 0..needs.len() {
            if marks[start] != VisitState::New {
                continue;
            }
            marks[start] = VisitState::Open;
            let mut path = vec![(start, 0)];
            while let Some((step, next)) = path.last_mut() {
                let step = *step;
                let Some(&need) = needs[step].get(*next) else {
                    marks[step] = VisitState::Done;
                    path.pop();
                    continue;
                };
                *next += 1;
                match marks[need as usize] {
                    VisitState::Done => {}
                    VisitState::New => {
                        marks[need as usize] = VisitState::Open;
                        path.push((need as usize, 0));
                    }
                    VisitState::Open => {
                        let from = path.iter().position(|&(s, _)| s == need as usize);
                        let names = path[from.unwrap_or(0)..].iter().map(|&(s, _)| s);
                        let names: Vec<&str> = names
                            .chain([need as usize])
                            .map(|s| draft.steps[s].name.as_str())
                            .collect();
                        let at = needs[step].iter().position(|&n| n == need).unwrap_or(0);
                        self.bad(
                            "cycle",
                            format!("steps.{}.needs[{at}]", draft.steps[step].name),
                            format!("steps need each other in a circle: {}", names.join(" → ")),
                            Some("remove one of these `needs`".into()),
                        );
                        if self.problems.len() >= MOST_CYCLES {
                            return;
                        }
                    }
                }
            }
        }
    }

    pub(super) fn for_each(
        &mut self,
        draft: &PlanDraft,
        index: &BTreeMap<String, u32>,
        needs: &[Vec<u32>],
    ) {
        let reads = |step: &StepDraft| matches!(step.for_each, ForEach::Output { .. });
        if !draft.steps.iter().any(reads) {
            return;
        }
        let reach = Reachability::of(needs);
        for (i, step) in draft.steps.iter().enumerate() {
            let ForEach::Output { step: source, path: inner } = &step.for_each else {
                continue;
            };
            let path = format!("steps.{}.for_each.output", step.name);
            let Some(&from) = index.get(source) else {
                let message =
                    format!("for_each reads the output of `{source}`, which does not exist");
                let help = self.guess(source, index);
                self.bad("unknown_step", path, message, help);
                continue;
            };
            if !reach.needs(i as u32, from) {
                let message =
                    format!("`{}` reads the output of `{source}` but does not need it", step.name);
                let help = Some(format!("add `{source}` to its `needs`"));
                self.bad("not_needed", path, message, help);
            } else if draft.steps[from as usize].for_each != ForEach::Once && !inner.is_empty() {
                let message = format!(
                    "`{source}` has many items, so its outputs are a list without `{}`",
                    inner.join(".")
                );
                let help = Some(format!("write `output: {source}`"));
                self.bad("invalid_value", path, message, help);
            }
        }
    }
}

/// "did you mean …?", if something known is close enough to what was written.
pub fn nearest<'a>(written: &str, known: impl Iterator<Item = &'a str>) -> Option<String> {
    let length = written.chars().take(LONGEST_GUESSED + 1).count();
    let limit = (length / 3).max(1);
    known
        .filter(|_| length <= LONGEST_GUESSED)
        .take(GUESSED_AMONG)
        .filter(|name| name.len() <= 4 * LONGEST_GUESSED)
        .map(|name| (distance(written, name), name))
        .filter(|(distance, _)| *distance <= limit)
        .min()
        .map(|(_, name)| format!("did you mean `{name}`?"))
}

/// Letters to insert, remove, replace or swap with a neighbour. Names are short; so is this.
fn distance(a: &str, b: &str) -> usize {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
    if a.len().abs_diff(b.len()) > 3 {
        return usize::MAX;
    }
    let mut rows = vec![vec![0; b.len() + 1]; a.len() + 1];
    for (i, row) in rows.iter_mut().enumerate() {
        row[0] = i;
    }
    rows[0] = (0..=b.len()).collect();
    for i in 1..=a.len() {
        for j in 1..=b.len() {
            let replaced = rows[i - 1][j - 1] + usize::from(a[i - 1] != b[j - 1]);
            rows[i][j] = replaced.min(rows[i - 1][j] + 1).min(rows[i][j - 1] + 1);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                rows[i][j] = rows[i][j].min(rows[i - 2][j - 2] + 1);
            }
        }
    }
    rows[a.len()][b.len()]
}
