//! The last hour in numbers.

use steadfast_core::event::{Event, JobId};
use steadfast_core::time::Timestamp;
use steadfast_engine::Observer as _;
use steadfast_server::observability::Observability;

use crate::world::{BUDGET, events, metrics, plan};

#[test]
fn what_failed_where_is_counted_and_shown() {
    let mut observability = Observability::new(metrics(false), None);
    let plan = plan(BUDGET);
    let log = events("job-1", &plan, "fetch: [exit:1, exit:1, exit:1, exit:1]");
    let job = JobId::from("job-1");
    let ended = log.last().expect("events").at;
    let failed = log.iter().filter(|it| matches!(it.event, Event::AttemptEnded { .. })).count();
    let (before, after) = log.split_at(log.len() - 3);
    observability.committed(&job, before.to_vec());
    let near = observability.recent().overview(60, ended).budgets_near_end;
    let near: Vec<_> = near.iter().map(|it| (it.account, it.used, it.limit)).collect();
    assert_eq!(near, [("job_budget", 3, 3), ("step_budget", 3, 3)]);
    observability.committed(&job, after.to_vec());
    let overview = observability.recent().overview(60, ended);
    assert!(overview.budgets_near_end.is_empty(), "the job is over");
    let sum = |of: fn(&steadfast_server::observability::ThroughputBucket) -> u32| {
        overview.throughput.iter().map(of).sum::<u32>()
    };
    assert!(overview.throughput.len() <= 360);
    assert_eq!((sum(|it| it.submitted), sum(|it| it.failed)), (1, 1));
    assert_eq!((sum(|it| it.attempts) as usize, sum(|it| it.failures) as usize), (failed, failed));
    assert_eq!(sum(|it| it.retries.failure), 3);
    let top = &overview.top_failing_steps[0];
    assert_eq!((top.job_name.as_str(), top.step.as_str(), top.failures), ("budget", "fetch", 4));
    assert_eq!((top.last_error.as_str(), &*top.last_job), ("exit code 1", "job-1"));
    let row = &overview.grid.items[0];
    assert_eq!((row.item.as_str(), row.cells[0].failures), ("fetch", 4));
    assert_eq!(overview.grid.workers, [row.cells[0].worker.clone()]);
    let later = Timestamp(ended.0 + 2 * 3_600_000);
    let later = observability.recent().overview(60, later);
    assert!(later.throughput.iter().all(|it| it.attempts == 0) && later.grid.items.is_empty());
}
