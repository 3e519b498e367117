//! Whether the text of a setting is what it should be; the error says what to write. Nothing is looked up.

pub(super) fn written(text: &str) -> Result<(), &'static str> {
    if text.is_empty() { Err("it cannot be empty") } else { Ok(()) }
}

pub(super) fn address(text: &str) -> Result<(), &'static str> {
    let fits = text.rsplit_once(':').is_some_and(|(host, port)| {
        let bracketed = host.starts_with('[') && host.ends_with(']');
        !host.is_empty() && (bracketed || !host.contains(':')) && port.parse::<u16>().is_ok()
    });
    if fits {
        Ok(())
    } else {
        Err("write an address and a port, as \"127.0.0.1:7117\" or \"[::1]:7117\"")
    }
}

pub(super) fn url(text: &str) -> Result<(), &'static str> {
    let uri = text.parse::<axum::http::Uri>().ok();
    let scheme = uri.as_ref().and_then(axum::http::Uri::scheme_str);
    let whole = matches!(scheme, Some("http" | "https"));
    if whole { Ok(()) } else { Err("write it with its scheme, as \"https://example.com\"") }
}

pub(super) fn database(text: &str) -> Result<(), &'static str> {
    if steadfast_store::is_postgres(text) {
        Ok(())
    } else {
        Err(
            "write the URL of a PostgreSQL database, as \"postgres://steadfast@127.0.0.1/steadfast\"",
        )
    }
}

pub(super) fn blobs(text: &str) -> Result<(), &'static str> {
    steadfast_store::check_blobs_url(text).map_err(|_| {
        "write \"s3://BUCKET/PREFIX?region=REGION&endpoint=URL\", with the keys in the environment of the server, or \"file:///FOLDER\""
    })
}

pub(super) fn signing_secret(text: &str) -> Result<(), &'static str> {
    crate::callbacks::secret(text).map(drop)
}

pub(super) fn host(text: &str) -> Result<(), &'static str> {
    let fits =
        |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '.' | '_' | ':' | '[' | ']');
    let port =
        text.parse::<std::net::IpAddr>().is_err() && text.contains(':') && !text.ends_with(']');
    if text.is_empty() || !text.chars().all(fits) || port {
        Err("write names without scheme and port, as \"steadfast.example.com\"")
    } else {
        Ok(())
    }
}

pub(super) fn origin(text: &str) -> Result<(), &'static str> {
    url(text).map_err(|_| ORIGIN)?;
    let host = text.split_once("://").map_or("", |(_, host)| host);
    if host.is_empty() || host.contains(['/', '?', '#', '@']) { Err(ORIGIN) } else { Ok(()) }
}

const ORIGIN: &str = "write scheme, host and port, as \"https://ops.example.com\"";
