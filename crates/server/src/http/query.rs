//! Parameters of a request. Those that nobody knows are passed over; those that are known and wrong
//! are refused by name.

use std::convert::Infallible;

use axum::extract::{FromRequestParts, Path, Query};
use axum::http::request::Parts;

use serde::de::DeserializeOwned;

use super::PageLimit;
use crate::error::ApiError;

/// The variable parts of the address. What is not even text names nothing.
#[derive(Debug)]
pub(super) struct Names<T>(pub(super) T);

impl<S: Send + Sync, T: DeserializeOwned + Send> FromRequestParts<S> for Names<T> {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiError> {
        let names = Path::from_request_parts(parts, state).await;
        names
            .map(|Path(names)| Self(names))
            .map_err(|_| ApiError::NotFound("the address is not text: nothing is there".to_owned()))
    }
}

#[derive(Debug)]
pub(super) struct Params(Vec<(String, String)>);

impl<S: Sync> FromRequestParts<S> for Params {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Infallible> {
        // Pairs of text can be made of any query.
        let pairs = Query::try_from_uri(&parts.uri).map(|Query(pairs)| pairs);
        Ok(Self(pairs.unwrap_or_default()))
    }
}

impl Params {
    pub(super) fn text(&self, name: &str) -> Result<Option<&str>, ApiError> {
        let mut given = self.0.iter().filter(|(known, _)| known == name).map(|(_, value)| &**value);
        let first = given.next();
        if given.next().is_some() {
            return Err(ApiError::BadRequest(format!("`{name}` is given more than once")));
        }
        Ok(first)
    }

    /// Every value that is given.
    pub(super) fn all(&self, name: &str) -> impl Iterator<Item = &str> {
        self.0.iter().filter(move |(known, _)| known == name).map(|(_, value)| &**value)
    }

    /// `what` it must be, for whoever wrote something else.
    pub(super) fn number(&self, name: &str, what: &str) -> Result<Option<u64>, ApiError> {
        let Some(text) = self.text(name)? else { return Ok(None) };
        let wrong = || ApiError::BadRequest(format!("`{name}` must be {what}, not {text:?}"));
        number(text).map(Some).ok_or_else(wrong)
    }

    pub(super) fn limit(&self, page: PageLimit) -> Result<usize, ApiError> {
        let PageLimit { usual, most } = page;
        let what = format!("a whole number from 1 to {most}");
        match self.number("limit", &what)? {
            None => Ok(usual.min(most)),
            Some(limit) if (1..=most as u64).contains(&limit) => Ok(limit as usize),
            Some(limit) => {
                Err(ApiError::BadRequest(format!("`limit` must be {what}, not {limit}")))
            }
        }
    }

    pub(super) fn flag(&self, name: &str) -> Result<bool, ApiError> {
        match self.text(name)? {
            None | Some("false") => Ok(false),
            Some("true") => Ok(true),
            Some(text) => {
                Err(ApiError::BadRequest(format!("`{name}` must be true or false, not {text:?}")))
            }
        }
    }
}

/// Digits only, and no more than every language can count to.
pub(super) fn number(text: &str) -> Option<u64> {
    let digits = text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse::<u64>().ok().filter(|number| digits && i64::try_from(*number).is_ok())
}
