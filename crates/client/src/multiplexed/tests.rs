use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::FutureExt;
use hearth_config::Configuration;
use hearth_fabric::Memory;
use hearth_fabric::local;
use hearth_fabric::stream::ReceiveBuffer;
use hearth_fabric::tcp::{Connection, Listener, SocketOptions};
use hearth_protocol::data_transfer::Timeouts;
use hearth_testkit::{StoppedClock, until};
use hearth_types::{Block, BlockId, BlockPoolId, ByteRange, ChecksumSpec, ExtendedBlock, GenerationStamp, Token};
use hearth_wire::data_transfer::{
    Decoded, Operation, RangeHead, RangePiece, RangeRefusal, RangeRequest, ReadMany, ReadManyTerms, Status,
};
use tokio::time::Instant;

use super::*;
use crate::DatanodeError;

const WAIT: Duration = Duration::from_secs(60);

/// Encodes the answer to `range` of a replica with these bytes, or a refusal if the replica does not exist.
fn answer(range: &RangeRequest, bytes: Option<&[u8]>) -> Vec<u8> {
    let request = range.request;
    let mut out = Vec::new();
    let Some(bytes) = bytes.filter(|bytes| range.range.end() <= bytes.len() as u64) else {
        let refusal = RangeRefusal { status: Status::Error, message: "no such replica".to_owned() };
        RangeHead { request, piece: Err(refusal) }.encode_into(&mut out);
        return out;
    };
    let widened = range.range.widened(512, bytes.len() as u64);
    let data = &bytes[widened.start() as usize..widened.end() as usize];
    let piece = RangePiece {
        stamp: range.block.stamp(),
        replica_length: bytes.len() as u64,
        checksum: ChecksumSpec::DEFAULT,
        offset: widened.start(),
        data_bytes: data.len() as u32,
        placed: false,
    };
    RangeHead { request, piece: Ok(piece) }.encode_into(&mut out);
    ChecksumSpec::DEFAULT.compute(data, &mut out);
    out.extend_from_slice(data);
    out
}

async fn receive<T>(
    connection: &Connection,
    buffer: &mut ReceiveBuffer,
    decode: impl Fn(&[u8]) -> Option<Decoded<T>>,
) -> Option<T> {
    loop {
        match decode(buffer.available())? {
            Decoded::Complete(message, consumed) => {
                buffer.consume(consumed);
                return Some(message);
            }
            Decoded::Needs(missing) => {
                let wanted = buffer.available().len() + missing;
                buffer.fill_to(connection, wanted, WAIT).await.ok()?;
            }
        }
    }
}

/// Receives the next requested range; `None` at the end of the connection.
async fn next_range(connection: &Connection, buffer: &mut ReceiveBuffer) -> Option<RangeRequest> {
    receive(connection, buffer, |bytes| RangeRequest::decode(bytes).ok()).await
}

/// Receives the requested ranges until the client pauses; `None` at the end of the connection.
async fn next_ranges(connection: &Connection, buffer: &mut ReceiveBuffer) -> Option<Vec<RangeRequest>> {
    let mut ranges = Vec::new();
    loop {
        let wait = if ranges.is_empty() { WAIT } else { Duration::from_millis(20) };
        match tokio::time::timeout(wait, next_range(connection, buffer)).await {
            Ok(range) => ranges.push(range?),
            Err(_) => return Some(ranges),
        }
    }
}

async fn take_on(connection: &Connection) {
    connection
        .write_all(&ReadManyTerms::Accepted { range_bytes_max: 1 << 20, takes_memory: false }.encode(), WAIT)
        .await
        .unwrap();
}

/// Serves a connection after its READ_MANY request, and answers each range as it arrives.
pub(crate) async fn serve_many(
    connection: &Connection,
    buffer: &mut ReceiveBuffer,
    replica: impl Fn(&RangeRequest) -> Option<Vec<u8>>,
) {
    take_on(connection).await;
    while let Some(range) = next_range(connection, buffer).await {
        if connection.write_all(&answer(&range, replica(&range).as_deref()), WAIT).await.is_err() {
            return;
        }
    }
}

fn content(id: i64, length: usize) -> Vec<u8> {
    (0..length).map(|index| (index as i64 * 11 + index as i64 / 700 + id * 3) as u8).collect()
}

fn block(id: i64) -> ExtendedBlock {
    ExtendedBlock {
        pool: BlockPoolId::new("BP-1"),
        block: Block { id: BlockId(id), stamp: GenerationStamp(1001), length: 100_000 },
    }
}

/// A fake datanode that runs the test's function on each connection, and counts connections.
struct Fake {
    connection_pool: Arc<ConnectionPool>,
    connections: Arc<AtomicUsize>,
    server: tokio::task::JoinHandle<()>,
}

