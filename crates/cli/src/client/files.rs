//! The files that a job names, read from beside its job file.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::Serialize;
use steadfast_core::plan::Plan;

/// A server takes no more; a home folder named by mistake is refused before it is read.
const MOST_BYTES: u64 = 32 << 20;
const MOST_FILES: usize = 1000;

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Attached {
    path: String,
    content_base64: String,
    executable: bool,
}

/// What `files` of the job and of its steps names, each once. A folder stands for all that is in it.
pub(super) fn attached(plan: &Plan, folder: &Path) -> Result<Vec<Attached>, String> {
    let steps = plan.steps().iter().map(|step| &step.surroundings);
    let named = std::iter::once(plan.surroundings()).chain(steps).flat_map(|around| &around.files);
    let root =
        fs::canonicalize(if folder.as_os_str().is_empty() { Path::new(".") } else { folder });
    let root = root.map_err(|error| format!("{}: {error}", folder.display()))?;
    let mut found = FoundFiles { root, files: BTreeMap::new(), bytes: 0 };
    for name in named {
        let name = name.trim_end_matches('/');
        found.add(folder, Path::new(name)).map_err(|why| {
            format!("the job names the file `{name}`, which cannot be attached: {why}")
        })?;
    }
    let read = |(path, executable): (PathBuf, bool)| {
        let text =
            path.to_str().ok_or_else(|| format!("{}: the name is no text", path.display()))?;
        let content = fs::read(folder.join(&path))
            .map_err(|error| format!("cannot read {}: {error}", folder.join(&path).display()))?;
        let content_base64 = STANDARD.encode(content);
        Ok(Attached { path: text.to_owned(), content_base64, executable })
    };
    found.files.into_iter().map(read).collect()
}

struct FoundFiles {
    /// The job's own folder, as it really is.
    root: PathBuf,
    files: BTreeMap<PathBuf, bool>,
    bytes: u64,
}

impl FoundFiles {
    fn add(&mut self, folder: &Path, path: &Path) -> Result<(), String> {
        let path: PathBuf = path.components().filter(|part| part.as_os_str() != ".").collect();
        let whole = folder.join(&path);
        let about = fs::metadata(&whole).map_err(|error| match error.kind() {
            std::io::ErrorKind::NotFound => format!("there is no {}", whole.display()),
            _ => format!("{}: {error}", whole.display()),
        })?;
        // The submitter of another's job means the files that came with it, not their own.
        let real =
            fs::canonicalize(&whole).map_err(|error| format!("{}: {error}", whole.display()))?;
        if !real.starts_with(&self.root) {
            return Err(format!(
                "{} leads out of the job's folder, to {}; put a copy there instead of the link",
                whole.display(),
                real.display()
            ));
        }
        if about.is_dir() {
            let unreadable = |error| format!("{}: {error}", whole.display());
            for entry in fs::read_dir(&whole).map_err(unreadable)? {
                let entry = entry.map_err(unreadable)?;
                // A link to a folder may lead in circles.
                let is_link = entry.file_type().is_ok_and(|kind| kind.is_symlink());
                if !(is_link && entry.path().is_dir()) {
                    self.add(folder, &path.join(entry.file_name()))?;
                }
            }
            return Ok(());
        }
        if !about.is_file() {
            return Err(format!("{} is neither a file nor a folder", whole.display()));
        }
        let executable = about.permissions().mode() & 0o100 != 0;
        if self.files.insert(path, executable).is_none() {
            self.bytes += about.len();
        }
        if self.bytes > MOST_BYTES || self.files.len() > MOST_FILES {
            return Err(format!(
                "with it there are more than {MOST_FILES} files or {} MiB, which is what a server \
                 takes",
                MOST_BYTES >> 20
            ));
        }
        Ok(())
    }
}
