//! Conformance suite for one-sided transports, as plain functions over the traits. Each transport calls [`all`] in its
//! tests.
//!
//! Both ends are in this process, connected through `ip`, an address of this machine that the transport can use. A
//! function panics if the transport violates a requirement.

use std::future::Future;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use bytes::Bytes;
use futures_util::FutureExt;
use futures_util::future::{BoxFuture, join_all};
use hearth_types::RemoteSlice;

use crate::Memory;
use crate::one_sided::{
    Access, Connection, Domain, Error, Limits, Listener, MESSAGE_BYTES_MAX, PRIVATE_BYTES_MAX, Region, Transfer,
    Transport,
};

/// Far longer than any step here takes: a wait that reaches this limit would hang.
const LONG: Duration = Duration::from_secs(60);

/// Long enough for a fault to show. If it were too short, a fault could be missed, but none reported falsely.
const A_WHILE: Duration = Duration::from_millis(100);

type Case = for<'a> fn(&'a dyn Transport, IpAddr) -> BoxFuture<'a, ()>;

macro_rules! cases {
    ($($name:ident,)*) => {
        /// Every case with its name.
        pub const CASES: &[(&str, Case)] = &[$((stringify!($name), |transport, ip| Box::pin($name(transport, ip)))),*];
    };
}

cases! {
    bytes_move_both_ways,
    message_arrives_after_preceding_writes,
    memory_of_a_completed_write_is_free,
    messages_arrive_in_order,
    read_returns_bytes_of_its_own_time,
    many_reads_are_split_into_rounds,
    message_flood_is_bounded_and_complete,
    both_ends_flood_each_other,
    bad_slice_ends_the_connection,
    writes_without_permission_fail,
    reads_without_permission_fail,
    keys_are_valid_only_in_their_domain,
    dropped_region_is_refused,
    close_fences_late_writes,
    dropped_future_does_not_cancel_operation,
    close_releases_posted_memory,
    waits_time_out,
    every_wait_ends_with_the_connection,
    dropped_connection_ends,
    connection_ends_with_its_runtime,
    messages_before_close_are_received,
    private_data_and_rejections_reach_the_peer,
    smaller_limits_apply,
    lengths_are_limited,
    concurrent_connections_are_independent,
    registrations_are_counted_and_checked,
}

/// Runs every case, one after the other. `started` is called with the name of each.
pub async fn all(transport: &dyn Transport, ip: IpAddr, started: impl FnMut(&str)) {
    all_but(transport, ip, &[], started).await;
}

/// Runs every case except those in `but`, which a network is known to violate; the network's own tests document its
/// actual behaviour.
pub async fn all_but(transport: &dyn Transport, ip: IpAddr, but: &[&str], mut started: impl FnMut(&str)) {
    assert!(but.iter().all(|name| CASES.iter().any(|(case, _)| case == name)), "no such case among {but:?}");
    for (name, case) in CASES.iter().filter(|(name, _)| !but.contains(name)) {
        started(name);
        in_time(name, case(transport, ip)).await;
    }
}

/// Panics if `future` takes longer than `LONG`.
async fn in_time<T>(what: &str, future: impl Future<Output = T>) -> T {
    tokio::time::timeout(LONG * 2, future).await.unwrap_or_else(|_| panic!("{what}: hangs"))
}

/// Two ends of a connection, each with its domain.
struct Pair {
    near: Arc<dyn Connection>,
    near_domain: Arc<dyn Domain>,
    far: Arc<dyn Connection>,
    far_domain: Arc<dyn Domain>,
}

async fn pair_of(transport: &dyn Transport, ip: IpAddr, limits: Limits) -> Pair {
    let listener = transport.listen(SocketAddr::new(ip, 0)).await.unwrap();
    let near_domain = transport.domain().unwrap();
    let far_domain = transport.domain().unwrap();
    let (near, far) = connect(transport, &*listener, &near_domain, &far_domain, limits).await;
    Pair { near, near_domain, far, far_domain }
}

async fn pair(transport: &dyn Transport, ip: IpAddr) -> Pair {
    pair_of(transport, ip, Limits::default()).await
}

async fn connect(
    transport: &dyn Transport,
    listener: &dyn Listener,
    near: &Arc<dyn Domain>,
    far: &Arc<dyn Domain>,
    limits: Limits,
) -> (Arc<dyn Connection>, Arc<dyn Connection>) {
    let accepted = async { listener.accept().await.unwrap().accept(far, b"", limits, LONG).await.unwrap() };
    let connected = transport.connect(near, listener.address(), b"", limits, LONG);
    let (connected, accepted) = tokio::join!(connected, accepted);
    (connected.unwrap(), accepted)
}

/// Creates zeroed memory, all of it registered.
fn region(domain: &Arc<dyn Domain>, bytes: u64, access: Access) -> Arc<dyn Region> {
    let memory = Arc::new(Memory::fresh(bytes).unwrap());
    domain.register(&memory, 0..bytes, access).unwrap()
}