impl Drop for Fake {
    fn drop(&mut self) {
        self.server.abort();
    }
}

/// A fake datanode on a domain socket. It accepts the memory that the first connection lends, and answers each range
/// with the result of `answer` for the range and the memory.
fn placing(
    directory: &std::path::Path,
    options: MultiplexOptions,
    answer: impl Fn(&RangeRequest, &Memory) -> Vec<u8> + Send + 'static,
) -> Fake {
    let path = directory.join("dn");
    let listener = local::Listener::bind(&path, 0o600, 16).unwrap();
    let server = tokio::spawn(async move {
        let connection = listener.accept().await.unwrap();
        let mut buffer = ReceiveBuffer::new(8192, 1 << 20);
        let operation = receive(&connection, &mut buffer, |bytes| Operation::decode(bytes).ok()).await;
        let Some(Operation::ReadMany(ReadMany { memory_bytes, .. })) = operation else { panic!("{operation:?}") };
        let terms = ReadManyTerms::Accepted { range_bytes_max: 1 << 20, takes_memory: true };
        connection.write_all(&terms.encode(), WAIT).await.unwrap();
        let (_, mut passed) = connection.receive_with_descriptors(&mut [0; 1], WAIT).await.unwrap();
        let memory = Memory::of_peer(passed.pop().unwrap(), memory_bytes).unwrap();
        while let Some(range) = next_range(&connection, &mut buffer).await {
            connection.write_all(&answer(&range, &memory), WAIT).await.unwrap();
        }
    });
    let connection_pool = Arc::new(ConnectionPool::new(Endpoint::Socket(path), options, "test".to_owned()));
    Fake { connection_pool, connections: Arc::default(), server }
}

/// `serve`: called with each connection after its READ_MANY request, and its number from 0.
fn fake<F>(options: MultiplexOptions, serve: impl Fn(Connection, ReceiveBuffer, usize) -> F + Send + 'static) -> Fake
where
    F: Future<Output = ()> + Send + 'static,
{
    let listener = Listener::bind("127.0.0.1:0".parse().unwrap(), SocketOptions::default(), 16).unwrap();
    let address = listener.address();
    let connections = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&connections);
    let server = tokio::spawn(async move {
        let mut serving = tokio::task::JoinSet::new();
        while let Ok(connection) = listener.accept().await {
            let number = counted.fetch_add(1, Ordering::Relaxed);
            let mut buffer = ReceiveBuffer::new(8192, 1 << 20);
            let operation = receive(&connection, &mut buffer, |bytes| Operation::decode(bytes).ok()).await;
            assert!(matches!(operation, Some(Operation::ReadMany(_))), "{operation:?}");
            serving.spawn(serve(connection, buffer, number));
        }
    });
    Fake {
        connection_pool: Arc::new(ConnectionPool::new(Endpoint::Tcp(address), options, "test".to_owned())),
        connections,
        server,
    }
}

fn options() -> MultiplexOptions {
    let timeouts = Timeouts { connect: WAIT, read: WAIT, write: WAIT };
    MultiplexOptions::read(&Configuration::empty(), timeouts).unwrap()
}

async fn fetch(connection_pool: &Arc<ConnectionPool>, id: i64, start: u64, end: u64) -> Result<Vec<u8>, DatanodeError> {
    let (block, token) = (block(id), Token::default());
    let range = ByteRange::new(start, end).unwrap();
    let fetched = connection_pool.fetch(WantedRange { block: &block, token: &token, range }).await?;
    let mut bytes = vec![0; (end - start) as usize];
    fetched.checked().copy((start - fetched.start) as usize, &mut bytes).unwrap();
    Ok(bytes)
}

#[tokio::test]
async fn out_of_order_answers_reach_their_requests() {
    // Receives ten requests and answers the last one first.
    let fake = fake(options(), |connection, mut buffer, _| async move {
        take_on(&connection).await;
        loop {
            let mut ranges = Vec::new();
            while ranges.len() < 10 {
                let Some(range) = next_range(&connection, &mut buffer).await else { return };
                ranges.push(range);
            }
            for range in ranges.iter().rev() {
                let id = range.block.id().0;
                let bytes = (id != 5).then(|| content(id, 100_000));
                connection.write_all(&answer(range, bytes.as_deref()), WAIT).await.unwrap();
            }
        }
    });
    for _ in 0..3 {
        let reading = (0..10).map(|id| fetch(&fake.connection_pool, id, 100 * id as u64, 20_000 + id as u64));
        for (id, outcome) in futures_util::future::join_all(reading).await.into_iter().enumerate() {
            match outcome {
                Ok(bytes) => assert!(bytes == content(id as i64, 100_000)[100 * id..20_000 + id], "{id}"),
                Err(error) => assert!(id == 5 && matches!(error, DatanodeError::Refused { .. }), "{id}: {error}"),
            }
        }
    }
    assert_eq!(fake.connections.load(Ordering::Relaxed), 1);
    // Many ranges at once, in several batches.
    let (blocks, token): (Vec<_>, _) = ((0..100).map(block).collect(), Token::default());
    let range = ByteRange::new(7, 700).unwrap();
    let wanted: Vec<_> = blocks.iter().map(|block| WantedRange { block, token: &token, range }).collect();
    let mut seen = Vec::new();
    let take = |id, outcome: Outcome| {
        match outcome {
            Ok(fetched) => assert!(fetched.data() == &content(id as i64, 100_000)[..1024]),
            Err(error) => assert!(id == 5 && matches!(error, DatanodeError::Refused { .. }), "{id}: {error}"),
        }
        seen.push(id);
    };
    fake.connection_pool.fetch_many(&wanted, take).await;
    assert!(seen.into_iter().eq(0..100));
}

