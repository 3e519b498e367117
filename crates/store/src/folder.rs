//! The data folder: where the database, logs, working folders and files of jobs are.
//!
//! Names are made of ids, checked names and numbers, so that every one is a plain file name.

use std::path::{Path, PathBuf};

use steadfast_core::event::{ItemId, Role};

#[derive(Clone, Debug)]
pub struct Folder {
    root: PathBuf,
}

impl Folder {
    pub fn new(root: PathBuf) -> Self {
        Self { root }
    }

    pub fn root(&self) -> &Path {
        &self.root
    }

    pub fn database(&self) -> PathBuf {
        self.root.join("steadfast.db")
    }

    pub fn locks(&self) -> PathBuf {
        self.root.join("locks")
    }

    /// The folder of all attempts of a job.
    pub fn work(&self, job: &str) -> PathBuf {
        self.root.join("work").join(job)
    }

    /// The folder of what its attempts have written, with a folder for each step in it.
    pub fn logs(&self, job: &str) -> PathBuf {
        self.root.join("logs").join(job)
    }

    /// What an attempt has written.
    pub fn log(&self, job: &str, step: &str, item: ItemId, attempt: u32) -> PathBuf {
        self.logs(job).join(step).join(format!("{}.log", attempt_name(step, item, attempt)))
    }

    /// The folder of the files that came with a job.
    pub fn files(&self, job: &str) -> PathBuf {
        self.root.join("files").join(job)
    }
}

/// `index_2_attempt_1`, with the datacenter's place before it if there are several.
pub fn attempt_name(step: &str, item: ItemId, attempt: u32) -> String {
    let role = match item.role {
        Role::Item => "",
        Role::Fallback => "_fallback",
        Role::Compensation => "_compensation",
    };
    let run = if item.run > 0 { format!("dc{}_", item.run) } else { String::new() };
    format!("{run}{step}{role}_{}_attempt_{attempt}", item.index)
}
