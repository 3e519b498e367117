//! Work for an attempt, as the wire has it.

use std::collections::HashMap;

use steadfast_api::proto;
use steadfast_core::plan::Action;
use steadfast_engine::{Assignment, Work};

use proto::assignment::Action as Wire;

pub(super) fn assignment(work: Work) -> proto::Assignment {
    let Assignment { job, item, attempt, token, .. } = &work.assignment;
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
        attempt: Some(proto::AttemptRef::new(job, *item, *attempt, *token)),
        step_name: work.step,
        datacenter: work.datacenter.unwrap_or_default(),
        item_json: work.item.map(|item| item.to_string()).unwrap_or_default(),
        action: Some(action),
        env: work.env.into_iter().collect::<HashMap<_, _>>(),
        files: work.files,
        secrets: work.secrets,
        ports: work.ports,
        timeout_ms: work.timeout_ms.unwrap_or(0),
        heartbeat_ms: 0,
    }
}
