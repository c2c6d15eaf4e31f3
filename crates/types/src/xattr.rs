//! Extended attributes. Source: xattr.proto.

/// Whose attributes they are. Numbers as in `XAttrProto`; they are stored.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
#[repr(u8)]
pub enum XattrSpace {
    /// Anybody's who may read and write the file.
    User = 0,
    /// Superusers'.
    Trusted = 1,
    /// One is known, `hdfs.unreadable.by.superuser`.
    Security = 2,
    /// The NameNode's own: nobody's.
    System = 3,
    /// Below `/.reserved/raw` only.
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

    /// Of full names.
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
    /// Without the space's prefix.
    pub name: Box<str>,
    /// Empty is the same as none.
    pub value: Box<[u8]>,
}

impl Xattr {
    /// Without a value. `full_name`: `user.name`; the space in any case of letters. `None`: no such space, or no name in it.
    pub fn named(full_name: &str) -> Option<Self> {
        let (space, name) = full_name.split_once('.')?;
        let space =
            (0..5).filter_map(XattrSpace::from_number).find(|known| known.prefix().eq_ignore_ascii_case(space))?;
        (!name.is_empty()).then(|| Self { space, name: name.into(), value: Box::default() })
    }

    /// Whether it is the same attribute, whatever its value.
    pub fn is(&self, other: &Self) -> bool {
        self.space == other.space && self.name == other.name
    }

    /// `user.name`.
    pub fn full_name(&self) -> String {
        format!("{}.{}", self.space.prefix(), self.name)
    }
}
