use proptest::prelude::*;

use super::*;

const NOW: Duration = Duration::from_secs(1);
const NOTHING: Resources = Resources { cpu_milli: 0, memory_bytes: 0 };
const UNCOUNTED: Capacity = Capacity { cpu_milli: None, memory_bytes: None };

/// Both have come in, with nothing to do.
fn two(slots: u32) -> Credits {
    let mut credits = Credits::new(slots);
    credits.add();
    for source in 0..2 {
        credits.greet(source);
        credits.welcomed(source);
    }
    credits
}

fn granted(credits: &Credits) -> Vec<u32> {
    credits.accounts.iter().map(|account| account.granted).collect()
}

fn begin(credits: &mut Credits, source: Source, attempts: u32) {
    for _ in 0..attempts {
        assert!(credits.may_begin(source));
        credits.began(source, NOTHING);
    }
}

/// With nothing that waits for a slot.
fn next(credits: &mut Credits, source: Source) -> Option<Grant> {
    credits.next(source, |_| 0, NOW)
}

/// Says everything that is to be said, and has it taken at once.
fn settle(credits: &mut Credits, now: Duration) {
    for _ in 0..100 {
        let sources = 0..credits.accounts.len();
        let said = |source| credits.next(source, |_| 0, now).map(|grant| (source, grant.number));
        let all: Vec<_> = sources.filter_map(said).collect();
        if all.is_empty() {
            return;
        }
        for (source, number) in all {
            credits.taken(source, number);
        }
    }
    panic!("they never agree: {credits:?}");
}

#[test]
fn one_server_has_all_slots_and_hears_nothing_of_credits() {
    let mut credits = Credits::new(3);
    assert_eq!(credits.greet(0), None);
    credits.welcomed(0);
    credits.wanted(0, NOW);
    assert_eq!(next(&mut credits, 0), None);
    begin(&mut credits, 0, 3);
    assert!(!credits.may_begin(0));
}

#[test]
fn they_begin_with_an_even_split() {
    for (slots, first, second) in [(8, 4, 4), (3, 1, 1), (2, 1, 1), (1, 1, 0)] {
        let mut credits = Credits::new(slots);
        credits.add();
        assert_eq!((credits.greet(0), credits.greet(1)), (Some(first), Some(second)), "{slots}");
    }
}

#[test]
fn idle_credits_are_taken_back_first_and_granted_then() {
    let mut credits = two(8);
    begin(&mut credits, 1, 4);
    credits.wanted(1, NOW);
    assert_eq!(next(&mut credits, 1), None, "there is nothing to grant yet");
    let less = next(&mut credits, 0).unwrap();
    assert_eq!(
        less,
        Grant { slots: 1, left: UNCOUNTED, number: 1 },
        "it can begin with one at once"
    );
    assert_eq!(next(&mut credits, 1), None, "the first has not taken it");
    credits.taken(0, less.number);
    assert_eq!(next(&mut credits, 1), Some(Grant { slots: 7, left: UNCOUNTED, number: 1 }));
}

#[test]
fn what_runs_is_waited_for() {
    let mut credits = two(2);
    begin(&mut credits, 0, 1);
    credits.session_ended(1);
    credits.wanted(0, NOW);
    settle(&mut credits, NOW);
    begin(&mut credits, 0, 1);
    assert_eq!(credits.greet(1), Some(0), "the other has them all");
    credits.welcomed(1);
    credits.wanted(1, NOW);
    credits.wanted(0, NOW);
    settle(&mut credits, NOW);
    assert_eq!(granted(&credits), [1, 0]);
    credits.ended(0, NOTHING);
    settle(&mut credits, NOW);
    assert_eq!(granted(&credits), [1, 1]);
}

#[test]
fn with_one_slot_they_take_turns() {
    let mut credits = two(1);
    for (has, other) in [(0, 1), (1, 0), (0, 1), (1, 0)] {
        begin(&mut credits, has, 1);
        (0..2).for_each(|source| credits.wanted(source, NOW));
        let less = next(&mut credits, has).unwrap();
        credits.taken(has, less.number);
        assert_eq!((less.slots, next(&mut credits, other)), (0, None), "it is not over");
        credits.ended(has, NOTHING);
        let more = next(&mut credits, other).unwrap();
        assert_eq!(more.slots, 1);
        credits.taken(other, more.number);
    }
}

#[test]
fn who_has_stopped_asking_has_enough() {
    let mut credits = two(8);
    begin(&mut credits, 0, 4);
    credits.wanted(0, NOW);
    (0..4).for_each(|_| credits.ended(0, NOTHING));
    let later = NOW + WANTS_FOR;
    begin(&mut credits, 1, 4);
    credits.wanted(1, later);
    settle(&mut credits, later);
    assert_eq!(granted(&credits), [1, 7]);
}

