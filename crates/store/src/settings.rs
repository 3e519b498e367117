//! Small things that a server keeps for itself, by name: tokens, the key of its callbacks. Private, written whole, durable.

use std::fmt::Debug;
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::PathBuf;

/// Differs after every change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Version(Option<(u64, i64, i64, u64)>);

impl Version {
    pub(crate) fn of_number(number: u64) -> Self {
        Self(Some((number, 0, 0, 0)))
    }
}

/// What a setting becomes, from what it is; an error changes nothing.
pub type Change<'a> = &'a mut dyn FnMut(Option<Vec<u8>>) -> io::Result<Vec<u8>>;

pub trait Settings: Debug + Send + Sync {
    /// Cheap: asked at every request.
    fn version(&self, name: &str) -> io::Result<Version>;

    /// With the version that was read, at least.
    fn get(&self, name: &str) -> io::Result<(Version, Option<Vec<u8>>)>;

    /// One change at a time, whichever process makes it; all or nothing.
    fn change(&self, name: &str, change: Change<'_>) -> io::Result<()>;

    /// For messages: where an operator finds it.
    fn place(&self, name: &str) -> String;
}

/// A file each, in the data folder.
#[derive(Clone, Debug)]
pub struct FolderSettings {
    root: PathBuf,
}

impl FolderSettings {
    pub fn new(root: PathBuf) -> Self {
        Self { root }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.root.join(name)
    }
}

impl Settings for FolderSettings {
    fn version(&self, name: &str) -> io::Result<Version> {
        match fs::metadata(self.path(name)) {
            Ok(about) => {
                let (seconds, nanos) = (about.ctime(), about.ctime_nsec());
                Ok(Version(Some((about.ino(), seconds, nanos, about.len()))))
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Version(None)),
            Err(error) => Err(error),
        }
    }

    fn get(&self, name: &str) -> io::Result<(Version, Option<Vec<u8>>)> {
        // Before it is read: what changes meanwhile is seen next time.
        let version = self.version(name)?;
        match fs::read(self.path(name)) {
            Ok(bytes) => {
                if fs::metadata(self.path(name))?.mode() & 0o022 != 0 {
                    let why =
                        "others can write to it: `chmod 600` it, after a look at what is in it";
                    return Err(io::Error::new(io::ErrorKind::PermissionDenied, why));
                }
                Ok((version, Some(bytes)))
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok((version, None)),
            Err(error) => Err(error),
        }
    }

    fn change(&self, name: &str, change: Change<'_>) -> io::Result<()> {
        fs::create_dir_all(&self.root)?;
        let lock = private(&self.path(&format!("{name}.lock")), false)?;
        lock.lock()?;
        let bytes = change(self.get(name)?.1)?;
        let draft = self.path(&format!("{name}.new"));
        let mut file = private(&draft, true)?;
        // An earlier one, of a process that died, may have had other rights.
        file.set_permissions(fs::Permissions::from_mode(0o600))?;
        file.write_all(&bytes)?;
        file.sync_all()?;
        fs::rename(&draft, self.path(name))?;
        File::open(&self.root)?.sync_all()
    }

    fn place(&self, name: &str) -> String {
        self.path(name).display().to_string()
    }
}

fn private(path: &std::path::Path, empty: bool) -> io::Result<File> {
    File::options().write(true).create(true).truncate(empty).mode(0o600).open(path)
}
