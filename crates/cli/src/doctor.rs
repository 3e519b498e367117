//! `doctor`: what a server stands on, and what to do about what is wrong with it.

use std::sync::Arc;

use serde_json::json;
use steadfast_server::config::Config;
use steadfast_store::{Finding, Severity, Storage, storage_at};

use crate::args::{DoctorArgs, Output};
use crate::data::Data;
use crate::style::{BAD, DIM, GOOD, WAIT, paint};
use crate::{Done, Exit, clock, input, serve};

pub(crate) fn run(args: &DoctorArgs) -> Done {
    let found = look(args);
    match args.common.output {
        Output::Json => input::print_json(&json!({ "findings": found }))?,
        Output::Human => anstream::print!("{}", told(&found)),
    }
    let is_wrong = found.iter().any(|finding| finding.severity == Severity::Problem);
    Ok(if is_wrong { Exit::Failed } else { Exit::Ok })
}

fn look(args: &DoctorArgs) -> Vec<Finding> {
    let mut found = vec![];
    let config = match serve::config(args.config.as_deref()) {
        Ok(config) => {
            found.push(Finding::ok("settings", "all are known and within their limits"));
            config
        }
        Err(wrong) => {
            let advice =
                "`steadfast server --print-config` prints all settings, with what they mean";
            found.extend(wrong.into_iter().map(|it| Finding::problem("settings", it, advice)));
            Config::default()
        }
    };
    let reserve = config.limits.disk_reserve_bytes as u64;
    match storage(args, &config) {
        Ok(storage) => found.extend(storage.examine(clock::now(), reserve)),
        Err(wrong) => {
            found.push(Finding::problem(
                "store",
                wrong,
                "give another with --data, --store or --blobs",
            ));
        }
    }
    found
}

/// Where the server would keep its jobs. Makes nothing.
fn storage(args: &DoctorArgs, config: &Config) -> Result<Arc<dyn Storage>, String> {
    let storage = match args.place.url().or(config.store.url.as_deref()) {
        Some(url) => storage_at(url).map_err(|error| error.to_string())?,
        None => Data::at(args.common.data.as_deref())?.folder.storage(),
    };
    let blobs = args.blobs.url.as_ref().or(config.blobs.url.as_ref());
    serve::with_blobs(storage, blobs.map(String::as_str))
}

fn told(found: &[Finding]) -> String {
    let width = found.iter().map(|finding| finding.check.len()).max().unwrap_or(0);
    let mut text = String::new();
    for Finding { check, severity, said, advice } in found {
        let (mark, style) = match severity {
            Severity::Ok => ("✓", GOOD),
            Severity::Warning => ("!", WAIT),
            Severity::Problem => ("✗", BAD),
        };
        let pad = " ".repeat(width - check.len());
        text +=
            &format!("{} {check}{pad}  {}\n", paint(style, mark), paint(style_of(*severity), said));
        if let Some(advice) = advice {
            text += &format!("  {}  {}\n", " ".repeat(width), paint(DIM, format!("→ {advice}")));
        }
    }
    let count = |wanted| found.iter().filter(|finding| finding.severity == wanted).count();
    let (problems, warnings) = (count(Severity::Problem), count(Severity::Warning));
    text + &match (problems, warnings) {
        (0, 0) => format!("{}\n", paint(GOOD, "nothing is wrong")),
        _ => format!("{problems} wrong, {warnings} to look at\n"),
    }
}

fn style_of(severity: Severity) -> anstyle::Style {
    match severity {
        Severity::Ok => anstyle::Style::new(),
        Severity::Warning => WAIT,
        Severity::Problem => BAD,
    }
}
