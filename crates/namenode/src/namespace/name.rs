//! The name of a file or directory. Most are short: those stand in the inode, without an allocation of their own.

use std::borrow::Borrow;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::ops::Deref;

/// Bytes of the longest name that stands in the inode: with its length and the form's number it fills the 24 bytes that a
/// pointer, a length and that number take.
const SHORT_MAX: usize = 22;

/// Bytes as the client sent them.
#[derive(Clone)]
pub struct Name(Form);

#[derive(Clone)]
enum Form {
    Short { length: u8, bytes: [u8; SHORT_MAX] },
    Long(Box<[u8]>),
}

impl Deref for Name {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match &self.0 {
            Form::Short { length, bytes } => &bytes[..usize::from(*length)],
            Form::Long(bytes) => bytes,
        }
    }
}

impl Borrow<[u8]> for Name {
    fn borrow(&self) -> &[u8] {
        self
    }
}

impl From<&[u8]> for Name {
    fn from(name: &[u8]) -> Self {
        if name.len() > SHORT_MAX {
            return Self(Form::Long(name.into()));
        }
        let mut bytes = [0; SHORT_MAX];
        bytes[..name.len()].copy_from_slice(name);
        Self(Form::Short { length: name.len() as u8, bytes })
    }
}

impl Default for Name {
    fn default() -> Self {
        Self::from(&[][..])
    }
}

impl PartialEq for Name {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

impl Eq for Name {}

impl Hash for Name {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (**self).hash(state);
    }
}

impl fmt::Debug for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", String::from_utf8_lossy(self))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_of_any_length_comes_back() {
        for length in 0..100 {
            let bytes: Vec<u8> = (0..length).collect();
            let name = Name::from(&bytes[..]);
            assert_eq!(*name, *bytes);
            assert_eq!(name.clone(), name);
            assert_eq!(matches!(name.0, Form::Short { .. }), bytes.len() <= SHORT_MAX);
        }
        assert!(Name::default().is_empty());
        assert_eq!(size_of::<Name>(), 24);
    }
}
