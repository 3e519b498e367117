//! The program dies, at every named point and at any moment, and the job goes on as if it had not:
//! nothing that was said is lost, nothing is counted twice, no budget and no clock starts anew.

mod common;
#[path = "crash/downtime.rs"]
mod downtime;

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::process::ExitStatusExt as _;
use std::time::Duration;

use common::{Chance, Checked, Ended, Place, Process, SIGKILL, check, is, processes_of, wait_for};
use downtime::failing;
use rustix::process::Signal;
use serde_json::Value;

/// A need chain, a fan-out with a failing item, two fallbacks; the step's share of the budget binds
/// in `doomed`, the delay budget in `clocked`. However often it is interrupted, it succeeds.
const PIPELINE: &str = "
name: pipeline
retry: { backoff: fixed, initial_delay: 20ms, max_attempts: 10, max_preemptions: unlimited }
retry_budget: { total: 20, per_step: 4 }
steps:
  fetch: { run: sh work.sh 1 }
  index:
    needs: [fetch]
    for_each: [a, b, c, d, e]
    parallelism: 3
    max_failed: 1
    retry: { exit_codes: { stop: [3] } }
    run: |
      case $STEADFAST_ITEM_INDEX in
        1) exec sh work.sh 2 ;;
        2) sh work.sh always; exit 3 ;;
        *) exec sh work.sh 0 ;;
      esac
  doomed:
    needs: [fetch]
    run: sh work.sh always
    on_failure: { run: sh work.sh 0, then: continue }
  clocked:
    needs: [index]
    retry: { delay_budget: 50ms }
    run: sh work.sh always
    on_failure: { run: sh work.sh 0, then: continue }
  publish: { needs: [index, doomed, clocked], run: sh work.sh 1 }
";

/// The job's own budget binds: exactly four retries, whichever items get them. It fails.
const BUDGETED: &str = "
name: budgeted
retry: { backoff: fixed, initial_delay: 15ms, max_attempts: unlimited, max_preemptions: unlimited }
retry_budget: { total: 4, per_step: 5 }
steps:
  first: { run: sh work.sh 0 }
  spread:
    needs: [first]
    for_each: { range: 3 }
    run: sh work.sh always
    max_failed: 2
    on_failure: { run: sh work.sh 0, then: fail }
  never: { needs: [spread], run: sh work.sh 0 }
";

/// What must come out of `PIPELINE`.
#[track_caller]
fn check_pipeline(place: &Place, job: &str, dead: &[Ended]) -> Checked {
    let checked = check(place, job, dead);
    assert_eq!(checked.state, "succeeded");
    let reasons =
        |step| checked.of(step).filter_map(|item| item.reason.clone()).collect::<Vec<_>>();
    assert_eq!(reasons(0), [] as [&str; 0]);
    assert_eq!(reasons(1), ["exit_code_excluded"]);
    assert_eq!(reasons(2), ["step_budget_exhausted"]);
    assert_eq!(reasons(3), ["delay_budget_exhausted"]);
    let failures = |step| checked.of(step).map(|item| item.failures).sum::<u64>();
    assert_eq!(failures(2), 5, "the step's share is four retries");
    assert!((1..=3).contains(&failures(3)), "two delays of 20 ms fit into 50 ms");
    checked
}

/// What must come out of `BUDGETED`.
#[track_caller]
fn check_budgeted(place: &Place, job: &str, dead: &[Ended]) -> Checked {
    let checked = check(place, job, dead);
    assert_eq!(checked.state, "failed");
    assert_eq!(checked.retries, 4);
    assert_eq!(checked.of(1).map(|item| item.failures).sum::<u64>(), 7);
    for item in checked.of(1) {
        assert_eq!(item.reason.as_deref(), Some("job_budget_exhausted"));
    }
    assert_eq!(checked.of(2).count(), 0, "what needs it never starts");
    checked
}

/// Crashes once at the point, goes on to the end, and holds everything against the log.
fn crash_at(point: &str) -> Checked {
    let place = Place::new(PIPELINE);
    let first = place.run(Some(point)).end();
    assert!(first.crashed(), "{point} was not reached: {:?}", first.status);
    let jobs = place.jobs();
    let Some(job) = jobs.first() else {
        // Before anything was durable nothing was said, and nothing had run.
        assert_eq!(first.lines, [] as [&str; 0], "{point}");
        assert_eq!(place.read("tokens"), "", "{point}");
        let whole = place.run(None).end();
        assert_eq!(whole.status.code(), Some(0), "{}", whole.stderr);
        let job = whole.id().expect("an id").to_owned();
        return check_pipeline(&place, &job, &[whole]);
    };
    assert!(first.id().is_none_or(|id| id == job));
    let last = place.finish(job);
    let checked = check_pipeline(&place, job, &[first, last]);
    assert_eq!(checked.restarts, 1, "{point}");
    checked
}

