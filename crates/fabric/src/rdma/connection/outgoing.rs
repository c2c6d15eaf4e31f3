//! Send side of a connection: operations that wait for room, posted batches, and their completion.
//!
//! Reads wait in one queue for room in the send queue; writes and messages wait in another for room, credit and a
//! buffer. Any code that frees room posts the next operations ([`Outgoing::pump`]). So an operation whose future was
//! dropped proceeds like any other, and each queue keeps its order.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;

use bytes::Bytes;

use super::operation::Operation;
use crate::one_sided::MESSAGE_BYTES_MAX;
use crate::rdma::message::{self, HEADER_BYTES};
use crate::rdma::verbs::{self, MemoryRegion, Opcode, QueuePair};

/// Size of one message buffer, sent or received, in bytes: a whole number of cache lines.
pub const BUFFER_BYTES: u32 = (MESSAGE_BYTES_MAX + HEADER_BYTES).next_multiple_of(64) as u32;

/// Messages in flight that need no credit: the hello message, two credit messages, and one spare.
pub const CONTROL_MESSAGES: u16 = 4;

/// A posted batch: the operation that it belongs to, and the resources that it occupies.
#[derive(Debug)]
pub struct Batch {
    /// `None`: a control message of the connection.
    operation: Option<Arc<Operation>>,
    pieces: usize,
    buffer: Option<u16>,
}

impl Batch {
    fn over(&self, well: bool) {
        if let Some(operation) = &self.operation {
            operation.over(self.pieces, well);
        }
    }

    /// Releases the batch after the connection has ended; its operation counts as failed.
    pub fn abandon(self) {
        self.over(false);
    }
}

/// An operation that is not, or not completely, posted.
#[derive(Debug)]
pub struct QueuedOperation {
    pub operation: Arc<Operation>,
    pub pieces: VecDeque<verbs::WorkRequest>,
    /// Sent after the last piece.
    pub message: Option<Bytes>,
}

impl QueuedOperation {
    fn length(&self) -> usize {
        self.pieces.len() + usize::from(self.message.is_some())
    }
}

#[derive(Debug)]
pub struct Outgoing {
    reads: VecDeque<QueuedOperation>,
    writes: VecDeque<QueuedOperation>,
    /// Free room in the send queue for callers' operations.
    room: usize,
    /// Agreed maximum number of operations.
    operations: usize,
    /// Messages that the peer has room for, and the maximum of that number.
    credits: u16,
    credits_max: u16,
    memory: Arc<MemoryRegion>,
    /// Free buffers within the memory: those for messages, and those for control messages.
    buffers: Vec<u16>,
    control_buffers: Vec<u16>,
    first_control_buffer: u16,
    closed: bool,
}

impl Outgoing {
    /// `messages`: number of message buffers in `memory`, which has `CONTROL_MESSAGES` more.
    pub fn new(memory: Arc<MemoryRegion>, messages: u16) -> Self {
        Self {
            reads: VecDeque::new(),
            writes: VecDeque::new(),
            room: 0,
            operations: 0,
            credits: 0,
            credits_max: 0,
            memory,
            buffers: (0..messages).collect(),
            control_buffers: (messages..messages + CONTROL_MESSAGES).collect(),
            first_control_buffer: messages,
            closed: false,
        }
    }

    /// Sets the limits that both sides agreed on in their hello messages.
    pub fn open(&mut self, operations: u16, messages: u16) {
        self.operations = usize::from(operations);
        self.room = self.operations;
        self.credits = messages;
        self.credits_max = messages;
    }

    pub fn push(&mut self, waiting: QueuedOperation, is_read: bool) {
        if self.closed {
            waiting.operation.over(waiting.length(), false);
        } else if is_read {
            self.reads.push_back(waiting);
        } else {
            self.writes.push_back(waiting);
        }
    }

    /// Returns true if an operation waits to be posted.
    pub fn is_waiting(&self) -> bool {
        !self.reads.is_empty() || !self.writes.is_empty()
    }

    /// Stops sending; waiting operations fail.
    pub fn close(&mut self) {
        self.closed = true;
        for waiting in self.reads.drain(..).chain(self.writes.drain(..)) {
            waiting.operation.over(waiting.length(), false);
        }
    }

    /// Adds credits for messages that the peer took. Returns false if they exceed the messages sent.
    pub fn credit(&mut self, credits: u16) -> bool {
        self.credits = self.credits.saturating_add(credits);
        self.credits <= self.credits_max
    }

