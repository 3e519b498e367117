use std::fmt::Write;

use steadfast_core::plan::ForEach;
use steadfast_jobfile::{Limits, Operator, document, load};

use crate::{read, shown, valid};

/// Refused with this code; a hang or gigabytes would end the test without being asked for.
fn check(text: &[u8], code: &str) -> String {
    let problems = load("j", text, &Operator::default()).expect_err("refused");
    assert_eq!(problems[0].code, code, "{}", shown(&problems));
    shown(&problems)
}

#[test]
fn a_file_over_the_limit_is_not_read() {
    check(&vec![b'['; 50 << 20], "too_large");
}

#[test]
fn deep_nesting_does_not_reach_the_end_of_the_stack() {
    for open in ["[", "{\"a\":", "{a: ", "- ", "? "] {
        check(open.repeat(100_000).as_bytes(), "too_deep");
    }
    let mut block = String::new();
    for depth in 0..3000 {
        let _ = writeln!(block, "{}a:", " ".repeat(depth));
    }
    check(block.as_bytes(), "too_deep");
}

#[test]
fn labels_are_few() {
    let labels = |count: usize| {
        let labels: Vec<String> = (0..count).map(|n| format!("l{n}: x")).collect();
        format!("name: j\nlabels: {{ {} }}\nsteps: {{ s: {{ run: x }} }}\n", labels.join(", "))
    };
    assert_eq!(valid(&labels(64)).plan.labels().len(), 64);
    assert!(check(labels(65).as_bytes(), "invalid_value").contains("at most 64 labels, not 65"));
}

#[test]
fn an_alias_bomb_is_weighed_before_it_goes_off() {
    let mut text = "a0: &a0 [x, x, x, x, x, x, x, x, x]\n".to_owned();
    for n in 1..30 {
        let list = vec![format!("*a{}", n - 1); 9].join(", ");
        let _ = writeln!(text, "a{n}: &a{n} [{list}]");
    }
    assert!(check(text.as_bytes(), "too_large").contains("what this alias stands for"));
    // Few nodes, much text.
    let long = "x".repeat(1 << 20);
    let text = format!("a: &a {long}\nb: [{}]\n", vec!["*a"; 1000].join(", "));
    check(text.as_bytes(), "too_large");
    // Little of either, but deep.
    let mut text = "a0: &a0 []\n".to_owned();
    for n in 1..100 {
        let _ = writeln!(text, "a{n}: &a{n} [*a{}]", n - 1);
    }
    check(text.as_bytes(), "too_deep");
}

#[test]
fn a_million_items_load() {
    let items: Vec<String> = (0..1_000_000).map(|n| format!("i{n}")).collect();
    let items = items.join(", ");
    let text = format!("name: j\nsteps: {{ s: {{ run: x, for_each: [{items}] }} }}\n");
    let job = valid(&text);
    assert!(matches!(&job.plan.step(0).for_each, ForEach::List(items) if items.len() == 1_000_000));
}

#[test]
fn one_item_too_many_is_told_with_the_number() {
    let operator = Operator { max_items: 3, ..Operator::default() };
    for for_each in ["[1, 2, 3, 4]", "{ range: 4 }"] {
        let text = format!("name: j\nsteps: {{ s: {{ run: x, for_each: {for_each} }} }}\n");
        let problems = load("j", text.as_bytes(), &operator).expect_err("refused");
        assert_eq!(problems.len(), 1, "{}", shown(&problems));
        assert_eq!(problems[0].message, "4 items; at most 3 are allowed");
    }
}

#[test]
fn an_alias_is_the_value_it_names() {
    let job = "name: j\nsteps:\n  a: { run: x, retry: &r { max_attempts: 2 } }\n  b: { run: x, retry: *r }\n";
    let plan = valid(job).plan;
    assert_eq!(plan.step(0).policy, plan.step(1).policy);
    let job = "name: j\nsteps:\n  a: { run: x, retry: &r { max_attempts: 0 } }\n  b: { run: x, retry: *r }\n";
    let problems = read(job).expect_err("refused");
    assert!(problems.iter().all(|problem| problem.line == 3), "{}", shown(&problems));
}

#[test]
fn other_readers_share_the_document() {
    let text = b"a: [1, 'x']\nb: { c: ~ }\n";
    let root = document("script.yaml", text, Limits::default()).expect("valid");
    let list = root.get("a").and_then(|node| node.as_list()).expect("a list");
    assert_eq!((list[1].as_str(), list[1].span().line, list[1].span().column), (Some("x"), 1, 8));
    let c = root.get("b").and_then(|node| node.get("c")).expect("there");
    assert!(c.is_null());
    assert!(document("x", b"a: 1\na: 2", Limits::default()).is_err());
}

#[test]
fn brackets_full_of_nothing_are_not_held_in_memory() {
    for piece in [",", "a,", "? ", ": ", "&a,", "'',"] {
        let text = format!("a: [{}", piece.repeat((9 << 20) / piece.len()));
        check(text.as_bytes(), "too_large");
    }
}

fn job(rest: &str) -> String {
    format!("name: j\nsteps: {{ s: {{ run: x, {rest} }} }}\n")
}

/// `prefix0, prefix1, …`
fn numbered(prefix: &str, count: usize) -> String {
    (0..count).map(|n| format!("{prefix}{n}")).collect::<Vec<_>>().join(", ")
}

