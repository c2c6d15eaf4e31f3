use std::fmt;

/// 16 random bytes that identify one client process (or client instance) in every request. Together with the call id
/// they are the key of retry caches.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClientId(pub [u8; 16]);

/// Error: a client id does not have 16 bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("client id of {length} bytes instead of 16")]
pub struct ClientIdError {
    pub length: usize,
}

impl TryFrom<&[u8]> for ClientId {
    type Error = ClientIdError;

    fn try_from(bytes: &[u8]) -> Result<Self, ClientIdError> {
        bytes.try_into().map(Self).map_err(|_| ClientIdError { length: bytes.len() })
    }
}

impl fmt::Display for ClientId {
    /// Formats it as a UUID.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, byte) in self.0.iter().enumerate() {
            if matches!(index, 4 | 6 | 8 | 10) {
                f.write_str("-")?;
            }
            write!(f, "{byte:02x}")?;
        }
        Ok(())
    }
}

impl fmt::Debug for ClientId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
