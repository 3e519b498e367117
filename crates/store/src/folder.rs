//! The data folder: where the database, logs, working folders and files of jobs are.
//!
//! Names are made of ids, checked names and numbers, so that every one is a plain file name. One that is not, as
//! no caller should hand in here, becomes a path that every call of the system refuses, and never one elsewhere.

use std::fs::{self, DirBuilder, File, TryLockError};
use std::io::{self, Read as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, PermissionsExt as _};
use std::path::{Component, Path, PathBuf};

use steadfast_core::event::ItemId;
use steadfast_core::hex::hex;

use crate::settings::FolderSettings;
use crate::transfer::MoveRecord;

#[derive(Clone, Debug)]
pub struct Folder {
    root: PathBuf,
}

impl Folder {
    /// A file of nothing, which is given up when the disk is full.
    pub const BALLAST: &str = "ballast";

    pub fn new(root: PathBuf) -> Self {
        Self { root }
    }

    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Makes it, for its owner alone: jobs bring private things along. One that others can look into is made its
    /// owner's alone, if it is ours; otherwise it is refused.
    pub fn create(&self) -> io::Result<()> {
        if self.root.exists() {
            self.close_to_others()?;
        } else {
            DirBuilder::new().recursive(true).mode(0o700).create(&self.root)?;
        }
        DirBuilder::new().recursive(true).mode(0o700).create(self.locks())
    }

    fn close_to_others(&self) -> io::Result<()> {
        let about = fs::metadata(&self.root)?;
        let mode = about.permissions().mode() & 0o7777;
        if mode | 0o700 == 0o700 {
            return Ok(());
        }
        let shown = self.root.display();
        let refused = |why: &str| {
            let why =
                format!("{why}; give a folder of its own, or `chmod 700 {shown}` if it is one");
            Err(io::Error::new(io::ErrorKind::PermissionDenied, why))
        };
        if about.uid() != rustix::process::geteuid().as_raw() {
            return refused("others can look into it, and it belongs to somebody else");
        }
        // It holds something else that others may be meant to see, as /tmp does.
        // A disk of its own has one folder from the start.
        let others = fs::read_dir(&self.root)?.flatten();
        let is_empty = others.filter(|entry| entry.file_name() != "lost+found").count() == 0;
        let is_ours = self.database().exists() || is_empty;
        if !is_ours || mode & 0o1000 != 0 {
            return refused("others can look into it, and there are other things in it");
        }
        fs::set_permissions(&self.root, fs::Permissions::from_mode(mode & 0o700))
    }

    /// Makes a folder below the root and all between them, for their owner alone; never the root. A data
    /// folder that was moved away must not come to be again in its old place, with nothing in it.
    pub fn create_inside(&self, folder: &Path) -> io::Result<()> {
        let outside = || io::Error::other(format!("{} is outside", folder.display()));
        let below = folder.strip_prefix(&self.root).map_err(|_| outside())?;
        let mut path = self.root.clone();
        for name in below.components() {
            if !matches!(name, Component::Normal(_)) {
                return Err(outside());
            }
            path.push(name);
            match DirBuilder::new().mode(0o700).create(&path) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                made => made?,
            }
        }
        Ok(())
    }

    pub fn database(&self) -> PathBuf {
        self.root.join("steadfast.db")
    }

    pub fn locks(&self) -> PathBuf {
        self.root.join("locks")
    }

    /// Held by the server that has the folder.
    pub(crate) fn server_lock(&self) -> PathBuf {
        self.locks().join("server.lock")
    }

    /// Held by the process that runs a job of `run`.
    pub fn job_lock(&self, job: &str) -> PathBuf {
        self.locks().join(format!("{}.lock", plain(job)))
    }

    /// Says that the process that runs the job is to cancel it.
    pub(crate) fn cancel_file(&self, job: &str) -> PathBuf {
        self.locks().join(format!("{}.cancel", plain(job)))
    }

    /// By what the folder, and this machine's view of it, is known to others who share a database: made once, of chance.
    pub fn id(&self) -> io::Result<String> {
        let path = self.locks().join("id");
        let draft = self.locks().join(format!("id.{}", std::process::id()));
        for _ in 0..2 {
            match fs::read_to_string(&path) {
                Ok(id) if !id.is_empty() => return Ok(id),
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
            let mut chance = [0; 16];
            File::open("/dev/urandom")?.read_exact(&mut chance)?;
            fs::write(&draft, hex(&chance))?;
            // The first one stays.
            let _ = fs::hard_link(&draft, &path);
            fs::remove_file(&draft)?;
        }
        fs::read_to_string(&path)
    }

    /// Whether some process runs the job right now.
    pub fn is_run(&self, job: &str) -> bool {
        is_held(&self.job_lock(job))
    }

    /// Whether a server has the folder right now.
    pub fn is_served(&self) -> bool {
        is_held(&self.server_lock())
    }

    /// Why its jobs may not be touched here: they were moved, or are being moved.
    pub fn is_moved(&self) -> io::Result<Option<String>> {
        let record = MoveRecord::of(&FolderSettings::new(self.root.clone()))?;
        Ok(record.closes(&self.root.display().to_string()))
    }

    /// The folder of all attempts of a job.
    pub fn work(&self, job: &str) -> PathBuf {
        self.root.join("work").join(plain(job))
    }

    /// Empty folders that attempts of the next job will have.
    pub fn spare(&self) -> PathBuf {
        self.root.join("spare")
    }

    /// The folder of what its attempts have written, with a folder for each step in it.
    pub fn logs(&self, job: &str) -> PathBuf {
        self.root.join("logs").join(plain(job))
    }

    /// What an attempt has written.
    pub fn log(&self, job: &str, step: &str, item: ItemId, attempt: u32) -> PathBuf {
        self.log_named(job, step, &item.attempt_name(plain(step), attempt))
    }

    pub(crate) fn log_named(&self, job: &str, step: &str, name: &str) -> PathBuf {
        self.logs(job).join(plain(step)).join(format!("{}.log", plain(name)))
    }

    /// The folder of the files that came with a job.
    pub fn files(&self, job: &str) -> PathBuf {
        self.root.join("files").join(plain(job))
    }
}

