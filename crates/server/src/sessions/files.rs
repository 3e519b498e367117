//! Files that came with a job, for the workers that have an attempt of it.

use std::io::{self, Read};
use std::path::{Component, Path};

use steadfast_api::proto;
use tokio::sync::mpsc;
use tonic::Status;

use super::SessionRegistry;
use super::proof::Holder;
use crate::tokens::Granted;

const FILE_CHUNK: usize = 64 << 10;
/// Chunks that wait for a slow reader.
const AHEAD: usize = 4;

type Chunks = mpsc::Receiver<Result<proto::FileChunk, Status>>;

impl SessionRegistry {
    /// `granted`: by the token of who asks; none on a server without tokens.
    pub(super) async fn file(
        &self,
        request: proto::GetFileRequest,
        granted: Option<&Granted>,
    ) -> Result<Chunks, Status> {
        let proto::GetFileRequest { attempt, path, worker } = request;
        let attempt = attempt.unwrap_or_default();
        if !self.may_fetch(&attempt, &worker, granted) {
            return Err(Status::permission_denied(
                "files of a job are for workers that have an attempt of it: send the attempt as it was \
                 assigned, and the worker's name",
            ));
        }
        let inside = Path::new(&path);
        let stays = inside.components().all(|part| matches!(part, Component::Normal(_)));
        if path.is_empty() || path.contains('\0') || !stays {
            return Err(Status::invalid_argument("not the path of a job's file"));
        }
        let (registry, inside) = (self.clone(), inside.to_owned());
        let opened = tokio::task::spawn_blocking(move || {
            registry.0.parts.blobs.open_file(&attempt.job_id, &inside)
        });
        let (file, executable) = match opened.await {
            Ok(Ok(opened)) => opened,
            Ok(Err(error)) if is_away(&error) => {
                return Err(Status::unavailable(error.to_string()));
            }
            Ok(Err(_)) => return Err(Status::not_found("the job has no such file")),
            Err(error) => return Err(Status::internal(error.to_string())),
        };
        let (chunks, sent) = mpsc::channel(AHEAD);
        tokio::task::spawn_blocking(move || send(file, executable, &chunks));
        Ok(sent)
    }

    /// The attempt was assigned to that worker, which is here and holds it.
    fn may_fetch(
        &self,
        attempt: &proto::AttemptRef,
        worker: &str,
        granted: Option<&Granted>,
    ) -> bool {
        let bound = granted.and_then(|granted| granted.binding.worker.as_deref());
        let key = attempt.id();
        let sessions = self.sessions();
        let Some(session) = sessions.get(worker).filter(|session| session.held.contains(&key))
        else {
            return false;
        };
        let holder = Holder { name: worker, fingerprint: &session.fingerprint };
        bound.is_none_or(|bound| bound == worker) && self.0.parts.proofs.is_attempt(attempt, holder)
    }
}

/// The file may be there: what keeps it does not answer.
fn is_away(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotConnected | io::ErrorKind::TimedOut)
}

fn send(
    mut file: Box<dyn Read + Send>,
    executable: bool,
    chunks: &mpsc::Sender<Result<proto::FileChunk, Status>>,
) {
    // An empty file is one empty chunk.
    let mut sent = 0;
    loop {
        let mut bytes = vec![0; FILE_CHUNK];
        let read = file.read(&mut bytes);
        let count = read.as_ref().map_or(0, |count| *count);
        if count == 0 && sent > 0 && read.is_ok() {
            return;
        }
        bytes.truncate(count);
        sent += 1;
        let chunk = read.map(|_| proto::FileChunk { bytes, executable });
        let chunk = chunk.map_err(|error| Status::internal(error.to_string()));
        if chunks.blocking_send(chunk).is_err() || count == 0 {
            return;
        }
    }
}