#[test]
fn who_drains_has_no_more_than_it_runs() {
    let mut credits = two(4);
    begin(&mut credits, 0, 1);
    credits.drains(0, true);
    credits.wanted(1, NOW);
    settle(&mut credits, NOW);
    assert_eq!(granted(&credits), [1, 3]);
    credits.ended(0, NOTHING);
    credits.wanted(1, NOW);
    settle(&mut credits, NOW);
    assert_eq!(granted(&credits), [0, 4]);
    credits.drains(0, false);
    settle(&mut credits, NOW);
    assert_eq!(granted(&credits), [1, 3], "every server has one");
}

#[test]
fn each_is_told_what_the_others_leave_of_cpus_and_memory() {
    let all = Capacity { cpu_milli: Some(4000), memory_bytes: None };
    let takes = |cpu_milli| Resources { cpu_milli, memory_bytes: 9 << 30 };
    let mut credits = two(8).within(all);
    assert!(!credits.is_news(), "nobody takes any");
    credits.began(0, takes(3000));
    assert!(credits.is_news());
    let told = next(&mut credits, 1).expect("the first takes three cpus");
    assert_eq!(told.left, Capacity { cpu_milli: Some(1000), memory_bytes: None });
    assert_eq!(next(&mut credits, 0), None, "the second takes none");
    assert!(!credits.is_news(), "the second has not taken that yet, and the first knows");
    assert!(credits.has(takes(1000)) && !credits.has(takes(1001)), "whoever asks");
    credits.ended(0, takes(3000));
    credits.taken(1, told.number);
    assert!(credits.is_news());
    assert_eq!(next(&mut credits, 1).map(|grant| grant.left), Some(all));
    credits.session_ended(1);
    credits.began(0, takes(4000));
    credits.greet(1);
    credits.welcomed(1);
    let told = next(&mut credits, 1).expect("a new session counts with all there is");
    assert_eq!(told.left.cpu_milli, Some(0));
    credits.moved(0, 1, takes(4000));
    credits.taken(1, told.number);
    assert_eq!(next(&mut credits, 1).map(|grant| grant.left), Some(all), "it is its own now");
    assert_eq!(next(&mut credits, 0).and_then(|grant| grant.left.cpu_milli), Some(0));
}

/// A server, the way to it and back.
#[derive(Debug, Default)]
struct Peer {
    connected: bool,
    /// What it believes that it may have in hand.
    believed: u32,
    in_hand: u32,
    to_server: Vec<ToServer>,
    to_worker: Vec<ToWorker>,
    /// Assigned, and waiting for a slot at the worker.
    queued: u32,
}

#[derive(Clone, Copy, Debug)]
enum ToServer {
    Credits(Grant),
    Ended,
}

#[derive(Clone, Copy, Debug)]
enum ToWorker {
    Assignment,
    Taken(u64),
    Wanted,
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Connect,
    Disconnect,
    Assign,
    Want,
    Say,
    DeliverToServer,
    DeliverToWorker,
    Begin,
    End,
    Pass,
}

const STEPS: [Step; 10] = [
    Step::Connect,
    Step::Disconnect,
    Step::Assign,
    Step::Want,
    Step::Say,
    Step::DeliverToServer,
    Step::DeliverToWorker,
    Step::Begin,
    Step::End,
    Step::Pass,
];

struct World {
    credits: Credits,
    peers: Vec<Peer>,
    now: Duration,
}

impl World {
    fn new(slots: u32, servers: usize) -> Self {
        let mut credits = Credits::new(slots);
        (1..servers).for_each(|_| credits.add());
        let peers = (0..servers).map(|_| Peer::default()).collect();
        Self { credits, peers, now: NOW }
    }

