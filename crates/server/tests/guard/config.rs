//! The operator's settings.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::PathBuf;

use steadfast_jobfile::{Limit, Operator, load, policy_view};
use steadfast_server::config::{Auth, Config};

fn from(text: &str, env: &[(&str, &str)]) -> Result<Config, Vec<String>> {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("steadfast.toml");
    std::fs::write(&path, text).expect("written");
    let known = |name: &str| env.iter().find(|(known, _)| *known == name);
    let config = Config::load(
        Some(&path),
        |name| known(name).map(|(_, value)| (*value).to_owned()),
        env.iter().map(|(name, _)| (*name).to_owned()),
    );
    let prefix = format!("{}/", folder.path().display());
    config.map_err(|errors| errors.iter().map(|error| error.replace(&prefix, "")).collect())
}

/// Section, key, what is shown as value, and whether it is set.
fn documented() -> Vec<(String, String, String, bool)> {
    let document = Config::document();
    let mut section = String::new();
    let mut found = Vec::new();
    for line in document.lines() {
        if let Some(name) = line.strip_prefix('[') {
            name.trim_end_matches(']').clone_into(&mut section);
        }
        let shown = line.trim_start_matches("# ");
        if let Some((key, value)) = shown.split_once(" = ")
            && key.chars().all(|c| c.is_ascii_lowercase() || c == '_')
        {
            found.push((section.clone(), key.to_owned(), value.to_owned(), shown == line));
        }
    }
    found
}

#[test]
fn the_printed_document_is_the_defaults() {
    let document = Config::document();
    assert_eq!(from(&document, &[]).expect("valid"), Config::default());
    assert_eq!(Config::load(None, |_| None, []).expect("valid"), Config::default());
    for said in [
        "[server]\n",
        "listen = \"127.0.0.1:7117\"",
        "# auth = \"required\"",
        "default_total = 20",
        "max_total = 50",
        "fan_out = 1000000",
        "job_file = \"10MiB\"",
        "log = \"64MiB\"",
        "default_retry_delay_ms = 1000",
        "default_deadline = \"5m\"",
        "# max_attempts = 3",
    ] {
        assert!(document.contains(said), "{said}");
    }
    assert!(documented().len() > 60, "{}", documented().len());
}

#[test]
fn the_retry_defaults_that_are_shown_are_those_that_hold() {
    let mut shown = String::new();
    for (section, key, value, _) in documented() {
        if section == "retry" && key != "delay_budget" && key != "window" {
            shown += &format!("{key} = {value}\n");
        }
    }
    let config = from(&format!("[retry]\n{shown}"), &[]).expect("valid");
    assert_eq!(config.operator.retry.max_attempts, Some(Limit::Count(3)));
    let job = b"name: a\nsteps: { a: { run: x } }";
    let effective = |operator: &Operator| {
        let job = load("job.yaml", job, operator).expect("valid");
        let policy = &job.plan.steps()[0].policy;
        let view = policy_view(policy, &job.steps[0].policy);
        view.into_iter().map(|(key, value, _)| (key, value)).collect::<Vec<_>>()
    };
    assert_eq!(effective(&config.operator), effective(&Operator::default()));
}

/// Another value than the default, of the same kind.
fn another(key: &str, value: &str) -> String {
    let text = value.trim_matches('"');
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    match (key, text) {
        ("backoff", _) => "[1s, 5s]".to_owned(),
        ("exit_codes", _) => "{ retry: [75], stop: [2] }".to_owned(),
        ("rules", _) => "[{ exit: 75, then: defer, delay: 30s }]".to_owned(),
        ("jitter", _) => "full".to_owned(),
        ("listen", _) => "[::1]:80".to_owned(),
        ("allowed_hosts", _) => "a.example, b.example".to_owned(),
        ("allowed_origins" | "peers", _) => "https://a.example".to_owned(),
        (_, "true") => "false".to_owned(),
        (_, "false") => "true".to_owned(),
        ("signing_secrets", _) => format!("whsec_{}", "A".repeat(32)),
        (_, "log_only") => "update_result".to_owned(),
        (_, "text") => "json".to_owned(),
        (_, "info") => "debug".to_owned(),
        (_, "0") => "1".to_owned(),
        (_, "2.0") => "1.5".to_owned(),
        _ if digits > 0 => {
            let number: u64 = text[..digits].parse().expect("digits");
            let other = if number == 1_000_000 { 999_999 } else { number + 1 };
            format!("{other}{}", &text[digits..])
        }
        _ => text.to_owned(),
    }
}

