use hearth_types::ByteRange;

/// Progress of a stream through the range of a block that it reads: the bytes shown to the caller, and behind them the
/// bytes left. Offsets count from the start of the block.
#[derive(Debug)]
pub(super) struct VerifiedWindow {
    /// Bytes verified, shown and not consumed.
    shown: ByteRange,
    /// Requested bytes not yet shown or copied.
    left: ByteRange,
}

impl VerifiedWindow {
    /// Returns a window that shows nothing of `wanted` yet.
    pub(super) fn new(wanted: ByteRange) -> Self {
        Self { shown: range(wanted.start(), wanted.start()), left: wanted }
    }

    pub(super) fn left(&self) -> ByteRange {
        self.left
    }

    /// Returns the first `length` bytes of those left, or fewer at their end.
    pub(super) fn next(&self, length: u64) -> ByteRange {
        range(self.left.start(), self.left.start() + length.min(self.left.length()))
    }

    /// Returns the shown part of `bytes`, which start at `start`.
    pub(super) fn of<'a>(&self, bytes: &'a [u8], start: u64) -> &'a [u8] {
        if self.shown.is_empty() {
            return &[];
        }
        &bytes[(self.shown.start() - start) as usize..(self.shown.end() - start) as usize]
    }

    /// Takes `count` shown bytes from the front.
    pub(super) fn consume(&mut self, count: usize) {
        let start = self.shown.start() + count as u64;
        self.shown = ByteRange::new(start, self.shown.end()).expect("consumed more bytes than available");
    }

    /// Drops the shown bytes that were not consumed.
    pub(super) fn clear(&mut self) {
        self.shown = range(self.left.start(), self.left.start());
    }

    /// Shows the bytes left up to `end`, which were verified, and nothing else.
    pub(super) fn show(&mut self, end: u64) {
        self.shown = range(self.left.start(), end);
        self.left = range(end, self.left.end());
    }

    /// Skips `count` of the bytes left, which were copied to the caller without being shown.
    pub(super) fn skip(&mut self, count: u64) {
        self.left = range(self.left.start() + count, self.left.end());
    }
}

fn range(start: u64, end: u64) -> ByteRange {
    ByteRange::new(start, end).expect("a part of a range does not end before it starts")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_shown_once_and_in_order() {
        let bytes: Vec<u8> = (0..100).collect();
        let mut window = VerifiedWindow::new(range(110, 150));
        assert!(window.of(&bytes, 100).is_empty());
        assert_eq!((window.next(20), window.next(1000)), (range(110, 130), range(110, 150)));
        window.show(130);
        assert_eq!(window.of(&bytes, 100), &bytes[10..30]);
        window.consume(5);
        assert_eq!(window.of(&bytes, 100), &bytes[15..30]);
        window.clear();
        assert!(window.of(&bytes, 100).is_empty());
        window.skip(15);
        assert_eq!(window.left(), range(145, 150));
        window.show(150);
        assert_eq!(window.of(&bytes, 100), &bytes[45..50]);
        window.consume(5);
        assert!(window.of(&bytes, 100).is_empty() && window.left().is_empty());
    }

    #[test]
    #[should_panic(expected = "consumed more bytes than available")]
    fn no_more_than_shown_can_be_consumed() {
        let mut window = VerifiedWindow::new(range(0, 10));
        window.show(4);
        window.consume(5);
    }
}
