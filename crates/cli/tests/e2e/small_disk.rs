//! A disk that can be full.

use std::fs;
use std::io::{Read as _, Write as _};
use std::path::PathBuf;
use std::process::Command;

/// A file system of its own, gone with the test.
pub(super) struct SmallDisk(PathBuf);

impl SmallDisk {
    /// None, after a loud word: nobody may mount here.
    pub(super) fn mount(path: PathBuf, mib: u32) -> Option<Self> {
        fs::create_dir(&path).expect("a folder");
        let size = format!("size={mib}m,mode=700");
        let mounted =
            Command::new("mount").args(["-t", "tmpfs", "-o", &size, "none"]).arg(&path).output();
        match mounted {
            Ok(output) if output.status.success() => Some(Self(path)),
            why => {
                eprintln!("SKIPPED: NO SMALL DISK CAN BE MOUNTED HERE ({why:?}), SO NONE WAS FULL");
                None
            }
        }
    }

    /// Until no more than so many bytes are free.
    pub(super) fn leave(&self, bytes: u64) -> PathBuf {
        let free = rustix::fs::statvfs(&self.0).map(|disk| disk.f_bfree * disk.f_frsize);
        let free = free.expect("a disk");
        let path = self.filler();
        let file = fs::File::options().create(true).append(true).open(&path).expect("a file");
        let mut file = std::io::BufWriter::new(file);
        let filling =
            std::io::copy(&mut std::io::repeat(7).take(free.saturating_sub(bytes)), &mut file);
        filling.expect("it is free");
        path
    }

    fn filler(&self) -> PathBuf {
        fs::create_dir_all(self.0.join("logs")).expect("a folder");
        self.0.join("logs/filler")
    }

    /// Until nothing fits any more.
    pub(super) fn fill(&self) -> PathBuf {
        let path = self.filler();
        let mut file = fs::File::options().create(true).append(true).open(&path).expect("a file");
        let mut size = 1 << 16;
        while size > 0 {
            if file.write_all(&vec![7; size]).is_err() {
                size /= 2;
            }
        }
        path
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).output();
    }
}
