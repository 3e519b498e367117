//! What a valid job says that it will not get. One warning per place, however many steps it is for.

use std::collections::HashMap;

use steadfast_core::forecast::{BindingLimit, Forecast, Jittered, forecast, step_retries_at_most};
use steadfast_core::plan::{Budget, BudgetCounts, ForEach, Plan, Step};
use steadfast_core::policy::PolicyDraft;
use steadfast_core::time::human_ms;

use crate::job::ReadJob;
use crate::operator::Operator;
use crate::policy::{Limit, PolicyBlock, Source, layers, merge, unused};
use crate::problem::{Positions, Warning};

pub(crate) fn warnings(job: &ReadJob, places: &Positions, operator: &Operator) -> Vec<Warning> {
    let mut found = FoundWarnings::default();
    let mut forecasts = HashMap::new();
    let steps = job.plan.steps();
    for (index, step) in steps.iter().enumerate() {
        let own = job.step_blocks[index].as_ref();
        let blocks = Blocks {
            own,
            job: job.job_block.as_ref().filter(|_| own.is_none_or(PolicyBlock::inherits)),
        };
        // Writing the key costs more than one forecast.
        let key = (steps.len() > 1).then(|| memo_key(step));
        let forecast = forecasts.entry(key).or_insert_with(|| forecast(&job.plan, index as u32));
        let draft = step.policy.draft();
        let first = step.policy.delays().base_ms(1);
        let no_retry =
            draft.retryable && draft.delay_budget_ms.is_some_and(|budget| budget < first);
        // The same cause at the same place is told once.
        if !no_retry || blocks.writer("max_attempts").is_some() {
            unreachable_attempts(&mut found, step, &job.plan, forecast, &blocks);
        }
        if draft.max_attempts.is_none() && draft.retryable {
            let end = match forecast.retries {
                None => "only success, a rule or somebody ends this".to_owned(),
                Some(retries) => {
                    let limit = blocks.name(forecast.binding_limit.name());
                    format!("{limit} ends this after attempt {}", retries + 1)
                }
            };
            let message = format!("attempts are unlimited: {end}");
            found.add("unlimited_attempts", blocks.path("max_attempts"), message);
        }
        excessive_attempts(&mut found, draft, forecast, &blocks);
        for (i, rule) in draft.rules.iter().enumerate() {
            if let Some(delay) = rule.delay_ms.filter(|&ms| ms > draft.max_retry_after_ms) {
                let cap = human_ms(draft.max_retry_after_ms);
                let message = format!(
                    "the delay of {} is cut to {cap} by max_retry_after; raise that too",
                    human_ms(delay)
                );
                found.add("delay_capped", format!("{}[{i}].delay", blocks.path("rules")), message);
            }
        }
        if no_retry {
            let message = format!(
                "{} ({}) is below the first delay ({}), so there is no retry",
                blocks.delay_budget(),
                human_ms(draft.delay_budget_ms.unwrap_or(0)),
                human_ms(first)
            );
            found.add("budget_below_first_delay", blocks.path("delay_budget"), message);
        }
        if let Some(own) = own {
            within_block(&mut found, own, draft, |_| false);
        }
    }
    unreachable_share(&mut found, job);
    if let Some(block) = &job.job_block {
        let (draft, _) = merge(&layers(None, Some(block), &operator.retry));
        let heirs = job.plan.steps().iter().zip(&job.step_blocks);
        let heirs = heirs.filter(|(_, own)| own.as_ref().is_some_and(PolicyBlock::inherits));
        let heirs: Vec<&PolicyDraft> = heirs.map(|(step, _)| step.policy.draft()).collect();
        within_block(&mut found, block, &draft, |key| {
            heirs.iter().any(|draft| unused(draft, key).is_none())
        });
    }
    found.finish(places)
}

