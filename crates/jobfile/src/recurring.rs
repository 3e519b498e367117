//! Job files that say the same but for what their function is called with. Who submits thousands of them has the rest
//! read once.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::value::RawValue;
use steadfast_core::plan::{Plan, PlanArguments};

use crate::builder::Builder;
use crate::document::Limits;
use crate::json;
use crate::operator::Operator;

/// Of an input. With more brackets, the whole file is read: it may be too deep.
const BRACKETS_MOST: usize = 16;

/// A job file that was read, with a gap where the input of its only function stands.
#[derive(Clone, Debug)]
pub struct RecurringFile {
    before: Box<str>,
    after: Box<str>,
    max_bytes: usize,
    plan: Plan,
}

/// Where inputs stand in a file.
#[derive(Deserialize)]
struct File<'a> {
    #[serde(borrow)]
    steps: BTreeMap<&'a str, Step<'a>>,
}

#[derive(Deserialize)]
struct Step<'a> {
    #[serde(borrow)]
    input: Option<&'a RawValue>,
}

impl RecurringFile {
    /// `plan`: what this text became. None: there is no such gap in it.
    pub fn of(text: &str, plan: &Plan, operator: &Operator) -> Option<Self> {
        let file: File<'_> = serde_json::from_str(text).ok()?;
        let mut inputs = file.steps.values().filter_map(|step| step.input);
        let (Some(input), None, 1) = (inputs.next(), inputs.next(), plan.arguments().inputs.len())
        else {
            return None;
        };
        let input = input.get();
        let start = input.as_ptr().addr().checked_sub(text.as_ptr().addr())?;
        let (before, after) = (text.get(..start)?, text.get(start + input.len()..)?);
        let (before, after) = (before.into(), after.into());
        // What a template names would have to be there, and be checked.
        let is_plain = !input.contains("{{");
        let max_bytes = operator.max_file_bytes;
        is_plain.then(|| Self { before, after, max_bytes, plan: plan.clone() })
    }

    /// Whether all of another text but what stands in the gap is the same.
    pub fn frames(&self, text: &str) -> bool {
        self.gap(text).is_some()
    }

    fn gap<'a>(&self, text: &'a str) -> Option<&'a str> {
        text.strip_prefix(&*self.before)?.strip_suffix(&*self.after)
    }

    /// What another text becomes that differs in the input alone. None: the whole of it is to be read.
    pub fn plan(&self, text: &str) -> Option<Plan> {
        let input = self.gap(text)?;
        let brackets = input.bytes().filter(|byte| matches!(byte, b'[' | b'{')).count();
        // Numbers of characters may hide braces, which name something; no other escape can.
        let is_plain = brackets <= BRACKETS_MOST && !input.contains("{{") && !input.contains("\\u");
        if !is_plain || text.len() > self.max_bytes {
            return None;
        }
        let mut builder = Builder::new(Limits::default());
        let read = json::read(input, &mut builder);
        let (Some(node), problems) = builder.finish(read) else { return None };
        let input = node.to_json().ok().filter(|_| problems.is_empty())?;
        let arguments = self.plan.arguments();
        self.plan.with_arguments(PlanArguments { inputs: vec![input], ..arguments.clone() })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::load;

    const FILE: &str =
        r#"{"name":"n","steps":{"a":{"run":"true"},"s":{"call":"f","input":INPUT,"needs":["a"]}}}"#;

    fn text(input: &str) -> String {
        FILE.replace("INPUT", input)
    }

    fn recurring(text: &str) -> Option<RecurringFile> {
        let operator = Operator::default();
        let plan = load("job.yaml", text.as_bytes(), &operator).expect("a job").plan;
        RecurringFile::of(text, &plan, &operator)
    }

    /// Whatever a file is taken for, it is what it is when all of it is read.
    fn check(known: &RecurringFile, text: &str) -> bool {
        let Some(plan) = known.plan(text) else { return false };
        let read = load("job.yaml", text.as_bytes(), &Operator::default());
        let read = read.unwrap_or_else(|problems| panic!("{text} is refused: {problems:?}"));
        assert_eq!(plan, read.plan, "{text}");
        true
    }

    #[test]
    fn files_that_differ_in_an_input_are_what_they_would_be_read_as() {
        let known = recurring(&text("1")).expect("it has one input");
        for input in [
            "2",
            " 7 ",
            "null",
            "-0.5e3",
            r#""text""#,
            r#""a line\nand \"a\" \\ \/ path""#,
            r#"{"a":[1,{"b":"ö"}]}"#,
            "18446744073709551615",
        ] {
            assert!(check(&known, &text(input)), "{input}");
        }
        let plan = known.plan(&text("[3]")).expect("the same");
        assert!(plan.has_shape_of(&known.plan) && plan != known.plan);
    }

    #[test]
    fn what_could_be_more_than_an_input_is_read() {
        let known = recurring(&text("1")).expect("it has one input");
        let deep = format!("{}1{}", "[".repeat(70), "]".repeat(70));
        for input in [
            "",
            "1,\"retry\":3",
            "{{ item }}",
            r#""{{ steps.a.output }}""#,
            r#""\u007b{ item }}""#,
            r#"{"a":1,"a":2}"#,
            "99999999999999999999999",
            "1 2",
            "\"\u{1}\"",
            "nul",
            &deep,
        ] {
            assert!(known.plan(&text(input)).is_none(), "{input}");
        }
        assert!(known.plan(&text("1").replace("\"n\"", "\"m\"")).is_none(), "another name");
        let small = Operator { max_file_bytes: text("1").len(), ..Operator::default() };
        let known = RecurringFile::of(&text("1"), &known.plan, &small).expect("it has one input");
        assert!(known.plan(&text("2")).is_some() && known.plan(&text("22")).is_none(), "too large");
    }

    #[test]
    fn files_with_no_input_or_several_are_read() {
        assert!(recurring(r#"{"name":"n","steps":{"s":{"call":"f"}}}"#).is_none());
        let two = r#"{"name":"n","steps":{"s":{"call":"f","input":1},"t":{"call":"f","input":2}}}"#;
        assert!(recurring(two).is_none());
        let yaml = "name: n\nsteps: { s: { call: f, input: 1 } }\n";
        assert!(recurring(yaml).is_none());
        assert!(recurring(&text(r#""{{ steps.a.output }}""#)).is_none());
    }

    proptest! {
        #[test]
        fn no_text_is_taken_for_what_it_is_not(input in "[-0-9a-z\"{}\\[\\]:, .\\\\é]{0,12}") {
            let known = recurring(&text("1")).expect("it has one input");
            check(&known, &text(&input));
        }
    }
}
