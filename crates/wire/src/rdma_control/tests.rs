use std::time::Duration;

use bytes::Bytes;
use hearth_types::{Block, BlockId, BlockPoolId, ChecksumSpec, ExtendedBlock, GenerationStamp, RemoteSlice, Token};
use proptest::prelude::*;

use super::*;
use crate::data_transfer::Status;

fn block(length: u64) -> ExtendedBlock {
    let block = Block { id: BlockId(-3), stamp: GenerationStamp(1007), length };
    ExtendedBlock { pool: BlockPoolId::new("BP-1-127.0.0.1-1"), block }
}

fn slice(length: u64) -> RemoteSlice {
    RemoteSlice { address: 0x7f00_0000_1000, length, key: 0xdead_beef }
}

fn advertisement() -> Advertisement {
    Advertisement {
        block: block(70_000),
        checksum: ChecksumSpec::DEFAULT,
        nonce: 42,
        data: slice(70_000),
        checksums: slice(137 * 4),
        shown: slice(40),
        lease: Duration::from_secs(10),
        incarnation: u64::MAX,
    }
}

fn messages() -> Vec<ControlMessage> {
    let token = Token { identifier: vec![1, 2], password: vec![3], kind: "k".into(), service: "s".into() };
    let small = |bytes| SmallReplica { block: block(600), checksum: ChecksumSpec::DEFAULT, bytes };
    let inline = SmallBytes::Inline { data: vec![7; 600].into(), checksums: vec![1; 8].into() };
    let refusal = Refusal { status: Status::ErrorAccessToken, message: "expired".into() };
    vec![
        ControlMessage::Locate(Locate {
            request: 1,
            block: block(5),
            token,
            inline_bytes_max: 4096,
            into: Some(slice(70_000)),
        }),
        ControlMessage::Locate(Locate {
            request: u64::MAX,
            block: block(0),
            token: Token::default(),
            inline_bytes_max: 0,
            into: None,
        }),
        ControlMessage::Located(Located::Shown { request: 1, advertisement: advertisement() }),
        ControlMessage::Located(Located::Small { request: 2, replica: small(inline) }),
        ControlMessage::Located(Located::Small { request: 3, replica: small(SmallBytes::Written) }),
        ControlMessage::Located(Located::Refused { request: 4, refusal }),
    ]
}

#[test]
fn messages_round_trip() {
    for message in messages() {
        let bytes = message.encode().unwrap();
        assert_eq!(ControlMessage::decode(&bytes), Ok(message));
    }
    let advertisement = advertisement();
    let bytes = advertisement.encode();
    assert!(bytes.len() < 200, "{} bytes with every location of a block", bytes.len());
    assert_eq!(Advertisement::decode(&bytes), Ok(advertisement));
}

#[test]
fn inconsistent_messages_are_rejected() {
    let decode = |bytes: Vec<u8>| ControlMessage::decode(&bytes.into());
    assert_eq!(decode(vec![]), Err(ControlError::Empty));
    assert_eq!(decode(vec![99]), Err(ControlError::UnknownKind(99)));
    assert_eq!(decode(vec![0]), Err(ControlError::UnknownKind(0)));
    assert_eq!(decode(vec![1; MESSAGE_BYTES_MAX + 1]), Err(ControlError::TooLong { bytes: MESSAGE_BYTES_MAX + 1 }));
    assert!(matches!(decode(vec![1]), Err(ControlError::Content(_))), "no block");
    assert!(matches!(decode(vec![2]), Err(ControlError::Content(_))), "neither advertisement nor bytes");
    assert!(matches!(decode(vec![1, 0xff]), Err(ControlError::Malformed(_))));

    let good = advertisement();
    for wrong in [
        Advertisement { data: slice(69_999), ..good.clone() },
        Advertisement { checksums: slice(136 * 4), ..good.clone() },
        Advertisement { shown: slice(36), ..good.clone() },
        Advertisement { data: RemoteSlice { address: u64::MAX, ..slice(70_000) }, ..good },
    ] {
        assert!(Advertisement::decode(&wrong.encode()).is_err(), "{wrong:?}");
    }
    let bytes = SmallBytes::Inline { data: vec![7; 599].into(), checksums: vec![1; 8].into() };
    let replica = SmallReplica { block: block(600), checksum: ChecksumSpec::DEFAULT, bytes };
    let message = ControlMessage::Located(Located::Small { request: 1, replica });
    assert!(ControlMessage::decode(&message.encode().unwrap()).is_err());
}

