//! What is wanted of workers: one class for all steps that want the same, as long as there is one.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::fleet::Needs;
use crate::hash::HashMap;

/// Never that of another class, also after this one is gone.
pub(super) type ClassId = u64;

#[derive(Debug, Default)]
pub(super) struct Classes {
    ids: HashMap<Arc<Needs>, ClassId>,
    by_id: BTreeMap<ClassId, Class>,
    last: ClassId,
}

#[derive(Debug)]
struct Class {
    needs: Arc<Needs>,
    /// Steps of jobs under way that have had something to start.
    steps: u32,
}

impl Classes {
    /// The class of one more step.
    pub(super) fn hold(&mut self, needs: Needs) -> ClassId {
        let id = *self.ids.entry(Arc::new(needs)).or_insert_with_key(|needs| {
            self.last += 1;
            self.by_id.insert(self.last, Class { needs: needs.clone(), steps: 0 });
            self.last
        });
        if let Some(class) = self.by_id.get_mut(&id) {
            class.steps += 1;
        }
        id
    }

    /// A step is done with; with the last one its class goes.
    pub(super) fn release(&mut self, id: ClassId) {
        let Some(class) = self.by_id.get_mut(&id) else { return };
        class.steps -= 1;
        if class.steps == 0 {
            self.ids.remove(&class.needs);
            self.by_id.remove(&id);
        }
    }

    /// Of a class that is held.
    pub(super) fn needs(&self, id: ClassId) -> &Needs {
        &self.by_id[&id].needs
    }

    pub(super) fn all(&self) -> impl Iterator<Item = &Needs> {
        self.by_id.values().map(|class| &*class.needs)
    }

    #[cfg(test)]
    pub(super) fn count(&self) -> usize {
        assert_eq!(self.ids.len(), self.by_id.len());
        self.ids.len()
    }
}
