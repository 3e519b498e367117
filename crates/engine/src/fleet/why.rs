//! Why no worker takes an attempt, in a sentence.

use steadfast_core::plan::milli_cpus;

use super::needs::Capability;
use super::{Fleet, Member, Needs};

impl Fleet {
    /// The first thing that would have to be different.
    pub(crate) fn why_not(&self, needs: &Needs) -> String {
        let all: Vec<&Member> =
            self.members.values().filter(|member| !member.spec.incarnation.is_empty()).collect();
        if all.is_empty() {
            return "no worker is connected; start one with `steadfast worker`".to_owned();
        }
        let (place, here) = match &needs.datacenter {
            None => (String::new(), all),
            Some(datacenter) => (
                format!(" in {datacenter}"),
                all.into_iter().filter(|member| needs.place_fits(&member.spec)).collect(),
            ),
        };
        if here.is_empty() {
            return format!("no worker{place} is connected");
        }
        let kind: Vec<&Member> =
            here.into_iter().filter(|member| needs.kind_fits(&member.spec)).collect();
        if kind.is_empty() {
            return match &needs.skill {
                Capability::Function(function) => {
                    format!("no worker{place} has the function {function}")
                }
                Capability::Http => format!("no worker{place} calls web services"),
                Capability::Processes => format!("no worker{place} runs processes"),
            };
        }
        for (name, value) in &needs.labels {
            if !kind.iter().any(|member| member.spec.labels.get(name) == Some(value)) {
                return format!("no worker{place} has the label {name}={value}");
            }
        }
        let labelled: Vec<&Member> =
            kind.into_iter().filter(|member| needs.labels_fit(&member.spec)).collect();
        if labelled.is_empty() {
            return format!("no worker{place} has all the labels it wants");
        }
        if let Some(sentence) = too_small(needs, &labelled, &place) {
            return sentence;
        }
        let fit: Vec<&Member> =
            labelled.into_iter().filter(|member| member.can_ever(needs)).collect();
        if fit.is_empty() {
            return format!("no worker{place} has both the cpus and the memory it wants");
        }
        let taking: Vec<&&Member> = fit.iter().filter(|member| member.takes_work()).collect();
        if taking.is_empty() {
            let states: Vec<String> = fit
                .iter()
                .take(3)
                .map(|member| {
                    let (state, why) = member.standing();
                    let why = why.map(|why| format!(" ({why})")).unwrap_or_default();
                    format!("{} is {}{why}", member.spec.name, state.name())
                })
                .collect();
            return format!("of the workers that could take it, {}", states.join("; "));
        }
        if taking.iter().any(|member| member.can_now(needs, needs.may_wait)) {
            return "it is about to start".to_owned();
        }
        match taking.len() {
            1 => format!("{}, the one worker that could take it, is busy", taking[0].spec.name),
            many => format!("all {many} workers that could take it are busy"),
        }
    }
}

fn too_small(needs: &Needs, members: &[&Member], place: &str) -> Option<String> {
    let most = |of: fn(&Member) -> Option<u64>| {
        // One that does not say is believed to have enough.
        members.iter().map(|member| of(member)).collect::<Option<Vec<u64>>>()?.into_iter().max()
    };
    if let Some(cpu) = most(|member| member.spec.cpu.map(milli_cpus))
        && cpu < needs.cpu_milli
    {
        let (wanted, has) = (needs.cpu_milli as f64 / 1000.0, cpu as f64 / 1000.0);
        return Some(format!("no worker{place} has {wanted} cpus; the largest has {has}"));
    }
    if let Some(memory) = most(|member| member.spec.memory_bytes)
        && memory < needs.memory
    {
        let mib = |bytes: u64| bytes >> 20;
        return Some(format!(
            "no worker{place} has {} MiB of memory; the largest has {} MiB",
            mib(needs.memory),
            mib(memory)
        ));
    }
    None
}
