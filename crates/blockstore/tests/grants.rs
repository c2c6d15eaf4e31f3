//! Memory that another process fills: grants, commits, and the borrower's later access.

mod common;

use std::fs::File;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use common::*;
use hearth_blockstore::*;
use hearth_types::*;

const KIB: usize = 1 << 10;

fn borrow(writer: &mut ReplicaWriter, up_to: usize, trusted: bool) -> File {
    assert_eq!(writer.grant(up_to as u64).unwrap(), up_to as u64);
    writer.lend(trusted).unwrap().into()
}

fn commit(writer: &mut ReplicaWriter, offset: usize, piece: &[u8]) -> Result<u64> {
    let sums = crcs(writer.checksum(), piece);
    writer.commit(offset as u64, piece.len() as u64, &sums)
}

#[test]
fn filled_bytes_are_read_in_every_kind() {
    for kind in KINDS {
        eprintln!("with {kind:?}");
        let bed = Bed::new(kind);
        let store = bed.open();
        let sizes = [1, 511, 512, 513, 4096, 65_536, 65_537, 200_000, 1_048_577, 5_000_000];
        for (id, size) in sizes.into_iter().enumerate() {
            for (id, trusted) in [(id as i64, false), (id as i64 + 100, true)] {
                let data = bytes(id as u64, size);
                let mut writer = create(&store, id, 1001);
                let file = fill(&mut writer, &data, 100_000, trusted);
                assert_eq!(file.is_some(), kind.has_memory(), "a grant of {size} bytes");
                assert!(read(&writer.reader().unwrap()) == data, "{size} bytes before the end");
                let summary = writer.finalize(Durability::Memory).unwrap();
                assert_eq!(summary.block.length(), size as u64);
                assert!(get(&store, id, 1001) == data, "{size} bytes");
                // The borrower is cut off, or was trusted not to do this.
                if let Some(file) = file.filter(|_| !trusted) {
                    scribble(&file);
                    file.set_len(0).unwrap();
                    assert!(get(&store, id, 1001) == data, "{size} bytes, written to after the end");
                }
            }
        }
        assert_eq!(bed.flush(&store).failures, 0);
        store.close();
        let store = bed.open();
        for (id, size) in sizes.into_iter().enumerate() {
            for id in [id as i64, id as i64 + 100] {
                assert!(get(&store, id, 1001) == bytes(id as u64, size), "{size} bytes after a restart");
                store.verify(&block(id, 1001, 0)).unwrap();
            }
        }
    }
}

