//! Connections to one database, and how plain threads wait for their answers.
//!
//! A thread of their own drives all of them ([`Waiting`]). Every statement is unnamed and typed, one round trip, so that
//! a `PgBouncer` in transaction mode may stand between.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::task::AbortHandle;
use tokio::time::timeout;
use tokio_postgres::config::{Host, SslMode};
use tokio_postgres::error::SqlState;
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{Client, Config, Row};

use super::fault::Fault;
use super::schema;
use super::tls::{self, MakeTls, TlsOptions};
use crate::StoreError;
use crate::waiting::Waiting;

/// Before a database that cannot be connected to counts as unavailable.
const CONNECT: Duration = Duration::from_secs(5);
/// Before a connection without an answer counts as lost. A commit waits that long for another one's lock, too.
const ANSWER: Duration = Duration::from_secs(30);
/// Before sent bytes that the other machine does not acknowledge end the connection.
const ACKNOWLEDGED: Duration = Duration::from_secs(15);

pub(super) type Param<'a> = (&'a (dyn ToSql + Sync), Type);

/// One database, which several connections are made to.
pub(crate) struct Database {
    config: Config,
    options: TlsOptions,
    tls: MakeTls,
    /// Its URL without the password, for messages.
    place: String,
    waiting: Waiting,
    /// As many shards as there are to be, if anybody says.
    wanted: Option<u16>,
    /// How many there are; none: the schema was not looked at yet.
    shards: Mutex<Option<u16>>,
}

impl fmt::Debug for Database {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Database").field("place", &self.place).finish_non_exhaustive()
    }
}

impl Database {
    pub(crate) fn new(url: &str) -> Result<Arc<Self>, StoreError> {
        Self::with_shards(url, None)
    }

    pub(crate) fn with_shards(url: &str, wanted: Option<u16>) -> Result<Arc<Self>, StoreError> {
        let unusable = |why: String| {
            let store = "the URL of the store".to_owned();
            StoreError::Unsuitable { store, why: format!("{why}. Write postgres://USER@HOST/NAME") }
        };
        // No error repeats the URL, which may have a password in it.
        let (url, options) = tls::split(url).map_err(unusable)?;
        let mut config: Config = url
            .parse()
            .map_err(|error: tokio_postgres::Error| unusable(super::fault::chain(&error)))?;
        if config.get_connect_timeout().is_none() {
            config.connect_timeout(CONNECT);
        }
        if config.get_application_name().is_none() {
            config.application_name("steadfast");
        }
        config.tcp_user_timeout(ACKNOWLEDGED).keepalives_idle(ACKNOWLEDGED);
        // Who has a socket of this machine is on this machine.
        let is_local = config.get_hosts().iter().all(|host| matches!(host, Host::Unix(_)));
        let mode = if is_local { SslMode::Disable } else { options.ssl_mode() };
        config.ssl_mode(mode);
        let tls = options.connector().map_err(unusable)?;
        let waiting = Waiting::new(1, "postgres").map_err(|error| unusable(error.to_string()))?;
        let place = place(&config);
        let shards = Mutex::new(None);
        Ok(Arc::new(Self { config, options, tls, place, waiting, wanted, shards }))
    }

    pub(super) fn wanted(&self) -> Option<u16> {
        self.wanted
    }

    pub(crate) fn place(&self) -> &str {
        &self.place
    }

    /// Makes the schema if there is none. How many shards it has.
    pub(super) fn shards(self: &Arc<Self>) -> Result<u16, Fault> {
        let mut shards = self.shards.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(shards) = *shards {
            return Ok(shards);
        }
        let (_, found) = schema::prepare(&mut Connection::unprepared(self), self.wanted)?;
        Ok(*shards.insert(found))
    }

    /// Blocks this thread, and no other task of a runtime that it may belong to.
    pub(super) fn wait<F: Future>(&self, future: F) -> F::Output {
        self.waiting.wait(future)
    }

    pub(super) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) -> AbortHandle {
        self.waiting.spawn(task)
    }

    /// For a task on the database's own thread, which keeps its session.
    pub(super) async fn look(
        &self,
        session: &mut Option<Session>,
        sql: &str,
    ) -> Result<Vec<Row>, Fault> {
        if session.as_ref().is_none_or(|session| session.client.is_closed()) {
            *session = Some(self.connect().await?);
        }
        let session = session.as_ref().expect("made above");
        match timeout(ANSWER, session.client.query_typed(sql, &[])).await {
            Ok(answer) => Ok(answer?),
            Err(_) => {
                session.driving.abort();
                Err(Fault::Lost("no answer".to_owned()))
            }
        }
    }

    async fn connect(&self) -> Result<Session, Fault> {
        let connecting = async {
            match self.config.connect(self.tls.clone()).await {
                // As with `libpq`: one that cannot agree on TLS is spoken to without.
                Err(error) if self.options.may_do_without() && is_of_tls(&error) => {
                    let mut plain = self.config.clone();
                    plain.ssl_mode(SslMode::Disable).connect(self.tls.clone()).await
                }
                connected => connected,
            }
        };
        let (client, connection) = match timeout(CONNECT * 2, connecting).await {
            Ok(Ok(connected)) => connected,
            Ok(Err(error)) => return Err(Fault::NoConnection(super::fault::chain(&error))),
            Err(_) => return Err(Fault::NoConnection("no answer".to_owned())),
        };
        let driving = self.spawn(async move {
            // What ends it is told to those who wait for answers.
            let _ = connection.await;
        });
        Ok(Session { client, driving })
    }
}

