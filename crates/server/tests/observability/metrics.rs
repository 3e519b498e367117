use std::cmp::Ordering::{Equal, Greater, Less};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};

use proptest::prelude::*;
use steadfast_core::apply::replay;
use steadfast_core::decide::Input;
use steadfast_core::event::{AcceptedJob, Event, JobId, RecordedEvent, Requester};
use steadfast_core::job::{Job, Phase};
use steadfast_core::outcome::{FailureKind, Outcome};
use steadfast_core::time::Timestamp;
use steadfast_core::verdict::StopReason;
use steadfast_engine::{
    Assignment, Clock, Inbox, Live, Observer, Ownership, Placement, Slots, Work, Workers,
};
use steadfast_server::health::Health;
use steadfast_server::observability::{Observability, PER_JOB_MOST, TimedJournal};
use steadfast_store::{Folder, Journal as _, MemoryStore, Owner};

use crate::page::{Page, promtool};
use crate::world::{BEST_EFFORT, BUDGET, events, metrics, plan};

/// What one input came to is committed together: all of one moment, or more.
fn hear(watch: &Observability, id: &str, records: &[RecordedEvent]) {
    let id = JobId::from(id);
    let mut watch = watch.clone();
    for together in records.chunk_by(|one, next| one.at == next.at) {
        watch.committed(&id, together.to_vec());
    }
}

fn page(watch: &Observability) -> Page {
    let text = watch.metrics().render();
    Page::read(&text)
}

#[test]
fn a_spent_budget_is_counted_once_for_each_retry_and_stop() {
    let watch = Observability::new(metrics(true), None);
    let log = events("j1", &plan(BUDGET), "fetch: [exit:1]");
    let ended =
        log.iter().position(|r| matches!(r.event, Event::JobEnded { .. })).expect("it ends");
    hear(&watch, "j1", &log[..ended]);
    let live = page(&watch);
    assert_eq!(live.get("retry_budget_consumed_total"), 3.0);
    assert_eq!(live.get("retry_budget_consumed_total{job_id=\"j1\"}"), 3.0);
    assert_eq!(live.get("retry_budget_exhausted_total"), 1.0);
    assert_eq!(live.get("retry_budget_exhausted_total{job_id=\"j1\"}"), 1.0);
    assert_eq!(live.get("steadfast_jobs_live"), 1.0);
    hear(&watch, "j1", &log[ended..]);
    let over = page(&watch);
    assert_eq!(over.get("retry_budget_consumed_total"), 3.0);
    assert_eq!(over.get("retry_budget_exhausted_total"), 1.0);
    let own = "retry_budget_consumed_total{job_id=\"j1\"}";
    assert_eq!(over.get(own), 3.0, "the job is terminal, and what it came to is seen once");
    assert!(!page(&watch).has(own), "and then no more");
    assert_eq!(over.get("steadfast_jobs_live"), 0.0);
    assert_eq!(over.get("steadfast_jobs_ended_total{state=\"failed\"}"), 1.0);
    assert_eq!(over.get("steadfast_stops_total{reason=\"job_budget_exhausted\"}"), 1.0);
    assert_eq!(watch.jobs_watched(), 0, "nothing is remembered of a job that is over");
    promtool(&watch.metrics().render());
}

#[test]
fn without_per_job_series_the_sums_are_all_there_is() {
    let watch = Observability::new(metrics(false), None);
    let log = events("j1", &plan(BUDGET), "fetch: [exit:1]");
    hear(&watch, "j1", &log[..log.len() - 2]);
    let page = page(&watch);
    assert_eq!(page.named("retry_budget_consumed_total").count(), 1);
    assert_eq!(page.get("retry_budget_consumed_total"), 3.0);
}

