//! The whole file: its top level, the policies of its steps, and the plan that core makes of them.

use std::collections::{BTreeMap, HashSet};

use steadfast_core::plan::{
    MAX_DATACENTERS, MAX_ITEMS, MAX_STEPS, NotBefore, Plan, PlanDraft, StepDraft,
};
use steadfast_core::policy::{Policy, Problem as CoreProblem, RuleDraft};
use steadfast_core::time::{Timestamp, human_ms};

use crate::budget::{self, BestEffortSources, BudgetSources};
use crate::keys;
use crate::node::{Node, Span};
use crate::policy::{PolicyBlock, Source, Sources, layers, longest_first, merge};
use crate::problem::{Positions, quote};
use crate::reader::{At, Block, Reader};
use crate::references::{self, Scope, fans_out};
use crate::retry::spelling;

/// What the rules of all steps may weigh together, in bytes.
const RULES_MOST: usize = 32 << 20;

/// A file that was read, with what the warnings are made from.
#[derive(Debug)]
pub(crate) struct ReadJob {
    pub(crate) plan: Plan,
    pub(crate) sources: Vec<Sources>,
    pub(crate) budget_sources: BudgetSources,
    pub(crate) best_effort_sources: Option<BestEffortSources>,
    pub(crate) job_block: Option<PolicyBlock>,
    pub(crate) step_blocks: Vec<Option<PolicyBlock>>,
}