#[test]
fn only_bytes_matching_their_crcs_count() {
    let bed = Bed::new(Kind::Memory);
    let store = bed.open();
    let data = bytes(1, 600 * KIB);
    let mut writer = create(&store, 1, 1);
    assert!(matches!(writer.lend(false), Err(StoreError::BadWrite { .. })), "nothing is granted yet");
    let file = borrow(&mut writer, 512 * KIB, false);
    file.write_all_at(&data[..300 * KIB], 0).unwrap();
    assert_eq!(commit(&mut writer, 0, &data[..200 * KIB]).unwrap(), 200 * KIB as u64);
    assert_eq!(info(&store, 1).block.length, 200 * KIB as u64);

    // One byte does not match its CRC, in the second piece that is checked.
    file.write_all_at(&[data[290 * KIB] ^ 1], 290 * KIB as u64).unwrap();
    let error = commit(&mut writer, 200 * KIB, &data[200 * KIB..300 * KIB]).unwrap_err();
    let StoreError::BadCommit { start, source: ChecksumError::Mismatch { chunk, .. }, .. } = &error else {
        panic!("{error}")
    };
    assert_eq!((*start, *chunk), (200 * KIB as u64, 90 * KIB / 512));
    assert_eq!((writer.received(), info(&store, 1).block.length), (200 * KIB as u64, 200 * KIB as u64));
    file.write_all_at(&data[290 * KIB..][..1], 290 * KIB as u64).unwrap();
    commit(&mut writer, 200 * KIB, &data[200 * KIB..300 * KIB]).unwrap();

    // Gaps, too few CRCs, bytes already received, bytes beyond the grant, bytes that no longer exist.
    assert!(matches!(commit(&mut writer, 301 * KIB, &data[..512]), Err(StoreError::Gap { .. })));
    assert!(matches!(writer.commit(300 * KIB as u64, 1024, &[0; 4]), Err(StoreError::BadWrite { .. })));
    assert!(matches!(writer.commit(300 * KIB as u64, u64::MAX, &[]), Err(StoreError::BadWrite { .. })));
    assert_eq!(commit(&mut writer, 0, &data[..512]).unwrap(), 300 * KIB as u64);
    assert_eq!(commit(&mut writer, 5, &data[5..512]).unwrap(), 300 * KIB as u64);
    // Bytes that are counted already and were filled in again, with other content.
    file.write_all_at(&[data[500] ^ 1], 500).unwrap();
    for from in [0, 5] {
        let again = commit(&mut writer, from, &data[from..512]);
        assert!(matches!(again, Err(StoreError::BadCommit { start, .. }) if start == from as u64), "{again:?}");
    }
    assert!(matches!(commit(&mut writer, 0, &data[..400 * KIB]), Err(StoreError::BadCommit { start: 0, .. })));
    file.write_all_at(&[data[500]], 500).unwrap();
    file.write_all_at(&data[300 * KIB..], 300 * KIB as u64).unwrap();
    assert!(matches!(commit(&mut writer, 300 * KIB, &data[300 * KIB..]), Err(StoreError::BadWrite { .. })));
    file.set_len(400 * KIB as u64).unwrap();
    assert!(matches!(commit(&mut writer, 300 * KIB, &data[300 * KIB..512 * KIB]), Err(StoreError::BadWrite { .. })));
    assert_eq!(writer.received(), 300 * KIB as u64);
    // Committed bytes are readable, and the writer can continue with `write`.
    assert!(get(&store, 1, 1) == data[..300 * KIB]);
    send(&mut writer, &data[300 * KIB..], 64 * KIB);
    writer.finalize(Durability::Memory).unwrap();
    assert!(get(&store, 1, 1) == data);
}

#[test]
fn pieces_may_end_within_chunks() {
    let bed = Bed::new(Kind::Memory);
    let store = bed.open();
    let data = bytes(2, 200_000);
    let mut writer = create(&store, 1, 1);
    let file = borrow(&mut writer, data.len(), false);
    file.write_all_at(&data, 0).unwrap();
    let mut sent = 0;
    for piece in [100, 412, 512, 1000, 70_000, 24, 3, 100_000] {
        let from = sent / 512 * 512;
        sent += piece;
        assert_eq!(commit(&mut writer, from, &data[from..sent]).unwrap(), sent as u64);
        assert!(get(&store, 1, 1) == data[..sent]);
    }
    // Only the rest of a chunk, as after an append.
    let seam = sent.next_multiple_of(512);
    assert!(matches!(commit(&mut writer, sent, &data[sent..seam + 1]), Err(StoreError::BadWrite { .. })));
    commit(&mut writer, sent, &data[sent..seam]).unwrap();
    // Alternating with bytes that are passed to `write`.
    send(&mut writer, &data[seam..seam + 1024], 512);
    commit(&mut writer, seam + 1024, &data[seam + 1024..]).unwrap();
    writer.finalize(Durability::Memory).unwrap();
    assert!(get(&store, 1, 1) == data);
}

#[test]
fn only_untrusted_borrowers_bytes_are_copied() {
    let bed = Bed::new(Kind::Memory);
    let store = bed.open();
    let data = bytes(3, 3 << 20);
    for (id, trusted) in [(1, false), (2, true)] {
        let mut writer = create(&store, id, 1);
        let file = borrow(&mut writer, data.len(), trusted);
        file.write_all_at(&data, 0).unwrap();
        commit(&mut writer, 0, &data).unwrap();
        writer.finalize(Durability::Memory).unwrap();
        let copied = store.metrics().copied_back_bytes;
        assert_eq!(copied, data.len() as u64, "only the untrusted borrower's");
        scribble(&file);
        if trusted {
            // Its own block is damaged, and the CRCs show it.
            assert!(matches!(store.verify(&block(id, 1, 0)), Err(StoreError::Corrupt { .. })));
        } else {
            assert!(get(&store, id, 1) == data);
            store.verify(&block(id, 1, 0)).unwrap();
        }
    }
}

