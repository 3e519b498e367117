//! A token, which is never shown: neither by `Debug` nor in an error.

use std::fmt;
use std::path::Path;

use reqwest::header::HeaderValue;
use serde::{Deserialize, Deserializer, de};

use super::profile::warn_if_others_read;

#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Token(String);

impl From<String> for Token {
    /// Files end with a newline, and people copy a space too many.
    fn from(text: String) -> Self {
        Self(text.trim().to_owned())
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(…)")
    }
}

impl<'de> Deserialize<'de> for Token {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        // Whatever stands there instead may be the token too: it is not quoted in the error.
        match toml::Value::deserialize(deserializer)? {
            toml::Value::String(text) => Ok(Self::from(text)),
            _ => Err(de::Error::custom("the token must be text in quotes")),
        }
    }
}

impl Token {
    /// From a file, which may be a descriptor: `/dev/fd/3`.
    pub(crate) fn read(path: &Path) -> Result<Self, String> {
        let why = |error| format!("cannot read the token in {}: {error}", path.display());
        let text = std::fs::read_to_string(path).map_err(why)?;
        warn_if_others_read(path);
        Ok(Self::from(text))
    }

    /// For a worker.
    pub(crate) fn text(self) -> String {
        self.0
    }

    pub(crate) fn header(&self) -> Result<HeaderValue, String> {
        if self.0.is_empty() {
            return Err("the token is empty".to_owned());
        }
        let fits = self.0.bytes().all(|byte| byte.is_ascii_graphic());
        let value = HeaderValue::try_from(format!("Bearer {}", self.0)).ok().filter(|_| fits);
        let mut value = value.ok_or_else(|| {
            "the token has characters in it that no token has; copy it again".to_owned()
        })?;
        value.set_sensitive(true);
        Ok(value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_not_in_what_is_printed_for_debugging() {
        let token = Token::from("  s3cret-token\n".to_owned());
        let header = token.header().unwrap();
        assert_eq!(header.to_str().unwrap(), "Bearer s3cret-token");
        let printed = format!("{token:?} {header:?}");
        assert!(!printed.contains("s3cret"), "{printed}");
    }

    #[test]
    fn what_is_no_token_is_refused_without_being_quoted() {
        for wrong in ["", "two words", "line\nbreak", "naïve"] {
            let why = Token::from(wrong.to_owned()).header().unwrap_err();
            assert!(wrong.is_empty() || !why.contains(wrong), "{why}");
        }
    }
}
