//! Where a list goes on: after the job with this number.

use std::fmt;

use crate::StoreError;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Cursor(pub(crate) i64);

impl Cursor {
    pub(crate) fn read(text: &str) -> Result<Self, StoreError> {
        let number = text.parse().ok().filter(|number| *number >= 0);
        number.map(Self).ok_or_else(|| StoreError::BadCursor { cursor: text.to_owned() })
    }
}

impl fmt::Display for Cursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