/// A file name that leads nowhere else, whatever it is put before or behind.
pub fn is_plain_name(name: &str) -> bool {
    let mut parts = Path::new(name).components();
    let one = matches!((parts.next(), parts.next()), (Some(Component::Normal(_)), None));
    one && !name.contains(['/', '\0'])
}

/// The name itself, or one that no file can have. Empty: of all jobs.
fn plain(name: &str) -> &str {
    if name.is_empty() || is_plain_name(name) { name } else { "\0" }
}

fn is_held(lock: &Path) -> bool {
    let file = File::open(lock);
    file.is_ok_and(|file| matches!(file.try_lock_shared(), Err(TryLockError::WouldBlock)))
}

#[cfg(test)]
mod tests {
    use steadfast_core::event::Role;

    use super::*;

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().permissions().mode() & 0o777
    }

    fn open_to_others(path: &Path) {
        fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
    }

    #[test]
    fn a_folder_that_others_can_look_into_is_made_its_owners_alone() {
        let place = tempfile::tempdir().unwrap();
        let root = place.path().join("data");
        let folder = Folder::new(root.clone());
        folder.create().unwrap();
        assert_eq!((mode(&root), mode(&folder.locks())), (0o700, 0o700));
        fs::write(folder.database(), "").unwrap();
        open_to_others(&root);
        folder.create().unwrap();
        assert_eq!(mode(&root), 0o700);
        // One that an operator has just made for it.
        let empty = place.path().join("empty");
        fs::create_dir(&empty).unwrap();
        open_to_others(&empty);
        Folder::new(empty.clone()).create().unwrap();
        assert_eq!(mode(&empty), 0o700);
    }

    #[test]
    fn a_folder_with_other_things_in_it_is_refused_and_left_as_it_is() {
        let place = tempfile::tempdir().unwrap();
        let home = place.path().join("home");
        fs::create_dir(&home).unwrap();
        fs::write(home.join("notes.txt"), "").unwrap();
        open_to_others(&home);
        let why = Folder::new(home.clone()).create().expect_err("refused").to_string();
        assert!(why.contains("other things in it") && why.contains("chmod 700"), "{why}");
        assert_eq!(mode(&home), 0o755);
        fs::set_permissions(&home, fs::Permissions::from_mode(0o700)).unwrap();
        Folder::new(home).create().unwrap();
        // Started as root: what all users share is never closed.
        let why = Folder::new(PathBuf::from("/")).create().expect_err("refused").to_string();
        assert!(why.contains("others can look into it"), "{why}");
        assert_ne!(mode(Path::new("/")) & 0o055, 0);
    }

    #[test]
    fn no_name_of_a_job_or_step_leads_out_of_its_place() {
        let here = tempfile::tempdir().unwrap();
        let folder = Folder::new(here.path().join("data"));
        folder.create().unwrap();
        let item = ItemId { run: 0, step: 0, role: Role::Item, index: 0 };
        for odd in ["..", ".", "/etc", "a/b", "z/../../../pwned", "a/", "a\0", "../pwned"] {
            assert!(!is_plain_name(odd), "{odd:?}");
            for path in [
                folder.log(odd, "step", item, 1),
                folder.log("job", odd, item, 1),
                folder.files(odd),
                folder.work(odd),
                folder.job_lock(odd),
            ] {
                assert!(path.starts_with(folder.root()), "{path:?}");
                let refused = File::create(&path).unwrap_err();
                assert_eq!(refused.kind(), io::ErrorKind::InvalidInput, "{path:?}");
            }
        }
        let outside = folder.root().join("logs/../../pwned");
        assert!(folder.create_inside(&outside).is_err());
        assert!(!here.path().join("pwned").exists());
        assert!(folder.log("01k", "fetch-2_x.y", item, 1).starts_with(folder.logs("01k")));
    }
}
