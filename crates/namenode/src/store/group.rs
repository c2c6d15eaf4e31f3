//! Group of changes that become durable together: the changes of several operations in order. They are encoded for the
//! journal as soon as they are known. So the changes that wait for the disk, and then for the tables, take one
//! allocation per group, not a dozen per operation.

use super::encoding::{EncodingError, decode, encode};
use crate::changes::Changes;

/// Size of the header before the changes, filled in by the journal.
pub(super) const HEADER: usize = 32;

/// Maximum initial capacity of a group in bytes.
const ROOM_MAX: usize = 16 << 20;

#[derive(Debug, Default)]
pub struct Group {
    /// Empty, or space for the header followed by the changes.
    bytes: Vec<u8>,
    operations: u32,
}

impl Group {
    /// Creates a group with the capacity of `other`, up to a limit: a group is most likely as long as the previous one.
    pub fn with_capacity_of(other: &Self) -> Self {
        Self { bytes: Vec::with_capacity(other.bytes.len().min(ROOM_MAX)), operations: 0 }
    }

    /// Appends the changes of one operation.
    pub fn push(&mut self, changes: &Changes) {
        if self.bytes.is_empty() {
            self.bytes.extend_from_slice(&[0; HEADER]);
        }
        encode(changes, &mut self.bytes);
        self.operations += 1;
    }

    /// Parses the changes of `operations` operations, as read from the journal. Errors: `bytes` do not decode to them.
    pub(super) fn read(bytes: &[u8], operations: u32) -> Result<Self, EncodingError> {
        let group = Self { bytes: [&[0; HEADER], bytes].concat(), operations };
        let mut rest = group.changes();
        rest.by_ref().try_for_each(|changes| changes.map(drop))?;
        if rest.bytes.is_empty() { Ok(group) } else { Err(EncodingError::Long) }
    }

    pub fn is_empty(&self) -> bool {
        self.operations == 0
    }

    pub fn operations(&self) -> u32 {
        self.operations
    }

    /// Returns the header space and the changes. The group must not be empty.
    pub(super) fn bytes(&mut self) -> &mut [u8] {
        &mut self.bytes
    }

    /// Iterates over the changes of each operation, in order.
    pub fn changes(&self) -> GroupChanges<'_> {
        GroupChanges { bytes: self.bytes.get(HEADER..).unwrap_or_default(), left: self.operations }
    }
}

pub struct GroupChanges<'a> {
    bytes: &'a [u8],
    /// Number of operations left.
    left: u32,
}

impl<'a> Iterator for GroupChanges<'a> {
    type Item = Result<Changes<&'a [u8]>, EncodingError>;

    fn next(&mut self) -> Option<Self::Item> {
        self.left = self.left.checked_sub(1)?;
        Some(decode(&mut self.bytes))
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::encoding::tests::{everything, owned};
    use super::*;

    pub fn group(all: &[Changes]) -> Group {
        let mut group = Group::default();
        all.iter().for_each(|changes| group.push(changes));
        group
    }

    pub fn changes(group: &Group) -> Vec<Changes> {
        group.changes().map(|changes| owned(changes.unwrap())).collect()
    }

    #[test]
    fn group_returns_pushed_changes() {
        let mut written = group(&[everything(), Changes::default(), everything()]);
        assert_eq!(changes(&written), [everything(), Changes::default(), everything()]);
        let bytes = written.bytes()[HEADER..].to_vec();
        assert_eq!(changes(&Group::read(&bytes, 3).unwrap()), changes(&written));
        assert!(matches!(Group::read(&bytes, 2), Err(EncodingError::Long)));
        assert!(matches!(Group::read(&bytes, 4), Err(EncodingError::Short)));
        assert!(Group::default().is_empty() && changes(&Group::default()).is_empty());
    }
}