#[test]
fn every_key_can_be_set_in_the_environment() {
    let mut all = BTreeMap::new();
    for (section, key, value, _) in documented() {
        let name = format!("STEADFAST_{section}__{key}").to_uppercase();
        let value = another(&key, &value);
        all.insert(name.clone(), value.clone());
        if key.starts_with("tls_") {
            continue;
        }
        let config = from("", &[(&name, &value)]).unwrap_or_else(|e| panic!("{name}: {e:?}"));
        assert_ne!(config, Config::default(), "{name}={value}");
    }
    let all: Vec<(&str, &str)> = all.iter().map(|(k, v)| (k.as_str(), v.as_str())).collect();
    let config = from(&Config::document(), &all).expect("valid together");
    assert_eq!(config.server.allowed_hosts, ["a.example", "b.example"]);
    assert!(config.server.tls_client_ca.is_some());
    for (section, key, _, _) in documented() {
        if section == "retry" {
            assert!(config.operator.retry.writes(&key), "{key}");
        }
    }
}

#[test]
fn the_environment_goes_over_the_file_and_ad_44_over_both() {
    let file = "[retry_budget]\nmax_total = 10\ndefault_total = 5\n[retry]\nmax_attempts = 7\njitter = 0.5";
    let config = from(
        file,
        &[
            ("STEADFAST_RETRY_BUDGET__MAX_TOTAL", "11"),
            ("STEADFAST_RETRY__MAX_ATTEMPTS", "unlimited"),
            ("STEADFAST_SERVER", "http://127.0.0.1:7117"),
            ("STEADFAST_PORT_A__B", "80"),
            ("RETRY_BUDGET_DEFAULT", "6"),
        ],
    )
    .expect("valid");
    let budget = config.operator.budget_total;
    assert_eq!((budget.max, budget.default), (11, 6));
    assert_eq!(config.operator.retry.max_attempts, Some(Limit::Unlimited));
    assert!(config.operator.retry.jitter.is_some());
}

