//! Entries of access control lists. Source: acl.proto.

use std::fmt;

use crate::{Access, FsPermission};

/// Numbers as in `AclEntryProto`; they are stored.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
#[repr(u8)]
pub enum AclScope {
    Access = 0,
    Default = 1,
}

/// Numbers as in `AclEntryProto`; they are stored.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
#[repr(u8)]
pub enum AclType {
    User = 0,
    Group = 1,
    Mask = 2,
    Other = 3,
}

impl AclScope {
    pub fn from_number(number: u8) -> Option<Self> {
        [Self::Access, Self::Default].get(usize::from(number)).copied()
    }
}

impl AclType {
    pub const ALL: [Self; 4] = [Self::User, Self::Group, Self::Mask, Self::Other];

    pub fn from_number(number: u8) -> Option<Self> {
        Self::ALL.get(usize::from(number)).copied()
    }

    pub fn name(self) -> &'static str {
        ["user", "group", "mask", "other"][self as usize]
    }
}

/// One entry. Its order: scope, type, the unnamed first, then by name.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AclEntry {
    pub scope: AclScope,
    pub kind: AclType,
    /// A user or group; `None` for the owner, the group, the mask and others.
    pub name: Option<Box<str>>,
    pub access: Access,
}

/// What makes an entry one of its own in an ACL: scope, type, name.
pub type AclKey<'a> = (AclScope, AclType, Option<&'a str>);

impl AclEntry {
    pub fn key(&self) -> AclKey<'_> {
        (self.scope, self.kind, self.name.as_deref())
    }

    pub fn unnamed(scope: AclScope, kind: AclType, access: Access) -> Self {
        Self { scope, kind, name: None, access }
    }
}

/// Why a text is no ACL entry, in Hadoop's words. Source: AclEntry.java.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum AclSpecError {
    Entry(String),
    Type(String),
    Rights(String),
}

impl fmt::Display for AclSpecError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Entry(text) => write!(f, "Invalid <aclSpec> : {text}"),
            Self::Type(text) => write!(f, "Invalid type of acl in <aclSpec> :{text}"),
            Self::Rights(text) => write!(f, "Invalid permission in <aclSpec> : {text}"),
        }
    }
}

impl std::error::Error for AclSpecError {}

impl AclEntry {
    /// Of `user:bruce:rwx,default:group::r-x`. `with_rights`: false for entries that are to be removed, which are named alone.
    pub fn parse_all(text: &str, with_rights: bool) -> Result<Vec<Self>, AclSpecError> {
        let entries = text.split(',').map(str::trim).filter(|entry| !entry.is_empty());
        entries.map(|entry| Self::parse(entry, with_rights)).collect()
    }

    fn parse(text: &str, with_rights: bool) -> Result<Self, AclSpecError> {
        let wrong = || AclSpecError::Entry(text.to_owned());
        // What is empty at the end does not count.
        let mut parts = text.trim_end_matches(':').split(':').peekable();
        let scope = match parts.next_if_eq(&"default") {
            Some(_) => AclScope::Default,
            None => AclScope::Access,
        };
        let kind = parts.next().ok_or_else(wrong)?;
        let kind = AclType::ALL.into_iter().find(|known| known.name().eq_ignore_ascii_case(kind));
        let kind = kind.ok_or_else(|| AclSpecError::Type(text.to_owned()))?;
        let name = parts.next().filter(|name| !name.is_empty()).map(Into::into);
        let access = if with_rights {
            let letters = parts.next().ok_or_else(wrong)?;
            Access::from_letters(letters).ok_or_else(|| AclSpecError::Rights(text.to_owned()))?
        } else {
            Access::NONE
        };
        if parts.next().is_some() { Err(wrong()) } else { Ok(Self { scope, kind, name, access }) }
    }
}

impl fmt::Display for AclEntry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scope = if self.scope == AclScope::Default { "default:" } else { "" };
        write!(f, "{scope}{}:{}:{}", self.kind.name(), self.name.as_deref().unwrap_or_default(), self.access.letters())
    }
}

/// What is to be done to an ACL.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum AclChange {
    /// These entries are added, or take the place of those of the same scope, type and name.
    Modify(Vec<AclEntry>),
    /// Entries of these scopes, types and names go; their rights do not matter.
    Remove(Vec<AclEntry>),
    RemoveDefault,
    /// Only the mode bits stay.
    RemoveAll,
    /// The scopes that these entries have are replaced as a whole.
    Set(Vec<AclEntry>),
}

