//! What clients, services and other servers ask. A model of the server's `commands`, `callbacks` and `peers`.

use steadfast_core::decide::{Input, Refusal};
use steadfast_core::event::{Event, JobId, JobState};
use steadfast_core::outcome::Outcome;
use steadfast_engine::{Answer as EngineAnswer, CommandError, Request};
use steadfast_store::{IdempotencyKey, Refused};

use super::{Did, Out, Server, put};
use crate::cluster::messages::AttemptName;
use crate::cluster::requests::{Answer, Asked, Question, RequestId, requester};

/// Who waits for an answer.
#[derive(Clone, Copy, Debug)]
pub(super) enum Origin {
    Client(RequestId),
    /// Another server, which asks through the store.
    Peer(i64),
}

/// What the engine answers to a request.
#[derive(Debug)]
pub(super) enum RequestOut {
    Submit { request: RequestId, job: JobId, key: Option<String>, answer: EngineAnswer },
    Asked { origin: Origin, job: JobId, asked: Asked, answer: EngineAnswer },
    Noted { origin: Origin, answer: EngineAnswer },
}

impl Server {
    pub(crate) fn ask(&mut self, request: RequestId, question: Question) {
        match question {
            Question::Submit { mut accepted, key, digest } => {
                let busy = key.as_ref().is_some_and(|key| self.keys_in_use.contains(key));
                if busy || self.shards.is_empty() {
                    return self.answer(request, Answer::Again("no room"));
                }
                accepted.id = self.new_id(request);
                self.keys_in_use.extend(key.clone());
                let (job, outbox) = (accepted.id.clone(), self.outbox.clone());
                let stored = key.clone().map(|key| IdempotencyKey { key, digest });
                let reply = Box::new(move |answer| {
                    put(&outbox, Out::Request(RequestOut::Submit { request, job, key, answer }));
                });
                if let Some(stepped) = &self.stepped {
                    let submit = Request::Submit { accepted, key: stored };
                    let _ = stepped.inbox().try_request(submit, reply);
                }
            }
            Question::Job { job, asked } => {
                if self.shards.has(&job) {
                    self.ask_here(Origin::Client(request), &job, asked);
                } else {
                    self.ask_peer(request, job, asked);
                }
            }
        }
    }

    /// In a shard of this server.
    fn new_id(&mut self, request: RequestId) -> JobId {
        loop {
            self.last_id += 1;
            let id: JobId = format!("job-{request}-{}{}", self.index, self.last_id).into();
            if self.shards.has(&id) {
                return id;
            }
        }
    }

    fn answer(&mut self, request: RequestId, answer: Answer) {
        self.did.push(Did::Answer { request, answer });
    }

    fn answer_origin(&mut self, origin: Origin, answer: Answer) {
        match origin {
            Origin::Client(request) => self.answer(request, answer),
            Origin::Peer(input) => {
                self.answering.remove(&input);
                // It has gone elsewhere meanwhile, where it is found again; or it can be asked again.
                if matches!(answer, Answer::Again(_)) {
                    return;
                }
                if let Some(input) = self.store.held().database.inputs.get_mut(&input) {
                    input.answer = Some(answer);
                }
            }
        }
    }

    fn ask_here(&mut self, origin: Origin, job: &JobId, asked: Asked) {
        let input = match &asked {
            Asked::Cancel => Input::Cancel(requester()),
            Asked::Pause => Input::Pause(requester()),
            Asked::Resume => Input::Resume(requester()),
            Asked::Callback { name, outcome } => {
                let (item, token, outcome) = (name.item, name.id.token, outcome.clone());
                Input::Callback { item, token, outcome }
            }
        };
        let (outbox, id) = (self.outbox.clone(), job.clone());
        let reply = Box::new(move |answer| {
            put(&outbox, Out::Request(RequestOut::Asked { origin, job: id, asked, answer }));
        });
        if let Some(stepped) = &self.stepped {
            let _ = stepped.inbox().send(job, input, reply);
        }
    }

    fn ask_peer(&mut self, request: RequestId, job: JobId, asked: Asked) {
        if !self.can_reach_store() {
            return self.answer(request, Answer::Again("no store"));
        }
        let mut shared = self.store.held();
        if shared.database.stored(&job).is_none() {
            drop(shared);
            return self.answer(request, Answer::Refused("no such job"));
        }
        let input = shared.database.ask(job, asked);
        drop(shared);
        self.did.push(Did::Note("asked another server".to_owned()));
        self.asked.push((input, request));
    }

    /// Looks at what other servers ask, and at what they have answered. Whether something is asked of this one.
    pub(crate) fn poll(&mut self) -> bool {
        if !self.is_up() || !self.can_reach_store() || !self.shards.are_shared() {
            return false;
        }
        let before = self.answering.len();
        let asked = self.store.held().database.asked(&self.owner.id);
        for input in asked {
            if self.answering.insert(input) {
                let found = self.store.held().database.inputs.get(&input).cloned();
                if let Some(found) = found {
                    self.ask_here(Origin::Peer(input), &found.job, found.asked);
                }
            }
        }
        for (input, request) in std::mem::take(&mut self.asked) {
            let found = self.store.held().database.inputs.get(&input).cloned();
            match found {
                Some(found) => match found.answer {
                    Some(answer) => {
                        self.store.held().database.inputs.remove(&input);
                        self.answer(request, answer);
                    }
                    None => self.asked.push((input, request)),
                },
                None => self.answer(request, Answer::Again("the question is gone")),
            }
        }
        self.answering.len() > before
    }

