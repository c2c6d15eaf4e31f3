//! Golden bytes of Hadoop 3.4.2, round trips, and properties for arbitrary bytes.

use hearth_types::*;
use proptest::collection::vec;
use proptest::prelude::*;
use prost::Message;

use super::*;
use crate::offer::Offer;
use crate::proto::hdfs::PacketHeaderProto;
use crate::trace::SpanContext;

fn bytes(hex: &str) -> Vec<u8> {
    let digits: String = hex.chars().filter(|c| !c.is_whitespace()).collect();
    (0..digits.len() / 2).map(|i| u8::from_str_radix(&digits[2 * i..2 * i + 2], 16).unwrap()).collect()
}

fn block() -> ExtendedBlock {
    ExtendedBlock {
        pool: BlockPoolId::new("BP-1"),
        block: Block { id: BlockId(1073741825), stamp: GenerationStamp(1001), length: 1000 },
    }
}

fn datanode(index: u16) -> DatanodeInfo {
    DatanodeInfo::of(DatanodeId {
        ip: format!("10.0.0.{index}"),
        host_name: format!("dn{index}"),
        uuid: DatanodeUuid(format!("uuid-{index}").into()),
        transfer_port: 9866 + index,
        info_port: 9864,
        ipc_port: 9867,
        info_secure_port: 0,
    })
}

fn target(index: u16) -> PipelineTarget {
    PipelineTarget {
        datanode: datanode(index),
        storage_type: StorageType::Ssd,
        storage_id: Some(StorageId(format!("DS-{index}").into())),
        pinned: index.is_multiple_of(2),
    }
}

fn write_block(targets: Vec<PipelineTarget>) -> WriteBlock {
    WriteBlock {
        block: block(),
        token: Token {
            identifier: vec![1],
            password: vec![2],
            kind: "HDFS_BLOCK_TOKEN".into(),
            service: String::new(),
        },
        client_name: "DFSClient_x".into(),
        targets,
        source: Some(datanode(9)),
        stage: Stage::PipelineSetupCreate,
        pipeline_size: 3,
        bytes_received_min: 1,
        bytes_received_max: 2,
        latest_stamp: GenerationStamp(1002),
        checksum: ChecksumSpec::DEFAULT,
        caching: CachingStrategy { drop_behind: Some(true), readahead: None },
        storage_type: StorageType::RamDisk,
        storage_id: Some(StorageId("DS-own".into())),
        allow_lazy_persist: true,
        pinned: true,
    }
}

fn operations() -> Vec<Operation> {
    let slot = ShmSlot { segment: ShmId { high: -1, low: 7 }, index: 3 };
    let token = Token::default();
    vec![
        Operation::ReadBlock(ReadBlock {
            block: block(),
            token: token.clone(),
            client_name: "DFSClient_x".into(),
            offset: 600,
            length: Some(400),
            send_checksums: true,
            caching: CachingStrategy::default(),
        }),
        Operation::WriteBlock(Box::new(write_block(vec![target(1), target(2)]))),
        Operation::TransferBlock(TransferBlock {
            block: block(),
            token: token.clone(),
            client_name: "c".into(),
            targets: vec![PipelineTarget { pinned: false, ..target(4) }],
        }),
        Operation::BlockChecksum(BlockChecksum {
            block: block(),
            token: token.clone(),
            options: BlockChecksumOptions { kind: BlockChecksumKind::CompositeCrc, stripe_length: 1 << 20 },
        }),
        Operation::CopyBlock(CopyBlock { block: block(), token: token.clone() }),
        Operation::ReplaceBlock(Box::new(ReplaceBlock {
            block: block(),
            token: token.clone(),
            delete_hint: "uuid-1".into(),
            source: datanode(2),
            storage_type: StorageType::Archive,
            storage_id: None,
        })),
        Operation::RequestShortCircuitFds(RequestShortCircuitFds {
            block: block(),
            token,
            version_max: 1,
            slot: Some(slot),
            supports_receipt_verification: true,
        }),
        Operation::ReleaseShortCircuitFds(slot),
        Operation::RequestShortCircuitShm { client_name: "c".into() },
        Operation::WriteLocal(Box::new(write_block(vec![target(1)]))),
        Operation::Describe(Describe { client_name: "c".into() }),
        Operation::ReadMany(ReadMany { client_name: "c".into(), memory_bytes: 0 }),
        Operation::ReadMany(ReadMany { client_name: "c".into(), memory_bytes: 1 << 20 }),
        Operation::ReplicaStream(ReplicaStream { source_uuid: "u".into() }),
        Operation::SendReplica(TransferBlock {
            block: block(),
            token: Token::default(),
            client_name: String::new(),
            targets: vec![PipelineTarget { pinned: false, ..target(1) }],
        }),
    ]
}

