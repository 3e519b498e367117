//! What the process left in its output file.

use std::fs::{File, OpenOptions};
use std::io::{self, Read as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use rustix::fs::OFlags;
use serde_json::Value;
use steadfast_core::outcome::{Failure, MOST_NESTED, nesting};

use crate::start::not_completed;

/// `None`: it wrote nothing.
pub(crate) fn read(path: &Path, cap: u64) -> Result<Option<Value>, Failure> {
    let bytes = match open(path).and_then(|file| read_at_most(file, cap.saturating_add(1))) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => {
            return Err(not_completed(
                "output_invalid",
                format!("the output cannot be read: {error}"),
            ));
        }
    };
    if bytes.len() as u64 > cap {
        return Err(not_completed(
            "output_too_large",
            format!("the output is larger than {cap} bytes"),
        ));
    }
    if bytes.trim_ascii().is_empty() {
        return Ok(None);
    }
    match serde_json::from_slice(&bytes) {
        Ok(value) if nesting(&value) > MOST_NESTED => Err(not_completed(
            "output_too_deep",
            format!("the output is nested deeper than {MOST_NESTED} levels"),
        )),
        Ok(value) => Ok(Some(value)),
        Err(error) => {
            Err(not_completed("output_invalid", format!("the output is not JSON: {error}")))
        }
    }
}

/// The process decides what lies there: a named pipe must not block us, nor a device feed us.
fn open(path: &Path) -> io::Result<File> {
    let file =
        OpenOptions::new().read(true).custom_flags(OFlags::NONBLOCK.bits() as i32).open(path)?;
    if file.metadata()?.is_file() {
        Ok(file)
    } else {
        Err(io::Error::other("it is not a regular file"))
    }
}

fn read_at_most(file: File, limit: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    file.take(limit).read_to_end(&mut bytes)?;
    Ok(bytes)
}
