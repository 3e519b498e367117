//! `token`: who may ask a server for what.

use serde_json::json;
use steadfast_core::time::human_ms;
use steadfast_server::tokens::{Scope, Tokens, WorkerBinding};
use steadfast_store::storage_at;

use crate::args::{Common, Output, ScopeArg, StoreArgs, TokenCommand};
use crate::data::Data;
use crate::style::{Align, BOLD, DIM, Table, paint};
use crate::{Done, Exit, clock, input};

pub(crate) fn run(command: &TokenCommand) -> Done {
    let (done, output) = match command {
        TokenCommand::Create {
            scope,
            name,
            expires,
            worker,
            datacenter,
            labels,
            place,
            common,
        } => {
            let expires_ms = expires.map(|expires| expires.as_millis() as u64);
            let binding = WorkerBinding {
                worker: worker.clone(),
                datacenter: datacenter.clone(),
                labels: labels.iter().cloned().collect(),
            };
            let tokens = || open(place, common);
            let made = create(*scope, name.as_deref(), expires_ms, binding, tokens, common.output);
            (made, common.output)
        }
        TokenCommand::List { place, common } => {
            (open(place, common).and_then(|tokens| list(&tokens, common.output)), common.output)
        }
        TokenCommand::Revoke { id, place, common } => {
            let revoked = open(place, common).and_then(|tokens| revoke(id, &tokens, common.output));
            (revoked, common.output)
        }
    };
    match done {
        Ok(()) => Ok(Exit::Ok),
        Err(wrong) => input::refuse("not_possible", &wrong, output).map(|()| Exit::Wrong),
    }
}

/// In the data folder, or where a server with a database keeps them.
fn open(place: &StoreArgs, common: &Common) -> Result<Tokens, String> {
    let storage = match place.url() {
        Some(url) => storage_at(url).map_err(|error| error.to_string())?,
        None => {
            let data = Data::at(common.data.as_deref())?;
            data.create()?;
            data.folder.storage()
        }
    };
    Tokens::open(storage.settings()).map_err(|error| error.to_string())
}

fn create(
    scope: ScopeArg,
    name: Option<&str>,
    expires_ms: Option<u64>,
    binding: WorkerBinding,
    tokens: impl FnOnce() -> Result<Tokens, String>,
    output: Output,
) -> Result<(), String> {
    let scope = match scope {
        ScopeArg::Read => Scope::Read,
        ScopeArg::Submit => Scope::Submit,
        ScopeArg::Worker => Scope::Worker,
        ScopeArg::Admin => Scope::Admin,
    };
    let now = clock::now();
    let expires = expires_ms.map(|ms| now.plus(ms));
    let bound = !binding.is_free();
    if bound && scope != Scope::Worker {
        return Err(format!(
            "--worker, --datacenter and --label say what a worker is; a token of scope `{scope}` is for people \
             and programs"
        ));
    }
    let tokens = tokens()?;
    let made = if bound {
        tokens.create_bound(binding, name, expires, now)
    } else {
        tokens.create(scope, name, expires, now)
    };
    let made = made.map_err(|error| error.to_string())?;
    match output {
        Output::Json => input::print_json(&json!({
            "id": made.id, "token": made.text, "scope": scope.name(),
            "expires_at_ms": expires.map(|at| at.0),
        }))
        .map_err(|error| error.to_string()),
        Output::Human => {
            println!("{}", made.text);
            anstream::eprintln!(
                "{}",
                paint(
                    DIM,
                    format!("shown this once; `steadfast token revoke {}` ends it", made.id)
                )
            );
            Ok(())
        }
    }
}

fn list(tokens: &Tokens, output: Output) -> Result<(), String> {
    let tokens = tokens.list().map_err(|error| error.to_string())?;
    let now = clock::now();
    if output == Output::Json {
        let tokens: Vec<_> = tokens
            .iter()
            .map(|token| {
                json!({
                    "id": token.id, "name": token.name, "scope": token.scope.name(),
                    "created_at_ms": token.created_at_ms, "expires_at_ms": token.expires_at_ms,
                    "worker": token.binding.worker, "datacenter": token.binding.datacenter,
                    "labels": token.binding.labels,
                })
            })
            .collect();
        return input::print_json(&json!({ "tokens": tokens })).map_err(|error| error.to_string());
    }
    if tokens.is_empty() {
        println!("no tokens yet; make one with `steadfast token create --scope admin`");
        return Ok(());
    }
    let mut table = Table::new(&[
        ("id", Align::Left),
        ("scope", Align::Left),
        ("name", Align::Left),
        ("for", Align::Left),
        ("ends", Align::Right),
    ]);
    for token in tokens {
        let ends = match token.expires_at_ms {
            None => "never".to_owned(),
            Some(at) if at <= now.0 => "has ended".to_owned(),
            Some(at) => format!("in {}", human_ms(at - now.0)),
        };
        let bound_to = bound_to(&token.binding);
        table.row(vec![
            (token.id, BOLD),
            (token.scope.name().to_owned(), anstyle::Style::new()),
            (token.name.unwrap_or_default(), anstyle::Style::new()),
            (bound_to, anstyle::Style::new()),
            (ends, DIM),
        ]);
    }
    anstream::print!("{}", table.render(""));
    Ok(())
}

/// Which workers it is good for, in the words of `create`.
fn bound_to(binding: &WorkerBinding) -> String {
    let worker = binding.worker.iter().map(|name| format!("worker {name}"));
    let datacenter = binding.datacenter.iter().map(|name| format!("datacenter {name}"));
    let labels = binding.labels.iter().map(|(key, value)| format!("{key}={value}"));
    worker.chain(datacenter).chain(labels).collect::<Vec<_>>().join(", ")
}

fn revoke(id: &str, tokens: &Tokens, output: Output) -> Result<(), String> {
    tokens.revoke(id).map_err(|error| error.to_string())?;
    if output == Output::Human {
        println!("token {id} is good for nothing any more");
    }
    Ok(())
}
