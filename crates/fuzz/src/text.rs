//! One change to text, or to any bytes.

use crate::random::Random;

/// Numbers at which something ends: a type, a table, patience.
pub(crate) const NUMBERS: &[&str] = &[
    "0",
    "-0",
    "-1",
    "1",
    "0.5",
    "1e400",
    "-1e400",
    ".nan",
    ".inf",
    "NaN",
    "127",
    "255",
    "256",
    "65536",
    "2147483648",
    "4294967295",
    "4294967296",
    "9007199254740993",
    "9223372036854775808",
    "18446744073709551615",
    "18446744073709551616",
    "99999999999999999999999999",
    "0x10",
    "1_000",
    "٣",
];

/// What ends texts, lines and names, or is taken for something else.
const ODD: &[&str] = &[
    "\0",
    "\n",
    "\r",
    "\t",
    "\u{1}",
    "\u{85}",
    "\u{2028}",
    "\u{feff}",
    "\u{202e}",
    "é",
    "\u{1f600}",
    "\\",
    "\"",
    "'",
    "{",
    "}",
    "[",
    "]",
    ":",
    "- ",
    "#",
    "&a ",
    "*a",
    "!t ",
    "<<: *a",
    "---\n",
    "{{",
    "}}",
    "../",
    "%00",
    "\u{1b}[31m",
];

/// Deeper than any reader's limit.
const DEEP: u64 = 400;

pub(crate) fn change(input: &mut Vec<u8>, donor: &[u8], words: &[Vec<u8>], random: &mut Random) {
    let span = random.span(input.len());
    match random.below(12) {
        0 => {
            if let Some(byte) = input.get_mut(span.start) {
                *byte ^= 1 << random.below(8);
            }
        }
        1 => drop(input.splice(span, random.bytes(8))),
        2 => drop(input.drain(span)),
        3 => {
            let part = input[span.clone()].to_vec();
            drop(input.splice(span.start..span.start, part));
        }
        4 => input.truncate(span.start),
        5 => {
            let part = donor[random.span(donor.len())].to_vec();
            drop(input.splice(span, part));
        }
        6 => number(input, random),
        7 => {
            let odd = random.pick(ODD).copied().unwrap_or_default();
            drop(input.splice(span, odd.bytes()));
        }
        8 => {
            let deep = random.pick(&["[", "{\"a\":", "- ", "((", "\n  "]).copied().unwrap_or("[");
            let deep = deep.repeat(random.below(DEEP) as usize);
            drop(input.splice(span, deep.into_bytes()));
        }
        9 => lines(input, donor, random),
        _ => {
            if let Some(word) = random.pick(words) {
                drop(input.splice(span, word.iter().copied()));
            }
        }
    }
}

/// Another number where one is.
fn number(input: &mut Vec<u8>, random: &mut Random) {
    let is_digit = |at: usize| input[at].is_ascii_digit();
    let starts: Vec<usize> =
        (0..input.len()).filter(|&at| is_digit(at) && (at == 0 || !is_digit(at - 1))).collect();
    let Some(&start) = random.pick(&starts) else { return };
    let length = input[start..].iter().take_while(|byte| byte.is_ascii_digit()).count();
    let number = random.pick(NUMBERS).copied().unwrap_or_default();
    input.splice(start..start + length, number.bytes());
}

/// A line twice, away, elsewhere, moved in or out, or of another.
fn lines(input: &mut Vec<u8>, donor: &[u8], random: &mut Random) {
    let split = |text: &[u8]| -> Vec<Vec<u8>> {
        text.split_inclusive(|byte| *byte == b'\n').map(<[u8]>::to_vec).collect()
    };
    let mut all = split(input);
    if all.is_empty() {
        return;
    }
    let (at, to) =
        (random.below(all.len() as u64) as usize, random.below(all.len() as u64) as usize);
    match random.below(5) {
        0 => all.insert(to, all[at].clone()),
        1 => drop(all.remove(at)),
        2 => all.swap(at, to),
        3 => {
            let depth = random.below(4) as usize;
            all[at].splice(0..0, std::iter::repeat_n(b' ', depth));
        }
        _ => {
            let others = split(donor);
            if let Some(line) = random.pick(&others) {
                all.insert(to, line.clone());
            }
        }
    }
    *input = all.concat();
}