#[test]
fn operations_on_blocks_carry_the_senders_span() {
    let span = SpanContext { trace_id: [1; 16], span_id: [2; 8] };
    for operation in operations() {
        let with_block = !matches!(
            operation,
            Operation::ReleaseShortCircuitFds(_)
                | Operation::RequestShortCircuitShm { .. }
                | Operation::Describe(_)
                | Operation::ReadMany(_)
                | Operation::ReplicaStream(_)
        );
        let encoded = operation.encode_traced(Some(span));
        let decoded = Operation::decode_traced(&encoded);
        let expected = with_block.then_some(span);
        assert_eq!(decoded, Ok(Decoded::Complete((operation.clone(), expected), encoded.len())));
        // Without a trace, not a byte is added.
        assert_eq!(encoded.len() > operation.encode().len(), with_block, "{operation:?}");
        assert_eq!(Operation::decode(&encoded), Ok(Decoded::Complete(operation, encoded.len())));
    }
}

#[test]
fn read_block_and_its_answers() {
    let golden = bytes(concat!(
        "001c51390a2d0a1e0a120a0442502d3110818080800418e90720e80712080a0012001a002200120b444653436c69656e745f78",
        "10d80418900320012a00"
    ));
    assert_eq!(operations()[0].encode(), golden);
    assert_eq!(Operation::decode(&golden), Ok(Decoded::Complete(operations().remove(0), golden.len())));

    let reply = BlockOpResponse::read(ChecksumSpec::DEFAULT, 512);
    assert_eq!(reply.encode(), bytes("0e0800220a0a050802108004108004"));
    assert_eq!(BlockOpResponse::decode(&reply.encode()), Ok(Decoded::Complete(reply, 15)));

    assert_eq!(encode_client_read_status(Status::ChecksumOk), bytes("020806"));
    assert_eq!(client_read_status(&bytes("020806")), Ok(Decoded::Complete(Status::ChecksumOk, 3)));
    assert_eq!(BlockOpResponse::pipeline(Status::Success, "").encode(), bytes("0408001200"));
}

#[test]
fn operations_round_trip_and_need_every_byte() {
    for operation in operations() {
        let encoded = operation.encode();
        for cut in 0..encoded.len() {
            match Operation::decode(&encoded[..cut]) {
                Ok(Decoded::Needs(missing)) => assert!(missing > 0 && cut + missing <= encoded.len(), "{operation:?}"),
                other => panic!("{other:?} of {cut} bytes of {operation:?}"),
            }
        }
        let mut longer = encoded.clone();
        longer.extend([1, 2, 3]);
        assert_eq!(Operation::decode(&longer), Ok(Decoded::Complete(operation, encoded.len())));
    }
}

#[test]
fn invalid_requests_give_specific_errors() {
    assert_eq!(Operation::decode(&[0, 27]), Err(OpError::Version { found: 27 }));
    assert_eq!(Operation::decode(&[0xde, 0xad, 0xbe, 0xef]), Err(OpError::Version { found: 0xdead }));
    assert_eq!(Operation::decode(&[0, 28, 79]), Err(OpError::UnknownOperation { code: 79 }));
    assert_eq!(Operation::decode(&[0, 28, 90]), Err(OpError::Unsupported { op: OpCode::BlockGroupChecksum }));
    assert!(matches!(
        Operation::decode(&[0, 28, 81, 0xff, 0xff, 0xff, 0x7f]),
        Err(OpError::Unreadable { error: DelimitedError::TooLong { .. }, .. })
    ));
    // An empty message lacks its block.
    assert!(matches!(
        Operation::decode(&[0, 28, 81, 0]),
        Err(OpError::Content { op: OpCode::ReadBlock, error: ConvertError::Empty { .. } })
    ));
}

