//! Rare attributes of an inode: extended attributes, an ACL, a quota, and its snapshot history. They are stored apart,
//! so that other inodes pay only one pointer for them.
//!
//! They are stored as tagged extensions of the inode's record (`record.rs`). The tags are 1 extended attributes, 2 ACL,
//! 3 quota, 4 snapshots allowed, 5 [`Inode::since`](super::Inode). The history itself is stored in tables of its own.

use super::history::History;
use super::quota::Quota;
use super::record::{RecordReader, put, put_bytes};
use hearth_types::{Access, AclEntry, AclScope, AclType, Xattr, XattrSpace};

#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct Features {
    pub xattrs: Vec<Xattr>,
    /// ACL entries that the mode bits do not hold, in the order of [`AclEntry`]. They are the named users, the group
    /// and named groups of the access ACL if it has any named entry, and all default entries.
    pub acl: Vec<AclEntry>,
    pub quota: Option<Box<Quota>>,
    /// Former states that snapshots have of the inode.
    pub history: Option<Box<History>>,
}

const XATTRS: u8 = 1;
const ACL: u8 = 2;
const QUOTA: u8 = 3;
const SNAPSHOTTABLE: u8 = 4;
const SINCE: u8 = 5;

impl Features {
    pub fn is_empty(&self) -> bool {
        self.xattrs.is_empty() && self.acl.is_empty() && self.quota.is_none() && self.history.is_none()
    }

    /// Encodes a count, then a tag, a length and bytes for each feature.
    pub(super) fn encode(&self, since: u32, out: &mut Vec<u8>) {
        let mut sections = Vec::new();
        if !self.xattrs.is_empty() {
            let mut bytes = Vec::new();
            put(&mut bytes, self.xattrs.len() as u64);
            for xattr in &self.xattrs {
                bytes.push(xattr.space as u8);
                put_bytes(&mut bytes, xattr.name.as_bytes());
                put_bytes(&mut bytes, &xattr.value);
            }
            sections.push((XATTRS, bytes));
        }
        if !self.acl.is_empty() {
            let mut bytes = Vec::new();
            put(&mut bytes, self.acl.len() as u64);
            for entry in &self.acl {
                bytes.extend([entry.scope as u8, entry.kind as u8, entry.access.bits()]);
                // No user or group has an empty name.
                put_bytes(&mut bytes, entry.name.as_deref().unwrap_or_default().as_bytes());
            }
            sections.push((ACL, bytes));
        }
        if let Some(quota) = &self.quota {
            let mut bytes = Vec::new();
            for limit in quota.limits() {
                match limit {
                    None => bytes.push(0),
                    Some(limit) => {
                        bytes.push(1);
                        put(&mut bytes, limit);
                    }
                }
            }
            sections.push((QUOTA, bytes));
        }
        if self.history.as_ref().is_some_and(|history| history.snapshots.is_some()) {
            sections.push((SNAPSHOTTABLE, Vec::new()));
        }
        if since > 0 {
            let mut bytes = Vec::new();
            put(&mut bytes, u64::from(since));
            sections.push((SINCE, bytes));
        }
        out.push(sections.len() as u8);
        for (tag, bytes) in sections {
            out.push(tag);
            put_bytes(out, &bytes);
        }
    }

    /// Decodes the features. `None` if they cannot be read, or if a tag is unknown: it comes from a newer version, and
    /// ignoring it would lose data.
    pub(super) fn decode(reader: &mut RecordReader<'_>) -> Option<(Self, u32)> {
        let count = reader.byte()?;
        let mut features = Self::default();
        let mut since = 0;
        for _ in 0..count {
            let tag = reader.byte()?;
            let section = &mut RecordReader { bytes: reader.slice()?, at: 0 };
            match tag {
                XATTRS => {
                    for _ in 0..section.number()? {
                        let space = XattrSpace::from_number(section.byte()?)?;
                        let (name, value) = (section.text()?, section.slice()?.into());
                        features.xattrs.push(Xattr { space, name: name.into(), value });
                    }
                }
                ACL => {
                    for _ in 0..section.number()? {
                        let scope = AclScope::from_number(section.byte()?)?;
                        let kind = AclType::from_number(section.byte()?)?;
                        let access = Access::from_bits(section.byte()?);
                        let name = Some(section.text()?).filter(|name| !name.is_empty()).map(Into::into);
                        features.acl.push(AclEntry { scope, kind, name, access });
                    }
                }
                QUOTA => {
                    let mut quota = Quota::default();
                    for limit in quota.limits_mut() {
                        *limit = if section.flag()? { Some(section.number()?) } else { None };
                    }
                    features.quota = Some(Box::new(quota));
                }
                SNAPSHOTTABLE => features.history.get_or_insert_default().snapshots = Some(Vec::new()),
                SINCE => since = u32::try_from(section.number()?).ok()?,
                _ => return None,
            }
            if section.at != section.bytes.len() {
                return None;
            }
        }
        Some((features, since))
    }
}
