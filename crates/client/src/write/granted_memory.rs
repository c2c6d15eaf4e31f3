//! Memory that a writer's bytes go to before they are sent. On the datanode's machine it is the datanode's own memory,
//! if granted. Otherwise it is registered memory of the client, from which the bytes are written to a remote datanode.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::sync::Arc;

use hearth_fabric::local::MappedRange;
use hearth_fabric::one_sided::Region;
use hearth_protocol::one_sided_write::WriteBuffers;
use hearth_types::ChecksumSpec;
use parking_lot::Mutex;

/// Memory into which bytes are written directly.
#[derive(Debug)]
pub(super) enum PacketMemory {
    /// The data file of a replica that is being written, lent by its datanode for one pipeline. Byte 0 of the block is
    /// at offset 0.
    ///
    /// The file and its bytes outlive the datanode and the pipeline for as long as it is held open.
    Lent {
        file: File,
        /// Page size of its memory: 4 KiB, or the size of huge pages.
        page_bytes: u64,
        /// Mapping that most likely contains the next packet's bytes, while no packet is being filled.
        window: Mutex<Option<MappedRange>>,
    },
    /// Registered memory of this client for one packet, from which its bytes go to the datanode's memory.
    Registered {
        /// `Some` until drop.
        region: Option<Arc<dyn Region>>,
        /// Offset of its first byte in the block.
        start: u64,
        buffers: Arc<WriteBuffers>,
    },
}

/// Bytes of lent memory mapped at once. A new window costs two system calls, and its touched pages count as this
/// process's memory.
const WINDOW_BYTES: u64 = 8 << 20;

/// Page size that the kernel reports for files whose memory is not in huge pages.
const SMALL_PAGE_BYTES: u64 = 4 << 10;

impl PacketMemory {
    pub(super) fn new(file: File) -> Arc<Self> {
        // For a tmpfs, `st_blksize` is the page size of its files.
        let page_bytes = file.metadata().map_or(SMALL_PAGE_BYTES, |about| about.blksize());
        Self::with_pages(file, page_bytes)
    }

    pub(super) fn with_pages(file: File, page_bytes: u64) -> Arc<Self> {
        Arc::new(Self::Lent { file, page_bytes, window: Mutex::new(None) })
    }

    /// Maps `range` of the block, which was granted, so that it can be filled in place. Return the mapping with `keep`.
    ///
    /// Returns `None` if the bytes must go there with `write` instead. This is so:
    /// - with small pages: the kernel would clear and map each page before it is filled, and a write that fills all of
    ///   it needs neither;
    /// - if the file does not contain the range, regardless of the grant;
    /// - if the next range is requested before the last one is returned.
    pub(super) fn window(&self, range: &Range<u64>) -> Option<MappedRange> {
        let Self::Lent { file, page_bytes, window } = self else { return None };
        if *page_bytes <= SMALL_PAGE_BYTES || file.metadata().ok()?.len() < range.end {
            return None;
        }
        if let Some(window) = window.lock().take()
            && window.covers(range)
        {
            return Some(window);
        }
        let at = range.start / page_bytes * page_bytes;
        let length = WINDOW_BYTES.max((range.end - at).next_multiple_of(*page_bytes));
        MappedRange::new(file, at, usize::try_from(length).ok()?).ok()
    }

    pub(super) fn keep(&self, used: MappedRange) {
        if let Self::Lent { window, .. } = self {
            *window.lock() = Some(used);
        }
    }

    /// Writes `bytes` at `offset` in the block. The range was granted, so this allocates nothing.
    pub(super) fn write(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        match self {
            Self::Lent { file, .. } => file.write_all_at(bytes, offset),
            Self::Registered { region, start, buffers } => {
                let (region, at) = within(region, *start, buffers, offset, bytes.len())?;
                region.memory().write(at, bytes);
                Ok(())
            }
        }
    }

    pub(super) fn read(&self, offset: u64, into: &mut [u8]) -> io::Result<()> {
        match self {
            Self::Lent { file, .. } => file.read_exact_at(into, offset),
            Self::Registered { region, start, buffers } => {
                let (region, at) = within(region, *start, buffers, offset, into.len())?;
                region.memory().read(at, into);
                Ok(())
            }
        }
    }

    /// Returns the registered memory, for a packet whose first byte is the memory's first byte.
    pub(super) fn region(&self) -> Option<&Arc<dyn Region>> {
        match self {
            Self::Lent { .. } => None,
            Self::Registered { region, .. } => region.as_ref(),
        }
    }
}