#[test]
fn unknown_additions_to_description_are_ignored() {
    let description = DatanodeDescription {
        datanode: DatanodeUuid("uuid-1".into()),
        offer: Offer {
            incarnation: u64::MAX,
            domain_socket: Some("/run/hearth/9866".into()),
            one_sided: vec!["10.0.0.1:9868".parse().unwrap(), "[::1]:1".parse().unwrap()],
            transport: Some("rdma".into()),
            operations: vec![OpCode::ReadMany],
        },
        operations: vec![OpCode::Describe, OpCode::WriteLocal],
    };
    let encoded = description.encode();
    assert_eq!(DatanodeDescription::decode(&encoded), Ok(Decoded::Complete(description.clone(), encoded.len())));
    assert!(description.serves(OpCode::WriteLocal) && !description.serves(OpCode::ReadBlock));

    let later = crate::proto::hearth::DescribeResponse {
        datanode_uuid: "uuid-1".into(),
        offer: crate::proto::hearth::OfferProto {
            incarnation: 1,
            one_sided_addresses: vec!["gid:fe80::1".into(), "10.0.0.1:1".into()],
            ..Default::default()
        },
        operations: vec![250, 100_000, 0xA0],
    };
    let later = DatanodeDescription::try_from(later).unwrap();
    assert_eq!((later.offer.one_sided.len(), later.operations), (1, vec![OpCode::Describe]));
}

/// Returns messages of a connection of many reads: ranges, and heads of successful and refused reads.
fn many() -> (Vec<RangeRequest>, Vec<RangeHead>) {
    let token = Token { identifier: vec![1, 2], password: vec![3], kind: "k".into(), service: "s".into() };
    let range = |request, token, place: Option<AnswerSlot>| {
        let range = ByteRange::new(513, 700).unwrap();
        let trace = place.map(|_| SpanContext { trace_id: [1; 16], span_id: [2; 8] });
        RangeRequest { request, block: block(), token, range, place, trace }
    };
    let place = AnswerSlot { offset: 67_584, bytes: 4096 };
    let piece = RangePiece {
        stamp: GenerationStamp(1001),
        replica_length: 700,
        checksum: ChecksumSpec::DEFAULT,
        offset: 512,
        data_bytes: 188,
        placed: false,
    };
    let placed = RangePiece { placed: true, ..piece };
    let refusal = RangeRefusal { status: Status::ErrorAccessToken, message: "expired".into() };
    (
        vec![range(0, Token::default(), None), range(u64::MAX, token, Some(place))],
        vec![
            RangeHead { request: 7, piece: Ok(piece) },
            RangeHead { request: 8, piece: Ok(placed) },
            RangeHead { request: 0, piece: Err(refusal) },
        ],
    )
}

#[test]
fn ranges_and_heads_round_trip_when_complete() {
    let (ranges, heads) = many();
    let mut stream = Vec::new();
    ranges.iter().for_each(|range| range.encode_into(&mut stream));
    let mut rest = &stream[..];
    for range in &ranges {
        let Ok(Decoded::Complete(found, consumed)) = RangeRequest::decode(rest) else { panic!("{range:?}") };
        assert_eq!(&found, range);
        for cut in 0..consumed {
            assert!(matches!(RangeRequest::decode(&rest[..cut]), Ok(Decoded::Needs(1..))), "{cut}");
        }
        rest = &rest[consumed..];
    }
    assert!(rest.is_empty());
    for head in heads {
        let mut encoded = Vec::new();
        head.encode_into(&mut encoded);
        let follows = head.piece.as_ref().is_ok_and(|piece| !piece.placed);
        assert_eq!(head.following_bytes(), if follows { 4 + 188 } else { 0 });
        assert_eq!(RangeHead::decode(&encoded), Ok(Decoded::Complete(head, encoded.len())));
    }
    for terms in [
        ReadManyTerms::Accepted { range_bytes_max: 4096, takes_memory: false },
        ReadManyTerms::Accepted { range_bytes_max: 4096, takes_memory: true },
        ReadManyTerms::Refused(RangeRefusal { status: Status::ErrorUnsupported, message: "no".into() }),
    ] {
        let encoded = terms.encode();
        assert_eq!(ReadManyTerms::decode(&encoded), Ok(Decoded::Complete(terms, encoded.len())));
    }
}

