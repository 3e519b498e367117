//! Files that came with a job, in a folder of its own.

use std::collections::BTreeSet;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use super::{AttachedFile, AttachedFiles};
use crate::folder::Folder;

pub(super) fn put(data: &Folder, job: &str, files: &AttachedFiles) -> io::Result<()> {
    if files.is_empty() {
        return Ok(());
    }
    let folder = &*data.files(job);
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
}

pub(super) fn get(root: &Path, wanted: &BTreeSet<PathBuf>) -> io::Result<AttachedFiles> {
    let mut files = AttachedFiles::new();
    wanted.iter().try_for_each(|path| read_all(root, path, &mut files))?;
    Ok(files)
}

fn read_all(root: &Path, path: &Path, files: &mut AttachedFiles) -> io::Result<()> {
    let here = root.join(path);
    let about = fs::symlink_metadata(&here).map_err(|error| {
        io::Error::new(error.kind(), format!("the file {}: {error}", path.display()))
    })?;
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

pub(super) fn names(root: &Path, named: &str) -> io::Result<Vec<String>> {
    let path = root.join(named);
    if !fs::symlink_metadata(&path)?.is_dir() {
        return Ok(vec![named.to_owned()]);
    }
    let mut inside: Vec<String> = fs::read_dir(&path)?
        .map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()))
        .collect::<io::Result<_>>()?;
    inside.sort();
    let mut all = Vec::new();
    for name in inside {
        all.extend(names(root, &format!("{named}/{name}"))?);
    }
    Ok(all)
}

pub(super) fn open(path: &Path) -> io::Result<(Box<dyn Read + Send>, bool)> {
    let file = File::open(path)?;
    let executable = file.metadata()?.permissions().mode() & 0o100 != 0;
    Ok((Box::new(file), executable))
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
