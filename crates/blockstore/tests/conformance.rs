//! Behaviour that every storage engine must have: plain functions over the API, run with each kind of store.

mod common;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use common::*;
use hearth_blockstore::*;
use hearth_types::*;

fn for_each_kind(test: fn(&Bed, Kind)) {
    for kind in KINDS {
        eprintln!("with {kind:?}");
        test(&Bed::new(kind), kind);
    }
}

const SIZES: [usize; 12] = [0, 1, 100, 511, 512, 513, 4096, 65_535, 65_536, 65_537, 200_000, 1_048_577];

#[test]
fn written_bytes_are_read_back() {
    for_each_kind(|bed, kind| {
        let store = bed.open();
        for (id, size) in SIZES.into_iter().enumerate() {
            let summary = put(&store, id as i64, 1001, &bytes(id as u64, size));
            assert_eq!(summary.block, block(id as i64, 1001, size as u64));
            assert!(get(&store, id as i64, 1001) == bytes(id as u64, size), "{size} bytes");
            assert_eq!(info(&store, id as i64).in_memory, kind.has_memory());
        }
        // On disk too, and again after a clean shutdown.
        let flushed = bed.flush(&store);
        assert_eq!(flushed.failures, 0);
        for id in 0..SIZES.len() {
            assert!(info(&store, id as i64).on_disk);
        }
        store.close();
        let store = bed.open();
        for (id, size) in SIZES.into_iter().enumerate() {
            assert!(get(&store, id as i64, 1001) == bytes(id as u64, size), "{size} bytes after a restart");
            store.verify(&block(id as i64, 1001, 0)).unwrap();
        }
        assert_eq!(store.metrics().dirty_replicas, 0);
    });
}

#[test]
fn replica_being_written_shows_received_bytes() {
    for_each_kind(|bed, _| {
        let store = bed.open();
        let mut writer = create(&store, 1, 1001);
        let data = bytes(1, 150_000);
        let mut sent = 0;
        for piece in [100, 412, 512, 1000, 70_000, 24, 3] {
            // Like a client after hflush: it resends from the chunk boundary.
            let from = sent / 512 * 512;
            let packet = &data[from..sent + piece];
            let received =
                writer.write(from as u64, packet, Checksums::Given(&crcs(ChecksumSpec::DEFAULT, packet))).unwrap();
            let old_reader_length = sent;
            sent += piece;
            assert_eq!(received, sent as u64);
            let reader = store.reader(&block(1, 1001, 0)).unwrap();
            assert_eq!((reader.state(), reader.length()), (ReplicaState::BeingWritten, sent as u64));
            assert_eq!(reader.visible_length(), old_reader_length as u64, "not acknowledged yet");
            assert!(read(&reader) == data[..sent]);
            writer.acker().set(sent as u64).unwrap();
            assert_eq!(info(&store, 1).visible_length, Some(sent as u64));
            // The older view still matches its CRCs after more bytes have arrived.
            let more = &data[sent..sent + 7];
            let mut tail = data[sent / 512 * 512..sent].to_vec();
            tail.extend_from_slice(more);
            if tail.len() <= 512 {
                writer
                    .write((sent / 512 * 512) as u64, &tail, Checksums::Given(&crcs(ChecksumSpec::DEFAULT, &tail)))
                    .unwrap();
                assert!(read(&reader) == data[..sent]);
                sent += 7;
                writer.acker().set(sent as u64).unwrap();
            }
        }
        assert!(writer.acker().set(u64::MAX).is_ok(), "never beyond what was received");
        assert_eq!(writer.acked(), sent as u64);
    });
}

#[test]
fn overlapping_packets_are_accepted() {
    for_each_kind(|bed, _| {
        let store = bed.open();
        let spec = ChecksumSpec::DEFAULT;
        let mut writer = create(&store, 1, 1001);
        let data = bytes(3, 3000);
        let given = |range: std::ops::Range<usize>| crcs(spec, &data[range]);
        writer.write(0, &data[..1000], Checksums::Given(&given(0..1000))).unwrap();
        // Wholly below the received length: nothing happens.
        assert_eq!(writer.write(0, &data[..512], Checksums::Given(&given(0..512))).unwrap(), 1000);
        // Beyond the end, wrong CRC sizes, across a seam.
        assert!(matches!(
            writer.write(1001, &data[..10], Checksums::Given(&given(0..10))),
            Err(StoreError::Gap { received: 1000, .. })
        ));
        assert!(matches!(
            writer.write(1000, &data[1000..1010], Checksums::Given(&[])),
            Err(StoreError::BadWrite { .. })
        ));
        assert!(matches!(
            writer.write(1000, &data[1000..1100], Checksums::Given(&given(1000..1100))),
            Err(StoreError::BadWrite { .. })
        ));
        assert!(matches!(writer.write(u64::MAX, &[0], Checksums::Compute), Err(StoreError::Gap { .. })));
        // As after an append: only the rest of the chunk, with a CRC over the new bytes only.
        writer.write(1000, &data[1000..1024], Checksums::Given(&given(1000..1024))).unwrap();
        writer.write(1024, &data[1024..1500], Checksums::Given(&given(1024..1500))).unwrap();
        // Resends from below, with chunks that are already there.
        writer.write(512, &data[512..2100], Checksums::Given(&given(512..2100))).unwrap();
        // Without CRCs, from within a chunk across several.
        writer.write(2100, &data[2100..3000], Checksums::Compute).unwrap();
        writer.finalize(Durability::Memory).unwrap();
        assert!(get(&store, 1, 1001) == data);
    });
}