#[test]
fn oversized_or_inconsistent_heads_are_rejected() {
    let (_, heads) = many();
    let Ok(piece) = heads[0].piece.clone() else { panic!("the first was read") };
    let encoded = |change: &dyn Fn(&mut crate::proto::hearth::ManyHeadProto)| {
        let mut bytes = Vec::new();
        RangeHead { request: 1, piece: Ok(piece) }.encode_into(&mut bytes);
        let mut message = crate::proto::hearth::ManyHeadProto::decode_length_delimited(&bytes[..]).unwrap();
        change(&mut message);
        RangeHead::decode(&delimited::to_vec(&message))
    };
    assert!(encoded(&|_| ()).is_ok());
    assert!(encoded(&|head| head.checksum_bytes = Some(8)).is_err());
    assert!(encoded(&|head| head.checksum = None).is_err());
    assert!(encoded(&|head| head.data_bytes = Some(u32::MAX)).is_err());
    // A CRC for each byte would be four times the data.
    assert!(
        encoded(&|head| {
            head.data_bytes = Some(ReadMany::RANGE_BYTES_MAX);
            head.checksum.as_mut().unwrap().bytes_per_checksum = 1;
            head.checksum_bytes = Some(4 * ReadMany::RANGE_BYTES_MAX);
        })
        .is_err()
    );
    let long = RangeRefusal { status: Status::Error, message: "ä".repeat(ReadMany::HEAD_BYTES_MAX) };
    let mut bytes = Vec::new();
    RangeHead { request: 1, piece: Err(long) }.encode_into(&mut bytes);
    assert!(matches!(RangeHead::decode(&bytes), Ok(Decoded::Complete(..))), "a long text is cut");
    assert!(matches!(RangeRequest::decode(&[0xFF, 0xFF, 0xFF, 0x7F]), Err(MessageError::Unreadable(_))));
}

#[test]
fn downstream_request_drops_first_target() {
    let first = write_block(vec![target(1), target(2)]);
    let (next, second) = first.downstream().unwrap();
    assert_eq!(next, &datanode(1));
    assert_eq!(second.targets, [target(2)]);
    assert_eq!(
        (second.storage_type, &second.storage_id, second.pinned),
        (StorageType::Ssd, &Some(StorageId("DS-1".into())), false)
    );
    assert_eq!((second.stage, &second.source, second.checksum), (first.stage, &first.source, first.checksum));
    let (next, third) = second.downstream().unwrap();
    assert_eq!(next, &datanode(2));
    assert!(third.targets.is_empty() && third.pinned && third.downstream().is_none());
}

#[test]
fn missing_target_lists_have_defaults() {
    let mut message = crate::proto::hdfs::OpTransferBlockProto::default();
    message.header.base_header.block.pool_id = "BP-1".into();
    message.targets = vec![(&datanode(1)).into(), (&datanode(2)).into()];
    message.target_storage_types = vec![StorageType::Ssd as i32];
    let mut encoded = vec![0, 28, 86];
    encoded.extend(message.encode_length_delimited_to_vec());
    let Ok(Decoded::Complete(Operation::TransferBlock(transfer), _)) = Operation::decode(&encoded) else { panic!() };
    let kinds: Vec<_> = transfer.targets.iter().map(|target| target.storage_type).collect();
    assert_eq!(kinds, [StorageType::Ssd, StorageType::Disk]);
    assert!(transfer.targets.iter().all(|target| target.storage_id.is_none() && !target.pinned));
}

