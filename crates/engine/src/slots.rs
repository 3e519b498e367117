//! Room for attempts, by datacenter.

use std::collections::BTreeMap;

/// How many attempts may be under way in each datacenter.
#[derive(Clone, Debug)]
pub struct Slots {
    most: Option<u32>,
    used: BTreeMap<Option<String>, u32>,
}

impl Slots {
    pub fn unlimited() -> Self {
        Self { most: None, used: BTreeMap::new() }
    }

    pub fn per_datacenter(most: u32) -> Self {
        Self { most: Some(most), used: BTreeMap::new() }
    }

    pub(crate) fn take(&mut self, datacenter: Option<&str>) -> bool {
        let Some(most) = self.most else { return true };
        let used = self.used.entry(datacenter.map(str::to_owned)).or_default();
        let free = *used < most;
        *used += u32::from(free);
        free
    }

    /// Of those that are counted.
    pub(crate) fn in_use(&self) -> usize {
        self.used.values().map(|&used| used as usize).sum()
    }

    pub(crate) fn give_back(&mut self, datacenter: Option<&str>) {
        if self.most.is_some()
            && let Some(used) = self.used.get_mut(&datacenter.map(str::to_owned))
        {
            *used = used.saturating_sub(1);
        }
    }
}
