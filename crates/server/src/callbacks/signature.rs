//! Standard Webhooks: `webhook-id`, `webhook-timestamp` and `webhook-signature` say that whoever calls
//! back has one of the operator's secrets, and that it is not an old call played again.
//!
//! The standard signs the id, the time and the body, and not where they go. So the id begins with the token of
//! the URL: a signature for one attempt fits no other.

use std::fmt;

use axum::http::HeaderMap;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, KeyInit as _, Mac as _};
use sha2::Sha256;
use steadfast_core::time::Timestamp;

/// Clocks are not further apart than this, and calls not longer under way.
pub(super) const APART_MS: u64 = 5 * 60 * 1000;
const PREFIX: &str = "whsec_";
/// What the standard asks of a secret.
const SECRET_BYTES: std::ops::RangeInclusive<usize> = 24..=64;

/// Empty: callbacks need no signature. Two while one takes over from the other.
#[derive(Clone, Default)]
pub struct Secrets(Vec<Vec<u8>>);

impl fmt::Debug for Secrets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Secrets({})", self.0.len())
    }
}

/// Of the operator: `whsec_`, and 24 to 64 bytes in base64.
pub(crate) fn secret(text: &str) -> Result<Vec<u8>, &'static str> {
    let encoded = text.strip_prefix(PREFIX).ok_or("a secret begins with whsec_")?;
    let secret = STANDARD.decode(encoded).map_err(|_| "after whsec_ a secret is base64")?;
    if SECRET_BYTES.contains(&secret.len()) {
        Ok(secret)
    } else {
        Err("a secret is 24 to 64 bytes, in base64")
    }
}

impl Secrets {
    /// Of texts that were found to be secrets.
    pub fn of(texts: &[String]) -> Self {
        Self(texts.iter().filter_map(|text| secret(text).ok()).collect())
    }

    /// The id of a callback to the URL with this token, or why it is not believed. None: none is signed here.
    pub(super) fn check<'a>(
        &self,
        headers: &'a HeaderMap,
        token: &str,
        body: &[u8],
        now: Timestamp,
    ) -> Result<Option<&'a str>, String> {
        if self.0.is_empty() {
            return Ok(None);
        }
        let header = |name: &str| {
            let value = headers.get(name).and_then(|value| value.to_str().ok());
            value.ok_or_else(|| format!("callbacks here are signed, and `{name}` is missing"))
        };
        let (id, at, signatures) =
            (header("webhook-id")?, header("webhook-timestamp")?, header("webhook-signature")?);
        let rest = id.strip_prefix(token);
        if !rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('_')) {
            return Err(
                "`webhook-id` must be the last part of this callback's URL, alone or with `_` and \
                        something more: the signature is for another callback"
                    .to_owned(),
            );
        }
        let seconds: u64 = at.parse().map_err(|_| "`webhook-timestamp` is no time".to_owned())?;
        if now.0.abs_diff(seconds.saturating_mul(1000)) > APART_MS {
            return Err("`webhook-timestamp` is more than five minutes away from now".to_owned());
        }
        let given = signatures.split(' ').filter_map(|given| given.strip_prefix("v1,"));
        let given: Vec<Vec<u8>> = given.filter_map(|given| STANDARD.decode(given).ok()).collect();
        let signed = self.0.iter().any(|secret| {
            let Ok(mut mac) = Hmac::<Sha256>::new_from_slice(secret) else { return false };
            for part in [id.as_bytes(), b".", at.as_bytes(), b".", body] {
                mac.update(part);
            }
            // In constant time.
            given.iter().any(|given| mac.clone().verify_slice(given).is_ok())
        });
        if signed { Ok(Some(id)) } else { Err("no signature of it is ours".to_owned()) }
    }
}

#[cfg(test)]
mod tests {
    use steadfast_fuzz::{Fuzz, Shape};

    use super::*;

    /// The example of the standard's own text.
    const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
    const BODY: &[u8] = br#"{"test": 2432232314}"#;