/// Crashes at the point early and late in the job; returns the attempts that were lost with it.
fn crash_everywhere_at(point: &str) -> Vec<u64> {
    let counts = [1, 2, 3, 5, 8, 13, 20];
    let losses = counts.map(|count| {
        let checked = crash_at(&format!("{point}:{count}"));
        checked.items.values().map(|item| item.losses).sum::<u64>()
    });
    losses.to_vec()
}

#[test]
fn a_crash_before_an_append_is_as_if_nothing_had_happened() {
    crash_everywhere_at("before-append");
}

#[test]
fn a_crash_in_an_append_is_as_if_nothing_had_happened() {
    crash_everywhere_at("in-append");
}

#[test]
fn a_crash_after_an_append_loses_nothing_of_it() {
    crash_everywhere_at("after-append");
}

#[test]
fn a_crash_between_a_commit_and_its_effect_charges_no_attempt_twice() {
    crash_everywhere_at("before-effect");
}

#[test]
fn a_crash_while_processes_run_makes_their_attempts_losses_not_failures() {
    let losses = crash_everywhere_at("while-running");
    assert!(losses.iter().all(|lost| *lost > 0), "there was a process each time: {losses:?}");
}

#[test]
fn crashes_during_recovery_leave_a_job_that_recovers_all_the_same() {
    for point in ["before-append:6", "after-append:9", "while-running:4"] {
        let place = Place::new(PIPELINE);
        let mut dead = vec![place.run(Some(point)).end()];
        assert!(dead[0].crashed(), "{point}");
        let job = place.jobs()[0].clone();
        // Into its recovery, while it makes it durable, and after.
        let recovery = ["during-recovery", "before-append", "in-append", "after-append"];
        for again in recovery.iter().chain(&recovery) {
            let events = place.events(&job).len();
            let ended = place.resume_to_end(&job, Some(again));
            assert!(ended.crashed(), "{again}: {:?} {}", ended.status, ended.stderr);
            let more = place.events(&job).len() - events;
            assert_eq!(more > 0, *again == "after-append", "{again} left {more} events");
            dead.push(ended);
        }
        dead.push(place.finish(&job));
        let checked = check_pipeline(&place, &job, &dead);
        assert_eq!(checked.restarts, 3);
    }
}

#[test]
fn a_process_of_a_dead_run_is_ended_before_its_attempt_is_tried_again() {
    let place = Place::new(
        "name: orphan\nsteps:\n  s:\n    run: |\n      echo $STEADFAST_ATTEMPT_TOKEN >> tokens\n      \
         test $STEADFAST_ATTEMPT = 1 && { trap '' TERM; sleep 600; }\n      \
         test $STEADFAST_ATTEMPT = 2\n",
    );
    let first = place.run(Some("while-running")).end();
    assert!(first.crashed());
    let job = place.jobs()[0].clone();
    let orphans = wait_for("the process", || Some(processes_of(&job)).filter(|it| !it.is_empty()));
    assert!(!orphans.is_empty());
    wait_for("its token", || (!place.read("tokens").is_empty()).then_some(()));
    let last = place.finish(&job);
    assert!(last.stderr.contains("of the interrupted run"), "{}", last.stderr);
    let checked = check(&place, &job, &[first, last]);
    assert_eq!(checked.state, "succeeded");
    let item = checked.of(0).next().expect("an item");
    assert_eq!((item.started, item.losses, item.failures), (2, 1, 0));
}

/// What a kill interrupted.
#[derive(Debug, Default)]
struct Hits {
    kills: u32,
    /// There was no job yet.
    before_acceptance: u32,
    /// It had begun to resume, and nothing of that was durable.
    before_recovery: u32,
    running: u32,
    backing_off: u32,
    /// The job had ended, the program not yet.
    after_the_end: u32,
}

impl Hits {
    /// `before`: the events when the process that was killed began.
    fn count(&mut self, events: &[Value], before: usize) {
        self.kills += 1;
        let open = |begin: &str, ends: &[&str]| {
            let begun = events.iter().filter(|event| is(event, begin));
            let ended = |event: &Value| ends.iter().any(|end| is(event, end));
            begun.count() > events.iter().filter(|event| ended(event)).count()
        };
        let waits = |event: &&Value| is(event, "RetryScheduled") && event["delay_ms"] != 0;
        let due = events.iter().filter(|event| is(event, "RetryDue")).count();
        self.before_acceptance += u32::from(events.is_empty());
        self.before_recovery += u32::from(!events.is_empty() && events.len() == before);
        self.running += u32::from(open("AttemptStarted", &["AttemptEnded"]));
        self.backing_off += u32::from(events.iter().filter(waits).count() > due);
        self.after_the_end += u32::from(events.last().is_some_and(|last| is(last, "JobEnded")));
    }
}