#[tokio::test]
async fn dropped_read_releases_its_credit() {
    let bounded = MultiplexOptions { outstanding_bytes: 64 << 10, connections_max: 1, ..options() };
    let go = Arc::new(tokio::sync::Semaphore::new(0));
    let asked = Arc::new(AtomicUsize::new(0));
    let (served, counted) = (Arc::clone(&go), Arc::clone(&asked));
    let fake = fake(bounded, move |connection, mut buffer, _| {
        let (go, asked) = (Arc::clone(&served), Arc::clone(&counted));
        async move {
            take_on(&connection).await;
            while let Some(range) = next_range(&connection, &mut buffer).await {
                asked.fetch_add(1, Ordering::Relaxed);
                go.acquire().await.unwrap().forget();
                let bytes = content(range.block.id().0, 100_000);
                connection.write_all(&answer(&range, Some(&bytes)), WAIT).await.unwrap();
            }
        }
    });
    for round in 0..20 {
        // Takes nearly all the credit, and is dropped when the datanode has its request.
        let mut leaving = Box::pin(fetch(&fake.connection_pool, 1, 0, 60_000));
        until("the request", async || {
            assert!((&mut leaving).now_or_never().is_none(), "nobody answers yet");
            asked.load(Ordering::Relaxed) == 2 * round + 1
        })
        .await;
        drop(leaving);
        let second = tokio::spawn({
            let connection_pool = Arc::clone(&fake.connection_pool);
            async move { fetch(&connection_pool, 2, 1000, 61_000).await }
        });
        tokio::task::yield_now().await;
        go.add_permits(2);
        assert!(second.await.unwrap().unwrap() == content(2, 100_000)[1000..61_000], "round {round}");
    }
    assert_eq!(fake.connections.load(Ordering::Relaxed), 1);
}

#[tokio::test]
async fn requests_stay_within_credit() {
    let bounded = MultiplexOptions { outstanding_bytes: 256 << 10, connections_max: 1, ..options() };
    let most = Arc::new(AtomicUsize::new(0));
    let seen = Arc::clone(&most);
    let fake = fake(bounded, move |connection, mut buffer, _| {
        let most = Arc::clone(&seen);
        async move {
            take_on(&connection).await;
            while let Some(ranges) = next_ranges(&connection, &mut buffer).await {
                let bytes: u64 = ranges.iter().map(|range| range.range.length()).sum();
                most.fetch_max(bytes as usize, Ordering::Relaxed);
                for range in &ranges {
                    let bytes = content(range.block.id().0, 100_000);
                    connection.write_all(&answer(range, Some(&bytes)), WAIT).await.unwrap();
                }
            }
        }
    });
    let reading = (0..60).map(|id| fetch(&fake.connection_pool, id, 0, 32_768));
    for (id, outcome) in futures_util::future::join_all(reading).await.into_iter().enumerate() {
        assert!(outcome.unwrap() == content(id as i64, 32_768));
    }
    let most = most.load(Ordering::Relaxed);
    assert!(most > 32_768 && most <= 256 << 10, "{most}");
}

/// Options under which every datanode counts as distant.
fn far(connections_max: usize) -> MultiplexOptions {
    MultiplexOptions { lan_round_trip_max: Duration::ZERO, connections_max, ..options() }
}

