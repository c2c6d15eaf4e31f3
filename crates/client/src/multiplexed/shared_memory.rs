//! Memory that this client lends to a datanode on the same machine. The datanode puts its answers there, and only their
//! heads go over the socket.
//!
//! A slot belongs to one range from its request until its answer has been copied out, or discarded because the read was
//! dropped. The slot is not reused before, even if the read is dropped. When the connection ends, no slot of its memory
//! is handed out again, so bytes that the datanode may still write are never read.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use bytes::Bytes;
use hearth_fabric::Memory;
use hearth_fabric::local::FileMapping;
use hearth_fabric::stream::{Connection, ReceiveBuffer};
use hearth_protocol::data_transfer::receive_message;
use hearth_wire::data_transfer::{self as wire, MessageError, Operation, RangePiece, ReadMany, ReadManyTerms};
use parking_lot::Mutex;

use super::failure::ConnectionFailure;
use crate::data_path::SMALL_BYTES;
use crate::options::MultiplexOptions;

/// Room for the largest small replica and its CRCs at the usual chunk size. A larger answer comes over the socket.
const RESPONSE_BUFFER_BYTES: u64 = SMALL_BYTES + (4 << 10);

/// Below this size, a copy through the socket costs little compared with the rest of a read, and leaves the slot to
/// other reads.
const SHARED_BYTES_MIN: u64 = 2 << 10;

/// Memory of one connection.
#[derive(Debug)]
pub(super) struct SharedMemory {
    map: FileMapping,
    /// Last in, first out: the bytes of the most recently returned slot are in the processor's cache.
    free: Mutex<Vec<u32>>,
}

impl SharedMemory {
    fn new(bytes: u64) -> io::Result<(Arc<Self>, OwnedFd)> {
        let memory = Memory::sealed(bytes)?;
        let map = FileMapping::new(&memory, bytes)?;
        let places = u32::try_from(bytes / RESPONSE_BUFFER_BYTES).unwrap_or(u32::MAX);
        Ok((Arc::new(Self { map, free: Mutex::new((0..places).rev().collect()) }), memory))
    }

    /// Returns a slot for an answer with `bytes` of data, or `None` if the answer is too short or too long, or no slot
    /// is free.
    pub(super) fn take(self: &Arc<Self>, bytes: u64) -> Option<ResponseBuffer> {
        if !(SHARED_BYTES_MIN..=SMALL_BYTES).contains(&bytes) {
            return None;
        }
        let index = self.free.lock().pop()?;
        Some(ResponseBuffer { shared_memory: Arc::clone(self), index })
    }
}

/// Slot of the memory. Returned on drop.
#[derive(Debug)]
pub(super) struct ResponseBuffer {
    shared_memory: Arc<SharedMemory>,
    index: u32,
}

impl ResponseBuffer {
    /// Returns the slot as it is described to the datanode.
    pub(super) fn name(&self) -> wire::AnswerSlot {
        wire::AnswerSlot { offset: self.start(), bytes: RESPONSE_BUFFER_BYTES as u32 }
    }

    fn start(&self) -> u64 {
        u64::from(self.index) * RESPONSE_BUFFER_BYTES
    }

    /// Returns the CRCs and data that the datanode reports to have put here. The slot is returned when the last part of
    /// them is dropped.
    ///
    /// Returns `None` if they do not fit into the slot.
    pub(super) fn filled(self, piece: &RangePiece) -> Option<Bytes> {
        let bytes = piece.body_bytes();
        (bytes as u64 <= RESPONSE_BUFFER_BYTES).then(|| Bytes::from_owner(FilledBuffer { place: self, bytes }))
    }
}

impl Drop for ResponseBuffer {
    fn drop(&mut self) {
        self.shared_memory.free.lock().push(self.index);
    }
}

struct FilledBuffer {
    place: ResponseBuffer,
    bytes: usize,
}

impl AsRef<[u8]> for FilledBuffer {
    fn as_ref(&self) -> &[u8] {
        let start = self.place.start() as usize;
        &self.place.shared_memory.map.bytes()[start..start + self.bytes]
    }
}

