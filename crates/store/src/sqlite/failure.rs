//! Whether the disk has failed a write or a sync of a file, by whichever connection of this process.
//!
//! After a failed sync the pages may be gone, and the next sync succeeds all the same. So once one connection was failed, be it the
//! checkpointer's of a reader, none acknowledges anything any more.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};

/// By file, while some connection to it is open.
static KNOWN: Mutex<BTreeMap<PathBuf, Weak<AtomicBool>>> = Mutex::new(BTreeMap::new());

#[derive(Clone, Debug)]
pub(super) struct DiskFailure(Arc<AtomicBool>);

impl DiskFailure {
    pub(super) fn of(path: &Path) -> Self {
        let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(flag) = known.get(path).and_then(Weak::upgrade) {
            return Self(flag);
        }
        known.retain(|_, flag| flag.strong_count() > 0);
        let flag = Arc::new(AtomicBool::new(false));
        known.insert(path.to_owned(), Arc::downgrade(&flag));
        Self(flag)
    }

    pub(super) fn set(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    pub(super) fn is_set(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_is_every_connections_until_all_are_closed() {
        let [one, other] = ["one.db", "other.db"].map(|name| Path::new("/nowhere").join(name));
        let (writer, reader, elsewhere) =
            (DiskFailure::of(&one), DiskFailure::of(&one), DiskFailure::of(&other));
        reader.set();
        assert!(writer.is_set() && !elsewhere.is_set());
        drop(reader);
        assert!(DiskFailure::of(&one).is_set());
        drop(writer);
        assert!(!DiskFailure::of(&one).is_set(), "opened anew");
    }
}
