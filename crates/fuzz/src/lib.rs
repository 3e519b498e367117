//! Garbled inputs for tests: good ones, mutated from a seed, and what a target must hold on each of them.
//!
//! | room | duty |
//! |---|---|
//! | `random` | numbers from a seed |
//! | `text`, `json`, `proto` | one change to bytes, to a tree, to the fields of a message |
//! | `runner` | cases, what to do about one that fails, and how long to go on |
//!
//! Tests depend on it, the program does not. It knows nothing of what is tested.

mod json;
mod proto;
mod random;
mod runner;
mod text;

pub use random::Random;
pub use runner::Fuzz;

/// Between good and garbled: how many changes a case gets.
const MOST_CHANGES: u64 = 4;

/// What inputs are made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// Lines and words: changed as text, and as a tree where they are JSON.
    Text,
    /// A message of Protocol Buffers: changed as fields, and as bytes.
    Message,
}

/// A good input, changed: by one of the corpus, words that mean something to the target, and chance.
fn garbled(shape: Shape, corpus: &[Vec<u8>], words: &[Vec<u8>], random: &mut Random) -> Vec<u8> {
    let pick = |random: &mut Random| corpus[random.below(corpus.len() as u64) as usize].clone();
    if corpus.is_empty() || random.one_in(20) {
        return random.bytes(300);
    }
    let mut input = pick(random);
    for _ in 0..=random.below(MOST_CHANGES) {
        let donor = pick(random);
        match shape {
            Shape::Text if random.one_in(2) => {
                if let Some(changed) = json::changed(&input, &donor, random) {
                    input = changed;
                    continue;
                }
                text::change(&mut input, &donor, words, random);
            }
            Shape::Message if !random.one_in(4) => proto::change(&mut input, &donor, words, random),
            _ => text::change(&mut input, &donor, words, random),
        }
    }
    input
}
