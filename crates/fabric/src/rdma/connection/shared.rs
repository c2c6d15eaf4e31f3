//! The state of a connection, which callers, their futures and the driver share.

use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use tokio::sync::{Notify, watch};

use super::outgoing::{Batch, Outgoing, QueuedOperation};
use super::polling::Polling;
use crate::one_sided::{Error, Limits};
use crate::rdma::message::{self, RdmaFrame, RdmaHello};
use crate::rdma::verbs::QueuePair;

/// Messages that came and were not taken.
#[derive(Debug, Default)]
struct Inbox {
    messages: VecDeque<Bytes>,
    hello: Option<RdmaHello>,
}

#[derive(Debug)]
pub struct RdmaShared {
    pub queue_pair: QueuePair<Batch>,
    pub peer: SocketAddr,
    pub busy_poll: Duration,
    pub polling_sends: Polling,
    pub polling_receives: Polling,
    outgoing: Mutex<Outgoing>,
    /// Held also while receives are taken from their queue, so that messages keep their order.
    inbox: Mutex<Inbox>,
    arrived: Notify,
    /// Messages taken that the peer has no credit for yet.
    owed: AtomicU32,
    /// What both sides agreed on, once they have introduced themselves.
    limits: OnceLock<Limits>,
    /// Messages that this side is ready for, which hold until then.
    messages_offered: u16,
    /// Whether the next end of a send is going to wake the driver.
    sends_armed: AtomicBool,
    /// Why the connection ended; empty while it is open.
    why: OnceLock<String>,
    /// Tells the driver to wind up.
    pub ending: Notify,
    /// True when everything is wound up.
    over: watch::Sender<bool>,
}

impl RdmaShared {
    pub fn new(
        queue_pair: QueuePair<Batch>,
        outgoing: Outgoing,
        messages_offered: u16,
        peer: SocketAddr,
        busy_poll: Duration,
    ) -> Arc<Self> {
        Arc::new(Self {
            queue_pair,
            peer,
            busy_poll,
            polling_sends: Polling::default(),
            polling_receives: Polling::default(),
            outgoing: Mutex::new(outgoing),
            inbox: Mutex::default(),
            arrived: Notify::new(),
            owed: AtomicU32::new(0),
            limits: OnceLock::new(),
            messages_offered,
            sends_armed: AtomicBool::new(false),
            why: OnceLock::new(),
            ending: Notify::new(),
            over: watch::Sender::new(false),
        })
    }

    pub fn limits(&self) -> Limits {
        *self.limits.get().expect("a connection is handed out when both sides have introduced themselves")
    }

    /// The peer's introduction, when it is there.
    pub fn hello(&self) -> Option<RdmaHello> {
        self.inbox.lock().hello
    }

    /// Lets operations out, within what both sides agreed on.
    pub fn open(&self, limits: Limits) {
        self.limits.set(limits).expect("once");
        self.outgoing.lock().open(limits.operations, limits.messages);
    }

    pub fn closed_error(&self) -> Error {
        let why = self.why.get().cloned().unwrap_or_default();
        Error::Closed { peer: self.peer, why }
    }

    pub fn is_open(&self) -> bool {
        self.why.get().is_none()
    }

    /// Ends the connection: nothing more is carried out, what is posted is flushed. The first reason counts.
    pub fn fail(&self, why: impl FnOnce() -> String) {
        if !self.is_open() {
            return;
        }
        {
            // Both under the lock: once it is known to end it may be wound up, and what a caller then posts on the queue pair that is gone
            // would never be over.
            let mut outgoing = self.outgoing.lock();
            if self.why.set(why()).is_err() {
                return;
            }
            outgoing.close();
        }
        // An error says that it is destroyed, or the device gone: either way nothing more is carried out.
        let _ = self.queue_pair.fail();
        self.arrived.notify_waiters();
        self.ending.notify_one();
    }

