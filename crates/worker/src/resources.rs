//! What attempts take of their worker beside slots: cpus and memory, as their steps declare them.
//!
//! Each server counts what it has assigned itself. Only the worker knows what all of them have, so it begins nothing that does not fit,
//! and tells each what the others leave.

/// What an attempt takes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Resources {
    pub cpu_milli: u64,
    pub memory_bytes: u64,
}

impl Resources {
    #[must_use]
    pub const fn plus(self, more: Self) -> Self {
        Self {
            cpu_milli: self.cpu_milli.saturating_add(more.cpu_milli),
            memory_bytes: self.memory_bytes.saturating_add(more.memory_bytes),
        }
    }

    #[must_use]
    pub const fn minus(self, less: Self) -> Self {
        Self {
            cpu_milli: self.cpu_milli.saturating_sub(less.cpu_milli),
            memory_bytes: self.memory_bytes.saturating_sub(less.memory_bytes),
        }
    }
}

/// What there is of each. None: it is not counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Capacity {
    pub cpu_milli: Option<u64>,
    pub memory_bytes: Option<u64>,
}

impl Capacity {
    #[must_use]
    pub fn without(self, used: Resources) -> Self {
        Self {
            cpu_milli: self.cpu_milli.map(|all| all.saturating_sub(used.cpu_milli)),
            memory_bytes: self.memory_bytes.map(|all| all.saturating_sub(used.memory_bytes)),
        }
    }

    pub fn has(self, wanted: Resources) -> bool {
        self.cpu_milli.is_none_or(|left| wanted.cpu_milli <= left)
            && self.memory_bytes.is_none_or(|left| wanted.memory_bytes <= left)
    }
}