#[tokio::test]
async fn distant_connection_starts_with_small_window() {
    let first = Arc::new(AtomicUsize::new(0));
    let seen = Arc::clone(&first);
    let fake = fake(far(1), move |connection, mut buffer, _| {
        let first = Arc::clone(&seen);
        async move {
            take_on(&connection).await;
            while let Some(ranges) = next_ranges(&connection, &mut buffer).await {
                let bytes: u64 = ranges.iter().map(|range| range.range.length()).sum();
                let _ = first.compare_exchange(0, bytes as usize, Ordering::Relaxed, Ordering::Relaxed);
                for range in &ranges {
                    let bytes = content(range.block.id().0, 100_000);
                    connection.write_all(&answer(range, Some(&bytes)), WAIT).await.unwrap();
                }
            }
        }
    });
    // Half of the ranges are read individually, half together.
    let alone = futures_util::future::join_all((0..60).map(|id| fetch(&fake.connection_pool, id, 0, 32_768)));
    let (alone, many) = tokio::join!(alone, fetch_all(&fake.connection_pool, 60, 32_768));
    for (id, outcome) in (0..).zip(alone) {
        assert!(outcome.unwrap() == content(id, 32_768));
    }
    assert_eq!(many, (60, 0));
    // The credit would allow sixteen times as much.
    let first = first.load(Ordering::Relaxed);
    assert!(first > 0 && first <= (256 << 10) + 32_768, "{first}");
}

#[tokio::test]
async fn cancelled_waiter_does_not_block_queue() {
    let go = Arc::new(tokio::sync::Semaphore::new(0));
    let served = Arc::clone(&go);
    let fake = fake(far(1), move |connection, mut buffer, _| {
        let go = Arc::clone(&served);
        async move {
            take_on(&connection).await;
            while let Some(range) = next_range(&connection, &mut buffer).await {
                go.acquire().await.unwrap().forget();
                let bytes = content(range.block.id().0, 100_000);
                connection.write_all(&answer(&range, Some(&bytes)), WAIT).await.unwrap();
            }
        }
    });
    fake.connection_pool.open_another().await;
    for _ in 0..5 {
        let reading = (0..40).map(|id| {
            let connection_pool = Arc::clone(&fake.connection_pool);
            tokio::spawn(async move { fetch(&connection_pool, id, 0, 32_768).await })
        });
        let reading: Vec<_> = reading.collect();
        // The tasks run until about the first eight are requested and the others wait for room. Nothing is answered yet.
        for _ in 0..10 {
            tokio::task::yield_now().await;
        }
        reading.iter().step_by(2).for_each(|reading| reading.abort());
        go.add_permits(40);
        for (id, reading) in (0..).zip(reading).skip(1).step_by(2) {
            assert!(reading.await.unwrap().unwrap() == content(id, 32_768), "{id}");
        }
        // Permits for the ranges that were never requested.
        go.forget_permits(40);
    }
    assert_eq!(fake.connections.load(Ordering::Relaxed), 1);
}

/// Models a read that was started and is not polled while its task waits for something else.
#[tokio::test]
async fn unpolled_waiter_does_not_block_queue() {
    let go = Arc::new(tokio::sync::Semaphore::new(0));
    let served = Arc::clone(&go);
    let fake = fake(far(1), move |connection, mut buffer, _| {
        let go = Arc::clone(&served);
        async move {
            take_on(&connection).await;
            while let Some(range) = next_range(&connection, &mut buffer).await {
                let _going = go.acquire().await.unwrap();
                let bytes = content(range.block.id().0, 100_000);
                connection.write_all(&answer(&range, Some(&bytes)), WAIT).await.unwrap();
            }
        }
    });
    fake.connection_pool.open_another().await;
    let mut begun: Vec<_> = (0..20).map(|id| Box::pin(fetch(&fake.connection_pool, id, 0, 32_768))).collect();
    // Some are requested, one is the head of the queue, and the others wait behind it.
    for _ in 0..5 {
        tokio::task::yield_now().await;
        begun.iter_mut().for_each(|reading| assert!(reading.now_or_never().is_none()));
    }
    go.add_permits(1);
    let last = tokio::time::timeout(WAIT / 2, fetch(&fake.connection_pool, 77, 0, 32_768)).await;
    assert!(last.expect("there is room that nobody takes").unwrap() == content(77, 32_768));
    for (id, outcome) in (0..).zip(futures_util::future::join_all(begun).await) {
        assert!(outcome.unwrap() == content(id, 32_768));
    }
}

#[tokio::test]
async fn stalled_connection_does_not_block_others() {
    // More ranges than one connection has room for at once.
    const BROUGHT: u32 = 20;
    let brought = Arc::new(tokio::sync::Semaphore::new(0));
    let counted = Arc::clone(&brought);
    let fake = fake(far(2), move |connection, mut buffer, number| {
        let brought = Arc::clone(&counted);
        async move {
            take_on(&connection).await;
            while let Some(range) = next_range(&connection, &mut buffer).await {
                if number == 0 {
                    drop(brought.acquire_many(BROUGHT).await.unwrap());
                }
                let bytes = content(range.block.id().0, 100_000);
                connection.write_all(&answer(&range, Some(&bytes)), WAIT).await.unwrap();
                if number == 1 {
                    brought.add_permits(1);
                }
            }
        }
    });
    fake.connection_pool.open_another().await;
    fake.connection_pool.open_another().await;
    assert_eq!(fetch_all(&fake.connection_pool, 60, 32_768).await, (60, 0));
    assert_eq!(fake.connections.load(Ordering::Relaxed), 2);
}