/// What a block writes that contradicts itself. `elsewhere`: some other policy uses the key.
fn within_block(
    found: &mut FoundWarnings,
    block: &PolicyBlock,
    draft: &PolicyDraft,
    elsewhere: impl Fn(&str) -> bool,
) {
    for key in ["backoff", "initial_delay", "multiplier", "increment"] {
        if block.writes(key)
            && let Some(why) = unused(draft, key)
            && !elsewhere(key)
        {
            let path = block.path_of(key);
            let name = path.rsplit('.').next().unwrap_or(key);
            let message = format!("{name} has no effect: {why}");
            found.add("unused_key", path, message);
        }
    }
    let attempts = block.overrides.max_attempts;
    if block.overrides.retryable == Some(false) && attempts.is_some_and(|n| n != Limit::Count(1)) {
        let message = "max_attempts has no effect beyond the first: `retryable: false` stops there";
        found.add("not_retryable_with_attempts", block.path_of("max_attempts"), message.into());
    }
}

fn unreachable_attempts(
    found: &mut FoundWarnings,
    step: &Step,
    plan: &Plan,
    forecast: &Forecast,
    blocks: &Blocks,
) {
    let draft = step.policy.draft();
    let (Some(max_attempts), Some(retries)) = (draft.max_attempts, forecast.retries) else {
        return;
    };
    let budget = plan.budget();
    let because = match forecast.binding_limit {
        BindingLimit::DelayBudget => {
            let budget = human_ms(draft.delay_budget_ms.unwrap_or(0));
            format!("{} of {budget}", blocks.delay_budget())
        }
        BindingLimit::Window => format!("the window of {}", human_ms(draft.window_ms.unwrap_or(0))),
        BindingLimit::JobBudget => format!("the job's retry budget of {retries}"),
        BindingLimit::StepBudget => format!(
            "the step's share of the job's retry budget, {}",
            budget.and_then(Budget::per_step).unwrap_or(0)
        ),
        BindingLimit::MaxAttempts | BindingLimit::NotRetryable | BindingLimit::None => return,
    };
    let limit = match forecast.binding_limit {
        BindingLimit::DelayBudget => blocks.path("delay_budget"),
        BindingLimit::Window => blocks.path("window"),
        _ => "retry_budget".to_owned(),
    };
    let path = match blocks.writer("max_attempts") {
        Some(block) => block.path_of("max_attempts"),
        None => limit,
    };
    let time = matches!(forecast.binding_limit, BindingLimit::DelayBudget | BindingLimit::Window);
    let caveat = match forecast.jitter.filter(|_| time) {
        Some(Jittered { attempts_at_least: Some(least), attempts_at_most: Some(most), .. })
            if least < most =>
        {
            format!("; with jitter after attempt {least} to {most}")
        }
        _ => String::new(),
    };
    // A window also holds the time that attempts take, which nobody knows yet.
    let latest = if forecast.binding_limit == BindingLimit::Window { "at the latest " } else { "" };
    let message = format!(
        "an item that keeps failing ends {latest}after attempt {} of {max_attempts}, because of \
         {because}{caveat}",
        retries + 1
    );
    found.add("attempts_unreachable", path, message);
}

/// More attempts than this are written by people who mean "as long as it takes".
const MANY_ATTEMPTS: u32 = 1000;

/// `max_attempts: 999999`, where nothing ends it sooner.
fn excessive_attempts(
    found: &mut FoundWarnings,
    draft: &PolicyDraft,
    forecast: &Forecast,
    blocks: &Blocks,
) {
    let Some(attempts) = draft.max_attempts.filter(|&attempts| attempts > MANY_ATTEMPTS) else {
        return;
    };
    let Some(block) = blocks.writer("max_attempts") else { return };
    if forecast.binding_limit != BindingLimit::MaxAttempts {
        return;
    }
    let waits = match forecast.delay_total_ms {
        Some(ms) if ms > 0 => format!("waits {} in all before it gives up", human_ms(ms)),
        _ => "is tried without a pause".to_owned(),
    };
    let (unlimited, in_time) = match block.source {
        Source::Argyll => ("max_retries: -1", "a native `retry` with `delay_budget` or `window`"),
        Source::Prodigy => ("attempts: unlimited", "`retry_budget`"),
        _ => ("max_attempts: unlimited", "`delay_budget` or `window`"),
    };
    let message = format!(
        "{attempts} attempts are as good as no limit: an item that keeps failing {waits}; write \
         `{unlimited}` if that is meant, or bound the time with {in_time}"
    );
    found.add("excessive_attempts", block.path_of("max_attempts"), message);
}