#[test]
fn other_checksum_types_are_kept() {
    for_each_kind(|bed, _| {
        let store = bed.open();
        let specs = [
            (ChecksumKind::Crc32, 512),
            (ChecksumKind::Crc32c, 1),
            (ChecksumKind::Crc32c, 100),
            (ChecksumKind::Crc32, 1 << 20),
            (ChecksumKind::Null, 512),
        ];
        for (id, (kind, bytes_per_chunk)) in specs.into_iter().enumerate() {
            let checksum = ChecksumSpec { kind, bytes_per_chunk };
            let options = CreateOptions { checksum, ..CreateOptions::default() };
            let mut writer = store.create(&block(id as i64, 1, 0), CREATE, &options).unwrap();
            let data = bytes(id as u64, 70_001);
            for piece in
                data.chunks(bytes_per_chunk.max(1000) as usize / bytes_per_chunk as usize * bytes_per_chunk as usize)
            {
                let at = writer.received();
                writer.write(at, piece, Checksums::Given(&crcs(checksum, piece))).unwrap();
            }
            writer.finalize(Durability::Memory).unwrap();
            assert!(get(&store, id as i64, 1) == data);
        }
        bed.flush(&store);
        drop(store);
        let store = bed.open();
        for (id, (kind, bytes_per_chunk)) in specs.into_iter().enumerate() {
            let reader = store.reader(&block(id as i64, 1, 0)).unwrap();
            assert_eq!(reader.checksum(), ChecksumSpec { kind, bytes_per_chunk });
            assert!(read(&reader) == bytes(id as u64, 70_001));
        }
    });
}

#[test]
fn create_respects_existing_replicas() {
    for_each_kind(|bed, _| {
        let store = bed.open();
        let try_create = |stamp, kind| store.create(&block(1, stamp, 0), kind, &CreateOptions::default());
        put(&store, 1, 10, b"first");
        let refused = |result: Result<ReplicaWriter>| matches!(result, Err(StoreError::ReplicaExists { .. }));
        assert!(refused(try_create(11, CREATE)));
        assert!(refused(try_create(11, CreateKind::Temporary)), "a finalized one is not replaced by replication");
        assert!(refused(try_create(10, CreateKind::Transfer)));
        let mut writer = try_create(11, CreateKind::Transfer).unwrap();
        assert_eq!(info(&store, 1).state, ReplicaState::Temporary);
        assert!(store.reader(&block(1, 11, 0)).is_err(), "temporary replicas are not read");
        assert!(store.report(&bed.pool.pool)[0].replicas.is_empty(), "nor reported");
        send(&mut writer, b"second", 100);
        let summary = writer.convert_temporary_to_being_written().unwrap();
        assert_eq!(summary.block.length(), 6);
        let now = info(&store, 1);
        assert_eq!((now.state, now.visible_length), (ReplicaState::BeingWritten, Some(6)));
        // A replica that another writer is writing is stopped and replaced.
        let mut third = try_create(12, CreateKind::Temporary).unwrap();
        let mut fourth = try_create(13, CreateKind::BeingWritten { replace: true }).unwrap();
        assert!(matches!(third.write(0, b"x", Checksums::Compute), Err(StoreError::WriterStopped { .. })));
        assert!(matches!(third.acker().set(1), Err(StoreError::WriterStopped { .. })));
        drop(third);
        send(&mut fourth, b"fourth", 100);
        fourth.finalize(Durability::Disk).unwrap();
        assert_eq!(get(&store, 1, 13), b"fourth");
        assert!(info(&store, 1).on_disk);
    });
}

