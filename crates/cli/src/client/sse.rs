//! Server-sent events, from bytes as they come in. Pure: opens nothing, waits for nothing.

/// One event may carry a plan of ten megabytes; a server that sends more than this is none.
const MOST_BYTES: usize = 64 << 20;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Frame {
    pub(crate) event: String,
    pub(crate) data: String,
    pub(crate) id: Option<String>,
}

#[derive(Debug, Default)]
pub(crate) struct Parser {
    line: Vec<u8>,
    frame: Frame,
}

impl Parser {
    /// The frames that are whole now. An error: this is no stream of events.
    pub(crate) fn feed(&mut self, mut bytes: &[u8]) -> Result<Vec<Frame>, String> {
        let mut frames = Vec::new();
        while let Some(end) = bytes.iter().position(|byte| *byte == b'\n') {
            self.line.extend_from_slice(&bytes[..end]);
            bytes = &bytes[end + 1..];
            let line = std::mem::take(&mut self.line);
            let line = line.strip_suffix(b"\r").unwrap_or(&line);
            let line = std::str::from_utf8(line)
                .map_err(|_| "the stream of events is not text".to_owned())?;
            frames.extend(self.line(line));
        }
        self.line.extend_from_slice(bytes);
        if self.line.len() + self.frame.data.len() > MOST_BYTES {
            return Err(format!("an event has more than {MOST_BYTES} bytes"));
        }
        Ok(frames)
    }

    fn line(&mut self, line: &str) -> Option<Frame> {
        if line.is_empty() {
            let mut frame = std::mem::take(&mut self.frame);
            // What has no data is nothing: a comment that keeps the connection alive.
            frame.data.pop()?;
            return Some(frame);
        }
        let (field, value) = line.split_once(':').unwrap_or((line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match field {
            "event" => value.clone_into(&mut self.frame.event),
            "id" => self.frame.id = Some(value.to_owned()),
            "data" => {
                self.frame.data.push_str(value);
                self.frame.data.push('\n');
            }
            _ => {}
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(event: &str, data: &str, id: Option<&str>) -> Frame {
        Frame { event: event.into(), data: data.into(), id: id.map(Into::into) }
    }

    #[test]
    fn events_are_the_same_however_the_bytes_are_cut() {
        let stream = ": hello\n\nid: 1\nevent: JobStarted\ndata: {\"a\":\"ü\"}\n\n\
                      :\r\n\r\ndata:one\r\ndata: two\r\n\r\nevent: end\ndata: {}\n\nid: 9\nda";
        let all = vec![
            frame("JobStarted", "{\"a\":\"ü\"}", Some("1")),
            frame("", "one\ntwo", None),
            frame("end", "{}", None),
        ];
        for size in [1, 2, 3, 7, 1000] {
            let mut parser = Parser::default();
            let chunks = stream.as_bytes().chunks(size);
            let frames: Vec<Frame> = chunks.flat_map(|chunk| parser.feed(chunk).unwrap()).collect();
            assert_eq!(frames, all, "in pieces of {size}");
        }
    }

    #[test]
    fn what_never_ends_is_not_kept() {
        let mut parser = Parser::default();
        let piece = vec![b'x'; 1 << 20];
        assert!((0..100).any(|_| parser.feed(&piece).is_err()));
        assert!(Parser::default().feed(b"data: \xff\n").is_err());
    }
}
