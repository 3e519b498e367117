//! Callbacks that must be signed, as Standard Webhooks has it, on a server that wants a token for all else.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, KeyInit as _, Mac as _};
use serde_json::{Value, json};
use sha2::Sha256;

use crate::e2e::harness::{Place, unix_ms, wait_for};
use crate::e2e::rest::{Reply, Server};
use crate::served::{counted, later};
use crate::service::{Answer, Callback, Service};

const NEW: &[u8] = b"a secret of thirty-two bytes ....";
const OLD: &[u8] = b"the one before it, as long as it.";
const BODY: &str = r#"{"success": true, "output": "signed"}"#;

fn secret(bytes: &[u8]) -> String {
    format!("whsec_{}", STANDARD.encode(bytes))
}

fn signature(secret: &[u8], id: &str, at: u64, body: &str) -> String {
    let mut mac = Hmac::<Sha256>::new_from_slice(secret).expect("any length");
    mac.update(format!("{id}.{at}.{body}").as_bytes());
    format!("v1,{}", STANDARD.encode(mac.finalize().into_bytes()))
}

/// The last part of the callback's URL.
fn id(callback: &Callback) -> String {
    callback.path.rsplit('/').next().expect("a path").to_owned()
}

#[track_caller]
fn say(callback: &Callback, id: &str, at: u64, signature: &str, body: &str) -> Reply {
    let at = at.to_string();
    let headers = [
        ("Content-Type", "application/json"),
        ("webhook-id", id),
        ("webhook-timestamp", &at),
        ("webhook-signature", signature),
    ];
    callback.send(&headers, body).expect("an answer")
}

fn submit(server: &Server, token: &str, job: &str) -> String {
    let bearer = format!("Bearer {token}");
    let headers = [("Authorization", bearer.as_str()), ("Content-Type", "application/yaml")];
    let reply = server.ask("POST", "/v1/jobs", &headers, job).expect("an answer");
    assert_eq!(reply.status, 201, "{reply:?}");
    reply.json()["id"].as_str().expect("an id").to_owned()
}

#[test]
fn only_what_is_signed_with_a_secret_of_now_or_of_before_counts() {
    let place = Place::new();
    let token = |scope: &str| {
        place.call(&["token", "create", "--scope", scope, "--data", &place.text("data")])
    };
    let (token, for_workers) = (token("admin"), token("worker"));
    let token = token.trim();
    let service = Service::always(Answer::status(202));
    let secrets = format!("{},{}", secret(NEW), secret(OLD));
    let server = place
        .server()
        .auth_required()
        .set("STEADFAST_CALLBACKS__SIGNING_SECRETS", &secrets)
        .start();
    let _worker = place
        .worker(&server.url(), "w")
        .arg("--allow-outbound", "loopback")
        .env("STEADFAST_TOKEN", for_workers.trim())
        .start();
    let first = submit(&server, token, &later(&service, &[]));
    let callback = service.called(1)[0].callback();
    let now = unix_ms() / 1000;
    let refused = |reply: Reply| {
        assert_eq!((reply.status, &reply.json()["code"]), (401, &json!("callback_refused")));
        reply.json()["detail"].as_str().expect("why").to_owned()
    };
    let unsigned =
        refused(callback.send(&[("Content-Type", "application/json")], BODY).expect("an answer"));
    assert!(unsigned.contains("webhook-id"), "{unsigned}");
    let msg = id(&callback);
    for at in [now - 301, now + 302] {
        let why = refused(say(&callback, &msg, at, &signature(NEW, &msg, at, BODY), BODY));
        assert!(why.contains("five minutes"), "{why}");
    }
    let good = signature(NEW, &msg, now, BODY);
    refused(say(&callback, &msg, now, &good, r#"{"success": true, "output": "other"}"#));
    refused(say(&callback, &msg, now - 1, &good, BODY));
    let strange = signature(b"somebody else's secret ...", &msg, now, BODY);
    refused(say(&callback, &msg, now, &strange, BODY));
    refused(say(&callback.forged(), &msg, now, &good, BODY));
    let why = refused(say(&callback, "msg_1", now, &signature(NEW, "msg_1", now, BODY), BODY));
    assert!(why.contains("webhook-id"), "{why}");
    // Progress has an id of its own, and comes once however often it is sent.
    let (further, progress) = (format!("{msg}_1"), r#"{"progress": "half"}"#);
    let signed = signature(NEW, &further, now, progress);
    for _ in 0..3 {
        counted(&say(&callback, &further, now, &signed, progress), true);
    }
    counted(&say(&callback, &msg, now, &format!("v1a,xyz v1,??? {good}"), BODY), true);
    // Known, whatever else is said under it.
    let other = r#"{"success": false}"#;
    counted(&say(&callback, &msg, now, &signature(NEW, &msg, now, other), other), true);
    let second = submit(&server, token, &later(&service, &[]));
    let callback = service.called(2)[1].callback();
    let why = refused(say(&callback, &msg, now, &good, BODY));
    assert!(why.contains("another callback"), "{why}");
    let msg = id(&callback);
    counted(&say(&callback, &msg, now, &signature(OLD, &msg, now, BODY), BODY), true);
    for job in [first, second] {
        let bearer = format!("Bearer {token}");
        let path = format!("/v1/jobs/{job}");
        let status: Value = wait_for("its end", || {
            let reply = server.ask("GET", &path, &[("Authorization", &bearer)], "")?;
            Some(reply.json()).filter(|status| !status["finished_at_ms"].is_null())
        });
        assert_eq!(status["state"], "succeeded");
        assert_eq!(status["runs"][0]["steps"]["call"]["items"][0]["output"], "signed");
    }
    let said = server.process.said();
    assert!(!said.contains(&secret(NEW)) && !said.contains("whsec_"), "{said}");
}
