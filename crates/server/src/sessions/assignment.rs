//! Work for an attempt, as the wire has it, but for the proof of whose it is.

use std::path::{Component, Path, PathBuf};

use steadfast_api::proto;
use steadfast_core::plan::{Action, HttpMode};
use steadfast_engine::{Assignment, Work};
use steadfast_store::Blobs;

use crate::callbacks::CallbackUrls;
use proto::assignment::Action as Wire;

pub(super) fn assignment(
    work: Work,
    blobs: &dyn Blobs,
    callbacks: &CallbackUrls,
) -> proto::Assignment {
    let Assignment { job, item, attempt, token, .. } = &work.assignment;
    let callback_url = match &work.action {
        Ok(Action::Http(http)) if http.mode == HttpMode::Async => callbacks.of(&work.assignment),
        _ => String::new(),
    };
    let mut files = Vec::new();
    for named in &work.files {
        // As they were stored: `./a` is `a`, and `b/` is `b`.
        let named = Path::new(named).components().filter(|part| *part != Component::CurDir);
        let named = named.collect::<PathBuf>().to_string_lossy().into_owned();
        // What cannot be read is for the worker to ask for, and to be told that it is not there.
        match blobs.file_names(job, &named) {
            Ok(names) => files.extend(names),
            Err(_) => files.push(named),
        }
    }
    let action = match work.action {
        Ok(Action::Run(script)) => Wire::Run(script),
        Ok(Action::Argv(argv)) => Wire::Argv(proto::Argv { argv }),
        Ok(Action::Call { name, input }) => {
            Wire::Call(proto::Call { name, input_json: input.to_string() })
        }
        Ok(Action::Http(http)) => match serde_json::to_string(&http) {
            Ok(json) => Wire::HttpJson(json),
            Err(error) => Wire::Impossible(error.to_string()),
        },
        Err(why) => Wire::Impossible(why),
    };
    proto::Assignment {
        attempt: Some(proto::AttemptRef {
            step_name: work.step,
            ..proto::AttemptRef::new(job, *item, *attempt, *token)
        }),
        folder: work.folder,
        datacenter: work.datacenter.unwrap_or_default(),
        item_json: work.item.map(|item| item.to_string()).unwrap_or_default(),
        action: Some(action),
        env: work.env,
        files,
        secrets: work.secrets,
        ports: work.ports,
        timeout_ms: work.timeout_ms.unwrap_or(0),
        heartbeat_ms: work.heartbeat_ms.unwrap_or(0),
        callback_url,
        // The session's to say.
        scope: String::new(),
        epoch: 0,
        cpu_milli: work.resources.cpu_milli(),
        memory_bytes: work.resources.memory_bytes.unwrap_or(0),
        progress_json: work.progress.map(|progress| progress.to_string()).unwrap_or_default(),
    }
}
