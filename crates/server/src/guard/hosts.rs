//! Whether a request names this server, and comes from a page that may ask.
//!
//! A web page can make a browser talk to a loopback server in two ways: as a request to another origin,
//! which `Origin` gives away; or under a name of the page's own that suddenly leads here (DNS
//! rebinding), which `Host` gives away. So both are held against what this server is called. An address
//! is no name that anybody can point elsewhere.

use std::net::IpAddr;

use axum::extract::Request;
use axum::http::uri::Authority;
use axum::http::{HeaderMap, HeaderValue, Method, header};

use super::refusal::Refusal;
use crate::config::{ServerSettings, is_loopback};
use crate::dashboard::is_page;

#[derive(Debug)]
pub(super) struct Hosts {
    /// In lower case.
    names: Vec<String>,
    /// None: listening on every address of the machine, any of which it may be called by.
    address: Option<IpAddr>,
    origins: Vec<String>,
}

/// A request that may come in.
#[derive(Debug)]
pub(super) struct Caller {
    /// Of a page elsewhere that the operator allows.
    origin: Option<HeaderValue>,
}

impl Hosts {
    pub(super) fn new(settings: &ServerSettings, listening: IpAddr) -> Self {
        let public = settings.public_url.as_deref().and_then(|url| url.split_once("://"));
        let public = public.map(|(_, rest)| rest.split('/').next().unwrap_or(rest));
        let own = [Some(settings.listen.as_str()), public];
        let own = own.into_iter().flatten().filter_map(|text| Some(host_of(text)?.0));
        let listening = listening.to_canonical();
        Self {
            names: settings.allowed_hosts.iter().map(|name| plain(name)).chain(own).collect(),
            address: (!listening.is_unspecified()).then_some(listening),
            origins: settings.allowed_origins.iter().map(|o| o.to_ascii_lowercase()).collect(),
        }
    }

    pub(super) fn check(&self, request: &Request) -> Result<Caller, Refusal> {
        let headers = request.headers();
        let uri = request.uri().authority().map(Authority::as_str);
        let sent = headers.get_all(header::HOST).iter().map(|value| value.to_str().unwrap_or(""));
        let named: Vec<&str> = uri.into_iter().chain(sent).collect();
        let wrong = named.iter().find(|name| !self.is_called(name));
        if wrong.is_some() || named.is_empty() {
            let name = wrong.map_or(String::new(), |name| name.chars().take(100).collect());
            return Err(Refusal::Host(name));
        }
        let mut origins = headers.get_all(header::ORIGIN).iter();
        match (origins.next(), origins.next()) {
            (None, _) if comes_from_elsewhere(request) => Err(Refusal::Origin),
            (None, _) => Ok(Caller { origin: None }),
            (Some(origin), None) => self.check_origin(origin, &named),
            _ => Err(Refusal::Origin),
        }
    }

    fn check_origin(&self, origin: &HeaderValue, named: &[&str]) -> Result<Caller, Refusal> {
        let text = origin.to_str().unwrap_or("").to_ascii_lowercase();
        if named.iter().all(|host| is_same(&text, host)) {
            return Ok(Caller { origin: None });
        }
        if self.origins.contains(&text) {
            return Ok(Caller { origin: Some(origin.clone()) });
        }
        Err(Refusal::Origin)
    }

    fn is_called(&self, name: &str) -> bool {
        let Some((host, _)) = host_of(name) else { return false };
        if host == "localhost" || self.names.contains(&host) {
            return true;
        }
        host.parse().is_ok_and(|address: IpAddr| {
            let address = address.to_canonical();
            is_loopback(address) || self.address.is_none_or(|listening| listening == address)
        })
    }
}

impl Caller {
    /// A browser asks whether a page that is allowed may ask.
    pub(super) fn is_preflight(&self, request: &Request) -> bool {
        self.origin.is_some()
            && request.method() == Method::OPTIONS
            && request.headers().contains_key(header::ACCESS_CONTROL_REQUEST_METHOD)
    }

    pub(super) fn tell_browser(self, headers: &mut HeaderMap, preflight: bool) {
        let Some(origin) = self.origin else { return };
        headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, origin);
        headers.append(header::VARY, HeaderValue::from_static("Origin"));
        if preflight {
            for (name, value) in [
                (header::ACCESS_CONTROL_ALLOW_METHODS, "GET, POST, DELETE"),
                (
                    header::ACCESS_CONTROL_ALLOW_HEADERS,
                    "Authorization, Content-Type, Idempotency-Key, Last-Event-ID",
                ),
            ] {
                headers.insert(name, HeaderValue::from_static(value));
            }
        }
    }
}

