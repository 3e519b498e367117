//! Arrays of rows as they are sent: each column with its type, as the database's composite type has them.

use std::error::Error;

use bytes::{BufMut as _, BytesMut};
use tokio_postgres::types::{IsNull, ToSql, Type, to_sql_checked};

/// The number of a type that is none of the database's own. What it calls ours is known to it alone, and may be another after a restore:
/// since version 14 it takes such a number for that of the type it expects.
const OURS: u32 = u32::MAX;
/// Of an array's header: one dimension, no null among the rows, and the first row is number 1.
const DIMENSIONS: i32 = 1;
const HAS_NULLS: i32 = 0;
const FIRST: i32 = 1;
const NULL: i32 = -1;

/// An array, in the order of its rows. Its parameter has the type [`Type::UNKNOWN`]: the database knows what its function takes.
#[derive(Debug, Default)]
pub(super) struct Rows {
    count: usize,
    bytes: BytesMut,
}

impl Rows {
    /// In the order of the type's columns, all of them.
    pub(super) fn add(&mut self, columns: &[(&dyn ToSql, Type)]) {
        self.count += 1;
        with_length(&mut self.bytes, |out| {
            out.put_i32(columns.len() as i32);
            for (value, of_type) in columns {
                out.put_u32(of_type.oid());
                with_length(out, |out| {
                    value.to_sql_checked(of_type, out).expect("texts and numbers can be sent")
                });
            }
            IsNull::No
        });
    }
}

/// What is put, after its length. One that has no room in its 32 bits is part of a parameter that has none either, and that is not sent.
fn with_length(out: &mut BytesMut, put: impl FnOnce(&mut BytesMut) -> IsNull) {
    let at = out.len();
    out.put_i32(NULL);
    if let IsNull::No = put(out) {
        let length = (out.len() - at - size_of::<i32>()) as i32;
        out[at..at + size_of::<i32>()].copy_from_slice(&length.to_be_bytes());
    }
}

impl ToSql for Rows {
    fn to_sql(&self, _: &Type, out: &mut BytesMut) -> Result<IsNull, Box<dyn Error + Sync + Send>> {
        if self.count == 0 {
            out.put_i32(0);
            out.put_i32(HAS_NULLS);
            out.put_u32(OURS);
            return Ok(IsNull::No);
        }
        out.put_i32(DIMENSIONS);
        out.put_i32(HAS_NULLS);
        out.put_u32(OURS);
        out.put_i32(i32::try_from(self.count)?);
        out.put_i32(FIRST);
        out.extend_from_slice(&self.bytes);
        Ok(IsNull::No)
    }

    fn accepts(of_type: &Type) -> bool {
        *of_type == Type::UNKNOWN
    }

    to_sql_checked!();
}
