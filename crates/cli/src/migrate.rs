//! `migrate`: moves all that a data folder or a database has; and the schema of a database, made by an operator whose servers may not.

mod jobs;

use serde_json::json;
use steadfast_store::{PostgresStorage, Storage as _, is_postgres};

use crate::args::{MigrateArgs, Output};
use crate::{Done, Exit, input};

pub(crate) fn run(args: &MigrateArgs) -> Done {
    let output = args.common.output;
    if let (Some(from), Some(to)) = (&args.from, &args.to) {
        return jobs::run(from, to, args);
    }
    let Some(store) = &args.store else {
        let wrong = "give --from and --to, or --store";
        return input::refuse("usage", wrong, output).map(|()| Exit::Wrong);
    };
    if !is_postgres(store) {
        let wrong = "--store takes the URL of a PostgreSQL database, postgres://USER@HOST/NAME; a data folder needs no schema";
        return input::refuse("usage", wrong, output).map(|()| Exit::Wrong);
    }
    let migrated = PostgresStorage::with_shards(store, args.shards).and_then(|storage| {
        let (made, shards) = storage.migrate(args.grant.as_deref())?;
        Ok((made, shards, storage.place()))
    });
    let (made, shards, place) = match migrated {
        Ok(migrated) => migrated,
        Err(error) => {
            let wrong = error.to_string();
            return input::refuse("not_possible", &wrong, output).map(|()| Exit::Wrong);
        }
    };
    match output {
        Output::Json => input::print_json(&json!({
            "store": place, "made": made, "shards": shards, "granted_to": args.grant,
        }))?,
        Output::Human => {
            let what =
                if made { "the schema is made" } else { "the schema was there, of this version" };
            println!("{place}: {what}, with {shards} shards");
            if let Some(user) = &args.grant {
                println!("{user} may work with it");
            }
        }
    }
    Ok(Exit::Ok)
}