#[test]
fn only_temporary_replicas_vanish_when_abandoned() {
    for_each_kind(|bed, _| {
        let store = bed.open();
        let mut temporary = store.create(&block(1, 1, 0), CreateKind::Temporary, &CreateOptions::default()).unwrap();
        send(&mut temporary, &bytes(1, 100_000), 61_440);
        drop(temporary);
        assert!(store.replica(&bed.pool.pool, BlockId(1)).is_none());
        let mut written = create(&store, 2, 1);
        send(&mut written, &bytes(2, 100_000), 61_440);
        drop(written);
        assert_eq!(info(&store, 2).visible_length, Some(100_000));
        let recovery = PipelineRecovery { new_stamp: GenerationStamp(2), min_acked: 100_000, max_received: 100_000 };
        let writer = store.recover_being_written(&block(2, 1, 0), recovery).unwrap();
        writer.finalize(Durability::Memory).unwrap();
        assert!(get(&store, 2, 2) == bytes(2, 100_000));
    });
}

#[test]
fn append_continues_at_the_replicas_end() {
    for_each_kind(|bed, _| {
        let store = bed.open();
        for (id, (first, second)) in
            [(100, 50), (0, 10), (512, 512), (60_000, 10_000), (65_536, 1), (100_000, 100_000), (1000, 300_000)]
                .into_iter()
                .enumerate()
        {
            let id = id as i64;
            for flushed in [false, true] {
                let id = id * 2 + i64::from(flushed);
                let data = bytes(id as u64, first + second);
                put(&store, id, 1, &data[..first]);
                if flushed {
                    bed.flush(&store);
                }
                let old = store.reader(&block(id, 1, 0)).unwrap();
                let wrong_length = store.append(&block(id, 1, 0), GenerationStamp(2), first as u64 + 1);
                assert!(matches!(wrong_length, Err(StoreError::LengthMismatch { .. })));
                let wrong_stamp = store.append(&block(id, 2, 0), GenerationStamp(3), first as u64);
                assert!(matches!(wrong_stamp, Err(StoreError::StampMismatch { .. })));
                let mut writer = store.append(&block(id, 1, 0), GenerationStamp(2), first as u64).unwrap();
                assert_eq!((writer.received(), writer.acked()), (first as u64, first as u64));
                assert_eq!(info(&store, id).block.stamp, GenerationStamp(2));
                assert!(store.append(&block(id, 2, 0), GenerationStamp(3), first as u64).is_err(), "being written");
                // First the rest of the chunk, with a CRC over the new bytes only; then as usual.
                let rest = (512 - first % 512) % 512;
                let rest = rest.min(second);
                send(&mut writer, &data[first..first + rest], 1 << 20);
                send(&mut writer, &data[first + rest..], 64 << 10);
                assert!(read(&store.reader(&block(id, 2, 0)).unwrap()) == data);
                assert!(read(&old) == data[..first], "an older view is unchanged");
                writer.finalize(Durability::Memory).unwrap();
                assert!(get(&store, id, 1) == data, "a higher stamp is fine for readers");
                assert!(read(&old) == data[..first]);
            }
        }
        bed.flush(&store);
        drop(store);
        let store = bed.open();
        assert!(get(&store, 13, 2) == bytes(13, 301_000));
        assert!(store.reader(&block(13, 3, 0)).is_err(), "a lower stamp is not");
    });
}

#[test]
fn pipeline_recovery_truncates_to_acknowledged_bytes() {
    for_each_kind(|bed, _| {
        let store = bed.open();
        for (id, (acked, received)) in
            [(100, 300), (512, 700), (1000, 1000), (0, 10), (60_000, 64_000), (70_000, 200_000), (131_072, 140_000)]
                .into_iter()
                .enumerate()
        {
            let id = id as i64;
            let data = bytes(id as u64, received);
            let mut first = create(&store, id, 1);
            // Sent in one packet, so that the CRC at the cut covers more bytes than are kept.
            first.write(0, &data, Checksums::Given(&crcs(ChecksumSpec::DEFAULT, &data))).unwrap();
            first.acker().set(acked as u64).unwrap();
            let guard = store.reader(&block(id, 1, 0)).unwrap();
            let recover = |new_stamp, min_acked: usize, max_received: usize| {
                let recovery = PipelineRecovery {
                    new_stamp: GenerationStamp(new_stamp),
                    min_acked: min_acked as u64,
                    max_received: max_received as u64,
                };
                store.recover_being_written(&block(id, 1, 0), recovery)
            };
            assert!(matches!(recover(0, 0, received), Err(StoreError::StampMismatch { .. })));
            let stopped = Arc::new(AtomicBool::new(false));
            first.on_stop(Box::new({
                let stopped = stopped.clone();
                move || {
                    stopped.store(true, Ordering::SeqCst);
                    true
                }
            }));
            assert!(matches!(recover(2, acked + 1, received), Err(StoreError::LengthMismatch { .. })));
            assert!(stopped.load(Ordering::SeqCst), "the previous writer is stopped before lengths are checked");
            if received > acked {
                assert!(matches!(recover(2, acked, received - 1), Err(StoreError::LengthMismatch { .. })));
            }
            let mut second = recover(2, acked, received).unwrap();
            assert_eq!((second.received(), second.acked()), (acked as u64, acked as u64));
            assert!(matches!(
                first.write(received as u64, b"late", Checksums::Compute),
                Err(StoreError::WriterStopped { .. })
            ));
            drop(first);
            // The new client starts at the chunk boundary, with other bytes after the cut.
            let mut changed = data[..acked].to_vec();
            changed.extend(bytes(id as u64 + 100, 1000));
            let from = acked / 512 * 512;
            let packet = &changed[from..];
            second.write(from as u64, packet, Checksums::Given(&crcs(ChecksumSpec::DEFAULT, packet))).unwrap();
            assert!(read(&store.reader(&block(id, 2, 0)).unwrap()) == changed);
            if bed.options.memory.limit > 0 && bed.options.volumes[0].engine == Engine::Memory {
                assert!(read(&guard) == data, "bytes under a guard are not overwritten");
            }
            second.finalize(Durability::Memory).unwrap();
            assert!(get(&store, id, 2) == changed);
        }
        assert_eq!(bed.flush(&store).failures, 0);
    });
}

