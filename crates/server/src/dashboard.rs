//! The dashboard's files: built, compressed and part of the program. They are the same for everybody and say nothing of jobs, so that
//! no token is needed for them; what the page shows, it asks for with one.
//!
//! What is asked for under an address of the page itself (`/jobs/…`) is the page: its own code reads the address. So a link to a job
//! can be opened, and a page can be loaded again.

use std::io::Read as _;
use std::sync::{LazyLock, OnceLock};

use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use sha2::{Digest as _, Sha256};
use steadfast_core::hex::hex;

use crate::error::ApiError;

/// Names below `web/dist` without `.br`, and what is in them.
static EMBEDDED: &[(&str, &[u8])] = include!(concat!(env!("OUT_DIR"), "/dashboard.rs"));
static FILES: LazyLock<Vec<EmbeddedFile>> = LazyLock::new(|| {
    EMBEDDED.iter().map(|(name, brotli)| EmbeddedFile::new(name, brotli)).collect()
});

/// First parts of addresses that are something else than pages.
const NOT_PAGES: [&str; 7] =
    ["v1", "metrics", "healthz", "readyz", "openapi.json", "assets", "favicon.ico"];

/// Nothing from elsewhere, nothing inline; what jobs have written cannot run or load anything.
const CONTENT_SECURITY_POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; \
     font-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

struct EmbeddedFile {
    name: &'static str,
    brotli: &'static [u8],
    digest: String,
    /// For clients that do not take brotli: browsers offer it over TLS and to this machine only.
    plain: OnceLock<Vec<u8>>,
}

impl EmbeddedFile {
    fn new(name: &'static str, brotli: &'static [u8]) -> Self {
        let digest = hex(&Sha256::digest(brotli));
        Self { name, brotli, digest, plain: OnceLock::new() }
    }

    fn plain(&'static self) -> &'static [u8] {
        self.plain.get_or_init(|| {
            let mut plain = Vec::new();
            let mut decompressor = brotli_decompressor::Decompressor::new(self.brotli, 4096);
            match decompressor.read_to_end(&mut plain) {
                Ok(_) => plain,
                // A test reads them all.
                Err(_) => Vec::new(),
            }
        })
    }

    fn content_type(&self) -> &'static str {
        match self.name.rsplit_once('.').map_or("", |(_, ending)| ending) {
            "html" => "text/html; charset=utf-8",
            "js" | "mjs" => "text/javascript; charset=utf-8",
            "css" => "text/css; charset=utf-8",
            "svg" => "image/svg+xml",
            "png" => "image/png",
            "ico" => "image/x-icon",
            "woff2" => "font/woff2",
            "json" | "map" | "webmanifest" => "application/json",
            "txt" => "text/plain; charset=utf-8",
            _ => "application/octet-stream",
        }
    }

    /// Names of assets change with their content; the page's never does.
    fn answer(&'static self, headers: &HeaderMap, cache: &'static str) -> Response {
        let is_compressed = takes_brotli(headers);
        let tag = format!("\"{}{}\"", &self.digest[..32], if is_compressed { "-br" } else { "" });
        let known = headers.get_all(header::IF_NONE_MATCH).iter().any(|known| {
            let known = known.to_str().unwrap_or("");
            known.split(',').any(|known| matches!(known.trim(), "*") || known.trim() == tag)
        });
        let mut response = if known {
            StatusCode::NOT_MODIFIED.into_response()
        } else if is_compressed {
            ([(header::CONTENT_ENCODING, "br")], self.brotli).into_response()
        } else {
            self.plain().into_response()
        };
        let to = response.headers_mut();
        let tag = HeaderValue::from_str(&tag).unwrap_or(HeaderValue::from_static("\"\""));
        to.insert(header::ETAG, tag);
        for (name, value) in [
            (header::CONTENT_TYPE, self.content_type()),
            (header::CACHE_CONTROL, cache),
            (header::VARY, "Accept-Encoding"),
            (header::CONTENT_SECURITY_POLICY, CONTENT_SECURITY_POLICY),
            (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
            (header::REFERRER_POLICY, "no-referrer"),
        ] {
            to.insert(name, HeaderValue::from_static(value));
        }
        response
    }
}

fn find(name: &str) -> Option<&'static EmbeddedFile> {
    FILES.iter().find(|file| file.name == name)
}

fn takes_brotli(headers: &HeaderMap) -> bool {
    let offers = headers.get_all(header::ACCEPT_ENCODING).iter();
    let mut offers = offers.filter_map(|offers| offers.to_str().ok()).flat_map(|it| it.split(','));
    offers.any(|offer| {
        let (coding, weight) = offer.split_once(';').unwrap_or((offer, ""));
        let weight = weight.trim().strip_prefix("q=").map_or(Ok(1.0), str::parse::<f32>);
        coding.trim().eq_ignore_ascii_case("br") && weight.is_ok_and(|weight| weight > 0.0)
    })
}

/// Whether an address is one of the page's own: `/`, or one whose first part is a plain word that nothing else here has. The router
/// compares addresses as they are sent, so that no notation of another route is taken for a page.
pub(crate) fn is_page(path: &str) -> bool {
    let Some(rest) = path.strip_prefix('/') else { return false };
    let first = rest.split('/').next().unwrap_or_default();
    rest.is_empty()
        || (!first.is_empty()
            && first.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'-')
            && !NOT_PAGES.contains(&first)
            && !path.contains(".."))
}

/// A browser that opens a page says that it takes HTML; programs do not.
pub(crate) fn asks_for_page(method: &Method, path: &str, headers: &HeaderMap) -> bool {
    let mut accepts = headers.get_all(header::ACCEPT).iter().filter_map(|it| it.to_str().ok());
    (method == Method::GET || method == Method::HEAD)
        && is_page(path)
        && (path == "/" || accepts.any(|accepts| accepts.contains("text/html")))
}

/// A file that is not below `/assets/`: an icon, say.
pub(crate) fn is_file(path: &str) -> bool {
    let name = path.strip_prefix('/').filter(|name| *name != "index.html");
    name.is_some_and(|name| find(name).is_some())
}

pub(crate) fn page(headers: &HeaderMap) -> Result<Response, ApiError> {
    let page = find("index.html").ok_or_else(|| {
        ApiError::NotFound("this program was built without its dashboard".to_owned())
    })?;
    Ok(page.answer(headers, "no-cache"))
}

/// At its own address, which may have other content tomorrow.
pub(crate) fn file(path: &str, headers: &HeaderMap) -> Option<Response> {
    let file = find(path.strip_prefix('/')?)?;
    is_file(path).then(|| file.answer(headers, "no-cache"))
}

/// `name`: below `/assets/`.
pub(crate) fn asset(name: &str, headers: &HeaderMap) -> Result<Response, ApiError> {
    let file = find(&format!("assets/{name}"));
    let file = file.ok_or_else(|| {
        let shown: String = name.chars().take(100).collect();
        ApiError::NotFound(format!("the dashboard has no file {shown:?}"))
    })?;
    Ok(file.answer(headers, "public, max-age=31536000, immutable"))
}

#[cfg(test)]
mod tests;
