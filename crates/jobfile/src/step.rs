//! A step of the file into a draft of the plan, and its retry block beside it.

use std::collections::HashSet;
use std::sync::Arc;

use steadfast_core::plan::{Action, DAY_MS, ForEach, MAX_STEPS, MaxFailed, Resources, StepDraft};
use steadfast_core::policy::Policy;

use crate::keys;
use crate::node::{Entry, Scalar};
use crate::policy::{PolicyBlock, Source};
use crate::problem::quote;
use crate::reader::{At, Block, Reader};
use crate::references::Scope;

impl Reader<'_> {
    /// What could not be read is noted and left at its default, so that the rest is checked too.
    pub(crate) fn step(
        &mut self,
        at: &At,
        entry: &Entry,
        index: usize,
        policy: &Policy,
    ) -> (StepDraft, Option<PolicyBlock>) {
        self.check_name(&entry.key, "a step's name", "", &at.path, entry.key_span);
        let nothing = Action::Run(String::new());
        let mut draft = StepDraft::new(&entry.key, nothing, policy.clone());
        let Some(block) = self.block(at, Some(entry.key_span), &keys::STEP) else {
            return (draft, None);
        };
        let scope = Scope::Step(index);
        if let Some(at) = block.get("needs") {
            draft.needs = self.names(&at, "a step's name", MAX_STEPS, "steps that it needs");
        }
        if let Some(at) = block.get("for_each") {
            draft.for_each = self.for_each(&at, block.key_span("for_each"));
        }
        if let Some(at) = block.get("max_failed") {
            draft.max_failed = self.max_failed(&at).unwrap_or_default();
        }
        self.time(&block, &mut draft, scope);
        if let Some(at) = block.get("resources") {
            draft.resources = self.resources(&at).unwrap_or_default();
        }
        draft.labels = self.labels(&block);
        if let Some(at) = block.get("ports") {
            draft.ports = self.ports(&at);
        }
        if let Some(at) = block.get("on_failure") {
            let scope = Scope::Fallback(index);
            draft.on_failure = self.on_failure(&at, block.key_span("on_failure"), scope);
        }
        if let Some(at) = block.get("compensate") {
            let scope = Scope::Compensation(index);
            draft.compensate = self.compensate(&at, block.key_span("compensate"), scope);
        }
        draft.surroundings = self.surroundings(&block, scope);
        let mut parallelism = block.get("parallelism");
        let policy = if let Some(at) = block.get("retry") {
            self.retry(&at, Source::Step)
        } else if let Some(at) = block.get("retry_config") {
            self.retry_config(&at)
        } else if let Some(at) = block.get("work_config") {
            self.work_config(&at).map(|(policy, inner)| {
                if let (Some(_), Some(inner)) = (&parallelism, &inner) {
                    let message = "`parallelism` is written for the step already".to_owned();
                    self.bad("conflicting_keys", inner, message).help = Some("keep one".into());
                }
                parallelism = parallelism.take().or(inner);
                policy
            })
        } else {
            None
        };
        draft.parallelism = parallelism.and_then(|at| self.count(&at, 1));
        (draft, policy)
    }

    /// The action, and the timeouts, of which an `http` may hold one.
    fn time(&mut self, block: &Block, draft: &mut StepDraft, scope: Scope) {
        let forever = "leave it out for no timeout";
        let own = block.get("timeout");
        let own_ms = own.as_ref().and_then(|at| self.positive_duration(at, forever));
        if let Some(read) = self.action(block, scope) {
            draft.action = read.action;
            let inner_ms =
                read.http_timeout.as_ref().and_then(|at| self.positive_duration(at, forever));
            if let (Some(_), Some(inner)) = (&own, &read.http_timeout) {
                let message = "`timeout` is written for the step already".to_owned();
                self.bad("conflicting_keys", inner, message).help = Some("keep one".into());
            }
            draft.timeout_ms = own_ms.or(inner_ms).or(read.default_timeout_ms);
        }
        if let Some(at) = block.get("heartbeat") {
            draft.heartbeat_ms = self.positive_duration(&at, "leave it out for no heartbeat");
        }
        draft.scheduling_timeout_ms = match block.get("scheduling_timeout") {
            Some(at) => self.duration(&at).filter(|ms| *ms > 0),
            None => Some(DAY_MS),
        };
    }

    fn for_each(&mut self, at: &At, owner: crate::node::Span) -> ForEach {
        let most = self.operator.max_items;
        if let Some(items) = at.node.as_list() {
            if items.len() > most as usize {
                self.too_many_items(at, items.len() as u64);
                return ForEach::Range(1);
            }
            return match self.json(at) {
                Some(serde_json::Value::Array(items)) => ForEach::List(Arc::from(items)),
                _ => ForEach::Range(1),
            };
        }
        if at.node.as_map().is_none() {
            let message = format!(
                "expected a list, `{{ range: N }}` or `{{ output: STEP }}`, not {}",
                at.node.describe()
            );
            self.bad("wrong_type", at, message);
            return ForEach::Range(1);
        }
        let Some(block) = self.block(at, Some(owner), &keys::FOR_EACH) else {
            return ForEach::Range(1);
        };
        if let Some(at) = block.get("range") {
            let Some(count) = self.count(&at, 0) else {
                return ForEach::Range(1);
            };
            if count > most {
                self.too_many_items(&at, u64::from(count));
                return ForEach::Range(1);
            }
            return ForEach::Range(count);
        }
        let output = block.get("output").and_then(|at| {
            let text = self.text(&at)?;
            let mut parts = text.split('.').map(str::to_owned);
            let step = parts.next().unwrap_or_default();
            let path: Vec<String> = parts.collect();
            if step.is_empty() || path.iter().any(String::is_empty) {
                let message = format!("{} does not name an output", quote(text));
                self.bad("invalid_value", &at, message).help =
                    Some("write `output: STEP` or `output: STEP.path`".into());
                return None;
            }
            Some(ForEach::Output { step, path })
        });
        output.unwrap_or(ForEach::Range(1))
    }

    fn too_many_items(&mut self, at: &At, count: u64) {
        let most = self.operator.max_items;
        let message = format!("{count} items; at most {most} are allowed");
        self.bad("too_large", at, message).help =
            Some("split the work over several jobs, or give each item more".into());
    }

    fn max_failed(&mut self, at: &At) -> Option<MaxFailed> {
        if let Some(Scalar::Str(text)) = at.node.scalar()
            && let Some(number) = text.strip_suffix('%')
        {
            let percent = number.parse::<f64>().ok().filter(|percent| percent.is_finite());
            if percent.is_none() {
                let message = format!("{} is not a percentage", quote(text));
                self.bad("invalid_value", at, message).help = Some("write it as `5%`".into());
            }
            return percent.map(MaxFailed::Percent);
        }
        if !matches!(at.node.scalar(), Some(Scalar::Int(_) | Scalar::Huge)) {
            let message = format!("expected a count or a percentage, not {}", at.node.describe());
            self.bad("wrong_type", at, message).help =
                Some("write `max_failed: 3` or `max_failed: 5%`".into());
            return None;
        }
        self.count(at, 0).map(MaxFailed::Count)
    }

    fn resources(&mut self, at: &At) -> Option<Resources> {
        let block = self.block(at, None, &keys::RESOURCES)?;
        let cpu = block.get("cpu").and_then(|at| {
            let cpu = self.number(&at)?;
            if cpu.is_finite() && cpu > 0.0 {
                return Some(cpu);
            }
            let message = "cpu is a number of cores above 0".to_owned();
            self.bad("invalid_value", &at, message).help = Some("write `cpu: 1`".into());
            None
        });
        let memory_bytes = block.get("memory").and_then(|at| self.size(&at));
        Some(Resources { cpu, memory_bytes })
    }

    /// Their names become names of variables, which know no case here.
    fn ports(&mut self, at: &At) -> Vec<String> {
        // An attempt holds each of them open until it starts.
        const MOST: usize = 100;
        let ports = self.names(at, "a port's name", MOST, "ports");
        let mut known = HashSet::new();
        for port in &ports {
            let variable = port.to_ascii_uppercase().replace('-', "_");
            if !known.insert(variable.clone()) {
                let message = format!("`STEADFAST_PORT_{variable}` would be set twice");
                self.bad("duplicate_value", at, message).help = Some("rename one".into());
            }
        }
        ports
    }
}
