//! Files that come with a job: checked, and on the disk before the job is accepted.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Component, Path, PathBuf};

use steadfast_core::plan::Plan;
use steadfast_store::Folder;

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

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AttachedFile {
    /// Relative, without `..`.
    pub path: String,
    pub content: Vec<u8>,
    pub executable: bool,
}

/// By their paths below the job's folder.
pub(super) type Checked = BTreeMap<PathBuf, AttachedFile>;

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
) -> Result<Checked, ApiError> {
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
    let mut checked = Checked::new();
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

/// Writes the files into the job's folder, which is new with them, synced.
pub(super) fn put(data: &Folder, job: &str, files: &Checked) -> Result<(), ApiError> {
    if files.is_empty() {
        return Ok(());
    }
    let folder = &*data.files(job);
    let write = || -> io::Result<()> {
        make(data, folder)?;
        let mut folders = BTreeSet::from([folder.to_owned()]);
        for (path, file) in files {
            for above in path.ancestors().skip(1).filter(|above| !above.as_os_str().is_empty()) {
                folders.insert(folder.join(above));
            }
            let path = folder.join(path);
            // The folder is new and only ours: there are no links in it to follow.
            fs::create_dir_all(path.parent().unwrap_or(folder))?;
            write_new(&path, &file.content, file.executable)?;
        }
        folders.iter().try_for_each(|folder| File::open(folder)?.sync_all())
    };
    write().map_err(|error| trouble(folder, &error))
}

/// The files of another job, which this one goes on with.
pub(super) fn copy(
    data: &Folder,
    before: &str,
    job: &str,
    wanted: &BTreeSet<PathBuf>,
) -> Result<(), ApiError> {
    let mut files = Checked::new();
    let from = data.files(before);
    for path in wanted {
        read_all(&from, path, &mut files).map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => ApiError::NotPossible(format!(
                "the file {} is not kept here; submit the job again with its files",
                path.display()
            )),
            _ => trouble(&from, &error),
        })?;
    }
    put(data, job, &files)
}

fn read_all(root: &Path, path: &Path, files: &mut Checked) -> io::Result<()> {
    let here = root.join(path);
    let about = fs::symlink_metadata(&here)?;
    if about.is_dir() {
        for entry in fs::read_dir(&here)? {
            read_all(root, &path.join(entry?.file_name()), files)?;
        }
    } else if about.is_file() {
        let executable = about.permissions().mode() & 0o100 != 0;
        let name = path.display().to_string();
        let file = AttachedFile { path: name, content: fs::read(&here)?, executable };
        files.insert(path.to_owned(), file);
    }
    Ok(())
}

/// The job's own folder, for nobody else to read.
fn make(data: &Folder, folder: &Path) -> io::Result<()> {
    let above = folder.parent().unwrap_or(folder);
    data.create_inside(above)?;
    DirBuilder::new().mode(0o700).create(folder)?;
    File::open(above)?.sync_all()
}

fn write_new(path: &Path, content: &[u8], executable: bool) -> io::Result<()> {
    let mode = if executable { 0o755 } else { 0o644 };
    let mut file = OpenOptions::new().write(true).create_new(true).mode(mode).open(path)?;
    file.write_all(content)?;
    file.sync_all()
}

fn trouble(folder: &Path, error: &io::Error) -> ApiError {
    match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => ApiError::DiskFull,
        _ => ApiError::Internal(format!("{}: {error}", folder.display())),
    }
}
