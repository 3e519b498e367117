//! A worker of servers that share jobs: whose an attempt is, its shard's latest term says, whatever else each of them says, and when.

use std::path::{Path, PathBuf};

use super::server::Session;
use super::*;

const SHARD: &str = "here#7";

/// What the server that has the shard in this term says.
fn in_term(term: u64, assignment: &proto::Assignment) -> proto::Assignment {
    proto::Assignment { scope: SHARD.to_owned(), epoch: term, ..assignment.clone() }
}

/// What a server says in its own name.
fn in_epoch(epoch: u64, assignment: proto::Assignment) -> proto::Assignment {
    proto::Assignment { epoch, ..assignment }
}

/// Two servers, a worker of both, and a gate that its attempts wait at.
struct World {
    servers: [Server; 2],
    worker: Worker,
    folder: tempfile::TempDir,
}

fn of_both(servers: &[Server; 2], folder: &Path) -> RemoteConfig {
    let addresses = servers.iter().map(Server::url).collect();
    RemoteConfig { servers: addresses, ..config(&servers[0], &folder.join("worker")) }
}

impl World {
    async fn start() -> (Self, [Session; 2]) {
        let folder = tempfile::tempdir().unwrap();
        let mut servers = [Server::start(), Server::start()];
        let worker = Worker::start(of_both(&servers, folder.path()));
        let [one, two] = &mut servers;
        let sessions = [(one, "here/one"), (two, "here/two")];
        let mut welcomed = Vec::new();
        for (server, scope) in sessions {
            let session = server.knock().await;
            session.welcome_as(scope, 5).await;
            welcomed.push(session);
        }
        let sessions = welcomed.try_into().ok().expect("two");
        (Self { servers, worker, folder }, sessions)
    }

    /// Waits for its gate, and leaves a line.
    fn gated(&self, token: u64) -> proto::Assignment {
        let (ran, gate) = (self.path("ran"), self.path("gate"));
        let wait = format!("while ! [ -e {} ]; do sleep 0.01; done", gate.display());
        shell(token, &format!("echo {token} >> {}; echo begun; {wait}", ran.display()))
    }

    fn path(&self, name: &str) -> PathBuf {
        Path::new(self.folder.path()).join(name)
    }

    fn open_the_gate(&self) {
        std::fs::write(self.path("gate"), "").unwrap();
    }

    #[track_caller]
    fn ran(&self, lines: &str) {
        assert_eq!(std::fs::read_to_string(self.path("ran")).unwrap(), lines);
    }

    /// The session that the worker opens with this server after the last one ended.
    async fn next(&mut self, server: usize, scope: &str, epoch: u64) -> Session {
        let session = self.servers[server].knock().await;
        session.welcome_as(scope, epoch).await;
        session
    }
}

fn token(report: &proto::Report) -> u64 {
    report.attempt.as_ref().unwrap().token
}

/// One that was taken over comes back in an epoch of its own before its successor has spoken to the worker.
#[tokio::test(flavor = "multi_thread")]
async fn what_was_taken_over_is_the_new_servers_although_the_old_one_has_begun_anew() {
    let (mut world, [mut one, two]) = World::start().await;
    let gated = in_term(1, &world.gated(1));
    one.assign(&gated).await;
    one.printed(&gated, "begun").await;
    drop(one);
    let one = world.next(0, "here/one", 9).await;
    assert_eq!(one.hello.holds.len(), 1);
    drop(two);
    let mut two = world.next(1, "here/two", 5).await;
    assert_eq!(two.hello.elsewhere[0].holds.len(), 1);
    two.take_over("here/one", 7, &[]).await;
    two.take_over(SHARD, 2, &[&gated]).await;
    two.assign(&in_epoch(5, shell(4, "exit 0"))).await;
    assert_eq!(token(&two.report().await), 4, "the rest has been heard by then");
    // Said before, and heard after.
    one.take_over(SHARD, 1, &[&gated]).await;
    one.withdraw(&gated).await;
    one.assign(&in_term(1, &shell(2, &format!("echo 2 >> {}", world.path("ran").display())))).await;
    let mut one = one;
    one.assign(&in_epoch(9, shell(3, "exit 0"))).await;
    assert_eq!(token(&one.report().await), 3);
    world.open_the_gate();
    let report = two.report().await;
    assert_eq!(token(&report), 1);
    is_success(&report);
    world.ran("1\n");
}