#[test]
fn bytes_changed_after_their_commit_are_not_finalized() {
    let bed = Bed::new(Kind::Memory);
    let store = bed.open();
    let data = bytes(4, 300_000);
    let mut writer = create(&store, 1, 1);
    let file = borrow(&mut writer, data.len(), false);
    file.write_all_at(&data, 0).unwrap();
    commit(&mut writer, 0, &data).unwrap();
    file.write_all_at(b"x", 150_000).unwrap();
    assert!(matches!(writer.finalize(Durability::Memory), Err(StoreError::Corrupt { .. })));
    assert_eq!(info(&store, 1).reported_state, ReplicaState::BeingWritten);
    // Repaired, it can be recovered and finalized by another writer. The first writer's descriptor still exists then.
    file.write_all_at(&data[150_000..][..1], 150_000).unwrap();
    let recovery = PipelineRecovery { new_stamp: GenerationStamp(2), min_acked: 0, max_received: data.len() as u64 };
    drop(store.recover_being_written(&block(1, 1, 0), recovery).unwrap());
    // Nothing was acknowledged: it was truncated to 0 bytes, in memory that the untrusted borrower does not reach.
    assert_eq!(info(&store, 1).block.length, 0);
    let recovery = PipelineRecovery { new_stamp: GenerationStamp(3), min_acked: 0, max_received: 0 };
    let mut writer = store.recover_being_written(&block(1, 2, 0), recovery).unwrap();
    send(&mut writer, &data, 64 * KIB);
    writer.finalize(Durability::Memory).unwrap();
    scribble(&file);
    assert!(get(&store, 1, 3) == data);
}

#[test]
fn lending_is_remembered_across_restarts() {
    let bed = Bed::new(Kind::Memory);
    let mut store = bed.open();
    let data = bytes(5, 700_000);
    let mut files = Vec::new();
    for id in 1..=3 {
        let mut writer = create(&store, id, 1);
        let file = fill(&mut writer, &data[..500_000], 100_000, false).unwrap();
        files.push(file);
        if id != 1 {
            continue;
        }
        // Taken over by a writer that sends the rest.
        let recovery = PipelineRecovery { new_stamp: GenerationStamp(2), min_acked: 500_000, max_received: 600_000 };
        let mut new = store.recover_being_written(&block(1, 1, 0), recovery).unwrap();
        assert!(matches!(commit(&mut writer, 500_000, &data[500_000..500_100]), Err(StoreError::WriterStopped { .. })));
        assert!(matches!(writer.grant(700_000), Err(StoreError::WriterStopped { .. })));
        assert!(matches!(writer.lend(false), Err(StoreError::WriterStopped { .. })));
        let at = new.received() as usize;
        assert_eq!(at, 500_000);
        let seam = at.next_multiple_of(512);
        new.write(at as u64, &data[at..seam], Checksums::Given(&crcs(ChecksumSpec::DEFAULT, &data[at..seam]))).unwrap();
        send(&mut new, &data[seam..], 64 * KIB);
        new.finalize(Durability::Memory).unwrap();
        scribble(&files[0]);
        assert!(get(&store, 1, 2) == data);
    }
    // Killed: the borrowers still have their descriptors.
    drop(store);
    store = bed.open();
    assert!(get(&store, 1, 2) == data);
    for (id, length) in [(2, 500_000u64), (3, 400_000)] {
        assert_eq!(info(&store, id).reported_state, ReplicaState::WaitingToBeRecovered);
        let named = block(id, 1, 500_000);
        store.initiate_recovery(&named, GenerationStamp(9)).unwrap().unwrap();
        store.update_under_recovery(&named, GenerationStamp(9), length, None).unwrap();
        scribble(&files[id as usize - 1]);
        assert!(get(&store, id, 9) == data[..length as usize]);
    }
    assert_eq!(bed.flush(&store).failures, 0);
}

