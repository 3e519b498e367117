//! A control group for each attempt, where this process may make some: killing one reaches every process in it,
//! whatever they did to be forgotten.
//!
//! Where: below our own group in the hierarchy of version 2, if that is writable (root, a service with
//! `Delegate=yes`). No controller is switched on, so that nothing is limited, and none that somebody else
//! switched on is in the way.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::os::fd::{AsFd as _, BorrowedFd};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags};

use crate::processes::wait;

/// How long what was killed may take to be gone.
const GONE_WITHIN: Duration = Duration::from_secs(5);

static NEXT: AtomicU64 = AtomicU64::new(0);

/// Removed when it goes, with all that is in it.
#[derive(Debug)]
pub(crate) struct Cgroup {
    path: PathBuf,
    procs: File,
}

impl Cgroup {
    /// None: this process can make none.
    pub(crate) fn new() -> Option<Self> {
        let parent = parent()?;
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = parent.join(format!("steadfast-{}-{number}", std::process::id()));
        fs::create_dir(&path).ok()?;
        let opened = File::options().write(true).open(path.join("cgroup.procs"));
        match opened {
            Ok(procs) => Some(Self { path, procs }),
            Err(_) => {
                let _ = fs::remove_dir(&path);
                None
            }
        }
    }

    pub(crate) fn procs(&self) -> BorrowedFd<'_> {
        self.procs.as_fd()
    }

    /// Everything in it, and in the groups that it made below. Returns when it is gone.
    pub(crate) fn kill(&self) -> io::Result<()> {
        File::options().write(true).open(self.path.join("cgroup.kill"))?.write_all(b"1")?;
        let until = crate::now() + GONE_WITHIN;
        let path = self.path.join("cgroup.events");
        let events = File::open(&path)?;
        loop {
            // The file says that it has changed; read anew it says to what.
            if fs::read_to_string(&path)?.lines().any(|line| line == "populated 0") {
                return Ok(());
            }
            let left = until.saturating_duration_since(crate::now());
            if left.is_zero() {
                return Err(io::ErrorKind::TimedOut.into());
            }
            // Some changes tell nobody: looked at again before long.
            let look = left.min(Duration::from_millis(50));
            wait(&mut [PollFd::new(&events, PollFlags::PRI)], Some(look))?;
        }
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        remove(&self.path);
    }
}

/// Groups below it first: an attempt that may make some leaves them behind.
fn remove(path: &Path) {
    for entry in fs::read_dir(path).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            remove(&entry.path());
        }
    }
    let _ = fs::remove_dir(path);
}

/// Our own group, if groups can be made in it and killed. Looked for once.
fn parent() -> Option<&'static Path> {
    static PARENT: OnceLock<Option<PathBuf>> = OnceLock::new();
    let find = || {
        let mounts = fs::read_to_string("/proc/self/mountinfo").ok()?;
        let own = fs::read_to_string("/proc/self/cgroup").ok()?;
        let path = place(&mounts, &own)?;
        let probe = path.join(format!("steadfast-{}", std::process::id()));
        fs::create_dir(&probe).ok()?;
        let kills = probe.join("cgroup.kill").exists();
        let _ = fs::remove_dir(&probe);
        remove_those_of_the_dead(&path);
        kills.then_some(path)
    };
    PARENT.get_or_init(find).as_deref()
}

/// One that was killed took none of its groups away. Only those without processes can be removed.
fn remove_those_of_the_dead(path: &Path) {
    for entry in fs::read_dir(path).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let maker =
            name.to_str().and_then(|name| name.strip_prefix("steadfast-")?.split('-').next());
        if maker
            .is_some_and(|pid| pid.parse::<u32>().is_ok() && !Path::new("/proc").join(pid).exists())
        {
            let _ = fs::remove_dir(entry.path());
        }
    }
}

/// `36 25 0:31 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw` and `0::/system.slice/a.service`
fn place(mounts: &str, own: &str) -> Option<PathBuf> {
    let own = own.lines().find_map(|line| line.strip_prefix("0::/"))?;
    let mount = mounts.lines().find(|line| line.contains(" - cgroup2 "))?;
    let mut fields = mount.split(' ').skip(3);
    let (root, at) = (fields.next()?, fields.next()?);
    // What is mounted may be a part of the hierarchy, as in a container.
    let below = Path::new("/").join(own);
    let below = below.strip_prefix(root).ok()?;
    Some(Path::new(at).join(below))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_of_a_worker_that_was_killed_are_removed() {
        let folder = tempfile::tempdir().unwrap();
        let own = format!("steadfast-{}-0", std::process::id());
        // No process has such a number.
        let names = ["steadfast-4194305-0", "steadfast-x-0", "other", &own];
        for name in names {
            fs::create_dir(folder.path().join(name)).unwrap();
        }
        fs::create_dir_all(folder.path().join("steadfast-4194306-1/used")).unwrap();
        remove_those_of_the_dead(folder.path());
        let left = |name: &str| folder.path().join(name).exists();
        assert_eq!(names.map(left), [false, true, true, true]);
        assert!(left("steadfast-4194306-1"), "it has something in it");
    }

    #[test]
    fn our_group_is_found_in_what_is_mounted() {
        let whole = "36 25 0:31 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw";
        let part = "36 25 0:31 /box /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw";
        let old = "36 25 0:31 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu";
        let found =
            |mounts: &str, own: &str| place(mounts, own).map(|path| path.display().to_string());
        assert_eq!(
            found(whole, "0::/a/b.service\n").as_deref(),
            Some("/sys/fs/cgroup/a/b.service")
        );
        assert_eq!(found(whole, "4:cpu:/x\n0::/\n").as_deref(), Some("/sys/fs/cgroup/"));
        assert_eq!(found(part, "0::/box/a\n").as_deref(), Some("/sys/fs/cgroup/a"));
        assert_eq!(found(part, "0::/elsewhere\n"), None);
        assert_eq!(found(old, "0::/\n"), None);
        assert_eq!(found(whole, "4:cpu:/x\n"), None);
    }
}
