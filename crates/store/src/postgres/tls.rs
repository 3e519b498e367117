//! TLS to a database, as its URL asks for it: `sslmode` and `sslrootcert` mean what they mean to `libpq`.
//!
//! | `sslmode` | |
//! |---|---|
//! | `disable` | none |
//! | `prefer` | if the database has it; anybody may be the database |
//! | `require` | always; anybody may be the database, unless there is `sslrootcert`: then as `verify-ca` |
//! | `verify-ca` | always, and its certificate is signed by one of `sslrootcert` |
//! | `verify-full` | and made out for the host of the URL |
//!
//! Without `sslrootcert`, or with `system` in its place, those are trusted whom the system trusts.

mod stream;
mod verify;

use std::sync::Arc;

use percent_encoding::percent_decode_str;
use rustls::ClientConfig;
use rustls::crypto::ring;
use tokio_postgres::config::SslMode;

pub(super) use stream::MakeTls;
use verify::Verify;

/// `PostgreSQL` 17 wants to be asked for by name where TLS comes first of all.
const ALPN: &[u8] = b"postgresql";

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Mode {
    Disable,
    Prefer,
    Require,
    VerifyCa,
    VerifyFull,
}

const MODES: [(&str, Mode); 5] = [
    ("disable", Mode::Disable),
    ("prefer", Mode::Prefer),
    ("require", Mode::Require),
    ("verify-ca", Mode::VerifyCa),
    ("verify-full", Mode::VerifyFull),
];

/// What a URL says about TLS.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct TlsOptions {
    mode: Mode,
    root: Option<String>,
}

/// The URL without what is said about TLS in it, and that. The error does not repeat the URL.
pub(super) fn split(url: &str) -> Result<(String, TlsOptions), String> {
    let mut options = TlsOptions { mode: Mode::Prefer, root: None };
    // A password before the `@` may have anything in it.
    let after = url.find('@').unwrap_or(0);
    let Some(at) = url[after..].find('?').map(|at| after + at) else {
        return Ok((url.to_owned(), options));
    };
    let (address, query) = (&url[..at], &url[at + 1..]);
    let mut others = vec![];
    for pair in query.split('&') {
        let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
        let value =
            || percent_decode_str(value).decode_utf8().map_err(|_| format!("{key} is not UTF-8"));
        match key {
            "sslmode" => {
                let value = value()?;
                let known = MODES.iter().find(|(name, _)| *name == value);
                let Some((_, mode)) = known else {
                    let names = MODES.map(|(name, _)| name).join(", ");
                    return Err(format!("sslmode is {value:?}, and not one of {names}"));
                };
                options.mode = *mode;
            }
            "sslrootcert" => options.root = Some(value()?.into_owned()),
            _ => others.push(pair),
        }
    }
    if options.root.as_deref() == Some("system") {
        if options.mode != Mode::VerifyFull {
            return Err("sslrootcert=system trusts the whole world's authorities: write sslmode=verify-full with it".to_owned());
        }
        options.root = None;
    }
    if options.mode == Mode::Require && options.root.is_some() {
        options.mode = Mode::VerifyCa;
    }
    let others = others.join("&");
    let url = if others.is_empty() { address.to_owned() } else { format!("{address}?{others}") };
    Ok((url, options))
}

impl TlsOptions {
    /// What the protocol is to insist on.
    pub(super) fn ssl_mode(&self) -> SslMode {
        match self.mode {
            Mode::Disable => SslMode::Disable,
            Mode::Prefer => SslMode::Prefer,
            Mode::Require | Mode::VerifyCa | Mode::VerifyFull => SslMode::Require,
        }
    }

    /// One without it will do if TLS does not work out.
    pub(super) fn may_do_without(&self) -> bool {
        self.mode == Mode::Prefer
    }

    /// Reads the file that it names, once.
    pub(super) fn connector(&self) -> Result<MakeTls, String> {
        let provider = Arc::new(ring::default_provider());
        let verify = match self.mode {
            Mode::Disable | Mode::Prefer | Mode::Require => Verify::nothing(&provider),
            Mode::VerifyCa => Verify::chain(&provider, self.root.as_deref(), false)?,
            Mode::VerifyFull => Verify::chain(&provider, self.root.as_deref(), true)?,
        };
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|error| error.to_string())?;
        let config = config.dangerous().with_custom_certificate_verifier(Arc::new(verify));
        let mut config = config.with_no_client_auth();
        config.alpn_protocols = vec![ALPN.to_vec()];
        Ok(MakeTls::new(config))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(url: &str) -> (String, Mode, Option<String>) {
        let (url, TlsOptions { mode, root }) = split(url).unwrap();
        (url, mode, root)
    }

    #[test]
    fn what_a_url_says_about_tls_is_taken_out_of_it() {
        let plain = "postgres://me:a?b=c@host/jobs";
        assert_eq!(options(plain), (plain.to_owned(), Mode::Prefer, None));
        let all = "postgres://me@host/jobs?sslmode=verify-full&connect_timeout=3&sslrootcert=%2Fa%20b.pem";
        assert_eq!(
            options(all),
            (
                "postgres://me@host/jobs?connect_timeout=3".to_owned(),
                Mode::VerifyFull,
                Some("/a b.pem".to_owned())
            )
        );
        assert_eq!(options("postgres://h/j?sslmode=require").1, Mode::Require);
        assert_eq!(options("postgres://h/j?sslmode=require&sslrootcert=a").1, Mode::VerifyCa);
        assert_eq!(options("postgres://h/j?sslrootcert=system&sslmode=verify-full").2, None);
        for wrong in ["sslmode=allow", "sslmode=", "sslmode=verify-ca&sslrootcert=system"] {
            let refused = split(&format!("postgres://me:hunter2@h/j?{wrong}")).unwrap_err();
            assert!(refused.contains("ssl") && !refused.contains("hunter2"), "{refused}");
        }
    }
}