/// Returns bytes that identify their origin and purpose.
fn pattern(seed: u8, bytes: u64) -> Vec<u8> {
    (0..bytes).map(|at| (at as u8).wrapping_mul(31) ^ (at >> 8) as u8 ^ seed).collect()
}

fn content(region: &Arc<dyn Region>, offset: u64, bytes: u64) -> Vec<u8> {
    let mut content = vec![0; bytes as usize];
    region.memory().read(region.range().start + offset, &mut content);
    content
}

/// Returns a transfer between all of `local` and the slice at the same offset in `remote`.
fn whole(local: &Arc<dyn Region>, remote: &Arc<dyn Region>) -> Transfer {
    Transfer { local: local.clone(), offset: 0, remote: remote.remote() }
}

fn part(local: &Arc<dyn Region>, offset: u64, remote: RemoteSlice) -> Transfer {
    Transfer { local: local.clone(), offset, remote }
}

fn assert_closed<T: std::fmt::Debug>(result: &Result<T, Error>, what: &str) {
    assert!(matches!(result, Err(Error::Closed { .. })), "{what}: {result:?}");
}

/// Reads and writes of every size, into the middle of regions that are the middle of their memory, from both ends.
async fn bytes_move_both_ways(transport: &dyn Transport, ip: IpAddr) {
    let pair = pair(transport, ip).await;
    let sides = [(&pair.near, &pair.near_domain, &pair.far_domain), (&pair.far, &pair.far_domain, &pair.near_domain)];
    for (seed, (connection, here, there)) in sides.into_iter().enumerate() {
        for bytes in [1, 7, 4096, 100_000, (4 << 20) + 13] {
            let middle = |domain: &Arc<dyn Domain>, access| {
                let memory = Arc::new(Memory::fresh(bytes + 8192).unwrap());
                domain.register(&memory, 4096..bytes + 4100, access).unwrap()
            };
            let local = middle(here, Access::Local);
            let source = middle(there, Access::RemoteRead);
            let sink = middle(there, Access::RemoteWrite);
            let expected = pattern(seed as u8, bytes);
            source.memory().write(4098, &expected);
            let of_source = source.remote().part(2, bytes).unwrap();
            connection.read(vec![part(&local, 3, of_source)], LONG).await.unwrap();
            assert!(content(&local, 3, bytes) == expected, "a read of {bytes} bytes");
            let of_sink = sink.remote().part(1, bytes).unwrap();
            connection.write(vec![part(&local, 3, of_sink)], None, LONG).await.unwrap();
            // A read is guaranteed to be executed after earlier writes only if the peer says so; a message always is.
            // So wait for a message.
            let other = if seed == 0 { &pair.far } else { &pair.near };
            connection.send(Bytes::from_static(b"written"), LONG).await.unwrap();
            assert_eq!(other.receive(LONG).await.unwrap(), &b"written"[..]);
            assert!(content(&sink, 1, bytes) == expected, "a write of {bytes} bytes");
            assert_eq!(
                (content(&sink, 0, 1), content(&sink, bytes + 1, 1)),
                (vec![0], vec![0]),
                "beside {bytes} bytes"
            );
        }
    }
}

async fn message_arrives_after_preceding_writes(transport: &dyn Transport, ip: IpAddr) {
    const BYTES: u64 = 100_000;
    let pair = pair(transport, ip).await;
    let sink = region(&pair.far_domain, BYTES, Access::RemoteWrite);
    let checker = tokio::spawn({
        let (far, sink) = (pair.far.clone(), sink.clone());
        async move {
            for round in 0..100 {
                assert_eq!(far.receive(LONG).await.unwrap(), &[round][..]);
                assert!(
                    content(&sink, 0, BYTES) == pattern(round, BYTES),
                    "round {round}: the message overtook its data"
                );
                far.send(Bytes::from_static(b"next"), LONG).await.unwrap();
            }
        }
    });
    let local = region(&pair.near_domain, BYTES, Access::Local);
    for round in 0..100 {
        local.memory().write(0, &pattern(round, BYTES));
        // Two writes, so that the message follows both.
        let half = BYTES / 2;
        let first = part(&local, 0, sink.remote().part(0, half).unwrap());
        let second = part(&local, half, sink.remote().part(half, BYTES - half).unwrap());
        pair.near.write(vec![first, second], Some(Bytes::copy_from_slice(&[round])), LONG).await.unwrap();
        pair.near.receive(LONG).await.unwrap();
    }
    checker.await.unwrap();
}

