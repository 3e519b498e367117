//! Defects that are switched on to see whether the simulation finds them. Without the feature `defects`, which no program has, none
//! can be, and what asks for them costs nothing.

macro_rules! defects {
    ($($(#[$doc:meta])* $variant:ident = $name:literal),+ $(,)?) => {
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub enum Defect { $($(#[$doc])* $variant),+ }

        impl Defect {
            pub const ALL: &[Self] = &[$(Self::$variant),+];

            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => $name),+ }
            }
        }
    };
}

defects! {
    /// A report counts whatever its token.
    NoFence = "no-fence",
    /// What waits for a group leaves before the group is written.
    AcknowledgedBeforeSync = "acknowledged-before-sync",
    /// A retry takes two from the budget of the job.
    BudgetChargedTwice = "budget-charged-twice",
    /// A job that is loaded has no timers.
    TimerLostOnRecovery = "timer-lost-on-recovery",
    /// A datacenter that succeeds after the end is counted as if it had been in time.
    LateResultApplied = "late-result-applied",
    /// The loss of a worker is charged to the attempts.
    PreemptionChargedAsFailure = "preemption-charged-as-failure",
    /// A delay is drawn anew when its event is read.
    JitterNotReplayed = "jitter-not-replayed",
    /// The server believes a silent worker for ever.
    LeaseNeverExpires = "lease-never-expires",
    /// The worker goes on with what it runs when its lease is over.
    WorkerIgnoresItsLease = "worker-ignores-its-lease",
    /// The store takes groups of an epoch that is over.
    EpochNotCompared = "epoch-not-compared",
    /// A commit whose answer was lost is taken for done.
    UnknownTakenForSuccess = "unknown-taken-for-success",
    /// A commit whose answer was lost is taken for not done.
    UnknownTakenForFailure = "unknown-taken-for-failure",
    /// What is due is not read.
    DueJobNotLoaded = "due-job-not-loaded",
    /// A gap is charged from its beginning on, also what was charged before.
    DowntimeAppliedTwice = "downtime-applied-twice",
    /// A report about a job that is not in memory yet is acknowledged as unknown.
    ReportBeforeLoadLost = "report-before-load-lost",
    /// A shard is given away and kept, and the store does not compare who has it.
    TwoControllersOnOneShard = "two-controllers-on-one-shard",
    /// What was cut off by a cancel goes on.
    WithdrawalLost = "withdrawal-lost",
    /// A paused job starts what it has.
    PauseIgnored = "pause-ignored",
    /// The key of a submission is not written.
    IdempotencyKeyForgotten = "idempotency-key-forgotten",
    /// A step starts all that it has.
    ParallelismIgnored = "parallelism-ignored",
    /// A step starts before what it needs.
    NeedsIgnored = "needs-ignored",
    /// A retry is due when it is scheduled.
    RetryDueAtOnce = "retry-due-at-once",
    /// Events after the last stored state are not read.
    TailNotReplayed = "tail-not-replayed",
    /// What is decided on a refused write is let out.
    RefusedEffectsLetOut = "refused-effects-let-out",
    // From here on: what the simulation has found, kept to see that it would be found again.
    /// An attempt that goes to another server leaves its credit behind.
    SlotsGivenTwice = "slots-given-twice",
    /// A worker begins what its cpus and memory are taken for.
    ResourcesGivenTwice = "resources-given-twice",
    /// A server that was taken over goes on in its new epoch, though a lost commit has raised it further.
    GoesOnInLowerEpoch = "goes-on-in-lower-epoch",
    /// A server that was taken for dead while it joined begins in the epoch that it had taken before.
    BeginsInOldEpoch = "begins-in-old-epoch",
    /// What a server was to give away when it joined is neither its nor another's.
    GivesAwayUntold = "gives-away-untold",
    /// A job that meets its deadline while it is paused leaves runs that nobody resumes.
    PausedRunsLeft = "paused-runs-left",
    /// An item that no worker takes loses the failures that it brought along.
    CarriedFailuresLost = "carried-failures-lost",
    /// A sleeping job's row says when a timer was set for that is over: woken in vain, it is not woken again.
    StaleReminderStored = "stale-reminder-stored",
    /// A server that was taken over and does not know it yet tells workers to forget what it does not know.
    WithdrawsUnasked = "withdraws-unasked",
    /// A server that gains shards asks only the workers that something of them is under way at.
    AsksOnlyTheExpected = "asks-only-the-expected",
    /// A worker goes on under the lease of a server with what that one has given away.
    GivenAwayKept = "given-away-kept",
    /// What was read of a job before it left memory is taken for how it is.
    StaleReadTaken = "stale-read-taken",
    /// Tokens of a job begin anew after a restore.
    TokensGivenAgain = "tokens-given-again",
    /// Two words about a job that is over are added to the same state.
    NotedTwice = "noted-twice",
}

#[cfg(feature = "defects")]
mod switch {
    use std::cell::Cell;

    thread_local! {
        static ON: Cell<Option<super::Defect>> = const { Cell::new(None) };
    }

    /// From now on, on this thread.
    pub fn switch_on(defect: Option<super::Defect>) {
        ON.set(defect);
    }

    pub fn is_on(defect: super::Defect) -> bool {
        ON.get() == Some(defect)
    }

    thread_local! {
        static DRAWN: Cell<u64> = const { Cell::new(0) };
    }

    /// Another number each time: of [`JitterNotReplayed`](super::Defect::JitterNotReplayed).
    pub(crate) fn drawn_anew(most: u64) -> u64 {
        DRAWN.set(DRAWN.get().wrapping_add(7919));
        DRAWN.get() % most.max(1)
    }
}

#[cfg(feature = "defects")]
pub(crate) use switch::drawn_anew;
#[cfg(feature = "defects")]
pub use switch::{is_on, switch_on};

#[cfg(not(feature = "defects"))]
pub(crate) const fn drawn_anew(_: u64) -> u64 {
    0
}

#[cfg(not(feature = "defects"))]
#[inline]
pub const fn is_on(_: Defect) -> bool {
    false
}
