//! Cases of a target, one after the other. A case that fails is made smaller, and told with the command that repeats it.
//!
//! | variable | means |
//! |---|---|
//! | `FUZZ_SECONDS` | each target goes on for so long, instead of its number of cases |
//! | `FUZZ_SEED` | other cases; the test command has always the same |
//! | `FUZZ_CASE` | this case alone |

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind, set_hook, take_hook};
use std::sync::Once;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

use crate::random::Random;
use crate::{Shape, garbled};

const SEED: u64 = 18;
/// A case takes milliseconds: what takes so long hangs.
const HANGS: Duration = Duration::from_secs(30);
/// What a target's process may take in addition, over all of its cases: nothing that is read here is larger than a few MiB.
const MOST_MEMORY_KIB: u64 = 512 << 10;
/// How often a failing case is tried with something left out.
const MOST_SHRINKS: u32 = 2000;

thread_local! {
    /// A panic of this thread is expected, and says nothing.
    static IS_QUIET: Cell<bool> = const { Cell::new(false) };
}

/// What is to hold on inputs that were garbled.
#[derive(Debug)]
pub struct Fuzz {
    shape: Shape,
    corpus: Vec<Vec<u8>>,
    words: Vec<Vec<u8>>,
    cases: u64,
}

impl Fuzz {
    /// `cases`: in the test command, a second or two.
    #[must_use]
    pub fn new(shape: Shape, cases: u64) -> Self {
        Self { shape, corpus: vec![], words: vec![], cases }
    }

    /// Good inputs, and bad ones that were found before.
    #[must_use]
    pub fn corpus<T: AsRef<[u8]>>(mut self, inputs: impl IntoIterator<Item = T>) -> Self {
        self.corpus.extend(inputs.into_iter().map(|input| input.as_ref().to_vec()));
        self
    }

    /// What means something to the target.
    #[must_use]
    pub fn words<T: AsRef<[u8]>>(mut self, words: impl IntoIterator<Item = T>) -> Self {
        self.words.extend(words.into_iter().map(|word| word.as_ref().to_vec()));
        self
    }

    /// All of the corpus as it is, then garbled. `check` panics if something does not hold.
    pub fn run(self, mut check: impl FnMut(&[u8])) {
        let thread = std::thread::current();
        let target = thread.name().unwrap_or("fuzz").to_owned();
        let seed = from_env("FUZZ_SEED").unwrap_or(SEED);
        let watched = watch(&target, seed);
        let memory_before = peak_memory_kib();
        let mut one = |case: u64, input: &[u8]| {
            let _ = watched.send(case);
            if let Err(panic) = catch_unwind(AssertUnwindSafe(|| check(input))) {
                let small = smaller(input, &mut check);
                eprintln!("{}", repeat(&target, seed, case));
                eprintln!("the input, made smaller: {:?}", String::from_utf8_lossy(&small));
                std::panic::resume_unwind(panic);
            }
        };
        if let Some(case) = from_env("FUZZ_CASE") {
            one(case, &self.case(&target, seed, case));
            return;
        }
        let until = from_env("FUZZ_SECONDS").map(|seconds| now() + Duration::from_secs(seconds));
        let mut case = 0;
        while until.map_or(case < self.cases, |until| now() < until) {
            one(case, &self.case(&target, seed, case));
            case += 1;
        }
        eprintln!("{case} cases of {target}, FUZZ_SEED={seed}");
        let took = peak_memory_kib().saturating_sub(memory_before);
        assert!(took < MOST_MEMORY_KIB, "{target} took {took} KiB of memory");
    }

    fn case(&self, target: &str, seed: u64, case: u64) -> Vec<u8> {
        let random = &mut Random::of_case(seed, target, case);
        let whole = self.corpus.get(case as usize).cloned();
        whole.unwrap_or_else(|| garbled(self.shape, &self.corpus, &self.words, random))
    }
}

fn repeat(target: &str, seed: u64, case: u64) -> String {
    let package = std::env::var("CARGO_PKG_NAME").unwrap_or_else(|_| "PACKAGE".to_owned());
    format!("to repeat it: FUZZ_SEED={seed} FUZZ_CASE={case} cargo test -p {package} {target}")
}

fn from_env(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{name}={text} is not a number")))
}

#[allow(clippy::disallowed_methods, reason = "how long to go on is asked of a clock")]
fn now() -> Instant {
    Instant::now()
}

/// Ends the process when a case hangs, which no panic would tell of. Each case is told to it as it begins.
fn watch(target: &str, seed: u64) -> Sender<u64> {
    let (begins, begun) = channel();
    let target = target.to_owned();
    std::thread::spawn(move || {
        let mut last = 0;
        loop {
            match begun.recv_timeout(HANGS) {
                Ok(case) => last = case,
                Err(RecvTimeoutError::Disconnected) => return,
                Err(RecvTimeoutError::Timeout) => {
                    eprintln!("{target} hangs. {}", repeat(&target, seed, last));
                    std::process::abort();
                }
            }
        }
    });
    begins
}

/// The most that this process has had in memory. 0: nobody says.
fn peak_memory_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    peak.and_then(|peak| peak.split_whitespace().next()?.parse().ok()).unwrap_or(0)
}

/// Leaves out what it can while it still fails.
fn smaller(input: &[u8], check: &mut impl FnMut(&[u8])) -> Vec<u8> {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let loud = take_hook();
        set_hook(Box::new(move |panic| {
            if !IS_QUIET.get() {
                loud(panic);
            }
        }));
    });
    IS_QUIET.set(true);
    let mut fails = |input: &[u8]| catch_unwind(AssertUnwindSafe(|| check(input))).is_err();
    let (mut small, mut left) = (input.to_vec(), MOST_SHRINKS);
    let mut length = small.len() / 2;
    while length > 0 {
        let mut at = 0;
        while at < small.len() && left > 0 {
            left -= 1;
            let mut shorter = small.clone();
            shorter.drain(at..(at + length).min(small.len()));
            if fails(&shorter) {
                small = shorter;
            } else {
                at += length;
            }
        }
        length /= 2;
    }
    IS_QUIET.set(false);
    small
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fuzz() -> Fuzz {
        Fuzz::new(Shape::Text, 500).corpus(["name: x\nn: 12\n", r#"{"a":[1,"b"]}"#]).words(["item"])
    }

    #[test]
    fn a_case_is_the_same_each_time_and_others_are_different() {
        let all = |seed| -> Vec<Vec<u8>> { (0..200).map(|n| fuzz().case("t", seed, n)).collect() };
        assert_eq!(all(1), all(1));
        assert_ne!(all(1), all(2));
        let mut cases = all(1);
        cases.sort();
        cases.dedup();
        assert!(cases.len() > 150, "{}", cases.len());
    }

    #[test]
    fn what_fails_is_found_and_made_smaller() {
        let mut seen = Vec::new();
        let has_it = |input: &[u8]| input.windows(4).any(|part| part == b"item");
        let found = catch_unwind(AssertUnwindSafe(|| fuzz().run(|input| assert!(!has_it(input)))));
        assert!(found.is_err());
        fuzz().run(|input| seen.extend(has_it(input).then(|| input.to_vec())));
        let small = smaller(&seen[0], &mut |input: &[u8]| assert!(!has_it(input)));
        assert_eq!(small, b"item");
    }
}
