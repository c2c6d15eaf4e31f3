//! What becomes durable at once: the changes of some operations in their order, as bytes of the journal from the moment that they
//! are known. So what waits for the disk, and then for the tables, is one allocation a group and not a dozen an operation.

use super::encoding::{EncodingError, decode, encode};
use crate::changes::Changes;

/// Bytes before the changes, which the journal fills.
pub(super) const HEADER: usize = 32;

/// A group has room for so many bytes before it is known how long it will be.
const ROOM_MAX: usize = 16 << 20;

#[derive(Debug, Default)]
pub struct Group {
    /// Nothing yet, or the header's room and the changes.
    bytes: Vec<u8>,
    operations: u32,
}

impl Group {
    /// With room for as many bytes as `other` has, within bounds: one group is most likely as long as the one before.
    pub fn with_capacity_of(other: &Self) -> Self {
        Self { bytes: Vec::with_capacity(other.bytes.len().min(ROOM_MAX)), operations: 0 }
    }

    /// Puts the changes of one operation behind those that are there.
    pub fn push(&mut self, changes: &Changes) {
        if self.bytes.is_empty() {
            self.bytes.extend_from_slice(&[0; HEADER]);
        }
        encode(changes, &mut self.bytes);
        self.operations += 1;
    }

    /// `bytes`: the changes of so many operations as they stood in the journal. Errors: they are not that.
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

    /// The header's room and the changes. There are some.
    pub(super) fn bytes(&mut self) -> &mut [u8] {
        &mut self.bytes
    }

    /// Of each operation, in their order.
    pub fn changes(&self) -> GroupChanges<'_> {
        GroupChanges { bytes: self.bytes.get(HEADER..).unwrap_or_default(), left: self.operations }
    }
}

pub struct GroupChanges<'a> {
    bytes: &'a [u8],
    /// Operations.
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
    fn a_group_has_what_was_put_there() {
        let mut written = group(&[everything(), Changes::default(), everything()]);
        assert_eq!(changes(&written), [everything(), Changes::default(), everything()]);
        let bytes = written.bytes()[HEADER..].to_vec();
        assert_eq!(changes(&Group::read(&bytes, 3).unwrap()), changes(&written));
        assert!(matches!(Group::read(&bytes, 2), Err(EncodingError::Long)));
        assert!(matches!(Group::read(&bytes, 4), Err(EncodingError::Short)));
        assert!(Group::default().is_empty() && changes(&Group::default()).is_empty());
    }
}
