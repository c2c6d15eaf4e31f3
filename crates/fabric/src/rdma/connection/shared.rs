//! State of a connection, shared by callers, their futures and the driver.

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

/// Received messages that were not taken yet.
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
    /// Also held while receives are taken from their queue, so that messages keep their order.
    inbox: Mutex<Inbox>,
    arrived: Notify,
    /// Messages taken for which the peer has not got its credit back yet.
    owed: AtomicU32,
    /// Limits that both sides agreed on, once they have exchanged hello messages.
    limits: OnceLock<Limits>,
    /// Number of messages that this side offers; used until the limits are agreed.
    messages_offered: u16,
    /// True if the next send completion will wake the driver.
    sends_armed: AtomicBool,
    /// Reason for the end of the connection; empty while it is open.
    why: OnceLock<String>,
    /// Tells the driver to shut down.
    pub ending: Notify,
    /// True once the shutdown is complete.
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
        *self.limits.get().expect("limits are set before the connection is returned")
    }

    /// Returns the peer's hello message, once it has arrived.
    pub fn hello(&self) -> Option<RdmaHello> {
        self.inbox.lock().hello
    }

    /// Starts posting operations, within the agreed limits.
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

    /// Ends the connection: no further operation is executed, and posted ones are flushed. The first reason is kept.
    pub fn fail(&self, why: impl FnOnce() -> String) {
        if !self.is_open() {
            return;
        }
        {
            // Both under the lock. Once the end is visible, the shutdown may complete, and an operation that a caller
            // then posts on the destroyed queue pair would never end.
            let mut outgoing = self.outgoing.lock();
            if self.why.set(why()).is_err() {
                return;
            }
            outgoing.close();
        }
        // An error means that the queue pair is destroyed or the device gone; in either case nothing more is executed.
        let _ = self.queue_pair.fail();
        self.arrived.notify_waiters();
        self.ending.notify_one();
    }

    /// Marks the shutdown as complete.
    pub fn set_over(&self) {
        self.over.send_replace(true);
        self.arrived.notify_waiters();
    }

    pub async fn wait_over(&self) {
        // The sender lives as long as this.
        let _ = self.over.subscribe().wait_for(|over| *over).await;
    }

    /// Submits a caller's operation.
    pub fn submit(&self, waiting: QueuedOperation, is_read: bool) {
        let mut outgoing = self.outgoing.lock();
        outgoing.push(waiting, is_read);
        let pumped = outgoing.pump(&self.queue_pair, || self.take_owed_credits());
        let waits = outgoing.is_waiting();
        drop(outgoing);
        self.end_on_error(pumped);
        if waits {
            // The driver must be woken by the completion that frees room.
            self.arm_sends();
        }
    }

    /// Sends a control message.
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
        u16::try_from(self.owed.swap(0, Ordering::AcqRel)).expect("owed credits never exceed the posted receives")
    }

    /// Records that a message was taken, which is one more credit for the peer. Credits are sent on their own once half
    /// of all have accumulated.
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
            // The completion of the message that holds the buffer leads back here.
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

    /// Ensures that the driver is woken by the completion of posted operations.
    pub fn arm_sends(&self) {
        if !self.sends_armed.swap(true, Ordering::AcqRel)
            && let Err(error) = self.queue_pair.sends().arm()
        {
            self.fail(|| format!("completion queue: {error}"));
        }
        // Completions from before arming wake no task.
        self.poll_sends();
    }

    /// Handles a wake-up of the driver by a send completion.
    pub fn on_send_event(&self) {
        self.sends_armed.store(false, Ordering::Release);
        self.poll_sends();
        if self.queue_pair.posted() > 0 || self.outgoing.lock().is_waiting() {
            self.arm_sends();
        }
    }

    /// Processes completions, and posts the next operations.
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

    /// Handles a wake-up of the driver by a message.
    pub fn on_receive_event(&self) {
        if let Err(error) = self.queue_pair.receives().arm() {
            self.fail(|| format!("completion queue: {error}"));
        }
        self.poll_receives();
    }

    /// Processes received messages.
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
                // The buffer must be free before its credit can be returned.
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
                    _ => wrong = Some("the peer violated the protocol".to_owned()),
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
                    wrong = Some("the peer returned credit for messages that were not sent".to_owned());
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

    /// Returns the next message, if one has arrived.
    pub fn take_message(&self) -> Option<Bytes> {
        let message = self.inbox.lock().messages.pop_front()?;
        self.message_taken();
        Some(message)
    }

    /// Resolves when a message has arrived since the last call, or when the connection has ended.
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

/// Describes a completion's status. Numbers of `enum ibv_wc_status`.
fn status_text(status: u32) -> String {
    let text = match status {
        1 => "a message was longer than its buffer",
        4 => "local memory is not registered for the operation",
        5 => "the operation was flushed",
        9 => "the peer does not support the operation",
        10 => "the peer's memory is not registered for the operation",
        11 => "the peer could not execute the operation",
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