/// A write that has completed does not read its local memory again, although its data may still be in transit. Both
/// ends write at once, and put other bytes into the memory of each write as soon as it has completed.
async fn memory_of_a_completed_write_is_free(transport: &dyn Transport, ip: IpAddr) {
    const BYTES: u64 = 128 << 10;
    const ROUNDS: u64 = 64;
    let pair = pair(transport, ip).await;
    let writing = |connection: &Arc<dyn Connection>, here: &Arc<dyn Domain>, there: &Arc<dyn Domain>| {
        let (connection, local) = (connection.clone(), region(here, BYTES, Access::Local));
        let sink = region(there, ROUNDS * BYTES, Access::RemoteWrite);
        tokio::spawn(async move {
            let other = vec![0xEE; BYTES as usize];
            for round in 0..ROUNDS {
                local.memory().write(0, &pattern(round as u8, BYTES));
                // The first of two operations, whose end a transport may learn only from the second.
                let to = |start, bytes| sink.remote().part(round * BYTES + start, bytes).unwrap();
                let (most, rest) = (BYTES - 8, 8);
                let transfers = vec![part(&local, 0, to(0, most)), part(&local, most, to(most, rest))];
                connection.write(transfers, None, LONG).await.unwrap();
                local.memory().write(0, &other);
            }
            connection.send(Bytes::from_static(b"all"), LONG).await.unwrap();
            sink
        })
    };
    let from_near = writing(&pair.near, &pair.near_domain, &pair.far_domain);
    let from_far = writing(&pair.far, &pair.far_domain, &pair.near_domain);
    for (writer, receiver) in [(from_near, &pair.far), (from_far, &pair.near)] {
        let sink = writer.await.unwrap();
        assert_eq!(receiver.receive(LONG).await.unwrap(), &b"all"[..]);
        for round in 0..ROUNDS {
            assert!(content(&sink, round * BYTES, BYTES) == pattern(round as u8, BYTES), "write {round}");
        }
    }
}

async fn messages_arrive_in_order(transport: &dyn Transport, ip: IpAddr) {
    let pair = pair(transport, ip).await;
    let message = |number: u32| {
        let mut bytes = number.to_le_bytes().to_vec();
        bytes.resize(4 + number as usize * 37 % (MESSAGE_BYTES_MAX - 4), number as u8);
        Bytes::from(bytes)
    };
    // Posted one after the other, awaited together.
    let sent = join_all((0..300).map(|number| pair.near.send(message(number), LONG)));
    let received = async {
        for number in 0..300 {
            assert_eq!(pair.far.receive(LONG).await.unwrap(), message(number), "message {number}");
        }
    };
    let (sent, ()) = tokio::join!(sent, received);
    sent.into_iter().for_each(|result| result.unwrap());
}

/// A read returns the bytes of the peer's memory at a time between its posting and its completion, also while the peer
/// changes them. Two reads that were posted together have no order. SoftiWARP sends a page or more without a copy, so
/// the receiver may copy these bytes after those of a shorter read that was posted later.
async fn read_returns_bytes_of_its_own_time(transport: &dyn Transport, ip: IpAddr) {
    const APART: u64 = 1 << 20;
    let pair = pair(transport, ip).await;
    let source = region(&pair.far_domain, APART + 8, Access::RemoteRead);
    let local = region(&pair.near_domain, APART + 8, Access::Local);
    let (begun, ended) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let stop = Arc::new(AtomicBool::new(false));
    let writer = std::thread::spawn({
        let (memory, stop, begun, ended) = (source.memory().clone(), stop.clone(), begun.clone(), ended.clone());
        move || {
            let mut number = 0_u64;
            while !stop.load(Ordering::Relaxed) {
                number += 1;
                begun.store(number, Ordering::SeqCst);
                std::sync::atomic::fence(Ordering::SeqCst);
                memory.write(APART, &number.to_le_bytes());
                memory.write(0, &number.to_le_bytes());
                std::sync::atomic::fence(Ordering::SeqCst);
                ended.store(number, Ordering::SeqCst);
                // The machine may have only two cores.
                if number.is_multiple_of(64) {
                    std::thread::yield_now();
                }
            }
        }
    });
    let mut wrong = None;
    for round in 0..200 {
        // The length of the first read varies, so that it is still in progress when the second starts.
        let first = part(&local, 0, source.remote().part(0, APART.min(8 << (round % 14))).unwrap());
        let second = part(&local, APART, source.remote().part(APART, 8).unwrap());
        let oldest = ended.load(Ordering::SeqCst);
        pair.near.read(vec![first, second], LONG).await.unwrap();
        let newest = begun.load(Ordering::SeqCst);
        for at in [0, APART] {
            let number = u64::from_le_bytes(content(&local, at, 8).try_into().unwrap());
            if !(oldest..=newest).contains(&number) {
                wrong = Some((round, at, oldest, number, newest));
            }
        }
    }
    stop.store(true, Ordering::Relaxed);
    writer.join().unwrap();
    assert_eq!(wrong, None, "round, offset, oldest, read, newest");
}

