//! Receiving to where bytes will lie: what a call brings of a frame's data goes straight into its replica's memory and is verified
//! there, while it is in the cache. That is one copy, instead of one into a buffer and another out of it.

use std::collections::HashMap;

use hearth_types::ChecksumSpec;
use hearth_wire::data_transfer::{ReplicaRefusal, Status};
use tokio::time::Instant;

use super::{Frame, Intake, Replica, checksums_of};
use crate::replica_stream::{InPlace, LANDING_BYTES, NotAccepted, ReplicaSink, ReplicaStore, StreamError, corrupt};

/// At most so much of what stands before a frame's data is received with the end of the data before it.
const LEAD_BYTES_MAX: usize = 64 << 10;

/// Less data that has not come yet is not worth a call of its own.
const LEFT_BYTES_MIN: u32 = 8 << 10;

/// What became of a look for bytes that can be received in place.
pub(super) enum Landing {
    /// What comes next is nothing that can be.
    NotHere,
    /// Bytes, the end of the stream (none), or nothing that is there yet.
    Received(Option<usize>),
}

impl<S: ReplicaStore> Intake<'_, S> {
    /// Receives once, if it is a frame's data that comes next and its replica takes that in place; with its end, what stands before the next
    /// frame's as well.
    pub(super) fn fill_in_place(&mut self) -> Result<Landing, StreamError> {
        let Some(mut frame) = self.frame.take_if(|frame| self.buffer.available().is_empty() && frame.has_checksums())
        else {
            return Ok(Landing::NotHere);
        };
        let landing = self.land(&mut frame);
        let whole = frame.done == frame.piece.data_bytes;
        self.end_of(frame, whole)?;
        landing
    }

    fn land(&mut self, frame: &mut Frame) -> Result<Landing, StreamError> {
        let piece = frame.piece;
        let at = piece.offset + u64::from(frame.done);
        let left = (piece.data_bytes - frame.done - frame.landed) as usize;
        let Some((spec, place)) = place_for(&mut self.replicas, frame) else {
            if frame.landed > 0 {
                // What came there cannot be looked at any more.
                let refusal = ReplicaRefusal::new(Status::Error, "the memory that it was received into is gone");
                self.refuse_landed(frame, refusal);
            }
            return Ok(Landing::NotHere);
        };
        let length = left.min(LANDING_BYTES);
        let behind = if length == left { frame.lead_bytes.min(LEAD_BYTES_MAX) } else { 0 };
        let behind = self.buffer.spare(self.connection, behind)?;
        let landing_at = at + u64::from(frame.landed);
        let received = match self.connection.try_receive(|socket| place.receive(landing_at, length, socket, behind)) {
            Ok(received) => received?,
            Err(refusal) => {
                self.refuse_landed(frame, refusal);
                return Ok(Landing::NotHere);
            }
        };
        let Some(bytes) = received.filter(|bytes| *bytes > 0) else { return Ok(Landing::Received(received)) };
        let own = bytes.min(length);
        self.buffer.received(bytes - own);
        frame.in_place = true;
        self.moved = Instant::now();
        frame.landed += own as u32;
        let chunk = spec.bytes_per_chunk;
        let take = if own == left { frame.landed } else { frame.landed - frame.landed % chunk };
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
                self.refuse_landed(frame, refusal);
            } else {
                frame.done += take;
                frame.landed -= take;
            }
        }
        Ok(Landing::Received(received))
    }

    /// What has landed of a frame counts as dropped.
    fn refuse_landed(&mut self, frame: &mut Frame, refusal: ReplicaRefusal) {
        frame.done += frame.landed;
        frame.landed = 0;
        self.refuse(frame.piece.replica, refusal);
    }

    /// Whether a frame's data had better come in place once what is in the buffer of it is stored.
    pub(super) fn lands_soon(&mut self) -> bool {
        self.frame.as_ref().is_some_and(|frame| frame.has_checksums() && place_for(&mut self.replicas, frame).is_some())
    }

    /// Receives into the buffer, and no further than to the next data: that may come in place. `wanted`: bytes to be in the buffer then.
    pub(super) fn fill_no_further(&mut self, wanted: usize) -> Result<Option<usize>, StreamError> {
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
    let begun = frame.landed > 0 || piece.data_bytes - frame.done >= LEFT_BYTES_MIN;
    let is_next = |sink: &&mut K| sink.is_quick() && sink.received() == piece.offset + u64::from(frame.done);
    let sink = replica.sink.as_mut().filter(|_| begun && frame.held.is_empty()).filter(is_next)?;
    Some((replica.checksum, sink.in_place(piece.end())?))
}
