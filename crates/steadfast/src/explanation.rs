//! Why a job is where it is, as `GET /v1/jobs/{id}/explain` tells it.

use std::fmt;

use serde::Deserialize;
use serde_json::Value;

use crate::{ClientError, State};

/// Prints as a page for people.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Explanation {
    /// The answer in one line.
    pub sentence: String,
    pub state: State,
    /// Steps that have not simply succeeded.
    pub steps: Vec<Place>,
    /// What is under way or cannot be yet.
    pub waiting: Vec<Place>,
    /// In the order they were made.
    pub decisions: Vec<Decision>,
    /// All that the server says, with the accounts before and after each decision.
    pub json: Value,
}

/// A step or an item, and what there is to say of it.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[non_exhaustive]
pub struct Place {
    pub name: String,
    pub sentence: String,
}

/// What was decided on the end of an attempt.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[non_exhaustive]
pub struct Decision {
    /// `index[2]`
    #[serde(rename = "item", deserialize_with = "name")]
    pub item: String,
    /// From 1; 0 if it is about none.
    #[serde(default)]
    pub attempt: u32,
    pub error: Option<String>,
    /// `complete`, `retry` or `stop`.
    pub verdict: String,
    /// Of a retry.
    pub delay_ms: Option<u64>,
    /// Of a stop: `attempts_exhausted`, …
    pub reason: Option<String>,
    /// Which rule said so.
    #[serde(rename = "rule", deserialize_with = "text")]
    pub because: String,
    /// What would have been decided otherwise, and when.
    #[serde(default, deserialize_with = "maybe_text")]
    pub would_change: Option<String>,
}

#[derive(Deserialize)]
struct ExplanationBody {
    job: Job,
    steps: Vec<Place>,
    waiting: Vec<Place>,
    verdicts: Vec<Decision>,
}

#[derive(Deserialize)]
struct Job {
    state: State,
    sentence: String,
}

#[derive(Deserialize)]
struct Name {
    name: String,
}

#[derive(Deserialize)]
struct Text {
    text: String,
}

fn name<'de, D: serde::Deserializer<'de>>(told: D) -> Result<String, D::Error> {
    Name::deserialize(told).map(|named| named.name)
}

fn text<'de, D: serde::Deserializer<'de>>(told: D) -> Result<String, D::Error> {
    Text::deserialize(told).map(|said| said.text)
}

fn maybe_text<'de, D: serde::Deserializer<'de>>(told: D) -> Result<Option<String>, D::Error> {
    Option::<Text>::deserialize(told).map(|said| said.map(|said| said.text))
}

impl Explanation {
    pub(crate) fn read(json: Value) -> Result<Self, ClientError> {
        let told = ExplanationBody::deserialize(&json).map_err(ClientError::unintelligible)?;
        let ExplanationBody { job: Job { state, sentence }, steps, waiting, verdicts } = told;
        Ok(Self { sentence, state, steps, waiting, decisions: verdicts, json })
    }
}

impl fmt::Display for Explanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.sentence)?;
        for Place { name, sentence } in self.steps.iter().chain(&self.waiting) {
            writeln!(f, "  {name}: {sentence}")?;
        }
        for decision in &self.decisions {
            writeln!(f, "  {decision}")?;
        }
        Ok(())
    }
}

impl fmt::Display for Decision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} attempt {}", self.item, self.attempt)?;
        if let Some(error) = &self.error {
            write!(f, ", {error}")?;
        }
        match (self.verdict.as_str(), self.delay_ms, &self.reason) {
            ("retry", Some(ms), _) => write!(f, ": retry in {ms} ms")?,
            (_, _, Some(reason)) => write!(f, ": stop: {reason}")?,
            (verdict, _, _) => write!(f, ": {verdict}")?,
        }
        write!(f, ", because {}", self.because)
    }
}