#[tokio::test]
async fn connection_without_credit_is_skipped() {
    // The first connection stalls until the third has brought some answers. The third is opened when the answers from
    // the second hold all of its credit: they are not taken before those of the first.
    let (brought, goes_on) = (Arc::new(tokio::sync::Semaphore::new(0)), Arc::new(tokio::sync::Semaphore::new(0)));
    let (counted, allowed) = (Arc::clone(&brought), Arc::clone(&goes_on));
    let options = MultiplexOptions { outstanding_bytes: 512 << 10, ..far(3) };
    let fake = fake(options, move |connection, mut buffer, number| {
        let (brought, goes_on) = (Arc::clone(&counted), Arc::clone(&allowed));
        async move {
            take_on(&connection).await;
            while let Some(range) = next_range(&connection, &mut buffer).await {
                if number == 0 {
                    drop(goes_on.acquire().await.unwrap());
                }
                let bytes = content(range.block.id().0, 100_000);
                connection.write_all(&answer(&range, Some(&bytes)), WAIT).await.unwrap();
                match number {
                    1 => brought.add_permits(1),
                    2 => goes_on.add_permits(1),
                    _ => {}
                }
            }
        }
    });
    fake.connection_pool.open_another().await;
    fake.connection_pool.open_another().await;
    let opening = async {
        // These take most of the credit.
        drop(brought.acquire_many(10).await.unwrap());
        fake.connection_pool.open_another().await;
    };
    let (fetched, ()) = tokio::join!(fetch_all(&fake.connection_pool, 60, 32_768), opening);
    assert_eq!(fetched, (60, 0));
    assert_eq!(fake.connections.load(Ordering::Relaxed), 3);
}

/// Encodes the answer to `range`, with its bytes in the slot that it names.
fn placed(range: &RangeRequest, memory: &Memory, bytes: &[u8]) -> Vec<u8> {
    let place = range.place.expect("a place");
    let inline = answer(range, Some(bytes));
    let Decoded::Complete(mut head, consumed) = RangeHead::decode(&inline).unwrap() else { panic!("a head") };
    let body = &inline[consumed..];
    assert!(body.len() <= place.bytes as usize);
    memory.write(place.offset, body);
    head.piece.as_mut().unwrap().placed = true;
    let mut out = Vec::new();
    head.encode_into(&mut out);
    out
}

#[tokio::test]
async fn placed_answers_are_read_and_slots_reused() {
    let directory = tempfile::tempdir().unwrap();
    // Three slots for many more ranges at once.
    let little = MultiplexOptions { memory_bytes: 3 * (68 << 10) + 1000, ..options() };
    let named = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&named);
    let fake = placing(directory.path(), little, move |range, memory| {
        let bytes = content(range.block.id().0, 60_000);
        match range.place {
            Some(place) => {
                assert!(place.offset.is_multiple_of(68 << 10) && place.offset < memory.length());
                counted.fetch_add(1, Ordering::Relaxed);
                placed(range, memory, &bytes)
            }
            None => answer(range, Some(&bytes)),
        }
    });
    for round in 0..20 {
        let reading = (0..30).map(|id| fetch(&fake.connection_pool, id, round * 100, 40_000 + round * 500));
        for (id, outcome) in (0..).zip(futures_util::future::join_all(reading).await) {
            assert!(outcome.unwrap() == content(id, 60_000)[round as usize * 100..40_000 + round as usize * 500]);
        }
        // Too few bytes for a slot.
        assert!(fetch(&fake.connection_pool, 1, 5, 105).await.unwrap() == content(1, 60_000)[5..105]);
    }
    assert!(named.load(Ordering::Relaxed) >= 60, "three at least in each round");
}

#[tokio::test]
async fn dropped_reads_slot_is_held_until_answered() {
    let directory = tempfile::tempdir().unwrap();
    let one = MultiplexOptions { memory_bytes: 68 << 10, ..options() };
    let late: Arc<Mutex<Option<RangeRequest>>> = Arc::default();
    let kept = Arc::clone(&late);
    let fake = placing(directory.path(), one, move |range, memory| {
        let bytes = content(range.block.id().0, 60_000);
        match range.block.id().0 {
            // Answered together with the next.
            1 => {
                *kept.lock() = Some(range.clone());
                Vec::new()
            }
            2 => {
                assert_eq!(range.place, None, "the only place is the first one's");
                let first = kept.lock().take().unwrap();
                let mut both = placed(&first, memory, &content(1, 60_000));
                both.extend(answer(range, Some(&bytes)));
                both
            }
            _ => placed(range, memory, &bytes),
        }
    });
    let mut abandoned = Box::pin(fetch(&fake.connection_pool, 1, 0, 10_000));
    assert!((&mut abandoned).now_or_never().is_none());
    until("the request", async || {
        assert!((&mut abandoned).now_or_never().is_none());
        late.lock().is_some()
    })
    .await;
    drop(abandoned);
    assert!(fetch(&fake.connection_pool, 2, 0, 10_000).await.unwrap() == content(2, 60_000)[..10_000]);
    assert!(fetch(&fake.connection_pool, 3, 0, 10_000).await.unwrap() == content(3, 60_000)[..10_000]);
}