/// Kills until so many have died; the jobs they worked on all end as they must.
fn kill_at_random(job: &str, kills: u32, check: fn(&Place, &str, &[Ended]) -> Checked) -> Hits {
    let mut chance = Chance::new();
    let mut hits = Hits::default();
    let mut losses = 0;
    while hits.kills < kills {
        let place = Place::new(job);
        let mut dead: Vec<Ended> = Vec::new();
        let mut id: Option<String> = None;
        let mut before = 0;
        loop {
            let mut process = match &id {
                Some(id) => place.resume(id, None),
                None => place.run(None),
            };
            // Half of them while it starts or recovers, half while it works.
            let most = if chance.below(2) == 0 { 60 } else { 300 };
            let time = Duration::from_micros(chance.below(most * 1000));
            let ended = if process.ends_within(time) { process.end() } else { process.kill() };
            if ended.was_locked_out() {
                continue;
            }
            let was_killed = ended.status.signal() == Some(SIGKILL);
            let code = ended.status.code();
            assert!(was_killed || matches!(code, Some(0 | 1)), "{ended:?}");
            let said = ended.id().map(str::to_owned);
            dead.push(ended);
            if id.is_none() {
                // A database may keep what it was sent last by one that was killed before it could say so, and a moment later.
                let jobs = place.jobs();
                let is_stored = said.as_ref().is_none_or(|said| jobs.contains(said));
                assert!(is_stored, "{said:?} was said and is not stored");
                id = said.or_else(|| jobs.into_iter().next());
            }
            if !was_killed {
                break;
            }
            let events = id.as_ref().map(|id| place.events(id)).unwrap_or_default();
            hits.count(&events, before);
            before = events.len();
            // Killed on its way out, it has no end to go on to.
            if events.last().is_some_and(|event| is(event, "JobEnded")) {
                break;
            }
        }
        let id = id.expect("a job that ended is stored");
        let checked = check(&place, &id, &dead);
        losses += checked.items.values().map(|item| item.losses).sum::<u64>();
    }
    println!("{hits:?}, {losses} attempts lost");
    hits
}

#[test]
fn kills_at_random_moments_lose_and_double_nothing_of_a_pipeline() {
    let hits = kill_at_random(PIPELINE, 250, check_pipeline);
    assert!(hits.running > 0 && hits.backing_off > 0 && hits.before_recovery > 0, "{hits:?}");
}

#[test]
fn kills_at_random_moments_neither_refill_nor_overdraw_the_jobs_budget() {
    let hits = kill_at_random(BUDGETED, 150, check_budgeted);
    assert!(hits.running > 0 && hits.backing_off > 0 && hits.before_recovery > 0, "{hits:?}");
}

/// Long enough for its state to be stored beside its events: after every thousand of them.
#[test]
fn a_job_that_goes_on_from_its_stored_state_is_the_one_that_its_log_tells_of() {
    let place = Place::new(
        "name: wide\nretry: { backoff: fixed, initial_delay: 10ms }\nsteps:\n  each:\n    \
         for_each: { range: 600 }\n    max_failed: 10%\n    run: |\n      \
         echo $STEADFAST_ATTEMPT_TOKEN >> tokens\n      \
         test $((STEADFAST_ITEM % 20)) != 7\n",
    );
    let mut process = place.run(None);
    let job = process.id();
    let mut dead = Vec::new();
    for _ in 0..3 {
        assert!(process.says_lines(300));
        dead.push(process.kill());
        let replay = place.json(&["replay", &job]);
        assert_eq!((&replay["equal"], &replay["state"]), (&true.into(), &"running".into()));
        process = place.resumed(&job);
    }
    dead.push(process.end());
    let checked = check(&place, &job, &dead);
    assert_eq!((checked.state.as_str(), checked.restarts), ("succeeded", 3));
    let failed = checked.of(0).filter(|item| item.reason.is_some());
    assert_eq!(failed.map(|item| item.failures).collect::<Vec<_>>(), [3; 30]);
}

/// The step of the first attempt runs until it is told to end; the second succeeds.
fn patient(on_term: &str) -> (Place, Process, String) {
    let place = Place::new(&format!(
        "name: patient\nretry: {{ max_attempts: 1 }}\nsteps:\n  s:\n    run: |\n      \
         test $STEADFAST_ATTEMPT = 1 || exec sh work.sh 0\n      {on_term}\n      \
         echo $STEADFAST_ATTEMPT_TOKEN >> tokens\n      while :; do sleep 1; done\n",
    ));
    let mut process = place.run(None);
    let job = process.id();
    // From here on the program listens for signals, and the process has set its own.
    assert!(process.says("s attempt 1 started"));
    wait_for("the process", || (!place.read("tokens").is_empty()).then_some(()));
    (place, process, job)
}