#[test]
fn unfinished_trusted_borrowers_memory_is_not_truncated() {
    let bed = Bed::new(Kind::Memory);
    let store = bed.open();
    let (data, granted) = (bytes(8, 1 << 20), (1 << 20) + (60 << 10));
    let mut writer = create(&store, 1, 1);
    let file = borrow(&mut writer, granted, true);
    file.write_all_at(&data, 0).unwrap();
    commit(&mut writer, 0, &data).unwrap();
    // The NameNode has the block recovered, and readers open it.
    let named = block(1, 1, data.len() as u64);
    store.initiate_recovery(&named, GenerationStamp(9)).unwrap().unwrap();
    store.update_under_recovery(&named, GenerationStamp(9), data.len() as u64, None).unwrap();
    let reader = store.reader(&block(1, 9, 0)).unwrap();
    reader.show().unwrap();
    // The borrower has not noticed yet, and continues to write.
    assert!(file.metadata().unwrap().len() >= granted as u64, "a mapping of the borrower would fault");
    scribble(&file);
    assert!(read(&reader) == data && get(&store, 1, 9) == data);
}

#[test]
fn writer_is_fenced_before_length_is_fixed() {
    let bed = Bed::new(Kind::Memory);
    let store = bed.open();
    let data = bytes(6, 100_000);
    let mut writer = create(&store, 1, 1);
    fill(&mut writer, &data, 50_000, false).unwrap();
    let drained = Arc::new(AtomicBool::new(false));
    let seen = drained.clone();
    writer.on_stop(Box::new(move || {
        seen.store(true, Ordering::SeqCst);
        true
    }));
    store.initiate_recovery(&block(1, 1, 0), GenerationStamp(5)).unwrap().unwrap();
    assert!(drained.load(Ordering::SeqCst));
    assert!(matches!(commit(&mut writer, 0, &data), Err(StoreError::WriterStopped { .. })));
    // A writer that cannot be fenced keeps the replica: its length stays open.
    let mut writer = create(&store, 2, 1);
    fill(&mut writer, &data, 50_000, false).unwrap();
    let is_drained = Arc::new(AtomicBool::new(false));
    let asked = is_drained.clone();
    writer.on_stop(Box::new(move || asked.load(Ordering::SeqCst)));
    // No matter how often it is tried.
    for recovery in [5, 6] {
        let refused = store.initiate_recovery(&block(2, 1, 0), GenerationStamp(recovery));
        assert!(matches!(refused, Err(StoreError::WriterStillRunning { .. })), "{refused:?}");
    }
    is_drained.store(true, Ordering::SeqCst);
    store.initiate_recovery(&block(2, 1, 0), GenerationStamp(7)).unwrap().unwrap();
}

#[test]
fn borrower_with_unrevoked_access_becomes_untrusted() {
    let bed = Bed::new(Kind::Memory);
    let store = bed.open();
    let data = bytes(11, 3 << 20);
    let length = data.len() as u64;
    // Access revoked; hook failed to revoke it; hook not called.
    for (id, answer) in [(1, Some(true)), (2, Some(false)), (3, None)] {
        let mut writer = create(&store, id, 1);
        writer.lend_until_shut_out();
        let file = fill(&mut writer, &data, 1 << 20, true).unwrap();
        writer.on_stop(Box::new(move || answer == Some(true)));
        match answer {
            Some(_) => writer.abandon(),
            None => drop(writer),
        }
        let before = store.metrics().copied_back_bytes;
        let recovery = PipelineRecovery { new_stamp: GenerationStamp(2), min_acked: length, max_received: length };
        store.recover_being_written(&block(id, 1, 0), recovery).unwrap().finalize(Durability::Memory).unwrap();
        let copied = store.metrics().copied_back_bytes - before;
        if answer == Some(true) {
            assert_eq!(copied, 0, "access to it was revoked");
            continue;
        }
        assert_eq!(copied, length, "{id}");
        scribble(&file);
        assert!(get(&store, id, 2) == data);
        store.verify(&block(id, 2, 0)).unwrap();
    }
}