async fn many_reads_are_split_into_rounds(transport: &dyn Transport, ip: IpAddr) {
    const READS: u64 = 1000;
    let limits = Limits { reads_in_flight: 2, operations: 8, messages: 4 };
    let pair = pair_of(transport, ip, limits).await;
    let source = region(&pair.far_domain, READS * 64, Access::RemoteRead);
    let local = region(&pair.near_domain, READS * 64, Access::Local);
    source.memory().write(0, &pattern(5, READS * 64));
    let reads = (0..READS).rev().map(|at| part(&local, at * 64, source.remote().part(at * 64, 64).unwrap()));
    // From two tasks concurrently.
    let (first, second): (Vec<_>, Vec<_>) = reads.partition(|transfer| transfer.offset % 128 == 0);
    let (first, second) = tokio::join!(pair.near.read(first, LONG), pair.near.read(second, LONG));
    first.and(second).unwrap();
    assert!(content(&local, 0, READS * 64) == pattern(5, READS * 64));
}

async fn message_flood_is_bounded_and_complete(transport: &dyn Transport, ip: IpAddr) {
    let pair = pair_of(transport, ip, Limits { messages: 4, ..Limits::default() }).await;
    let mut sends: Vec<_> =
        (0..500_u32).map(|number| pair.near.send(Bytes::copy_from_slice(&number.to_le_bytes()), LONG)).collect();
    // No task receives, so the number of sent messages stays within the credit. Time in which more could be sent by
    // mistake.
    tokio::time::sleep(A_WHILE).await;
    let sent = sends.iter_mut().filter_map(|send| send.now_or_never()).count();
    assert!(sent <= 4, "{sent} messages were sent with credit for 4");
    drop(sends);
    for number in 0..500_u32 {
        assert_eq!(pair.far.receive(LONG).await.unwrap(), &number.to_le_bytes()[..], "message {number}");
    }
    assert!(matches!(pair.far.receive(A_WHILE).await, Err(Error::NoMessage { .. })));
}

async fn both_ends_flood_each_other(transport: &dyn Transport, ip: IpAddr) {
    let pair = pair_of(transport, ip, Limits { messages: 2, ..Limits::default() }).await;
    let ends = [&pair.near, &pair.far].map(|end| async move {
        let sending = async {
            for number in 0..300_u32 {
                end.send(Bytes::copy_from_slice(&number.to_le_bytes()), LONG).await.unwrap();
            }
        };
        let receiving = async {
            for number in 0..300_u32 {
                assert_eq!(end.receive(LONG).await.unwrap(), &number.to_le_bytes()[..]);
            }
        };
        tokio::join!(sending, receiving);
    });
    join_all(ends).await;
}

/// Unknown keys, and ranges outside of the region: the operation fails, both ends are notified, and no byte moves.
async fn bad_slice_ends_the_connection(transport: &dyn Transport, ip: IpAddr) {
    const BYTES: u64 = 8192;
    for writing in [false, true] {
        for bad in 0..5 {
            let pair = pair(transport, ip).await;
            let access = if writing { Access::RemoteWrite } else { Access::RemoteRead };
            let memory = Arc::new(Memory::fresh(BYTES * 3).unwrap());
            memory.write(0, &vec![1; 3 * BYTES as usize]);
            let target = pair.far_domain.register(&memory, BYTES..2 * BYTES, access).unwrap();
            let local = region(&pair.near_domain, BYTES, Access::Local);
            let RemoteSlice { address, length, key } = target.remote();
            let slice = match bad {
                0 => RemoteSlice { address, length, key: key ^ 0x5555_5500 },
                1 => RemoteSlice { address: address + 1, length, key },
                2 => RemoteSlice { address: address - 1, length, key },
                3 => RemoteSlice { address: address + BYTES, length: 1, key },
                _ => RemoteSlice { address: u64::MAX - 4, length: 64, key },
            };
            let what = format!("{} slice {bad}", if writing { "writing" } else { "reading" });
            let transfer = part(&local, 0, slice);
            if writing {
                // Its own completion may come before the peer has noticed.
                let _ = pair.near.write(vec![transfer], Some(Bytes::from_static(b"behind")), LONG).await;
                assert_closed(&pair.far.receive(LONG).await, &what);
            } else {
                assert_closed(&pair.near.read(vec![transfer], LONG).await, &what);
            }
            in_time(&what, pair.near.closed()).await;
            in_time(&what, pair.far.closed()).await;
            assert_closed(&pair.near.send(Bytes::from_static(b"late"), LONG).await, &what);
            let mut bytes = vec![0; 3 * BYTES as usize];
            memory.read(0, &mut bytes);
            assert!(bytes.iter().all(|byte| *byte == 1), "{what}: bytes were changed");
            assert_eq!(content(&local, 0, BYTES), vec![0; BYTES as usize], "{what}: bytes were readable");
        }
    }
}

