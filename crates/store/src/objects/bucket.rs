//! What is asked of an object store, and what its errors come to: those who use files and logs know the errors of a disk.

use std::fmt;
use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::{StreamExt as _, TryStreamExt as _};
use object_store::path::Path;
use object_store::{
    Error, GetOptions, ObjectMeta, ObjectStore, ObjectStoreExt as _, PutMode, PutOptions,
    UpdateVersion,
};
use tokio::time::timeout;

use super::place::Place;

/// What is asked for a log has its answer by then; its worker waits 30 s.
const ANSWER: Duration = Duration::from_secs(20);
/// What has more bytes than this has longer: the files of a job, all at once.
const LARGE_BYTES: u64 = 2 << 20;
const LARGE_ANSWER: Duration = Duration::from_mins(2);

fn answer(bytes: u64) -> Duration {
    if bytes > LARGE_BYTES { LARGE_ANSWER } else { ANSWER }
}

/// Requests of one caller under way at once.
pub(super) const AT_ONCE: usize = 16;

pub(super) struct Bucket {
    store: Arc<dyn ObjectStore>,
    /// For messages.
    name: String,
}

impl fmt::Debug for Bucket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Bucket").field(&self.name).finish()
    }
}

/// What was there before, of an object that is written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Before {
    Nothing,
    This(UpdateVersion),
}

/// An object, or its beginning.
#[derive(Clone, Debug)]
pub(super) struct Object {
    pub(super) bytes: Bytes,
    /// Of all of it.
    pub(super) size: u64,
    pub(super) version: UpdateVersion,
}

