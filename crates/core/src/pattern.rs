//! Regular expressions of rules, each compiled once. Decides nothing: what it keeps only saves time.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock, Mutex, PoisonError, Weak};

use regex::{Regex, RegexBuilder};

/// A regular expression compiles to at most this much, so that no rule can take the memory.
const SIZE_BYTES: usize = 1 << 18;

/// The same expression for the same text: ten thousand steps have the rules of their job, each of them
/// is read again with every recovery, and compiling one takes longer than reading a hundred steps. What
/// no policy uses any more is not kept.
pub(crate) fn compiled(pattern: &str) -> Result<Arc<Regex>, regex::Error> {
    static KNOWN: LazyLock<Mutex<HashMap<String, Weak<Regex>>>> = LazyLock::new(Mutex::default);
    let known = || KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(regex) = known().get(pattern).and_then(Weak::upgrade) {
        return Ok(regex);
    }
    let regex = Arc::new(RegexBuilder::new(pattern).size_limit(SIZE_BYTES).build()?);
    let mut known = known();
    // As often as it has doubled, so that forgetting costs nothing each time.
    if known.len() == known.capacity() {
        known.retain(|_, regex| regex.strong_count() > 0);
    }
    known.insert(pattern.to_owned(), Arc::downgrade(&regex));
    Ok(regex)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_text_is_compiled_once() {
        let (one, again) = (compiled("once only").unwrap(), compiled("once only").unwrap());
        assert!(Arc::ptr_eq(&one, &again));
        assert!(!Arc::ptr_eq(&one, &compiled("once  only").unwrap()));
        assert!(compiled("(").is_err() && compiled(r"\w{5000}").is_err());
    }
}
