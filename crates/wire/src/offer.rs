//! What a Hearth datanode offers beyond what every datanode does. It says so itself (DESCRIBE), and its namenode, when that is
//! Hearth's too, hands it on with the locations of blocks, as bytes that mean nothing to it.

use std::net::{IpAddr, SocketAddr};

use bytes::Bytes;
use prost::Message;

use crate::data_transfer::OpCode;
use crate::proto::hearth as proto;

/// Longest encoded offer that anybody keeps or passes on.
pub const OFFER_BYTES_MAX: usize = 1024;

/// Where a datanode can be reached beside its transfer port, for as long as it lives. Names no block, and is no secret.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Offer {
    /// Another number after each start: what the datanode has handed out in an earlier life is void.
    pub incarnation: u64,
    /// Where it listens on its own machine, if it does.
    pub domain_socket: Option<String>,
    /// Listeners for one-sided reads and writes; an unspecified address stands for that of the transfer port.
    pub one_sided: Vec<SocketAddr>,
    /// Which network those are in: `rdma`, `tcp`.
    pub transport: Option<String>,
    /// Hearth's own operations that it serves on its transfer port.
    pub operations: Vec<OpCode>,
}

impl Offer {
    /// Whether its transfer port serves `op`, one of Hearth's own.
    pub fn serves(&self, op: OpCode) -> bool {
        self.operations.contains(&op)
    }

    /// Where it listens for one-sided connections; `own`: an address by which its transfer port is reached.
    pub fn listener(&self, own: IpAddr) -> Option<SocketAddr> {
        let address = self.one_sided.iter().find(|address| address.is_ipv4() == own.is_ipv4())?;
        Some(if address.ip().is_unspecified() { SocketAddr::new(own, address.port()) } else { *address })
    }

    /// For whoever carries it without knowing what it means.
    pub fn encode(&self) -> Bytes {
        proto::OfferProto::from(self).encode_to_vec().into()
    }

    /// `None`: it cannot be read. It is a hint: the datanode can be asked.
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
    /// What a later version may add, e.g. other forms of address or operations, is left out.
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
    fn an_offer_travels_and_what_is_too_long_or_no_offer_is_none() {
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