/// Browsers also tell of requests without an origin, such as those for a picture, or of a page that leads here.
/// Following a link to the dashboard, or to a job in it, as a page of its own, is the one thing that others' pages may have
/// done.
fn comes_from_elsewhere(request: &Request) -> bool {
    let headers = request.headers();
    let is = |name: &str, values: &[&str]| {
        headers.get(name).is_some_and(|value| values.iter().any(|known| value == known))
    };
    let opens_dashboard = request.method() == Method::GET
        && is_page(request.uri().path())
        && is("sec-fetch-mode", &["navigate"])
        && is("sec-fetch-dest", &["document"]);
    is("sec-fetch-site", &["cross-site", "same-site"]) && !opens_dashboard
}

/// Whether a page of this origin was loaded from that host. The scheme is not compared: TLS may end
/// before this server.
fn is_same(origin: &str, host: &str) -> bool {
    let Some((scheme, page)) = origin.split_once("://") else { return false };
    let usual = match scheme {
        "http" => 80,
        "https" => 443,
        _ => return false,
    };
    let port = |text| host_of(text).map(|(host, port)| (host, port.unwrap_or(usual)));
    let page = port(page);
    page.is_some() && page == port(host)
}

/// Name or address without brackets, and the port.
fn host_of(text: &str) -> Option<(String, Option<u16>)> {
    let authority: Authority = text.parse().ok()?;
    if text.contains('@') {
        return None;
    }
    let host = plain(authority.host());
    (!host.is_empty()).then(|| (host, authority.port_u16()))
}

fn plain(host: &str) -> String {
    let host = host.to_ascii_lowercase();
    let host = host.trim_start_matches('[').trim_end_matches(']');
    host.strip_suffix('.').unwrap_or(host).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hosts(listening: &str, allowed: &[&str]) -> Hosts {
        let settings = ServerSettings {
            allowed_hosts: allowed.iter().map(|&name| name.to_owned()).collect(),
            ..ServerSettings::default()
        };
        Hosts::new(&settings, listening.parse().expect("an address"))
    }

    #[test]
    fn a_name_that_is_not_ours_is_refused_in_every_notation() {
        let loopback = hosts("127.0.0.1", &["Steadfast.example"]);
        for name in [
            "localhost",
            "LOCALHOST:7117",
            "localhost.",
            "127.0.0.1:1",
            "127.9.9.9",
            "[::1]:80",
            "[::ffff:127.0.0.1]",
            "steadfast.example:443",
            "STEADFAST.EXAMPLE.",
        ] {
            assert!(loopback.is_called(name), "{name}");
        }
        for name in [
            "",
            "evil.example",
            "localhost.evil.example",
            "evil@localhost",
            "localhost@evil.example",
            "10.0.0.1",
            "2130706433",
            "0x7f.1",
            "0177.0.0.1",
            "[::2]",
            "127.0.0.1.nip.io",
            "a b",
            "127.0.0.1\u{e9}",
            "steadfast.example.evil.example",
        ] {
            assert!(!loopback.is_called(name), "{name}");
        }
        assert!(hosts("10.0.0.1", &[]).is_called("10.0.0.1:7117"));
        assert!(!hosts("10.0.0.1", &[]).is_called("10.0.0.2:7117"));
        assert!(hosts("0.0.0.0", &[]).is_called("10.0.0.2:7117"));
        assert!(!hosts("0.0.0.0", &[]).is_called("evil.example"));
        let settings = ServerSettings {
            listen: "node1.example:7117".into(),
            public_url: Some("https://steadfast.example:8443/here".into()),
            ..ServerSettings::default()
        };
        let named = Hosts::new(&settings, "10.0.0.1".parse().expect("an address"));
        assert!(named.is_called("node1.example") && named.is_called("steadfast.example:8443"));
        assert!(!named.is_called("node2.example"));
    }

    #[test]
    fn an_origin_is_the_same_with_its_port_only() {
        for (origin, host, same) in [
            ("http://localhost:7117", "localhost:7117", true),
            ("http://localhost", "localhost", true),
            ("http://localhost", "localhost:80", true),
            ("https://localhost", "localhost:443", true),
            ("https://localhost", "localhost", true),
            ("http://localhost:8080", "localhost:7117", false),
            ("http://localhost", "localhost:7117", false),
            ("http://127.0.0.1:7117", "localhost:7117", false),
            ("null", "localhost", false),
            ("file://localhost", "localhost", false),
            ("http://", "localhost", false),
        ] {
            assert_eq!(is_same(origin, host), same, "{origin} {host}");
        }
    }
}
