//! How the text of events is stored: small, because events say much the same.
//!
//! Each row is compressed by itself, with a dictionary of events, so that what a disk garbles is one row of one job. Text that does
//! not become smaller is stored as it is. A database keeps beside it which of the two it is.

use std::borrow::Cow;
use std::sync::LazyLock;

use lz4_flex::block::decompress_size_prepended_with_dict;

use crate::lz4::Dictionary;

/// What is stored was made with it: it never changes. Another one is another format of the file.
static DICTIONARY: LazyLock<Dictionary> =
    LazyLock::new(|| Dictionary::new(include_bytes!("dictionary.txt")));

/// Longer text has an output in it, which takes longer to compress than it is worth.
const LONGEST: usize = 60 * 1024;
/// No text was ever longer that was compressed.
const EVER_LONGEST: usize = 64 * 1024;

#[derive(Debug)]
pub(crate) enum Packed<'a> {
    Text(&'a str),
    Compressed(Vec<u8>),
}

impl<'a> Packed<'a> {
    pub(crate) fn new(text: &'a str) -> Self {
        if text.len() > LONGEST {
            return Self::Text(text);
        }
        let compressed = DICTIONARY.compress(text.as_bytes());
        if compressed.len() < text.len() { Self::Compressed(compressed) } else { Self::Text(text) }
    }

    /// What a checksum is made of.
    pub(crate) fn bytes(&self) -> &[u8] {
        match self {
            Self::Text(text) => text.as_bytes(),
            Self::Compressed(bytes) => bytes,
        }
    }

    pub(crate) fn is_compressed(&self) -> bool {
        matches!(self, Self::Compressed(_))
    }
}

/// The text of a row whose checksum fits.
pub(crate) fn unpack(bytes: &[u8], is_compressed: bool) -> Result<Cow<'_, str>, String> {
    if !is_compressed {
        return str::from_utf8(bytes).map(Cow::Borrowed).map_err(|error| error.to_string());
    }
    // Its size comes first, and room for that much is made before anything is read.
    let size = bytes.first_chunk().map_or(0, |size| u32::from_le_bytes(*size) as usize);
    if size > EVER_LONGEST {
        let most = EVER_LONGEST;
        return Err(format!("it says that it has {size} bytes, and none has more than {most}"));
    }
    let text = decompress_size_prepended_with_dict(bytes, DICTIONARY.bytes());
    let text = text.map_err(|error| error.to_string())?;
    if text.len() != size {
        return Err("it is cut".to_owned());
    }
    String::from_utf8(text).map(Cow::Owned).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn stored(text: &str) -> (Vec<u8>, bool) {
        let packed = Packed::new(text);
        (packed.bytes().to_vec(), packed.is_compressed())
    }

    fn back((bytes, is_compressed): &(Vec<u8>, bool)) -> Result<String, String> {
        unpack(bytes, *is_compressed).map(Cow::into_owned)
    }

    #[test]
    fn events_become_small_and_come_back() {
        let events = r#"[1800000000123,{"event":"JobStarted"}],
[1800000000123,{"event":"StepReady","run":0,"step":0,"items":1}],
[1800000000123,{"event":"AttemptStarted","item":{"run":0,"step":0,"index":0},"attempt":1,"token":17,"worker":"here"}]"#;
        let small = stored(events);
        assert!(small.0.len() < events.len() / 3, "{} of {}", small.0.len(), events.len());
        assert_eq!(back(&small).as_deref(), Ok(events));
    }

    #[test]
    fn what_does_not_become_smaller_stays_text() {
        for text in ["", "x", &"y".repeat(LONGEST + 1)] {
            let (bytes, is_compressed) = stored(text);
            assert!(!is_compressed);
            assert_eq!(back(&(bytes, false)).as_deref(), Ok(text));
        }
    }

    #[test]
    fn a_cut_row_is_an_error() {
        let (bytes, _) = stored(&r#"{"event":"JobStarted"}"#.repeat(40));
        for end in 0..bytes.len() {
            assert!(unpack(&bytes[..end], true).is_err(), "{end}");
        }
    }

    /// One bit of a row's header makes a blob of a text, and the checksum still fits.
    #[test]
    fn text_that_is_taken_for_compressed_is_refused_before_room_is_made_for_it() {
        let text = r#"[1800000000123,{"event":"JobPaused"}]"#;
        let refused = unpack(text.as_bytes(), true).expect_err("it is text");
        assert!(refused.contains("none has more than"), "{refused}");
    }

    proptest! {
        /// Pieces of the dictionary, and of what came before, in any order.
        #[test]
        fn what_events_say_comes_back(
            parts in proptest::collection::vec((0..4000_usize, 0..200_usize, "[a-z0-9]{0,9}"), 0..40),
        ) {
            let known = str::from_utf8(DICTIONARY.bytes()).expect("text");
            let part = |(from, length, more): &(usize, usize, String)| {
                known.get(*from..from + length).unwrap_or_default().to_owned() + more
            };
            let text: String = parts.iter().map(part).collect();
            prop_assert_eq!(back(&stored(&text)), Ok(text));
        }

        #[test]
        fn any_text_comes_back(text in any::<String>(), times in 0..50_usize) {
            let text = text.repeat(times);
            prop_assert_eq!(back(&stored(&text)), Ok(text));
        }
    }
}