#[test]
fn append_and_close_recovery_check_lengths() {
    for_each_kind(|bed, _| {
        let store = bed.open();
        let data = bytes(1, 1000);
        // Finalized: reopened. Being written: handed over. Not fully acknowledged: refused.
        put(&store, 1, 1, &data);
        let writer = store.recover_append(&block(1, 1, 0), GenerationStamp(2), 1000).unwrap();
        let mut writer2 = store.recover_append(&block(1, 1, 0), GenerationStamp(3), 1000).unwrap();
        drop(writer);
        writer2.write(1000, b"more", Checksums::Compute).unwrap();
        assert!(store.recover_append(&block(1, 1, 0), GenerationStamp(4), 1000).is_err());
        assert!(store.recover_close(&block(1, 1, 0), GenerationStamp(4), 1004).is_err(), "4 bytes not acknowledged");
        let recovery = PipelineRecovery { new_stamp: GenerationStamp(5), min_acked: 1000, max_received: 1004 };
        let mut writer = store.recover_being_written(&block(1, 1, 0), recovery).unwrap();
        send(&mut writer, b"more", 10);
        let summary = store.recover_close(&block(1, 1, 0), GenerationStamp(6), 1004).unwrap();
        assert_eq!(summary.block, block(1, 6, 1004));
        assert_eq!(&get(&store, 1, 6)[1000..], b"more");
        // Close recovery of a finalized replica: a new stamp, nothing else.
        let summary = store.recover_close(&block(1, 6, 0), GenerationStamp(7), 1004).unwrap();
        assert_eq!(summary.block, block(1, 7, 1004));
        bed.flush(&store);
        store.recover_close(&block(1, 7, 0), GenerationStamp(8), 1004).unwrap();
        drop(store);
        let store = bed.open();
        assert_eq!(info(&store, 1).block, block(1, 8, 1004).block);
        assert_eq!(get(&store, 1, 8).len(), 1004);
    });
}

#[test]
fn block_recovery_sets_length_and_stamp() {
    for_each_kind(|bed, _| {
        let store = bed.open();
        for (id, (received, new_length, flushed)) in [
            (1000, 1000, false),
            (1000, 600, false),
            (200_000, 131_073, false),
            (1000, 600, true),
            (200_000, 512, true),
        ]
        .into_iter()
        .enumerate()
        {
            let id = id as i64;
            let data = bytes(id as u64, received);
            let mut writer = create(&store, id, 1);
            send(&mut writer, &data, 64 << 10);
            if flushed {
                writer.finalize(Durability::Disk).unwrap();
            }
            let stamp = |stamp| GenerationStamp(stamp);
            assert!(store.initiate_recovery(&block(9999, 1, 0), stamp(5)).unwrap().is_none());
            assert!(store.initiate_recovery(&block(id, 2, 0), stamp(5)).is_err(), "replica too old");
            assert!(store.initiate_recovery(&block(id, 1, 0), stamp(1)).is_err(), "recovery too old");
            let found = store.initiate_recovery(&block(id, 1, 0), stamp(5)).unwrap().unwrap();
            let state = if flushed { ReplicaState::Finalized } else { ReplicaState::BeingWritten };
            assert_eq!((found.original_state, found.block.length), (state, received as u64));
            let again = store.initiate_recovery(&block(id, 1, 0), stamp(5));
            assert!(matches!(again, Err(StoreError::RecoveryInProgress { .. })));
            assert_eq!(info(&store, id).state, ReplicaState::UnderRecovery);
            assert_eq!(info(&store, id).reported_state, state);
            store.initiate_recovery(&block(id, 1, 0), stamp(6)).unwrap().unwrap();
            let update = |length: usize, recovery, new_length: usize| {
                store.update_under_recovery(&block(id, 1, length as u64), stamp(recovery), new_length as u64, None)
            };
            assert!(update(received, 5, new_length).is_err(), "a newer recovery is in progress");
            assert!(update(received + 1, 6, new_length).is_err(), "not the reported length");
            assert!(update(received, 6, received + 1).is_err(), "no longer than it is");
            let guard = store.reader(&block(id, 1, 0)).unwrap();
            let summary = update(received, 6, new_length).unwrap();
            assert_eq!(summary.block, block(id, 6, new_length as u64));
            assert!(get(&store, id, 6) == data[..new_length]);
            assert_eq!(info(&store, id).state, ReplicaState::Finalized);
            assert!(read(&guard) == data, "the guard's bytes are unchanged");
            assert!(update(received, 6, new_length).is_err(), "not under recovery any more");
        }
        bed.flush(&store);
        drop(store);
        let store = bed.open();
        assert!(get(&store, 2, 6) == bytes(2, 200_000)[..131_073]);
        assert!(get(&store, 3, 6) == bytes(3, 1000)[..600]);
        assert!(get(&store, 4, 6) == bytes(4, 200_000)[..512]);
    });
}

