//! LZ4 blocks that are compressed with one dictionary, again and again: its table is made once. `lz4_flex`, which reads them,
//! makes it anew for each block, and clears another one: three times the work of compressing a row of events.

/// Of bytes that are looked for together.
const HASHED: usize = 8;
const TABLE_BITS: u32 = 12;
/// A row has fewer places, and its table is cleared for each.
const ROW_BITS: u32 = 10;
/// A shorter match says less than it takes.
const MATCH_LEAST: usize = 4;
/// By the format, what ends a block is literal, and no match begins in the last twelve bytes.
const LITERAL_END: usize = 5;
const NO_MATCH_END: usize = 12;
/// What a match has for its distance.
const FARTHEST: usize = u16::MAX as usize;
/// In a table: nothing is known.
const NONE: u16 = u16::MAX;

/// Where the last text with a hash began.
type Table = [u16; 1 << TABLE_BITS];

/// At most 64 KiB less one byte, and so are the texts.
#[derive(Debug)]
pub(crate) struct Dictionary {
    bytes: &'static [u8],
    table: Box<Table>,
}

/// Of the five bytes from a place on.
fn hash(bytes: &[u8], at: usize) -> usize {
    let word = bytes[at..].first_chunk::<HASHED>().map_or(0, |word| u64::from_le_bytes(*word));
    ((word << 24).wrapping_mul(889_523_592_379) >> (u64::BITS - TABLE_BITS)) as usize
}

/// How far two texts are the same.
fn same(one: &[u8], other: &[u8]) -> usize {
    one.iter().zip(other).take_while(|(one, other)| one == other).count()
}

impl Dictionary {
    pub(crate) fn new(bytes: &'static [u8]) -> Self {
        let mut table = Box::new([NONE; 1 << TABLE_BITS]);
        for at in 0..(bytes.len() + 1).saturating_sub(HASHED) {
            table[hash(bytes, at)] = at as u16;
        }
        Self { bytes, table }
    }

    pub(crate) fn bytes(&self) -> &'static [u8] {
        self.bytes
    }

    /// Its length comes first, as four bytes.
    pub(crate) fn compress(&self, text: &[u8]) -> Vec<u8> {
        let mut block = Vec::with_capacity(text.len() / 2 + 16);
        block.extend_from_slice(&(text.len() as u32).to_le_bytes());
        let mut table = [NONE; 1 << ROW_BITS];
        let (mut at, mut literal) = (0, 0);
        while at + NO_MATCH_END < text.len() {
            let hash = hash(text, at);
            let place = &mut table[hash >> (TABLE_BITS - ROW_BITS)];
            let before = std::mem::replace(place, at as u16);
            let Some((distance, length)) = self.longest(text, at, before, self.table[hash]) else {
                at += 1;
                continue;
            };
            put(&mut block, &text[literal..at], Some((distance, length)));
            at += length;
            literal = at;
        }
        put(&mut block, &text[literal..], None);
        block
    }

    /// A match for the text from `at` on: how far back, and how long.
    fn longest(&self, text: &[u8], at: usize, before: u16, known: u16) -> Option<(usize, usize)> {
        let rest = &text[at..text.len() - LITERAL_END];
        let in_text = (before != NONE).then(|| {
            let place = usize::from(before);
            (at - place, same(&text[place..], rest))
        });
        let in_dictionary = (known != NONE).then(|| {
            let place = usize::from(known);
            (at + self.bytes.len() - place, same(&self.bytes[place..], rest))
        });
        let found = in_text.into_iter().chain(in_dictionary);
        let found =
            found.filter(|(distance, length)| *length >= MATCH_LEAST && *distance <= FARTHEST);
        found.max_by_key(|(_, length)| *length)
    }
}

/// Literals, and the match after them.
fn put(block: &mut Vec<u8>, literals: &[u8], found: Option<(usize, usize)>) {
    let beyond = found.map_or(0, |(_, length)| length - MATCH_LEAST);
    let nibble = |length: usize| length.min(15) as u8;
    block.push(nibble(literals.len()) << 4 | nibble(beyond));
    put_rest(block, literals.len());
    block.extend_from_slice(literals);
    if let Some((distance, _)) = found {
        block.extend_from_slice(&(distance as u16).to_le_bytes());
        put_rest(block, beyond);
    }
}

/// What of a length does not fit into its four bits.
fn put_rest(block: &mut Vec<u8>, length: usize) {
    if let Some(mut rest) = length.checked_sub(15) {
        while rest >= 255 {
            block.push(255);
            rest -= 255;
        }
        block.push(rest as u8);
    }
}
