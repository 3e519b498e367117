//! The driver without threads: whoever has it says when each of them has a turn, and what time it is. A simulation does.

use std::sync::Arc;
use std::sync::mpsc::Receiver;
use std::time::Duration;

use steadfast_store::Journal;

use super::decider::{Decider, Turn};
use super::loading::{AHEAD, Loading};
use super::writer::Writer;
use super::{Clock, INBOX, Observer, Ownership, Parts, Stopped, Workers};
use crate::controller::Controller;
use crate::inbox::{Inbox, Message};
use crate::load::Unreadable;
use crate::mailbox::{Lane, Receiver as Mailbox, Sender, mailbox};

/// A [`Live`](super::Live) controller whose threads are called by hand. What a turn does is what the thread does between two sleeps, so
/// that only what happens at the same time is left out. **The clock's `pause` must return at once**, and what fails must not fail twice.
pub struct Stepped {
    inbox: Inbox,
    decider: Decider,
    writer: Writer,
    loading: Option<Loading>,
    /// What was read, on its way to the decider.
    read: Mailbox<Message>,
    to_decider: Option<Sender<Message>>,
    recovered: Receiver<Result<(), Unreadable>>,
    /// None: the writer is gone.
    turn: Option<Turn>,
}

impl std::fmt::Debug for Stepped {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Stepped").field("turn", &self.turn).finish_non_exhaustive()
    }
}

impl Stepped {
    pub fn start<W: Workers + 'static>(
        journal: Box<dyn Journal>,
        clock: Arc<dyn Clock>,
        controller: Controller,
        ownership: Ownership,
        make_workers: impl FnOnce(Inbox) -> W,
        observer: Box<dyn Observer>,
    ) -> Self {
        let parts = Parts::new(journal, clock, controller, ownership, make_workers, observer);
        let Parts { inbox, mut decider, writer, mut loading, recovered } = parts;
        let (on_its_way, read) = mailbox(INBOX);
        let to_decider =
            loading.as_mut().map(|loading| std::mem::replace(&mut loading.decider, on_its_way));
        let turn = decider.prepare();
        Self { inbox, decider, writer, loading, read, to_decider, recovered, turn }
    }

    pub fn inbox(&self) -> &Inbox {
        &self.inbox
    }

    /// The jobs in memory. They may be ahead of the store.
    pub fn controller(&self) -> &Controller {
        self.decider.controller()
    }

    /// How long the deciding thread sleeps, unless something comes.
    pub fn sleeps(&self) -> Duration {
        self.turn.as_ref().map_or(Duration::MAX, |turn| turn.wait)
    }

    /// Decides what has come and what is due.
    pub fn decide(&mut self) {
        if let Some(turn) = self.turn.take() {
            self.decider.act(&turn, false);
            self.turn = self.decider.prepare();
        }
    }

    /// Makes what was decided durable, and lets out what waits for it. False: there was nothing.
    pub fn write(&mut self) -> Result<bool, Stopped> {
        self.writer.step()
    }

    /// There is something to write.
    pub fn has_unwritten(&self) -> bool {
        self.decider.sent > self.writer.written
    }

    /// There is something to read.
    pub fn has_unread(&self) -> bool {
        self.loading.as_ref().is_some_and(|loading| !loading.loads.is_empty(Lane::Work))
    }

    /// Reads the next of what is to be loaded. False: there was nothing.
    pub fn load(&mut self) -> bool {
        self.loading.as_mut().is_some_and(Loading::step)
    }

    /// How much of what was read has not come to the decider yet, which may go on meanwhile. **Nothing more is to be read when there are a
    /// hundred of them**: the thread that reads waits for room then, and here there is no other that makes any.
    pub fn undelivered(&self) -> usize {
        self.read.len(Lane::Work)
    }

    /// At most so much of what was read comes to the decider, in its order, as long as there is room for it.
    pub fn deliver(&mut self, most: usize) {
        let Some(to) = &self.to_decider else { return };
        let room = AHEAD.saturating_sub(self.decider.waiting());
        for message in self.read.take(most.min(room), Lane::Work) {
            let _ = to.send(message, Lane::Work, true);
        }
    }

    /// Once: every stored job of which an attempt is under way is in memory, or why not.
    pub fn recovered(&self) -> Option<Result<(), Unreadable>> {
        self.recovered.try_recv().ok()
    }
}