fn within<'a>(
    region: &'a Option<Arc<dyn Region>>,
    start: u64,
    buffers: &WriteBuffers,
    offset: u64,
    length: usize,
) -> io::Result<(&'a Arc<dyn Region>, u64)> {
    let at = offset.checked_sub(start).filter(|at| at + length as u64 <= buffers.data_bytes());
    region.as_ref().zip(at).ok_or_else(|| io::ErrorKind::InvalidInput.into())
}

impl Drop for PacketMemory {
    fn drop(&mut self) {
        if let Self::Registered { region, buffers, .. } = self
            && let Some(region) = region.take()
        {
            buffers.give_back(region);
        }
    }
}

/// Room for the bytes of one packet in a datanode's memory.
#[derive(Clone, Debug)]
pub(super) struct GrantedRange {
    pub memory: Arc<PacketMemory>,
    /// Offset of its first byte in the block.
    pub offset: u64,
    /// Bytes granted from `offset` on.
    pub room: u64,
}

impl GrantedRange {
    /// Returns its room, at most `most`.
    pub(super) fn at_most(&self, most: usize) -> usize {
        self.room.min(most as u64) as usize
    }

    /// Returns the range in the block of the packet's bytes from `from` to `to`.
    pub(super) fn part(&self, from: usize, to: usize) -> Range<u64> {
        self.offset + from as u64..self.offset + to as u64
    }
}

/// Memory granted for the current block, as far as the writer knows.
#[derive(Clone, Debug, Default)]
pub(super) enum GrantedMemory {
    /// The block has no pipeline yet.
    #[default]
    Unknown,
    /// The block's bytes are sent in packets.
    Packets,
    /// Bytes may be put in the datanode's memory, up to `granted` bytes of the block.
    Local { memory: Arc<PacketMemory>, granted: u64, more: bool },
    /// Bytes are gathered in registered memory and written from there to the datanode's memory, up to `granted` bytes
    /// of the block.
    Remote { buffers: Arc<WriteBuffers>, granted: u64, more: bool },
}

impl GrantedMemory {
    /// Records the grant in an acknowledgement: see `PipelineAck::granted`.
    pub(super) fn grant(&mut self, told: u64) {
        if let Self::Local { granted, more, .. } | Self::Remote { granted, more, .. } = self {
            *granted = (*granted).max(told);
            *more &= told != 0;
        }
    }

    /// Returns room for bytes from `offset` on. A packet ends at a chunk boundary, or at the end of the block.
    pub(super) fn range_at(&self, offset: u64, block_size: u64, checksum: ChecksumSpec) -> Option<GrantedRange> {
        let (Self::Local { granted, .. } | Self::Remote { granted, .. }) = self else { return None };
        let chunk = u64::from(checksum.bytes_per_chunk);
        let end = if *granted >= block_size { block_size } else { granted / chunk * chunk };
        // An offset within a chunk that is not carried over comes from an append, which has no memory to fill.
        let room = end.checked_sub(offset).filter(|room| *room > 0 && offset.is_multiple_of(chunk))?;
        match self {
            Self::Local { memory, .. } => Some(GrantedRange { memory: Arc::clone(memory), offset, room }),
            Self::Remote { buffers, .. } => {
                let (region, buffers) = (Some(buffers.take().ok()?), Arc::clone(buffers));
                let room = room.min(buffers.data_bytes());
                Some(GrantedRange {
                    memory: Arc::new(PacketMemory::Registered { region, start: offset, buffers }),
                    offset,
                    room,
                })
            }
            Self::Unknown | Self::Packets => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn range_ends_at_last_granted_chunk() {
        let memory = PacketMemory::new(tempfile::tempfile().unwrap());
        let mut granted_memory = GrantedMemory::Local { memory, granted: 1000, more: true };
        let room = |granted_memory: &GrantedMemory, offset| {
            granted_memory.range_at(offset, 5000, ChecksumSpec::DEFAULT).map(|granted_range| granted_range.room)
        };
        assert_eq!(room(&granted_memory, 0), Some(512));
        assert_eq!(room(&granted_memory, 512), None);
        assert_eq!(room(&granted_memory, 100), None);
        granted_memory.grant(4096);
        assert_eq!(room(&granted_memory, 512), Some(3584));
        granted_memory.grant(5000);
        assert_eq!(room(&granted_memory, 4608), Some(392), "to the end of the block");
        granted_memory.grant(0);
        assert!(matches!(granted_memory, GrantedMemory::Local { granted: 5000, more: false, .. }));
        assert_eq!(room(&GrantedMemory::Packets, 0), None);
    }
}
