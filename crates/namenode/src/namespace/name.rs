//! Name of a file or directory. Most names are short and are stored in the inode without an allocation of their own.
//!
//! A name of up to 22 bytes takes 24 bytes in every inode. With room for only 14 bytes, as before, the common names of
//! 15 to 22 bytes took 48 bytes: 16 in the inode, and 32 in the allocator, which rounds 24 up.

use std::borrow::Borrow;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::ops::Deref;

/// Length in bytes of the longest name stored in the inode. With its length and the variant tag it fills 24 bytes.
const SHORT_MAX: usize = 22;

/// Name bytes as the client sent them.
#[derive(Clone)]
pub struct Name(Form);

/// A length and a buffer of which that many bytes are used. The size equals a size class of the allocator.
#[derive(Clone)]
struct Padded<const MAX: usize> {
    length: u8,
    bytes: [u8; MAX],
}

impl<const MAX: usize> Padded<MAX> {
    /// `None` if the name is longer.
    fn new(name: &[u8]) -> Option<Self> {
        let mut bytes = [0; MAX];
        bytes.get_mut(..name.len())?.copy_from_slice(name);
        Some(Self { length: u8::try_from(name.len()).ok()?, bytes })
    }

    fn boxed(name: &[u8]) -> Option<Box<Self>> {
        Self::new(name).map(Box::new)
    }

    fn name(&self) -> &[u8] {
        &self.bytes[..usize::from(self.length)]
    }
}

#[derive(Clone)]
struct Unpadded(Box<[u8]>);

/// The length of a long name is stored with its bytes. Next to the pointer it would make every inode larger.
#[derive(Clone)]
enum Form {
    Short(Padded<SHORT_MAX>),
    To31(Box<Padded<31>>),
    To47(Box<Padded<47>>),
    To63(Box<Padded<63>>),
    To79(Box<Padded<79>>),
    To127(Box<Padded<127>>),
    To255(Box<Padded<255>>),
    /// Longer names, if the configuration allows them.
    Longer(Box<Unpadded>),
}

impl Form {
    fn of(name: &[u8]) -> Option<Self> {
        match name.len() {
            ..=SHORT_MAX => Padded::new(name).map(Self::Short),
            23..=31 => Padded::boxed(name).map(Self::To31),
            32..=47 => Padded::boxed(name).map(Self::To47),
            48..=63 => Padded::boxed(name).map(Self::To63),
            64..=79 => Padded::boxed(name).map(Self::To79),
            80..=127 => Padded::boxed(name).map(Self::To127),
            128..=255 => Padded::boxed(name).map(Self::To255),
            _ => None,
        }
    }
}

impl Deref for Name {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match &self.0 {
            Form::Short(name) => name.name(),
            Form::To31(name) => name.name(),
            Form::To47(name) => name.name(),
            Form::To63(name) => name.name(),
            Form::To79(name) => name.name(),
            Form::To127(name) => name.name(),
            Form::To255(name) => name.name(),
            Form::Longer(name) => &name.0,
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
        Self(Form::of(name).unwrap_or_else(|| Form::Longer(Box::new(Unpadded(name.into())))))
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
    fn names_of_any_length_round_trip() {
        for length in 0..1000 {
            let bytes: Vec<u8> = (0..length).map(|at| at as u8).collect();
            let name = Name::from(&bytes[..]);
            assert_eq!(*name, *bytes);
            assert_eq!(name.clone(), name);
            assert_eq!(matches!(name.0, Form::Short { .. }), bytes.len() <= SHORT_MAX);
            assert_eq!(matches!(name.0, Form::Longer { .. }), bytes.len() > 255);
        }
        assert!(Name::default().is_empty());
        assert_eq!(size_of::<Name>(), 24);
    }
}
