//! The state of a job as lists, statuses and filters show it.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use steadfast_core::event::JobState;

/// A job's own state, or `interrupted`: a job of `run` that has not ended, and whose process is gone.
/// That is never stored, as the process that would store it is gone: the reader looks at the job's lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ShownState {
    Of(JobState),
    Interrupted,
    /// What is stored of it is damaged.
    Stuck,
}

impl ShownState {
    pub fn all() -> impl Iterator<Item = Self> {
        let own = JobState::ALL.iter().copied().map(Self::Of);
        own.chain([Self::Interrupted, Self::Stuck])
    }

    pub const fn name(self) -> &'static str {
        match self {
            Self::Of(state) => state.name(),
            Self::Interrupted => "interrupted",
            Self::Stuck => "stuck",
        }
    }

    pub const fn is_terminal(self) -> bool {
        matches!(self, Self::Of(state) if state.is_terminal())
    }

    /// `local`: begun by `run`; `runs`: its process is there.
    pub const fn new(state: JobState, local: bool, runs: bool) -> Self {
        if local && !runs && !state.is_terminal() { Self::Interrupted } else { Self::Of(state) }
    }
}

impl From<JobState> for ShownState {
    fn from(state: JobState) -> Self {
        Self::Of(state)
    }
}

impl PartialEq<JobState> for ShownState {
    fn eq(&self, other: &JobState) -> bool {
        *self == Self::Of(*other)
    }
}

impl fmt::Display for ShownState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// What is no state, and what would be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InvalidState(String);

impl fmt::Display for InvalidState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let all: Vec<&str> = ShownState::all().map(ShownState::name).collect();
        let (last, others) = all.split_last().unwrap_or((&"", &[]));
        write!(f, "{:?} is not a state; write {} or {last}", self.0, others.join(", "))
    }
}

impl std::error::Error for InvalidState {}

impl FromStr for ShownState {
    type Err = InvalidState;

    fn from_str(text: &str) -> Result<Self, InvalidState> {
        Self::all().find(|state| state.name() == text).ok_or_else(|| InvalidState(text.to_owned()))
    }
}

impl Serialize for ShownState {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}

impl<'de> Deserialize<'de> for ShownState {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_job_of_run_that_goes_on_without_its_process_is_interrupted() {
        for state in JobState::ALL.iter().copied() {
            for (local, runs) in [(false, false), (false, true), (true, true), (true, false)] {
                let shown = ShownState::new(state, local, runs);
                let expected = local && !runs && !state.is_terminal();
                assert_eq!(shown == ShownState::Interrupted, expected, "{state} {local} {runs}");
                assert!(expected || shown == state);
            }
        }
    }

    #[test]
    fn a_state_is_read_as_it_is_written_and_a_wrong_one_is_told_the_right_ones() {
        for state in ShownState::all() {
            assert_eq!(state.to_string().parse(), Ok(state));
        }
        let why = "done".parse::<ShownState>().unwrap_err().to_string();
        assert!(why.contains("pending, running,") && why.ends_with("or stuck"), "{why}");
    }
}