#[test]
fn golden_packets() {
    let header = |offset, seqno, last, data_bytes, sync| PacketHeader { offset, seqno, last, data_bytes, sync };
    for (header, checksum_bytes, golden) in [
        (header(0, 0, false, 512, false), 4, "00000208 0019 09 0000000000000000 11 0000000000000000 1800 25 00020000"),
        (
            header(1024, 7, false, 512, true),
            4,
            "00000208 001b 09 0004000000000000 11 0700000000000000 1800 25 00020000 2801",
        ),
        (header(1536, 8, true, 0, false), 0, "00000004 0019 09 0006000000000000 11 0800000000000000 1801 25 00000000"),
        (
            header(0, HEARTBEAT_SEQNO, false, 0, false),
            0,
            "00000004 0019 09 0000000000000000 11 ffffffffffffffff 1800 25 00000000",
        ),
    ] {
        let golden = bytes(golden);
        let mut buffer = [0; PACKET_HEADER_BYTES_MAX];
        let length = header.encode(checksum_bytes, &mut buffer);
        assert_eq!(buffer[..length], golden);
        let head = PacketHead { header, checksum_bytes, data_bytes: header.data_bytes as usize };
        assert_eq!(PacketHead::decode(&golden), Ok(Decoded::Complete(head, length)));
        for cut in 0..length {
            assert!(matches!(PacketHead::decode(&golden[..cut]), Ok(Decoded::Needs(1..))));
        }
        // The fixed layout is the one that prost writes.
        let message = PacketHeaderProto {
            offset_in_block: header.offset as i64,
            seqno: header.seqno,
            last_packet_in_block: header.last,
            data_len: header.data_bytes as i32,
            sync_block: header.sync.then_some(true),
        };
        assert_eq!(buffer[PACKET_PREFIX_BYTES..length], message.encode_to_vec());
        assert!(length <= PACKET_HEADER_BYTES_MAX);
    }
}

#[test]
fn invalid_packets_are_rejected() {
    let decode = |hex: &str| PacketHead::decode(&bytes(hex)).unwrap_err();
    assert_eq!(decode("00000003 0019"), PacketError::PayloadTooShort { bytes: 3 });
    assert_eq!(decode("01000000 0019"), PacketError::TooLong { bytes: (16 << 20) + 25 });
    assert_eq!(decode("00000004 8000"), PacketError::TooLong { bytes: 32772 });
    assert_eq!(
        decode("00000010 0019 09 0000000000000000 11 0000000000000000 1800 25 0d000000"),
        PacketError::DataLength { data_bytes: 13, payload_bytes: 12 }
    );
    assert!(matches!(
        decode("00000010 0019 09 0000000000000000 11 0000000000000000 1800 25 ffffffff"),
        PacketError::DataLength { data_bytes: -1, .. }
    ));
    assert!(matches!(
        decode("00000010 0019 09 ffffffffffffffff 11 0000000000000000 1800 25 00000000"),
        PacketError::Offset { offset: -1 }
    ));
    assert_eq!(decode("00000010 0018"), PacketError::HeaderTooShort { bytes: 24 });
    // An optional field in the place of a mandatory one: with all mandatory fields the header would be longer.
    assert_eq!(
        decode("00000010 0019 09 0000000000000000 11 0000000000000000 25 00000000 2801"),
        PacketError::HeaderTooShort { bytes: 25 }
    );
    let garbage = format!("00000010 0019 {}", "ff".repeat(25));
    assert!(matches!(decode(&garbage), PacketError::Unreadable(_)));
}

#[test]
fn fits_matches_what_the_decoder_accepts() {
    let mut buffer = [0; PACKET_HEADER_BYTES_MAX];
    for (sync, header_bytes) in [(false, 25), (true, 27)] {
        let data_bytes = 8 << 20;
        let header = PacketHeader { offset: 0, seqno: 0, last: false, data_bytes, sync };
        let most = PACKET_BYTES_MAX - data_bytes as usize - header_bytes - 4;
        assert!(header.fits(most) && !header.fits(most + 1));
        let length = header.encode(most, &mut buffer);
        assert!(matches!(PacketHead::decode(&buffer[..length]), Ok(Decoded::Complete(..))));
        // Four bytes under each CRC: the CRCs are as long as the data.
        assert!(!header.fits(data_bytes as usize));
        assert!(!PacketHeader { data_bytes: u32::MAX, ..header }.fits(0));
    }
}

