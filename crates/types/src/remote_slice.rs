/// A range of a peer's registered memory: what an advertisement or a grant carries, and all that a one-sided operation
/// needs to know of the far end.
///
/// It says where bytes are, not whose: whoever gives one away says beside it what it stands for.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct RemoteSlice {
    /// Where the range begins, in the peer's own terms (with verbs: a virtual address there).
    pub address: u64,
    /// Bytes.
    pub length: u64,
    /// The remote key (on iWARP: the steering tag).
    pub key: u32,
}

impl RemoteSlice {
    /// `length` bytes from `offset` of it. `None` when that reaches beyond its end.
    pub fn part(&self, offset: u64, length: u64) -> Option<Self> {
        let end = offset.checked_add(length)?;
        if end > self.length {
            return None;
        }
        Some(Self { address: self.address.checked_add(offset)?, length, key: self.key })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_stay_within() {
        let slice = RemoteSlice { address: 1000, length: 10, key: 7 };
        assert_eq!(slice.part(4, 6), Some(RemoteSlice { address: 1004, length: 6, key: 7 }));
        assert_eq!(slice.part(10, 0), Some(RemoteSlice { address: 1010, length: 0, key: 7 }));
        assert_eq!(slice.part(5, 6), None);
        assert_eq!(slice.part(u64::MAX, 2), None);
        assert_eq!(RemoteSlice { address: u64::MAX, length: 10, key: 0 }.part(5, 1), None);
    }
}