impl Bucket {
    pub(super) fn new(place: Place) -> Self {
        Self { store: place.store, name: place.name }
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// None: there is no such object. Without a range, of those that are not large.
    pub(super) async fn get(
        &self,
        path: &Path,
        range: Option<Range<u64>>,
    ) -> io::Result<Option<Object>> {
        let most = answer(range.as_ref().map_or(0, |range| range.end - range.start));
        let reading = async {
            let got = self.store.get_opts(path, GetOptions::new().with_range(range)).await?;
            let ObjectMeta { size, e_tag, version, .. } = got.meta.clone();
            let version = UpdateVersion { e_tag, version };
            Ok(Object { bytes: got.bytes().await?, size, version })
        };
        match self.within(most, reading).await {
            Ok(object) => Ok(Some(object)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// None: it is as it was when it was read with this version.
    pub(super) async fn get_if_changed(
        &self,
        path: &Path,
        version: &UpdateVersion,
    ) -> io::Result<Option<Object>> {
        let reading = async {
            let options = GetOptions::new().with_if_none_match(version.e_tag.clone());
            let got = match self.store.get_opts(path, options).await {
                Err(Error::NotModified { .. }) => return Ok(None),
                got => got?,
            };
            let ObjectMeta { size, e_tag, version, .. } = got.meta.clone();
            let version = UpdateVersion { e_tag, version };
            Ok(Some(Object { bytes: got.bytes().await?, size, version }))
        };
        self.within(ANSWER, reading).await
    }

    pub(super) async fn put(&self, path: &Path, bytes: Bytes) -> io::Result<()> {
        let writing = async { self.store.put(path, bytes.into()).await };
        self.within(ANSWER, writing).await.map(drop)
    }

    /// Only if nobody has changed it since: else `AlreadyExists`. A store that cannot compare is looked at first; then the last
    /// one who writes has it.
    pub(super) async fn put_after(
        &self,
        path: &Path,
        bytes: Bytes,
        before: Before,
    ) -> io::Result<UpdateVersion> {
        let most = answer(bytes.len() as u64);
        let mode = match &before {
            Before::Nothing => PutMode::Create,
            Before::This(version) => PutMode::Update(version.clone()),
        };
        let writing = async {
            let put = |mode: PutMode| {
                self.store.put_opts(path, bytes.clone().into(), PutOptions::from(mode))
            };
            match put(mode).await {
                Err(Error::NotImplemented { .. } | Error::NotSupported { .. }) => {}
                put => return put,
            }
            if before == Before::Nothing {
                match self.store.head(path).await {
                    Err(Error::NotFound { .. }) => {}
                    found => {
                        let (path, source) = (found?.location.to_string(), "it is there".into());
                        return Err(Error::AlreadyExists { path, source });
                    }
                }
            }
            put(PutMode::Overwrite).await
        };
        self.within(most, writing).await.map(UpdateVersion::from)
    }

    /// Tells of each object under a path, page by page.
    pub(super) async fn each(
        &self,
        under: Option<&Path>,
        mut see: impl FnMut(ObjectMeta),
    ) -> io::Result<()> {
        let mut listed = self.store.list(under);
        while let Some(object) =
            self.within(ANSWER, async { listed.next().await.transpose() }).await?
        {
            see(object);
        }
        Ok(())
    }

    /// One that is not there is gone already.
    pub(super) async fn remove(&self, path: &Path) -> io::Result<()> {
        match self.within(ANSWER, self.store.delete(path)).await {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }

    pub(super) async fn remove_all(&self, under: &Path) -> io::Result<()> {
        let listed = self.store.list(Some(under)).map_ok(|object| object.location);
        let mut removed = self.store.delete_stream(listed.boxed());
        loop {
            // One that is gone already was removed by somebody else.
            let next = async {
                match removed.next().await {
                    Some(Err(Error::NotFound { .. })) => Ok(true),
                    next => next.transpose().map(|next| next.is_some()),
                }
            };
            if !self.within(LARGE_ANSWER, next).await? {
                return Ok(());
            }
        }
    }

    async fn within<T>(
        &self,
        most: Duration,
        doing: impl Future<Output = Result<T, Error>>,
    ) -> io::Result<T> {
        match timeout(most, doing).await {
            Ok(done) => done.map_err(|error| self.io_error(&error)),
            Err(_) => {
                let why = format!("{}: no answer within {} s", self.name, most.as_secs());
                Err(io::Error::new(io::ErrorKind::TimedOut, why))
            }
        }
    }

    fn io_error(&self, error: &Error) -> io::Error {
        let kind = match error {
            Error::NotFound { .. } => io::ErrorKind::NotFound,
            Error::AlreadyExists { .. } | Error::Precondition { .. } => {
                io::ErrorKind::AlreadyExists
            }
            error => of_disk(error).unwrap_or(io::ErrorKind::NotConnected),
        };
        io::Error::new(kind, format!("{}: {}", self.name, said(&error.to_string())))
    }
}

/// Of a folder: that its disk is full, or may not be written to.
fn of_disk(error: &Error) -> Option<io::ErrorKind> {
    use io::ErrorKind::{PermissionDenied, QuotaExceeded, ReadOnlyFilesystem, StorageFull};
    let mut source = std::error::Error::source(error);
    while let Some(cause) = source {
        if let Some(error) = cause.downcast_ref::<io::Error>() {
            let of_disk = [PermissionDenied, QuotaExceeded, ReadOnlyFilesystem, StorageFull];
            return Some(error.kind()).filter(|kind| of_disk.contains(kind));
        }
        source = cause.source();
    }
    None
}

/// Of a service's answer in XML its code and its words: the rest repeats the request, with the id of the key that signed it.
fn said(text: &str) -> String {
    let Some((before, answer)) = text.split_once("<?xml").or_else(|| text.split_once("<Error>"))
    else {
        return text.to_owned();
    };
    let part = |name: &str| {
        let (_, from) = answer.split_once(&format!("<{name}>"))?;
        Some(from.split_once(&format!("</{name}>"))?.0)
    };
    let parts = [part("Code"), part("Message")].into_iter().flatten().collect::<Vec<_>>();
    format!("{}{}", before, parts.join(": "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_service_says_is_told_without_the_key() {
        let text = "Server returned 403: <?xml version=\"1.0\"?><Error><Code>InvalidAccessKeyId</Code>\
                    <Message>It does not exist</Message><AWSAccessKeyId>AKIA1</AWSAccessKeyId></Error>";
        assert_eq!(said(text), "Server returned 403: InvalidAccessKeyId: It does not exist");
        assert_eq!(said("no route"), "no route");
    }
}
