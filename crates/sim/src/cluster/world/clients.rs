//! Those who submit jobs and want something of them, and services that call back. They ask again until they are answered.

use std::collections::BTreeMap;
use std::sync::Arc;

use steadfast_core::event::{AcceptedJob, JobId, JobState};
use steadfast_core::outcome::Outcome;
use steadfast_core::retry_job::retry_job;

use super::super::check::Promises;
use super::super::counts::ANSWER;
use super::super::messages::AttemptName;
use super::super::requests::{Answer, Asked, Question, RequestId};
use super::{Happening, World, trace};

/// A request that is not answered for so long is sent again.
const PATIENCE_MS: u64 = 3000;
/// Without a key a client does not know whether to ask again.
const TRIES_WITHOUT_KEY: u32 = 1;

#[derive(Clone, Debug)]
struct Request {
    question: Question,
    /// Of the first body that its key was used with, or of another.
    is_other: bool,
    /// The job of the scenario, if it is its first submission.
    job: Option<usize>,
    answered: bool,
    tries: u32,
    asks_at: u64,
}

#[derive(Debug, Default)]
pub(super) struct Clients {
    requests: BTreeMap<RequestId, Request>,
    last: RequestId,
}

impl Clients {
    /// What is asked and not answered.
    pub(super) fn open(&self) -> Vec<RequestId> {
        let open = self.requests.iter().filter(|(_, request)| !request.answered);
        open.map(|(id, _)| *id).collect()
    }
}

impl Clients {
    /// What was asked of jobs that are gone is asked no more.
    pub(super) fn restored(&mut self) {
        let of_jobs = |request: &Request| matches!(request.question, Question::Job { .. });
        for request in self.requests.values_mut().filter(|it| of_jobs(it)) {
            request.answered = true;
        }
    }
}

impl World {
    fn plan_request(&mut self, at: u64, question: Question, is_other: bool, job: Option<usize>) {
        self.clients.last += 1;
        let request = self.clients.last;
        let asked = Request { question, is_other, job, answered: false, tries: 0, asks_at: at };
        self.clients.requests.insert(request, asked);
        self.at(at, Happening::Ask(request));
    }

    pub(super) fn plan_clients(&mut self) {
        for (n, job) in self.scenario.jobs.clone().into_iter().enumerate() {
            let submit = |digest: &str| {
                let accepted = Box::new(AcceptedJob::new("".into(), job.plan.clone()));
                Question::Submit { accepted, key: job.key.clone(), digest: digest.to_owned() }
            };
            self.plan_request(job.at, submit("one"), false, Some(n));
            if let Some(after) = job.again_after {
                self.plan_request(job.at + after, submit("one"), false, None);
            }
            if let Some(after) = job.other_after {
                self.plan_request(job.at + after, submit("other"), true, None);
            }
        }
    }

    /// A service says how an attempt ended, some times.
    pub(super) fn plan_callbacks(
        &mut self,
        name: &AttemptName,
        outcome: &Outcome,
        after_ms: u64,
        times: u32,
    ) {
        for n in 0..u64::from(times) {
            let at = self.time.now() + after_ms + n * self.rng.between(10, 3000);
            let asked = Asked::Callback { name: name.clone(), outcome: outcome.clone() };
            let question = Question::Job { job: name.id.job.clone(), asked };
            self.plan_request(at, question, false, None);
            if n > 0 {
                self.checker.fault("callback repeated");
            }
        }
    }

    pub(super) fn ask(&mut self, id: RequestId) {
        let now = self.time.now();
        let Some(request) = self.clients.requests.get_mut(&id) else { return };
        let has_key = matches!(
            request.question,
            Question::Submit { key: Some(_), .. } | Question::Job { .. }
        );
        if request.answered || request.asks_at > now {
            return;
        }
        if request.tries >= TRIES_WITHOUT_KEY && !has_key {
            request.answered = true;
            return;
        }
        request.tries += 1;
        request.asks_at = now + PATIENCE_MS;
        let question = request.question.clone();
        self.at(now + PATIENCE_MS, Happening::Ask(id));
        let server = self.rng.below(self.servers.len() as u64) as usize;
        let (name, job) = match &question {
            Question::Submit { accepted, .. } => ("submit", accepted.plan.name().to_owned()),
            Question::Job { job, asked } => (asked.name(), job.to_string()),
        };
        trace!(self, "client asks s{server}: {name} {job} (request {id})");
        let is_lossy = self.network.lossy_until > now;
        if is_lossy && self.rng.percent(20) {
            return self.checker.fault("request lost");
        }
        if !self.polls && !self.scenario.servers.is_empty() {
            self.polls = true;
            for server in 0..self.servers.len() {
                let life = self.servers[server].life;
                self.after(50, Happening::Poll(server, life));
            }
        }
        let at = now + self.network.delay(now);
        if is_lossy && self.rng.percent(20) {
            self.checker.fault("request doubled");
            let at = at + self.rng.between(1, 2000);
            let question = question.clone();
            let other = self.rng.below(self.servers.len() as u64) as usize;
            self.at(at, Happening::Request { server: other, request: id, question });
        }
        self.at(at, Happening::Request { server, request: id, question });
    }

