/// A range of a peer's registered memory. Advertisements and grants carry it, and a one-sided operation needs nothing
/// else from the remote end.
///
/// It says where the bytes are, not which replica they belong to; the message that carries it names the replica.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct RemoteSlice {
    /// Start of the range in the peer's address space (with verbs: a virtual address there).
    pub address: u64,
    /// Bytes.
    pub length: u64,
    /// The remote key (on iWARP: the steering tag).
    pub key: u32,
}

impl RemoteSlice {
    /// Returns `length` bytes from `offset` of the slice, or `None` if that exceeds its end.
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
    fn parts_stay_within_the_slice() {
        let slice = RemoteSlice { address: 1000, length: 10, key: 7 };
        assert_eq!(slice.part(4, 6), Some(RemoteSlice { address: 1004, length: 6, key: 7 }));
        assert_eq!(slice.part(10, 0), Some(RemoteSlice { address: 1010, length: 0, key: 7 }));
        assert_eq!(slice.part(5, 6), None);
        assert_eq!(slice.part(u64::MAX, 2), None);
        assert_eq!(RemoteSlice { address: u64::MAX, length: 10, key: 0 }.part(5, 1), None);
    }
}