/// A share that somebody wrote, and that no step's attempts can use up.
fn unreachable_share(found: &mut FoundWarnings, job: &ReadJob) {
    let plan = &job.plan;
    let Some(budget) = plan.budget() else { return };
    let sources = &job.budget_sources;
    if !matches!(sources.per_step, Some(Source::Job | Source::Ad44 | Source::Ceiling)) {
        return;
    }
    let path = if sources.counts == Some(Source::Ad44) {
        "retry_budget_per_workflow"
    } else {
        "retry_budget.per_step"
    };
    let share = budget.per_step().map_or(0, u64::from);
    let reaches = (0..plan.steps().len() as u32).map(|step| step_retries_at_most(plan, step));
    // One that knows no limit can use up any share.
    let Some(most) = reaches.collect::<Option<Vec<u64>>>().and_then(|all| all.into_iter().max())
    else {
        return;
    };
    if most >= share {
        return;
    }
    let rest = match budget.counts {
        BudgetCounts::All => "; only lost workers can spend the rest",
        BudgetCounts::Failures => "",
    };
    let message = format!(
        "no step can spend its share of {share}: its `max_attempts` allows {most} at most after \
         failures{rest}; raise `max_attempts`, or lower the share"
    );
    found.add("budget_unreachable", path.to_owned(), message);
}

/// Two steps with the same key fail in the same way.
fn memo_key(step: &Step) -> (String, usize) {
    let items = match &step.for_each {
        ForEach::List(items) => items.len(),
        ForEach::Range(count) => *count as usize,
        ForEach::Once | ForEach::Output { .. } => 1,
    };
    (format!("{:?}", step.policy.draft()), items)
}

/// The blocks of the file that hold for a step.
struct Blocks<'a> {
    own: Option<&'a PolicyBlock>,
    job: Option<&'a PolicyBlock>,
}

impl Blocks<'_> {
    fn writer(&self, key: &str) -> Option<&PolicyBlock> {
        let mut blocks = self.own.into_iter().chain(self.job);
        blocks.find(|block| block.writes(key))
    }

    /// What the file calls a key.
    fn name<'k>(&self, key: &'k str) -> &'k str {
        self.writer(key).map_or(key, |block| block.spelling(key))
    }

    fn delay_budget(&self) -> String {
        match self.name("delay_budget") {
            "delay_budget" => "the delay budget".to_owned(),
            theirs => format!("the {theirs}"),
        }
    }

    fn path(&self, key: &str) -> String {
        self.writer(key).map_or_else(|| "steps".to_owned(), |block| block.path_of(key))
    }
}

#[derive(Default)]
struct FoundWarnings {
    warnings: Vec<(Warning, usize)>,
    places: HashMap<(&'static str, String), usize>,
}

impl FoundWarnings {
    fn add(&mut self, code: &'static str, path: String, message: String) {
        let next = self.warnings.len();
        match self.places.entry((code, path.clone())) {
            std::collections::hash_map::Entry::Occupied(place) => {
                self.warnings[*place.get()].1 += 1;
            }
            std::collections::hash_map::Entry::Vacant(place) => {
                place.insert(next);
                let warning = Warning { code, path, line: 0, message };
                self.warnings.push((warning, 1));
            }
        }
    }

    fn finish(self, places: &Positions) -> Vec<Warning> {
        self.warnings
            .into_iter()
            .map(|(mut warning, count)| {
                warning.line = places.locate(&warning.path).line;
                if count > 1 {
                    warning.message = format!("{} ({count} steps)", warning.message);
                }
                warning
            })
            .collect()
    }
}