    pub(super) fn request_out(&mut self, out: RequestOut) {
        match out {
            RequestOut::Submit { request, job, key, answer } => {
                if let Some(key) = key {
                    self.keys_in_use.remove(&key);
                }
                let answer = match answer {
                    Ok(()) => Answer::Accepted(job),
                    Err(CommandError::Taken {
                        why: Refused::KeyTaken { job, same_body }, ..
                    }) => {
                        if same_body {
                            Answer::Known(job)
                        } else {
                            Answer::Conflict(job)
                        }
                    }
                    Err(CommandError::Taken { .. }) => Answer::NothingHappened(job),
                    Err(_) => Answer::Again("the engine has stopped"),
                };
                self.answer(request, answer);
            }
            RequestOut::Asked { origin, job, asked: Asked::Callback { name, outcome }, answer } => {
                self.called_back(origin, &job, &name, outcome, &answer);
            }
            RequestOut::Asked { origin, job, asked, answer } => {
                self.commanded(origin, job, asked, &answer);
            }
            RequestOut::Noted { origin, answer } => {
                let answer = match answer {
                    Ok(()) => Answer::Late,
                    Err(_) => Answer::Again("it has ended this very moment"),
                };
                self.answer_origin(origin, answer);
            }
        }
    }

    fn commanded(&mut self, origin: Origin, job: JobId, asked: Asked, answer: &EngineAnswer) {
        let wanted = match asked {
            Asked::Cancel => JobState::Cancelled,
            Asked::Pause => JobState::Paused,
            Asked::Resume | Asked::Callback { .. } => JobState::Running,
        };
        let answer = match answer {
            Ok(()) | Err(CommandError::Refused(Refusal::AlreadyPaused | Refusal::NotPaused)) => {
                Answer::Done
            }
            Err(
                CommandError::Elsewhere { .. }
                | CommandError::Taken {
                    why: Refused::NotOurs { .. } | Refused::Fenced { .. }, ..
                },
            ) => match origin {
                Origin::Client(request) => return self.ask_peer(request, job, asked),
                Origin::Peer(_) => Answer::Again("another server has it"),
            },
            Err(CommandError::Unknown(_) | CommandError::Refused(Refusal::Ended)) => {
                let state = self.store.held().database.stored(&job).map(|it| it.row.state);
                match state {
                    None => Answer::Refused("no such job"),
                    Some(state) if state == wanted => Answer::Done,
                    Some(_) => Answer::Ended,
                }
            }
            Err(CommandError::Stuck { .. }) => Answer::Refused("stuck"),
            Err(_) => Answer::Again("not now"),
        };
        self.answer_origin(origin, answer);
    }

    fn called_back(
        &mut self,
        origin: Origin,
        job: &JobId,
        name: &AttemptName,
        outcome: Outcome,
        answer: &EngineAnswer,
    ) {
        match answer {
            Ok(()) => return self.answer_origin(origin, Answer::Done),
            Err(
                CommandError::Refused(Refusal::StaleFence)
                | CommandError::Unknown(_)
                | CommandError::Taken { why: Refused::Conflict { .. }, .. },
            ) => {}
            Err(CommandError::Elsewhere { .. }) => {
                return match origin {
                    Origin::Client(request) => {
                        let asked = Asked::Callback { name: name.clone(), outcome };
                        self.ask_peer(request, job.clone(), asked);
                    }
                    Origin::Peer(_) => self.answer_origin(origin, Answer::Again("elsewhere")),
                };
            }
            Err(_) => return self.answer_origin(origin, Answer::Again("not now")),
        }
        let Some(state) = self.store.connect(self.index).state(job) else {
            return self.answer_origin(origin, Answer::Refused("no such job"));
        };
        let shared = self.store.held();
        let log = shared.database.log(job);
        let is_its = |item, attempt| item == name.item && attempt == name.attempt;
        let ended = log.iter().find_map(|record| match &record.event {
            Event::AttemptEnded { item, attempt, outcome, by_callback, .. }
                if is_its(*item, *attempt) =>
            {
                Some((outcome.clone(), *by_callback))
            }
            _ => None,
        });
        let is_noted = log.iter().any(|record| {
            matches!(&record.event, Event::LateCallback { item, attempt, .. } if is_its(*item, *attempt))
        });
        drop(shared);
        let goes_on = state.live(name.item).is_some();
        match ended {
            Some((before, true)) if before == outcome => {
                return self.answer_origin(origin, Answer::Done);
            }
            _ if goes_on => {
                return self.answer_origin(origin, Answer::Refused("the item goes on without it"));
            }
            _ if is_noted => return self.answer_origin(origin, Answer::Late),
            _ => {}
        }
        let Some(stepped) = &self.stepped else { return };
        let outbox = self.outbox.clone();
        let reply = Box::new(move |answer| {
            put(&outbox, Out::Request(RequestOut::Noted { origin, answer }));
        });
        let late = Input::LateCallback { item: name.item, attempt: name.attempt, outcome };
        let _ = if state.is_over() {
            stepped.inbox().note(state, late, reply)
        } else {
            stepped.inbox().send(job, late, reply)
        };
    }
}
