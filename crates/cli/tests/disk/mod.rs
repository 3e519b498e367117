//! A disk that can fail under the real program: `sync_shim.c`, compiled, in front of the C library.

#![allow(dead_code, reason = "each test file uses a part of it")]

use std::fs::{self, File};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// None, after a loud word: there is no C compiler here.
pub(crate) fn shim() -> Option<PathBuf> {
    static COMPILED: OnceLock<Option<PathBuf>> = OnceLock::new();
    COMPILED.get_or_init(compiled).clone()
}

fn compiled() -> Option<PathBuf> {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/sync_shim.c");
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let library = folder.join(format!("sync_shim-{}.so", std::process::id()));
    let compiling = Command::new("cc")
        .args(["-shared", "-fPIC", "-O1", "-Wall", "-Werror", "-o"])
        .args([&library, &source])
        .args(["-ldl", "-lpthread"])
        .status();
    match compiling {
        Ok(status) if status.success() => Some(library),
        Ok(status) => panic!("sync_shim.c: {status}"),
        Err(error) => {
            eprintln!(
                "SKIPPED: THERE IS NO C COMPILER HERE ({error}), SO NO SYNC WAS SEEN OR FAILED"
            );
            None
        }
    }
}

/// Under the database of one data folder.
#[derive(Debug)]
pub(crate) struct FailingDisk {
    shim: PathBuf,
    undo: PathBuf,
    fail: PathBuf,
    database: PathBuf,
}

/// What stood where something was written.
struct Was {
    at: u64,
    size: u64,
    length: u64,
    bytes: Vec<u8>,
}

impl FailingDisk {
    /// `folder`: for what it must remember.
    pub(crate) fn below(folder: &Path, database: &Path) -> Option<Self> {
        let (undo, fail) = (folder.join("unsynced"), folder.join("fail-next-sync"));
        Some(Self { shim: shim()?, undo, fail, database: database.to_owned() })
    }

    /// Of the program's environment.
    pub(crate) fn settings(&self) -> [(&'static str, String); 3] {
        let text = |path: &Path| path.to_str().expect("plain").to_owned();
        [
            ("LD_PRELOAD", text(&self.shim)),
            ("SYNC_SHIM_UNDO", text(&self.undo)),
            ("SYNC_SHIM_FAIL", text(&self.fail)),
        ]
    }

    /// Once; what it should have made durable is gone.
    pub(crate) fn fail_next_sync(&self) {
        fs::write(&self.fail, "").expect("writes");
    }

    pub(crate) fn has_failed(&self) -> bool {
        !self.fail.exists()
    }

    /// After the program was killed, as if the power had gone with it: what it has written without a sync is as it was before, but
    /// for what `arrived` says has come to the disk by chance.
    pub(crate) fn lose_unsynced(&self, mut arrived: impl FnMut() -> bool) -> usize {
        let _ = fs::remove_file(&self.fail);
        let mut lost = 0;
        for (kind, suffix) in [("w", "-wal"), ("d", "")] {
            let undo = self.undo.with_extension(kind);
            let name = format!("{}{suffix}", self.database.display());
            let all = records(&fs::read(&undo).unwrap_or_default());
            fs::write(&undo, "").expect("writes");
            let Ok(file) = File::options().write(true).open(&name) else { continue };
            for was in all.iter().rev().filter(|_| !arrived()) {
                lost += 1;
                file.write_all_at(&was.bytes, was.at).expect("writes");
                if was.at + was.length > was.size {
                    file.set_len(was.size).expect("writes");
                }
            }
        }
        lost
    }
}

/// A last one that is not whole was killed before it was written: so was what it is about.
fn records(mut bytes: &[u8]) -> Vec<Was> {
    let mut all = Vec::new();
    while let Some((head, rest)) = bytes.split_at_checked(32) {
        let number = |nth: usize| {
            let eight = head[nth * 8..][..8].try_into().expect("eight bytes");
            u64::from_le_bytes(eight)
        };
        let Some((kept, rest)) = rest.split_at_checked(number(3) as usize) else { break };
        all.push(Was { at: number(0), size: number(1), length: number(2), bytes: kept.to_vec() });
        bytes = rest;
    }
    all
}
