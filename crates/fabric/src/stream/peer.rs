use std::fmt;
use std::net::{IpAddr, SocketAddr};

/// Identity of the other end of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum PeerAddress {
    Tcp(SocketAddr),
    /// A process of this machine, as the kernel recorded it when the connection was made; for a listening process, when
    /// it started to listen. `pid` is 0 if it belongs to a namespace that is not visible from here.
    Process {
        pid: u32,
        uid: u32,
    },
}

impl PeerAddress {
    /// Returns `None` for a process of this machine.
    pub fn tcp(&self) -> Option<SocketAddr> {
        match self {
            Self::Tcp(address) => Some(*address),
            Self::Process { .. } => None,
        }
    }
}

impl PeerAddress {
    /// Returns the party that the peer belongs to.
    pub fn party(&self) -> Party {
        match self {
            Self::Tcp(address) => Party::from(address.ip()),
            Self::Process { uid, .. } => Party::User(*uid),
        }
    }
}

/// Group of peers that share limits: those of one host, or the processes of one user of this machine.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Party {
    /// An IPv6 host owns a network of 64 bits, so addresses are cut to that.
    Host(IpAddr),
    User(u32),
}

impl From<IpAddr> for Party {
    fn from(address: IpAddr) -> Self {
        Self::Host(match address.to_canonical() {
            IpAddr::V6(address) => IpAddr::V6((address.to_bits() & !u128::from(u64::MAX)).into()),
            address => address,
        })
    }
}

impl From<SocketAddr> for PeerAddress {
    fn from(address: SocketAddr) -> Self {
        Self::Tcp(address)
    }
}

impl PartialEq<SocketAddr> for PeerAddress {
    fn eq(&self, address: &SocketAddr) -> bool {
        self.tcp() == Some(*address)
    }
}

impl fmt::Display for PeerAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(address) => address.fmt(f),
            Self::Process { pid, uid } => write!(f, "process {pid} of user {uid}"),
        }
    }
}
