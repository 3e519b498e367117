//! What the server has signed for workers: that a secret had a name, and that an attempt was assigned to a
//! worker. Nothing is kept for it, so it outlives restarts; the key is derived from that of the data folder.

use std::fmt;

use hmac::{Hmac, Mac as _};
use sha2::{Digest as _, Sha256};
use steadfast_api::proto;
use steadfast_core::hex::hex;

use crate::callbacks::CallbackTokens;

const LABEL: &str = "proofs of worker sessions";
/// Of an attempt's: nobody guesses so many, and they are in every message.
const ATTEMPT_BYTES: usize = 16;

/// What tells a worker from others: its name, and what is known of its secret.
#[derive(Clone, Copy, Debug)]
pub(super) struct Holder<'a> {
    pub(super) name: &'a str,
    pub(super) fingerprint: &'a str,
}

#[derive(Clone)]
pub struct Proofs(Hmac<Sha256>);

impl fmt::Debug for Proofs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Proofs(…)")
    }
}

/// Of a worker's secret: what the server keeps in memory instead of it.
pub(super) fn fingerprint(secret: &[u8]) -> String {
    hex(&Sha256::digest(secret))
}

impl Proofs {
    pub fn new(callback_tokens: &CallbackTokens) -> Self {
        Self(callback_tokens.derived(LABEL))
    }

    /// By what servers that share a key are told from others; no secret.
    pub(super) fn installation(&self) -> String {
        hex(&self.over([b"installation".as_slice()]).finalize().into_bytes()[..8])
    }

    /// That this worker was let in.
    pub(super) fn session(&self, holder: Holder<'_>) -> Vec<u8> {
        self.of_session(holder).finalize().into_bytes().to_vec()
    }

    pub(super) fn is_session(&self, holder: Holder<'_>, proof: &[u8]) -> bool {
        // In constant time.
        self.of_session(holder).verify_slice(proof).is_ok()
    }

    /// That this attempt, with all that is said of it, was assigned to this worker.
    pub(super) fn attempt(&self, attempt: &proto::AttemptRef, holder: Holder<'_>) -> Vec<u8> {
        self.of_attempt(attempt, holder).finalize().into_bytes()[..ATTEMPT_BYTES].to_vec()
    }

    pub(super) fn is_attempt(&self, attempt: &proto::AttemptRef, holder: Holder<'_>) -> bool {
        attempt.proof.len() == ATTEMPT_BYTES
            && self.of_attempt(attempt, holder).verify_truncated_left(&attempt.proof).is_ok()
    }

    fn of_session(&self, holder: Holder<'_>) -> Hmac<Sha256> {
        self.over([b"session", holder.name.as_bytes(), holder.fingerprint.as_bytes()])
    }

    fn of_attempt(&self, attempt: &proto::AttemptRef, holder: Holder<'_>) -> Hmac<Sha256> {
        let proto::AttemptRef { job_id, token, run, step, role, index, attempt, step_name, .. } =
            attempt;
        self.over([
            b"attempt",
            holder.name.as_bytes(),
            holder.fingerprint.as_bytes(),
            job_id.as_bytes(),
            step_name.as_bytes(),
            &token.to_le_bytes(),
            &run.to_le_bytes(),
            &step.to_le_bytes(),
            &role.to_le_bytes(),
            &index.to_le_bytes(),
            &attempt.to_le_bytes(),
        ])
    }

    /// Each part with its length before it, so that no two lists are the same bytes.
    fn over<'a>(&self, parts: impl IntoIterator<Item = &'a [u8]>) -> Hmac<Sha256> {
        let mut mac = self.0.clone();
        for part in parts {
            mac.update(&(part.len() as u64).to_le_bytes());
            mac.update(part);
        }
        mac
    }
}

#[cfg(test)]
mod tests {
    use steadfast_store::Folder;

    use super::*;

    fn proofs() -> (tempfile::TempDir, Proofs) {
        let dir = tempfile::tempdir().unwrap();
        let callback_tokens =
            CallbackTokens::open(&*Folder::new(dir.path().to_owned()).storage().settings())
                .unwrap();
        (dir, Proofs::new(&callback_tokens))
    }

    const VICTIM: Holder<'_> = Holder { name: "victim", fingerprint: "f1" };

    #[test]
    fn a_proof_of_a_session_is_for_one_name_and_one_secret() {
        let (_dir, ours) = proofs();
        let proof = ours.session(VICTIM);
        assert!(ours.is_session(VICTIM, &proof));
        for other in [
            Holder { name: "victi", fingerprint: "mf1" },
            Holder { fingerprint: "f2", ..VICTIM },
            Holder { name: "other", ..VICTIM },
        ] {
            assert!(!ours.is_session(other, &proof), "{other:?}");
        }
        assert!(!ours.is_session(VICTIM, b"") && !ours.is_session(VICTIM, &proof[..31]));
        let (_other_dir, other) = proofs();
        assert!(!other.is_session(VICTIM, &proof), "another data folder's");
    }

    #[test]
    fn nothing_of_an_attempt_can_be_changed_and_nobody_else_can_show_it() {
        let (_dir, ours) = proofs();
        let mut issued = proto::AttemptRef {
            job_id: "01k".into(),
            token: 7,
            run: 1,
            step: 2,
            role: proto::Role::Fallback.into(),
            index: 3,
            attempt: 4,
            step_name: "fetch".into(),
            proof: vec![],
        };
        issued.proof = ours.attempt(&issued, VICTIM);
        assert!(ours.is_attempt(&issued, VICTIM));
        let changes: [fn(&mut proto::AttemptRef); 11] = [
            |it| it.job_id = "01l".into(),
            |it| it.job_id = "z/../../../pwned".into(),
            |it| it.token = 8,
            |it| it.run = 0,
            |it| it.step = 0,
            |it| it.role = proto::Role::Item.into(),
            |it| it.index = 0,
            |it| it.attempt = 5,
            |it| it.step_name = "other".into(),
            |it| it.proof.truncate(15),
            |it| it.proof.clear(),
        ];
        for (number, change) in changes.into_iter().enumerate() {
            let mut forged = issued.clone();
            change(&mut forged);
            assert!(!ours.is_attempt(&forged, VICTIM), "change {number}");
        }
        for other in [Holder { fingerprint: "f2", ..VICTIM }, Holder { name: "w2", ..VICTIM }] {
            assert!(!ours.is_attempt(&issued, other), "{other:?}");
        }
    }
}
