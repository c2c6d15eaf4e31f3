//! Memory that somebody else fills: what is granted, what is counted, and what its borrower can still do afterwards.

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
fn what_is_filled_in_is_got_in_every_kind_of_store() {
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
                // It is shut out, or was trusted not to do this.
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
fn only_what_fits_its_sums_counts() {
    let bed = Bed::new(Kind::Memory);
    let store = bed.open();
    let data = bytes(1, 600 * KIB);
    let mut writer = create(&store, 1, 1);
    assert!(matches!(writer.lend(false), Err(StoreError::BadWrite { .. })), "nothing is granted yet");
    let file = borrow(&mut writer, 512 * KIB, false);
    file.write_all_at(&data[..300 * KIB], 0).unwrap();
    assert_eq!(commit(&mut writer, 0, &data[..200 * KIB]).unwrap(), 200 * KIB as u64);
    assert_eq!(info(&store, 1).block.length, 200 * KIB as u64);

    // One byte is another than its sum says, in the second piece that is looked at.
    file.write_all_at(&[data[290 * KIB] ^ 1], 290 * KIB as u64).unwrap();
    let error = commit(&mut writer, 200 * KIB, &data[200 * KIB..300 * KIB]).unwrap_err();
    let StoreError::BadCommit { start, source: ChecksumError::Mismatch { chunk, .. }, .. } = &error else {
        panic!("{error}")
    };
    assert_eq!((*start, *chunk), (200 * KIB as u64, 90 * KIB / 512));
    assert_eq!((writer.received(), info(&store, 1).block.length), (200 * KIB as u64, 200 * KIB as u64));
    file.write_all_at(&data[290 * KIB..][..1], 290 * KIB as u64).unwrap();
    commit(&mut writer, 200 * KIB, &data[200 * KIB..300 * KIB]).unwrap();

    // Gaps, sums that are too few, what is there already, what is not granted, what is not there any more.
    assert!(matches!(commit(&mut writer, 301 * KIB, &data[..512]), Err(StoreError::Gap { .. })));
    assert!(matches!(writer.commit(300 * KIB as u64, 1024, &[0; 4]), Err(StoreError::BadWrite { .. })));
    assert!(matches!(writer.commit(300 * KIB as u64, u64::MAX, &[]), Err(StoreError::BadWrite { .. })));
    assert_eq!(commit(&mut writer, 0, &data[..512]).unwrap(), 300 * KIB as u64);
    assert_eq!(commit(&mut writer, 5, &data[5..512]).unwrap(), 300 * KIB as u64);
    // Bytes that are counted already and have been filled in again, with others.
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
    // What was committed is readable, and the writer can go on the other way.
    assert!(get(&store, 1, 1) == data[..300 * KIB]);
    send(&mut writer, &data[300 * KIB..], 64 * KIB);
    writer.finalize(Durability::Memory).unwrap();
    assert!(get(&store, 1, 1) == data);
}

#[test]
fn pieces_end_and_begin_again_within_chunks() {
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
    // The rest of a chunk alone, as after an append.
    let seam = sent.next_multiple_of(512);
    assert!(matches!(commit(&mut writer, sent, &data[sent..seam + 1]), Err(StoreError::BadWrite { .. })));
    commit(&mut writer, sent, &data[sent..seam]).unwrap();
    // And in turn with bytes that are handed in.
    send(&mut writer, &data[seam..seam + 1024], 512);
    commit(&mut writer, seam + 1024, &data[seam + 1024..]).unwrap();
    writer.finalize(Durability::Memory).unwrap();
    assert!(get(&store, 1, 1) == data);
}

#[test]
fn a_stranger_is_shut_out_and_a_trusted_writer_is_believed() {
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
        assert_eq!(copied, data.len() as u64, "only the stranger's");
        scribble(&file);
        if trusted {
            // Its own block is spoilt, and the sums say so.
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
    // Mended, it can be recovered and finalized by another writer: the first one's descriptor is still in the way then.
    file.write_all_at(&data[150_000..][..1], 150_000).unwrap();
    let recovery = PipelineRecovery { new_stamp: GenerationStamp(2), min_acked: 0, max_received: data.len() as u64 };
    drop(store.recover_being_written(&block(1, 1, 0), recovery).unwrap());
    // Nothing was acknowledged: it was cut to nothing, in memory that the stranger does not reach.
    assert_eq!(info(&store, 1).block.length, 0);
    let recovery = PipelineRecovery { new_stamp: GenerationStamp(3), min_acked: 0, max_received: 0 };
    let mut writer = store.recover_being_written(&block(1, 2, 0), recovery).unwrap();
    send(&mut writer, &data, 64 * KIB);
    writer.finalize(Durability::Memory).unwrap();
    scribble(&file);
    assert!(get(&store, 1, 3) == data);
}

#[test]
fn a_new_writer_and_a_restart_remember_what_was_lent() {
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
    // Killed: the borrowers live on with their descriptors.
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
fn the_memory_of_a_trusted_writer_who_did_not_end_is_not_cut_under_him() {
    let bed = Bed::new(Kind::Memory);
    let store = bed.open();
    let (data, granted) = (bytes(8, 1 << 20), (1 << 20) + (60 << 10));
    let mut writer = create(&store, 1, 1);
    let file = borrow(&mut writer, granted, true);
    file.write_all_at(&data, 0).unwrap();
    commit(&mut writer, 0, &data).unwrap();
    // The namenode has the block recovered, and readers come.
    let named = block(1, 1, data.len() as u64);
    store.initiate_recovery(&named, GenerationStamp(9)).unwrap().unwrap();
    store.update_under_recovery(&named, GenerationStamp(9), data.len() as u64, None).unwrap();
    let reader = store.reader(&block(1, 9, 0)).unwrap();
    reader.show().unwrap();
    // He has not noticed yet, and writes on.
    assert!(file.metadata().unwrap().len() >= granted as u64, "a mapping of his would fault");
    scribble(&file);
    assert!(read(&reader) == data && get(&store, 1, 9) == data);
}

#[test]
fn the_writer_is_fenced_before_a_length_is_fixed() {
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
    // However often that is tried.
    for recovery in [5, 6] {
        let refused = store.initiate_recovery(&block(2, 1, 0), GenerationStamp(recovery));
        assert!(matches!(refused, Err(StoreError::WriterStillRunning { .. })), "{refused:?}");
    }
    is_drained.store(true, Ordering::SeqCst);
    store.initiate_recovery(&block(2, 1, 0), GenerationStamp(7)).unwrap().unwrap();
}

#[test]
fn who_was_not_shut_out_when_his_writer_went_is_trusted_no_more() {
    let bed = Bed::new(Kind::Memory);
    let store = bed.open();
    let data = bytes(11, 3 << 20);
    let length = data.len() as u64;
    // Shut out; asked in vain; not asked.
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
            assert_eq!(copied, 0, "nobody else reaches it");
            continue;
        }
        assert_eq!(copied, length, "{id}");
        scribble(&file);
        assert!(get(&store, id, 2) == data);
        store.verify(&block(id, 2, 0)).unwrap();
    }
}

#[test]
fn the_unused_rest_comes_back_or_stays_counted() {
    let bed = Bed::new(Kind::Memory);
    let store = bed.open();
    // Beside the slabs, in which writers begin.
    let used = || store.metrics().memory_used - store.metrics().slab_bytes;
    let nothing = used();
    let pages = |bytes: usize| (bytes as u64).div_ceil(4096) * 4096;
    let data = bytes(7, 1 << 20);
    let crc_file = pages(256 + data.len() / 512 * 4);
    for (id, trusted, granted, kept) in [
        // Copied to memory that fits.
        (1, false, 8 << 20, data.len()),
        // So much is unused that copying is the cheaper way to give it back.
        (2, true, 8 << 20, data.len()),
        // A little more than was used: kept with the rest, which stays counted.
        (3, true, (1 << 20) + (100 << 10), (1 << 20) + (256 << 10)),
    ] {
        let mut writer = create(&store, id, 1);
        let file = borrow(&mut writer, granted, trusted);
        assert!(used() >= nothing + granted as u64);
        file.write_all_at(&data, 0).unwrap();
        commit(&mut writer, 0, &data).unwrap();
        writer.finalize(Durability::Memory).unwrap();
        // As long as the writer has its descriptor, the memory behind it counts.
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
        assert_eq!(used(), nothing, "{id}: all of it is given back with the replica");
    }
    // A small one ends where small ones live.
    let mut writer = create(&store, 9, 1);
    fill(&mut writer, &data[..1000], 1000, true).unwrap();
    writer.finalize(Durability::Memory).unwrap();
    assert_eq!(used(), nothing);
    assert!(get(&store, 9, 1) == data[..1000]);
}

#[test]
fn what_a_stranger_takes_beyond_his_grant_is_taken_from_him_or_counted() {
    let bed = Bed::new(Kind::Memory);
    let store = bed.open();
    let used = || store.metrics().memory_used - store.metrics().slab_bytes;
    let nothing = used();
    let (data, more) = (bytes(12, 1 << 20), vec![0xa5_u8; 16 << 20]);
    let length = data.len() as u64;
    let mut writer = create(&store, 1, 1);
    let file = borrow(&mut writer, data.len(), false);
    file.write_all_at(&data, 0).unwrap();
    // Not for a page, in which he may have been wrong.
    file.write_all_at(b"x", 2 * length).unwrap();
    commit(&mut writer, 0, &data[..512 * KIB]).unwrap();
    file.write_all_at(&more, length).unwrap();
    let refused = commit(&mut writer, 512 * KIB, &data[512 * KIB..]);
    assert!(matches!(refused, Err(StoreError::BadWrite { .. })), "{refused:?}");
    let about = file.metadata().unwrap();
    assert!(about.len() == length && about.blocks() * 512 < 3 * length, "{about:?}");
    commit(&mut writer, 512 * KIB, &data[512 * KIB..]).unwrap();
    // Once more, when nobody looks. He holds it as long as he has the file.
    file.write_all_at(&more, length).unwrap();
    writer.finalize(Durability::Memory).unwrap();
    assert!(used() >= nothing + length + more.len() as u64, "{}", used());
    // And when the store has let go of it.
    file.write_all_at(&more, length + more.len() as u64).unwrap();
    store.sweep();
    assert!(used() >= nothing + length + 2 * more.len() as u64, "{}", used());
    drop(file);
    store.sweep();
    assert!(used() < nothing + 2 * length, "{}", used());
    assert!(get(&store, 1, 1) == data);
}

/// Bytes of the tmpfs that the file takes.
fn taken_by(file: &File) -> u64 {
    file.metadata().unwrap().blocks() * 512
}

#[test]
fn memory_beyond_a_grant_is_counted_and_taken_back_when_the_writer_goes() {
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

        // The connection ends. The descriptor does not.
        drop(writer);
        assert_eq!(taken_by(&file), granted, "what exceeds the grant goes with the connection");
        assert!(used() < nothing + 2 * granted, "{}", used());
        file.write_all_at(&beyond, granted).unwrap();
        store.sweep();
        assert_eq!(taken_by(&file), granted, "nor does it come by later");
        assert!(used() < nothing + 2 * granted, "{}", used());

        // The process ends, too: no one can fill the rest of the grant.
        let kept = file.metadata().unwrap();
        drop(file);
        store.sweep();
        assert!(used() < nothing + 512 * KIB as u64, "{} of a grant of {}", used(), kept.len());
        assert!(get(&store, 1, 1) == data);
        // What was received is whole, and the next writer goes on.
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
fn memory_beyond_a_grant_does_not_stay_with_a_finalized_replica() {
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

    // A trusted writer that goes on after the end.
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
fn memory_beyond_a_grant_is_found_after_a_restart() {
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
fn memory_that_ends_in_the_middle_sends_the_writer_to_files() {
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
    // Enough for the replica, not for the copy that shuts its writer out: that one is made on disk.
    let mut writer = create(&store, 3, 1);
    let file = fill(&mut writer, &data[..3 << 20], 256 * KIB, false).unwrap();
    assert!(info(&store, 3).in_memory);
    writer.finalize(Durability::Memory).unwrap();
    scribble(&file);
    assert!(info(&store, 3).on_disk);
    assert!(get(&store, 3, 1) == data[..3 << 20]);
    // With memory full of what nobody can move, nothing is granted at all, and nothing waits.
    let mut holder = create(&store, 4, 1);
    holder.grant(3 << 20).unwrap();
    let mut writer = create(&store, 5, 1);
    assert!(writer.grant(2 << 20).unwrap() < 2 << 20);
    send(&mut writer, &data, 1 << 20);
    writer.finalize(Durability::Memory).unwrap();
    assert!(get(&store, 5, 1) == data);
}

#[test]
fn what_was_finalized_once_is_never_lent() {
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
fn a_synced_grant_survives_the_loss_of_memory() {
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
