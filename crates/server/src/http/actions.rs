//! The same done to many jobs: those that are named, or those that a filter finds. Each is done or refused by itself, as it would be
//! alone; with `dry_run` nothing is done.

use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::response::Response;
use futures_util::future::join_all;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;
use steadfast_api::ShownState;
use steadfast_core::time::Timestamp;

use super::jobs::{Whole, read_json, read_label, read_reason, read_state};
use super::{App, body};
use crate::caller::Caller;
use crate::commands::{JobAction, RetryRequest};
use crate::error::ApiError;
use crate::queries::JobFilter;

/// Jobs of one request.
const MOST: usize = 500;
/// Of them, on their way to the engine at the same time.
const AT_ONCE: usize = 32;
/// 500 ids and a filter.
const BODY_BYTES: usize = 64 << 10;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ActionsBody {
    action: ActionName,
    #[serde(default)]
    ids: Option<Vec<String>>,
    #[serde(default)]
    filter: Option<FilterBody>,
    #[serde(default)]
    grant: Option<Whole>,
    #[serde(default)]
    reason: Option<String>,
    #[serde(default)]
    dry_run: bool,
    #[serde(default)]
    cursor: Option<String>,
    #[serde(default)]
    idempotency_key: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
enum ActionName {
    Cancel,
    Pause,
    Resume,
    Retry,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct FilterBody {
    #[serde(default, deserialize_with = "present")]
    state: Option<OneOrMany>,
    #[serde(default, deserialize_with = "present")]
    name: Option<String>,
    #[serde(default, deserialize_with = "present")]
    label: Option<String>,
    #[serde(default, deserialize_with = "present")]
    text: Option<String>,
    #[serde(default, deserialize_with = "present")]
    since_ms: Option<WholeMs>,
    #[serde(default, deserialize_with = "present")]
    until_ms: Option<WholeMs>,
    #[serde(default, deserialize_with = "present")]
    reason: Option<String>,
}

/// JSON knows no whole numbers: 2000.0 is 2000.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(try_from = "f64")]
struct WholeMs(u64);

/// Beyond it a JSON number is not exact: another time would be meant than was said.
pub(super) const LAST_EXACT: u64 = (1 << 53) - 1;

impl TryFrom<f64> for WholeMs {
    type Error = String;

    fn try_from(number: f64) -> Result<Self, String> {
        let fits = number.fract() == 0.0 && (0.0..=LAST_EXACT as f64).contains(&number);
        if fits { Ok(Self(number as u64)) } else { Err(format!("{number} is no time in ms")) }
    }
}

#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum OneOrMany {
    One(String),
    Many(Vec<String>),
}

/// A filter that says null may have meant something: it is refused.
fn present<'de, D: Deserializer<'de>, T: Deserialize<'de>>(from: D) -> Result<Option<T>, D::Error> {
    T::deserialize(from).map(Some)
}

impl FilterBody {
    fn read(self) -> Result<JobFilter, ApiError> {
        let states = match self.state {
            None => vec![],
            Some(OneOrMany::One(state)) => vec![state],
            Some(OneOrMany::Many(states)) if states.is_empty() => {
                let why = "`state` lists none; leave it out for jobs in any state";
                return Err(ApiError::BadRequest(why.to_owned()));
            }
            Some(OneOrMany::Many(states)) => states,
        };
        let filter = JobFilter {
            states: states.iter().map(|state| read_state(state)).collect::<Result<_, _>>()?,
            name: self.name,
            label: self.label.as_deref().map(read_label).transpose()?,
            text: self.text,
            since: self.since_ms.map(|WholeMs(at)| Timestamp(at)),
            until: self.until_ms.map(|WholeMs(at)| Timestamp(at)),
            reason: self.reason.as_deref().map(read_reason).transpose()?,
        };
        let JobFilter { states, name, label, text, since, until, reason } = &filter;
        let is_all = states.is_empty() && name.is_none() && label.is_none() && text.is_none();
        if is_all && since.is_none() && until.is_none() && reason.is_none() {
            let why = "an empty `filter` would be every job that there is; give a `state` at least";
            return Err(ApiError::BadRequest(why.to_owned()));
        }
        Ok(filter)
    }
}

#[derive(Debug, Serialize)]
struct ActionsAnswer {
    /// Jobs that this answer is about.
    matched: usize,
    more: bool,
    /// Where to go on, if a filter finds more.
    next: Option<String>,
    results: Vec<ActionResult>,
}

