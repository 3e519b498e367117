//! Which workers a token is good for.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{TokenError, printable};

/// What is not said here is free. Of scope `worker` only.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct WorkerBinding {
    /// The one name that a worker can have with it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub worker: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub datacenter: Option<String>,
    /// Exactly these. Empty: any, because a label is what jobs choose workers by.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
}

/// What is wrong with what a worker says of itself.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotBoundTo {
    #[error("this token is for another worker than {0:?}")]
    Worker(String),
    #[error("this token is for a worker of another datacenter than {0:?}")]
    Datacenter(String),
    #[error("this token is for a worker with other labels; `steadfast token list` shows which")]
    Labels,
}

impl WorkerBinding {
    pub fn is_free(&self) -> bool {
        *self == Self::default()
    }

    pub(super) fn check(&self) -> Result<(), TokenError> {
        let wrong = |text: &Option<String>| text.as_deref().is_some_and(|text| !printable(text));
        if wrong(&self.worker) {
            return Err(TokenError::Binding("a worker's name"));
        }
        if wrong(&self.datacenter) {
            return Err(TokenError::Binding("a datacenter"));
        }
        let pairs = self.labels.iter();
        if pairs.into_iter().any(|(key, value)| !printable(key) || !printable(value)) {
            return Err(TokenError::Binding("labels"));
        }
        Ok(())
    }

    /// Whether a worker may say this of itself.
    pub fn allows(
        &self,
        worker: &str,
        datacenter: &str,
        labels: &BTreeMap<String, String>,
    ) -> Result<(), NotBoundTo> {
        let is_other = |bound: &Option<String>, said| bound.as_deref().is_some_and(|it| it != said);
        if is_other(&self.worker, worker) {
            return Err(NotBoundTo::Worker(worker.to_owned()));
        }
        if is_other(&self.datacenter, datacenter) {
            return Err(NotBoundTo::Datacenter(datacenter.to_owned()));
        }
        if !self.labels.is_empty() && self.labels != *labels {
            return Err(NotBoundTo::Labels);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bound_token_is_good_for_nothing_else() {
        let labels = |pairs: &[(&str, &str)]| {
            let pairs = pairs.iter();
            pairs.map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
        };
        let free = WorkerBinding::default();
        assert_eq!(free.allows("w", "eu", &labels(&[("a", "1")])), Ok(()));
        let bound = WorkerBinding {
            worker: Some("w".into()),
            datacenter: Some("eu".into()),
            labels: labels(&[("pool", "gpu")]),
        };
        let its = labels(&[("pool", "gpu")]);
        assert_eq!(bound.allows("w", "eu", &its), Ok(()));
        assert_eq!(bound.allows("v", "eu", &its), Err(NotBoundTo::Worker("v".into())));
        assert_eq!(bound.allows("w", "", &its), Err(NotBoundTo::Datacenter(String::new())));
        for more in [&[][..], &[("pool", "cpu")], &[("pool", "gpu"), ("secure", "yes")]] {
            assert_eq!(bound.allows("w", "eu", &labels(more)), Err(NotBoundTo::Labels));
        }
    }
}