#[test]
fn unused_grant_is_freed_or_counted() {
    let bed = Bed::new(Kind::Memory);
    let store = bed.open();
    // Without the slabs, in which writers begin.
    let used = || store.metrics().memory_used - store.metrics().slab_bytes;
    let nothing = used();
    let pages = |bytes: usize| (bytes as u64).div_ceil(4096) * 4096;
    let data = bytes(7, 1 << 20);
    let crc_file = pages(256 + data.len() / 512 * 4);
    for (id, trusted, granted, kept) in [
        // Copied to memory that fits.
        (1, false, 8 << 20, data.len()),
        // A large unused rest: copying is the cheaper way to free it.
        (2, true, 8 << 20, data.len()),
        // A small unused rest: kept, and stays counted.
        (3, true, (1 << 20) + (100 << 10), (1 << 20) + (256 << 10)),
    ] {
        let mut writer = create(&store, id, 1);
        let file = borrow(&mut writer, granted, trusted);
        assert!(used() >= nothing + granted as u64);
        file.write_all_at(&data, 0).unwrap();
        commit(&mut writer, 0, &data).unwrap();
        writer.finalize(Durability::Memory).unwrap();
        // As long as the writer has its descriptor, its memory counts.
        assert!(used() >= nothing + granted as u64);
        drop(file);
        store.sweep();
        let taken = used() - nothing;
        assert!(taken >= data.len() as u64 && taken <= kept as u64 + 2 * crc_file, "{id}: {taken}");
        if id != 3 {
            assert_eq!(taken, data.len() as u64 + crc_file);
        }
        assert!(get(&store, id, 1) == data);
        store.invalidate(&bed.pool.pool, &[block(id, 1, 0).block]).pop().unwrap().unwrap();
        assert_eq!(used(), nothing, "{id}: all of it is freed with the replica");
    }
    // A small replica ends in a slab.
    let mut writer = create(&store, 9, 1);
    fill(&mut writer, &data[..1000], 1000, true).unwrap();
    writer.finalize(Durability::Memory).unwrap();
    assert_eq!(used(), nothing);
    assert!(get(&store, 9, 1) == data[..1000]);
}

#[test]
fn untrusted_overfill_is_reclaimed_or_counted() {
    let bed = Bed::new(Kind::Memory);
    let store = bed.open();
    let used = || store.metrics().memory_used - store.metrics().slab_bytes;
    let nothing = used();
    let (data, more) = (bytes(12, 1 << 20), vec![0xa5_u8; 16 << 20]);
    let length = data.len() as u64;
    let mut writer = create(&store, 1, 1);
    let file = borrow(&mut writer, data.len(), false);
    file.write_all_at(&data, 0).unwrap();
    // One page too much is tolerated, since it may be an error.
    file.write_all_at(b"x", 2 * length).unwrap();
    commit(&mut writer, 0, &data[..512 * KIB]).unwrap();
    file.write_all_at(&more, length).unwrap();
    let refused = commit(&mut writer, 512 * KIB, &data[512 * KIB..]);
    assert!(matches!(refused, Err(StoreError::BadWrite { .. })), "{refused:?}");
    let about = file.metadata().unwrap();
    assert!(about.len() == length && about.blocks() * 512 < 3 * length, "{about:?}");
    commit(&mut writer, 512 * KIB, &data[512 * KIB..]).unwrap();
    // Again, when the store does not check. The borrower keeps the memory as long as it has the file.
    file.write_all_at(&more, length).unwrap();
    writer.finalize(Durability::Memory).unwrap();
    assert!(used() >= nothing + length + more.len() as u64, "{}", used());
    // Also after the store has released the file.
    file.write_all_at(&more, length + more.len() as u64).unwrap();
    store.sweep();
    assert!(used() >= nothing + length + 2 * more.len() as u64, "{}", used());
    drop(file);
    store.sweep();
    assert!(used() < nothing + 2 * length, "{}", used());
    assert!(get(&store, 1, 1) == data);
}