#[test]
fn what_is_wrong_is_named_with_its_place_and_what_was_meant() {
    for (text, said) in [
        (
            "[server]\nlistne = \"x\"",
            "steadfast.toml:2:1: `listne` is not a key of [server]; did you mean `listen`?",
        ),
        ("[sever]\n", "steadfast.toml:1:2: [sever] is not a section; did you mean `server`?"),
        (
            "listen = \"x\"",
            "steadfast.toml:1:1: `listen` stands outside of all sections; it belongs to [server]",
        ),
        ("server = 5", "[server] is a section, not the number `5`"),
        ("[log]\nper_job = true", "it belongs to [metrics]"),
        (
            "[server]\n\n  idle_timeout = 30",
            "steadfast.toml:3:18: server.idle_timeout: `30` has no unit; write `30s`",
        ),
        ("[server]\nidle_timeout = \"30 x\"", "`30 x` is not a duration"),
        ("[server]\nidle_timeout = \"0s\"", "it must be 1ms at least"),
        (
            "[server]\nmax_connections = \"many\"",
            "server.max_connections: expected a whole number, 1 or more, not the text `many`",
        ),
        ("[server]\nmax_connections = 0", "expected a whole number, 1 or more, not the number `0`"),
        ("[server]\nmax_connections = 99999999999999999999", "not the number"),
        ("[server]\nlisten = 7117", "server.listen: expected text, not the number `7117`"),
        ("[server]\nlisten = \"localhost\"", "write an address and a port"),
        (
            "[server]\nauth = \"non\"",
            "expected one of \"required\", \"none\", not the text `non`; did you mean `none`?",
        ),
        ("[server]\nallowed_hosts = \"a\"", "expected a list, as [\"steadfast.example.com\"]"),
        ("[server]\nallowed_hosts = [\"http://a\"]", "write names without scheme and port"),
        ("[server]\nallowed_origins = [\"https://a/b\"]", "write scheme, host and port"),
        ("[server]\nmax_body = 10", "`10` has no unit"),
        ("[server]\nmax_header = \"1KiB\"", "it must be from 8KiB to 1MiB"),
        ("[server]\ntls_cert = \"a.pem\"", "server.tls_cert is set without server.tls_key"),
        ("[metrics]\nper_job = \"yes\"", "expected true or false, not the text `yes`"),
        ("[limits]\nfan_out = 2000000", "from 1 to 1000000"),
        ("[store]\nshards = 1025", "store.shards: expected a whole number from 1 to 1024, not"),
        ("[blobs]\nurl = \"/var/blobs\"", "blobs.url: write \"s3://BUCKET/PREFIX"),
        ("[workers]\nbeat = \"20s\"", "workers.beat must be half of workers.lease"),
        ("[retry]\nmax_attempts = 0", "steadfast.toml:2:16: retry.max_attempts:"),
        ("[retry]\nmax_atempts = 3", "did you mean `max_attempts`?"),
        ("[retry]\nbackoff_base_ms = 3", "`backoff_base_ms` is not a key of [retry]"),
        ("[retry]\ninitial_delay = 5", "retry.initial_delay: `5` has no unit"),
        ("[retry]\nmultiplier = nan", "steadfast.toml:2:14: retry.multiplier:"),
        ("[retry]\nrules = [{ exti = 5 }]", "did you mean `exit`?"),
        ("[server]\nlisten = \"a:1\"\nlisten = \"b:1\"", "steadfast.toml:3:1: "),
        ("[server\n", "steadfast.toml:1:8: "),
    ] {
        let errors = from(text, &[]).expect_err(text);
        assert!(errors.iter().any(|error| error.contains(said)), "{text}\n{errors:#?}");
    }
    for (name, value, said) in [
        (
            "STEADFAST_SERVER__LISTNE",
            "x",
            "STEADFAST_SERVER__LISTNE: `listne` is not a key of [server]",
        ),
        ("STEADFAST_SEVER__LISTEN", "x", "did you mean `server`?"),
        ("STEADFAST_LOG__LEVEL", "loud", "STEADFAST_LOG__LEVEL: expected one of"),
        ("STEADFAST_RETRY__MAX_ATTEMPTS", "0", "STEADFAST_RETRY__MAX_ATTEMPTS: "),
        ("STEADFAST_RETRY__RULES", "[{", "STEADFAST_RETRY__RULES: "),
        ("RETRY_BUDGET_MAX", "x", "RETRY_BUDGET_MAX must be a whole number"),
    ] {
        let errors = from("", &[(name, value)]).expect_err(name);
        assert!(errors.iter().any(|error| error.contains(said)), "{name}\n{errors:#?}");
    }
    let both = from("[server]\nlistne = 1\n[log]\nlevel = 3", &[]).expect_err("two");
    assert_eq!(both.len(), 2, "{both:?}");
    let missing = Config::load(Some(&PathBuf::from("/nowhere/x.toml")), |_| None, []);
    assert!(missing.expect_err("no file")[0].contains("cannot read /nowhere/x.toml"));
}

#[test]
fn no_error_has_a_password_or_a_key() {
    for (section, url) in [
        ("store", "postgre://me:hunter2@host/jobs"),
        ("blobs", "s3://id:hunter2@bucket"),
        ("blobs", "s3://bucket?secret_access_key=hunter2"),
    ] {
        let variable = format!("STEADFAST_{section}__URL").to_uppercase();
        for errors in [
            from(&format!("[{section}]\nurl = \"{url}\""), &[]).expect_err(url),
            from("", &[(&variable, url)]).expect_err(url),
        ] {
            assert!(errors.len() == 1 && !errors[0].contains("hunter2"), "{errors:?}");
        }
    }
    let config = from("[store]\nurl = \"postgres://me:hunter2@host/jobs\"", &[]).expect("it fits");
    assert!(!format!("{config:?}").contains("hunter2"));
}

#[test]
fn off_loopback_nothing_starts_without_a_token() {
    let [loopback, mapped, outside]: [IpAddr; 3] =
        ["127.0.0.1", "::ffff:127.0.0.1", "0.0.0.0"].map(|text| text.parse().expect("an address"));
    let with = |auth| {
        let mut config = Config::default();
        config.server.auth = auth;
        config
    };
    let unset = with(None);
    assert_eq!(unset.check_exposure(loopback, 0), Ok(Auth::None));
    assert_eq!(unset.check_exposure(mapped, 0), Ok(Auth::None));
    assert_eq!(unset.check_exposure(outside, 1), Ok(Auth::Required));
    let required = with(Some(Auth::Required));
    assert_eq!(required.check_exposure(loopback, 1), Ok(Auth::Required));
    for (config, address, tokens) in
        [(&unset, outside, 0), (&required, loopback, 0), (&with(Some(Auth::None)), outside, 5)]
    {
        let why = config.check_exposure(address, tokens).expect_err("exposed");
        assert!(why.contains("steadfast token create"), "{why}");
    }
}
