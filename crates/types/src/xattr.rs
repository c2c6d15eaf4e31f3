//! Extended attributes. Source: xattr.proto.

/// Namespace of an attribute. Numbers as in `XAttrProto`; they are stored.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
#[repr(u8)]
pub enum XattrSpace {
    /// Accessible to any user that may read or write the file.
    User = 0,
    /// Accessible to superusers.
    Trusted = 1,
    /// One attribute is known, `hdfs.unreadable.by.superuser`.
    Security = 2,
    /// Internal to the NameNode; not accessible to users.
    System = 3,
    /// Accessible only below `/.reserved/raw`.
    Raw = 4,
}

impl XattrSpace {
    pub fn from_number(number: u8) -> Option<Self> {
        Some(match number {
            0 => Self::User,
            1 => Self::Trusted,
            2 => Self::Security,
            3 => Self::System,
            4 => Self::Raw,
            _ => return None,
        })
    }

    /// Prefix of full names.
    pub fn prefix(self) -> &'static str {
        match self {
            Self::User => "user",
            Self::Trusted => "trusted",
            Self::Security => "security",
            Self::System => "system",
            Self::Raw => "raw",
        }
    }
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Xattr {
    pub space: XattrSpace,
    /// Name without the prefix of its namespace.
    pub name: Box<str>,
    /// Value; empty means no value.
    pub value: Box<[u8]>,
}

impl Xattr {
    /// Parses `full_name` (`user.name`) into an attribute without a value. Case is ignored in the namespace. `None` if
    /// the namespace is unknown or the name is empty.
    pub fn named(full_name: &str) -> Option<Self> {
        let (space, name) = full_name.split_once('.')?;
        let space =
            (0..5).filter_map(XattrSpace::from_number).find(|known| known.prefix().eq_ignore_ascii_case(space))?;
        (!name.is_empty()).then(|| Self { space, name: name.into(), value: Box::default() })
    }

    /// Returns true for the same attribute, regardless of the value.
    pub fn is(&self, other: &Self) -> bool {
        self.space == other.space && self.name == other.name
    }

    /// Returns the full name, such as `user.name`.
    pub fn full_name(&self) -> String {
        format!("{}.{}", self.space.prefix(), self.name)
    }
}