fn resumed_after_interrupt(place: &Place, job: &str, interrupted: Ended) {
    assert_eq!(interrupted.status.code(), Some(130), "{interrupted:?}");
    let how = format!("go on with steadfast resume {job}");
    assert!(interrupted.stderr.contains(&how), "{}", interrupted.stderr);
    assert_eq!(processes_of(job), [] as [u32; 0]);
    let lost = place.events(job).into_iter().find(|event| is(event, "AttemptEnded"));
    assert_eq!(lost.expect("it ended")["outcome"], serde_json::json!({"lost": {"started": true}}));
    let last = place.finish(job);
    let checked = check(place, job, &[interrupted, last]);
    assert_eq!(checked.state, "succeeded");
    let item = checked.of(0).next().expect("an item");
    assert_eq!((item.losses, item.failures), (1, 0), "a failure would have been one too many");
}

#[test]
fn an_interrupted_attempt_is_a_loss_and_its_job_goes_on_later() {
    let (place, process, job) = patient(":");
    process.signal(Signal::INT);
    resumed_after_interrupt(&place, &job, process.end());
}

#[test]
fn a_terminal_that_is_closed_leaves_no_process_behind() {
    // Under `nohup` the program outlives its terminal, as it was told: then Ctrl-C is what is left to test.
    let closed = if common::hangups_are_ignored() { Signal::INT } else { Signal::HUP };
    let (place, process, job) = patient(":");
    process.signal(closed);
    resumed_after_interrupt(&place, &job, process.end());
}

#[test]
fn an_interrupt_while_nothing_runs_costs_nothing() {
    let place = failing("700ms", "delay_budget: 1m");
    let mut process = place.run(None);
    let job = process.id();
    assert!(process.says("s attempt 2 in"));
    process.signal(Signal::INT);
    let first = process.end();
    assert_eq!(first.status.code(), Some(130), "{first:?}");
    let last = place.finish(&job);
    let checked = check(&place, &job, &[first, last]);
    let item = checked.of(0).next().expect("an item");
    assert_eq!(
        (item.losses, item.failures, item.reason.as_deref()),
        (0, 3, Some("attempts_exhausted"))
    );
}

#[test]
fn a_second_interrupt_kills_what_does_not_want_to_end() {
    let (place, process, job) = patient("trap '' TERM");
    process.signal(Signal::INT);
    let began = common::now();
    // Two signals at once would be seen as one.
    process.hears("once more kills it");
    process.signal(Signal::INT);
    resumed_after_interrupt(&place, &job, process.end());
    assert!(began.elapsed() < Duration::from_secs(4), "it was not left to the grace of 5 s");
}

#[test]
fn two_programs_never_run_one_job() {
    let (place, process, job) = patient(":");
    let refused = place.call(&["resume", &job]);
    assert_eq!(refused.status.code(), Some(2));
    let stderr = String::from_utf8_lossy(&refused.stderr);
    assert!(stderr.contains("being run by another process"), "{stderr}");
    assert!(!processes_of(&job).is_empty(), "it ended what the other one runs");
    process.signal(Signal::INT);
    resumed_after_interrupt(&place, &job, process.end());
}

#[test]
fn a_job_file_that_changed_is_not_taken_for_the_one_that_was_accepted() {
    let (place, process, job) = patient(":");
    let first = process.kill();
    let file = place.path("job.yaml");
    let text = fs::read_to_string(&file).expect("reads");
    fs::write(&file, text.replace("work.sh 0", "work.sh always")).expect("writes");
    let refused = place.resume_to_end(&job, None);
    assert_eq!(refused.status.code(), Some(2));
    assert!(refused.stderr.contains("has changed") && refused.stderr.contains("--changed"));
    let output = place.call(&["resume", &job, "--changed"]);
    assert_eq!(output.status.code(), Some(0), "it goes on as it was accepted");
    assert_eq!(check(&place, &job, &[first]).state, "succeeded");
}

#[test]
fn what_has_ended_is_not_resumed() {
    let place = Place::new("name: done\nsteps: { s: { run: sh work.sh 0 } }\n");
    let ended = place.run(None).end();
    let job = ended.id().expect("an id").to_owned();
    let events = place.events(&job);
    let refused = place.call(&["resume", &job]);
    assert_eq!(refused.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&refused.stderr).contains("has ended: succeeded"));
    assert_eq!(place.events(&job), events);
    assert_eq!(check(&place, &job, &[ended]).state, "succeeded");
    let tokens: BTreeSet<_> = place.read("tokens").lines().map(str::to_owned).collect();
    assert_eq!(tokens.len(), 1);
}
