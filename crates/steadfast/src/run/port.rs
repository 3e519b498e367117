//! The port on which the services of a job call back. It is one of this machine, and so it is kept in the folder, wherever the job is.

use std::fs;
use std::io;

use steadfast_store::Folder;

/// Where the services of a job that was run before know to call back.
pub(super) fn callback_port(folder: &Folder, job: &str) -> Option<u16> {
    fs::read_to_string(folder.locks().join(format!("{job}.port"))).ok()?.parse().ok()
}

pub(super) fn keep_callback_port(folder: &Folder, job: &str, port: u16) -> io::Result<()> {
    fs::write(folder.locks().join(format!("{job}.port")), port.to_string())
}

pub(super) fn forget_callback_port(folder: &Folder, job: &str) {
    let _ = fs::remove_file(folder.locks().join(format!("{job}.port")));
}
