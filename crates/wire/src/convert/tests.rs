use std::time::Duration;

use hearth_types::*;
use proptest::collection::vec;
use proptest::prelude::*;
use prost::Message;

use super::*;
use crate::proto::hdfs::*;

fn block() -> impl Strategy<Value = ExtendedBlock> {
    ("BP-[0-9a-z.-]{1,30}", any::<i64>(), any::<u64>(), any::<u64>()).prop_map(|(pool, id, stamp, length)| {
        ExtendedBlock {
            pool: BlockPoolId::new(pool),
            block: Block { id: BlockId(id), stamp: GenerationStamp(stamp), length },
        }
    })
}

fn datanode() -> impl Strategy<Value = DatanodeInfo> {
    (
        any::<[u16; 4]>(),
        any::<[u64; 10]>(),
        any::<[u32; 2]>(),
        0usize..5,
        ".{1,20}",
        "/.{0,20}",
        proptest::option::of(vec(any::<u8>(), 1..40)),
    )
        .prop_map(|(ports, numbers, counts, state, uuid, location, offer)| DatanodeInfo {
            id: DatanodeId {
                ip: "10.0.0.5".into(),
                host_name: "dn5.example".into(),
                uuid: DatanodeUuid(uuid.into()),
                transfer_port: ports[0],
                info_port: ports[1],
                ipc_port: ports[2],
                info_secure_port: ports[3],
            },
            capacity: numbers[0],
            dfs_used: numbers[1],
            remaining: numbers[2],
            block_pool_used: numbers[3],
            non_dfs_used: numbers[4],
            last_update_ms: numbers[5],
            last_update_monotonic_ms: numbers[6],
            xceiver_count: counts[0],
            location,
            admin_state: [
                DatanodeAdminState::Normal,
                DatanodeAdminState::DecommissionInProgress,
                DatanodeAdminState::Decommissioned,
                DatanodeAdminState::EnteringMaintenance,
                DatanodeAdminState::InMaintenance,
            ][state],
            cache_capacity: numbers[7],
            cache_used: numbers[8],
            block_count: counts[1],
            last_block_report_ms: numbers[9],
            offer: offer.map(Into::into),
        })
}

fn token() -> impl Strategy<Value = Token> {
    (vec(any::<u8>(), 0..20), vec(any::<u8>(), 0..20), ".{0,10}", ".{0,10}")
        .prop_map(|(identifier, password, kind, service)| Token { identifier, password, kind, service })
}

fn located() -> impl Strategy<Value = LocatedBlock> {
    let advertisements = vec((any::<u32>(), vec(any::<u8>(), 0..200)), 0..4);
    (block(), any::<u64>(), vec(datanode(), 0..4), any::<[bool; 2]>(), token(), advertisements).prop_map(
        |(block, offset, locations, [corrupt, with_storages], token, advertisements)| {
            let advertisements = advertisements.into_iter().take(locations.len()).enumerate();
            let advertisements = advertisements.map(|(location, (lease_ms, advertisement))| LocatedAdvertisement {
                location,
                lease: Duration::from_millis(lease_ms.into()),
                advertisement: advertisement.into(),
            });
            let storages = if with_storages { locations.len() } else { 0 };
            LocatedBlock {
                block,
                offset,
                storage_ids: (0..storages).map(|i| StorageId(format!("DS-{i}").into())).collect(),
                storage_types: vec![StorageType::Nvdimm; storages],
                locations,
                corrupt,
                token,
                advertisements: advertisements.collect(),
                cached: Vec::new(),
            }
        },
    )
}

fn status() -> impl Strategy<Value = FileStatus> {
    (any::<[u64; 5]>(), vec(any::<u8>(), 0..30), any::<u16>(), any::<[u8; 2]>(), any::<u32>(), any::<i32>()).prop_map(
        |(numbers, name, replication, ids, flags, children)| FileStatus {
            kind: [FileKind::Directory, FileKind::File, FileKind::Symlink][numbers[0] as usize % 3],
            local_name: name.clone(),
            length: numbers[0],
            permission: FsPermission(replication & FsPermission::MASK),
            owner: "alice".into(),
            group: "staff".into(),
            modification_time_ms: numbers[1],
            access_time_ms: numbers[2],
            replication,
            block_size: numbers[3],
            inode: numbers[4],
            children,
            storage_policy: ids[0],
            flags: FileFlags(flags),
            symlink: (flags % 2 == 0).then_some(name),
            erasure_coding_policy: (flags % 3 == 0).then_some(ids[1]),
        },
    )
}

