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

/// One ACL entry. Entries sort by scope, then type, then name; an entry without a name comes first.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AclEntry {
    pub scope: AclScope,
    pub kind: AclType,
    /// A user or group name; `None` for the owner, the owning group, the mask and others.
    pub name: Option<Box<str>>,
    pub access: Access,
}

/// Identity of an entry within an ACL: scope, type, name.
pub type AclKey<'a> = (AclScope, AclType, Option<&'a str>);

impl AclEntry {
    pub fn key(&self) -> AclKey<'_> {
        (self.scope, self.kind, self.name.as_deref())
    }

    pub fn unnamed(scope: AclScope, kind: AclType, access: Access) -> Self {
        Self { scope, kind, name: None, access }
    }
}

/// Errors of parsing an ACL entry, in Hadoop's words. Source: AclEntry.java.
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
    /// Parses a list such as `user:bruce:rwx,default:group::r-x`. `with_rights`: false for entries to remove, which are
    /// given without rights.
    pub fn parse_all(text: &str, with_rights: bool) -> Result<Vec<Self>, AclSpecError> {
        let entries = text.split(',').map(str::trim).filter(|entry| !entry.is_empty());
        entries.map(|entry| Self::parse(entry, with_rights)).collect()
    }

    fn parse(text: &str, with_rights: bool) -> Result<Self, AclSpecError> {
        let wrong = || AclSpecError::Entry(text.to_owned());
        // Empty fields at the end are ignored.
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

/// A change to an ACL.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum AclChange {
    /// Adds these entries, or replaces those with the same scope, type and name.
    Modify(Vec<AclEntry>),
    /// Removes the entries with these scopes, types and names; their rights are ignored.
    Remove(Vec<AclEntry>),
    RemoveDefault,
    /// Removes all entries; only the mode bits stay.
    RemoveAll,
    /// Replaces all entries of each scope that occurs in these entries.
    Set(Vec<AclEntry>),
}

/// The ACL of a path as the namenode reports it. Source: `AclStatusProto`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AclStatus {
    pub owner: String,
    pub group: String,
    /// The mode. If there are named entries, the group bits hold the mask.
    pub permission: FsPermission,
    /// All entries except those that the mode bits represent.
    pub entries: Vec<AclEntry>,
}

/// Returns every entry of the scope, including the entries that the mode bits represent. Returns an empty list if the
/// path has no ACL in the default scope.
///
/// `stored`: the entries that the mode bits do not represent.
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
    /// Returns the full ACL of one scope; see [`whole_acl`].
    pub fn whole(&self, scope: AclScope) -> Vec<AclEntry> {
        whole_acl(self.permission, &self.entries, scope)
    }
}

/// Returns the rights that an entry grants after the mask is applied. `whole`: the full ACL of one scope. The mask
/// limits named entries and the group entry.
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
    fn entries_parse_like_hadoop() {
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
    fn mask_limits_named_and_group_entries() {
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