#[test]
fn local_writer_packets_may_omit_data() {
    let spec = ChecksumSpec::DEFAULT;
    for (data_bytes, sync) in [(1300u32, false), (0, true), (512, true), (300_000_000, false)] {
        let header = PacketHeader { offset: 1024, seqno: 7, last: false, data_bytes, sync };
        let sums = spec.checksum_bytes(u64::from(data_bytes)) as usize;
        let mut buffer = [0; PACKET_HEADER_BYTES_MAX];
        let length = header.encode_in_place(sums, &mut buffer);
        let head = PacketHead { header, checksum_bytes: sums, data_bytes: 0 };
        for cut in 0..length {
            assert!(matches!(PacketHead::decode_local(&buffer[..cut], spec), Ok(Decoded::Needs(1..))));
        }
        assert_eq!(PacketHead::decode_local(&buffer[..length], spec), Ok(Decoded::Complete(head, length)));
        assert_eq!(head.is_in_place(), data_bytes > 0);
        if data_bytes > 0 && sums < data_bytes as usize {
            assert!(matches!(PacketHead::decode(&buffer[..length]), Err(PacketError::DataLength { .. })));
        }
    }
    let header = PacketHeader { offset: 0, seqno: 0, last: false, data_bytes: 1300, sync: false };
    let mut buffer = [0; PACKET_HEADER_BYTES_MAX];
    let length = header.encode(12, &mut buffer);
    let head = PacketHead { header, checksum_bytes: 12, data_bytes: 1300 };
    assert_eq!(PacketHead::decode_local(&buffer[..length], spec), Ok(Decoded::Complete(head, length)));
    // Without checksums, a packet without a body has its data in place.
    let spec = ChecksumSpec { kind: ChecksumKind::Null, bytes_per_chunk: 512 };
    let length = header.encode_in_place(0, &mut buffer);
    let Ok(Decoded::Complete(head, _)) = PacketHead::decode_local(&buffer[..length], spec) else { panic!() };
    assert!(head.is_in_place());
    // Neither of the two valid lengths.
    let length = header.encode_in_place(8, &mut buffer);
    assert!(matches!(
        PacketHead::decode_local(&buffer[..length], ChecksumSpec::DEFAULT),
        Err(PacketError::DataLength { .. })
    ));
}

#[test]
fn golden_acks() {
    let ack = |seqno, replies: &[u32], downstream_nanos| PipelineAck {
        seqno,
        replies: replies.iter().map(|flags| AckReply(*flags)).collect(),
        downstream_nanos,
        granted: None,
    };
    for (ack, golden) in [
        (ack(5, &[0], 0), "09080a10001800220100"),
        (ack(-1, &[0, 0, 0], 123456), "11080110001000100018c0c4072203000000"),
        (ack(6, &[160, 353], 0), "0e080c1000100118002204a001e102"),
        (ack(-2, &[8], 0), "09080310081800220108"),
    ] {
        assert_eq!(ack.encode(), bytes(golden), "{ack:?}");
        assert_eq!(PipelineAck::decode(&bytes(golden)), Ok(Decoded::Complete(ack, golden.len() / 2)));
    }
    let reply = AckReply(353);
    assert_eq!(
        (reply.status(), reply.congestion(), reply.slow()),
        (Status::Error, CongestionState::Congested, SlowState::Slow)
    );
    assert_eq!(AckReply::new(Status::Success, CongestionState::Supported, SlowState::Normal), AckReply(160));
    assert_eq!(PipelineAck::last(5, Status::Success).encode(), bytes("09080a10001800220100"));
    // Only replies, as from senders without flags.
    let Ok(Decoded::Complete(plain, _)) = PipelineAck::decode(&bytes("06080a10001002")) else { panic!() };
    assert_eq!(plain.replies, [AckReply(0), AckReply(2)]);
    let passed = plain.forwarded(AckReply::SUCCESS, 77);
    assert_eq!(
        (passed.replies.len(), passed.replies[2].status(), passed.downstream_nanos),
        (3, Status::ErrorChecksum, 77)
    );
    assert!(!passed.is_success());
}

#[test]
fn answers_round_trip() {
    let checksum = BlockChecksumAnswer {
        bytes_per_crc: 512,
        crcs: 2,
        checksum: bytes("7cf73382ad23bfc157d4ce3bef140bcb"),
        crc_kind: Some(ChecksumKind::Crc32c),
        options: Some(BlockChecksumOptions::default()),
    };
    let full = BlockOpResponse {
        block_checksum: Some(checksum),
        short_circuit_version: Some(1),
        ..BlockOpResponse::error(Status::ErrorUnsupported, "why")
    };
    let encoded = full.encode();
    assert_eq!(BlockOpResponse::decode(&encoded), Ok(Decoded::Complete(full, encoded.len())));
    assert_eq!(BlockOpResponse::decode(&bytes("02080f")), Err(MessageError::Status { number: 15 }));

    let shm = ShmResponse { status: Status::Success, error: None, segment: Some(ShmId { high: 1, low: -2 }) };
    let encoded = shm.encode();
    assert_eq!(ShmResponse::decode(&encoded), Ok(Decoded::Complete(shm, encoded.len())));
    let release = ShortCircuitReleaseResponse { status: Status::ErrorInvalid, error: Some("no slot".into()) };
    let encoded = release.encode();
    assert_eq!(ShortCircuitReleaseResponse::decode(&encoded), Ok(Decoded::Complete(release, encoded.len())));
}