#[test]
fn messages_are_limited_in_length() {
    let data = Bytes::from(vec![7; MESSAGE_BYTES_MAX]);
    let checksums = Bytes::from(vec![0; 64]);
    let replica = SmallReplica {
        block: block(8192),
        checksum: ChecksumSpec::DEFAULT,
        bytes: SmallBytes::Inline { data, checksums },
    };
    let result = ControlMessage::Located(Located::Small { request: 1, replica }).encode();
    assert!(matches!(result, Err(ControlError::TooLong { .. })), "{result:?}");
    let refusal = Refusal { status: Status::Error, message: "é".repeat(5000) };
    let message = ControlMessage::Located(Located::Refused { request: 1, refusal });
    assert!(message.encode().unwrap().len() < 1100);
}

proptest! {
    #[test]
    fn random_bytes_do_not_panic(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
        let _ = ControlMessage::decode(&bytes.into());
    }

    #[test]
    fn flipped_bit_does_not_panic(which in 0_usize..6, at in any::<prop::sample::Index>(), bit in 0_u8..8) {
        let mut bytes = messages()[which].encode().unwrap().to_vec();
        let at = at.index(bytes.len());
        bytes[at] ^= 1 << bit;
        if let Ok(message) = ControlMessage::decode(&bytes.into()) {
            prop_assert_eq!(ControlMessage::decode(&message.encode().unwrap()), Ok(message));
        }
    }
}

#[test]
fn writer_messages_round_trip() {
    use crate::data_transfer::{AckReply, BlockOpResponse, PacketHeader, Status};
    let slice = RemoteSlice { address: 1 << 40, length: 8 << 20, key: 9 };
    let grant = Grant { offset: 3 << 20, data: slice, checksums: RemoteSlice { length: 4096, ..slice } };
    let header = PacketHeader { offset: 7, seqno: -1, last: true, data_bytes: 1 << 20, sync: true };
    for message in [
        WriteMessage::Opened { answer: Box::new(BlockOpResponse::new(Status::Success)), grant: Some(grant) },
        WriteMessage::Opened { answer: Box::new(BlockOpResponse::error(Status::Error, "no")), grant: None },
        WriteMessage::Slice(Slice { header, checksums_at: 512, checksum_bytes: 8192 }),
        WriteMessage::Acknowledged { seqno: 5, replies: vec![AckReply(0), AckReply(1)], grant: Some(grant) },
        WriteMessage::Acknowledged { seqno: -2, replies: Vec::new(), grant: None },
        WriteMessage::Closed,
    ] {
        let bytes = message.encode().unwrap();
        assert_eq!(WriteMessage::decode(&bytes).unwrap(), message);
        for cut in 0..bytes.len() {
            let _ = WriteMessage::decode(&bytes.slice(..cut));
        }
    }
    let beyond = Grant { offset: u64::MAX - 1, ..grant };
    let bytes = WriteMessage::Opened { answer: Box::new(BlockOpResponse::new(Status::Success)), grant: Some(beyond) };
    assert!(WriteMessage::decode(&bytes.encode().unwrap()).is_err());
    assert!(WriteMessage::decode(&bytes::Bytes::from_static(&[3, 0x0a, 1, 0])).is_err());
    assert!(WriteMessage::decode(&bytes::Bytes::from_static(&[1])).is_err());
}