#[test]
fn truncation_may_copy_to_a_new_block() {
    for_each_kind(|bed, _| {
        let store = bed.open();
        let data = bytes(1, 100_000);
        put(&store, 1, 1, &data);
        store.initiate_recovery(&block(1, 1, 0), GenerationStamp(2)).unwrap().unwrap();
        let old = block(1, 1, 100_000);
        let summary = store.update_under_recovery(&old, GenerationStamp(2), 777, Some(BlockId(2))).unwrap();
        assert_eq!(summary.block, block(2, 2, 777));
        assert!(get(&store, 2, 2) == data[..777]);
        assert!(get(&store, 1, 1) == data);
        assert_eq!(info(&store, 1).state, ReplicaState::Finalized);
        // The result was never reported: the next attempt creates the copy again, and an earlier attempt does not.
        store.initiate_recovery(&block(1, 1, 0), GenerationStamp(3)).unwrap().unwrap();
        let summary = store.update_under_recovery(&old, GenerationStamp(3), 70_000, Some(BlockId(2))).unwrap();
        assert_eq!(summary.block, block(2, 3, 70_000));
        assert!(get(&store, 2, 3) == data[..70_000]);
        store.initiate_recovery(&block(1, 1, 0), GenerationStamp(3)).unwrap().unwrap();
        let again = store.update_under_recovery(&old, GenerationStamp(3), 5, Some(BlockId(2)));
        assert!(matches!(again, Err(StoreError::ReplicaExists { .. })));
        assert!(get(&store, 2, 3) == data[..70_000] && get(&store, 1, 1) == data);
    });
}

#[test]
fn invalidated_replicas_are_gone_everywhere() {
    for_each_kind(|bed, _| {
        let store = bed.open();
        for id in 0..20 {
            put(&store, id, 1, &bytes(id as u64, 1000 * (id as usize + 1) * 5));
        }
        bed.flush(&store);
        let guard = store.reader(&block(3, 1, 0)).unwrap();
        let writer = create(&store, 20, 1);
        let blocks: Vec<Block> = (0..22).map(|id| block(id, if id == 5 { 2 } else { 1 }, 0).block).collect();
        let outcomes = store.invalidate(&bed.pool.pool, &blocks);
        for (id, outcome) in outcomes.iter().enumerate() {
            match id {
                5 => assert!(matches!(outcome, Err(StoreError::StampMismatch { .. }))),
                21 => assert!(matches!(outcome, Err(StoreError::ReplicaNotFound { .. }))),
                _ => assert!(outcome.is_ok(), "{id}: {outcome:?}"),
            }
        }
        drop(writer);
        assert!(read(&guard) == bytes(3, 20_000), "a guard keeps its bytes");
        assert_eq!(store.report(&bed.pool.pool)[0].replicas.len(), 1);
        drop(guard);
        drop(store);
        let store = bed.open();
        let report = store.report(&bed.pool.pool);
        assert_eq!(report[0].replicas, [(block(5, 1, 30_000).block, ReplicaState::Finalized)]);
        // No space is reserved or counted for deleted replicas.
        let space = &store.storage_reports(&bed.pool.pool)[0];
        assert_eq!(space.block_pool_used, 30_000 + 7 + 4 * 59);
    });
}

