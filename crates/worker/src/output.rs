//! What the process left in the files for its output and for its error.

use std::fs::{File, OpenOptions};
use std::io::{self, Read as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::Path;

use rustix::fs::OFlags;
use serde_json::{Map, Value};
use steadfast_core::outcome::{ErrorText, Failure, FailureKind, MOST_NESTED, Permanence, nesting};

use crate::start::not_completed;

/// Bytes of an error: it is kept with the attempt for ever, and shown in one line.
const ERROR_CAP: u64 = 16 << 10;

/// What a process that failed says of it; other keys are its own. `None`: nothing that can be understood. The
/// exit code tells that it failed in any case.
pub(crate) struct SaidError {
    error: ErrorText,
    /// Trying again cannot help.
    permanent: bool,
    /// What it was to do has begun.
    started: bool,
}

/// How it failed, that ended with this exit code and said this.
pub(crate) fn failure(code: u8, said: Option<SaidError>) -> Failure {
    let exited = Failure::new(FailureKind::Exited(code));
    let Some(SaidError { error, permanent, started }) = said else { return exited };
    let kind = if started { exited.kind } else { FailureKind::NotCompleted };
    let permanence = if permanent { Permanence::Said } else { Permanence::Open };
    Failure { kind, permanence, error: Some(error), ..exited }
}

/// `owner`: see [`open`].
pub(crate) fn read_error(path: &Path, owner: Option<u32>) -> Option<SaidError> {
    let bytes = read_at_most(open(path, owner).ok()?, ERROR_CAP + 1).ok()?;
    if bytes.len() as u64 > ERROR_CAP {
        return None;
    }
    let said: Map<String, Value> = serde_json::from_slice(&bytes).ok()?;
    let text = |key: &str| match said.get(key) {
        None => Some(""),
        Some(value) => value.as_str(),
    };
    let (kind, message) = (text("type")?, text("message")?);
    let message = if message.is_empty() { kind } else { message }.to_owned();
    let kind = (!kind.is_empty()).then(|| kind.to_owned());
    let flag = |key: &str, unsaid: bool| match said.get(key) {
        None => Some(unsaid),
        Some(value) => value.as_bool(),
    };
    let (permanent, started) = (flag("permanent", false)?, flag("started", true)?);
    let error = ErrorText { kind, message };
    (!error.message.is_empty()).then_some(SaidError { error, permanent, started })
}

/// `None`: it wrote nothing. `owner`: see [`open`].
pub(crate) fn read(path: &Path, cap: u64, owner: Option<u32>) -> Result<Option<Value>, Failure> {
    let bytes = match open(path, owner).and_then(|file| read_at_most(file, cap.saturating_add(1))) {
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
///
/// `owner`: whose it must be, where the process is another user than we are: what only we may read must not come
/// out because a link leads there.
fn open(path: &Path, owner: Option<u32>) -> io::Result<File> {
    let no_link = if owner.is_some() { OFlags::NOFOLLOW } else { OFlags::empty() };
    let flags = (OFlags::NONBLOCK | no_link).bits() as i32;
    let file = OpenOptions::new().read(true).custom_flags(flags).open(path)?;
    let about = file.metadata()?;
    if owner.is_some_and(|owner| about.uid() != owner) {
        return Err(io::Error::other("it is not the attempt's own file"));
    }
    if about.is_file() { Ok(file) } else { Err(io::Error::other("it is not a regular file")) }
}

fn read_at_most(file: File, limit: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    file.take(limit).read_to_end(&mut bytes)?;
    Ok(bytes)
}