#[test]
fn a_best_effort_job_shows_its_progress_and_then_adds_to_the_whole() {
    let watch = Observability::new(metrics(true), None);
    let plan = plan(BEST_EFFORT);
    let log =
        events("j1", &plan, "us/index: [\"ok@1s\"]\neu/index: [\"ok@2s\"]\nap/index: [\"ok@9s\"]");
    let ended =
        log.iter().position(|r| matches!(r.event, Event::JobEnded { .. })).expect("it ends");
    let first =
        log.iter().position(|r| matches!(r.event, Event::RunEnded { .. })).expect("a run ends");
    hear(&watch, "j1", &log[..=first]);
    let progress = page(&watch).get("best_effort_completion_ratio{job_id=\"j1\"}");
    assert!((progress - 1.0 / 3.0).abs() < 1e-9, "{progress}");
    assert!(!page(&watch).has("best_effort_completion_ratio"), "none has completed");
    hear(&watch, "j1", &log[first + 1..=ended]);
    let done = page(&watch);
    let reached = "best_effort_completions_total{reason=\"min_datacenters_reached\"}";
    assert_eq!(done.get(reached), 1.0);
    assert_eq!(done.sum("best_effort_completions_total"), 1.0);
    assert!((done.get("best_effort_completion_ratio") - 2.0 / 3.0).abs() < 1e-9);
    let own = "best_effort_completion_ratio{job_id=\"j1\"}";
    assert!((done.get(own) - 2.0 / 3.0).abs() < 1e-9, "once after its end");
    assert!(!page(&watch).has(own), "and then no more");
    assert_eq!(done.get("steadfast_items_running"), 1.0, "the late run goes on");
    assert_eq!(watch.jobs_watched(), 1);
    hear(&watch, "j1", &log[ended + 1..]);
    let late = page(&watch);
    assert_eq!(late.get("steadfast_late_datacenter_results_total"), 1.0);
    assert_eq!(late.get("steadfast_items_running"), 0.0);
    assert_eq!(late.sum("best_effort_completions_total"), 1.0, "it completed once");
    assert_eq!(watch.jobs_watched(), 0);
    promtool(&watch.metrics().render());
}

#[test]
fn five_thousand_jobs_show_at_most_a_thousand_and_sums_lose_none() {
    let watch = Observability::new(metrics(true), None);
    let log = events("j", &plan(BUDGET), "fetch: [exit:1]");
    let ended =
        log.iter().position(|r| matches!(r.event, Event::JobEnded { .. })).expect("it ends");
    let all = 5000;
    for i in 0..all {
        hear(&watch, &format!("j{i:04}"), &log[..ended]);
    }
    let full = page(&watch);
    // The sum is one series more.
    assert_eq!(full.named("retry_budget_consumed_total").count(), PER_JOB_MOST + 1);
    assert_eq!(full.named("retry_budget_exhausted_total").count(), PER_JOB_MOST + 1);
    assert_eq!(full.get("retry_budget_consumed_total"), f64::from(all) * 3.0);
    assert_eq!(full.get("steadfast_jobs_live"), f64::from(all));
    // Places that become free are taken by jobs that something happens to, with all their retries.
    for i in 0..2000 {
        hear(&watch, &format!("j{i:04}"), &log[ended..]);
    }
    let last = page(&watch);
    assert_eq!(last.named("retry_budget_consumed_total").count(), PER_JOB_MOST + 1, "seen once");
    assert_eq!(page(&watch).named("retry_budget_consumed_total").count(), 1);
    hear(
        &watch,
        "j4000",
        &[RecordedEvent {
            event: Event::JobPaused { requested: Requester::NOBODY },
            ..log[ended].clone()
        }],
    );
    assert_eq!(page(&watch).get("retry_budget_consumed_total{job_id=\"j4000\"}"), 3.0);
    assert_eq!(page(&watch).get("retry_budget_consumed_total"), f64::from(all) * 3.0);
    promtool(&watch.metrics().render());
}

const JOB: &str = "
name: j
datacenters: [a, b]
retry: { max_attempts: 5, jitter: full, delay_budget: 1m }
retry_budget: { total: 6, per_step: 4 }
best_effort: { min_datacenters: 1, deadline: 1h }
steps:
  one: { run: 'true', timeout: 20s, compensate: { run: 'true' } }
  many: { run: 'true', needs: [one], for_each: { range: 6 }, parallelism: 2, max_failed: 2 }
  last: { run: 'true', needs: [many], on_failure: { run: 'true', then: continue }, retry: { max_attempts: 2 } }
";

fn count(log: &[RecordedEvent], of: impl Fn(&Event) -> bool) -> f64 {
    log.iter().filter(|record| of(&record.event)).count() as f64
}

