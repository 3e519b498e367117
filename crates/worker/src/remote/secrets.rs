//! Secrets by name: a file of the worker's, or a variable of its environment.
//!
//! A value goes into the environment of a process or into a request, and nowhere else: no type here can be
//! printed.

use std::fs;
use std::io;
use std::path::PathBuf;

use super::places::is_plain;

/// Before the secret's name, in the worker's environment.
pub(super) const PREFIX: &str = "STEADFAST_SECRET_";

#[derive(Debug)]
pub(super) struct Secrets {
    folder: PathBuf,
}

impl Secrets {
    pub(super) fn new(folder: PathBuf) -> Self {
        Self { folder }
    }

    /// The variables to set, or what is missing, for people.
    pub(super) fn find(&self, names: &[String]) -> Result<Vec<(String, String)>, String> {
        names.iter().map(|name| Ok((name.clone(), self.one(name)?))).collect()
    }

    fn one(&self, name: &str) -> Result<String, String> {
        if !is_plain(name) {
            return Err(format!("{name:?} cannot be the name of a secret"));
        }
        match fs::read_to_string(self.folder.join(name)) {
            // Editors end a file with a line break that nobody means.
            Ok(mut value) => {
                value.truncate(value.trim_end_matches(['\n', '\r']).len());
                Ok(value)
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                std::env::var(format!("{PREFIX}{name}")).map_err(|_| {
                    format!(
                        "the worker has no secret {name}: it wants a file of this name in its \
                         folder of secrets, or the variable {PREFIX}{name}"
                    )
                })
            }
            Err(error) => Err(format!("the secret {name} cannot be read: {error}")),
        }
    }
}
