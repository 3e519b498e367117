//! Secrets by name: a file of the worker's, or a variable of its environment.
//!
//! A step gets what it names, if the operator of the worker allows that name.
//!
//! A value goes into the environment of a process or into a request, and nowhere else: no type here can be
//! printed.

use std::fs;
use std::io;
use std::path::PathBuf;

use super::worker_dir::is_plain;

/// Before the secret's name, in the worker's environment.
pub(super) const PREFIX: &str = "STEADFAST_SECRET_";

#[derive(Debug)]
pub(super) struct Secrets {
    folder: PathBuf,
    /// `*` stands for anything.
    allowed: Vec<String>,
}

impl Secrets {
    pub(super) fn new(folder: PathBuf, allowed: Vec<String>) -> Self {
        Self { folder, allowed }
    }

    /// The variables to set, or what is missing, for people.
    pub(super) fn find(&self, names: &[String]) -> Result<Vec<(String, String)>, String> {
        names.iter().map(|name| Ok((name.clone(), self.one(name)?))).collect()
    }

    fn one(&self, name: &str) -> Result<String, String> {
        if !is_plain(name) {
            return Err(format!("{name:?} cannot be the name of a secret"));
        }
        if !self.allowed.iter().any(|pattern| fits(pattern, name)) {
            return Err(format!(
                "the worker gives no step the secret {name}: its operator allows it with `--secret {name}`"
            ));
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

/// Whether a name is what a pattern says, in which `*` stands for anything.
fn fits(pattern: &str, name: &str) -> bool {
    let mut parts = pattern.split('*');
    let first = parts.next().unwrap_or_default();
    let Some(mut rest) = name.strip_prefix(first) else { return false };
    let Some(last) = parts.next_back() else { return rest.is_empty() };
    for part in parts {
        match rest.find(part) {
            Some(at) => rest = &rest[at + part.len()..],
            None => return false,
        }
    }
    rest.ends_with(last)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_star_stands_for_anything() {
        for (pattern, name, expected) in [
            ("API_KEY", "API_KEY", true),
            ("API_KEY", "API_KEYS", false),
            ("API_*", "API_KEY", true),
            ("API_*", "API_", true),
            ("API_*", "MY_API_KEY", false),
            ("*_KEY", "API_KEY", true),
            ("*_KEY", "API_KEYS", false),
            ("A*B*C", "AxBxBxC", true),
            ("A*B*C", "AxC", false),
            ("AB*BC", "ABC", false),
            ("*", "ANY", true),
            ("", "ANY", false),
        ] {
            assert_eq!(fits(pattern, name), expected, "{pattern} {name}");
        }
    }
}