/// Returns the bytes of the tmpfs that the file takes.
fn taken_by(file: &File) -> u64 {
    file.metadata().unwrap().blocks() * 512
}

#[test]
fn overfill_is_reclaimed_when_the_writer_ends() {
    for trusted in [false, true] {
        let bed = Bed::new(Kind::Memory);
        let store = bed.open();
        let used = || store.metrics().memory_used - store.metrics().slab_bytes;
        let nothing = used();
        let (granted, beyond) = (1_u64 << 20, vec![0x5a_u8; 63 << 20]);
        let data = bytes(13, 256 * KIB);
        let mut writer = create(&store, 1, 1);
        let file = borrow(&mut writer, granted as usize, trusted);
        file.write_all_at(&data, 0).unwrap();
        commit(&mut writer, 0, &data).unwrap();
        file.write_all_at(&beyond, granted).unwrap();
        assert_eq!(taken_by(&file), granted + beyond.len() as u64);
        store.sweep();
        assert!(used() >= nothing + granted + beyond.len() as u64, "counted while its connection is there: {}", used());

        // The connection ends. The descriptor stays.
        drop(writer);
        assert_eq!(taken_by(&file), granted, "what exceeds the grant goes with the connection");
        assert!(used() < nothing + 2 * granted, "{}", used());
        file.write_all_at(&beyond, granted).unwrap();
        store.sweep();
        assert_eq!(taken_by(&file), granted, "nor can it be taken later");
        assert!(used() < nothing + 2 * granted, "{}", used());

        // The process ends, too: no one can fill the rest of the grant.
        let kept = file.metadata().unwrap();
        drop(file);
        store.sweep();
        assert!(used() < nothing + 512 * KIB as u64, "{} of a grant of {}", used(), kept.len());
        assert!(get(&store, 1, 1) == data);
        // The received bytes are intact, and the next writer continues.
        let length = data.len() as u64;
        let recovery = PipelineRecovery { new_stamp: GenerationStamp(2), min_acked: 0, max_received: length };
        let mut writer = store.recover_being_written(&block(1, 1, 0), recovery).unwrap();
        let rest = bytes(14, 3 << 20);
        let at = writer.received();
        send(&mut writer, &rest, 64 * KIB);
        writer.finalize(Durability::Memory).unwrap();
        assert!(get(&store, 1, 2) == [&data[..at as usize], &rest].concat());
        store.verify(&block(1, 2, 0)).unwrap();
    }
}

#[test]
fn overfill_is_reclaimed_from_finalized_replicas() {
    let bed = Bed::new(Kind::Memory);
    let store = bed.open();
    let used = || store.metrics().memory_used - store.metrics().slab_bytes;
    let (nothing, length) = (used(), 1_u64 << 20);
    let data = bytes(15, length as usize);
    let mut writer = create(&store, 1, 1);
    let file = borrow(&mut writer, length as usize, true);
    file.write_all_at(&data, 0).unwrap();
    commit(&mut writer, 0, &data).unwrap();
    file.write_all_at(&vec![0x5a_u8; 32 << 20], length).unwrap();
    writer.finalize(Durability::Memory).unwrap();
    drop(file);
    store.sweep();
    assert!(used() < nothing + 2 * length, "{}", used());
    assert!(get(&store, 1, 1) == data);

    // A trusted writer that continues after the end.
    let mut writer = create(&store, 2, 1);
    let file = borrow(&mut writer, length as usize, true);
    file.write_all_at(&data, 0).unwrap();
    commit(&mut writer, 0, &data).unwrap();
    writer.finalize(Durability::Memory).unwrap();
    file.write_all_at(&vec![0x5a_u8; 32 << 20], length).unwrap();
    store.sweep();
    assert_eq!(taken_by(&file), length);
    assert!(get(&store, 2, 1) == data);
}

