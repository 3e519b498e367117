//! One change to the fields of a message, as they stand on the wire.

use crate::random::Random;
use crate::text;

/// Of no field that there is.
const UNKNOWN: u64 = 1000;
/// A message within a message: changed there, so deep.
const DEEPEST: u32 = 4;

#[derive(Clone, Debug)]
struct Field {
    number: u64,
    value: Value,
}

#[derive(Clone, Debug)]
enum Value {
    Varint(u64),
    Fixed64([u8; 8]),
    Fixed32([u8; 4]),
    Bytes(Vec<u8>),
}

pub(crate) fn change(input: &mut Vec<u8>, donor: &[u8], words: &[Vec<u8>], random: &mut Random) {
    match fields(input) {
        Some(mut all) if !all.is_empty() => {
            change_fields(&mut all, donor, words, random, DEEPEST);
            *input = written(&all);
        }
        _ => text::change(input, donor, words, random),
    }
}

fn change_fields(
    all: &mut Vec<Field>,
    donor: &[u8],
    words: &[Vec<u8>],
    random: &mut Random,
    deepest: u32,
) {
    let at = random.below(all.len() as u64) as usize;
    match random.below(8) {
        0 => drop(all.remove(at)),
        1 => all.push(all[at].clone()),
        2 => all[at].number = random.below(UNKNOWN) + 1,
        3 => all.extend(random.pick(&fields(donor).unwrap_or_default()).cloned()),
        4 => {
            let value = Value::Varint(random.bits());
            all.push(Field { number: all[at].number, value });
        }
        _ => match &mut all[at].value {
            Value::Varint(number) => {
                *number = [0, 1, u64::MAX, i64::MAX as u64, 1 << 31, 1 << 32, 255, random.bits()]
                    [random.below(8) as usize];
            }
            Value::Fixed64(bytes) => *bytes = random.bits().to_le_bytes(),
            Value::Fixed32(bytes) => *bytes = (random.bits() as u32).to_le_bytes(),
            Value::Bytes(bytes) => match fields(bytes) {
                Some(mut inner) if !inner.is_empty() && deepest > 0 && random.one_in(2) => {
                    change_fields(&mut inner, donor, words, random, deepest - 1);
                    *bytes = written(&inner);
                }
                _ => text::change(bytes, donor, words, random),
            },
        },
    }
}

/// None: it is no message.
fn fields(mut bytes: &[u8]) -> Option<Vec<Field>> {
    let mut all = Vec::new();
    while !bytes.is_empty() {
        let tag = varint(&mut bytes)?;
        let value = match tag & 7 {
            0 => Value::Varint(varint(&mut bytes)?),
            1 => Value::Fixed64(taken(&mut bytes, 8)?.try_into().ok()?),
            2 => {
                let length = varint(&mut bytes)?;
                Value::Bytes(taken(&mut bytes, usize::try_from(length).ok()?)?.to_vec())
            }
            5 => Value::Fixed32(taken(&mut bytes, 4)?.try_into().ok()?),
            _ => return None,
        };
        all.push(Field { number: tag >> 3, value });
    }
    Some(all)
}

fn taken<'a>(bytes: &mut &'a [u8], count: usize) -> Option<&'a [u8]> {
    let (taken, rest) = bytes.split_at_checked(count)?;
    *bytes = rest;
    Some(taken)
}

fn varint(bytes: &mut &[u8]) -> Option<u64> {
    let mut number = 0;
    for nth in 0..10 {
        let byte = taken(bytes, 1)?[0];
        number |= u64::from(byte & 0x7f) << (7 * nth);
        if byte & 0x80 == 0 {
            return Some(number);
        }
    }
    None
}

fn written(all: &[Field]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for Field { number, value } in all {
        let kind = match value {
            Value::Varint(_) => 0,
            Value::Fixed64(_) => 1,
            Value::Bytes(_) => 2,
            Value::Fixed32(_) => 5,
        };
        put_varint(&mut bytes, number << 3 | kind);
        match value {
            Value::Varint(number) => put_varint(&mut bytes, *number),
            Value::Fixed64(fixed) => bytes.extend(fixed),
            Value::Fixed32(fixed) => bytes.extend(fixed),
            Value::Bytes(inner) => {
                put_varint(&mut bytes, inner.len() as u64);
                bytes.extend(inner);
            }
        }
    }
    bytes
}

fn put_varint(bytes: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        bytes.push(number as u8 | 0x80);
        number >>= 7;
    }
    bytes.push(number as u8);
}

#[test]
fn what_is_not_changed_is_written_as_it_was() {
    let message = [8, 0x96, 1, 0x12, 2, 8, 1, 0x1d, 1, 2, 3, 4, 0x21, 1, 2, 3, 4, 5, 6, 7, 8];
    assert_eq!(written(&fields(&message).expect("a message")), message);
    assert!(fields(&[0x12, 9, 1]).is_none() && fields(&[0xff; 11]).is_none());
}
