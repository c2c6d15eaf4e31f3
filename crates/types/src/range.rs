/// Byte range `[start, end)` of a block or file.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct ByteRange {
    start: u64,
    end: u64,
}

impl ByteRange {
    /// Returns `None` if `start > end`.
    pub fn new(start: u64, end: u64) -> Option<Self> {
        (start <= end).then_some(Self { start, end })
    }

    /// Returns `None` if `start + length` overflows.
    pub fn with_length(start: u64, length: u64) -> Option<Self> {
        Some(Self { start, end: start.checked_add(length)? })
    }

    pub fn start(self) -> u64 {
        self.start
    }

    pub fn end(self) -> u64 {
        self.end
    }

    pub fn length(self) -> u64 {
        self.end - self.start
    }

    pub fn is_empty(self) -> bool {
        self.start == self.end
    }

    /// Returns the smallest range of whole chunks that contains this one, cut at `limit` (the replica's length).
    ///
    /// Reads on the wire start and end on a chunk boundary, so that a whole CRC covers every byte sent. `chunk`: bytes
    /// per checksum, not 0.
    pub fn widened(self, chunk: u32, limit: u64) -> Self {
        let chunk = u64::from(chunk);
        assert!(chunk > 0, "a chunk has at least one byte");
        let start = self.start / chunk * chunk;
        let end = self.end.div_ceil(chunk).saturating_mul(chunk).min(limit).max(self.end);
        Self { start, end }
    }

    /// Returns the part in both ranges, or `None` if they share no byte.
    pub fn intersection(self, other: Self) -> Option<Self> {
        let start = self.start.max(other.start);
        let end = self.end.min(other.end);
        (start < end).then_some(Self { start, end })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn widening_covers_the_range_and_stops_at_the_limit() {
        let range = ByteRange::new(513, 600).unwrap();
        assert_eq!(range.widened(512, 10_000), ByteRange::new(512, 1024).unwrap());
        assert_eq!(range.widened(512, 700), ByteRange::new(512, 700).unwrap());
        assert_eq!(ByteRange::new(0, 0).unwrap().widened(512, 0).length(), 0);
        assert_eq!(ByteRange::new(5, 4), None);
        assert_eq!(ByteRange::with_length(u64::MAX, 1), None);
    }
}