/// Regions for remote reads and local regions refuse remote writes.
async fn writes_without_permission_fail(transport: &dyn Transport, ip: IpAddr) {
    for access in [Access::RemoteRead, Access::Local] {
        let what = format!("{access:?}");
        let pair = pair(transport, ip).await;
        let target = region(&pair.far_domain, 4096, access);
        target.memory().write(0, &[1; 4096]);
        let local = region(&pair.near_domain, 4096, Access::Local);
        let _ = pair.near.write(vec![whole(&local, &target)], Some(Bytes::from_static(b"behind")), LONG).await;
        assert_closed(&pair.far.receive(LONG).await, &what);
        assert_eq!(content(&target, 0, 4096), [1; 4096], "{what}");
        in_time(&what, pair.far.closed()).await;
    }
}

/// Regions for remote writes and local regions refuse remote reads.
async fn reads_without_permission_fail(transport: &dyn Transport, ip: IpAddr) {
    for access in [Access::RemoteWrite, Access::Local] {
        let what = format!("{access:?}");
        let pair = pair(transport, ip).await;
        let target = region(&pair.far_domain, 4096, access);
        let local = region(&pair.near_domain, 4096, Access::Local);
        assert_closed(&pair.near.read(vec![whole(&local, &target)], LONG).await, &what);
        in_time(&what, pair.far.closed()).await;
    }
}

async fn keys_are_valid_only_in_their_domain(transport: &dyn Transport, ip: IpAddr) {
    for writing in [false, true] {
        let pair = pair(transport, ip).await;
        let stranger = transport.domain().unwrap();
        let target = region(&stranger, 4096, if writing { Access::RemoteWrite } else { Access::RemoteRead });
        let local = region(&pair.near_domain, 4096, Access::Local);
        local.memory().write(0, &[7; 4096]);
        if writing {
            let _ = pair.near.write(vec![whole(&local, &target)], Some(Bytes::from_static(b"behind")), LONG).await;
            assert_closed(&pair.far.receive(LONG).await, "a write by another domain's key");
        } else {
            assert_closed(&pair.near.read(vec![whole(&local, &target)], LONG).await, "a read by another domain's key");
        }
        assert_eq!(content(&target, 0, 4096), [0; 4096], "writing: {writing}");
    }
}

async fn dropped_region_is_refused(transport: &dyn Transport, ip: IpAddr) {
    for writing in [false, true] {
        let pair = pair(transport, ip).await;
        let access = if writing { Access::RemoteWrite } else { Access::RemoteRead };
        let target = region(&pair.far_domain, 4096, access);
        let local = region(&pair.near_domain, 4096, Access::Local);
        let remote = target.remote();
        let memory = target.memory().clone();
        if !writing {
            pair.near.read(vec![whole(&local, &target)], LONG).await.unwrap();
        }
        drop(target);
        assert_eq!(pair.far_domain.registered_bytes(), 0);
        memory.write(0, &[9; 4096]);
        if writing {
            let message = Some(Bytes::from_static(b"behind"));
            let _ = pair.near.write(vec![part(&local, 0, remote)], message, LONG).await;
            assert_closed(&pair.far.receive(LONG).await, "a write to a dropped region");
        } else {
            assert_closed(&pair.near.read(vec![part(&local, 0, remote)], LONG).await, "a read of a dropped region");
            assert_eq!(content(&local, 0, 4096), [0; 4096]);
        }
        let mut bytes = [0; 4096];
        memory.read(0, &mut bytes);
        assert_eq!(bytes, [9; 4096]);
    }
}

/// Once `close` has resolved, the peer no longer writes to memory of this side.
async fn close_fences_late_writes(transport: &dyn Transport, ip: IpAddr) {
    const BYTES: u64 = 1 << 20;
    let pair = pair(transport, ip).await;
    let sink = region(&pair.far_domain, BYTES, Access::RemoteWrite);
    let local = region(&pair.near_domain, BYTES, Access::Local);
    local.memory().write(0, &vec![0xEE; BYTES as usize]);
    let writes: Vec<_> = (0..64).map(|_| pair.near.write(vec![whole(&local, &sink)], None, LONG)).collect();
    // Wait until the writes have begun.
    let mut waited = 0;
    while content(&sink, 0, 1) != [0xEE] && waited < 3000 {
        // A card may write there: a condition without an event.
        tokio::time::sleep(Duration::from_millis(1)).await;
        waited += 1;
    }
    in_time("close", pair.far.close()).await;
    let fixed = vec![0x11; BYTES as usize];
    sink.memory().write(0, &fixed);
    // Time in which a late write could arrive.
    tokio::time::sleep(A_WHILE).await;
    assert!(content(&sink, 0, BYTES) == fixed, "a write arrived behind the fence");
    // `close` can be called repeatedly.
    in_time("close again", pair.far.close()).await;
    in_time("the other end", pair.near.closed()).await;
    for (number, write) in writes.into_iter().enumerate() {
        // The first writes may have completed.
        let result = in_time("a write that was cut off", write).await;
        assert!(matches!(result, Ok(()) | Err(Error::Closed { .. })), "write {number}: {result:?}");
    }
}