/// Starts READ_MANY on `connection`, over a domain socket, and lends the datanode memory if it accepts. Sends nothing
/// if there is no memory to lend.
pub(super) async fn set_up(
    connection: &Connection,
    options: &MultiplexOptions,
    client_name: &str,
) -> Result<Handshake, ConnectionFailure> {
    let memory_bytes =
        options.memory_bytes.min(ReadMany::MEMORY_BYTES_MAX) / RESPONSE_BUFFER_BYTES * RESPONSE_BUFFER_BYTES;
    if memory_bytes == 0 {
        return Ok(Handshake::default());
    }
    let (shared_memory, descriptor) = match SharedMemory::new(memory_bytes) {
        Ok(made) => made,
        Err(error) => {
            tracing::info!(%error, memory_bytes, "no memory to lend to the datanode, using its socket");
            return Ok(Handshake::default());
        }
    };
    let request = Operation::ReadMany(ReadMany { client_name: client_name.to_owned(), memory_bytes });
    connection.write_all(&request.encode(), options.timeouts.write).await?;
    let takes = terms(connection, options).await?;
    if takes {
        connection.send_with_descriptors(&[0], &[descriptor.as_fd()], options.timeouts.write).await?;
    }
    Ok(Handshake { has_terms: true, shared_memory: takes.then_some(shared_memory) })
}

/// State of a connection before it carries ranges.
#[derive(Debug, Default)]
pub(super) struct Handshake {
    /// The request was sent, and the terms were received.
    pub has_terms: bool,
    pub shared_memory: Option<Arc<SharedMemory>>,
}

/// Receives the terms. Returns true if the datanode accepts the memory. Receives not a byte after the terms.
async fn terms(connection: &Connection, options: &MultiplexOptions) -> Result<bool, ConnectionFailure> {
    let mut buffer = ReceiveBuffer::new(256, ReadMany::HEAD_BYTES_MAX + 16);
    let failed = |source: MessageError| ConnectionFailure::misbehaviour(connection.peer(), source.to_string());
    let terms = receive_message(connection, &mut buffer, ReadManyTerms::decode, options.timeouts.read, failed).await?;
    match terms {
        ReadManyTerms::Accepted { takes_memory, .. } => Ok(takes_memory),
        ReadManyTerms::Refused(refusal) => Err(ConnectionFailure::refused(connection.peer(), &refusal)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_return_when_their_bytes_are_dropped() {
        let (shared_memory, _descriptor) = SharedMemory::new(3 * RESPONSE_BUFFER_BYTES).unwrap();
        let places: Vec<_> = (0..3).map(|_| shared_memory.take(32 << 10).unwrap()).collect();
        let mut offsets: Vec<_> = places.iter().map(|place| place.name().offset).collect();
        offsets.sort_unstable();
        assert_eq!(offsets, [0, RESPONSE_BUFFER_BYTES, 2 * RESPONSE_BUFFER_BYTES]);
        assert!(shared_memory.take(32 << 10).is_none());

        let spec = hearth_types::ChecksumSpec::DEFAULT;
        let piece = |data_bytes| RangePiece {
            stamp: hearth_types::GenerationStamp(1),
            replica_length: 0,
            checksum: spec,
            offset: 0,
            data_bytes,
            placed: true,
        };
        let mut places = places.into_iter();
        let mut body = places.next().unwrap().filled(&piece(1000)).unwrap();
        assert_eq!(body.len(), 1008);
        let checksums = body.split_to(8);
        drop(body);
        assert!(shared_memory.take(4096).is_none(), "the CRCs are still held");
        drop(checksums);
        let again = shared_memory.take(4096).unwrap();
        assert!(places.next().unwrap().filled(&piece(RESPONSE_BUFFER_BYTES as u32)).is_none());
        drop((again, places));
        assert_eq!(shared_memory.free.lock().len(), 3);
    }

    #[test]
    fn short_and_long_answers_get_no_slot() {
        let (shared_memory, _descriptor) = SharedMemory::new(RESPONSE_BUFFER_BYTES).unwrap();
        assert!(
            shared_memory.take(100).is_none()
                && shared_memory.take(SMALL_BYTES + 1).is_none()
                && shared_memory.take(SMALL_BYTES).is_some()
        );
    }
}
