//! Grants of memory ahead of a writer that fills the memory itself.

use hearth_blockstore::{ReplicaWriter, StoreError};

/// Size of the first grant. Each further grant doubles the granted memory, up to one slice at once, so that a short
/// block takes little. Grants then end on huge-page boundaries where the slice does: a tmpfs with huge pages allocates
/// in these.
const FIRST_BYTES: u64 = 1 << 20;

/// Maximum data bytes of one packet that a local writer has put in place: the maximum that a packet sent downstream can
/// carry.
pub const IN_PLACE_BYTES_MAX: usize = 8 << 20;

/// Memory granted to the writer of a replica, and the size of the next grant.
pub struct Grants {
    step: u64,
    step_max: u64,
    /// Maximum length of the block as announced by the writer; `u64::MAX` if it announced none.
    block_bytes: u64,
    /// True when memory is full: the writer continues with packets that carry their data.
    ended: bool,
}

impl Grants {
    /// `slice_bytes`: maximum size of one grant. `block_bytes`: length that the writer announced, 0 if none.
    pub fn new(slice_bytes: u64, block_bytes: u64) -> Self {
        let block_bytes = if block_bytes == 0 { u64::MAX } else { block_bytes };
        let step_max = slice_bytes.max(1).min(block_bytes);
        Self { step: FIRST_BYTES.min(step_max), step_max, block_bytes, ended: false }
    }

    /// Grants more memory when the writer has less than the next step ahead. Returns the value to send to the writer:
    /// the offset up to which it may fill, or 0 when no more will be granted. `None`: nothing changed.
    pub fn extend(&mut self, writer: &mut ReplicaWriter) -> Result<Option<u64>, StoreError> {
        let before = writer.granted().max(writer.received());
        if self.ended || before >= self.block_bytes || before - writer.received() >= self.step {
            return Ok(None);
        }
        let wanted = before.saturating_add(self.step).min(self.block_bytes);
        let granted = writer.grant(wanted)?;
        self.step = granted.max(FIRST_BYTES).min(self.step_max);
        if granted > before {
            return Ok(Some(granted));
        }
        self.ended = true;
        Ok(Some(0))
    }
}