/// Dropping the future of a read does not cancel it: it continues into memory that is still there.
async fn dropped_future_does_not_cancel_operation(transport: &dyn Transport, ip: IpAddr) {
    const BYTES: u64 = 2 << 20;
    let pair = pair(transport, ip).await;
    let source = region(&pair.far_domain, BYTES, Access::RemoteRead);
    source.memory().write(0, &pattern(3, BYTES));
    let sink = region(&pair.far_domain, BYTES, Access::RemoteWrite);
    let local = region(&pair.near_domain, BYTES, Access::Local);
    drop(pair.near.read(vec![whole(&local, &source)], LONG));
    // A future that was polled before it was dropped.
    let other = region(&pair.near_domain, BYTES, Access::Local);
    let mut read = pair.near.read(vec![whole(&other, &source)], LONG);
    let _ = (&mut read).now_or_never();
    drop(read);
    // Reads complete in order: once this one is complete, the earlier ones are.
    let last = region(&pair.near_domain, 1, Access::Local);
    pair.near.read(vec![part(&last, 0, source.remote().part(0, 1).unwrap())], LONG).await.unwrap();
    assert!(content(&local, 0, BYTES) == pattern(3, BYTES), "the read was not executed");
    assert!(content(&other, 0, BYTES) == pattern(3, BYTES), "the read was not executed");
    drop(pair.near.write(vec![whole(&local, &sink)], Some(Bytes::from_static(b"there")), LONG));
    assert_eq!(pair.far.receive(LONG).await.unwrap(), &b"there"[..]);
    assert!(content(&sink, 0, BYTES) == pattern(3, BYTES), "the write was not executed");
}

/// The connection holds the memory of posted operations, even if all other references are dropped, until it is over.
/// Then nothing is leaked.
async fn close_releases_posted_memory(transport: &dyn Transport, ip: IpAddr) {
    const BYTES: u64 = 8 << 20;
    let pair = pair(transport, ip).await;
    let source = region(&pair.far_domain, BYTES, Access::RemoteRead);
    let mut kept: Vec<Weak<Memory>> = Vec::new();
    for _ in 0..4 {
        let local = region(&pair.near_domain, BYTES, Access::Local);
        kept.push(Arc::downgrade(local.memory()));
        drop(pair.near.read(vec![whole(&local, &source)], LONG));
    }
    in_time("close", pair.near.close()).await;
    // The tasks that wait for the reads hold the memory for a moment longer.
    let is_kept = || kept.iter().any(|memory| memory.strong_count() > 0);
    let given_back = async {
        while pair.near_domain.registered_bytes() > 0 || is_kept() {
            // The end of a reference: a condition without an event.
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    let is_given_back = tokio::time::timeout(LONG, given_back).await.is_ok();
    assert_eq!(pair.near_domain.registered_bytes(), 0);
    assert!(is_given_back, "memory was leaked");
}

async fn waits_time_out(transport: &dyn Transport, ip: IpAddr) {
    let short = Duration::from_millis(30);
    let pair = pair_of(transport, ip, Limits { messages: 1, ..Limits::default() }).await;
    assert!(matches!(pair.near.receive(short).await, Err(Error::NoMessage { .. })));
    pair.far.send(Bytes::from_static(b"goes on"), LONG).await.unwrap();
    assert_eq!(pair.near.receive(LONG).await.unwrap(), &b"goes on"[..]);
    // No task receives, so the credit is used up.
    let mut result = Ok(());
    for _ in 0..64 {
        result = pair.near.send(Bytes::from_static(b"not received"), short).await;
        if result.is_err() {
            break;
        }
    }
    assert!(matches!(result, Err(Error::TimedOut { .. })), "{result:?}");
    in_time("this end", pair.near.closed()).await;
    in_time("that end", pair.far.closed()).await;

    let listener = transport.listen(SocketAddr::new(ip, 0)).await.unwrap();
    let domain = transport.domain().unwrap();
    let result = transport.connect(&domain, listener.address(), b"", Limits::default(), short).await;
    assert!(matches!(result, Err(Error::TimedOut { .. })), "no task accepts: {result:?}");
    let address = listener.address();
    drop(listener);
    let result = transport.connect(&domain, address, b"", Limits::default(), LONG).await;
    assert!(matches!(result, Err(Error::Connect { .. } | Error::Rejected { .. })), "no listener: {result:?}");
}

async fn every_wait_ends_with_the_connection(transport: &dyn Transport, ip: IpAddr) {
    let pair = pair_of(transport, ip, Limits { messages: 1, ..Limits::default() }).await;
    let near = &pair.near;
    let receiving = near.receive(LONG);
    let sending = join_all((0..8).map(|_| near.send(Bytes::from_static(b"waits for credit"), LONG)));
    let closing = async {
        // Time for the waits to begin, which nothing shows.
        tokio::time::sleep(A_WHILE).await;
        pair.far.close().await;
    };
    let (received, sent, (), ()) = tokio::join!(receiving, sending, near.closed(), closing);
    assert_closed(&received, "receiving");
    assert_closed(sent.last().unwrap(), "sending");
    let local = region(&pair.near_domain, 1, Access::Local);
    let remote = RemoteSlice { address: 1, length: 1, key: 1 };
    assert_closed(&near.read(vec![part(&local, 0, remote)], LONG).await, "reading later");
    assert_closed(&near.write(vec![part(&local, 0, remote)], None, LONG).await, "writing later");
    assert_closed(&near.receive(LONG).await, "receiving later");
    drop(local);
    assert_eq!(pair.near_domain.registered_bytes(), 0);
}

async fn dropped_connection_ends(transport: &dyn Transport, ip: IpAddr) {
    let pair = pair(transport, ip).await;
    drop(pair.far);
    in_time("the other end", pair.near.closed()).await;
    assert_closed(&pair.near.receive(LONG).await, "receiving");
}

async fn connection_ends_with_its_runtime(transport: &dyn Transport, ip: IpAddr) {
    let begun = || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let pair = pair(transport, ip).await;
            let local = region(&pair.near_domain, 1 << 20, Access::Local);
            let remote = region(&pair.far_domain, 1 << 20, Access::RemoteRead);
            // A dropped waiter of an operation in flight.
            drop(pair.near.read(vec![whole(&local, &remote)], LONG));
            pair
        })
    };
    let pair = std::thread::scope(|scope| scope.spawn(begun).join().unwrap());
    for end in [&pair.near, &pair.far] {
        in_time("an end without a runtime", end.closed()).await;
        let sent = end.send(Bytes::from_static(b"late"), A_WHILE).await;
        assert!(matches!(sent, Err(Error::Closed { .. })), "{sent:?}");
        in_time("closing it", end.close()).await;
    }
}

