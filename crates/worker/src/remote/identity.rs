//! By what the server knows this worker from others that would use its name.
//!
//! A secret of the worker's own, and each server's word that it had the name. On disk, because the next life of this
//! worker is the same worker: its reports are still to be said. Never printed.

use std::fmt;
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use prost::Message as _;

use super::server::ServerName;
use super::worker_dir::WorkerDir;
use super::{RemoteError, held};

const SECRET_BYTES: usize = 32;
/// More than any server says.
const LONGEST_PROOF: usize = 64;

pub(super) struct Identity {
    secret: [u8; SECRET_BYTES],
    /// Where they are kept.
    path: PathBuf,
    proofs: Mutex<Proofs>,
}

/// As they lie on the disk.
#[derive(Clone, PartialEq, prost::Message)]
struct Proofs {
    #[prost(message, repeated, tag = "1")]
    all: Vec<Proof>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct Proof {
    #[prost(message, optional, tag = "1")]
    server: Option<ServerName>,
    #[prost(bytes = "vec", tag = "2")]
    proof: Vec<u8>,
}

impl fmt::Debug for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Identity(…)")
    }
}

impl Identity {
    /// The one of the folder, which is made if there is none.
    pub(super) fn open(dir: &WorkerDir) -> Result<Self, RemoteError> {
        let (secret, path) = (secret(dir.identity())?, dir.proofs());
        // Without them a server that was restarted makes us wait until a lease is over, and no worse.
        let proofs = fs::read(&path).ok().and_then(|bytes| Proofs::decode(&bytes[..]).ok());
        Ok(Self { secret, path, proofs: Mutex::new(proofs.unwrap_or_default()) })
    }

    pub(super) fn secret(&self) -> Vec<u8> {
        self.secret.to_vec()
    }

    /// Empty: none of this server. `alone`: see [`ServerName::is_that_of`].
    pub(super) fn proof(&self, server: &ServerName, alone: bool) -> Vec<u8> {
        let proofs = held(&self.proofs);
        let of = |alone: bool| {
            let mut all = proofs.all.iter();
            all.find(|it| it.server.as_ref().is_some_and(|its| server.is_that_of(its, alone)))
        };
        of(false).or_else(|| of(alone)).map(|it| it.proof.clone()).unwrap_or_default()
    }

    /// The server has let us in, and says what shows it the next time.
    pub(super) fn proven(&self, server: &ServerName, proof: Vec<u8>) {
        if proof.len() > LONGEST_PROOF || self.proof(server, false) == proof {
            return;
        }
        let mut proofs = held(&self.proofs);
        let is_other = |its: &ServerName| its.address != server.address;
        proofs.all.retain(|it| it.server.as_ref().is_some_and(is_other));
        proofs.all.push(Proof { server: Some(server.clone()), proof });
        // This life has it in memory; only the next one would have to wait for a lease to end.
        if let Err(error) = write(&self.path, &proofs.encode_to_vec()) {
            tracing::warn!(path = %self.path.display(), %error, "cannot be written");
        }
    }
}

fn secret(path: PathBuf) -> Result<[u8; SECRET_BYTES], RemoteError> {
    let unusable = |source| RemoteError::Folder { path: path.clone(), source };
    let bytes = match fs::read(&path) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let mut secret = [0; SECRET_BYTES];
            getrandom::fill(&mut secret).map_err(|error| RemoteError::Random(error.to_string()))?;
            write(&path, &secret).map_err(unusable)?;
            secret.to_vec()
        }
        Err(error) => return Err(unusable(error)),
    };
    bytes.first_chunk().copied().ok_or_else(|| {
        let why = format!("it has {} bytes, and not {SECRET_BYTES}", bytes.len());
        RemoteError::Identity { path, why }
    })
}

/// All or nothing, for the worker alone.
fn write(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let draft = path.with_extension("tmp");
    let options = || File::options().write(true).create_new(true).mode(0o600).open(&draft);
    let mut file = match options() {
        // Of a life that died over it; it may have had other rights.
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            fs::remove_file(&draft)?;
            options()?
        }
        opened => opened?,
    };
    file.write_all(bytes)?;
    file.sync_all()?;
    fs::rename(&draft, path)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    fn dir(folder: &Path) -> WorkerDir {
        WorkerDir::open(folder, None).unwrap().unwrap()
    }

    fn server(address: &str) -> ServerName {
        ServerName { address: address.to_owned(), learned: false }
    }

    #[test]
    fn all_lives_of_a_worker_are_the_same_worker() {
        let folder = tempfile::tempdir().unwrap();
        let first = Identity::open(&dir(folder.path())).unwrap();
        let (here, there) = (server("http://here"), server("http://there"));
        assert_eq!((first.secret().len(), first.proof(&here, true)), (SECRET_BYTES, vec![]));
        first.proven(&here, vec![7; 32]);
        first.proven(&there, vec![8; 32]);
        let next = Identity::open(&dir(folder.path())).unwrap();
        assert_eq!((next.secret(), next.proof(&here, false)), (first.secret(), vec![7; 32]));
        assert_eq!(next.proof(&there, false), vec![8; 32]);
        for name in ["identity", "proofs"] {
            let about = fs::metadata(folder.path().join(name)).unwrap();
            assert_eq!(about.permissions().mode() & 0o777, 0o600, "{name}");
        }
        let other = tempfile::tempdir().unwrap();
        let other = Identity::open(&dir(other.path())).unwrap();
        assert_ne!(other.secret(), first.secret());
        assert!(!format!("{first:?}").contains('7'), "it is printed");
    }

    #[test]
    fn the_one_server_of_a_worker_may_have_moved() {
        let folder = tempfile::tempdir().unwrap();
        let identity = Identity::open(&dir(folder.path())).unwrap();
        identity.proven(&ServerName { learned: true, ..server("http://peer") }, vec![8; 32]);
        identity.proven(&server("http://before"), vec![7; 32]);
        assert_eq!(identity.proof(&server("http://now"), true), vec![7; 32]);
        assert_eq!(identity.proof(&server("http://now"), false), Vec::<u8>::new());
    }

    #[test]
    fn a_file_that_is_no_identity_is_not_taken_for_one() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("identity"), "short").unwrap();
        let error = Identity::open(&dir(folder.path())).unwrap_err().to_string();
        assert!(error.contains("5 bytes") && error.contains("remove it"), "{error}");
    }
}
