//! Where jobs are looked at: a data folder or a server. Commands that look at jobs know this trait alone, so that both
//! are asked the same questions and the answers are printed by one code.

use std::fmt::Display;
use std::io;
use std::ops::ControlFlow;
use std::sync::Arc;

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use steadfast_api::{Attempts, JobStatus, JobsPage, LogRow, ReadinessPage};
use steadfast_core::apply::fold;
use steadfast_core::event::RecordedEvent;
use steadfast_core::explain::Explanation;
use steadfast_core::job::Job;
use steadfast_core::plan::Plan;
use steadfast_core::time::Timestamp;

use steadfast_server::queries::WhatIfAnswer;

use crate::args::ListArgs;
use crate::error::CliError;
use crate::input;
use crate::logs::Times;
use crate::summary::JobOverview;

/// Takes a piece of a log, and says whether it wants more.
pub(crate) type SeePiece<'a> = &'a mut dyn FnMut(&[u8]) -> Result<ControlFlow<()>, CliError>;

pub(crate) trait JobSource {
    /// What a list says that differs between the two.
    fn list_words(&self) -> ListWords;

    fn list(&mut self, query: &ListArgs) -> Result<Answer<JobsPage>, CliError>;

    fn status(&mut self, id: &str) -> Result<Answer<JobStatus>, CliError>;

    /// Where a job stands, for people.
    fn overview(&mut self, id: &str) -> Result<JobOverview, CliError>;

    /// When it was accepted, and what it is to do.
    fn accepted(&mut self, id: &str) -> Result<(Timestamp, Arc<Plan>), CliError>;

    /// Every event after `after` that there is now, in order; the number of the last.
    fn events(
        &mut self,
        id: &str,
        after: u64,
        see: &mut dyn FnMut(StoredEvent) -> Result<(), CliError>,
    ) -> Result<u64, CliError>;

    /// An event that this program does not understand, or that cannot follow those before it.
    fn unreadable(&self, why: &dyn Display) -> CliError;

    fn explain(&mut self, id: &str, step: Option<&str>) -> Result<Answer<Explanation>, CliError>;

    /// What another policy would have decided; `with`: keys of a `retry` block.
    fn what_if(
        &mut self,
        id: &str,
        step: Option<&str>,
        with: &Value,
    ) -> Result<Answer<WhatIfAnswer>, CliError>;

    fn readiness(
        &mut self,
        id: &str,
        cursor: Option<&str>,
        limit: usize,
    ) -> Result<Answer<ReadinessPage>, CliError>;

    fn replay(&mut self, id: &str) -> Result<Replay, CliError>;

    /// The logs of a job, or of a step or item of it, in the order in which their attempts began.
    fn logs(&mut self, id: &str, step: Option<&str>) -> Result<Vec<LogRow>, CliError>;

    /// A log from a byte on, in pieces, until `see` has enough or nothing more is there.
    fn read_log(
        &mut self,
        id: &str,
        log: &LogRow,
        from: u64,
        see: SeePiece<'_>,
    ) -> Result<(), CliError>;

    fn log_times(&mut self, id: &str, log: &LogRow) -> Result<Times, CliError>;

    /// Whether more may be printed.
    fn activity(&mut self, id: &str) -> Result<Activity, CliError>;
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct ListWords {
    /// The heading of when a job began.
    pub(crate) begun: &'static str,
    /// What to do where there is no job yet.
    pub(crate) first: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Activity {
    GoesOn,
    Over,
    /// Nothing is at it: its state, and how to go on with it.
    Rests(String),
}

/// Whether the log of a job gives what is known of it otherwise.
#[derive(Clone, Debug)]
pub(crate) struct Replay {
    pub(crate) events: u64,
    pub(crate) is_equal: bool,
    pub(crate) state: String,
    /// What the events were held against.
    pub(crate) against: &'static str,
    /// What to say if they differ.
    pub(crate) complaint: String,
}

/// Folds the events after those that `job` has; the number of the last.
pub(crate) fn fold_events(
    source: &mut dyn JobSource,
    id: &str,
    job: &mut Option<Job>,
    attempts: &mut Attempts,
) -> Result<u64, CliError> {
    let after = job.as_ref().map_or(0, |job| job.seq);
    let mut wrong = None;
    let last = source.events(id, after, &mut |event| {
        let folded = event.read().map_err(|error| error.to_string()).and_then(|record| {
            attempts.add(&record);
            fold(job, &record).map_err(|error| error.to_string())
        });
        folded.map_err(|why| {
            wrong = Some(why.clone());
            why.into()
        })
    });
    match wrong {
        Some(why) => Err(source.unreadable(&why)),
        None => last,
    }
}

/// An event as a data folder has it, or as a server has written it: then it may say more than this program knows.
#[derive(Clone, Debug, Serialize)]
#[serde(untagged)]
pub(crate) enum StoredEvent {
    Stored(Box<RecordedEvent>),
    Sent(Value),
}

impl StoredEvent {
    pub(crate) fn read(self) -> serde_json::Result<RecordedEvent> {
        match self {
            Self::Stored(record) => Ok(*record),
            Self::Sent(value) => serde_json::from_value(value),
        }
    }
}

/// What was asked for; of a server the very text of its answer, which may say more than this program knows.
#[derive(Clone, Debug)]
pub(crate) enum Answer<T> {
    Made(T),
    Sent { text: String, address: String },
}

impl<T: Serialize + DeserializeOwned> Answer<T> {
    pub(crate) fn read(self) -> Result<T, CliError> {
        match self {
            Self::Made(value) => Ok(value),
            Self::Sent { text, address } => serde_json::from_str(&text)
                .map_err(|error| CliError::unreadable_answer(address, &error, &text)),
        }
    }

    pub(crate) fn print_json(&self) -> io::Result<()> {
        match self {
            Self::Made(value) => input::print_json(value),
            Self::Sent { text, .. } => input::print_text(text),
        }
    }
}
