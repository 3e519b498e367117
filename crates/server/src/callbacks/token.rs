//! The token of a callback: which attempt it is for, signed with a key of the data folder, so that nothing
//! needs to be kept for the millions that are never used.

use std::fmt;
use std::io;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use hmac::{Hmac, KeyInit as _, Mac as _};
use sha2::Sha256;
use steadfast_core::event::{ItemId, JobId, Role};
use steadfast_store::Settings;

/// Of the signature: nobody guesses so many.
const SIGNED_BYTES: usize = 16;
const KEY_BYTES: usize = 32;
/// What the tokens are signed with.
pub(crate) const KEY: &str = "callback.key";

/// Which attempt a callback is for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallbackToken {
    pub job: JobId,
    pub item: ItemId,
    pub attempt: u32,
    /// The fence.
    pub token: u64,
}

/// Makes tokens, and reads those that it has made.
#[derive(Clone)]
pub struct CallbackTokens(Hmac<Sha256>);

impl fmt::Debug for CallbackTokens {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("CallbackTokens(…)")
    }
}

impl CallbackTokens {
    /// With the key that is kept, which is made if there is none yet.
    pub fn open(settings: &dyn Settings) -> io::Result<Self> {
        let key = match settings.get(KEY)?.1 {
            Some(key) => key,
            None => {
                let mut new = [0; KEY_BYTES];
                getrandom::fill(&mut new).map_err(io::Error::other)?;
                // If two make one at the same moment, the first one counts.
                settings.change(KEY, &mut |known| Ok(known.unwrap_or_else(|| new.to_vec())))?;
                settings.get(KEY)?.1.unwrap_or_default()
            }
        };
        if key.len() != KEY_BYTES {
            let why = format!("{} is not a key of {KEY_BYTES} bytes", settings.place(KEY));
            return Err(io::Error::new(io::ErrorKind::InvalidData, why));
        }
        Hmac::new_from_slice(&key).map(Self).map_err(io::Error::other)
    }

    /// A key for something else, which tells nothing about this one. No token is about a label: they have dots.
    pub(crate) fn derived(&self, label: &str) -> Hmac<Sha256> {
        assert!(!label.contains('.'), "a label without dots");
        let mut mac = self.0.clone();
        mac.update(label.as_bytes());
        let key = mac.finalize().into_bytes();
        Hmac::new_from_slice(&key).expect("HMAC takes keys of any length")
    }

    pub fn token(&self, callback_token: &CallbackToken) -> String {
        let named = named(callback_token);
        let signed = URL_SAFE_NO_PAD.encode(self.sign(&named));
        format!("{named}.{signed}")
    }

    /// None: it was not made here.
    pub fn read(&self, token: &str) -> Option<CallbackToken> {
        let (named, signed) = token.rsplit_once('.')?;
        let mut mac = self.0.clone();
        mac.update(named.as_bytes());
        let signed = URL_SAFE_NO_PAD.decode(signed).ok()?;
        if signed.len() != SIGNED_BYTES {
            return None;
        }
        // In constant time.
        mac.verify_truncated_left(&signed).ok()?;
        let mut parts = named.split('.');
        let job = parts.next()?.into();
        let mut number = || parts.next()?.parse::<u64>().ok();
        let run = number()? as u32;
        let step = number()? as u32;
        let role =
            [Role::Item, Role::Fallback, Role::Compensation].get(number()? as usize).copied()?;
        let index = number()? as u32;
        let attempt = number()? as u32;
        let token = number()?;
        Some(CallbackToken { job, item: ItemId { run, step, role, index }, attempt, token })
    }

    fn sign(&self, named: &str) -> [u8; SIGNED_BYTES] {
        let mut mac = self.0.clone();
        mac.update(named.as_bytes());
        let whole = mac.finalize().into_bytes();
        let mut signed = [0; SIGNED_BYTES];
        signed.copy_from_slice(&whole[..SIGNED_BYTES]);
        signed
    }
}

fn named(callback_token: &CallbackToken) -> String {
    let CallbackToken { job, item, attempt, token } = callback_token;
    let role = match item.role {
        Role::Item => 0,
        Role::Fallback => 1,
        Role::Compensation => 2,
    };
    format!("{job}.{}.{}.{role}.{}.{attempt}.{token}", item.run, item.step, item.index)
}

#[cfg(test)]
mod tests {
    use steadfast_fuzz::{Fuzz, Shape};
    use steadfast_store::Folder;

    use super::*;

    fn callback_tokens() -> (tempfile::TempDir, Folder, CallbackTokens) {
        let dir = tempfile::tempdir().unwrap();
        let folder = Folder::new(dir.path().to_owned());
        let callback_tokens = CallbackTokens::open(&*folder.storage().settings()).unwrap();
        (dir, folder, callback_tokens)
    }

    fn callback_token() -> CallbackToken {
        let item = ItemId { run: 1, step: 2, role: Role::Fallback, index: 3 };
        CallbackToken { job: "01k".into(), item, attempt: 4, token: u64::MAX }
    }

    #[test]
    fn a_token_is_read_by_whoever_has_the_key_also_after_a_restart() {
        let (_dir, folder, callback_tokens) = callback_tokens();
        let token = callback_tokens.token(&callback_token());
        assert_eq!(callback_tokens.read(&token), Some(callback_token()));
        assert_eq!(
            CallbackTokens::open(&*folder.storage().settings()).unwrap().read(&token),
            Some(callback_token())
        );
    }

    #[test]
    fn what_was_not_made_with_the_key_is_refused() {
        let (_dir, _folder, callback_tokens) = callback_tokens();
        let token = callback_tokens.token(&callback_token());
        let (_other_dir, _other_folder, other) = self::callback_tokens();
        assert_eq!(other.read(&token), None, "another folder's key");
        for at in 0..token.len() {
            let mut forged: Vec<u8> = token.clone().into_bytes();
            forged[at] = if forged[at] == b'0' { b'1' } else { b'0' };
            let forged = String::from_utf8(forged).unwrap();
            assert!(forged == token || callback_tokens.read(&forged).is_none(), "{forged}");
            assert_eq!(callback_tokens.read(&token[..at]), None, "cut at {at}");
        }
        for odd in ["", ".", "....", "é.é", &format!("{token}0"), &format!(".{token}")] {
            assert_eq!(callback_tokens.read(odd), None, "{odd}");
        }
    }

    #[test]
    fn no_garbled_token_is_taken_for_one_that_was_made_here() {
        let (_dir, _folder, callback_tokens) = callback_tokens();
        let made: Vec<(String, CallbackToken)> = (0..4)
            .map(|nth| {
                let item = ItemId { run: nth, index: nth * 10, ..callback_token().item };
                let about = CallbackToken { item, token: u64::from(nth) + 1, ..callback_token() };
                (callback_tokens.token(&about), about)
            })
            .collect();
        let corpus = made.iter().map(|(token, _)| token);
        Fuzz::new(Shape::Text, 20_000).corpus(corpus).run(|input| {
            let token = &*String::from_utf8_lossy(input);
            let known = made.iter().find(|(made, _)| made == token).map(|(_, about)| about);
            assert_eq!(callback_tokens.read(token).as_ref(), known, "{token:?}");
        });
    }

    #[test]
    fn a_key_that_was_tampered_with_is_not_used() {
        let (_dir, folder, _) = callback_tokens();
        std::fs::write(folder.root().join(KEY), "short").unwrap();
        assert!(CallbackTokens::open(&*folder.storage().settings()).is_err());
    }
}
