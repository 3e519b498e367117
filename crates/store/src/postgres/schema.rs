//! The schema: whose it is, of which version, and whether its database can be trusted with it.

use tokio_postgres::error::SqlState;

use super::connection::Connection;
use super::fault::Fault;

/// Of the tables and functions. A schema of another version is left alone: those before were never released.
pub(super) const VERSION: i64 = 2;

/// From which on a server takes arrays of rows of our types as they are sent, and as its `server_version_num` has it: see `rows.rs`.
const OLDEST_SERVER: i32 = 140_000;

/// Where nobody says how many. Fixed when the schema is made: a job's shard follows from its id and their number.
const SHARDS: u16 = 64;

const TABLES: &str = include_str!("schema.sql");
const COMMIT: &str = include_str!("commit.sql");
const FUNCTIONS: &str = include_str!("functions.sql");
const MEMBERS: &str = include_str!("members.sql");
const READINESS: &str = include_str!("readiness.sql");
const PURGE: &str = include_str!("purge.sql");
const WEEKS: &str = include_str!("weeks.sql");

/// What there was of the schema before it was prepared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Found {
    Nothing,
    /// Of this version.
    Whole,
}

/// Makes the schema if there is none, with so many shards. How many it has.
pub(super) fn prepare(
    connection: &mut Connection,
    wanted: Option<u16>,
) -> Result<(Found, u16), Fault> {
    check_settings(connection)?;
    if let Some(shards) = shards(connection)? {
        return agree(shards, wanted).map(|shards| (Found::Whole, shards));
    }
    let made = wanted.unwrap_or(SHARDS);
    // Under a lock, so that a server that was as fast waits, and finds it made.
    let making = connection.batch(&format!(
        "SELECT pg_advisory_xact_lock(1400136806, 1);\n{TABLES}\n{COMMIT}\n{FUNCTIONS}\n{MEMBERS}\n{READINESS}\n\
         {PURGE}\n{WEEKS}\n\
         INSERT INTO steadfast.meta (version, shards) VALUES ({VERSION}, {made});\n\
         INSERT INTO steadfast.shards (shard) SELECT generate_series(0, {made} - 1);"
    ));
    let found = match making {
        Err(Fault::Database(error)) if *error.code() == SqlState::DUPLICATE_SCHEMA => Found::Whole,
        Err(Fault::Database(error)) if *error.code() == SqlState::INSUFFICIENT_PRIVILEGE => {
            return Err(Fault::Unsuitable(format!(
                "there is no schema yet, and the user of the URL may not make it ({}). Run `steadfast migrate --store URL \
                 --grant USER` with the URL of one who may, and this USER",
                error.message()
            )));
        }
        making => {
            making?;
            Found::Nothing
        }
    };
    let shards = shards(connection)?;
    let shards = shards.ok_or_else(|| Fault::Foreign("its schema is gone again".to_owned()))?;
    Ok((found, agree(shards, wanted)?))
}

fn agree(shards: u16, wanted: Option<u16>) -> Result<u16, Fault> {
    match wanted {
        Some(wanted) if wanted != shards => Err(Fault::Unsuitable(format!(
            "its schema was made with {shards} shards, and {wanted} are asked for (--shards, store.shards). Their number is fixed: \
             ask for {shards}, or do not say"
        ))),
        _ => Ok(shards),
    }
}

/// All that a server needs of the schema, for a user who may not change it.
pub(super) fn grant(connection: &mut Connection, user: &str) -> Result<(), Fault> {
    let user = format!("\"{}\"", user.replace('"', "\"\""));
    connection.batch(&format!(
        "GRANT USAGE ON SCHEMA steadfast TO {user};\n\
         GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA steadfast TO {user};\n\
         GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA steadfast TO {user};"
    ))
}

/// Of our schema; none: there is none yet.
pub(super) fn shards(connection: &mut Connection) -> Result<Option<u16>, Fault> {
    let found = connection.read(
        "SELECT to_regnamespace('steadfast') IS NOT NULL, to_regclass('steadfast.meta') IS NOT NULL",
        &[],
    )?;
    match (found[0].get(0), found[0].get(1)) {
        (false, _) => return Ok(None),
        (true, false) => {
            let why = "it has a schema named steadfast without a table named meta".to_owned();
            return Err(Fault::Foreign(why));
        }
        (true, true) => {}
    }
    let meta = connection.read("SELECT version, shards FROM steadfast.meta", &[])?;
    let Some(meta) = meta.first() else {
        return Err(Fault::Foreign("its table steadfast.meta is empty".to_owned()));
    };
    match i64::from(meta.get::<_, i32>(0)) {
        VERSION => Ok(Some(meta.get::<_, i16>(1) as u16)),
        other => Err(Fault::Version(other)),
    }
}

/// That groups can be sent as they are, and that what was acknowledged is kept: a commit that is not synced may be lost.
pub(super) fn check_settings(connection: &mut Connection) -> Result<(), Fault> {
    let settings = connection.read(
        "SELECT current_setting('fsync'), current_setting('synchronous_commit'), \
         current_setting('full_page_writes'), current_setting('server_encoding'), \
         current_setting('server_version'), current_setting('server_version_num')::integer",
        &[],
    )?;
    let value = |column| settings[0].get::<_, String>(column);
    if settings[0].get::<_, i32>(5) < OLDEST_SERVER {
        return Err(Fault::Unsuitable(format!(
            "it is PostgreSQL {}. Version 14 or newer is needed",
            value(4)
        )));
    }
    for (column, name) in [(0, "fsync"), (1, "synchronous_commit"), (2, "full_page_writes")] {
        if value(column) == "off" {
            return Err(Fault::Unsuitable(format!(
                "{name} is off there, so that jobs that were acknowledged would be lost in a crash. Set {name} = on"
            )));
        }
    }
    match &*value(3) {
        "UTF8" => Ok(()),
        other => Err(Fault::Unsuitable(format!(
            "its encoding is {other}. Make a database with ENCODING 'UTF8'"
        ))),
    }
}