    fn headers(id: &str, at: &str, signature: &str) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in
            [("webhook-id", id), ("webhook-timestamp", at), ("webhook-signature", signature)]
        {
            headers.insert(name, value.parse().unwrap());
        }
        headers
    }

    /// The standard's example is for the URL that ends with this.
    const TOKEN: &str = "msg_p5jXN8AQM9LWM0D4loKWxJek";

    fn check(
        secrets: &Secrets,
        headers: &HeaderMap,
        body: &[u8],
        seconds: u64,
    ) -> Result<(), String> {
        secrets.check(headers, TOKEN, body, Timestamp(seconds * 1000)).map(drop)
    }

    #[test]
    fn the_example_of_the_standard_is_accepted_within_five_minutes_of_its_time() {
        let secrets = Secrets::of(&[SECRET.to_owned()]);
        let signature = "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=";
        let at = 1_614_265_330;
        let signed = headers(TOKEN, "1614265330", signature);
        let check =
            |headers: &HeaderMap, body: &[u8], seconds| check(&secrets, headers, body, seconds);
        assert_eq!(check(&signed, BODY, at), Ok(()));
        assert_eq!(check(&signed, BODY, at + 300), Ok(()));
        assert_eq!(check(&signed, BODY, at - 300), Ok(()));
        assert!(check(&signed, BODY, at + 301).is_err(), "an old call played again");
        assert!(check(&signed, BODY, at - 301).is_err());
        assert!(check(&signed, b"{}", at).is_err(), "another body");
        let other_id = format!("{TOKEN}_1");
        let other_id = check(&headers(&other_id, "1614265330", signature), BODY, at);
        assert!(other_id.unwrap_err().contains("no signature"), "another id");
        assert!(check(&headers(TOKEN, "1614265331", signature), BODY, at).is_err(), "another time");
        let several = headers(TOKEN, "1614265330", &format!("v1,AAAA v2,x {signature}"));
        assert_eq!(check(&several, BODY, at), Ok(()));
        assert!(check(&HeaderMap::new(), BODY, at).unwrap_err().contains("webhook-id"));
        assert!(check(&headers(TOKEN, "soon", signature), BODY, at).is_err());
    }

    #[test]
    fn a_signature_for_one_url_fits_no_other() {
        let secrets = Secrets::of(&[SECRET.to_owned()]);
        let signature = "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=";
        let signed = headers(TOKEN, "1614265330", signature);
        for other in ["another", "msg_p5jXN8AQM9LWM0D4loKWxJe", "msg_p5jXN8AQM9LWM0D4loKWxJek2"] {
            let checked = secrets.check(&signed, other, BODY, Timestamp(1_614_265_330_000));
            assert!(checked.unwrap_err().contains("another callback"), "{other}");
        }
    }

    #[test]
    fn both_secrets_are_good_while_one_takes_over() {
        let new = format!("whsec_{}", STANDARD.encode([7; 32]));
        let secrets = Secrets::of(&[new, SECRET.to_owned()]);
        let signature = "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=";
        let signed = headers(TOKEN, "1614265330", signature);
        assert_eq!(check(&secrets, &signed, BODY, 1_614_265_330), Ok(()));
    }

    /// Its lines: the id, the time, the signatures, the body.
    #[test]
    fn no_garbled_callback_is_believed() {
        let secrets = Secrets::of(&[SECRET.to_owned()]);
        let signature = "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=";
        let (at, body) = ("1614265330", str::from_utf8(BODY).unwrap());
        let corpus = [
            format!("{TOKEN}\n{at}\n{signature}\n{body}"),
            format!("{TOKEN}\n{at}\nv1,AAAA {signature} v2,x\n{body}"),
        ];
        let words =
            [TOKEN, at, signature, "v1,", "v1a,", " ", "_", "=", "==", "99999999999999999999"];
        Fuzz::new(Shape::Text, 20_000).corpus(corpus).words(words).run(|input| {
            let Ok(text) = str::from_utf8(input) else { return };
            let mut lines = text.splitn(4, '\n');
            let mut line = || lines.next().unwrap_or_default();
            let mut headers = HeaderMap::new();
            let named = [("webhook-id", line()), ("webhook-timestamp", line())];
            let signatures = line();
            for (name, value) in named.into_iter().chain([("webhook-signature", signatures)]) {
                let Ok(value) = value.parse() else { return };
                headers.insert(name, value);
            }
            let given = line();
            // A header of other characters is taken for none.
            let is_ours = signatures.is_ascii()
                && named == [("webhook-id", TOKEN), ("webhook-timestamp", at)]
                && given == body
                && signatures.split(' ').any(|it| it == signature);
            let checked = check(&secrets, &headers, given.as_bytes(), 1_614_265_330);
            assert_eq!(checked.is_ok(), is_ours, "{text:?}: {checked:?}");
        });
    }

    #[test]
    fn what_is_no_secret_is_refused() {
        for wrong in ["", "hunter2", "whsec_", "whsec_???", "whsec_c2hvcnQ="] {
            assert!(secret(wrong).is_err(), "{wrong}");
        }
    }
}
