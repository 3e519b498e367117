use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;

use super::*;

fn web() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../web")
}

fn files_below(folder: &Path, root: &Path, found: &mut Vec<String>) {
    let Ok(entries) = fs::read_dir(folder) else { return };
    for entry in entries {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            files_below(&path, root, found);
        } else {
            let name = path.strip_prefix(root).expect("below it");
            found.push(name.to_str().expect("text").to_owned());
        }
    }
}

/// What the dashboard is built of: all files below `src` and `public`, and `index.html`, `vite.config.ts` and `*.json` beside them,
/// in the order of their names' bytes. Each with its name, a zero byte, its length in digits, a zero byte, and its content;
/// `web/scripts/sources.mjs` does the same.
fn digest_of_sources() -> String {
    let root = web();
    let mut names = vec![];
    files_below(&root.join("src"), &root, &mut names);
    files_below(&root.join("public"), &root, &mut names);
    for entry in fs::read_dir(&root).expect("the folder").map(|entry| entry.expect("an entry")) {
        let name = entry.file_name().into_string().expect("text");
        let is_json = Path::new(&name).extension().is_some_and(|ending| ending == "json");
        if entry.path().is_file() && (is_json || name == "index.html" || name == "vite.config.ts") {
            names.push(name);
        }
    }
    names.sort_unstable();
    let mut all = Sha256::new();
    for name in names {
        let content = fs::read(root.join(&name)).expect("readable");
        all.update(format!("{name}\0{}\0", content.len()));
        all.update(&content);
    }
    hex(&all.finalize())
}

fn manifest() -> Value {
    let text = fs::read_to_string(web().join("dist/manifest.json")).expect("the manifest");
    serde_json::from_str(&text).expect("JSON")
}

#[test]
fn the_built_files_are_those_of_the_sources() {
    let built = manifest();
    assert_eq!(
        built["sources_sha256"],
        digest_of_sources(),
        "web/dist was built of other sources: run `npm ci && npm run build` in web/, and commit web/dist"
    );
    let listed = built["files"].as_array().expect("a list").iter();
    let mut listed: Vec<&str> = listed.filter_map(|file| file["path"].as_str()).collect();
    let mut embedded: Vec<&str> = EMBEDDED.iter().map(|(name, _)| *name).collect();
    embedded.sort_unstable();
    listed.sort_unstable();
    assert_eq!(embedded, listed, "what is embedded is not what the manifest lists");
}

#[test]
fn every_file_can_be_had_by_who_takes_no_brotli() {
    for file in FILES.iter() {
        assert!(!file.plain().is_empty(), "{} cannot be decompressed", file.name);
        assert_ne!(file.content_type(), "application/octet-stream", "{}", file.name);
    }
    let page = find("index.html").expect("the page");
    assert!(
        page.plain().starts_with(b"<!doctype html>")
            || page.plain().starts_with(b"<!DOCTYPE html>")
    );
    let total: usize = EMBEDDED.iter().map(|(_, bytes)| bytes.len()).sum();
    assert!(total <= 2 << 20, "the dashboard adds {total} bytes to the program");
}

#[test]
fn brotli_is_sent_to_who_takes_it() {
    let offers = |text: &'static str| {
        takes_brotli(&HeaderMap::from_iter([(
            header::ACCEPT_ENCODING,
            HeaderValue::from_static(text),
        )]))
    };
    assert!(offers("gzip, deflate, br, zstd") && offers("BR;q=0.5"));
    assert!(!offers("gzip, deflate") && !offers("br;q=0") && !takes_brotli(&HeaderMap::new()));
}

#[test]
fn what_is_another_route_in_whatever_notation_is_no_page() {
    for page in ["/", "/jobs", "/jobs/01abc", "/overview", "/workers/w%201", "/sign-in"] {
        assert!(is_page(page), "{page}");
    }
    for other in [
        "/v1",
        "/v1/jobs",
        "/metrics",
        "/healthz",
        "/readyz",
        "/openapi.json",
        "/assets/app.js",
        "/steadfast.v1.Jobs/ListJobs",
        "/grpc.health.v1.Health/Check",
        "/%761/jobs",
        "//v1/jobs",
        "/jobs/../v1/jobs",
        "/V1/jobs",
        "",
        "*",
    ] {
        assert!(!is_page(other), "{other}");
    }
}
