//! Which step needs which, directly or not, for a whole plan at once: a bit for each pair of steps, 12 MiB for
//! the largest plan. Walking the graph anew for each question would take seconds there.

const BITS: usize = u64::BITS as usize;

/// Of a plan without circles.
#[derive(Debug)]
pub struct Reachability {
    words: usize,
    /// A row for each step.
    bits: Vec<u64>,
}

impl Reachability {
    /// `needs`: of each step, by index.
    pub(super) fn of(needs: &[Vec<u32>]) -> Self {
        let words = needs.len().div_ceil(BITS);
        let mut reach = Self { words, bits: vec![0; words * needs.len()] };
        let mut done = vec![false; needs.len()];
        for start in 0..needs.len() {
            if done[start] {
                continue;
            }
            // Depth first: a step's row is made when those of all it needs are.
            let mut path = vec![(start, 0)];
            while let Some((step, next)) = path.last_mut() {
                let step = *step;
                match needs[step].get(*next) {
                    Some(&need) => {
                        *next += 1;
                        if !done[need as usize] {
                            path.push((need as usize, 0));
                        }
                    }
                    None => {
                        needs[step].iter().for_each(|&need| reach.add(step, need as usize));
                        done[step] = true;
                        path.pop();
                    }
                }
            }
        }
        reach
    }

    fn add(&mut self, step: usize, need: usize) {
        for word in 0..self.words {
            self.bits[step * self.words + word] |= self.bits[need * self.words + word];
        }
        self.bits[step * self.words + need / BITS] |= 1 << (need % BITS);
    }

    /// Whether `step` runs only once `other` has ended.
    pub fn needs(&self, step: u32, other: u32) -> bool {
        let (step, other) = (step as usize, other as usize);
        self.bits[step * self.words + other / BITS] >> (other % BITS) & 1 == 1
    }
}
