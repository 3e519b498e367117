//! Whatever a file holds: it is refused with a code and a place, or becomes a plan that can be stored and read back.

use steadfast_core::account::{History, SharedAccounts};
use steadfast_core::backoff::Draw;
use steadfast_core::outcome::{ErrorText, Failure, FailureKind, Outcome};
use steadfast_core::plan::Plan;
use steadfast_core::policy::{Policy, PolicyDraft, RuleDraft};
use steadfast_core::template::{self, Reference, TemplatePart};
use steadfast_core::time::Timestamp;
use steadfast_core::verdict::{Decision, verdict};
use steadfast_fuzz::{Fuzz, Shape};
use steadfast_jobfile::{Operator, PROBLEM_CODES, WARNING_CODES, load, parse_duration, parse_size};

use crate::VALID;

const EXAMPLES: &[&str] = &[
    include_str!("../../../../examples/exit-code-filter.yaml"),
    include_str!("../../../../examples/fallback-and-rollback.yaml"),
    include_str!("../../../../examples/flaky-download.yaml"),
    include_str!("../../../../examples/flaky-pipeline.yaml"),
    include_str!("../../../../examples/map-over-files.yaml"),
    include_str!("../../../../examples/time-budget.yaml"),
];

/// What means something somewhere in a job file.
const WORDS: &[&str] = &[
    "{{ item }}",
    "{{ steps.a.output }}",
    "unlimited",
    "30s",
    "1h30m",
    "5%",
    "1.5GiB",
    "null",
    "~",
    "retry: ",
    "rules: ",
    "steps: ",
    "needs: ",
    "for_each: { range: 1000001 }",
    "backoff: ",
    "max_attempts: ",
    "on_failure: ",
    "retry_budget: ",
    "not_before: ",
    "|",
    ">-",
    "? ",
    "%YAML 1.1\n",
];

/// The jobs of the conformance cases, good and bad.
fn vectors() -> Vec<String> {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/vectors");
    let mut files: Vec<_> =
        std::fs::read_dir(folder).unwrap().map(|it| it.unwrap().path()).collect();
    files.sort();
    let mut jobs = Vec::new();
    for file in files {
        let cases: serde_json::Value =
            serde_json::from_slice(&std::fs::read(file).unwrap()).unwrap();
        let job = |case: &serde_json::Value| Some(case["job"].as_str()?.to_owned());
        jobs.extend(cases.as_array().unwrap().iter().filter_map(job));
    }
    assert!(jobs.len() > 50, "{}", jobs.len());
    jobs
}

fn check_file(text: &[u8]) {
    let lines = text.split(|byte| matches!(byte, b'\n' | b'\r')).count() as u32 + 1;
    let problems = match load("j.yaml", text, &Operator::default()) {
        Ok(file) => {
            let known = |code: &str| WARNING_CODES.iter().any(|(known, _)| *known == code);
            assert!(file.warnings.iter().all(|warning| known(warning.code)));
            // As a log keeps it.
            let json = serde_json::to_string(&file.plan).unwrap();
            let again: Plan = serde_json::from_str(&json).unwrap();
            assert_eq!(again, file.plan);
            return;
        }
        Err(problems) => problems,
    };
    assert!(!problems.is_empty());
    for problem in problems {
        assert!(PROBLEM_CODES.iter().any(|(code, _)| *code == problem.code), "{problem:?}");
        assert!((1..=lines).contains(&problem.line), "{problem:?} of {lines}");
        assert!(problem.column > 0 && problem.length > 0, "{problem:?}");
        assert!(!problem.message.is_empty(), "{problem:?}");
        let help = problem.help.as_deref().unwrap_or_default();
        for text in [&problem.message, &problem.path, help] {
            assert!(!text.contains(char::is_control), "{problem:?}");
        }
    }
}

#[test]
fn job_files_are_refused_with_a_code_and_a_place_or_become_plans() {
    let jobs = VALID.iter().chain(EXAMPLES).map(|text| (*text).to_owned()).chain(vectors());
    Fuzz::new(Shape::Text, 10_000).corpus(jobs).words(WORDS).run(check_file);
}

/// A template as it would be written by whoever has its parts.
fn written(parts: &[TemplatePart<'_>]) -> String {
    let path =
        |before: String, path: &[&str]| path.iter().fold(before, |text, part| text + "." + part);
    let part = |part: &TemplatePart<'_>| {
        let inner = match part {
            TemplatePart::Text(text) => return (*text).to_owned(),
            TemplatePart::Reference(reference) => match reference {
                Reference::Item { path: of } => path("item".to_owned(), of),
                Reference::ItemIndex => "item_index".to_owned(),
                Reference::Output { step, path: of } => path(format!("steps.{step}.output"), of),
                Reference::Outputs { step, path: of } => path(format!("steps.{step}.outputs"), of),
                Reference::JobId => "job.id".to_owned(),
                Reference::Attempt => "attempt".to_owned(),
                Reference::Secret { name } => format!("secrets.{name}"),
            },
        };
        format!("{{{{ {inner} }}}}")
    };
    parts.iter().map(part).collect()
}

