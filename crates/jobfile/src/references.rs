//! What templates name, checked against the plan: steps that exist and have ended by then, items
//! where there are items.

use std::collections::BTreeMap;

use serde_json::Value;
use steadfast_core::plan::{ForEach, Plan, nearest};
use steadfast_core::template::{self, Reference, TemplatePart};

use crate::node::{Node, Span};
use crate::problem::{Problem, quote};
use crate::reader::{At, Reader};

/// Problems that are told, and how many of them come with a guess, which is the slow part.
const MOST: usize = 1000;
const GUESSES: usize = 20;

/// Whose text a template stands in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scope {
    /// The job's `env`, which every step gets.
    Job,
    /// By index; its action, its `env` or its fallback.
    Step(usize),
    /// Runs once, when the step has failed.
    Fallback(usize),
    /// Runs once, after the step has succeeded, so that its own output is there.
    Compensation(usize),
}

/// One reference that needs the plan to be judged.
#[derive(Clone, Debug)]
pub(crate) struct TemplateUse {
    scope: Scope,
    path: String,
    span: Span,
    named: ReferenceTarget,
    /// Which alone may name secrets.
    http: bool,
}

impl TemplateUse {
    pub(crate) fn in_http(&mut self) {
        self.http = true;
    }
}

#[derive(Clone, Debug)]
enum ReferenceTarget {
    Item,
    Step { name: String, many: bool },
    Secret { name: String },
}

impl Reader<'_> {
    /// Checks the templates in a text and keeps what they name.
    pub(crate) fn template(&mut self, at: &At, text: &str, scope: Scope) {
        if !text.contains("{{") {
            return;
        }
        let parts = match template::parse(text) {
            Ok(parts) => parts,
            Err(error) => {
                self.bad("invalid_template", at, error.message).help = error.help;
                return;
            }
        };
        for part in parts {
            let named = match part {
                TemplatePart::Reference(Reference::Item { .. } | Reference::ItemIndex) => {
                    ReferenceTarget::Item
                }
                TemplatePart::Reference(Reference::Output { step, .. }) => {
                    ReferenceTarget::Step { name: step.to_owned(), many: false }
                }
                TemplatePart::Reference(Reference::Outputs { step, .. }) => {
                    ReferenceTarget::Step { name: step.to_owned(), many: true }
                }
                TemplatePart::Reference(Reference::Secret { name }) => {
                    ReferenceTarget::Secret { name: name.to_owned() }
                }
                _ => continue,
            };
            let (path, span) = (at.path.clone(), at.node.span());
            self.uses.push(TemplateUse { scope, path, span, named, http: false });
        }
    }

    /// Any value as JSON, with templates in its texts.
    pub(crate) fn templated(&mut self, at: &At, scope: Scope) -> Option<Value> {
        self.templates_in(at, scope);
        self.json(at)
    }

    pub(crate) fn json(&mut self, at: &At) -> Option<Value> {
        match at.node.to_json() {
            Ok(value) => Some(value),
            Err(node) => {
                let text = quote(node.text().unwrap_or_default());
                let message = format!("{text} is not a number that JSON can hold");
                self.bad_at("invalid_value", &at.path, node.span(), message).help =
                    Some("put it in quotes".into());
                None
            }
        }
    }

    fn templates_in(&mut self, at: &At, scope: Scope) {
        if let Some(text) = at.node.as_str() {
            self.template(at, text, scope);
        }
        for (index, item) in at.node.as_list().unwrap_or_default().iter().enumerate() {
            if holds_braces(item) {
                self.templates_in(&at.item(index, item), scope);
            }
        }
        for entry in at.node.as_map().unwrap_or_default() {
            if holds_braces(&entry.value) {
                self.templates_in(&at.entry(entry), scope);
            }
        }
    }
}

/// Paths are only built towards what needs one.
fn holds_braces(node: &Node) -> bool {
    node.text().is_none_or(|text| text.contains("{{"))
}