/// What the log adds up to, without what the watch does to get there.
/// `own`: the job's series are there, while it is under way and once after its end.
fn check(page: &Page, log: &[RecordedEvent], job: &Job, own: bool) {
    let started = count(log, |e| matches!(e, Event::AttemptStarted { .. }));
    let running = job.all_live().filter(|(_, item)| item.phase == Phase::Running).count() as f64;
    assert_eq!(page.get("steadfast_attempts_started_total"), started);
    assert_eq!(page.get("steadfast_items_running"), running);
    assert_eq!(page.sum("steadfast_attempts_ended_total"), started - running, "each ends once");
    let reported = count(log, |e| matches!(e, Event::AttemptEnded { .. }));
    assert_eq!(page.get("steadfast_attempt_duration_seconds_count"), reported);
    let lost =
        count(log, |e| matches!(e, Event::AttemptEnded { outcome: Outcome::Lost { .. }, .. }));
    assert_eq!(page.get("steadfast_attempts_ended_total{outcome=\"worker_lost\"}"), lost);
    let killed = page.get("steadfast_attempts_ended_total{outcome=\"killed\"}");
    assert_eq!(killed, started - running - reported);
    let retries = count(log, |e| matches!(e, Event::RetryScheduled { .. }));
    assert_eq!(page.sum("steadfast_retries_total"), retries);
    let due = count(log, |e| matches!(e, Event::RetryDue { .. }));
    assert_eq!(page.get("steadfast_retry_lateness_seconds_count"), due);
    for reason in StopReason::ALL {
        let name = format!("steadfast_stops_total{{reason=\"{reason}\"}}");
        let stops =
            count(log, |e| matches!(e, Event::ItemFailed { reason: r, .. } if *r == reason));
        assert_eq!(page.get(&name), stops, "{reason}");
    }
    let consumed: u32 = log
        .iter()
        .map(|record| match &record.event {
            Event::RetryScheduled { charged, .. } => charged.job_retries,
            _ => 0,
        })
        .sum();
    assert_eq!(page.get("retry_budget_consumed_total"), f64::from(consumed));
    let live = !job.state().is_terminal();
    assert_eq!(page.get("steadfast_jobs_live"), f64::from(u8::from(live)));
    assert_eq!(page.has("retry_budget_consumed_total{job_id=\"j\"}"), own);
    if own {
        // Of a job that has ended, what it came to at its end: runs that go on may spend more.
        let ended = |record: &RecordedEvent| matches!(record.event, Event::JobEnded { .. });
        let shown = match log.iter().find(|record| ended(record)) {
            Some(end) => {
                let until: Vec<_> = log.iter().filter(|one| one.at <= end.at).cloned().collect();
                replay(&until).expect("the log replays").retries
            }
            None => job.retries,
        };
        assert_eq!(page.get("retry_budget_consumed_total{job_id=\"j\"}"), f64::from(shown));
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn what_is_counted_is_what_the_log_adds_up_to(
        lists in proptest::collection::vec(
            proptest::collection::vec((0usize..9, 0u64..40_000), 1..5), 6),
        cut in 0.0f64..1.0,
    ) {
        let words = ["ok", "ok", "exit:1", "lost", "timeout", "never", "not_started", "signal:9", "fail"];
        let keys = ["one", "many", "\"b/many[3]\"", "a/last", "\"last!\"", "b/one"];
        let mut script = String::new();
        for (key, list) in keys.iter().zip(&lists) {
            let entries: Vec<String> =
                list.iter().map(|(word, ms)| format!("\"{}@{ms}ms\"", words[*word])).collect();
            script.push_str(&format!("{key}: [{}]\n", entries.join(", ")));
        }
        let log = events("j", &plan(JOB), &script);
        let watch = Observability::new(metrics(true), None);
        let cut = 1 + ((log.len() - 1) as f64 * cut) as usize;
        hear(&watch, "j", &log[..cut]);
        let half = replay(&log[..cut]).expect("the log replays");
        check(&page(&watch), &log[..cut], &half, true);
        hear(&watch, "j", &log[cut..]);
        let whole = replay(&log).expect("the log replays");
        // What a job came to is shown once after its end: by this page.
        let last = page(&watch);
        check(&last, &log, &whole, !half.state().is_terminal());
        prop_assert_eq!(watch.jobs_watched(), usize::from(!whole.is_over()));

        // A process that takes over in the middle ends with the same state.
        let after = Observability::new(metrics(true), None);
        after.adopted(&half);
        hear(&after, "j", &log[cut..]);
        let (after_page, page) = (page(&after), last);
        for gauge in ["steadfast_items_running", "steadfast_jobs_live"] {
            prop_assert_eq!(after_page.get(gauge), page.get(gauge));
        }
        for own in ["retry_budget_consumed_total", "retry_budget_exhausted_total", "best_effort_completion_ratio"] {
            let own = format!("{own}{{job_id=\"j\"}}");
            prop_assert_eq!(after_page.has(&own), page.has(&own));
            prop_assert_eq!(after_page.get(&own), page.get(&own), "{}", own);
        }
        prop_assert_eq!(after.jobs_watched(), watch.jobs_watched());
        after.forgotten(&JobId::from("j"));
        prop_assert_eq!(page_of_nothing(&after), (0.0, 0.0, 0));
    }
}

fn page_of_nothing(watch: &Observability) -> (f64, f64, usize) {
    let page = page(watch);
    (page.get("steadfast_items_running"), page.get("steadfast_jobs_live"), watch.jobs_watched())
}

#[test]
fn waits_and_lateness_are_those_of_the_log() {
    let watch = Observability::new(metrics(true), None);
    let log = events("j1", &plan(BUDGET), "fetch: [exit:1@2s, ok@1s]");
    // The retry is noticed 40 ms late and starts 60 ms after that.
    let due = log.iter().position(|r| matches!(r.event, Event::RetryDue { .. })).expect("a retry");
    let late = |(i, record): (usize, &RecordedEvent)| {
        let ms = match i.cmp(&due) {
            Less => 0,
            Equal => 40,
            Greater => 100,
        };
        RecordedEvent { at: record.at.plus(ms), ..record.clone() }
    };
    let log: Vec<RecordedEvent> = log.iter().enumerate().map(late).collect();
    hear(&watch, "j1", &log);
    let page = page(&watch);
    assert_eq!(page.get("steadfast_retry_lateness_seconds_sum"), 0.04);
    assert_eq!(page.get("steadfast_queue_seconds_count"), 2.0);
    assert_eq!(page.get("steadfast_queue_seconds_sum"), 0.06);
    assert_eq!(page.get("steadfast_attempt_duration_seconds_count"), 2.0);
}

#[test]
fn the_wait_of_a_job_that_is_loaded_when_its_turn_comes_is_counted() {
    let log = events("j1", &plan(BUDGET), "fetch: [ok@1s]");
    let started = |r: &RecordedEvent| matches!(r.event, Event::AttemptStarted { .. });
    let (before, after) = log.split_at(log.iter().position(started).expect("it starts"));
    let watch = Observability::new(metrics(true), None);
    watch.adopted(&replay(before).expect("the log replays"));
    let late =
        |record: &RecordedEvent| RecordedEvent { at: record.at.plus(5000), ..record.clone() };
    hear(&watch, "j1", &after.iter().map(late).collect::<Vec<_>>());
    assert_eq!(page(&watch).get("steadfast_queue_seconds_sum"), 5.0);
}

/// A millisecond passes whenever somebody asks.
#[derive(Clone, Debug, Default)]
struct Ticking(Arc<AtomicU64>);

impl Clock for Ticking {
    fn now(&self) -> Timestamp {
        Timestamp(1_000_000 + self.monotonic_ms())
    }

    fn monotonic_ms(&self) -> u64 {
        self.0.fetch_add(1, Ordering::Relaxed)
    }
}

/// Hands assignments to a thread that reports on each twice: the second time is stale.
struct Echo(Sender<Work>);

impl Workers for Echo {
    fn assign(&mut self, work: Box<Work>) {
        let _ = self.0.send(*work);
    }
    fn withdraw(&mut self, _: Assignment) {}
    fn settled(&mut self, _: &JobId, _: u64) {}
}

fn echo(works: &Receiver<Work>, inbox: &Inbox) {
    while let Ok(work) = works.recv() {
        let Assignment { job, item, attempt, token, .. } = work.assignment;
        let outcome = if attempt < 3 { Outcome::from(FailureKind::Exited(1)) } else { Outcome::OK };
        let input = Input::Report { item, token, outcome };
        inbox.report(&job, input.clone());
        inbox.report(&job, input);
    }
}

struct Collect(Sender<(JobId, Vec<RecordedEvent>)>);

impl Observer for Collect {
    fn committed(&mut self, job: &JobId, records: Vec<RecordedEvent>) {
        let _ = self.0.send((job.clone(), records));
    }
}

#[test]
fn the_live_engine_is_watched_on_its_way_to_the_next_observer() {
    let watch = Observability::new(metrics(true), None);
    let mut store = TimedJournal::new(
        Box::new(MemoryStore::new()),
        watch.metrics().clone(),
        Health::new(Folder::new(std::env::temp_dir()).storage().space(), 0),
    );
    let (tell, heard) = channel();
    let (works, todo) = channel();
    let owner = store.take(Owner::SHARD, Timestamp(0), None).expect("memory");
    let live = Live::start(
        Box::new(store),
        Box::new(Ticking::default()),
        Placement::here(Slots::per_datacenter(4), "w1"),
        Ownership::alone(owner),
        |inbox| {
            std::thread::spawn(move || echo(&todo, &inbox));
            Echo(works)
        },
        watch.clone().and(Box::new(Collect(tell))),
    );
    let job = "
name: live
retry: { max_attempts: 3, initial_delay: 1ms, backoff: fixed }
retry_budget: { total: 50, per_step: 5 }
steps:
  one: { run: 'true' }
  two: { run: 'true', needs: [one] }
";
    let plan = plan(job);
    let jobs = 20;
    for i in 0..jobs {
        let accepted = AcceptedJob::new(JobId::from(format!("job-{i}")), plan.clone());
        live.inbox().submit(accepted, None).expect("it is taken");
    }
    let mut log = vec![];
    let mut over = 0;
    while over < jobs {
        let (_, records) = heard.recv().expect("the engine goes on");
        over += records.iter().filter(|r| matches!(r.event, Event::JobEnded { .. })).count();
        log.extend(records);
    }
    live.stop().expect("it stops");
    let page = page(&watch);
    let jobs = jobs as f64;
    assert_eq!(page.get("steadfast_jobs_accepted_total"), jobs);
    assert_eq!(page.get("steadfast_jobs_ended_total{state=\"succeeded\"}"), jobs);
    assert_eq!(page.get("steadfast_attempts_started_total"), jobs * 6.0);
    assert_eq!(page.get("steadfast_attempts_ended_total{outcome=\"failed\"}"), jobs * 4.0);
    assert_eq!(page.get("retry_budget_consumed_total"), jobs * 4.0);
    assert_eq!(
        page.get("steadfast_retries_total{cause=\"failure\"}"),
        count(&log, |e| matches!(e, Event::RetryScheduled { .. }))
    );
    assert_eq!(page_of_nothing(&watch), (0.0, 0.0, 0));
    let commits = page.get("steadfast_store_commit_duration_seconds_count");
    assert!(commits > 0.0);
    assert!(page.get("steadfast_store_commit_group_size_sum") >= commits);
    promtool(&watch.metrics().render());
}

#[test]
fn what_is_told_of_workers_and_the_process_is_on_the_page() {
    let metrics = metrics(true);
    metrics.set_workers("connected", 3);
    metrics.set_workers("draining", 1);
    metrics.set_workers("connected", 2);
    metrics.heartbeat();
    let text = metrics.render();
    let page = Page::read(&text);
    assert_eq!(page.get("steadfast_workers{state=\"connected\"}"), 2.0);
    assert_eq!(page.get("steadfast_heartbeats_total"), 1.0);
    assert_eq!(page.get("steadfast_build_info{version=\"1.2.3\"}"), 1.0);
    assert_eq!(page.get("steadfast_process_start_time_seconds"), 1.5);
    if cfg!(target_os = "linux") {
        assert!(page.get("steadfast_process_resident_memory_bytes") > 1_000_000.0);
    }
    promtool(&text);
}
