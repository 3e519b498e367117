//! By what the server knows this worker from others that would use its name.
//!
//! A secret of the worker's own, and the server's word that it had the name. On disk, because the next life of this
//! worker is the same worker: its reports are still to be said. Never printed.

use std::fmt;
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use super::{RemoteError, held};

const SECRET_BYTES: usize = 32;
/// More than any server says.
const LONGEST_PROOF: usize = 64;

pub(super) struct Identity {
    path: PathBuf,
    secret: [u8; SECRET_BYTES],
    /// Of the server that was spoken to last; empty: none yet.
    proof: Mutex<Vec<u8>>,
}

impl fmt::Debug for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Identity(…)")
    }
}

impl Identity {
    /// The one of the folder, which is made if there is none.
    pub(super) fn open(path: PathBuf) -> Result<Self, RemoteError> {
        let unusable = |source| RemoteError::Folder { path: path.clone(), source };
        let bytes = match fs::read(&path) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let mut secret = [0; SECRET_BYTES];
                getrandom::fill(&mut secret)
                    .map_err(|error| RemoteError::Random(error.to_string()))?;
                write(&path, &secret).map_err(unusable)?;
                secret.to_vec()
            }
            Err(error) => return Err(unusable(error)),
        };
        let Some((secret, proof)) = bytes.split_first_chunk::<SECRET_BYTES>() else {
            let why = format!("it has {} bytes, and not {SECRET_BYTES} or more", bytes.len());
            return Err(RemoteError::Identity { path, why });
        };
        Ok(Self { path, secret: *secret, proof: Mutex::new(proof.to_vec()) })
    }

    pub(super) fn secret(&self) -> Vec<u8> {
        self.secret.to_vec()
    }

    pub(super) fn proof(&self) -> Vec<u8> {
        held(&self.proof).clone()
    }

    /// The server has let us in, and says what shows it the next time.
    pub(super) fn proven(&self, proof: Vec<u8>) {
        if proof.len() > LONGEST_PROOF || *held(&self.proof) == proof {
            return;
        }
        let both = [&self.secret[..], &proof].concat();
        *held(&self.proof) = proof;
        // This life has it in memory; only the next one would have to wait for a lease to end.
        if let Err(error) = write(&self.path, &both) {
            tracing::warn!(path = %self.path.display(), %error, "cannot be written");
        }
    }
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

    #[test]
    fn all_lives_of_a_worker_are_the_same_worker() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("identity");
        let first = Identity::open(path.clone()).unwrap();
        assert_eq!((first.secret().len(), first.proof()), (SECRET_BYTES, vec![]));
        first.proven(vec![7; 32]);
        let next = Identity::open(path.clone()).unwrap();
        assert_eq!((next.secret(), next.proof()), (first.secret(), vec![7; 32]));
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        let other = Identity::open(folder.path().join("other")).unwrap();
        assert_ne!(other.secret(), first.secret());
        assert!(!format!("{first:?}").contains('7'), "it is printed");
    }

    #[test]
    fn a_file_that_is_no_identity_is_not_taken_for_one() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("identity");
        fs::write(&path, "short").unwrap();
        let error = Identity::open(path).unwrap_err().to_string();
        assert!(error.contains("5 bytes") && error.contains("remove it"), "{error}");
    }
}