/// What the names alone can tell. `index` holds the steps that were read, valid or not.
pub(crate) fn check_names(
    uses: &[TemplateUse],
    index: &BTreeMap<&str, usize>,
    fans_out: impl Fn(usize) -> bool,
    has_secret: impl Fn(usize, &str) -> bool,
) -> Vec<Problem> {
    let mut problems = Vec::new();
    for used in uses {
        if problems.len() >= MOST {
            break;
        }
        let guessing = problems.len() < GUESSES;
        let mut bad = |code, message: String, help: Option<String>| {
            let mut problem = Problem::new(code, &used.path, used.span, message);
            problem.help = help;
            problems.push(problem);
        };
        let own = match used.scope {
            Scope::Job => None,
            Scope::Step(own) | Scope::Fallback(own) | Scope::Compensation(own) => Some(own),
        };
        match (&used.named, own) {
            (_, None) => bad(
                "invalid_template",
                "the job's `env` is for all steps, so it cannot name an item or a step".into(),
                Some("move it to the `env` of the step that needs it".into()),
            ),
            (ReferenceTarget::Item, _) if !matches!(used.scope, Scope::Step(_)) => bad(
                "invalid_template",
                "`on_failure` and `compensate` run once for the whole step, so there is no item"
                    .into(),
                Some("remove the reference".into()),
            ),
            (ReferenceTarget::Item, Some(own)) if !fans_out(own) => bad(
                "invalid_template",
                "there is no item: the step has no `for_each`".into(),
                Some("add `for_each`, or remove the reference".into()),
            ),
            (ReferenceTarget::Secret { name }, _) if !used.http => bad(
                "invalid_template",
                "only `http` names secrets, so that they stay out of command lines".into(),
                Some(format!("a process finds this one in the variable `{name}`")),
            ),
            (ReferenceTarget::Secret { name }, Some(own)) if !has_secret(own, name) => bad(
                "invalid_template",
                format!("{} is not among the step's secrets", quote(name)),
                Some(format!("add `secrets: [{name}]` to the step")),
            ),
            (ReferenceTarget::Item | ReferenceTarget::Secret { .. }, _) => {}
            (ReferenceTarget::Step { name, many }, _) => match index.get(name.as_str()) {
                None => bad(
                    "unknown_step",
                    format!("there is no step {}", quote(name)),
                    nearest(name, index.keys().copied().filter(|_| guessing)),
                ),
                Some(&step) if fans_out(step) && !many => bad(
                    "invalid_template",
                    format!("`{name}` has many items, so it has a list of outputs"),
                    Some(format!("write `steps.{name}.outputs`")),
                ),
                Some(&step) if !fans_out(step) && *many => bad(
                    "invalid_template",
                    format!("`{name}` has one item, so it has one output"),
                    Some(format!("write `steps.{name}.output`")),
                ),
                Some(_) => {}
            },
        }
    }
    problems
}

/// Whether what is named will have ended.
pub(crate) fn check_order(uses: &[TemplateUse], plan: &Plan) -> Vec<Problem> {
    let mut problems = Vec::new();
    let mut reach = None;
    for used in uses {
        let (
            Scope::Step(own) | Scope::Fallback(own) | Scope::Compensation(own),
            ReferenceTarget::Step { name, .. },
        ) = (used.scope, &used.named)
        else {
            continue;
        };
        let Some(step) = plan.find(name) else {
            continue;
        };
        let itself = step as usize == own;
        if itself && matches!(used.scope, Scope::Compensation(_)) {
            continue;
        }
        if reach.get_or_insert_with(|| plan.reach()).needs(own as u32, step) {
            continue;
        }
        let own_name = &plan.step(own as u32).name;
        let (message, help) = if itself {
            ("a step cannot read its own output".to_owned(), None)
        } else {
            (
                format!("`{own_name}` reads the output of `{name}` but does not need it"),
                Some(format!("add `{name}` to its `needs`")),
            )
        };
        let mut problem = Problem::new("not_needed", &used.path, used.span, message);
        problem.help = help;
        problems.push(problem);
        if problems.len() >= MOST {
            break;
        }
    }
    problems
}

pub(crate) fn fans_out(for_each: &ForEach) -> bool {
    *for_each != ForEach::Once
}