    fn step(&mut self, step: Step, source: Source) {
        let Self { credits, peers, now } = self;
        let waiting: Vec<u32> = peers.iter().map(|peer| peer.queued).collect();
        let peer = &mut peers[source];
        match step {
            Step::Connect if !peer.connected => {
                let all = credits.slots;
                peer.believed = credits.greet(source).unwrap_or(all);
                credits.welcomed(source);
                peer.connected = true;
                // What it has in hand is what the worker says that it holds.
                peer.in_hand = peer.queued + credits.accounts[source].busy;
            }
            Step::Disconnect if peer.connected => {
                credits.session_ended(source);
                peer.connected = false;
                peer.to_server.clear();
                peer.to_worker.clear();
            }
            Step::Assign if peer.connected && peer.in_hand < peer.believed => {
                peer.in_hand += 1;
                peer.to_worker.push(ToWorker::Assignment);
            }
            Step::Want if peer.connected && peer.in_hand >= peer.believed => {
                peer.to_worker.push(ToWorker::Wanted);
            }
            Step::Say => {
                let grant = credits.next(source, |source| waiting[source], *now);
                assert!(grant.is_none() || peer.connected);
                peer.to_server.extend(grant.map(ToServer::Credits));
            }
            Step::DeliverToServer if !peer.to_server.is_empty() => match peer.to_server.remove(0) {
                ToServer::Credits(Grant { slots, number, .. }) => {
                    peer.believed = slots;
                    peer.to_worker.push(ToWorker::Taken(number));
                }
                ToServer::Ended => peer.in_hand -= 1,
            },
            Step::DeliverToWorker if !peer.to_worker.is_empty() => match peer.to_worker.remove(0) {
                ToWorker::Assignment => peer.queued += 1,
                ToWorker::Taken(number) => credits.taken(source, number),
                ToWorker::Wanted => credits.wanted(source, *now),
            },
            Step::Pass => *now += Duration::from_millis(100),
            Step::Begin if peer.queued > 0 && credits.may_begin(source) => {
                peer.queued -= 1;
                credits.began(source, NOTHING);
            }
            Step::End if credits.accounts[source].busy > 0 => {
                credits.ended(source, NOTHING);
                if peer.connected {
                    peer.to_server.push(ToServer::Ended);
                }
            }
            _ => {}
        }
    }

    fn check(&self) {
        let accounts = &self.credits.accounts;
        let reserved: u32 = accounts.iter().map(Account::reserved).sum();
        assert!(reserved <= self.credits.slots, "{:?}", self.credits);
        let used: u32 = accounts.iter().map(|account| account.busy).sum();
        assert!(used <= self.credits.slots);
        for (peer, account) in self.peers.iter().zip(accounts).filter(|(peer, _)| peer.connected) {
            assert!(peer.believed <= account.reserved(), "{peer:?} {account:?}");
        }
    }

    /// Everything is said and heard, and those who want slots take what they can. `attempts_end`: theirs too.
    fn settle(&mut self, wants: &[Source], attempts_end: bool) {
        // What was wanted before is not wanted any more.
        for source in 0..self.peers.len() {
            (0..300).for_each(|_| self.step(Step::DeliverToWorker, source));
        }
        self.now += WANTS_FOR;
        for _ in 0..60 {
            for source in 0..self.peers.len() {
                for step in [Step::DeliverToServer, Step::DeliverToWorker] {
                    (0..30).for_each(|_| self.step(step, source));
                }
                self.step(Step::Connect, source);
                if wants.contains(&source) {
                    (0..10).for_each(|_| self.step(Step::Assign, source));
                    self.step(Step::Want, source);
                }
                if attempts_end {
                    self.step(Step::End, source);
                } else if !wants.contains(&source) {
                    (0..10).for_each(|_| self.step(Step::End, source));
                }
                (0..10).for_each(|_| self.step(Step::Begin, source));
                self.step(Step::Say, source);
                self.check();
            }
        }
    }
}

proptest! {
    #[test]
    fn servers_never_have_more_than_the_slots_whatever_is_delayed_or_lost(
        slots in 1u32..9,
        servers in 1usize..4,
        steps in prop::collection::vec((prop::sample::select(&STEPS[..]), 0usize..3), 0..300),
    ) {
        let mut world = World::new(slots, servers);
        for (step, source) in steps {
            world.step(step, source % servers);
            world.check();
        }
    }

    #[test]
    fn who_alone_wants_slots_has_them_in_the_end_and_two_share_them(
        slots in 2u32..9,
        steps in prop::collection::vec((prop::sample::select(&STEPS[..]), 0usize..2), 0..100),
    ) {
        let mut world = World::new(slots, 2);
        for (step, source) in steps {
            world.step(step, source);
        }
        world.settle(&[1], false);
        prop_assert!(world.credits.accounts[1].busy >= slots - 1, "{:?}", world.credits);
        world.settle(&[0, 1], true);
        let half = slots / 2;
        let granted = granted(&world.credits);
        prop_assert!(granted.iter().all(|granted| *granted >= half), "{granted:?}");
    }
}

#[test]
fn an_attempt_that_goes_to_another_server_takes_its_slot_along() {
    let mut credits = Credits::new(1);
    credits.add();
    assert_eq!(credits.greet(0), Some(1));
    credits.welcomed(0);
    credits.began(0, NOTHING);
    assert_eq!(credits.greet(1), Some(0));
    credits.welcomed(1);
    credits.moved(0, 1, NOTHING);
    assert!(!credits.may_begin(0), "the slot is in use, whoever has a credit for it");
    credits.ended(1, NOTHING);
    assert!(credits.may_begin(0));
}
