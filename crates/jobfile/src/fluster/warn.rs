//! What a launch asks for that it will not get: the operator's budget may leave it fewer retries.

use steadfast_core::forecast::{BindingLimit, forecast};
use steadfast_core::plan::Plan;

use crate::problem::Warning;

/// In the words of its API; there is no file, so no line.
pub fn warnings(plan: &Plan) -> Vec<Warning> {
    let Some(step) = plan.steps().first() else { return vec![] };
    let forecast = forecast(plan, 0);
    let (Some(attempts), Some(retries)) = (step.policy.draft().max_attempts, forecast.retries)
    else {
        return vec![];
    };
    let whose = match forecast.binding_limit {
        BindingLimit::JobBudget => "the retry budget",
        BindingLimit::StepBudget => "the retry budget of a step",
        _ => return vec![],
    };
    let (asked, left) = (attempts.saturating_sub(1), retries);
    let message = format!(
        "{asked} retries were asked for; {whose} that the operator gives every job leaves {left}"
    );
    let path = "retry.max_retries_failure".to_owned();
    vec![Warning { code: "attempts_unreachable", path, line: 0, message }]
}