async fn messages_before_close_are_received(transport: &dyn Transport, ip: IpAddr) {
    let pair = pair(transport, ip).await;
    let source = region(&pair.far_domain, 1, Access::RemoteRead);
    let local = region(&pair.near_domain, 1, Access::Local);
    for number in 0..3 {
        pair.near.send(Bytes::copy_from_slice(&[number]), LONG).await.unwrap();
    }
    // Once the read completes, the earlier messages have arrived.
    pair.near.read(vec![whole(&local, &source)], LONG).await.unwrap();
    pair.near.close().await;
    in_time("the other end", pair.far.closed()).await;
    for number in 0..3 {
        assert_eq!(pair.far.receive(LONG).await.unwrap(), &[number][..]);
    }
    assert_closed(&pair.far.receive(LONG).await, "there are no more");
}

async fn private_data_and_rejections_reach_the_peer(transport: &dyn Transport, ip: IpAddr) {
    let listener = transport.listen(SocketAddr::new(ip, 0)).await.unwrap();
    let domain = transport.domain().unwrap();
    let limits = Limits::default();
    let wish = pattern(1, PRIVATE_BYTES_MAX as u64);
    let answer = pattern(2, PRIVATE_BYTES_MAX as u64);

    let accepting = async {
        let incoming = listener.accept().await.unwrap();
        assert!(incoming.private().starts_with(&wish));
        assert_eq!(incoming.peer().ip(), ip);
        incoming.accept(&domain, &answer, limits, LONG).await.unwrap()
    };
    let connecting = transport.connect(&domain, listener.address(), &wish, limits, LONG);
    let (near, far) = tokio::join!(connecting, accepting);
    let near = near.unwrap();
    assert!(near.private().starts_with(&answer) && far.private().starts_with(&wish));
    assert_eq!(near.peer(), listener.address());

    let rejecting = async { listener.accept().await.unwrap().reject(b"too many").await.unwrap() };
    let connecting = transport.connect(&domain, listener.address(), b"2", limits, LONG);
    let (near, ()) = tokio::join!(connecting, rejecting);
    match near {
        Err(Error::Rejected { private, .. }) => assert!(private.starts_with(b"too many")),
        other => panic!("{other:?}"),
    }
    let dropping = async { drop(listener.accept().await.unwrap()) };
    let connecting = transport.connect(&domain, listener.address(), b"3", limits, LONG);
    let (near, ()) = tokio::join!(connecting, dropping);
    assert!(matches!(near, Err(Error::Rejected { .. })), "{near:?}");

    let long = [0; PRIVATE_BYTES_MAX + 1];
    let result = transport.connect(&domain, listener.address(), &long, limits, LONG).await;
    assert!(matches!(result, Err(Error::TooLong { .. })), "{result:?}");
}

