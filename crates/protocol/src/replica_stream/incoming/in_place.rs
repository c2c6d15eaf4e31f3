//! Receives directly into the destination: each call puts a frame's data straight into its replica's memory and
//! verifies it there while it is in the cache. That takes one copy, instead of one into a buffer and another out of it.

use std::collections::HashMap;

use hearth_types::ChecksumSpec;
use hearth_wire::data_transfer::{ReplicaRefusal, Status};
use tokio::time::Instant;

use super::{Frame, Replica, StreamReceiver, checksums_of};
use crate::replica_stream::{
    IN_PLACE_BYTES_MAX, InPlace, NotAccepted, ReplicaSink, ReplicaStore, StreamError, corrupt,
};

/// Maximum length of the next frame's header and CRCs that is received together with the end of the data before it.
const LEAD_BYTES_MAX: usize = 64 << 10;

/// Minimum amount of outstanding data for which a separate call pays off.
const LEFT_BYTES_MIN: u32 = 8 << 10;

/// Result of an attempt to receive in place.
pub(super) enum InPlaceRead {
    /// The next bytes cannot be received in place.
    NotHere,
    /// Number of bytes; 0 is the end of the stream, `None` means that nothing is available yet.
    Received(Option<usize>),
}

impl<S: ReplicaStore> StreamReceiver<'_, S> {
    /// Receives once, if a frame's data comes next and its replica accepts it in place. Together with the end of the
    /// data, also receives the next frame's header and CRCs.
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
                // The unverified bytes there are no longer accessible.
                let refusal = ReplicaRefusal::new(Status::Error, "the memory of the replica is no longer available");
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
                    // The data before it was verified.
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

    /// Refuses the replica; the unverified bytes of the frame count as dropped.
    fn refuse_unverified(&mut self, frame: &mut Frame, refusal: ReplicaRefusal) {
        frame.done += frame.unverified;
        frame.unverified = 0;
        self.refuse(frame.piece.replica, refusal);
    }

    /// Returns true if a frame's data should be received in place once its buffered part is stored.
    pub(super) fn can_receive_in_place_next(&mut self) -> bool {
        self.frame.as_ref().is_some_and(|frame| frame.has_checksums() && place_for(&mut self.replicas, frame).is_some())
    }

    /// Receives into the buffer, but not past the start of the next data, which may be received in place. `wanted`:
    /// number of bytes that the buffer should then hold.
    pub(super) fn fill_up_to_data(&mut self, wanted: usize) -> Result<Option<usize>, StreamError> {
        let wanted = if self.frame.is_none() { wanted.max(self.lead_bytes.min(LEAD_BYTES_MAX)) } else { wanted };
        let received = self.connection.try_read(self.buffer.spare(self.connection, wanted)?)?;
        self.buffer.received(received.unwrap_or(0));
        Ok(received)
    }
}

/// Returns the memory for in-place reception of the frame's remaining data, and the checksum parameters.
fn place_for<'a, K: ReplicaSink>(
    replicas: &'a mut HashMap<u32, Replica<K>>,
    frame: &Frame,
) -> Option<(ChecksumSpec, &'a mut dyn InPlace)> {
    let piece = frame.piece;
    let replica = replicas.get_mut(&piece.replica).filter(|replica| !replica.ends && replica.held.is_empty())?;
    let left = piece.data_bytes - frame.done;
    let begun = frame.unverified > 0 || left >= LEFT_BYTES_MIN;
    let at = piece.offset + u64::from(frame.done);
    let is_next = |sink: &&mut K| sink.can_store_now(left as usize) && sink.received() == at;
    let sink = replica.sink.as_mut().filter(|_| begun && frame.held.is_empty()).filter(is_next)?;
    Some((replica.checksum, sink.in_place(piece.end())?))
}