    /// Frees the room of a completed batch. Returns true if it was a control message.
    pub fn done(&mut self, batch: Batch, well: bool) -> bool {
        let is_own = batch.operation.is_none();
        if !is_own {
            self.room += batch.pieces;
        }
        if let Some(buffer) = batch.buffer {
            if buffer < self.first_control_buffer { &mut self.buffers } else { &mut self.control_buffers }.push(buffer);
        }
        batch.over(well);
        is_own
    }

    /// Posts operations as far as room and credit allow. `owed`: called for each message to get the credits to return
    /// with it.
    ///
    /// Errors: the queue pair accepts no more; the connection must be ended.
    pub fn pump(&mut self, queue_pair: &QueuePair<Batch>, mut owed: impl FnMut() -> u16) -> io::Result<()> {
        loop {
            let mut posted = false;
            if self.room > 0 && self.reads.front().is_some() {
                self.post_front(queue_pair, true, None)?;
                posted = true;
            }
            if self.room > 0
                && let Some(front) = self.writes.front()
            {
                // Reserve the credit before posting anything: otherwise a posted write would wait unnoticed for its
                // message.
                let needs_credit = front.message.is_some();
                if !needs_credit {
                    self.post_front(queue_pair, false, None)?;
                    posted = true;
                } else if self.credits > 0 && !self.buffers.is_empty() {
                    let whole = front.length() <= self.room;
                    if whole || !front.pieces.is_empty() {
                        let credits = if whole { owed() } else { 0 };
                        self.post_front(queue_pair, false, whole.then_some(credits))?;
                        posted = true;
                    }
                }
            }
            if !posted {
                return Ok(());
            }
        }
    }

    /// Posts pieces of the first operation as far as there is room. `message`: also posts its message, with that many
    /// credits.
    fn post_front(&mut self, queue_pair: &QueuePair<Batch>, is_read: bool, message: Option<u16>) -> io::Result<()> {
        let queue = if is_read { &mut self.reads } else { &mut self.writes };
        let front = queue.front_mut().expect("the caller has checked");
        // A long operation is posted in halves of the room, so that the network always has the next one.
        let most = if front.length() <= self.room { self.room } else { self.room.min(self.operations.div_ceil(2)) };
        let pieces = front.pieces.len().min(most);
        let mut batch: Vec<verbs::WorkRequest> = front.pieces.drain(..pieces).collect();
        let mut buffer = None;
        if let Some(credits) = message {
            let payload = front.message.take().expect("the operation has a message");
            let free = self.buffers.pop().expect("the caller has checked");
            buffer = Some(free);
            self.credits -= 1;
            batch.push(fill(&self.memory, free, &message::header(credits, true), &payload));
        }
        let operation = Arc::clone(&front.operation);
        if front.length() == 0 {
            queue.pop_front();
        }
        self.room -= batch.len();
        let token = Batch { operation: Some(operation), pieces: batch.len(), buffer };
        queue_pair.post(batch, token)
    }

    /// Posts a control message, which needs no credit. Returns false if no buffer is free; retry when a control message
    /// completes.
    pub fn post_control(&mut self, queue_pair: &QueuePair<Batch>, bytes: &[u8]) -> io::Result<bool> {
        if self.closed {
            return Ok(true);
        }
        let Some(buffer) = self.control_buffers.pop() else { return Ok(false) };
        let operation = fill(&self.memory, buffer, bytes, &[]);
        queue_pair.post(vec![operation], Batch { operation: None, pieces: 1, buffer: Some(buffer) })?;
        Ok(true)
    }

    pub fn has_control_buffer(&self) -> bool {
        !self.control_buffers.is_empty()
    }
}

/// Copies a message into a buffer, and returns the work request that sends it.
fn fill(memory: &Arc<MemoryRegion>, buffer: u16, header: &[u8], payload: &[u8]) -> verbs::WorkRequest {
    let offset = u64::from(buffer) * u64::from(BUFFER_BYTES);
    let start = memory.range().start + offset;
    memory.memory().write(start, header);
    memory.memory().write(start + header.len() as u64, payload);
    let length = u32::try_from(header.len() + payload.len()).expect("messages are bounded");
    assert!(length <= BUFFER_BYTES, "a message longer than its buffer");
    verbs::WorkRequest {
        kind: Opcode::Send,
        local: Arc::clone(memory),
        offset,
        length,
        remote_address: 0,
        remote_key: 0,
    }
}
