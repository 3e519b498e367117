//! A part of a job by the name that people are shown for it: `index`, `index[2]`, `eu-west/index[2]`,
//! `publish!` for a fallback, `publish~` for a compensation.
//!
//! The counterpart of [`Plan::item_name`]: whatever is printed can be asked for.

use crate::event::{ItemId, Role};
use crate::plan::{Plan, nearest};

/// What a name means. What is none is not said: all of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ItemSelector {
    pub run: Option<u32>,
    pub step: Option<u32>,
    pub role: Option<Role>,
    /// Of the step's work; fallbacks and compensations have none.
    pub item: Option<u32>,
}

/// A name that is nowhere in the plan.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}{}", .help.as_ref().map(|help| format!("; {help}")).unwrap_or_default())]
pub struct NoSuchPart {
    pub message: String,
    /// What was meant, perhaps.
    pub help: Option<String>,
}

impl NoSuchPart {
    fn new(message: String, help: Option<String>) -> Self {
        Self { message, help }
    }
}

impl ItemSelector {
    pub fn step(step: u32) -> Self {
        Self { step: Some(step), ..Self::default() }
    }

    pub fn has_step(&self, run: u32, step: u32) -> bool {
        self.run.is_none_or(|only| only == run) && self.step.is_none_or(|only| only == step)
    }

    pub fn has(&self, id: ItemId) -> bool {
        self.has_step(id.run, id.step)
            && self.role.is_none_or(|only| only == id.role)
            && self.item.is_none_or(|only| only == id.index)
    }
}

impl Plan {
    pub fn select(&self, text: &str) -> Result<ItemSelector, NoSuchPart> {
        let (run, rest) = match text.split_once('/') {
            None => (None, text),
            // Nothing of a job without datacenters is printed with one.
            Some(_) if self.datacenters().is_empty() => (None, text),
            Some((datacenter, rest)) => {
                let known = self.datacenters();
                let Some(run) = known.iter().position(|name| name == datacenter) else {
                    let help = nearest(datacenter, known.iter().map(String::as_str));
                    let message = format!("the job has no datacenter `{datacenter}`");
                    return Err(NoSuchPart::new(message, help));
                };
                (Some(run as u32), rest)
            }
        };
        let (name, role, item) = match rest.strip_suffix(']').and_then(|rest| rest.split_once('['))
        {
            Some((name, item)) => {
                let item = item.parse::<u32>().map_err(|_| {
                    NoSuchPart::new(format!("`{text}`: an item is a number, from 0"), None)
                })?;
                (name, Some(Role::Item), Some(item))
            }
            None => match (rest.strip_suffix('!'), rest.strip_suffix('~')) {
                (Some(name), _) => (name, Some(Role::Fallback), None),
                (_, Some(name)) => (name, Some(Role::Compensation), None),
                (None, None) => (rest, None, None),
            },
        };
        let Some(step) = self.find(name) else {
            let help = nearest(name, self.steps().iter().map(|step| step.name.as_str()));
            return Err(NoSuchPart::new(format!("the job has no step `{name}`"), help));
        };
        let wrong = self.lacks(step, role, item);
        match wrong {
            Some(message) => Err(NoSuchPart::new(message, None)),
            None => Ok(ItemSelector { run, step: Some(step), role, item }),
        }
    }

    /// What the step cannot have.
    fn lacks(&self, step: u32, role: Option<Role>, item: Option<u32>) -> Option<String> {
        let draft = self.step(step);
        let name = &draft.name;
        if let (Some(item), Some(items)) = (item, draft.for_each.items())
            && item >= items
        {
            let last = items.saturating_sub(1);
            return Some(format!("`{name}` has {items} items, 0 to {last}; there is no [{item}]"));
        }
        let fallback = draft.on_failure.as_ref().is_some_and(|then| then.action.is_some());
        match role {
            Some(Role::Fallback) if !fallback => {
                Some(format!("`{name}` has no `on_failure` to run"))
            }
            Some(Role::Compensation) if draft.compensate.is_none() => {
                Some(format!("`{name}` has no `compensate`"))
            }
            _ => None,
        }
    }
}
