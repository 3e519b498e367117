//! Who may use which route, as a table for `docs/security.md`, made of the routes themselves.

use std::fs;
use std::path::Path;

use axum::http::Method;
use prost::Message as _;
use prost_types::FileDescriptorSet;

use super::{Need, need};
use crate::tokens::Scope;

const BEGINS: &str = "<!-- routes: begins -->\n";
const ENDS: &str = "<!-- routes: ends -->\n";

fn row(shown: &str, need: Need) -> String {
    let may = |scope: Scope| match need {
        Need::Open | Need::AnyToken => "yes",
        Need::Scope(wanted) if scope.allows(wanted) => "yes",
        Need::Scope(_) => "",
    };
    let stranger = if need == Need::Open { "yes" } else { "" };
    let [read, submit, worker, admin] = Scope::ALL.map(may);
    format!("| `{shown}` | {stranger} | {read} | {submit} | {admin} | {worker} |\n")
}

fn rest() -> Vec<String> {
    let document = crate::http::document(crate::http::Limits::default());
    let mut rows = vec![];
    for (path, operations) in document["paths"].as_object().expect("paths") {
        for method in operations.as_object().expect("operations").keys() {
            let Ok(method) = method.to_uppercase().parse::<Method>() else { continue };
            // What is in braces stands for one part of the path.
            let asked = path.replace(['{', '}'], "");
            rows.push(row(&format!("{method} {path}"), need(&method, &asked)));
        }
    }
    for path in ["/healthz", "/readyz", "/metrics", "/openapi.json"] {
        if !document["paths"].as_object().expect("paths").contains_key(path) {
            rows.push(row(&format!("GET {path}"), need(&Method::GET, path)));
        }
    }
    rows
}

fn grpc() -> Vec<String> {
    let mut rows = vec![];
    for set in [steadfast_api::proto::DESCRIPTOR, tonic_health::pb::FILE_DESCRIPTOR_SET] {
        for file in FileDescriptorSet::decode(set).expect("a descriptor").file {
            for service in &file.service {
                for method in &service.method {
                    let path = format!("{}.{}/{}", file.package(), service.name(), method.name());
                    rows.push(row(&path, need(&Method::POST, &format!("/{path}"))));
                }
            }
        }
    }
    let reflection = "grpc.reflection.v1.ServerReflection/ServerReflectionInfo";
    rows.push(row(reflection, need(&Method::POST, &format!("/{reflection}"))));
    rows
}

#[test]
fn the_page_on_security_has_every_route_and_who_may_use_it() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/security.md");
    let page = fs::read_to_string(&path).expect("the page");
    let (before, rest_of_page) = page.split_once(BEGINS).expect("where the table begins");
    let (table, after) = rest_of_page.split_once(ENDS).expect("where it ends");
    let mut made =
        "| route | no token | read | submit | admin | worker |\n|---|---|---|---|---|---|\n"
            .to_owned();
    made.extend(rest());
    made.extend(grpc());
    assert!(made.lines().count() > 20, "the routes were not found:\n{made}");
    if std::env::var_os("UPDATE_DOCS").is_some() {
        fs::write(&path, [before, BEGINS, &made, ENDS, after].concat()).expect("writes");
    } else {
        assert_eq!(table, made, "UPDATE_DOCS=1 writes it anew");
    }
}