/// What the namenode says of a path's ACL. Source: `AclStatusProto`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AclStatus {
    pub owner: String,
    pub group: String,
    /// Where there are named entries, the group's bits are the mask.
    pub permission: FsPermission,
    /// Without those that the mode bits hold.
    pub entries: Vec<AclEntry>,
}

/// Every entry of the scope, those that the mode bits stand for among them; of the default scope none where there is none.
/// `stored`: those that the mode bits do not hold.
pub fn whole_acl(permission: FsPermission, stored: &[AclEntry], scope: AclScope) -> Vec<AclEntry> {
    let of_scope = stored.iter().filter(|entry| entry.scope == scope).cloned();
    if scope == AclScope::Default {
        return of_scope.collect();
    }
    let bits = |shift: u16| Access::from_bits((permission.0 >> shift) as u8);
    let unnamed = |kind, shift| AclEntry::unnamed(AclScope::Access, kind, bits(shift));
    let mut whole = vec![unnamed(AclType::User, 6)];
    whole.extend(of_scope);
    let middle = if whole.len() > 1 { AclType::Mask } else { AclType::Group };
    whole.extend([unnamed(middle, 3), unnamed(AclType::Other, 0)]);
    whole
}

impl AclStatus {
    /// As [`whole_acl`].
    pub fn whole(&self, scope: AclScope) -> Vec<AclEntry> {
        whole_acl(self.permission, &self.entries, scope)
    }
}

/// What an entry of a whole ACL of one scope grants: no more than its mask where it is bounded by one.
pub fn effective_access(entry: &AclEntry, whole: &[AclEntry]) -> Access {
    let mask = whole.iter().find(|other| other.kind == AclType::Mask);
    match mask {
        Some(mask) if entry.name.is_some() || entry.kind == AclType::Group => {
            Access::from_bits(entry.access.bits() & mask.access.bits())
        }
        _ => entry.access,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_are_read_as_hadoop_reads_them() {
        let texts = |text| -> Vec<String> {
            AclEntry::parse_all(text, true).unwrap().iter().map(ToString::to_string).collect()
        };
        assert_eq!(
            texts("user:bruce:rwx, default:GROUP::r-x,mask::--x"),
            ["user:bruce:rwx", "default:group::r-x", "mask::--x"]
        );
        assert_eq!(texts(","), [""; 0]);
        let removed = AclEntry::parse_all("user:bruce,default:group:", false).unwrap();
        assert_eq!(removed[0].name.as_deref(), Some("bruce"));
        assert_eq!((removed[1].scope, removed[1].kind, &removed[1].name), (AclScope::Default, AclType::Group, &None));
        let wrong = |text, with_rights| AclEntry::parse_all(text, with_rights).unwrap_err().to_string();
        assert_eq!(wrong("bruce:rwx", true), "Invalid type of acl in <aclSpec> :bruce:rwx");
        assert_eq!(wrong("user:bruce", true), "Invalid <aclSpec> : user:bruce");
        assert_eq!(wrong("user:bruce:rwz", true), "Invalid permission in <aclSpec> : user:bruce:rwz");
        assert_eq!(wrong("user:bruce:rwx:x", true), "Invalid <aclSpec> : user:bruce:rwx:x");
        assert_eq!(wrong("user:bruce:rwx", false), "Invalid <aclSpec> : user:bruce:rwx");
        assert_eq!(wrong("default", true), "Invalid <aclSpec> : default");
    }

    #[test]
    fn the_mask_bounds_names_and_groups() {
        let status = |permission, entries| AclStatus {
            owner: "o".into(),
            group: "g".into(),
            permission: FsPermission(permission),
            entries: AclEntry::parse_all(entries, true).unwrap(),
        };
        let shown = |status: &AclStatus| -> Vec<String> {
            let whole = status.whole(AclScope::Access);
            whole.iter().map(|entry| format!("{entry} {}", effective_access(entry, &whole).letters())).collect()
        };
        assert_eq!(shown(&status(0o640, "")), ["user::rw- rw-", "group::r-- r--", "other::--- ---"]);
        assert_eq!(
            shown(&status(0o754, "user:bruce:rwx,group::rw-")),
            ["user::rwx rwx", "user:bruce:rwx r-x", "group::rw- r--", "mask::r-x r-x", "other::r-- r--"]
        );
    }
}