/// Each of these took between ten seconds and minutes when every entry was held against every other, or
/// compiled, before the limit was looked at.
#[test]
fn a_list_that_is_too_long_is_refused_before_it_is_looked_at() {
    for (text, says) in [
        (job(&format!("ports: [{}]", numbered("p", 20_000))), "20000 ports; at most 100 are"),
        (job(&format!("secrets: [{}]", numbered("S", 20_000))), "20000 secrets; at most 100"),
        (job(&format!("files: [{}]", numbered("f", 20_000))), "20000 files; at most 1000 are"),
        (
            format!("datacenters: [{}]\n{}", numbered("d", 100_000), job("")),
            "100000 datacenters; at most 100 are allowed",
        ),
        (format!("goals: [{}]\n{}", numbered("g", 20_000), job("")), "20000 goals; at most 10000"),
        (
            job(&format!("needs: [{}]", numbered("n", 20_000))),
            "20000 steps that it needs; at most 10000 are allowed",
        ),
        (
            format!(
                "name: j\nsteps: {{ {}: {{ run: x }} }}\n",
                numbered("s", 20_000).replace(", ", ": { run: x }, ")
            ),
            "20000 steps; at most 10000 are allowed",
        ),
        (
            job(&format!("retry: {{ rules: [{}] }}", vec!["{ exit: 1 }"; 20_000].join(", "))),
            "20000 rules; at most 100 are allowed",
        ),
    ] {
        let told = check(text.as_bytes(), "too_large");
        assert!(told.contains(says), "{says}: {told}");
    }
}

#[test]
fn regular_expressions_are_compiled_up_to_a_number_and_each_once() {
    let rules = |step: usize| {
        let rules = (0..100).map(|n| format!("{{ error: 'e{step}-{n}', then: stop }}"));
        rules.collect::<Vec<_>>().join(", ")
    };
    let step =
        |n: usize, of: usize| format!("s{n}: {{ run: x, retry: {{ rules: [{}] }} }}", rules(of));
    let steps = |count: usize, distinct: usize| {
        let steps: Vec<_> = (0..count).map(|n| step(n, n % distinct)).collect();
        format!("name: j\nsteps: {{ {} }}\n", steps.join(", "))
    };
    // Twenty thousand rules of a thousand texts.
    assert_eq!(valid(&steps(200, 10)).plan.steps().len(), 200);
    let told = check(steps(200, 200).as_bytes(), "too_large");
    assert!(told.contains("at most 1000 different regular expressions"), "{told}");
    let long =
        job(&format!("retry: {{ rules: [{{ error: '{}', then: stop }}] }}", "x".repeat(1001)));
    let told = check(long.as_bytes(), "invalid_value");
    assert!(told.contains("at most 1000 characters"), "{told}");
}

/// A job's hundred rules of a kilobyte would be a gigabyte in ten thousand steps.
#[test]
fn rules_that_every_step_has_from_its_job_are_weighed() {
    let rules: Vec<_> =
        (0..100).map(|n| format!("{{ error: '{n}{}', then: stop }}", "x".repeat(900))).collect();
    let steps: Vec<_> = (0..10_000).map(|n| format!("s{n}: {{ run: x }}")).collect();
    let text = format!(
        "name: j\nretry: {{ rules: [{}] }}\nsteps: {{ {} }}\n",
        rules.join(", "),
        steps.join(", ")
    );
    let told = check(text.as_bytes(), "too_large");
    assert!(told.contains("32 MiB"), "{told}");
}

#[test]
fn guesses_are_made_for_the_first_problems_only() {
    let steps: Vec<_> =
        (0..9_999).map(|n| format!("step-of-the-pipeline-{n}: {{ run: x }}")).collect();
    let steps = steps.join(", ");
    let last = format!("last: {{ run: x, needs: [{}] }}", numbered("step-of-the-pipelin-", 10_000));
    let problems = read(&format!("name: j\nsteps: {{ {steps}, {last} }}\n")).expect_err("refused");
    assert_eq!(problems[0].code, "unknown_step", "{}", shown(&problems));
    assert!(problems.iter().filter(|problem| problem.help.is_some()).count() <= 20);
}

/// Every value below a key has its path, and a key may be as long as the file.
#[test]
fn a_long_key_is_not_repeated_in_the_path_of_everything_below_it() {
    let key = "k".repeat(4 << 20);
    let items = numbered("i", 10_000);
    let text = format!("name: j\nsteps:\n  ? {key}\n  : {{ argv: [{items}] }}\n");
    let told = check(text.as_bytes(), "invalid_name");
    assert!(told.contains("at most 100 characters"), "{told}");
}

/// Whether a step waits for another is asked for each reference, in the largest graph that fits into a file.
#[test]
fn references_in_a_dense_graph_are_checked() {
    let count = 1_000;
    let steps: Vec<_> = (0..count)
        .map(|n: usize| {
            let needs: Vec<_> = (n.saturating_sub(300)..n).map(|need| format!("s{need}")).collect();
            let reads = if n > 0 { "for_each: { output: s0 }, " } else { "" };
            format!(
                "s{n}: {{ run: x, {reads}env: {{ A: '{{{{ steps.s0.output }}}}' }}, needs: [{}] }}",
                needs.join(", ")
            )
        })
        .skip(1)
        .collect();
    let text = format!("name: j\nsteps: {{ s0: {{ run: x }}, {} }}\n", steps.join(", "));
    assert_eq!(valid(&text).plan.steps().len(), count);
}
