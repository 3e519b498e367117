//! Every example in the README and under docs/ is executed, and what it shows is what comes out.
//!
//! A block marked ```` ```yaml title="job.yaml" ```` becomes that file, in a folder of the page's own
//! (with a copy of examples/ in it). A ```` ```console ```` block holds commands after `$ ` and what
//! they print; a line `...` stands for any lines. `(exit N)` as the last line tells an exit status
//! other than 0. Blocks of other kinds are only read by people.
//!
//! `UPDATE_DOCS=1 cargo test -p steadfast --test docs` writes what comes out into the pages.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn pages() -> Vec<PathBuf> {
    let mut pages = vec![root().join("README.md")];
    let mut folders = vec![root().join("docs")];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).expect("docs/ is there") {
            let path = entry.expect("readable").path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|ext| ext == "md") {
                pages.push(path);
            }
        }
    }
    pages.sort();
    pages.retain(|page| page.exists());
    pages
}

/// Runs a page's commands; the page as it should read, and how many commands it has.
fn run_page(text: &str, folder: &Path) -> (String, usize) {
    let mut page = String::new();
    let mut commands = 0;
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        page.push_str(line);
        page.push('\n');
        let Some(info) = line.strip_prefix("```") else { continue };
        let body: Vec<&str> = lines.by_ref().take_while(|line| *line != "```").collect();
        if info == "console" {
            let (shown, count) = run_block(&body, folder);
            page.push_str(&shown);
            commands += count;
        } else {
            let title = info.split_once("title=\"").and_then(|(_, rest)| rest.split_once('"'));
            if let Some((name, _)) = title {
                fs::write(folder.join(name), body.join("\n") + "\n").expect("writes the example");
            }
            for line in body {
                page.push_str(line);
                page.push('\n');
            }
        }
        page.push_str("```\n");
    }
    (page, commands)
}

fn run_block(body: &[&str], folder: &Path) -> (String, usize) {
    let mut shown = String::new();
    let mut commands = 0;
    let mut at = 0;
    while at < body.len() {
        let command = body[at].strip_prefix("$ ").expect("a console block begins with `$ `");
        let end = (at + 1..body.len()).find(|&i| body[i].starts_with("$ ")).unwrap_or(body.len());
        let expected = &body[at + 1..end];
        let output = run_command(command, folder);
        shown.push_str(&format!("$ {command}\n"));
        shown.push_str(&elide(&output, expected));
        commands += 1;
        at = end;
    }
    (shown, commands)
}

fn run_command(command: &str, folder: &Path) -> String {
    let program = Path::new(env!("CARGO_BIN_EXE_steadfast"));
    let path = std::env::var("PATH").expect("a PATH");
    let output = Command::new("sh")
        .args(["-c", &format!("{{ {command}\n}} 2>&1")])
        .current_dir(folder)
        .env("PATH", format!("{}:{path}", program.parent().expect("a folder").display()))
        .env("NO_COLOR", "1")
        .env("STEADFAST_DATA", folder.join("kept"))
        .stdin(Stdio::null())
        .output()
        .expect("runs");
    let mut text = String::from_utf8(output.stdout).expect("text");
    match output.status.code() {
        Some(0) => {}
        code => text.push_str(&format!("(exit {})\n", code.expect("an exit code"))),
    }
    // A trailing space cannot be seen in a page.
    text.lines().flat_map(|line| [line.trim_end(), "\n"]).collect()
}

/// What came out, with the page's own `...` kept where what it hides fits.
fn elide(output: &str, expected: &[&str]) -> String {
    let lines: Vec<&str> = output.lines().collect();
    if expected.contains(&"...") && matches(&lines, expected) {
        return expected.join("\n") + "\n";
    }
    output.to_owned()
}

fn matches(lines: &[&str], expected: &[&str]) -> bool {
    match expected.split_first() {
        None => lines.is_empty(),
        Some((&"...", rest)) => (0..=lines.len()).any(|skip| matches(&lines[skip..], rest)),
        Some((line, rest)) => lines.first() == Some(line) && matches(&lines[1..], rest),
    }
}

#[test]
fn every_example_in_the_docs_does_what_it_shows() {
    let update = std::env::var_os("UPDATE_DOCS").is_some();
    let mut wrong = vec![];
    let mut commands = 0;
    for page in pages() {
        let name = page.strip_prefix(root()).unwrap_or(&page).display().to_string();
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name.replace('/', "_"));
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(folder.join("examples")).expect("a folder");
        for example in fs::read_dir(root().join("examples")).expect("examples/ is there") {
            let path = example.expect("readable").path();
            fs::copy(&path, folder.join("examples").join(path.file_name().expect("a name")))
                .expect("copies");
        }
        let text = fs::read_to_string(&page).expect("readable");
        let (now, count) = run_page(&text, &folder);
        commands += count;
        if now == text {
            continue;
        }
        if update {
            fs::write(&page, now).expect("writable");
        } else {
            let line = text.lines().zip(now.lines()).position(|(a, b)| a != b);
            let line = line.unwrap_or_else(|| text.lines().count().min(now.lines().count()));
            let (a, b) = (text.lines().nth(line), now.lines().nth(line));
            wrong.push(format!("{name}:{}\n  page:    {a:?}\n  program: {b:?}", line + 1));
        }
    }
    assert!(commands > 0, "no example was executed");
    assert!(wrong.is_empty(), "run with UPDATE_DOCS=1 and look:\n{}", wrong.join("\n"));
}
