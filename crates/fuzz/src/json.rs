//! One change to a tree of JSON: it stays JSON, and says something else.

use serde_json::{Map, Value};

use crate::random::Random;
use crate::text::NUMBERS;

/// Deeper than a log takes, less deep than a parser of JSON gives up at.
const DEEP: u64 = 126;

/// None: the input is not JSON.
pub(crate) fn changed(input: &[u8], donor: &[u8], random: &mut Random) -> Option<Vec<u8>> {
    let mut tree: Value = serde_json::from_slice(input).ok()?;
    let mut donor = serde_json::from_slice(donor).unwrap_or(Value::Null);
    let nth = random.below(count(&donor));
    let part = nth_node(&mut donor, &mut { nth }).map(Value::take).unwrap_or_default();
    let nth = random.below(count(&tree));
    if let Some(node) = nth_node(&mut tree, &mut { nth }) {
        change(node, part, random);
    }
    serde_json::to_vec(&tree).ok()
}

fn count(tree: &Value) -> u64 {
    1 + match tree {
        Value::Array(list) => list.iter().map(count).sum(),
        Value::Object(map) => map.values().map(count).sum::<u64>(),
        _ => 0,
    }
}

/// In the order in which they are written.
fn nth_node<'a>(tree: &'a mut Value, nth: &mut u64) -> Option<&'a mut Value> {
    if *nth == 0 {
        return Some(tree);
    }
    *nth -= 1;
    match tree {
        Value::Array(list) => list.iter_mut().find_map(|value| nth_node(value, nth)),
        Value::Object(map) => map.values_mut().find_map(|value| nth_node(value, nth)),
        _ => None,
    }
}

fn change(node: &mut Value, part: Value, random: &mut Random) {
    match (random.below(8), &mut *node) {
        (0, Value::Object(map)) => {
            // Another name for something.
            let at = random.below(map.len() as u64) as usize;
            let mut entries: Vec<(String, Value)> = std::mem::take(map).into_iter().collect();
            if let Some((name, _)) = entries.get_mut(at) {
                name.push_str(["x", "_", "\u{1}", ""][random.below(4) as usize]);
            }
            *map = entries.into_iter().collect::<Map<_, _>>();
        }
        (1, Value::Object(map)) => {
            let name = map.keys().nth(random.below(map.len() as u64) as usize).cloned();
            name.and_then(|name| map.remove(&name));
        }
        (2, Value::Object(map)) => drop(map.insert("extra".to_owned(), part)),
        (0..=2, Value::Array(list)) => match random.pick(list).cloned() {
            Some(element) if random.one_in(2) => list.push(element),
            Some(_) => drop(list.pop()),
            None => list.push(part),
        },
        (0..=2, Value::String(text)) => {
            text.push_str(
                ["\0", "\n", "é", "{{ item }}", "%", "\u{202e}"][random.below(6) as usize],
            );
        }
        (0..=2, Value::Number(_)) => {
            let number = random.pick(NUMBERS).and_then(|text| serde_json::from_str(text).ok());
            *node = number.unwrap_or(Value::Null);
        }
        (3, _) => *node = part,
        (4, _) => {
            *node = [Value::Null, true.into(), "".into(), Value::Array(vec![])]
                [random.below(4) as usize]
                .clone();
        }
        (5, _) => {
            let inner = node.take();
            *node = (0..random.below(DEEP)).fold(inner, |inner, _| Value::Array(vec![inner]));
        }
        (6, _) => {
            let text = node.to_string();
            *node = Value::String(text);
        }
        _ => {
            let number = random.pick(NUMBERS).and_then(|text| serde_json::from_str(text).ok());
            *node = number.unwrap_or_else(|| Value::from(random.bits()));
        }
    }
}