    pub(super) fn request(&mut self, server: usize, request: RequestId, question: Question) {
        if !self.servers[server].is_up() {
            return;
        }
        if let Question::Job { job, asked: Asked::Callback { name, .. } } = &question {
            let live = self.checker.state(job).and_then(|job| job.live(name.item));
            if live.is_some_and(|live| live.phase == steadfast_core::job::Phase::Running) {
                self.checker.fault("callback overtook its worker");
            }
        }
        self.servers[server].ask(request, question);
        self.decide_soon(server);
        self.server_did(server);
    }

    pub(super) fn send_answer(&mut self, request: RequestId, answer: Answer) {
        // What was said is held against the store when it is said, not when it is heard.
        self.check_answer(request, &answer);
        let now = self.time.now();
        if self.network.lossy_until > now && self.rng.percent(20) {
            return self.checker.fault("request lost");
        }
        let at = now + self.network.delay(now);
        self.at(at, Happening::Answer { request, answer });
    }

    fn check_answer(&mut self, id: RequestId, answer: &Answer) {
        self.look_at_store();
        let Some(request) = self.clients.requests.get(&id) else { return };
        let shared = self.store.held();
        let checked = match &request.question {
            Question::Submit { key, .. } => {
                let is_stored = |job: &str| shared.database.stored(job).is_some();
                self.checker.clients.submitted(key.as_deref(), request.is_other, answer, is_stored)
            }
            Question::Job { job, asked } => {
                let log = shared.database.log(job);
                let state = self.checker.state(job);
                Promises::commanded(asked, answer, state, log)
            }
        };
        drop(shared);
        self.note_checked(checked);
    }

    pub(super) fn answered(&mut self, id: RequestId, answer: Answer) {
        trace!(self, "client hears of request {id}: {answer:?}");
        self.checker.counts.add(ANSWER, name(&answer));
        let now = self.time.now();
        let Some(request) = self.clients.requests.get_mut(&id) else { return };
        if request.answered {
            return;
        }
        match answer {
            Answer::Again(_) | Answer::NothingHappened(_) => {
                // Nothing of it has happened: it is asked again, also without a key.
                request.tries = 0;
                request.asks_at = now + 200;
                self.at(now + 200, Happening::Ask(id));
            }
            Answer::Accepted(job) | Answer::Known(job) => {
                request.answered = true;
                if let Some(n) = request.job {
                    self.want(n, &job);
                }
            }
            _ => request.answered = true,
        }
    }

    /// What people want of a job that was accepted.
    fn want(&mut self, n: usize, job: &JobId) {
        let plan = self.scenario.jobs[n].clone();
        for (after, asked) in plan.commands {
            let question = Question::Job { job: job.clone(), asked };
            self.plan_request(self.time.now() + after, question, false, None);
        }
        if plan.retried {
            self.after(5000, Happening::Retry(job.clone()));
        }
    }

    /// Once it has ended, a new job goes on from what succeeded.
    pub(super) fn retry_ended(&mut self, job: JobId) {
        if self.time.now() > self.scenario.heal_at + 60_000 {
            return;
        }
        let Some(state) = self.checker.state(&job) else { return };
        let grant = self.rng.percent(50).then_some(2);
        match retry_job(state, "".into(), None, grant) {
            Ok(accepted) => {
                let accepted = Box::new(accepted);
                let question = Question::Submit { accepted, key: None, digest: String::new() };
                self.plan_request(self.time.now(), question, false, None);
            }
            Err(_) if state.is_over() => {}
            Err(_) => self.after(5000, Happening::Retry(job)),
        }
    }

    /// When nothing goes wrong any more, whoever has paused a job resumes it.
    pub(super) fn resume_paused(&mut self) {
        let paused = self.checker.open_jobs().filter(|job| job.state() == JobState::Paused);
        let paused: Vec<Arc<str>> = paused.map(|job| job.id.clone()).collect();
        for job in paused {
            let question = Question::Job { job, asked: Asked::Resume };
            self.plan_request(self.time.now(), question, false, None);
        }
        self.after(20_000, Happening::ResumePaused);
    }
}

const fn name(answer: &Answer) -> &'static str {
    match answer {
        Answer::Accepted(_) => "accepted",
        Answer::Known(_) => "known",
        Answer::Conflict(_) => "conflict",
        Answer::Done => "done",
        Answer::Late => "late",
        Answer::Ended => "ended",
        Answer::Refused(_) => "refused",
        Answer::NothingHappened(_) => "nothing happened",
        Answer::Again(_) => "again",
    }
}
