use super::IPC_VERSION;

/// Number of bytes that a client sends before its first frame.
pub const CONNECTION_HEADER_BYTES: usize = 7;

/// Authentication method of the client.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AuthProtocol {
    /// The server trusts the connection context. Java's name: NONE.
    Simple,
    /// SASL negotiation comes first. Java clients use it also with security off, if they have any token.
    Sasl,
}

/// `hrpc`, version, service class, authentication.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ConnectionHeader {
    pub service_class: u8,
    pub auth: AuthProtocol,
}

/// Reason why a server cannot serve a client. Each has its own answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ConnectionHeaderError {
    /// A browser or a probe, which understands only HTTP.
    #[error("an HTTP request on a Hadoop RPC port")]
    Http,
    #[error("not a Hadoop RPC client: starts with {magic:02x?}, version {version}")]
    Magic { magic: [u8; 4], version: u8 },
    #[error("IPC version {version} instead of {IPC_VERSION}")]
    Version { version: u8 },
    #[error("unknown authentication {auth:#04x}")]
    Auth { auth: u8 },
}

impl ConnectionHeader {
    pub fn encode(self) -> [u8; CONNECTION_HEADER_BYTES] {
        let auth = match self.auth {
            AuthProtocol::Simple => 0,
            AuthProtocol::Sasl => 0xDF,
        };
        [b'h', b'r', b'p', b'c', IPC_VERSION, self.service_class, auth]
    }

    pub fn decode(bytes: [u8; CONNECTION_HEADER_BYTES]) -> Result<Self, ConnectionHeaderError> {
        let [m0, m1, m2, m3, version, service_class, auth] = bytes;
        match &[m0, m1, m2, m3] {
            b"hrpc" => {}
            b"GET " => return Err(ConnectionHeaderError::Http),
            magic => return Err(ConnectionHeaderError::Magic { magic: *magic, version }),
        }
        if version != IPC_VERSION {
            return Err(ConnectionHeaderError::Version { version });
        }
        let auth = match auth {
            0 => AuthProtocol::Simple,
            0xDF => AuthProtocol::Sasl,
            _ => return Err(ConnectionHeaderError::Auth { auth }),
        };
        Ok(Self { service_class, auth })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn golden_and_refusals() {
        let simple = ConnectionHeader { service_class: 0, auth: AuthProtocol::Simple };
        assert_eq!(simple.encode(), *b"hrpc\x09\x00\x00");
        assert_eq!(ConnectionHeader::decode(simple.encode()), Ok(simple));
        let sasl = ConnectionHeader { service_class: 0, auth: AuthProtocol::Sasl };
        assert_eq!(ConnectionHeader::decode(sasl.encode()), Ok(sasl));
        assert_eq!(ConnectionHeader::decode(*b"GET / H"), Err(ConnectionHeaderError::Http));
        assert_eq!(ConnectionHeader::decode(*b"hrpc\x08\x00\x00"), Err(ConnectionHeaderError::Version { version: 8 }));
        assert_eq!(ConnectionHeader::decode(*b"hrpc\x09\x00\x01"), Err(ConnectionHeaderError::Auth { auth: 1 }));
        assert!(matches!(ConnectionHeader::decode(*b"SSH-2.0"), Err(ConnectionHeaderError::Magic { .. })));
    }
}