#[derive(Debug, Serialize)]
struct ActionResult {
    id: String,
    /// None: there is no such job.
    name: Option<String>,
    /// Before it.
    state: Option<ShownState>,
    outcome: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    new_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    problem: Option<Value>,
}

/// A job that is to be acted on, as far as it is known.
struct Target {
    id: String,
    known: Option<(String, ShownState)>,
}

pub(super) async fn act(
    State(app): State<App>,
    caller: Caller,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, ApiError> {
    if body::content_type(&headers).as_deref() != Some("application/json") {
        return Err(ApiError::UnsupportedMedia("a body here is application/json".to_owned()));
    }
    let asked: ActionsBody = read_json(&body::read(&headers, body, BODY_BYTES).await?)?;
    let requested = caller.requests(asked.reason.as_deref())?;
    if asked.action != ActionName::Retry
        && (asked.grant.is_some() || asked.idempotency_key.is_some())
    {
        let why =
            "`grant` and `idempotency_key` are of a retry; the others said twice come to the same";
        return Err(ApiError::BadRequest(why.to_owned()));
    }
    let grant = asked.grant.map(|Whole(grant)| grant);
    let action = |id: &str| match asked.action {
        ActionName::Cancel => JobAction::Cancel(requested.clone()),
        ActionName::Pause => JobAction::Pause(requested.clone()),
        ActionName::Resume => JobAction::Resume(requested.clone()),
        ActionName::Retry => {
            let key = asked.idempotency_key.as_ref().map(|key| format!("{key}/{id}"));
            JobAction::Retry(RetryRequest { from: None, grant, requested: requested.clone(), key })
        }
    };
    let (targets, next) = targets(&app, asked.ids, asked.filter, asked.cursor).await?;
    let mut results = Vec::with_capacity(targets.len());
    let mut given_up: Option<ApiError> = None;
    let mut targets = targets.into_iter();
    loop {
        let some: Vec<Target> = targets.by_ref().take(AT_ONCE).collect();
        if some.is_empty() {
            break;
        }
        let done = join_all(some.into_iter().map(|target| {
            let (action, is_given_up) =
                (action(&target.id), given_up.as_ref().map(ToString::to_string));
            let app = &app;
            async move {
                let done = match is_given_up {
                    Some(why) => Err(ApiError::Overloaded(format!("it was not tried: {why}"))),
                    None if asked.dry_run => {
                        app.commands.would(&target.id, &action, (app.clock)()).await.map(|()| None)
                    }
                    None => app.commands.act(&target.id, action).await,
                };
                (target, done)
            }
        }));
        for (Target { id, known }, done) in done.await {
            let (name, state) = known.unzip();
            let result =
                ActionResult { id, name, state, outcome: "ok", new_id: None, problem: None };
            results.push(match done {
                Ok(new) => ActionResult {
                    outcome: if asked.dry_run { "would" } else { "ok" },
                    new_id: new.map(|new| new.id.to_string()),
                    ..result
                },
                Err(why) => {
                    why.log();
                    let problem = Some(why.problem());
                    // A server that can take nothing now is not asked five hundred times.
                    if matches!(
                        why,
                        ApiError::Overloaded(_) | ApiError::NotReady(_) | ApiError::DiskFull
                    ) {
                        given_up.get_or_insert(why);
                    }
                    ActionResult { outcome: "refused", problem, ..result }
                }
            });
        }
    }
    let answer = ActionsAnswer { matched: results.len(), more: next.is_some(), next, results };
    super::json(StatusCode::OK, &answer)
}

async fn targets(
    app: &App,
    ids: Option<Vec<String>>,
    filter: Option<FilterBody>,
    cursor: Option<String>,
) -> Result<(Vec<Target>, Option<String>), ApiError> {
    match (ids, filter) {
        (Some(ids), None) => {
            if ids.len() > MOST {
                let why =
                    format!("at most {MOST} jobs come in one request; send the rest in another");
                return Err(ApiError::BadRequest(why));
            }
            let mut targets = Vec::with_capacity(ids.len());
            for id in ids {
                let row = app.reader.row(&id).await.ok();
                let known = row.map(|row| (row.name, ShownState::Of(row.state)));
                targets.push(Target { id, known });
            }
            Ok((targets, None))
        }
        (None, Some(filter)) => {
            let page = app.reader.list(filter.read()?, cursor, MOST).await?;
            let targets = page.jobs.into_iter();
            let targets =
                targets.map(|row| Target { id: row.id, known: Some((row.name, row.state)) });
            Ok((targets.collect(), page.next))
        }
        _ => Err(ApiError::BadRequest("give `ids` or `filter`, and not both".to_owned())),
    }
}