#[test]
fn overfill_is_counted_after_restart() {
    let bed = Bed::new(Kind::Memory);
    let store = bed.open();
    let data = bytes(16, 256 * KIB);
    let mut writer = create(&store, 1, 1);
    let file = borrow(&mut writer, 1 << 20, false);
    file.write_all_at(&data, 0).unwrap();
    commit(&mut writer, 0, &data).unwrap();
    std::mem::forget(writer);
    file.write_all_at(&vec![0x5a_u8; 63 << 20], 1 << 20).unwrap();
    drop(store);
    let store = bed.open();
    let used = || store.metrics().memory_used - store.metrics().slab_bytes;
    assert!(used() >= 64 << 20, "{}", used());
    drop(file);
    store.sweep();
    assert!(used() < 1 << 20, "{}", used());
    assert!(info(&store, 1).block.length == data.len() as u64);
}

#[test]
fn full_memory_moves_borrowers_to_files() {
    let mut bed = Bed::new(Kind::Memory);
    bed.options.memory.limit = 4 << 20;
    let store = bed.open();
    let data = bytes(8, 12 << 20);
    for (id, trusted) in [(1, false), (2, true)] {
        let mut writer = create(&store, id, 1);
        let file = fill(&mut writer, &data, 256 * KIB, trusted).expect("there is some memory");
        assert!(store.metrics().memory_used <= 4 << 20);
        assert!(!info(&store, id).in_memory);
        assert!(matches!(commit(&mut writer, data.len(), &data[..512]), Err(StoreError::BadWrite { .. })));
        writer.finalize(Durability::Memory).unwrap();
        scribble(&file);
        drop(file);
        assert!(get(&store, id, 1) == data);
    }
    // Enough for the replica, not for the copy that cuts its writer off: that one is created on disk.
    let mut writer = create(&store, 3, 1);
    let file = fill(&mut writer, &data[..3 << 20], 256 * KIB, false).unwrap();
    assert!(info(&store, 3).in_memory);
    writer.finalize(Durability::Memory).unwrap();
    scribble(&file);
    assert!(info(&store, 3).on_disk);
    assert!(get(&store, 3, 1) == data[..3 << 20]);
    // With memory full of replicas that cannot be evicted, nothing is granted, and nothing waits.
    let mut holder = create(&store, 4, 1);
    holder.grant(3 << 20).unwrap();
    let mut writer = create(&store, 5, 1);
    assert!(writer.grant(2 << 20).unwrap() < 2 << 20);
    send(&mut writer, &data, 1 << 20);
    writer.finalize(Durability::Memory).unwrap();
    assert!(get(&store, 5, 1) == data);
}

#[test]
fn finalized_bytes_are_never_lent() {
    let bed = Bed::new(Kind::Memory);
    let store = bed.open();
    let data = bytes(9, 400_000);
    put(&store, 1, 1, &data[..300_000]);
    let reader = store.reader(&block(1, 1, 0)).unwrap();
    let mut writer = store.append(&block(1, 1, 0), GenerationStamp(2), 300_000).unwrap();
    assert_eq!(writer.grant(400_000).unwrap(), 300_000);
    assert!(writer.lend(true).is_err());
    let seam = 300_000usize.next_multiple_of(512);
    let first = &data[300_000..seam];
    writer.write(300_000, first, Checksums::Given(&crcs(ChecksumSpec::DEFAULT, first))).unwrap();
    send(&mut writer, &data[seam..], 64 * KIB);
    writer.finalize(Durability::Memory).unwrap();
    assert!(get(&store, 1, 2) == data);
    assert!(read(&reader) == data[..300_000]);
}

#[test]
fn synced_grant_survives_power_failure() {
    let bed = Bed::new(Kind::Memory);
    let store = bed.open();
    let data = bytes(10, 900_000);
    let mut writer = create(&store, 1, 1);
    let _file = fill(&mut writer, &data, 200_000, true).unwrap();
    writer.sync().unwrap();
    assert!(info(&store, 1).on_disk);
    drop((writer, store));
    bed.lose_power();
    let store = bed.open();
    let named = block(1, 1, 900_000);
    store.initiate_recovery(&named, GenerationStamp(3)).unwrap().unwrap();
    store.update_under_recovery(&named, GenerationStamp(3), 900_000, None).unwrap();
    assert!(get(&store, 1, 3) == data);
}
