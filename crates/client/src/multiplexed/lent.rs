//! Memory that this client lends a datanode on its machine: what it asks for is put there, and only heads go over the socket.
//!
//! A place belongs to one range from when it is asked for until its answer has been copied out by whoever waited, or thrown away because
//! nobody did. Nothing else is put there meanwhile, whatever becomes of who waits. When the connection ends, no place of its memory is
//! given out again: what the datanode may still write is read by nobody.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use bytes::Bytes;
use hearth_fabric::Memory;
use hearth_fabric::local::Map;
use hearth_fabric::stream::{Connection, ReceiveBuffer};
use hearth_protocol::data_transfer::receive_alone;
use hearth_wire::data_transfer::{self as wire, ManyPiece, ManyTerms, MessageError, Operation, ReadMany};
use parking_lot::Mutex;

use super::MultiplexOptions;
use super::link::Failure;
use crate::local::SMALL_BYTES;

/// Room for the longest small replica and its CRCs, as they usually are. What does not fit comes over the socket.
const PLACE_BYTES: u64 = SMALL_BYTES + (4 << 10);

/// Below it a copy through the socket costs nothing beside what else a read costs, and leaves the place to another.
const LEAST_BYTES: u64 = 2 << 10;

/// The memory of one connection.
#[derive(Debug)]
pub(super) struct Lent {
    map: Map,
    /// The last one given back is given out first: its bytes are in the processor's cache.
    free: Mutex<Vec<u32>>,
}

impl Lent {
    fn new(bytes: u64) -> io::Result<(Arc<Self>, OwnedFd)> {
        let memory = Memory::sealed(bytes)?;
        let map = Map::new(&memory, bytes)?;
        let places = u32::try_from(bytes / PLACE_BYTES).unwrap_or(u32::MAX);
        Ok((Arc::new(Self { map, free: Mutex::new((0..places).rev().collect()) }), memory))
    }

    /// A place for an answer with `bytes` of data, unless they are few or there is none.
    pub(super) fn take(self: &Arc<Self>, bytes: u64) -> Option<Place> {
        if !(LEAST_BYTES..=SMALL_BYTES).contains(&bytes) {
            return None;
        }
        let index = self.free.lock().pop()?;
        Some(Place { lent: Arc::clone(self), index })
    }
}

/// Part of the memory. Given back when it is dropped.
#[derive(Debug)]
pub(super) struct Place {
    lent: Arc<Lent>,
    index: u32,
}

impl Place {
    /// As the datanode is told of it.
    pub(super) fn name(&self) -> wire::Place {
        wire::Place { offset: self.start(), bytes: PLACE_BYTES as u32 }
    }

    fn start(&self) -> u64 {
        u64::from(self.index) * PLACE_BYTES
    }

    /// CRCs and data that the datanode says it has put here. They go back when the last part of them is dropped.
    ///
    /// `None`: that is more than there is room for.
    pub(super) fn filled(self, piece: &ManyPiece) -> Option<Bytes> {
        let bytes = piece.body_bytes();
        (bytes as u64 <= PLACE_BYTES).then(|| Bytes::from_owner(Filled { place: self, bytes }))
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.lent.free.lock().push(self.index);
    }
}

struct Filled {
    place: Place,
    bytes: usize,
}

impl AsRef<[u8]> for Filled {
    fn as_ref(&self) -> &[u8] {
        let start = self.place.start() as usize;
        &self.place.lent.map.bytes()[start..start + self.bytes]
    }
}

/// Makes `connection`, over a domain socket, one of many reads, and lends the datanode memory for them if it takes any. Without memory to
/// lend nothing is said.
pub(super) async fn lend(
    connection: &Connection,
    options: &MultiplexOptions,
    client_name: &str,
) -> Result<Begun, Failure> {
    let memory_bytes = options.memory_bytes.min(ReadMany::MEMORY_BYTES_MAX) / PLACE_BYTES * PLACE_BYTES;
    if memory_bytes == 0 {
        return Ok(Begun::default());
    }
    let (lent, descriptor) = match Lent::new(memory_bytes) {
        Ok(made) => made,
        Err(error) => {
            tracing::info!(%error, memory_bytes, "no memory to lend a datanode: answers come over its socket");
            return Ok(Begun::default());
        }
    };
    let request = Operation::ReadMany(ReadMany { client_name: client_name.to_owned(), memory_bytes });
    connection.write_all(&request.encode(), options.timeouts.write).await?;
    let takes = terms(connection, options).await?;
    if takes {
        connection.send_with_descriptors(&[0], &[descriptor.as_fd()], options.timeouts.write).await?;
    }
    Ok(Begun { has_terms: true, lent: takes.then_some(lent) })
}

/// What has been settled on a connection before it carries ranges.
#[derive(Debug, Default)]
pub(super) struct Begun {
    /// The request was sent, and the terms have come.
    pub has_terms: bool,
    pub lent: Option<Arc<Lent>>,
}

/// Whether the datanode takes the memory; not a byte behind its terms is received.
async fn terms(connection: &Connection, options: &MultiplexOptions) -> Result<bool, Failure> {
    let mut buffer = ReceiveBuffer::new(256, ReadMany::HEAD_BYTES_MAX + 16);
    let failed = |source: MessageError| Failure::misbehaviour(connection.peer(), source.to_string());
    let terms = receive_alone(connection, &mut buffer, ManyTerms::decode, options.timeouts.read, failed).await?;
    match terms {
        ManyTerms::Taken { takes_memory, .. } => Ok(takes_memory),
        ManyTerms::Refused(refusal) => Err(Failure::refused(connection.peer(), &refusal)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_given_out_once_and_come_back_when_what_lies_there_is_dropped() {
        let (lent, _descriptor) = Lent::new(3 * PLACE_BYTES).unwrap();
        let places: Vec<_> = (0..3).map(|_| lent.take(32 << 10).unwrap()).collect();
        let mut offsets: Vec<_> = places.iter().map(|place| place.name().offset).collect();
        offsets.sort_unstable();
        assert_eq!(offsets, [0, PLACE_BYTES, 2 * PLACE_BYTES]);
        assert!(lent.take(32 << 10).is_none());

        let spec = hearth_types::ChecksumSpec::DEFAULT;
        let piece = |data_bytes| ManyPiece {
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
        assert!(lent.take(4096).is_none(), "the CRCs are still held");
        drop(checksums);
        let again = lent.take(4096).unwrap();
        assert!(places.next().unwrap().filled(&piece(PLACE_BYTES as u32)).is_none());
        drop((again, places));
        assert_eq!(lent.free.lock().len(), 3);
    }

    #[test]
    fn short_and_long_answers_need_no_place() {
        let (lent, _descriptor) = Lent::new(PLACE_BYTES).unwrap();
        assert!(lent.take(100).is_none() && lent.take(SMALL_BYTES + 1).is_none() && lent.take(SMALL_BYTES).is_some());
    }
}