#[tokio::test]
async fn answer_larger_than_slot_is_rejected() {
    let directory = tempfile::tempdir().unwrap();
    let fake = placing(directory.path(), options(), |range, _| {
        let piece = RangePiece {
            stamp: GenerationStamp(1001),
            replica_length: 100_000,
            checksum: ChecksumSpec::DEFAULT,
            offset: 0,
            data_bytes: 80_384,
            placed: true,
        };
        let mut out = Vec::new();
        RangeHead { request: range.request, piece: Ok(piece) }.encode_into(&mut out);
        out
    });
    let error = fetch(&fake.connection_pool, 1, 0, 10_000).await.unwrap_err();
    assert!(matches!(error, DatanodeError::Protocol { .. }), "{error}");
    assert!(!fake.connection_pool.is_enabled());
}

#[tokio::test]
async fn invalid_answer_ends_connection_and_disables_pool() {
    let head = |request, piece| {
        let mut bytes = Vec::new();
        RangeHead { request, piece: Ok(piece) }.encode_into(&mut bytes);
        bytes.resize(bytes.len() + 2000, 0);
        bytes
    };
    let piece = RangePiece {
        stamp: GenerationStamp(1001),
        replica_length: 100_000,
        checksum: ChecksumSpec::DEFAULT,
        offset: 0,
        data_bytes: 1024,
        placed: false,
    };
    let wrong: HashMap<&str, Vec<u8>> = [
        ("a number that was not asked", head(77, piece)),
        ("other bytes of the block", head(0, RangePiece { offset: 512, ..piece })),
        ("too few", head(0, RangePiece { data_bytes: 512, ..piece })),
        ("too many", head(0, RangePiece { data_bytes: 1536, ..piece })),
        ("put where there is no place", head(0, RangePiece { placed: true, ..piece })),
        ("no chunk boundary", head(0, RangePiece { offset: 5, ..piece })),
        ("noise", vec![0xFF; 100]),
        ("a head that is too long", vec![0xFF, 0xFF, 0xFF, 0x7F]),
        (
            "terms that refuse",
            ReadManyTerms::Refused(RangeRefusal { status: Status::Error, message: "no".into() }).encode(),
        ),
    ]
    .into();
    for (what, bytes) in wrong {
        let sent = bytes.clone();
        let fake = fake(options(), move |connection, mut buffer, _| {
            let bytes = sent.clone();
            async move {
                if what != "terms that refuse" {
                    take_on(&connection).await;
                }
                next_range(&connection, &mut buffer).await;
                connection.write_all(&bytes, WAIT).await.unwrap();
                while next_range(&connection, &mut buffer).await.is_some() {}
            }
        });
        let reading = (0..3).map(|id| fetch(&fake.connection_pool, id, 0, 1000));
        for outcome in futures_util::future::join_all(reading).await {
            let error = outcome.expect_err(what);
            assert!(matches!(error, DatanodeError::Protocol { .. }), "{what}: {error}");
        }
        assert!(!fake.connection_pool.is_enabled(), "{what}");
    }
}

#[tokio::test]
async fn all_reads_fail_when_datanode_dies() {
    let fake = fake(options(), |connection, mut buffer, number| async move {
        take_on(&connection).await;
        while let Some(range) = next_range(&connection, &mut buffer).await {
            let bytes = content(range.block.id().0, 100_000);
            let whole = answer(&range, Some(&bytes));
            if number < 2 {
                // Part of an answer, then the end of the connection.
                connection.write_all(&whole[..whole.len() / 2], WAIT).await.unwrap();
                return;
            }
            connection.write_all(&whole, WAIT).await.unwrap();
        }
    });
    let reading = (0..8).map(|id| fetch(&fake.connection_pool, id, 0, 30_000));
    let outcomes = futures_util::future::join_all(reading).await;
    for (id, outcome) in outcomes.into_iter().enumerate() {
        match outcome {
            Ok(bytes) => assert!(bytes == content(id as i64, 30_000)),
            // The first read had opened the connection for itself and gets the error.
            Err(error) => assert!(matches!(error, DatanodeError::SharedConnection { .. }), "{error}"),
        }
    }
    assert!(fetch(&fake.connection_pool, 9, 0, 30_000).await.unwrap() == content(9, 30_000));
    assert!(fake.connection_pool.is_enabled());
}

