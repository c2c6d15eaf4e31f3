//! How much a replica is read: decides which replicas leave memory, and which are read back into it.

/// Number of reads from disk before a replica is read back: a single one may be a copy in transit.
const READS: u8 = 2;

/// Record of the reads of a replica.
#[derive(Default)]
pub struct Eviction {
    /// Read since the clock hand last passed.
    referenced: bool,
    /// Number of readers that were served from disk since the replica was last in memory.
    disk_reads: u8,
    /// Queued to be read back into memory, and not processed yet.
    is_read_back_queued: bool,
}

impl Eviction {
    /// A reader was opened, or the replica was read back for readers.
    pub fn reference(&mut self) {
        self.referenced = true;
    }

    /// The clock hand passes. Returns whether the replica was read since it last did.
    pub fn pass(&mut self) -> bool {
        std::mem::take(&mut self.referenced)
    }

    /// A reader was served from disk. Returns whether the replica is worth reading back, and is not queued yet.
    pub fn read_from_disk(&mut self) -> bool {
        self.disk_reads = self.disk_reads.saturating_add(1);
        !self.is_read_back_queued && self.disk_reads >= READS
    }

    /// The replica is queued to be read back.
    pub fn queue_read_back(&mut self) {
        self.is_read_back_queued = true;
    }

    /// The replica has left the queue.
    pub fn begin_read_back(&mut self) {
        self.is_read_back_queued = false;
    }

    /// The replica has left memory, or is about to be read into it: reads from disk are counted from now on.
    pub fn forget_disk_reads(&mut self) {
        self.disk_reads = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn second_read_from_disk_is_worth_a_read_back() {
        let mut reads = Eviction::default();
        assert!(!reads.read_from_disk());
        assert!(reads.read_from_disk());
        reads.queue_read_back();
        assert!(!reads.read_from_disk(), "it is queued once");
        reads.begin_read_back();
        reads.forget_disk_reads();
        assert!(!reads.read_from_disk());
        assert!(reads.read_from_disk());
    }

    #[test]
    fn reference_lasts_for_one_pass() {
        let mut reads = Eviction::default();
        assert!(!reads.pass());
        reads.reference();
        assert!(reads.pass() && !reads.pass());
    }
}