proptest! {
    #[test]
    fn packet_headers_round_trip(offset in 0u64..1 << 62, seqno: i64, last: bool, sync: bool, data in 0u32..1 << 23, sums in 0usize..1 << 20) {
        let header = PacketHeader { offset, seqno, last, data_bytes: data, sync };
        let mut buffer = [0; PACKET_HEADER_BYTES_MAX];
        let length = header.encode(sums, &mut buffer);
        let head = PacketHead { header, checksum_bytes: sums, data_bytes: data as usize };
        prop_assert_eq!(PacketHead::decode(&buffer[..length]), Ok(Decoded::Complete(head, length)));
    }

    #[test]
    fn acks_round_trip(seqno: i64, flags in vec(0u32..512, 1..5), nanos: u64, granted: Option<u64>) {
        let replies = flags.into_iter().map(AckReply).collect();
        let ack = PipelineAck { seqno, replies, downstream_nanos: nanos, granted };
        let encoded = ack.encode();
        prop_assert_eq!(PipelineAck::decode(&encoded), Ok(Decoded::Complete(ack, encoded.len())));
    }

    #[test]
    fn any_bytes_are_decoded_or_refused(body in vec(any::<u8>(), 0..300), code in 80u8..91) {
        let _ = Operation::decode(&body);
        let mut request = vec![0, 28, code];
        request.extend(&body);
        if let Ok(Decoded::Complete(_, consumed)) = Operation::decode(&request) { prop_assert!(consumed <= request.len()); }
        if let Ok(Decoded::Complete(head, consumed)) = PacketHead::decode(&body) {
            prop_assert!(consumed <= body.len() && head.body_bytes() <= PACKET_BYTES_MAX);
        }
        let _ = PipelineAck::decode(&body);
        let _ = BlockOpResponse::decode(&body);
        let _ = client_read_status(&body);
        let _ = ShmResponse::decode(&body);
        let _ = ShortCircuitReleaseResponse::decode(&body);
        let _ = RangeRequest::decode(&body);
        let _ = ReadManyTerms::decode(&body);
        if let Ok(Decoded::Complete(head, consumed)) = RangeHead::decode(&body) {
            prop_assert!(consumed <= body.len() && head.following_bytes() <= 2 << 20);
        }
    }

    #[test]
    fn damaged_ranges_and_heads_are_decoded_or_refused(at in 0usize..200, value: u8, cut in 0usize..200) {
        let (ranges, heads) = many();
        let mut messages: Vec<Vec<u8>> = vec![Vec::new(); ranges.len() + heads.len()];
        let (of_ranges, of_heads) = messages.split_at_mut(ranges.len());
        ranges.iter().zip(of_ranges).for_each(|(range, bytes)| range.encode_into(bytes));
        heads.iter().zip(of_heads).for_each(|(head, bytes)| head.encode_into(bytes));
        for mut bytes in messages {
            let at = at.min(bytes.len() - 1);
            bytes[at] = value;
            for _ in 0..2 {
                let _ = RangeRequest::decode(&bytes);
                if let Ok(Decoded::Complete(head, _)) = RangeHead::decode(&bytes) {
                    prop_assert!(head.following_bytes() <= 2 << 20);
                }
                bytes.truncate(cut);
            }
        }
    }

    #[test]
    fn damaged_requests_are_decoded_or_refused(index in 0usize..operations().len(), at in 3usize..400, value: u8, cut in 0usize..400) {
        let mut request = operations()[index].encode();
        let at = at.min(request.len() - 1);
        request[at] = value;
        let _ = Operation::decode(&request);
        request.truncate(cut);
        let _ = Operation::decode(&request);
    }
}