#[tokio::test]
async fn idle_connection_expires_and_is_reopened() {
    let brief = MultiplexOptions { expiry: Duration::from_millis(50), ..options() };
    let fake = fake(brief, |connection, mut buffer, _| async move {
        serve_many(&connection, &mut buffer, |range| Some(content(range.block.id().0, 100_000))).await;
    });
    for round in 1..=3 {
        assert!(fetch(&fake.connection_pool, round, 0, 1000).await.unwrap() == content(round, 1000));
        assert_eq!(fake.connections.load(Ordering::Relaxed), round as usize);
        until("the connection to expire", async || fake.connection_pool.connections() == 0).await;
    }
}

/// The tasks of a connection live in the runtime that opened it.
#[tokio::test]
async fn connection_of_ended_runtime_is_not_reused() {
    let fake = fake(options(), |connection, mut buffer, _| async move {
        serve_many(&connection, &mut buffer, |range| Some(content(range.block.id().0, 100_000))).await;
    });
    let connection_pool = Arc::clone(&fake.connection_pool);
    let elsewhere = tokio::task::spawn_blocking(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(fetch(&connection_pool, 1, 0, 1000)).unwrap()
    });
    assert!(elsewhere.await.unwrap() == content(1, 1000));
    let fetched = tokio::time::timeout(WAIT / 2, fetch(&fake.connection_pool, 2, 0, 1000)).await;
    assert!(fetched.expect("nobody answers on the first").unwrap() == content(2, 1000));
    assert_eq!(fake.connections.load(Ordering::Relaxed), 2);
}

/// A datanode with at most three connections, each of which brings a range in 2 ms.
fn slow() -> Fake {
    let three = MultiplexOptions { connections_max: 3, ..options() };
    fake(three, |connection, mut buffer, _| async move {
        take_on(&connection).await;
        while let Some(range) = next_range(&connection, &mut buffer).await {
            // The pace of a slow datanode.
            tokio::time::sleep(Duration::from_millis(2)).await;
            let bytes = content(range.block.id().0, 100_000);
            if connection.write_all(&answer(&range, Some(&bytes)), WAIT).await.is_err() {
                return;
            }
        }
    })
}

#[tokio::test]
async fn credit_waiters_move_to_new_connections() {
    let fake = slow();
    // Repeat in case the machine stalls: bytes that arrive over a pause say nothing about a connection.
    for _ in 0..20 {
        // All ranges are requested at the start, four times the limit of one connection, by tasks that request only
        // once.
        let tasks = (0..64).map(|task| {
            let connection_pool = &fake.connection_pool;
            async move {
                let blocks: Vec<_> = (0..8).map(|id| block(task * 8 + id)).collect();
                let token = Token::default();
                let range = ByteRange::new(0, 32_768).unwrap();
                let wanted: Vec<_> = blocks.iter().map(|block| WantedRange { block, token: &token, range }).collect();
                let mut came = 0;
                connection_pool.fetch_many(&wanted, |_, outcome| came += usize::from(outcome.is_ok())).await;
                came
            }
        });
        assert_eq!(futures_util::future::join_all(tasks).await.into_iter().sum::<usize>(), 64 * 8);
        // A third connection depends on the gain from the second, which depends on the machine.
        if fake.connections.load(Ordering::Relaxed) > 1 {
            return;
        }
    }
    panic!("all wait for one connection");
}

/// Requests `count` ranges at once. Returns the number of successes and failures.
async fn fetch_all(connection_pool: &Arc<ConnectionPool>, count: i64, length: u64) -> (usize, usize) {
    let (blocks, token): (Vec<_>, _) = ((0..count).map(block).collect(), Token::default());
    let range = ByteRange::new(0, length).unwrap();
    let wanted: Vec<_> = blocks.iter().map(|block| WantedRange { block, token: &token, range }).collect();
    let (mut came, mut failed) = (0, 0);
    let take = |_, outcome: Outcome| *if outcome.is_ok() { &mut came } else { &mut failed } += 1;
    connection_pool.fetch_many(&wanted, take).await;
    (came, failed)
}

#[tokio::test]
async fn silent_datanode_costs_one_time_out() {
    let read = Duration::from_secs(10);
    let timeouts = Timeouts { connect: WAIT, read, write: WAIT };
    let fake = fake(
        MultiplexOptions::read(&Configuration::empty(), timeouts).unwrap(),
        |connection, mut buffer, _| async move {
            take_on(&connection).await;
            while next_range(&connection, &mut buffer).await.is_some() {}
        },
    );
    let (clock, started) = (StoppedClock::new(), Instant::now());
    let fetched = clock.during(read / 10, fetch_all(&fake.connection_pool, 40, 4096)).await;
    assert_eq!(fetched, (0, 40));
    // The forty reads do not wait one after the other.
    assert!(started.elapsed() < 2 * read, "{:?}", started.elapsed());
    assert_eq!(fake.connections.load(Ordering::Relaxed), 1);
}

