//! Who attempts run as, where the worker may switch: one user for all of them, or one for each.
//!
//! Names are looked up in `/etc/passwd` and `/etc/group` alone; who is known elsewhere is given by number.

use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use rustix::process::geteuid;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct User {
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    /// What other groups it is in.
    pub(crate) groups: Vec<u32>,
    /// None: it has only a number.
    name: Option<String>,
    home: Option<PathBuf>,
    /// No other attempt has it at the same time, so that every process of it is this one's.
    pub(crate) is_own: bool,
}

#[derive(Debug, thiserror::Error)]
pub enum UserError {
    #[error(
        "only root can run attempts as another user; start the worker as root, or leave out --user"
    )]
    NotRoot,
    #[error(
        "there is no user {0:?} in /etc/passwd; write a name, a number, or a range as 70000-70031"
    )]
    Unknown(String),
    #[error("attempts must not run as root, which is what --user is to prevent")]
    Root,
    #[error("{users} users for {slots} slots: each attempt needs one of its own")]
    TooFew { users: u32, slots: u32 },
    #[error(
        "the user {user} cannot reach {}: `chmod o+x {}`, or give the worker another --folder, such as \
         /var/lib/steadfast-worker",
        folder.display(), folder.display()
    )]
    Unreachable { user: String, folder: PathBuf },
}

/// Those who are free.
#[derive(Debug)]
pub struct Users {
    one: Option<Arc<User>>,
    free: Mutex<Vec<u32>>,
}

/// Given back when it goes.
#[derive(Debug)]
pub(crate) struct Lent<'a> {
    users: &'a Users,
    pub(crate) user: Arc<User>,
}

impl Users {
    /// A name or a number, for all attempts; or a range of numbers, of which each attempt has one of its own.
    pub fn parse(text: &str, slots: u32) -> Result<Self, UserError> {
        if !geteuid().is_root() {
            return Err(UserError::NotRoot);
        }
        if let Some((first, last)) = text.split_once('-')
            && let (Ok(first), Ok(last)) = (first.parse::<u32>(), last.parse::<u32>())
        {
            if first == 0 {
                return Err(UserError::Root);
            }
            let users = last.saturating_sub(first).saturating_add(u32::from(last >= first));
            if users < slots {
                return Err(UserError::TooFew { users, slots });
            }
            // No more than are ever used at once.
            let free = (first..first.saturating_add(slots)).rev().collect();
            return Ok(Self { one: None, free: Mutex::new(free) });
        }
        let user = match text.parse() {
            Ok(uid) => User::numbered(uid, false),
            Err(_) => User::named(text).ok_or_else(|| UserError::Unknown(text.to_owned()))?,
        };
        if user.uid == 0 {
            return Err(UserError::Root);
        }
        Ok(Self { one: Some(Arc::new(user)), free: Mutex::default() })
    }

    /// Whether attempts can reach what is in a folder, which must exist.
    pub(crate) fn check_way_to(&self, folder: &Path) -> Result<(), UserError> {
        let user = self.one.clone().unwrap_or_else(|| Arc::new(User::numbered(u32::MAX - 1, true)));
        let reaches = |folder: &&Path| {
            fs::metadata(folder).is_ok_and(|about| {
                let bit = match () {
                    () if about.uid() == user.uid => 0o100,
                    () if about.gid() == user.gid || user.groups.contains(&about.gid()) => 0o010,
                    () => 0o001,
                };
                about.permissions().mode() & bit != 0
            })
        };
        match folder.ancestors().find(|above| !reaches(above)) {
            None => Ok(()),
            Some(folder) => {
                let name = user.name.clone().unwrap_or_else(|| "of an attempt".to_owned());
                Err(UserError::Unreachable { user: name, folder: folder.to_owned() })
            }
        }
    }

    /// None: there are more attempts than slots.
    pub(crate) fn take(&self) -> Option<Lent<'_>> {
        let user = match &self.one {
            Some(one) => one.clone(),
            None => {
                let mut free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
                Arc::new(User::numbered(free.pop()?, true))
            }
        };
        Some(Lent { users: self, user })
    }
}

impl Drop for Lent<'_> {
    fn drop(&mut self) {
        if self.user.is_own {
            let mut free = self.users.free.lock().unwrap_or_else(PoisonError::into_inner);
            free.push(self.user.uid);
        }
    }
}

impl User {
    fn numbered(uid: u32, is_own: bool) -> Self {
        let known = (!is_own).then(|| find(uid)).flatten();
        known.unwrap_or(Self { uid, gid: uid, groups: vec![], name: None, home: None, is_own })
    }

    fn named(name: &str) -> Option<Self> {
        lines("/etc/passwd")
            .find_map(|line| Self::of_line(&line).filter(|it| it.name.as_deref() == Some(name)))
    }

    /// `name:x:1000:1000:A Name:/home/name:/bin/sh`
    fn of_line(line: &str) -> Option<Self> {
        let parts: Vec<&str> = line.split(':').collect();
        let [name, _, uid, gid, _, home, ..] = parts[..] else { return None };
        let (uid, gid) = (uid.parse().ok()?, gid.parse().ok()?);
        // `name:x:1000:member,member`
        let group = |line: String| {
            let parts: Vec<&str> = line.split(':').collect();
            let [_, _, gid, members] = parts[..] else { return None };
            members.split(',').any(|member| member == name).then(|| gid.parse().ok()).flatten()
        };
        let groups = lines("/etc/group").filter_map(group).collect();
        let (name, home) = (Some(name.to_owned()), Some(PathBuf::from(home)));
        Some(Self { uid, gid, groups, name, home, is_own: false })
    }

    /// What a process of this user expects to find in its environment; one that is only a number is at home in
    /// the attempt's folder.
    pub(crate) fn variables(&self, folder: &Path) -> Vec<(String, String)> {
        let home = self.home.as_deref().unwrap_or(folder).display().to_string();
        let name = self.name.clone().unwrap_or_else(|| self.uid.to_string());
        [("HOME", home), ("USER", name.clone()), ("LOGNAME", name)]
            .map(|(name, value)| (name.to_owned(), value))
            .into()
    }
}

fn find(uid: u32) -> Option<User> {
    lines("/etc/passwd").find_map(|line| User::of_line(&line).filter(|it| it.uid == uid))
}

fn lines(path: &str) -> impl Iterator<Item = String> {
    let text = fs::read_to_string(path).unwrap_or_default();
    text.lines().map(str::to_owned).collect::<Vec<_>>().into_iter()
}