/// It was decided and not sent by the one before, or sent so late that the new one had asked already.
#[tokio::test(flavor = "multi_thread")]
async fn what_is_in_hand_already_is_the_one_servers_that_assigns_it_last() {
    let (world, [mut one, mut two]) = World::start().await;
    let gated = world.gated(1);
    one.assign(&in_term(1, &gated)).await;
    one.printed(&gated, "begun").await;
    two.assign(&in_term(2, &gated)).await;
    two.assign(&in_epoch(5, shell(2, "exit 0"))).await;
    assert_eq!(token(&two.report().await), 2);
    world.open_the_gate();
    assert_eq!(token(&two.report().await), 1);
    world.ran("1\n");
}

/// A report that the one before has not acknowledged goes to the new one.
#[tokio::test(flavor = "multi_thread")]
async fn a_report_that_waits_goes_to_the_server_that_assigns_it_again() {
    let (_world, [mut one, mut two]) = World::start().await;
    let ended = shell(1, "exit 0");
    one.assign(&in_term(1, &ended)).await;
    assert_eq!(token(&one.report().await), 1);
    two.assign(&in_term(2, &ended)).await;
    let report = two.report().await;
    assert_eq!(token(&report), 1);
    is_success(&report);
}

/// Of a job that was cancelled while it changed hands nobody else would stop it.
#[tokio::test(flavor = "multi_thread")]
async fn a_server_withdraws_what_another_has_assigned_of_its_shard() {
    let (world, [mut one, mut two]) = World::start().await;
    let gated = world.gated(1);
    one.assign(&in_term(1, &gated)).await;
    one.printed(&gated, "begun").await;
    two.withdraw(&in_term(2, &gated)).await;
    two.assign(&in_epoch(5, shell(2, "exit 0"))).await;
    assert_eq!(token(&two.report().await), 2);
    let work = world.path("worker").join("work");
    until("it is stopped", || entries(&work).len() <= 1).await;
    drop(two);
    drop(one);
    let (mut world, mut held) = (world, 0);
    for (server, scope) in [(0, "here/one"), (1, "here/two")] {
        let session = world.next(server, scope, 6).await;
        let all = session
            .hello
            .holds
            .iter()
            .chain(session.hello.elsewhere.iter().flat_map(|it| &it.holds));
        held += all.filter(|it| it.token == 1).count();
    }
    assert_eq!(held, 0);
}

/// Server and worker die together: the next life of the worker has the report, and the server that it was for may never be back.
#[tokio::test(flavor = "multi_thread")]
async fn a_report_of_an_earlier_life_goes_to_the_server_that_has_the_job_now() {
    let (world, [mut one, two]) = World::start().await;
    let ended = in_term(1, &shell(1, "exit 0"));
    one.assign(&ended).await;
    assert_eq!(token(&one.report().await), 1);
    let World { mut servers, worker, folder } = world;
    worker.vanish().await;
    drop((one, two));
    let _worker = Worker::start(of_both(&servers, folder.path()));
    // The first one does not answer.
    let _one = servers[0].knock().await;
    let mut two = servers[1].knock().await;
    let told: Vec<u64> =
        two.hello.elsewhere.iter().flat_map(|it| &it.holds).map(|it| it.token).collect();
    assert_eq!(told, [1]);
    two.welcome_as("here/two", 5).await;
    two.take_over(SHARD, 2, &[&ended]).await;
    let report = two.report().await;
    assert_eq!(token(&report), 1);
    is_success(&report);
}
