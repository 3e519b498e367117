//! What holds for the whole job: its retry budget and its best effort, native or in AD-44's words.
//!
//! This is the only place that knows AD-44's spelling.

use steadfast_core::plan::{Allowance, BestEffort, Budget, BudgetCounts, LateResults, Ratio};
use steadfast_core::spelling::{Spelling, Unit};

use crate::keys;
use crate::node::Scalar;
use crate::operator::{Ceiling, Operator, seconds_to_ms};
use crate::policy::Source;
use crate::problem::quote;
use crate::reader::{At, Block, Reader};

const DEFAULT_FLOOR: u32 = 10;
const TOTAL: fn(&Operator) -> Ceiling = |operator| operator.budget_total;
const PER_STEP: fn(&Operator) -> Ceiling = |operator| operator.budget_per_step;

/// Where each part of a job's budget came from; none where the job has no such part.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BudgetSources {
    pub total: Option<Source>,
    pub per_step: Option<Source>,
    pub ratio: Option<Source>,
    pub floor: Option<Source>,
    pub counts: Option<Source>,
}

/// What the author of a job calls these keys, for explanations.
pub(crate) fn spelling(budget: BudgetSources, best: Option<BestEffortSources>) -> Spelling {
    let mut keys = vec![];
    if budget.counts == Some(Source::Ad44) {
        keys.push(("retry_budget.total", "retry_budget", Unit::Native));
        keys.push(("retry_budget.per_step", "retry_budget_per_workflow", Unit::Native));
    }
    if best.is_some_and(|best| best.min_datacenters == Source::Ad44) {
        keys.push(("min_datacenters", "best_effort_min_dcs", Unit::Native));
    }
    Spelling::new(None, &keys)
}

/// Where each part of a job's best effort came from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BestEffortSources {
    pub min_datacenters: Source,
    pub deadline: Source,
    pub grace: Source,
    pub late_results: Source,
}

impl BestEffortSources {
    /// Those of a job that says no more than that it wants some.
    fn unsaid(operator: &Operator) -> Self {
        let built_in = Operator::default();
        let from = |same: bool| if same { Source::Default } else { Source::Operator };
        let least = operator.best_effort_min_datacenters == built_in.best_effort_min_datacenters;
        let deadline = operator.best_effort_deadline_ms == built_in.best_effort_deadline_ms;
        Self {
            min_datacenters: from(least),
            deadline: from(deadline),
            grace: Source::Default,
            late_results: from(operator.late_results == built_in.late_results),
        }
    }
}

