//! Values as they are sent.

use std::borrow::Cow;
use std::error::Error;

use bytes::BytesMut;
use steadfast_core::time::Timestamp;
use tokio_postgres::types::{IsNull, ToSql, Type, accepts, to_sql_checked};

/// Text as `PostgreSQL` can have it: without the character NUL, which becomes U+FFFD.
#[derive(Clone, Copy, Debug)]
pub(super) struct Text<'a>(pub(super) &'a str);

impl ToSql for Text<'_> {
    fn to_sql(&self, _: &Type, out: &mut BytesMut) -> Result<IsNull, Box<dyn Error + Sync + Send>> {
        let text = if self.0.contains('\0') {
            Cow::Owned(self.0.replace('\0', "\u{fffd}"))
        } else {
            Cow::Borrowed(self.0)
        };
        out.extend_from_slice(text.as_bytes());
        Ok(IsNull::No)
    }

    accepts!(TEXT);
    to_sql_checked!();
}

/// The end of time, whatever it is, is the highest number there is.
pub(super) fn ms(at: Timestamp) -> i64 {
    i64::try_from(at.0).unwrap_or(i64::MAX)
}

pub(super) fn at(ms: i64) -> Timestamp {
    if ms == i64::MAX { Timestamp(u64::MAX) } else { Timestamp(ms as u64) }
}

pub(super) fn count(limit: usize) -> i64 {
    i64::try_from(limit).unwrap_or(i64::MAX)
}