/// Encodes and decodes a message.
fn sent<M: Message + Default>(message: M) -> M {
    M::decode(message.encode_to_vec().as_slice()).unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn located_blocks_round_trip(blocks in vec(located(), 0..4), last in proptest::option::of(located()), bits in any::<[bool; 2]>()) {
        let blocks = LocatedBlocks { file_length: 7, under_construction: bits[0], blocks, last_block: last, last_block_complete: bits[1] };
        let back: LocatedBlocks = sent(LocatedBlocksProto::from(&blocks)).try_into().unwrap();
        prop_assert_eq!(back, blocks);
    }

    #[test]
    fn file_status_round_trips(status in status(), blocks in vec(located(), 0..3)) {
        let blocks = LocatedBlocks { file_length: 7, under_construction: false, blocks, last_block: None, last_block_complete: true };
        let message = sent(file_status_with_locations_to_wire(&status, Some(&blocks)));
        prop_assert_eq!(file_status_with_locations(message).unwrap(), (status, Some(blocks)));
    }

    #[test]
    fn storage_reports_round_trip(numbers in any::<[u64; 5]>(), kind in 1i32..7, failed: bool) {
        let report = StorageReport {
            storage: StorageId("DS-1".into()),
            storage_type: StorageType::from_number(kind).unwrap(),
            failed,
            capacity: numbers[0],
            dfs_used: numbers[1],
            remaining: numbers[2],
            block_pool_used: numbers[3],
            non_dfs_used: numbers[4],
        };
        prop_assert_eq!(StorageReport::try_from(sent(StorageReportProto::from(&report))).unwrap(), report);
    }

    #[test]
    fn any_bytes_are_converted_or_refused(bytes in vec(any::<u8>(), 0..200)) {
        if let Ok(message) = LocatedBlocksProto::decode(&bytes[..]) { let _ = LocatedBlocks::try_from(message); }
        if let Ok(message) = HdfsFileStatusProto::decode(&bytes[..]) { let _ = file_status_with_locations(message); }
        if let Ok(message) = StorageReportProto::decode(&bytes[..]) { let _ = StorageReport::try_from(message); }
        if let Ok(message) = FsServerDefaultsProto::decode(&bytes[..]) { let _ = ServerDefaults::try_from(message); }
    }
}

#[test]
fn defaults_and_summaries_round_trip() {
    let defaults = ServerDefaults {
        block_size: 128 << 20,
        checksum: ChecksumSpec::DEFAULT,
        write_packet_bytes: 65536,
        replication: 3,
        file_buffer_bytes: 4096,
        encrypt_data_transfer: false,
        trash_interval_minutes: 0,
        key_provider_uri: Some(String::new()),
        storage_policy: 7,
        snapshot_trash_root: false,
    };
    assert_eq!(ServerDefaults::try_from(sent(FsServerDefaultsProto::from(&defaults))).unwrap(), defaults);
    let on = |storage_type, quota| TypeQuota { storage_type, quota, consumed: 7 };
    let summary = ContentSummary {
        length: 5,
        files: 1,
        name_quota: Some(i64::MAX as u64),
        type_quotas: vec![on(StorageType::Ssd, Some(9)), on(StorageType::Disk, None)],
        in_snapshots: SnapshotShare { length: 1, files: 2, directories: 3, space_consumed: 4 },
        ..Default::default()
    };
    let message = sent(ContentSummaryProto::from(&summary));
    assert_eq!(message.space_quota, u64::MAX);
    assert_eq!(ContentSummary::from(message), summary);
}

#[test]
fn invalid_content_is_rejected() {
    let message = ExtendedBlockProto { block_id: 1, ..Default::default() };
    assert_eq!(ExtendedBlock::try_from(message), Err(ConvertError::Empty { field: "block pool id" }));

    let id = DatanodeIdProto { datanode_uuid: "u".into(), xfer_port: 65536, ..Default::default() };
    assert_eq!(DatanodeId::try_from(id), Err(ConvertError::OutOfRange { field: "transfer port", value: 65536 }));
    assert_eq!(DatanodeId::try_from(DatanodeIdProto::default()), Err(ConvertError::Empty { field: "datanode uuid" }));

    let b = ExtendedBlockProto { pool_id: "BP-1".into(), ..Default::default() };
    let located = LocatedBlockProto { b: b.clone(), storage_ids: vec!["DS-1".into()], ..Default::default() };
    assert_eq!(
        LocatedBlock::try_from(located),
        Err(ConvertError::Count { field: "storage ids", expected: 0, actual: 1 })
    );
    let striped = LocatedBlockProto { b, block_indices: Some(Default::default()), ..Default::default() };
    assert!(matches!(LocatedBlock::try_from(striped), Err(ConvertError::Striped { .. })));

    for (number, bytes_per_checksum) in [(3, 512), (2, 0), (2, u32::MAX)] {
        let message = ChecksumProto { r#type: number, bytes_per_checksum };
        assert!(ChecksumSpec::try_from(message).is_err(), "{message:?}");
    }
}
