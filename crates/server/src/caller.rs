//! Who asks, as far as a request tells: by the token that the guard has looked at.

use std::convert::Infallible;

use axum::extract::FromRequestParts;
use axum::http::Extensions;
use axum::http::request::Parts;
use steadfast_core::event::Requester;

use crate::error::ApiError;
use crate::tokens::Granted;

/// A token without a name is known by its id, which is no secret. None: a server without tokens.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Caller(Option<String>);

impl Caller {
    pub fn of(extensions: &Extensions) -> Self {
        let granted = extensions.get::<Granted>();
        Self(granted.map(|token| token.name.clone().unwrap_or_else(|| token.id.clone())))
    }

    /// What is recorded of a wish of theirs.
    pub fn requests(&self, reason: Option<&str>) -> Result<Requester, ApiError> {
        Requester::new(self.0.as_deref(), reason)
            .map_err(|why| ApiError::BadRequest(format!("`reason`: {why}")))
    }
}

impl<S: Sync> FromRequestParts<S> for Caller {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Infallible> {
        Ok(Self::of(&parts.extensions))
    }
}
