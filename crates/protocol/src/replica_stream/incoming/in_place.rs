//! Receiving to where bytes will lie: what a call brings of a frame's data goes straight into its replica's memory and is verified
//! there, while it is in the cache. That is one copy, instead of one into a buffer and another out of it.

use std::collections::HashMap;

use hearth_types::ChecksumSpec;
use hearth_wire::data_transfer::{ReplicaRefusal, Status};
use tokio::time::Instant;

use super::{Frame, Replica, StreamReceiver, checksums_of};
use crate::replica_stream::{
    IN_PLACE_BYTES_MAX, InPlace, NotAccepted, ReplicaSink, ReplicaStore, StreamError, corrupt,
};

/// At most so much of what stands before a frame's data is received with the end of the data before it.
const LEAD_BYTES_MAX: usize = 64 << 10;

/// Less data that has not come yet is not worth a call of its own.
const LEFT_BYTES_MIN: u32 = 8 << 10;

/// What became of a look for bytes that can be received in place.
pub(super) enum InPlaceRead {
    /// What comes next is nothing that can be.
    NotHere,
    /// Bytes, the end of the stream (none), or nothing that is there yet.
    Received(Option<usize>),
}

impl<S: ReplicaStore> StreamReceiver<'_, S> {
    /// Receives once, if it is a frame's data that comes next and its replica takes that in place; with its end, what stands before the next
    /// frame's as well.
    pub(super) fn fill_in_place(&mut self) -> Result<InPlaceRead, StreamError> {
        let Some(mut frame) = self.frame.take_if(|frame| self.buffer.available().is_empty() && frame.has_checksums())
        else {
            return Ok(InPlaceRead::NotHere);
        };
        let landing = self.receive_in_place(&mut frame);
        let whole = frame.done == frame.piece.data_bytes;
        self.end_frame(frame, whole)?;
        landing
    }

    fn receive_in_place(&mut self, frame: &mut Frame) -> Result<InPlaceRead, StreamError> {
        let piece = frame.piece;
        let at = piece.offset + u64::from(frame.done);
        let left = (piece.data_bytes - frame.done - frame.unverified) as usize;
        let Some((spec, place)) = place_for(&mut self.replicas, frame) else {
            if frame.unverified > 0 {
                // What came there cannot be looked at any more.
                let refusal = ReplicaRefusal::new(Status::Error, "the memory that it was received into is gone");
                self.refuse_unverified(frame, refusal);
            }
            return Ok(InPlaceRead::NotHere);
        };
        let length = left.min(IN_PLACE_BYTES_MAX);
        let behind = if length == left { frame.lead_bytes.min(LEAD_BYTES_MAX) } else { 0 };
        let behind = self.buffer.spare(self.connection, behind)?;
        let receive_at = at + u64::from(frame.unverified);
        let received = match self.connection.try_receive(|socket| place.receive(receive_at, length, socket, behind)) {
            Ok(received) => received?,
            Err(refusal) => {
                self.refuse_unverified(frame, refusal);
                return Ok(InPlaceRead::NotHere);
            }
        };
        let Some(bytes) = received.filter(|bytes| *bytes > 0) else { return Ok(InPlaceRead::Received(received)) };
        let own = bytes.min(length);
        self.buffer.received(bytes - own);
        frame.in_place = true;
        self.progress_at = Instant::now();
        frame.unverified += own as u32;
        let chunk = spec.bytes_per_chunk;
        let take = if own == left { frame.unverified } else { frame.unverified - frame.unverified % chunk };
        if take > 0 {
            let checksums = checksums_of(spec, &frame.checksums, frame.done, take as usize);
            let refusal = match place.accept(take as usize, checksums) {
                Ok(()) => None,
                Err(NotAccepted::Refused(refusal)) => Some(refusal),
                Err(NotAccepted::Corrupt(error)) => {
                    // What came before it was verified.
                    if let Some(sink) = self.replicas.get_mut(&piece.replica).and_then(|replica| replica.sink.take()) {
                        sink.keep();
                    }
                    Some(corrupt(at, &error))
                }
            };
            if let Some(refusal) = refusal {
                self.refuse_unverified(frame, refusal);
            } else {
                frame.done += take;
                frame.unverified -= take;
            }
        }
        Ok(InPlaceRead::Received(received))
    }

    /// What has landed of a frame counts as dropped.
    fn refuse_unverified(&mut self, frame: &mut Frame, refusal: ReplicaRefusal) {
        frame.done += frame.unverified;
        frame.unverified = 0;
        self.refuse(frame.piece.replica, refusal);
    }

    /// Whether a frame's data had better come in place once what is in the buffer of it is stored.
    pub(super) fn can_receive_in_place_next(&mut self) -> bool {
        self.frame.as_ref().is_some_and(|frame| frame.has_checksums() && place_for(&mut self.replicas, frame).is_some())
    }

    /// Receives into the buffer, and no further than to the next data: that may come in place. `wanted`: bytes to be in the buffer then.
    pub(super) fn fill_up_to_data(&mut self, wanted: usize) -> Result<Option<usize>, StreamError> {
        let wanted = if self.frame.is_none() { wanted.max(self.lead_bytes.min(LEAD_BYTES_MAX)) } else { wanted };
        let received = self.connection.try_read(self.buffer.spare(self.connection, wanted)?)?;
        self.buffer.received(received.unwrap_or(0));
        Ok(received)
    }
}

/// Where what is left of a frame's data can be received in place, and what its CRCs are.
fn place_for<'a, K: ReplicaSink>(
    replicas: &'a mut HashMap<u32, Replica<K>>,
    frame: &Frame,
) -> Option<(ChecksumSpec, &'a mut dyn InPlace)> {
    let piece = frame.piece;
    let replica = replicas.get_mut(&piece.replica).filter(|replica| !replica.ends && replica.held.is_empty())?;
    let begun = frame.unverified > 0 || piece.data_bytes - frame.done >= LEFT_BYTES_MIN;
    let is_next = |sink: &&mut K| sink.can_store_now() && sink.received() == piece.offset + u64::from(frame.done);
    let sink = replica.sink.as_mut().filter(|_| begun && frame.held.is_empty()).filter(is_next)?;
    Some((replica.checksum, sink.in_place(piece.end())?))
}
