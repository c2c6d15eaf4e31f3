//! String table of an image: names of users, groups and extended attributes, by number.
//!
//! Messages have the numbers. The table's ids have, in their high bits, the kind of the name as well. Source:
//! SerialNumberManager.

use std::collections::HashMap;

use hearth_wire::proto::hdfs::fsimage::StringTableEntryProto;

use super::ImageError;

/// Number of high bits that tell the kind, in the tables that Hadoop has written since version 3.2.
pub(super) const MASK_BITS: u32 = 3;
/// Number of bits of a name's number in a packed permission, ACL entry or attribute.
const NUMBER_BITS: u32 = 24;
/// Largest number of a name.
const NUMBER_MAX: u32 = (1 << NUMBER_BITS) - 1;

/// Kind of a name. Numbers as in SerialNumberManager, where 0 is for names of all kinds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Kind {
    User = 1,
    Group = 2,
    Xattr = 3,
}

/// Names of one kind, numbered from 1 in the order of their first use. 0 is no name.
#[derive(Default)]
struct Names {
    numbers: HashMap<String, u32>,
    names: Vec<String>,
}

/// Table of an image that is being written.
#[derive(Default)]
pub(super) struct StringsOut {
    users: Names,
    groups: Names,
    xattrs: Names,
}

impl StringsOut {
    /// Returns the number of a name.
    ///
    /// Errors: `Inexpressible` if there are more names than numbers.
    pub fn number(&mut self, kind: Kind, name: &str) -> Result<u32, ImageError> {
        let names = match kind {
            Kind::User => &mut self.users,
            Kind::Group => &mut self.groups,
            Kind::Xattr => &mut self.xattrs,
        };
        if let Some(number) = names.numbers.get(name) {
            return Ok(*number);
        }
        let number = names.names.len() as u32 + 1;
        if number > NUMBER_MAX {
            let what = format!("it has more than {NUMBER_MAX} names of kind {kind:?}");
            return Err(ImageError::Inexpressible { what });
        }
        names.names.push(name.to_owned());
        names.numbers.insert(name.to_owned(), number);
        Ok(number)
    }

    /// Returns all entries, in the order of their ids.
    pub fn entries(&self) -> Vec<StringTableEntryProto> {
        let kinds = [(Kind::User, &self.users), (Kind::Group, &self.groups), (Kind::Xattr, &self.xattrs)];
        let entries = kinds.into_iter().flat_map(|(kind, names)| {
            names.names.iter().zip(1u32..).map(move |(name, number)| StringTableEntryProto {
                id: Some(number | mask(kind, MASK_BITS)),
                str: Some(name.clone()),
            })
        });
        entries.collect()
    }
}

fn mask(kind: Kind, bits: u32) -> u32 {
    // Without bits all kinds share their numbers.
    if bits == 0 { 0 } else { (kind as u32) << (u32::BITS - bits) }
}

/// Table of an image that is being read.
pub(super) struct StringsIn {
    mask_bits: u32,
    by_id: HashMap<u32, String>,
}

impl StringsIn {
    /// `None` if the kind takes more bits than Hadoop ever used.
    pub fn new(mask_bits: u32) -> Option<Self> {
        (mask_bits <= MASK_BITS).then(|| Self { mask_bits, by_id: HashMap::new() })
    }

    pub fn add(&mut self, entry: StringTableEntryProto) {
        self.by_id.insert(entry.id.unwrap_or(0), entry.str.unwrap_or_default());
    }

    pub fn name(&self, kind: Kind, number: u32) -> Option<&str> {
        self.by_id.get(&(number | mask(kind, self.mask_bits))).map(String::as_str)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_found_by_kind_and_number() {
        let mut out = StringsOut::default();
        assert_eq!(out.number(Kind::User, "a").unwrap(), 1);
        assert_eq!(out.number(Kind::User, "b").unwrap(), 2);
        assert_eq!(out.number(Kind::User, "a").unwrap(), 1);
        assert_eq!(out.number(Kind::Group, "b").unwrap(), 1);
        assert_eq!(out.number(Kind::Xattr, "x").unwrap(), 1);
        let ids: Vec<u32> = out.entries().iter().filter_map(|entry| entry.id).collect();
        assert_eq!(ids, [0x2000_0001, 0x2000_0002, 0x4000_0001, 0x6000_0001]);
        let mut table = StringsIn::new(MASK_BITS).unwrap();
        out.entries().into_iter().for_each(|entry| table.add(entry));
        assert_eq!(table.name(Kind::User, 2), Some("b"));
        assert_eq!(table.name(Kind::Group, 1), Some("b"));
        assert_eq!(table.name(Kind::Xattr, 2), None);
        assert!(StringsIn::new(4).is_none());
    }

    #[test]
    fn tables_before_hadoop_3_2_have_one_kind() {
        let mut table = StringsIn::new(0).unwrap();
        table.add(StringTableEntryProto { id: Some(7), str: Some("root".into()) });
        assert_eq!(table.name(Kind::User, 7), Some("root"));
        assert_eq!(table.name(Kind::Group, 7), Some("root"));
    }
}
