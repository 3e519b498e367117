//! Logs of jobs that the real engine has decided.

use std::sync::Arc;

use steadfast_core::event::{Event, JobId, RecordedEvent};
use steadfast_core::plan::Plan;
use steadfast_core::time::Timestamp;
use steadfast_jobfile::{Operator, load};
use steadfast_server::observability::{Metrics, PER_JOB_MOST, ProcessFacts};
use steadfast_sim::{Options, load_script, rehearse_into};

pub(crate) fn plan(job: &str) -> Arc<Plan> {
    let loaded = load("job.yaml", job.as_bytes(), &Operator::default());
    Arc::new(loaded.expect("a valid job").plan)
}

pub(crate) fn metrics(per_job: bool) -> Metrics {
    let per_job_max = if per_job { PER_JOB_MOST } else { 0 };
    Metrics::new(&ProcessFacts { version: "1.2.3", started_at: Timestamp(1_500), per_job_max })
}

/// All events of a job under the name `id`, late results included.
pub(crate) fn events(id: &str, plan: &Arc<Plan>, script: &str) -> Vec<RecordedEvent> {
    let script = load_script("script.yaml", script.as_bytes(), plan).expect("a valid script");
    let options = Options { past_the_end: true, ..Options::default() };
    let mut log = vec![];
    rehearse_into(plan.clone(), &script, &options, |record| log.push(record.clone()))
        .expect("it ends");
    if let Some(Event::JobAccepted(accepted)) = log.first_mut().map(|record| &mut record.event) {
        accepted.id = JobId::from(id);
    }
    log
}

/// A job that spends its budget, one that completes early with late results.
pub(crate) const BUDGET: &str = "
name: budget
retry: { max_attempts: 10, initial_delay: 1s, backoff: fixed }
retry_budget: { total: 3, per_step: 3 }
steps:
  fetch: { run: 'true' }
";

pub(crate) const BEST_EFFORT: &str = "
name: spread
datacenters: [us, eu, ap]
best_effort: { min_datacenters: 2, deadline: 5m, late_results: update_result }
retry: { max_attempts: 2, initial_delay: 1s, backoff: fixed }
steps:
  index: { run: 'true' }
";
