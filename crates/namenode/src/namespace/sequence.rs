//! Compact list of blocks of a closed file in the regular form that a writer produces. All blocks are complete and of
//! equal length except the last one. Ids and stamps are stored relative to the first block's. Each block after the
//! first takes six bytes.

use hearth_types::{Block, BlockId, GenerationStamp};

use super::file::{BlockRecord, RecordState};
use crate::packed::Number;

#[derive(Debug)]
pub struct Sequence {
    id: Number<5>,
    stamp: Number<5>,
    /// Length of every block except the last one.
    length: Number<5>,
    last_length: Number<5>,
    further: Box<[Further]>,
}

/// Offsets of a block's id and stamp from those of the first block. They may reach sixteen million, which leaves room
/// for blocks of other files in between.
#[derive(Clone, Copy, Debug)]
struct Further {
    id: Number<3>,
    stamp: Number<3>,
}

impl Sequence {
    /// `None` if the blocks do not have this form, or if there are fewer than two.
    pub(super) fn new(blocks: &[BlockRecord]) -> Option<Self> {
        let [first, further @ ..] = blocks else { return None };
        let last = further.last()?;
        let is_usual = blocks.iter().all(|block| block.state == RecordState::Complete)
            && further[..further.len() - 1].iter().all(|block| block.length == first.length);
        if !is_usual {
            return None;
        }
        let first_id = u64::try_from(first.id.0).ok()?;
        let further = further.iter().map(|block| {
            let id = u64::try_from(block.id.0).ok()?.checked_sub(first_id)?;
            let stamp = block.stamp().0.checked_sub(first.stamp().0)?;
            Some(Further { id: Number::new(id)?, stamp: Number::new(stamp)? })
        });
        Some(Self {
            id: Number::new(first_id)?,
            stamp: Number::new(first.stamp().0)?,
            length: Number::new(first.length)?,
            last_length: Number::new(last.length)?,
            further: further.collect::<Option<_>>()?,
        })
    }

    /// Returns the number of blocks, at least two.
    pub(super) fn len(&self) -> usize {
        1 + self.further.len()
    }

    pub(super) fn get(&self, place: usize) -> Option<BlockRecord> {
        let further = match place.checked_sub(1) {
            None => Further { id: Number::ZERO, stamp: Number::ZERO },
            Some(place) => *self.further.get(place)?,
        };
        let length = if place == self.further.len() { self.last_length } else { self.length };
        let block = Block {
            id: BlockId((self.id.get() + further.id.get()) as i64),
            stamp: GenerationStamp(self.stamp.get() + further.stamp.get()),
            length: length.get(),
        };
        Some(BlockRecord::new(block, RecordState::Complete))
    }
}
