//! Additional features of a Hearth DataNode, compared with a standard DataNode. The DataNode reports them itself
//! (DESCRIBE). Hearth's NameNode also passes them on with the locations of blocks, as opaque bytes.

use std::net::{IpAddr, SocketAddr};

use bytes::Bytes;
use prost::Message;

use crate::data_transfer::OpCode;
use crate::proto::hearth as proto;

/// Longest encoded offer that is kept or passed on.
pub const OFFER_BYTES_MAX: usize = 1024;

/// Addresses of a DataNode besides its transfer port. They are valid for the process's lifetime, do not depend on a
/// block, and are not secret.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Offer {
    /// Changes at each start. Everything that the DataNode has handed out in an earlier incarnation is void.
    pub incarnation: u64,
    /// Path of its domain socket for clients on the same machine, if any.
    pub domain_socket: Option<String>,
    /// Listeners for one-sided reads and writes. An unspecified address stands for that of the transfer port.
    pub one_sided: Vec<SocketAddr>,
    /// Network of those listeners: `rdma`, `tcp`.
    pub transport: Option<String>,
    /// Hearth's own operations that it serves on its transfer port.
    pub operations: Vec<OpCode>,
}

impl Offer {
    /// Returns whether its transfer port serves `op`, one of Hearth's own operations.
    pub fn serves(&self, op: OpCode) -> bool {
        self.operations.contains(&op)
    }

    /// Returns the address for one-sided connections. `own`: address of its transfer port as reached by the caller.
    pub fn listener(&self, own: IpAddr) -> Option<SocketAddr> {
        let address = self.one_sided.iter().find(|address| address.is_ipv4() == own.is_ipv4())?;
        Some(if address.ip().is_unspecified() { SocketAddr::new(own, address.port()) } else { *address })
    }

    /// Encodes the offer, for servers that pass it on as opaque bytes.
    pub fn encode(&self) -> Bytes {
        proto::OfferProto::from(self).encode_to_vec().into()
    }

    /// Decodes an offer. `None`: invalid. An offer is a hint, because the DataNode can be asked directly.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        if bytes.len() > OFFER_BYTES_MAX {
            return None;
        }
        proto::OfferProto::decode(bytes).ok().map(Self::from)
    }
}

impl From<&Offer> for proto::OfferProto {
    fn from(offer: &Offer) -> Self {
        Self {
            incarnation: offer.incarnation,
            domain_socket_path: offer.domain_socket.clone(),
            one_sided_addresses: offer.one_sided.iter().map(ToString::to_string).collect(),
            one_sided_transport: offer.transport.clone(),
            operations: offer.operations.iter().map(|op| *op as u32).collect(),
        }
    }
}

impl From<proto::OfferProto> for Offer {
    /// Skips additions of later versions, e.g. other forms of addresses, or other operations.
    fn from(message: proto::OfferProto) -> Self {
        let known = |number: u32| u8::try_from(number).ok().and_then(OpCode::from_number);
        Self {
            incarnation: message.incarnation,
            domain_socket: message.domain_socket_path.filter(|path| !path.is_empty()),
            one_sided: message.one_sided_addresses.iter().filter_map(|address| address.parse().ok()).collect(),
            transport: message.one_sided_transport.filter(|name| !name.is_empty()),
            operations: message.operations.into_iter().filter_map(known).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn offers_round_trip_and_invalid_ones_are_none() {
        let offer = Offer {
            incarnation: u64::MAX,
            domain_socket: Some("/run/hearth/9866".into()),
            one_sided: vec!["10.0.0.1:9868".parse().unwrap(), "[::1]:1".parse().unwrap()],
            transport: Some("rdma".into()),
            operations: vec![OpCode::Describe, OpCode::ReadMany],
        };
        assert_eq!(Offer::decode(&offer.encode()), Some(offer.clone()));
        assert_eq!(Offer::decode(b"\xff\xff"), None);
        let long = Offer { domain_socket: Some("x".repeat(OFFER_BYTES_MAX)), ..offer };
        assert_eq!(Offer::decode(&long.encode()), None);
    }
}
