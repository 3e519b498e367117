//! Files that come with a job: checked, and on the disk before the job is accepted.

use std::collections::BTreeSet;
use std::io;
use std::path::{Component, Path, PathBuf};

use steadfast_core::plan::{Cwd, Plan};
use steadfast_store::{AttachedFile, AttachedFiles, Blobs};

use crate::error::ApiError;

/// How much may come with a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attached {
    pub files: usize,
    /// Of all together.
    pub bytes: usize,
}

impl Default for Attached {
    fn default() -> Self {
        Self { files: 1000, bytes: 32 << 20 }
    }
}
/// Longer paths do not fit every disk.
const PATH_BYTES: usize = 1024;
const NAME_BYTES: usize = 255;

/// A path below a folder that cannot lead out of it.
fn inside(text: &str) -> Result<PathBuf, ApiError> {
    let refuse = |why: &str| Err(ApiError::BadRequest(format!("the file path {text:?} {why}")));
    if text.len() > PATH_BYTES {
        return refuse("is too long");
    }
    if text.contains('\0') {
        return refuse("has a NUL character in it");
    }
    let mut path = PathBuf::new();
    for component in Path::new(text).components() {
        match component {
            Component::Normal(name) if name.len() > NAME_BYTES => {
                return refuse("has a name in it that is too long");
            }
            Component::Normal(name) => path.push(name),
            Component::CurDir => {}
            _ => return refuse("must be relative, without `..`"),
        }
    }
    if path.as_os_str().is_empty() || text.ends_with('/') {
        refuse("names no file")
    } else {
        Ok(path)
    }
}

/// What the plan names, of the job and of its steps. A folder stands for all that is in it.
pub(super) fn wanted(plan: &Plan) -> Result<BTreeSet<PathBuf>, ApiError> {
    let steps = plan.steps().iter().map(|step| &step.surroundings);
    let all = std::iter::once(plan.surroundings()).chain(steps).flat_map(|around| &around.files);
    all.map(|text| inside(text.trim_end_matches('/'))).collect()
}

pub(super) fn checked(
    files: Vec<AttachedFile>,
    plan: &Plan,
    most: Attached,
) -> Result<AttachedFiles, ApiError> {
    let bad = |why: String| Err(ApiError::BadRequest(why));
    let total: usize = files.iter().map(|file| file.content.len()).sum();
    if total > most.bytes || files.len() > most.files {
        let (count, Attached { files, bytes }) = (files.len(), most);
        return Err(ApiError::TooLarge(format!(
            "the attached files have {total} bytes in {count} files; {bytes} bytes in {files} files \
             are taken at most"
        )));
    }
    let wanted = wanted(plan)?;
    let mut checked = AttachedFiles::new();
    for file in files {
        let path = inside(&file.path)?;
        if !path.ancestors().any(|above| wanted.contains(above)) {
            return bad(format!("{:?} is attached, but not named in `files`", file.path));
        }
        if checked.insert(path, file).is_some() {
            return bad("the same path is attached twice".to_owned());
        }
    }
    for path in checked.keys() {
        if let Some(above) = path.ancestors().skip(1).find(|above| checked.contains_key(*above)) {
            let (above, path) = (above.display(), path.display());
            return bad(format!("{above} cannot be a file and the folder of {path}"));
        }
    }
    let missing: Vec<String> = (wanted.iter())
        .filter(|path| !checked.keys().any(|have| have.starts_with(path)))
        .map(|path| path.display().to_string())
        .collect();
    if !missing.is_empty() {
        return Err(ApiError::FilesMissing(missing));
    }
    Ok(checked)
}

pub(super) fn put(blobs: &dyn Blobs, job: &str, files: &AttachedFiles) -> Result<(), ApiError> {
    blobs.put_files(job, files).map_err(|error| refused(job, &error))
}

/// The files of another job, which this one goes on with.
pub(super) fn copy(
    blobs: &dyn Blobs,
    before: &str,
    job: &str,
    wanted: &BTreeSet<PathBuf>,
) -> Result<(), ApiError> {
    let files = blobs.get_files(before, wanted).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => ApiError::NotPossible(format!(
            "{error}: it is not kept here; submit the job again with its files"
        )),
        _ => refused(before, &error),
    })?;
    put(blobs, job, &files)
}

fn refused(job: &str, error: &io::Error) -> ApiError {
    match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => ApiError::DiskFull,
        io::ErrorKind::NotConnected | io::ErrorKind::TimedOut => {
            tracing::warn!(event = "FilesNotKept", job_id = job, %error);
            let why = "the place where the server keeps attached files cannot be reached at the moment; nothing was accepted, \
                       try again";
            ApiError::Overloaded(why.to_owned())
        }
        _ => ApiError::Internal(format!("files of job {job}: {error}")),
    }
}

/// There is no folder that the job file lies in.
pub(super) fn has_no_source(plan: &Plan) -> Result<(), ApiError> {
    let steps = plan.steps().iter();
    let steps = steps.map(|step| (format!("steps.{}.cwd", step.name), &step.surroundings));
    let mut places = std::iter::once(("cwd".to_owned(), plan.surroundings())).chain(steps);
    match places.find(|(_, around)| around.cwd == Some(Cwd::Source)) {
        None => Ok(()),
        Some((place, _)) => Err(ApiError::BadRequest(format!(
            "`{place}: source` is for `steadfast run`: a server does not have the job file's \
             folder. Leave it out, and name what the job needs in `files`"
        ))),
    }
}