#[test]
fn short_circuit_descriptors_match_apaches_files() {
    for_each_kind(|bed, _| {
        let store = bed.open();
        for size in [0, 100, 100_000] {
            let data = bytes(9, size);
            put(&store, size as i64, 1, &data);
            let shown = store.reader(&block(size as i64, 1, 0)).unwrap().show().unwrap();
            let mut expected = ChecksumSpec::DEFAULT.to_meta_header().to_vec();
            ChecksumSpec::DEFAULT.compute(&data, &mut expected);
            let read_all = |file: std::os::fd::OwnedFd| {
                let mut bytes = Vec::new();
                std::io::Read::read_to_end(&mut std::fs::File::from(file), &mut bytes).unwrap();
                bytes
            };
            assert!(read_all(shown.data) == data);
            assert!(read_all(shown.meta) == expected);
        }
        let _writer = create(&store, 5, 1);
        assert!(store.reader(&block(5, 1, 0)).unwrap().show().is_err());
    });
}

#[test]
fn hsync_survives_a_power_failure() {
    for_each_kind(|bed, _| {
        let data = bytes(1, 100_300);
        {
            let store = bed.open();
            let mut writer = create(&store, 1, 1);
            let mut sent = 0;
            for end in [700, 900, 70_000, 100_300] {
                let from = sent / 512 * 512;
                let packet = &data[from..end];
                writer.write(from as u64, packet, Checksums::Given(&crcs(ChecksumSpec::DEFAULT, packet))).unwrap();
                writer.sync().unwrap();
                sent = end;
            }
            drop(writer);
            drop(store);
        }
        bed.lose_power();
        let store = bed.open();
        let found = info(&store, 1);
        assert_eq!((found.state, found.block.length), (ReplicaState::WaitingToBeRecovered, 100_300));
        store.initiate_recovery(&block(1, 1, 0), GenerationStamp(2)).unwrap().unwrap();
        store.update_under_recovery(&block(1, 1, 100_300), GenerationStamp(2), 100_300, None).unwrap();
        assert!(get(&store, 1, 2) == data);
    });
}

#[test]
fn finalized_replica_stays_durable_after_hsync() {
    for_each_kind(|bed, kind| {
        let store = bed.open();
        let lengths = || [700, 70_000, 200_300].into_iter().zip(1i64..);
        for (length, id) in lengths() {
            let data = bytes(id as u64, length);
            let mut writer = create(&store, id, 2);
            let part = length / 2 / 512 * 512;
            send(&mut writer, &data[..part], 64 << 10);
            writer.sync().unwrap();
            send(&mut writer, &data[part..], 64 << 10);
            assert!(writer.waits_at_end());
            writer.finalize(Durability::Memory).unwrap();
        }
        assert_eq!(store.metrics().unsynced_replicas, 0, "{kind:?}: after an hsync");
        // Flushed, then appended to.
        let appended = |id| id + 10;
        for (length, id) in lengths() {
            put(&store, appended(id), 1, &bytes(id as u64, length / 512 * 512));
        }
        assert_eq!(bed.flush(&store).failures, 0);
        for (length, id) in lengths() {
            let before = length / 512 * 512;
            let mut writer = store.append(&block(appended(id), 1, 0), GenerationStamp(2), before as u64).unwrap();
            send(&mut writer, &bytes(id as u64, length)[before..], 64 << 10);
            writer.finalize(Durability::Memory).unwrap();
        }
        assert_eq!(store.metrics().dirty_replicas, 0, "{kind:?}");
        assert_eq!(store.metrics().unsynced_replicas, 0, "{kind:?}: after an append");
        drop(store);
        bed.lose_power();
        let store = bed.open();
        for (length, id) in lengths() {
            for id in [id, appended(id)] {
                let found = info(&store, id);
                assert_eq!(
                    (found.state, found.block.length),
                    (ReplicaState::Finalized, length as u64),
                    "{kind:?}, {id}"
                );
            }
            assert!(get(&store, id, 2) == bytes(id as u64, length), "{kind:?}, {length} bytes");
            assert!(get(&store, appended(id), 2) == bytes(id as u64, length), "{kind:?}, {length} bytes");
        }
    });
}

#[test]
fn replica_stays_durable_after_hsync_and_restart() {
    for_each_kind(|bed, kind| {
        let data = bytes(1, 70_000);
        let store = bed.open();
        let mut writer = create(&store, 1, 1);
        send(&mut writer, &data[..51_200], 64 << 10);
        writer.sync().unwrap();
        drop(writer);
        drop(store);
        let store = bed.open();
        let recovery = PipelineRecovery { new_stamp: GenerationStamp(2), min_acked: 51_200, max_received: 51_200 };
        let mut writer = store.recover_being_written(&block(1, 1, 0), recovery).unwrap();
        send(&mut writer, &data[51_200..], 64 << 10);
        writer.finalize(Durability::Memory).unwrap();
        let metrics = store.metrics();
        assert_eq!((metrics.dirty_replicas, metrics.unsynced_replicas), (0, 0), "{kind:?}");
        drop(store);
        bed.lose_power();
        let store = bed.open();
        assert!(get(&store, 1, 2) == data, "{kind:?}");
    });
}

