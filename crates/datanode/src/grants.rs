//! Memory kept ahead of a writer that fills it itself.

use hearth_blockstore::{ReplicaWriter, StoreError};

/// The first grant; each further one doubles what is granted, up to a slice at once: a block that stays short shall not
/// take much. Grants then end where huge pages do, as far as the slice does: memory on a tmpfs that has them is allocated in these.
const FIRST_BYTES: u64 = 1 << 20;

/// How much of a replica's memory its writer has been granted, and how much comes next.
pub struct Grants {
    step: u64,
    step_max: u64,
    /// The writer says that the block becomes no longer; `u64::MAX` when it says nothing.
    block_bytes: u64,
    /// Memory is full: the writer goes on with packets that carry their data.
    ended: bool,
}

impl Grants {
    /// `slice_bytes`: most that is granted at once. `block_bytes`: as the writer says, 0 when it does not.
    pub fn new(slice_bytes: u64, block_bytes: u64) -> Self {
        let block_bytes = if block_bytes == 0 { u64::MAX } else { block_bytes };
        let step_max = slice_bytes.max(1).min(block_bytes);
        Self { step: FIRST_BYTES.min(step_max), step_max, block_bytes, ended: false }
    }

    /// Grants the next memory when the writer has less than that ahead. What it is to be told: up to where it may fill,
    /// or 0 when there is no more to come. `None`: nothing new.
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
