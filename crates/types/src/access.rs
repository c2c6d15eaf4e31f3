/// A set of rights: read, write, execute. Source: `FsActionProto` of acl.proto.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Access(u8);

impl Access {
    pub const NONE: Self = Self(0);
    pub const EXECUTE: Self = Self(1);
    pub const WRITE: Self = Self(2);
    pub const READ: Self = Self(4);
    pub const READ_EXECUTE: Self = Self(5);
    pub const ALL: Self = Self(7);

    /// The low three bits, numbered as `FsActionProto`.
    pub fn from_bits(bits: u8) -> Self {
        Self(bits & 7)
    }

    /// Parses the form `r-x`: three letters, each at its position or replaced by a dash.
    pub fn from_letters(letters: &str) -> Option<Self> {
        (0..8).map(Self).find(|access| access.letters() == letters)
    }

    pub fn includes(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    pub fn bits(self) -> u8 {
        self.0
    }

    /// Prints the form `r-x`.
    pub fn letters(self) -> &'static str {
        ["---", "--x", "-w-", "-wx", "r--", "r-x", "rw-", "rwx"][self.0 as usize]
    }

    /// Name of the set in Java's `FsAction`.
    pub fn name(self) -> &'static str {
        ["NONE", "EXECUTE", "WRITE", "WRITE_EXECUTE", "READ", "READ_EXECUTE", "READ_WRITE", "ALL"][self.0 as usize]
    }
}