#[test]
fn close_recovery_survives_a_power_failure() {
    for_each_kind(|bed, kind| {
        // States in which the writer left it: being written, the same with a part synced, finalized without a sync.
        let left = ["written", "synced in part", "finalized"];
        let cases = left.into_iter().flat_map(|left| [700, 70_000, 200_300].map(|length| (left, length)));
        let cases: Vec<_> = cases.zip(1..).collect();
        let store = bed.open();
        for ((left, length), id) in &cases {
            let data = bytes(*id as u64, *length);
            let mut writer = create(&store, *id, 1);
            let part = length / 2 / 512 * 512;
            send(&mut writer, &data[..part], 64 << 10);
            if *left == "synced in part" {
                writer.sync().unwrap();
            }
            send(&mut writer, &data[part..], 64 << 10);
            if *left == "finalized" {
                writer.finalize(Durability::Memory).unwrap();
            }
            let noted = store.metrics().unsynced_replicas;
            store.recover_close(&block(*id, 1, 0), GenerationStamp(2), *length as u64).unwrap();
            if *left != "finalized" {
                assert_eq!(store.metrics().unsynced_replicas, noted, "{kind:?}, {left}: in files, and left for later");
            }
        }
        assert_eq!(store.metrics().dirty_replicas, 0, "{kind:?}");
        drop(store);
        bed.lose_power();
        let store = bed.open();
        for ((left, length), id) in &cases {
            assert!(get(&store, *id, 2) == bytes(*id as u64, *length), "{kind:?}, {left}, {length} bytes");
        }
    });
}

#[test]
fn stale_unfinished_replica_yields_to_newer_copy() {
    for_each_kind(|bed, _| {
        let data = bytes(1, 100_300);
        {
            let store = bed.open();
            send(&mut create(&store, 1, 5), &data[..70_000], 64 << 10);
        }
        let store = bed.open();
        assert_eq!(info(&store, 1).state, ReplicaState::WaitingToBeRecovered);
        let copy = |stamp| store.create(&block(1, stamp, 0), CreateKind::Temporary, &CreateOptions::default());
        for stamp in [4, 5] {
            assert!(matches!(copy(stamp), Err(StoreError::ReplicaExists { .. })), "it may be the only replica");
        }
        let mut writer = copy(6).unwrap();
        send(&mut writer, &data, 64 << 10);
        writer.finalize(Durability::Memory).unwrap();
        assert!(get(&store, 1, 6) == data);
        assert!(
            matches!(copy(7), Err(StoreError::ReplicaExists { .. })),
            "a finalized one is not replaced by replication"
        );
    });
}

#[test]
fn kill_loses_no_received_bytes() {
    for_each_kind(|bed, kind| {
        let mut store = bed.open();
        for round in 0..3u64 {
            for (id, size) in SIZES.into_iter().enumerate() {
                let id = (round * 100) as i64 + id as i64;
                let data = bytes(id as u64, size);
                put(&store, id, 1, &data);
                // Also a replica being written, with a part that was not acknowledged.
                let mut writer = create(&store, id + 50, 1);
                send(&mut writer, &data, 64 << 10);
                let at = writer.received();
                let from = at / 512 * 512;
                let mut tail = data[from as usize..].to_vec();
                tail.extend_from_slice(b"unacknowledged");
                writer.write(from, &tail, Checksums::Given(&crcs(ChecksumSpec::DEFAULT, &tail))).unwrap();
            }
            drop(store);
            store = bed.open();
            for (id, size) in SIZES.into_iter().enumerate() {
                let id = (round * 100) as i64 + id as i64;
                let data = bytes(id as u64, size);
                assert!(get(&store, id, 1) == data, "{kind:?} {size}");
                let written = info(&store, id + 50);
                assert_eq!(written.state, ReplicaState::WaitingToBeRecovered);
                assert_eq!(written.block.length, size as u64 + 14);
                assert!(store.reader(&block(id + 50, 1, 0)).is_err(), "not readable before recovery");
                store.initiate_recovery(&block(id + 50, 1, 0), GenerationStamp(9)).unwrap().unwrap();
                store
                    .update_under_recovery(&block(id + 50, 1, size as u64 + 14), GenerationStamp(9), size as u64, None)
                    .unwrap();
                assert!(get(&store, id + 50, 9) == data);
            }
        }
        assert_eq!(bed.flush(&store).failures, 0);
        assert_eq!(store.metrics().dirty_replicas, 0);
    });
}

