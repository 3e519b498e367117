//! Maps that are looked into many times for every decision, with a hash that is made for speed. Each has a seed of its own, so that who
//! does not see into the process cannot choose keys that collide; most keys are numbers and ids of jobs, which servers give.

use foldhash::fast::RandomState;

pub(crate) type HashMap<K, V> = std::collections::HashMap<K, V, RandomState>;
pub(crate) type HashSet<K> = std::collections::HashSet<K, RandomState>;