#[test]
fn templates_are_refused_with_help_or_say_the_same_when_written_again() {
    let corpus = [
        "x {{ item.a.0 }}{{steps.fetch.outputs}} y",
        "{{ item }}",
        "{{ item_index }}/{{ job.id }}/{{ attempt }}",
        "{{ steps.a-b.output.url.0 }}",
        "Bearer {{ secrets.TOKEN }}",
        "{ a: {b: 1}}",
        "{{ .State }}",
        "",
    ];
    let words = ["{{", "}}", " item", ".outputs", "steps.", "secrets.", "{{{", "|", " "];
    Fuzz::new(Shape::Text, 20_000).corpus(corpus).words(words).run(|input| {
        let text = &*String::from_utf8_lossy(input);
        let _ = template::looks_templated(text);
        let parts = match template::parse(text) {
            Ok(parts) => parts,
            Err(error) => {
                assert!(!error.message.is_empty(), "{text:?}");
                assert!(error.help.is_some_and(|help| !help.is_empty()), "{text:?}");
                return;
            }
        };
        let again = written(&parts);
        assert_eq!(template::parse(&again), Ok(parts), "{text:?} as {again:?}");
    });
}

/// Rules as a log keeps them, and errors that they are held against.
#[test]
fn conditions_are_refused_with_a_place_or_decide() {
    let corpus = [
        r#"[{"exit":[1,137],"then":"retry","delay_ms":5},{"timeout":true,"then":"stop"}]"#,
        r#"[{"error":"(?i)connection (reset|refused)","then":"defer","delay_ms":1000}]"#,
        r#"[{"signal":[9],"http_status":[429,503],"then":"retry"}]"#,
        r#"[{"error":"^(a+)+$","then":"stop"},{"error":"\\w{100}\\p{L}","then":"stop"}]"#,
        r#"[{"error":"[[:alpha:]]{1,200}","then":"retry"}]"#,
    ];
    let words =
        ["(?:", "{999999}", "{0,1000}", r"\\p{L}", "(a*)*", "[^", "(?x)", r"\\b", "|", "$", "+"];
    let text = "a".repeat(5000);
    let messages = ["", "connection reset by peer", &text, "\u{0}\u{1f600}é"];
    Fuzz::new(Shape::Text, 10_000).corpus(corpus).words(words).run(|input| {
        let Ok(rules) = serde_json::from_slice::<Vec<RuleDraft>>(input) else { return };
        let policy =
            match Policy::new(PolicyDraft { rules: rules.clone(), ..PolicyDraft::default() }) {
                Ok(policy) => policy,
                Err(problems) => {
                    let told = problems.to_string();
                    assert!(told.contains("rules") && !told.is_empty(), "{told}");
                    return;
                }
            };
        assert_eq!(policy.draft().rules, rules);
        for message in messages {
            let error = ErrorText { kind: Some("E".into()), message: message.into() };
            let failure = Failure { error: Some(error), ..Failure::new(FailureKind::Exited(1)) };
            let shared = SharedAccounts::alone(Draw::from_bits(7));
            let outcome = Outcome::Failed(failure);
            let now = Timestamp(1000);
            let decided = verdict(&policy, &History::default(), &shared, &outcome, now);
            let most = policy.draft().max_retry_after_ms.max(policy.delays().max_ms());
            if let Decision::Retry { delay_ms, due_at, .. } = decided.decision {
                assert!(delay_ms <= most && due_at == now.plus(delay_ms), "{decided:?}");
            }
        }
    });
}

#[test]
fn durations_and_sizes_are_read_or_refused() {
    let corpus = ["30s", "1h30m", "1.5d", "250ms", "1GiB", "12k", "1.5 MiB", "0", "100y"];
    let words = ["ms", "h", "w", "KiB", "e9", ".", "+", "∞"];
    Fuzz::new(Shape::Text, 20_000).corpus(corpus).words(words).run(|input| {
        let text = &*String::from_utf8_lossy(input);
        if let Ok(ms) = parse_duration(text) {
            // Nothing but a zero is taken for 0.
            let is_zero = !text.contains(|c: char| ('1'..='9').contains(&c));
            assert!(ms > 0 || is_zero || text.contains('.'), "{text:?} is 0");
        }
        let _ = parse_size(text);
    });
}