#[tokio::test]
async fn silent_distant_datanode_gets_one_connection() {
    let timeouts = Timeouts { connect: WAIT, read: Duration::from_secs(10), write: WAIT };
    let fake = fake(MultiplexOptions { timeouts, ..far(4) }, |connection, mut buffer, _| async move {
        take_on(&connection).await;
        while next_range(&connection, &mut buffer).await.is_some() {}
    });
    // The ranges that there was room for, and the first of the others.
    let clock = StoppedClock::new();
    let fetched = clock.during(timeouts.read / 10, fetch_all(&fake.connection_pool, 40, 32_768));
    let (came, failed) = fetched.await;
    assert!(came == 0 && (2..40).contains(&failed), "{came} came, {failed} failed");
    assert_eq!(fake.connections.load(Ordering::Relaxed), 1);
}

#[tokio::test]
async fn waiters_share_failed_connection_attempt() {
    let brief = Duration::from_millis(300);
    let silent = MultiplexOptions { timeouts: Timeouts { read: brief, ..options().timeouts }, ..options() };
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("dn");
    let listener = local::Listener::bind(&path, 0o600, 16).unwrap();
    // Accepts connections and answers none.
    let connections = Arc::new(Mutex::new(Vec::new()));
    let accepted = Arc::clone(&connections);
    let server = tokio::spawn(async move {
        while let Ok(connection) = listener.accept().await {
            accepted.lock().push(connection);
        }
    });
    let fake = Fake {
        connection_pool: Arc::new(ConnectionPool::new(Endpoint::Socket(path), silent, "test".to_owned())),
        connections: Arc::default(),
        server,
    };
    for attempt in 1..=2 {
        let fetching = futures_util::future::join_all((0..20).map(|id| fetch(&fake.connection_pool, id, 0, 100)));
        let outcomes = StoppedClock::new().during(brief / 3, fetching).await;
        for error in outcomes.into_iter().map(Result::unwrap_err) {
            let DatanodeError::SharedConnection { source } = error.cause() else { panic!("{error}") };
            assert!(source.is_time_out(), "{source}");
        }
        // The datanode may not have accepted the connection yet.
        until("the connection", async || connections.lock().len() >= attempt).await;
        assert_eq!(connections.lock().len(), attempt);
    }
}

/// More is requested than one connection may have outstanding; the first connection ends without answering.
#[tokio::test]
async fn ended_connection_does_not_block_batch() {
    let fake = fake(options(), |connection, mut buffer, number| async move {
        match number {
            0 => {
                take_on(&connection).await;
                next_range(&connection, &mut buffer).await;
            }
            _ => serve_many(&connection, &mut buffer, |range| Some(content(range.block.id().0, 100_000))).await,
        }
    });
    let fetched = tokio::time::timeout(WAIT, fetch_all(&fake.connection_pool, 100, 100_000)).await;
    let (came, failed) = fetched.expect("waits for nothing that it holds itself");
    assert_eq!(came + failed, 100, "each is told of once");
    assert!(came > 0 && failed > 0, "{came} came, {failed} are left to the usual ways");
}

#[tokio::test]
async fn congestion_opens_connections_up_to_limit() {
    let fake = slow();
    let connection_pool = &fake.connection_pool;
    let reached = AtomicBool::new(false);
    // Each reader reads again as soon as it has an answer. In rounds of reads, a busy machine would make pauses that are
    // too long for a measurement of the throughput.
    let reading = (0..60).map(async |id| {
        while !reached.load(Ordering::Relaxed) {
            assert!(fetch(connection_pool, id, 0, 32_768).await.unwrap() == content(id, 32_768));
            reached.fetch_or(connection_pool.connections() == 3, Ordering::Relaxed);
        }
    });
    let outcome = tokio::time::timeout(3 * WAIT, futures_util::future::join_all(reading)).await;
    assert!(outcome.is_ok(), "{} connections", connection_pool.connections());
    for _ in 0..5 {
        futures_util::future::join_all((0..60).map(|id| fetch(&fake.connection_pool, id, 0, 32_768))).await;
        // If the machine stalls during a measurement, some connections are closed again, and others may be opened
        // later.
        assert!(fake.connection_pool.connections() <= 3, "{} connections", fake.connection_pool.connections());
    }
    assert!(fake.connections.load(Ordering::Relaxed) >= 3);
}