impl Reader<'_> {
    pub(crate) fn budget(&mut self, job: &Block) -> (Option<Budget>, BudgetSources) {
        let none = (None, BudgetSources::default());
        let written = job.get("retry_budget");
        let share = job.get("retry_budget_per_workflow");
        match (&written, &share) {
            (None, None) if self.operator.budget_required => self.required_budget(),
            (None, None) => none,
            (Some(at), Some(_)) if at.node.as_map().is_some() => {
                self.mixed(job, "retry_budget_per_workflow", "retry_budget", "per_step");
                none
            }
            (Some(at), None) if at.node.as_map().is_some() => {
                self.native_budget(at).unwrap_or(none)
            }
            (Some(at), _) if !matches!(at.node.scalar(), Some(Scalar::Int(_) | Scalar::Huge)) => {
                let message =
                    format!("expected a map or a number of retries, not {}", at.node.describe());
                self.bad("wrong_type", at, message).help =
                    Some("write `retry_budget: { total: 20, per_step: 3 }`".into());
                none
            }
            _ => self.ad44_budget(written.as_ref(), share.as_ref()),
        }
    }

    fn mixed(&mut self, job: &Block, key: &str, native: &str, instead: &str) {
        let message = format!("`{key}` cannot stand beside the map `{native}`");
        let help = format!("write `{instead}` inside `{native}` instead");
        self.bad_at("conflicting_keys", &job.path(key), job.key_span(key), message).help =
            Some(help);
    }

    fn required_budget(&self) -> (Option<Budget>, BudgetSources) {
        let given = |ceiling: Ceiling| {
            Some(Allowance { requested: ceiling.given(), effective: ceiling.given() })
        };
        let budget = Budget {
            total: given(self.operator.budget_total),
            per_step: given(self.operator.budget_per_step),
            ratio: None,
            counts: BudgetCounts::Failures,
        };
        let sources = BudgetSources {
            total: Some(Source::Operator),
            per_step: Some(Source::Operator),
            counts: Some(Source::Default),
            ..BudgetSources::default()
        };
        (Some(budget), sources)
    }

    pub(crate) fn native_budget(&mut self, at: &At) -> Option<(Option<Budget>, BudgetSources)> {
        let block = self.block(at, None, &keys::BUDGET)?;
        let by_ratio = block.has("ratio");
        let mut sources = BudgetSources::default();
        let mut part = |key, of, source: &mut Option<Source>| {
            let at = block.get(key);
            if by_ratio && at.is_none() {
                return None;
            }
            let (allowance, from) = self.allowance(at.as_ref(), of, Source::Job);
            *source = Some(from);
            Some(allowance)
        };
        let total = part("total", TOTAL, &mut sources.total);
        let per_step = part("per_step", PER_STEP, &mut sources.per_step);
        let floor = block.get("floor").map(|at| self.count(&at, 0));
        if floor.is_some() && !by_ratio {
            let message = "floor has no effect without `ratio`".to_owned();
            self.warn("unused_key", block.path("floor"), block.key_span("floor").line, message);
        }
        let ratio = block.get("ratio").and_then(|at| self.number(&at)).map(|ratio| {
            sources.ratio = Some(Source::Job);
            sources.floor = Some(floor.map_or(Source::Default, |_| Source::Job));
            Ratio { ratio, floor: floor.flatten().unwrap_or(DEFAULT_FLOOR) }
        });
        sources.counts = Some(Source::Default);
        let mut counts = BudgetCounts::default();
        if let Some(at) = block.get("counts") {
            let words = [("failures", BudgetCounts::Failures), ("all", BudgetCounts::All)];
            counts = self.word(&at, &words).unwrap_or_default();
            sources.counts = Some(Source::Job);
        }
        let budget = Budget { total, per_step, ratio, counts };
        Some((Some(budget), sources))
    }

    fn ad44_budget(
        &mut self,
        total: Option<&At>,
        share: Option<&At>,
    ) -> (Option<Budget>, BudgetSources) {
        let (total, total_source) = self.allowance(total, TOTAL, Source::Ad44);
        let (per_step, share_source) = self.allowance(share, PER_STEP, Source::Ad44);
        // AD-44's budget is about failed dispatches: what happened to an attempt does not matter.
        let counts = BudgetCounts::All;
        let budget = Budget { total: Some(total), per_step: Some(per_step), ratio: None, counts };
        let sources = BudgetSources {
            total: Some(total_source),
            per_step: Some(share_source),
            counts: Some(Source::Ad44),
            ..BudgetSources::default()
        };
        (Some(budget), sources)
    }

    /// What was asked for, under its ceiling. In AD-44's spelling 0 asks for the default.
    fn allowance(
        &mut self,
        at: Option<&At>,
        of: fn(&Operator) -> Ceiling,
        written: Source,
    ) -> (Allowance, Source) {
        let ceiling = of(self.operator);
        let given = ceiling.given();
        let default = if given == of(&Operator::default()).given() {
            Source::Default
        } else {
            Source::Operator
        };
        let Some((at, requested)) = at.and_then(|at| Some((at, self.count(at, 0)?))) else {
            let allowance = Allowance { requested: given, effective: given };
            return (allowance, default);
        };
        let (effective, source) = match requested {
            0 if written == Source::Ad44 => (given, default),
            requested if requested > ceiling.max => {
                let message = format!(
                    "{requested} retries were asked for; the operator's ceiling leaves {}",
                    ceiling.max
                );
                self.warn("budget_clamped", at.path.clone(), at.node.span().line, message);
                (ceiling.max, Source::Ceiling)
            }
            requested => (requested, written),
        };
        let allowance = Allowance { requested, effective };
        (allowance, source)
    }

    pub(crate) fn best_effort(&mut self, job: &Block) -> Option<(BestEffort, BestEffortSources)> {
        const AD44: [(&str, &str); 2] = [
            ("best_effort_min_dcs", "min_datacenters"),
            ("best_effort_deadline_seconds", "deadline"),
        ];
        let mut best = BestEffort {
            min_datacenters: self.operator.best_effort_min_datacenters,
            min_requested: None,
            deadline_ms: self.operator.best_effort_deadline_ms,
            grace_ms: 0,
            late_results: self.operator.late_results,
        };
        let mut sources = BestEffortSources::unsaid(self.operator);
        let written = job.get("best_effort");
        if let Some(at) = written.as_ref().filter(|at| at.node.as_map().is_some()) {
            for (key, native) in AD44.into_iter().filter(|(key, _)| job.has(key)) {
                self.mixed(job, key, "best_effort", native);
            }
            self.native_best_effort(at, &mut best, &mut sources);
            self.warn_without_datacenters(job);
            return Some((best, sources));
        }
        let on = written.map_or(Some(false), |at| {
            if at.node.scalar().is_none_or(|scalar| !matches!(scalar, Scalar::Bool(_))) {
                let message = format!("expected a map, true or false, not {}", at.node.describe());
                self.bad("wrong_type", &at, message).help =
                    Some("write `best_effort: { min_datacenters: 2, deadline: 5m }`".into());
                return None;
            }
            self.flag(&at)
        })?;
        if let Some(at) = job.get("best_effort_min_dcs")
            && let Some(count) = self.count(&at, 0)
        {
            best.min_datacenters = count;
            best.min_requested = Some(count);
            sources.min_datacenters = Source::Ad44;
        }
        if let Some(at) = job.get("best_effort_deadline_seconds")
            && let Some(seconds) = self.number(&at)
        {
            if let Some(ms) = seconds_to_ms(seconds) {
                best.deadline_ms = ms;
                sources.deadline = Source::Ad44;
            } else {
                let text = quote(at.node.text().unwrap_or_default());
                let message = format!("{text} is not a number of seconds to wait");
                self.bad("invalid_value", &at, message).help = Some("write `300`".into());
            }
        }
        if !on {
            for (key, _) in AD44.into_iter().filter(|(key, _)| job.has(key)) {
                let message = format!("{key} has no effect without `best_effort: true`");
                self.warn("unused_key", job.path(key), job.key_span(key).line, message);
            }
            return None;
        }
        self.warn_without_datacenters(job);
        Some((best, sources))
    }

    fn warn_without_datacenters(&mut self, job: &Block) {
        let named = job.get("datacenters").and_then(|at| at.node.as_list().map(<[_]>::len));
        if named.unwrap_or(0) == 0 {
            let message = "the job has no `datacenters`, so there are none to do without: it has one \
                           run, and the deadline ends that";
            let line = job.key_span("best_effort").line;
            let code = "best_effort_without_datacenters";
            self.warn(code, job.path("best_effort"), line, message.to_owned());
        }
    }

    fn native_best_effort(
        &mut self,
        at: &At,
        best: &mut BestEffort,
        sources: &mut BestEffortSources,
    ) {
        let Some(block) = self.block(at, None, &keys::BEST_EFFORT) else {
            return;
        };
        for (key, source) in [
            ("min_datacenters", &mut sources.min_datacenters),
            ("deadline", &mut sources.deadline),
            ("grace", &mut sources.grace),
            ("late_results", &mut sources.late_results),
        ] {
            if block.has(key) {
                *source = Source::Job;
            }
        }
        if let Some(at) = block.get("min_datacenters")
            && let Some(count) = self.count(&at, 0)
        {
            best.min_datacenters = count;
            best.min_requested = Some(count);
        }
        if let Some(at) = block.get("deadline")
            && let Some(ms) = self.positive_duration(&at, "write `deadline: 5m`")
        {
            best.deadline_ms = ms;
        }
        if let Some(at) = block.get("grace") {
            best.grace_ms = self.duration(&at).unwrap_or(0);
        }
        if let Some(at) = block.get("late_results") {
            let words =
                [("log_only", LateResults::LogOnly), ("update_result", LateResults::UpdateResult)];
            best.late_results = self.word(&at, &words).unwrap_or_default();
        }
    }
}
