//! What is read of logs: from memory, if they are being written by way of this server; else what is kept.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use object_store::UpdateVersion;
use object_store::path::Path as Key;
use percent_encoding::percent_decode_str;

use super::Shared;
use super::bucket::{AT_ONCE, Before};
use super::head::{About, Head, LINE_MOST, PIECE};
use super::logs::{damaged, head_key, piece};
use crate::LogName;
use crate::blobs::LogState;

/// A log as it is in memory.
enum InMemory {
    Head(Head),
    /// Nothing but that more is to come.
    Marked,
    Unknown,
}

async fn in_memory(shared: &Shared, log: &LogName) -> InMemory {
    let Some(entry) = shared.open.get(log) else { return InMemory::Unknown };
    let open = entry.lock().await;
    if open.changed || matches!(open.before, Some(Before::This(_))) {
        InMemory::Head(open.head.clone())
    } else if open.marked {
        InMemory::Marked
    } else {
        InMemory::Unknown
    }
}

/// With its length. None: there is no such log.
pub(super) async fn about(shared: &Shared, log: &LogName) -> io::Result<Option<(About, u64)>> {
    let in_memory = in_memory(shared, log).await;
    if let InMemory::Head(head) = in_memory {
        let length = head.length();
        return Ok(Some((head.about, length)));
    }
    let is_marked = matches!(in_memory, InMemory::Marked);
    let Some(object) = shared.bucket.get(&head_key(log), Some(0..LINE_MOST)).await? else {
        return Ok(is_marked.then(|| (About::awaited(), 0)));
    };
    let (mut about, line) = About::read(&object.bytes).ok_or_else(|| damaged(shared, log))?;
    about.partial |= is_marked;
    let length = about.start + object.size.saturating_sub(line as u64);
    Ok(Some((about, length)))
}

pub(super) async fn states(shared: &Shared, logs: &[LogName]) -> io::Result<Vec<Option<LogState>>> {
    let states = logs.iter().map(|log| async move {
        let about = about(shared, log).await?;
        Ok(about.map(|(about, length)| LogState { length, partial: about.partial }))
    });
    // Made here, so that each borrows only what it is about.
    let states: Vec<_> = states.collect();
    stream::iter(states).buffered(AT_ONCE).try_collect().await
}

pub(super) async fn each(
    shared: &Shared,
    job: &str,
    step: &str,
    see: &mut dyn FnMut(&str),
) -> io::Result<()> {
    let mut here = BTreeMap::new();
    let in_memory: Vec<_> = {
        let all = shared.open.all();
        let of_step = all.iter().filter(|(log, _)| &*log.job == job && log.step == step);
        of_step.map(|(log, entry)| (log.name.clone(), entry.clone())).collect()
    };
    for (name, entry) in in_memory {
        let open = entry.lock().await;
        if open.changed || open.marked {
            here.insert(name, false);
        }
    }
    let under = Key::from_iter([job, "logs", step]);
    let kept = shared.bucket.each(Some(&under), |object| {
        let name = object.location.filename().unwrap_or_default();
        let Ok(name) = percent_decode_str(name).decode_utf8() else { return };
        if let Some(seen) = here.get_mut(&*name) {
            *seen = true;
        }
        see(&name);
    });
    kept.await?;
    here.into_iter().filter(|(_, seen)| !seen).for_each(|(name, _)| see(&name));
    Ok(())
}

/// What a reader has of a log: its head as it last was, and the piece that was read last.
#[derive(Debug, Default)]
pub(super) struct Read {
    head: Option<(Arc<Head>, UpdateVersion)>,
    piece: Option<(u64, Bytes)>,
}

/// No more than a piece, or what is behind all of them.
pub(super) async fn read(
    shared: &Shared,
    log: &LogName,
    known: &mut Read,
    offset: u64,
    most: usize,
) -> io::Result<Vec<u8>> {
    let head = match in_memory(shared, log).await {
        InMemory::Head(head) => Arc::new(head),
        in_memory => match kept_head(shared, log, known).await {
            // It is awaited, and nothing of it is here.
            Err(error) if is_awaited(&error, &in_memory) => return Ok(vec![]),
            head => head?,
        },
    };
    if offset >= head.length() {
        return Ok(vec![]);
    }
    if let Some(at) = offset.checked_sub(head.about.start) {
        let tail = &head.tail[at as usize..];
        return Ok(tail[..tail.len().min(most)].to_vec());
    }
    let (number, at) = (offset / PIECE as u64, (offset % PIECE as u64) as usize);
    let bytes = match &known.piece {
        Some((known, bytes)) if *known == number => bytes.clone(),
        _ => {
            let bytes = piece(shared, log, number).await?;
            known.piece.insert((number, bytes)).1.clone()
        }
    };
    Ok(bytes[at..].iter().copied().take(most).collect())
}

fn is_awaited(error: &io::Error, in_memory: &InMemory) -> bool {
    error.kind() == io::ErrorKind::NotFound && matches!(in_memory, InMemory::Marked)
}

async fn kept_head(shared: &Shared, log: &LogName, known: &mut Read) -> io::Result<Arc<Head>> {
    let key = head_key(log);
    let object = match &known.head {
        Some((head, version)) => match shared.bucket.get_if_changed(&key, version).await? {
            None => return Ok(head.clone()),
            Some(object) => object,
        },
        None => shared.bucket.get(&key, None).await?.ok_or(io::ErrorKind::NotFound)?,
    };
    let head = Arc::new(Head::read(&object.bytes).ok_or_else(|| damaged(shared, log))?);
    known.head = Some((head.clone(), object.version));
    Ok(head)
}
