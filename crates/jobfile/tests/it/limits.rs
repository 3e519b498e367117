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
