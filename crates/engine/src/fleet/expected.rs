//! Attempts that were under way before this engine had them, and the workers that they are expected of.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use steadfast_core::event::AttemptId;

use super::{Fleet, Health, Held, Member, WorkerSpec};
use crate::prefetch::Prefetch;

impl Fleet {
    /// Stored jobs are being taken up. Workers are let in when all of them are, and the lease that they have
    /// to come back in counts from then.
    pub(crate) fn returned(&mut self, mono: u64) {
        self.returned = mono;
    }

    /// Members that are here and are to come in anew: attempts were found of them that they have said nothing of in this session, or went
    /// to another server.
    pub(crate) fn take_unasked(&mut self) -> Vec<Arc<str>> {
        std::mem::take(&mut self.unasked).into_iter().collect()
    }

    pub(crate) fn has_at(&self, name: &str, key: &AttemptId) -> bool {
        self.members.get(name).is_some_and(|member| member.held.contains_key(key))
    }

    /// It has something of what another server is given.
    pub(crate) fn ask(&mut self, name: &str) {
        let here = self.members.get_key_value(name).filter(|(_, member)| member.connected);
        self.unasked.extend(here.map(|(name, _)| name.clone()));
    }

    pub(crate) fn ask_all(&mut self) {
        let here = self.members.iter().filter(|(_, member)| member.connected);
        self.unasked.extend(here.map(|(name, _)| name.clone()));
    }

    /// An attempt that was under way when the engine stopped, or at another server: its worker has a lease to come back in.
    pub(crate) fn expect(&mut self, name: &Arc<str>, key: AttemptId, held: Held) {
        let mono = held.since;
        // Another server may have vouched for it until now, to a worker that has not come here, or that does not come back
        // when it is asked.
        let lease_ends = mono + self.rules.lease_ms + self.rules.tolerance_ms.unwrap_or(0);
        if let Some(member) = self.members.get_mut(name) {
            if member.connected {
                self.unasked.insert(name.clone());
            }
            if member.lease_ends < lease_ends {
                self.leases.remove(&(member.lease_ends, name.clone()));
                self.leases.insert((lease_ends, name.clone()));
                member.lease_ends = lease_ends;
            }
        } else {
            self.leases.insert((lease_ends, name.clone()));
            let spec = WorkerSpec {
                name: name.clone(),
                incarnation: "".into(),
                datacenter: None,
                labels: BTreeMap::new(),
                slots: 0,
                cpu: None,
                memory_bytes: None,
                functions: BTreeSet::new(),
                processes: false,
                http: false,
                queues: false,
            };
            let member = Member {
                spec,
                credits: 0,
                cpu_left_milli: None,
                memory_left: None,
                fingerprint: None,
                session: 0,
                connected: false,
                since: mono,
                heard: mono,
                draining: false,
                undrain: false,
                lease_ends,
                cpu_used_milli: 0,
                memory_used: 0,
                held: BTreeMap::new(),
                health: Health::default(),
                pace: Prefetch::default(),
                wanted: false,
                open: None,
            };
            self.members.insert(name.clone(), member);
        }
        self.take(name, key, held);
    }

    /// What an attempt that this worker is given is recorded with.
    pub(crate) fn incarnation_to_record(&self, name: &str) -> Option<Arc<str>> {
        self.rules.tolerance_ms?;
        Some(self.members.get(name)?.spec.incarnation.clone())
    }
}
