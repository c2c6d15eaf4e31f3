//! Bytes received in place: when that happens, what counts, and what a restart finds.

mod common;

use std::io::Write;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;

use common::*;
use hearth_blockstore::*;
use hearth_testkit::skip_or_fail;

const NO_HUGE_PAGES: &str = "nothing is received in place: no tmpfs with huge pages can be mounted here";

/// Receives `data` from the writer's end on, in pieces, as they arrive through a socket. Never requests more than it
/// has.
fn receive(writer: &mut ReplicaWriter, data: &[u8], piece: usize) {
    let (mut sender, socket) = UnixStream::pair().unwrap();
    for piece in data.chunks(piece) {
        let at = writer.received();
        assert!(writer.receives_in_place(at + piece.len() as u64));
        let (first, rest) = piece.split_at(piece.len() / 3);
        writer.put_in_place(at, first).unwrap();
        let mut done = first.len();
        for part in rest.chunks(30_000) {
            let mut behind = [0; 3];
            sender.write_all(part).unwrap();
            sender.write_all(b"abc").unwrap();
            let came = writer.receive(at + done as u64, part.len(), socket.as_fd(), &mut behind).unwrap().unwrap();
            assert_eq!((came, &behind), (part.len() + 3, b"abc"));
            done += part.len();
        }
        assert_eq!(writer.received(), at, "nothing counts yet");
        let sums = crcs(writer.checksum(), piece);
        assert_eq!(writer.accept(piece.len() as u64, &sums).unwrap(), at + piece.len() as u64);
        writer.acker().set(at + piece.len() as u64).unwrap();
    }
}

#[test]
fn bytes_received_in_place_survive_a_restart() {
    let bed = Bed::new(Kind::HugePages);
    let store = bed.open();
    if !create(&store, 99, 1001).receives_in_place(1) {
        return skip_or_fail("bytes_received_in_place_survive_a_restart", NO_HUGE_PAGES);
    }
    let sizes = [1, 511, 512, 513, 65_536, 65_537, 1_048_577, 5_000_000];
    for (id, size) in sizes.into_iter().enumerate() {
        let data = bytes(id as u64, size);
        let mut writer = create(&store, id as i64, 1001);
        receive(&mut writer, &data, 256 << 10);
        assert!(read(&writer.reader().unwrap()) == data, "{size} bytes before the end");
        writer.finalize(Durability::Memory).unwrap();
        assert!(get(&store, id as i64, 1001) == data, "{size} bytes");
    }
    assert_eq!(store.metrics().received_in_place_bytes, sizes.iter().sum::<usize>() as u64);
    // A mix of bytes received in place and bytes written.
    let data = bytes(50, 3_000_000);
    let mut writer = create(&store, 50, 1001);
    send(&mut writer, &data[..131_072], 64 << 10);
    receive(&mut writer, &data[131_072..1_179_648], 128 << 10);
    send(&mut writer, &data[1_179_648..1_179_748], 100);
    assert!(!writer.receives_in_place(1_200_000), "the chunk at the seam gets another CRC");
    let seam = 1_179_648 + 512;
    send(&mut writer, &data[1_179_748..seam], 512);
    receive(&mut writer, &data[seam..], 200 << 9);
    writer.finalize(Durability::Memory).unwrap();
    assert!(get(&store, 50, 1001) == data);
    assert_eq!(bed.flush(&store).failures, 0);
    drop(store);
    let store = bed.open();
    for (id, size) in sizes.into_iter().enumerate().chain([(50, 3_000_000)]) {
        assert!(get(&store, id as i64, 1001) == bytes(id as u64, size), "{size} bytes after a restart");
        store.verify(&block(id as i64, 1001, 0)).unwrap();
    }
}

