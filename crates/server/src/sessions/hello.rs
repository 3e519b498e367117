//! How a worker introduces itself.

use std::ops::RangeInclusive;

use steadfast_api::proto;
use steadfast_core::plan::MAX_LABELS;
use steadfast_engine::WorkerSpec;

use super::session::Peer;

const LONGEST_NAME: usize = 200;
const MOST_SLOTS: u32 = 10_000;
/// Of its secret: nobody guesses so many.
const SECRET_BYTES: RangeInclusive<usize> = 16..=64;

pub(super) fn spec(hello: &proto::Hello, peer: &Peer) -> WorkerSpec {
    let some = |text: &String| (!text.is_empty()).then(|| text.clone());
    WorkerSpec {
        name: peer.name.clone(),
        incarnation: peer.incarnation.clone(),
        datacenter: some(&hello.datacenter),
        labels: hello.labels.clone(),
        slots: hello.slots,
        cpu: Some(hello.cpu).filter(|cpu| *cpu > 0.0),
        memory_bytes: Some(hello.memory_bytes).filter(|bytes| *bytes > 0),
        functions: hello.functions.iter().cloned().collect(),
        processes: hello.processes,
        http: hello.http,
        queues: hello.queues,
    }
}

/// What is wrong with how a worker introduces itself.
pub(super) fn check(hello: &proto::Hello) -> Result<(), String> {
    let good = |text: &str| text.len() <= LONGEST_NAME && !text.chars().any(char::is_control);
    if hello.name.is_empty() || !good(&hello.name) || hello.name.contains('/') {
        return Err(format!("{:?} is not a name for a worker", hello.name));
    }
    if hello.incarnation.is_empty() || !good(&hello.incarnation) || !good(&hello.datacenter) {
        return Err("the incarnation or the datacenter has no fitting name".to_owned());
    }
    if !(SECRET_BYTES.contains(&hello.secret.len()) && hello.proof.len() <= *SECRET_BYTES.end()) {
        return Err(format!(
            "a worker shows who it is by a secret of {} to {} random bytes of its own",
            SECRET_BYTES.start(),
            SECRET_BYTES.end()
        ));
    }
    if hello.slots == 0 || hello.slots > MOST_SLOTS {
        return Err(format!("a worker has 1 to {MOST_SLOTS} slots, not {}", hello.slots));
    }
    if !(hello.cpu.is_finite() && (0.0..=1e6).contains(&hello.cpu)) {
        return Err(format!("{} is no number of cpus", hello.cpu));
    }
    if hello.labels.len() > MAX_LABELS {
        let count = hello.labels.len();
        return Err(format!("a worker has at most {MAX_LABELS} labels, not {count}"));
    }
    let texts = hello.labels.iter().flat_map(|(name, value)| [name, value]);
    if !texts.chain(&hello.functions).all(|text| good(text)) {
        return Err("a label or function has a name that is too long or not printable".to_owned());
    }
    Ok(())
}