impl Reader<'_> {
    /// None when there are problems.
    pub(crate) fn job(&mut self, root: &Node, places: &Positions) -> Option<ReadJob> {
        let at = At { node: root, path: String::new() };
        if root.as_map().is_none() {
            let message = format!("a job file is a map, not {}", root.describe());
            self.bad("wrong_type", &at, message).help =
                Some("begin with `name: my-job` and `steps:`".into());
            return None;
        }
        let block = self.block(&at, Some(Span::START), &keys::JOB)?;
        let mut draft = PlanDraft::new("", vec![]);
        draft.max_items = Some(self.operator.max_items).filter(|most| *most < MAX_ITEMS);
        self.top(&block, &mut draft);
        let (budget, budget_sources) = self.budget(&block);
        draft.budget = budget;
        let best_effort = self.best_effort(&block);
        draft.best_effort = best_effort.map(|(best, _)| best);

        let job_block = block.get("retry").and_then(|at| self.retry(&at, Source::Job));
        let (job_draft, job_sources) =
            merge(&layers(None, job_block.as_ref(), &self.operator.retry));
        let job_policy = match Policy::new(job_draft) {
            Ok(policy) => Some(policy),
            Err(problems) => {
                for problem in problems.0 {
                    if !guesswork(&problem, job_block.as_ref(), None) {
                        self.job_policy_problem(problem, places, job_block.as_ref());
                    }
                }
                None
            }
        };
        let stand_in = job_policy.clone().unwrap_or_default();
        let mut step_blocks = Vec::new();
        let mut sources = Vec::new();
        if let Some(at) = block.get("steps") {
            let mut entries =
                self.entries(&at, "{ hello: { run: echo hello } }").unwrap_or_default();
            if entries.len() > MAX_STEPS {
                let message = format!("{} steps; at most {MAX_STEPS} are allowed", entries.len());
                self.bad("too_large", &at, message);
                entries = &[];
            }
            for (index, entry) in entries.iter().enumerate() {
                let (mut step, own) = self.step(&at.entry(entry), entry, index, &stand_in);
                let from = match &own {
                    Some(own) => self.step_policy(
                        &mut step,
                        own,
                        job_block.as_ref(),
                        job_policy.is_some(),
                        places,
                    ),
                    None => job_sources,
                };
                if !self.rules_fit(&step.policy, &at.entry(entry)) {
                    step.policy = Policy::default();
                }
                let written = own.as_ref().or(job_block.as_ref());
                step.spelling = written.map(|block| spelling(block.source)).unwrap_or_default();
                step.policy_sources = from.given();
                draft.steps.push(step);
                sources.push(from);
                step_blocks.push(own);
            }
        }
        draft.spelling = budget::spelling(budget_sources, best_effort.map(|(_, from)| from));
        let plan = self.plan(draft, places, &block)?;
        let best_effort_sources = best_effort.map(|(_, sources)| sources);
        Some(ReadJob { plan, sources, budget_sources, best_effort_sources, job_block, step_blocks })
    }

    /// Each step has its policy whole, also what it has of its job's: few rules in the file may be many in all.
    fn rules_fit(&mut self, policy: &Policy, at: &At) -> bool {
        const RULE: usize = 100;
        let text = |rule: &RuleDraft| rule.error.as_ref().map_or(0, String::len);
        let weight: usize = policy.draft().rules.iter().map(|rule| RULE + text(rule)).sum();
        let before = self.rules_weight;
        self.rules_weight = before.saturating_add(weight);
        if before <= RULES_MOST && self.rules_weight > RULES_MOST {
            let message = format!(
                "the rules of all steps up to this one, with those they have from the job, are more \
                 than {} MiB",
                RULES_MOST >> 20
            );
            self.bad("too_large", at, message).help =
                Some("write the rules into the steps that need them".into());
        }
        self.rules_weight <= RULES_MOST
    }

    fn top(&mut self, block: &Block, draft: &mut PlanDraft) {
        if let Some(at) = block.get("name") {
            draft.name = self.job_name(&at).unwrap_or_default();
        }
        if let Some(at) = block.get("timeout") {
            draft.timeout_ms = self.positive_duration(&at, "leave it out for no timeout");
        }
        if let Some(at) = block.get("goals") {
            draft.goals = self.names(&at, "a step's name", MAX_STEPS, "goals");
            if at.node.as_list().is_some_and(<[Node]>::is_empty) {
                let message = "without goals nothing decides whether the job succeeds".to_owned();
                self.bad("missing_value", &at, message).help =
                    Some("leave `goals` out for the steps that nothing else needs".into());
            }
        }
        if let Some(at) = block.get("datacenters") {
            draft.datacenters =
                self.names(&at, "a datacenter's name", MAX_DATACENTERS, "datacenters");
        }
        if let Some(at) = block.get("not_before") {
            draft.not_before = self.not_before(&at);
        }
        if let Some(at) = block.get("priority") {
            let most = i64::from(i32::MAX);
            let priority = self.int(&at, i64::from(i32::MIN), most);
            draft.priority = priority.unwrap_or(0) as i32;
        }
        draft.labels = self.labels(block);
        draft.surroundings = self.surroundings(block, Scope::Job);
    }

    fn job_name(&mut self, at: &At) -> Option<String> {
        const LONGEST: usize = 200;
        let text = self.text(at)?;
        // A NUL has been refused wherever it stands.
        let odd = |c: &char| *c != '\0' && !c.is_alphanumeric() && !" ._-/:".contains(*c);
        let message = if text.trim().is_empty() {
            "the job's name is empty".to_owned()
        } else if text.chars().count() > LONGEST {
            format!("a job's name has at most {LONGEST} characters")
        } else if let Some(c) = text.chars().find(odd) {
            let c = quote(&c.to_string());
            format!(
                "a job's name consists of letters, digits, spaces and `._-/:`, so it cannot contain {c}"
            )
        } else {
            return Some(text.to_owned());
        };
        self.bad("invalid_name", at, message).help =
            Some("write it as `name: nightly-index`".into());
        None
    }

    fn not_before(&mut self, at: &At) -> Option<NotBefore> {
        let text = self.text(at)?;
        if let Some(rest) = text.strip_prefix("in ") {
            return match steadfast_core::duration::parse_duration(rest.trim()) {
                Ok(ms) => Some(NotBefore::InMs(ms)),
                Err(message) => {
                    self.bad("invalid_duration", at, message);
                    None
                }
            };
        }
        let moment = text.parse::<jiff::Timestamp>().ok();
        let ms = moment.and_then(|moment| u64::try_from(moment.as_millisecond()).ok());
        if ms.is_none() {
            let message = format!("{} is not a time", quote(text));
            self.bad("invalid_value", at, message).help =
                Some("write it as `2030-01-31T08:00:00Z`, or `in 1h`".into());
        }
        ms.map(|ms| NotBefore::At(Timestamp(ms)))
    }

    fn job_policy_problem(
        &mut self,
        problem: CoreProblem,
        places: &Positions,
        block: Option<&PolicyBlock>,
    ) {
        let key = first_key(&problem.path);
        if let Some(block) = block.filter(|block| block.writes(key)) {
            self.refused_policy(problem, block, places);
        } else {
            let message = format!("the operator's retry settings: {}", problem.message);
            self.bad_at("invalid_value", "retry", Span::START, message);
        }
    }

    /// Lays the step's own block over the job's, and notes what core refuses at the place that
    /// wrote it. What the job's block alone got wrong has been noted there.
    fn step_policy(
        &mut self,
        step: &mut StepDraft,
        own: &PolicyBlock,
        job: Option<&PolicyBlock>,
        job_is_valid: bool,
        places: &Positions,
    ) -> Sources {
        let (draft, sources) = merge(&layers(Some(own), job, &self.operator.retry));
        let max_delay = draft.max_delay_ms.unwrap_or_default();
        let longest = longest_first(&draft.backoff, draft.initial_delay_ms);
        match Policy::new(draft) {
            Ok(policy) => step.policy = policy,
            Err(problems) => {
                for mut problem in problems.0 {
                    if guesswork(&problem, Some(own), job) {
                        continue;
                    }
                    let key = first_key(&problem.path);
                    let inherited = job.filter(|job| own.inherits() && job.writes(key));
                    if own.writes(key) {
                        let other = job.filter(|job| {
                            key == "max_delay" && own.inherits() && job.writes("initial_delay")
                        });
                        if let Some(job) = other.filter(|_| !own.writes("initial_delay")) {
                            let line = places.locate(&job.path_of("initial_delay")).line;
                            problem.help = Some(format!(
                                "raise it, or write `initial_delay` here too: it comes from the job's block on line {line}"
                            ));
                        }
                        self.refused_policy(problem, own, places);
                    } else if let (true, "max_delay", Some(job)) = (job_is_valid, key, inherited) {
                        let cause = if own.writes("backoff") && !own.writes("initial_delay") {
                            "backoff"
                        } else {
                            "initial_delay"
                        };
                        let path = own.path_of(cause);
                        let line = places.locate(&job.path_of("max_delay")).line;
                        problem.message = format!(
                            "{cause} ({}) is above max_delay ({}), which comes from the job's block on line {line}",
                            human_ms(longest),
                            human_ms(max_delay)
                        );
                        problem.help =
                            Some("write `max_delay` here too, or lower this delay".into());
                        self.refused(problem, &path, places);
                    } else if job_is_valid {
                        self.refused_policy(problem, inherited.unwrap_or(own), places);
                    }
                }
            }
        }
        sources
    }

    fn refused_policy(
        &mut self,
        mut problem: CoreProblem,
        block: &PolicyBlock,
        places: &Positions,
    ) {
        let path = deep_path(block, &problem.path);
        problem.message = block.spell(&problem.message);
        problem.help = match (block.source, first_key(&problem.path)) {
            (Source::Prodigy, "jitter") => Some("write `jitter_factor: 0.3`".into()),
            _ => problem.help.map(|help| block.spell(&help)),
        };
        self.refused(problem, &path, places);
    }

    fn refused(&mut self, problem: CoreProblem, path: &str, places: &Positions) {
        let span = places.locate(path);
        self.bad_at(problem.code, path, span, problem.message).help = problem.help;
    }

    /// A minimum of datacenters that there are not, in the words of whoever asked for it.
    fn refused_minimum(&mut self, problem: CoreProblem, block: &Block, places: &Positions) {
        let native = block.get("best_effort").filter(|at| at.node.get("min_datacenters").is_some());
        if block.has("best_effort_min_dcs") {
            self.refused(in_ad44(problem), "best_effort_min_dcs", places);
        } else if native.is_some() {
            self.refused(problem, "best_effort.min_datacenters", places);
        } else {
            let (least, given) =
                (self.operator.best_effort_min_datacenters, block.get("datacenters"));
            let count = given.and_then(|at| at.node.as_list().map(<[_]>::len)).unwrap_or(0).max(1);
            let is_map = block.get("best_effort").is_some_and(|at| at.node.as_map().is_some());
            let key = if is_map { "min_datacenters" } else { "best_effort_min_dcs" };
            let plural = if count == 1 { "" } else { "s" };
            let message = format!(
                "the operator's minimum is {least} datacenters (BEST_EFFORT_DEFAULT_MIN_DCS, or \
                 `best_effort.default_min_datacenters` in the settings), but the job has {count} \
                 datacenter{plural}"
            );
            let help = Some(format!("write `{key}: {count}` or less, or name more datacenters"));
            self.refused(CoreProblem { message, help, ..problem }, "best_effort", places);
        }
    }

    /// Core's checks and those of the templates, less what was noted about the same place.
    fn plan(&mut self, draft: PlanDraft, places: &Positions, block: &Block) -> Option<Plan> {
        let index: BTreeMap<&str, usize> = draft
            .steps
            .iter()
            .enumerate()
            .map(|(index, step)| (step.name.as_str(), index))
            .collect();
        let uses = std::mem::take(&mut self.uses);
        let has_secret = |step: usize, name: &str| {
            let both = [&draft.surroundings, &draft.steps[step].surroundings];
            both.iter().any(|around| around.secrets.iter().any(|secret| secret == name))
        };
        let fans_out = |step: usize| fans_out(&draft.steps[step].for_each);
        let named = references::check_names(&uses, &index, fans_out, has_secret);
        self.problems.extend(named);
        let no_steps = !block.has("steps");
        match Plan::new(draft) {
            Ok(plan) => {
                self.problems.extend(references::check_order(&uses, &plan));
                self.problems.is_empty().then_some(plan)
            }
            Err(problems) => {
                let known: HashSet<String> =
                    (self.problems.iter()).map(|problem| problem.path.clone()).collect();
                for problem in problems.0 {
                    if known.contains(&problem.path) || no_steps && problem.path == "steps" {
                        continue;
                    }
                    let path = problem.path.clone();
                    if path == "best_effort.min_datacenters" {
                        self.refused_minimum(problem, block, places);
                        continue;
                    }
                    self.refused(problem, &path, places);
                }
                None
            }
        }
    }
}

/// A cap that is compared with a delay which could not be read.
fn guesswork(problem: &CoreProblem, own: Option<&PolicyBlock>, job: Option<&PolicyBlock>) -> bool {
    let mut blocks = own.into_iter().chain(job);
    problem.path == "max_delay" && blocks.any(|block| block.broken)
}

fn in_ad44(mut problem: CoreProblem) -> CoreProblem {
    let texts = std::iter::once(&mut problem.message).chain(&mut problem.help);
    for text in texts {
        *text = text.replace("min_datacenters", "best_effort_min_dcs");
    }
    problem
}

fn first_key(path: &str) -> &str {
    &path[..path.find(['.', '[']).unwrap_or(path.len())]
}

/// A path inside a policy, in the words of the block that wrote it.
fn deep_path(block: &PolicyBlock, path: &str) -> String {
    let key = first_key(path);
    format!("{}{}", block.path_of(key), &path[key.len()..])
}
