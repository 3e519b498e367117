//! Where a list goes on: after the job with this moment and id.

use steadfast_core::time::Timestamp;

use crate::{Row, StoreError};

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Cursor {
    pub(crate) submitted_at: Timestamp,
    pub(crate) id: String,
}

impl Cursor {
    pub(crate) fn read(text: &str) -> Result<Self, StoreError> {
        let read = || {
            let (at, id) = text.split_once('~')?;
            Some(Self { submitted_at: Timestamp(at.parse().ok()?), id: id.to_owned() })
        };
        read().ok_or_else(|| StoreError::BadCursor { cursor: text.to_owned() })
    }

    pub(crate) fn after(row: &Row) -> String {
        format!("{}~{}", row.submitted_at.0, row.id)
    }
}