async fn smaller_limits_apply(transport: &dyn Transport, ip: IpAddr) {
    let listener = transport.listen(SocketAddr::new(ip, 0)).await.unwrap();
    let domain = transport.domain().unwrap();
    let ours = Limits { reads_in_flight: 4, operations: 64, messages: 8 };
    let theirs = Limits { reads_in_flight: 8, operations: 32, messages: 20 };
    let accepting = async { listener.accept().await.unwrap().accept(&domain, b"", theirs, LONG).await.unwrap() };
    let connecting = transport.connect(&domain, listener.address(), b"", ours, LONG);
    let (near, far) = tokio::join!(connecting, accepting);
    let near = near.unwrap();
    for end in [&near, &far] {
        let Limits { reads_in_flight, operations, messages } = end.limits();
        // A device may support less.
        assert!((1..=4).contains(&reads_in_flight), "{reads_in_flight}");
        assert!((1..=64).contains(&operations), "{operations}");
        assert!((1..=8).contains(&messages), "{messages}");
    }
}

async fn lengths_are_limited(transport: &dyn Transport, ip: IpAddr) {
    let pair = pair(transport, ip).await;
    for bytes in [0, MESSAGE_BYTES_MAX + 1] {
        let result = pair.near.send(Bytes::from(vec![1; bytes]), LONG).await;
        assert!(matches!(result, Err(Error::TooLong { .. })), "{bytes}: {result:?}");
    }
    let longest = Bytes::from(pattern(9, MESSAGE_BYTES_MAX as u64));
    pair.near.send(longest.clone(), LONG).await.unwrap();
    assert_eq!(pair.far.receive(LONG).await.unwrap(), longest);
    // An empty list completes at once.
    pair.near.read(Vec::new(), LONG).await.unwrap();
    pair.near.write(Vec::new(), None, LONG).await.unwrap();
}

async fn concurrent_connections_are_independent(transport: &dyn Transport, ip: IpAddr) {
    const CONNECTIONS: u64 = 24;
    let listener = transport.listen(SocketAddr::new(ip, 0)).await.unwrap();
    let near_domain = transport.domain().unwrap();
    let far_domain = transport.domain().unwrap();
    let source = region(&far_domain, CONNECTIONS * 4096, Access::RemoteRead);
    source.memory().write(0, &pattern(4, CONNECTIONS * 4096));
    let mut ends = Vec::new();
    for _ in 0..CONNECTIONS {
        ends.push(connect(transport, &*listener, &near_domain, &far_domain, Limits::default()).await);
    }
    // Every third connection ends while the others are in use.
    let work = ends.iter().zip(0..).map(|((near, far), at)| {
        let (near_domain, source) = (&near_domain, &source);
        async move {
            if at % 3 == 0 {
                far.close().await;
                near.closed().await;
                return;
            }
            let local = region(near_domain, 4096, Access::Local);
            let remote = source.remote().part(at * 4096, 4096).unwrap();
            for round in 0..20_u8 {
                near.read(vec![part(&local, 0, remote)], LONG).await.unwrap();
                assert!(content(&local, 0, 4096) == content(source, at * 4096, 4096));
                far.send(Bytes::copy_from_slice(&[round]), LONG).await.unwrap();
                assert_eq!(near.receive(LONG).await.unwrap(), &[round][..]);
            }
        }
    });
    join_all(work).await;
    assert_eq!(near_domain.registered_bytes(), 0);
    assert_eq!(far_domain.registered_bytes(), CONNECTIONS * 4096);
}

async fn registrations_are_counted_and_checked(transport: &dyn Transport, _ip: IpAddr) {
    let domain = transport.domain().unwrap();
    let memory = Arc::new(Memory::fresh(16384).unwrap());
    #[expect(clippy::reversed_empty_ranges)]
    for range in [0..0, 5..5, 0..16385, 16384..16385, 9..3, 0..u64::MAX] {
        let result = domain.register(&memory, range.clone(), Access::RemoteRead);
        assert!(matches!(result, Err(Error::Register { .. })), "{range:?}: {result:?}");
    }
    let reading = Arc::new(Memory::map(memory.descriptor().unwrap(), 0, 16384, false).unwrap());
    let result = domain.register(&reading, 0..4096, Access::RemoteWrite);
    assert!(matches!(result, Err(Error::Register { .. })), "{result:?}");
    assert_eq!(domain.registered_bytes(), 0);
    let first = domain.register(&memory, 100..4196, Access::RemoteRead).unwrap();
    let second = domain.register(&memory, 0..16384, Access::RemoteWrite).unwrap();
    assert_eq!(first.range(), 100..4196);
    assert_eq!(first.remote().length, 4096);
    assert!(Arc::ptr_eq(first.memory(), &memory));
    assert_ne!(first.remote().key, second.remote().key);
    assert_eq!(domain.registered_bytes(), 4096 + 16384);
    drop(first);
    assert_eq!(domain.registered_bytes(), 16384);
    drop(second);
    assert_eq!(domain.registered_bytes(), 0);
    assert_eq!(Arc::strong_count(&memory), 1);
}