    /// Everything is wound up.
    pub fn set_over(&self) {
        self.over.send_replace(true);
        self.arrived.notify_waiters();
    }

    pub async fn wait_over(&self) {
        // The sender lives as long as this.
        let _ = self.over.subscribe().wait_for(|over| *over).await;
    }

    /// An operation of a caller.
    pub fn submit(&self, waiting: QueuedOperation, is_read: bool) {
        let mut outgoing = self.outgoing.lock();
        outgoing.push(waiting, is_read);
        let pumped = outgoing.pump(&self.queue_pair, || self.take_owed_credits());
        let waits = outgoing.is_waiting();
        drop(outgoing);
        self.end_on_error(pumped);
        if waits {
            // What makes room must be heard.
            self.arm_sends();
        }
    }

    /// A frame of the connection's own.
    pub fn send_control(&self, bytes: &[u8]) -> bool {
        let posted = self.outgoing.lock().post_control(&self.queue_pair, bytes);
        let sent = *posted.as_ref().unwrap_or(&true);
        self.end_on_error(posted.map(drop));
        self.arm_sends();
        sent
    }

    fn end_on_error(&self, result: io::Result<()>) {
        if let Err(error) = result {
            self.fail(|| format!("posting failed: {error}"));
        }
    }

    fn take_owed_credits(&self) -> u16 {
        u16::try_from(self.owed.swap(0, Ordering::AcqRel)).expect("at most as many as there are receives")
    }

    /// A message was taken: one more credit for the peer, sent by itself once half of all have come together.
    fn message_taken(&self) {
        self.owed.fetch_add(1, Ordering::AcqRel);
        self.return_credits();
    }

    fn return_credits(&self) {
        let Some(limits) = self.limits.get() else { return };
        let enough = u32::from((limits.messages / 2).max(1));
        if self.owed.load(Ordering::Acquire) < enough || !self.is_open() {
            return;
        }
        let mut outgoing = self.outgoing.lock();
        if !outgoing.has_control_buffer() {
            // The end of the one that holds it comes back here.
            drop(outgoing);
            self.arm_sends();
            return;
        }
        let owed = self.take_owed_credits();
        if owed == 0 {
            return;
        }
        let posted = outgoing.post_control(&self.queue_pair, &message::header(owed, false));
        drop(outgoing);
        self.end_on_error(posted.map(drop));
        self.arm_sends();
    }

    /// Makes sure that the driver hears the end of what is posted.
    pub fn arm_sends(&self) {
        if !self.sends_armed.swap(true, Ordering::AcqRel)
            && let Err(error) = self.queue_pair.sends().arm()
        {
            self.fail(|| format!("completion queue: {error}"));
        }
        // What ended before it was armed wakes nobody.
        self.poll_sends();
    }

    /// The driver was woken by the end of a send.
    pub fn on_send_event(&self) {
        self.sends_armed.store(false, Ordering::Release);
        self.poll_sends();
        if self.queue_pair.posted() > 0 || self.outgoing.lock().is_waiting() {
            self.arm_sends();
        }
    }

    /// Takes what has ended, and lets the next ones through.
    pub fn poll_sends(&self) {
        loop {
            let mut ended = Vec::new();
            let mut cause = None;
            let polled = self.queue_pair.poll_sends(|completion| {
                let well = completion.is_success();
                if !well && (cause.is_none() || !completion.is_flush()) {
                    cause = Some(completion.status);
                }
                ended.extend(completion.token.map(|batch| (batch, well)));
            });
            let polled = match polled {
                Ok(polled) => polled,
                Err(error) => return self.fail(|| format!("completion queue: {error}")),
            };
            if let Some(status) = cause {
                self.fail(|| status_text(status));
            }
            if polled == 0 {
                return;
            }
            let mut own_ended = false;
            let mut outgoing = self.outgoing.lock();
            for (batch, well) in ended {
                own_ended |= outgoing.done(batch, well);
            }
            let pumped = outgoing.pump(&self.queue_pair, || self.take_owed_credits());
            drop(outgoing);
            self.end_on_error(pumped);
            if own_ended {
                self.return_credits();
            }
        }
    }