#[test]
fn only_accepted_matching_bytes_count() {
    let bed = Bed::new(Kind::HugePages);
    let store = bed.open();
    let mut writer = create(&store, 1, 1001);
    if !writer.receives_in_place(1 << 20) {
        return skip_or_fail("only_accepted_matching_bytes_count", NO_HUGE_PAGES);
    }
    let data = bytes(1, 1 << 20);
    receive(&mut writer, &data[..65_536], 65_536);
    let mut bad = data[65_536..131_072].to_vec();
    bad[40_000] ^= 1;
    writer.put_in_place(65_536, &bad).unwrap();
    let sums = crcs(writer.checksum(), &data[65_536..131_072]);
    let error = writer.accept(65_536, &sums).unwrap_err();
    assert!(matches!(error, StoreError::BadCommit { start: 65_536, .. }), "{error:?}");
    assert!(matches!(writer.accept(65_536, &sums[4..]), Err(StoreError::BadWrite { .. })));
    assert_eq!(writer.received(), 65_536);
    // Bytes that count are not overwritten, and nothing is written beyond the allocated memory.
    assert!(writer.put_in_place(65_535, &[0]).is_err());
    let (mut sender, socket) = UnixStream::pair().unwrap();
    sender.write_all(b"some").unwrap();
    assert!(writer.receive(0, 4, socket.as_fd(), &mut []).is_err());
    assert!(writer.receive(1 << 40, 4, socket.as_fd(), &mut []).is_err());
    assert!(!writer.goes_on_in_place(1 << 40));
    assert!(writer.goes_on_in_place(1 << 20));
    assert!(writer.accept(1 << 40, &[]).is_err());
    assert_eq!(writer.receive(65_536, 4, socket.as_fd(), &mut []).unwrap().unwrap(), 4, "all bytes are still there");
    // A writer that takes the replica over finds the bytes that count, and stops the previous writer.
    writer.put_in_place(65_536, &bad).unwrap();
    let new_stamp = hearth_types::GenerationStamp(1002);
    let recovery = PipelineRecovery { new_stamp, min_acked: 65_536, max_received: 1 << 20 };
    let mut former = std::mem::replace(&mut writer, store.recover_being_written(&block(1, 1001, 0), recovery).unwrap());
    assert_eq!(writer.received(), 65_536);
    assert!(!former.receives_in_place(1 << 20));
    assert!(!former.goes_on_in_place(65_536));
    assert!(matches!(former.put_in_place(65_536, &bad), Err(StoreError::WriterStopped { .. })));
    let received = former.receive(65_536, 1, socket.as_fd(), &mut []);
    assert!(matches!(received, Err(StoreError::WriterStopped { .. })));
    assert!(matches!(former.accept(65_536, &sums), Err(StoreError::WriterStopped { .. })));
    receive(&mut writer, &data[65_536..], 100 << 9);
    writer.finalize(Durability::Memory).unwrap();
    assert!(get(&store, 1, 1002) == data);
    // After a kill, the bytes that counted are there.
    let mut writer = create(&store, 2, 1001);
    receive(&mut writer, &data[..65_536], 65_536);
    assert!(writer.receives_in_place(131_072));
    writer.put_in_place(65_536, &data[65_536..131_072]).unwrap();
    std::mem::forget(writer);
    drop(store);
    let store = bed.open();
    let there = store.replica(&bed.pool.pool, hearth_types::BlockId(2)).unwrap();
    assert_eq!(there.block.length, 65_536);
}

#[test]
fn unchecked_bytes_are_verified_later() {
    let bed = Bed::new(Kind::HugePages);
    let store = bed.open();
    let mut writer = create(&store, 1, 1001);
    if !writer.receives_in_place(4096) {
        return skip_or_fail("unchecked_bytes_are_verified_later", NO_HUGE_PAGES);
    }
    writer.set_checked(false);
    writer.put_in_place(0, &bytes(1, 4096)).unwrap();
    let sums = crcs(writer.checksum(), &bytes(2, 4096));
    assert_eq!(writer.accept(4096, &sums).unwrap(), 4096);
    writer.finalize(Durability::Memory).unwrap();
    let reader = store.reader(&block(1, 1001, 4096)).unwrap();
    assert!(matches!(reader.verify_memory(), Err(StoreError::Corrupt { .. })));
}

#[test]
fn only_huge_pages_are_received_in_place() {
    for kind in KINDS.into_iter().filter(|kind| *kind != Kind::HugePages) {
        let bed = Bed::new(kind);
        let store = bed.open();
        let data = bytes(1, 200_000);
        let mut writer = create(&store, 1, 1001);
        assert!(!writer.receives_in_place(65_536), "{kind:?}");
        assert!(writer.put_in_place(0, &data).is_err() || kind == Kind::NoSlabs);
        send(&mut writer, &data, 65_536);
        writer.finalize(Durability::Memory).unwrap();
        assert!(get(&store, 1, 1001) == data, "{kind:?}");
    }
}

#[test]
fn full_memory_continues_reception_on_disk() {
    let mut bed = Bed::new(Kind::HugePages);
    bed.options.memory.limit = 12 << 20;
    let store = bed.open();
    let data = bytes(1, 16 << 20);
    let mut writer = create(&store, 1, 1001);
    if !writer.receives_in_place(65_536) {
        return skip_or_fail("full_memory_continues_reception_on_disk", NO_HUGE_PAGES);
    }
    receive(&mut writer, &data[..1 << 20], 256 << 10);
    // Received bytes that do not count yet are not lost by asking whether memory is already allocated.
    assert!(writer.receives_in_place((1 << 20) + 65_536));
    writer.put_in_place(1 << 20, &data[1 << 20..(1 << 20) + 65_536]).unwrap();
    assert!(!writer.goes_on_in_place(8 << 20));
    writer.accept(65_536, &crcs(writer.checksum(), &data[1 << 20..(1 << 20) + 65_536])).unwrap();
    assert!(!writer.receives_in_place(8 << 20), "there may not be that much");
    assert!(writer.put_in_place(2 << 20, &[1]).is_err());
    send(&mut writer, &data[(1 << 20) + 65_536..], 65_536);
    assert!(!writer.receives_in_place(writer.received() + 1) && !info(&store, 1).in_memory);
    writer.finalize(Durability::Memory).unwrap();
    assert!(get(&store, 1, 1001) == data);
}