/// The kind of an error is told by its first words alone.
fn is_of_tls(error: &tokio_postgres::Error) -> bool {
    error.to_string().starts_with("error performing TLS handshake")
}

fn place(config: &Config) -> String {
    let hosts = config.get_hosts().iter().map(|host| match host {
        Host::Tcp(name) => name.clone(),
        Host::Unix(path) => path.display().to_string(),
    });
    let ports = config.get_ports();
    let port = |at: usize| ports.get(at).or(ports.first()).copied().unwrap_or(5432);
    let hosts: Vec<_> =
        hosts.enumerate().map(|(at, host)| format!("{host}:{}", port(at))).collect();
    let user = config.get_user().map(|user| format!("{user}@")).unwrap_or_default();
    let name = config.get_dbname().or(config.get_user()).unwrap_or_default();
    format!("postgres://{user}{}/{name}", hosts.join(","))
}

pub(super) struct Session {
    client: Client,
    driving: AbortHandle,
}

/// One connection, made when it is needed and again when it was lost.
pub(super) struct Connection {
    database: Arc<Database>,
    session: Option<Session>,
    /// It is in a transaction that only this session knows of.
    pinned: bool,
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connection").field("database", &self.database).finish_non_exhaustive()
    }
}

impl Connection {
    /// To a database whose schema is there.
    pub(super) fn new(database: &Arc<Database>) -> Result<Self, Fault> {
        database.shards()?;
        Ok(Self::unprepared(database))
    }

    /// The same, and the first who asks does not wait for it.
    pub(super) fn connected(database: &Arc<Database>) -> Result<Self, Fault> {
        let mut connection = Self::new(database)?;
        connection.client()?;
        Ok(connection)
    }

    pub(super) fn unprepared(database: &Arc<Database>) -> Self {
        Self { database: database.clone(), session: None, pinned: false }
    }

    pub(super) fn database(&self) -> &Arc<Database> {
        &self.database
    }

    pub(super) fn is_open(&self) -> bool {
        self.session.as_ref().is_some_and(|session| !session.client.is_closed())
    }

    fn client(&mut self) -> Result<&Client, Fault> {
        if !self.is_open() {
            if self.pinned {
                let why = "the connection that had this moment is lost".to_owned();
                return Err(Fault::NoConnection(why));
            }
            let database = self.database.clone();
            self.session = Some(database.wait(database.connect())?);
        }
        Ok(&self.session.as_ref().expect("made above").client)
    }

    /// Once: what it changed is not known after [`Fault::Lost`]. The answer is complete with the end of the transaction, which
    /// the rows may come before.
    pub(super) fn query(&mut self, sql: &str, params: &[Param<'_>]) -> Result<Vec<Row>, Fault> {
        self.client()?;
        self.ask(async |client| client.query_typed(sql, params).await)
    }

    /// What changes nothing, or the same if it is done twice: a connection that was lost while nobody used it is made again.
    pub(super) fn read(&mut self, sql: &str, params: &[Param<'_>]) -> Result<Vec<Row>, Fault> {
        match self.query(sql, params) {
            Err(Fault::Lost(_)) if !self.pinned => self.query(sql, params),
            answer => answer,
        }
    }

    /// Several statements in one transaction, if they have none of their own.
    pub(super) fn batch(&mut self, sql: &str) -> Result<(), Fault> {
        self.client()?;
        self.ask(async |client| client.batch_execute(sql).await)
    }

    /// What is read from here on is as of this moment.
    pub(super) fn pin(&mut self) -> Result<(), Fault> {
        self.batch(
            "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY; SELECT 1 FROM steadfast.meta",
        )?;
        self.pinned = true;
        Ok(())
    }

    fn ask<T>(
        &mut self,
        request: impl AsyncFnOnce(&Client) -> Result<T, tokio_postgres::Error>,
    ) -> Result<T, Fault> {
        let session = self.session.as_ref().expect("it was connected");
        let answer = self
            .database
            .wait(async { timeout(ANSWER, request(&session.client)).await })
            .map_err(|_| Fault::Lost(format!("no answer within {} s", ANSWER.as_secs())));
        let answer = answer.and_then(|answer| answer.map_err(Fault::from));
        if answer.as_ref().is_err_and(ends_the_connection) {
            self.forget();
        }
        answer
    }

    /// Closes it at once, whatever it waits for.
    pub(super) fn forget(&mut self) {
        if let Some(session) = self.session.take() {
            session.driving.abort();
        }
    }
}

/// After a failover the same address may lead elsewhere, and a server that takes no writes is the wrong one.
fn ends_the_connection(fault: &Fault) -> bool {
    match fault {
        Fault::Lost(_) => true,
        Fault::Database(error) => *error.code() == SqlState::READ_ONLY_SQL_TRANSACTION,
        _ => false,
    }
}
