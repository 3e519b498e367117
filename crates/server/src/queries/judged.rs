//! A job's log under another policy, and who drew on its budget.

use serde_json::{Map, Value, json};
use steadfast_core::explain::{BudgetAuditor, BudgetUse, WhatIf, WhatIfJudge};
use steadfast_core::select::ItemSelector;
use steadfast_jobfile::{Operator, Problem, WrittenPolicyChange, policy_change};
use steadfast_store::Reader;

use super::{each_event, no_part, plan_of};
use crate::error::ApiError;

/// What was changed, and what would have been decided.
#[derive(Clone, Debug, serde::Serialize, serde::Deserialize)]
pub struct WhatIfAnswer {
    /// Each key that differs, as `plan` shows them: what it is, and what it would be.
    pub policy: Map<String, Value>,
    #[serde(flatten)]
    pub judged: WhatIf,
}

/// Why there is no answer.
#[derive(Debug)]
pub enum NoAnswer {
    /// The policy is not valid.
    Invalid(Vec<Problem>),
    Failed(ApiError),
}

impl From<ApiError> for NoAnswer {
    fn from(why: ApiError) -> Self {
        Self::Failed(why)
    }
}

impl From<NoAnswer> for ApiError {
    fn from(why: NoAnswer) -> Self {
        match why {
            NoAnswer::Invalid(problems) => Self::InvalidPolicy(problems),
            NoAnswer::Failed(why) => why,
        }
    }
}

/// `with`: keys of a `retry` block, as JSON or YAML.
pub fn what_if(
    reader: &mut dyn Reader,
    id: &str,
    step: Option<&str>,
    with: &[u8],
    operator: &Operator,
) -> Result<WhatIfAnswer, NoAnswer> {
    let first = reader.events(id, 0, 1).map_err(ApiError::from)?;
    let plan = plan_of(&first).ok_or_else(|| ApiError::no_job(id))?;
    let only = match step {
        None => ItemSelector::default(),
        Some(name) => plan.select(name).map_err(|why| no_part(id, &why))?,
    };
    let WrittenPolicyChange { change, keys } =
        policy_change(plan, only.step, with, operator).map_err(NoAnswer::Invalid)?;
    let mut policy: Map<String, Value> = keys
        .into_iter()
        .map(|(key, from, to)| (key.to_owned(), json!({ "from": from, "to": to })))
        .collect();
    if let Some(budget) = &change.budget {
        let from = plan.budget();
        policy.insert("retry_budget".to_owned(), json!({ "from": from, "to": budget }));
    }
    let mut judge = WhatIfJudge::new(change, only);
    each_event(reader, id, (0, u64::MAX), |record| judge.see(&record).map_err(ApiError::internal))?;
    let judged = judge.what_if().map_err(ApiError::internal)?;
    Ok(WhatIfAnswer { policy, judged })
}

pub(super) fn budget_use(reader: &mut dyn Reader, id: &str) -> Result<BudgetUse, ApiError> {
    if reader.row(id)?.is_none() {
        return Err(ApiError::no_job(id));
    }
    let mut auditor = BudgetAuditor::default();
    each_event(reader, id, (0, u64::MAX), |record| {
        auditor.see(&record).map_err(ApiError::internal)
    })?;
    auditor.budget_use().map_err(ApiError::internal)
}