#[test]
fn synced_bytes_survive_recovery_and_power_failure() {
    for_each_kind(|bed, _| {
        for (id, (synced, received)) in [(1000, 2000), (70_000, 70_001), (512, 140_000)].into_iter().enumerate() {
            let id = id as i64;
            let data = bytes(id as u64, received);
            let store = bed.open();
            let mut writer = create(&store, id, 1);
            for end in [synced, received] {
                let from = (writer.received() / 512 * 512) as usize;
                let packet = &data[from..end];
                writer.write(from as u64, packet, Checksums::Given(&crcs(ChecksumSpec::DEFAULT, packet))).unwrap();
                writer.sync().unwrap();
            }
            // The second hsync was never acknowledged: another DataNode failed first.
            writer.acker().set(synced as u64).unwrap();
            let recovery = PipelineRecovery {
                new_stamp: GenerationStamp(2),
                min_acked: synced as u64,
                max_received: received as u64,
            };
            drop(store.recover_being_written(&block(id, 1, 0), recovery).unwrap());
            drop(writer);
            drop(store);
            bed.lose_power();
            let store = bed.open();
            let found = info(&store, id);
            assert_eq!((found.state, found.block.length), (ReplicaState::WaitingToBeRecovered, synced as u64));
            store.initiate_recovery(&block(id, 2, 0), GenerationStamp(3)).unwrap().unwrap();
            let length = synced as u64;
            store.update_under_recovery(&block(id, 2, length), GenerationStamp(3), length, None).unwrap();
            assert!(get(&store, id, 3) == data[..synced]);
        }
    });
}

#[test]
fn stamp_only_in_memory_loses_no_data() {
    for_each_kind(|bed, kind| {
        if !kind.has_memory() {
            return;
        }
        let data = bytes(1, 100_300);
        let store = bed.open();
        let mut writer = create(&store, 1, 1);
        send(&mut writer, &data[..70_000], 64 << 10);
        writer.sync().unwrap();
        writer.write(70_000 / 512 * 512, &data[70_000 / 512 * 512..], Checksums::Compute).unwrap();
        writer.acker().set(100_300).unwrap();
        drop(store.recover_append(&block(1, 1, 0), GenerationStamp(2), 100_300).unwrap());
        drop(writer);
        drop(store);
        // As after a kill in the middle: the part on disk has the old stamp.
        let with_stamp = |stamp| files_named(bed, &format!("blk_1_{stamp}.meta"));
        let new = with_stamp(2);
        assert_eq!(new.len(), 1);
        std::fs::rename(&new[0], new[0].with_file_name("blk_1_1.meta")).unwrap();
        let store = bed.open();
        let found = info(&store, 1);
        assert_eq!((found.block.stamp, found.block.length), (GenerationStamp(2), 100_300));
        store.initiate_recovery(&block(1, 2, 0), GenerationStamp(3)).unwrap().unwrap();
        store.update_under_recovery(&block(1, 2, 100_300), GenerationStamp(3), 100_300, None).unwrap();
        assert!(get(&store, 1, 3) == data);
        assert_eq!(bed.flush(&store).failures, 0);
        assert!(with_stamp(1).is_empty(), "no file with the old stamp is left");
    });
}

#[test]
fn interrupted_truncation_copy_is_made_again() {
    for_each_kind(|bed, _| {
        let data = bytes(1, 100_000);
        {
            let store = bed.open();
            put(&store, 1, 1, &data);
            bed.flush(&store);
            // Bytes that an attempt under stamp 2 had written.
            send(&mut create(&store, 2, 2), &data[..777], 64 << 10);
        }
        let store = bed.open();
        assert_eq!(info(&store, 2).state, ReplicaState::WaitingToBeRecovered);
        store.initiate_recovery(&block(1, 1, 0), GenerationStamp(3)).unwrap().unwrap();
        let old = block(1, 1, 100_000);
        let made = store.update_under_recovery(&old, GenerationStamp(3), 777, Some(BlockId(2))).unwrap();
        assert_eq!(made.block, block(2, 3, 777));
        assert!(get(&store, 2, 3) == data[..777]);
    });
}

#[test]
fn corrupt_replicas_are_reported_again() {
    for_each_kind(|bed, kind| {
        let store = bed.open();
        put(&store, 1, 1, &bytes(1, 100_000));
        bed.flush(&store);
        drop(store);
        bed.lose_power();
        let files = files_named(bed, "blk_1");
        let mut spoiled = std::fs::read(&files[0]).unwrap();
        spoiled[5000] ^= 1;
        std::fs::write(&files[0], spoiled).unwrap();
        let store = bed.open();
        assert!(store.verify(&block(1, 1, 0)).is_err());
        let corrupt = |store: &Blockstore| {
            store.take_events().into_iter().filter(|event| matches!(event, StoreEvent::Corrupt { .. })).count()
        };
        assert_eq!(corrupt(&store), 1, "{kind:?}");
        for _ in 0..2 {
            store.say_corrupt_again(&block(1, 1, 0).pool);
            assert_eq!(
                store.report(&block(1, 1, 0).pool).iter().map(|storage| storage.replicas.len()).sum::<usize>(),
                1
            );
            assert_eq!(corrupt(&store), 1);
        }
    });
}