    /// The driver was woken by a message.
    pub fn on_receive_event(&self) {
        if let Err(error) = self.queue_pair.receives().arm() {
            self.fail(|| format!("completion queue: {error}"));
        }
        self.poll_receives();
    }

    /// Takes what has come.
    pub fn poll_receives(&self) {
        loop {
            let mut received = Vec::new();
            let mut credits = 0u16;
            let mut wrong = None;
            let mut inbox = self.inbox.lock();
            let polled = self.queue_pair.poll_receives(|entry| received.push(entry));
            for entry in &received {
                if !entry.is_success() {
                    wrong.get_or_insert_with(|| status_text(entry.status));
                    continue;
                }
                let bytes = Bytes::from(self.queue_pair.received(entry));
                // The buffer is free before the credit for it can be given.
                if let Err(error) = self.queue_pair.post_receive(entry.slot)
                    && self.is_open()
                {
                    wrong.get_or_insert_with(|| format!("posting a receive failed: {error}"));
                }
                match message::decode(&bytes) {
                    Some(RdmaFrame::Hello(hello)) if inbox.hello.is_none() => inbox.hello = Some(hello),
                    Some(RdmaFrame::Credits(given)) => credits = credits.saturating_add(given),
                    Some(RdmaFrame::Message { credits: given, payload })
                        if self.has_room(&inbox) && !payload.is_empty() =>
                    {
                        credits = credits.saturating_add(given);
                        let payload = bytes.slice_ref(payload);
                        inbox.messages.push_back(payload);
                    }
                    _ => wrong = Some("the peer broke the protocol".to_owned()),
                }
            }
            drop(inbox);
            match polled {
                Ok(0) => return,
                Ok(_) => {}
                Err(error) => wrong = Some(format!("completion queue: {error}")),
            }
            if credits > 0 {
                let mut outgoing = self.outgoing.lock();
                let is_honest = outgoing.credit(credits);
                let pumped = outgoing.pump(&self.queue_pair, || self.take_owed_credits());
                drop(outgoing);
                self.end_on_error(pumped);
                if !is_honest {
                    wrong = Some("the peer gave credit for messages that it was not sent".to_owned());
                }
            }
            self.arrived.notify_one();
            if let Some(wrong) = wrong {
                return self.fail(|| wrong);
            }
        }
    }

    fn has_room(&self, inbox: &Inbox) -> bool {
        let most = self.limits.get().map_or(self.messages_offered, |limits| limits.messages);
        inbox.messages.len() < usize::from(most)
    }

    /// The next message, if one is there.
    pub fn take_message(&self) -> Option<Bytes> {
        let message = self.inbox.lock().messages.pop_front()?;
        self.message_taken();
        Some(message)
    }

    /// Resolves when something has arrived since the last call, or when the connection has ended.
    pub async fn arrival(&self) {
        let arrived = self.arrived.notified();
        tokio::pin!(arrived);
        arrived.as_mut().enable();
        if *self.over.borrow() {
            return;
        }
        arrived.await;
    }

    pub fn is_over(&self) -> bool {
        *self.over.borrow()
    }
}

/// What a completion's status says. Numbers of `enum ibv_wc_status`.
fn status_text(status: u32) -> String {
    let text = match status {
        1 => "a message was longer than its buffer",
        4 => "local memory was not registered for it",
        5 => "it was broken off",
        9 => "the peer takes no such operation",
        10 => "the peer's memory was not registered for it",
        11 => "the peer could not carry it out",
        12 => "the peer does not answer",
        13 => "the peer had no receive posted",
        _ => return format!("an operation failed with status {status}"),
    };
    text.to_owned()
}

impl fmt::Display for RdmaShared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "connection to {}", self.peer)
    }
}
