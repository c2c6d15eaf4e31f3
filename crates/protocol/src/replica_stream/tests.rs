//! Tests of both ends over a real connection, with replicas in memory.

use std::collections::HashMap;
use std::io::{IoSliceMut, Read};
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use hearth_fabric::tcp::{self, Connection, Listener, SocketOptions};
use hearth_testkit::{StoppedClock, until};
use hearth_types::{
    Block, BlockId, BlockPoolId, ByteRange, ChecksumSpec, ExtendedBlock, GenerationStamp, StorageType, Token,
};
use hearth_wire::data_transfer::{
    Decoded, OpenReplica, ReplicaPiece, ReplicaRefusal, Status, StreamLimits, ToReceiver, ToSender,
};
use parking_lot::Mutex;
use tokio::sync::{Semaphore, mpsc, oneshot};
use tokio::time::Instant;

use super::{
    InPlace, NotAccepted, ReplicaJob, ReplicaSendError, ReplicaSink, ReplicaSource, ReplicaStore, SourceData,
    StreamError, StreamTimeouts, receive, receive_buffer, send,
};

const WAIT: Duration = Duration::from_secs(60);
const WAITS: StreamTimeouts = StreamTimeouts { silence: WAIT, write: WAIT, idle: WAIT };
const LIMITS: StreamLimits =
    StreamLimits { window_bytes: 1 << 20, replica_window_bytes: 256 << 10, frame_bytes_max: 64 << 10, replicas_max: 8 };

fn content(id: u64, length: usize) -> Vec<u8> {
    (0..length as u64).map(|at| (at.wrapping_mul(id * 2 + 1) >> 3) as u8).collect()
}

fn request(id: u64, length: usize) -> OpenReplica {
    let block = Block { id: BlockId(id as i64), stamp: GenerationStamp(1), length: length as u64 };
    OpenReplica {
        block: ExtendedBlock { pool: BlockPoolId::new("BP-1"), block },
        token: Token::default(),
        checksum: ChecksumSpec::DEFAULT,
        storage_type: StorageType::Disk,
        storage_id: None,
    }
}

struct Memory {
    data: Vec<u8>,
    /// Index of a byte that does not match its CRC.
    damaged: Option<usize>,
    handed_out: Arc<AtomicU64>,
    piece: Vec<u8>,
}

impl ReplicaSource for Memory {
    type Error = std::io::Error;

    fn checksums(&mut self, range: ByteRange, into: &mut Vec<u8>) -> std::io::Result<()> {
        ChecksumSpec::DEFAULT.compute(&self.data[range.start() as usize..range.end() as usize], into);
        Ok(())
    }

    async fn data(&mut self, range: ByteRange) -> std::io::Result<SourceData<'_>> {
        self.handed_out.fetch_add(range.length(), Ordering::Relaxed);
        self.piece = self.data[range.start() as usize..range.end() as usize].to_vec();
        if let Some(at) = self.damaged.filter(|at| (range.start()..range.end()).contains(&(*at as u64))) {
            self.piece[at - range.start() as usize] ^= 1;
        }
        Ok(SourceData::Bytes(&self.piece))
    }
}

/// Stores replicas in a map; operations that block wait for permits.
struct Shelf {
    kept: Mutex<HashMap<BlockId, Vec<u8>>>,
    finished: Mutex<HashMap<BlockId, Vec<u8>>>,
    slow: AtomicBool,
    /// Maximum number of bytes that can be stored without blocking.
    now_max: AtomicUsize,
    permits: Semaphore,
    /// Number of bytes that may still be received in place.
    in_place: AtomicU64,
    came_in_place: AtomicU64,
}

impl Shelf {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            kept: Mutex::default(),
            finished: Mutex::default(),
            slow: AtomicBool::new(false),
            now_max: AtomicUsize::new(usize::MAX),
            permits: Semaphore::new(0),
            in_place: AtomicU64::new(0),
            came_in_place: AtomicU64::new(0),
        })
    }

    /// Frames longer than the buffer are received in place.
    fn limits(&self) -> StreamLimits {
        if self.in_place.load(Ordering::Relaxed) == 0 {
            return LIMITS;
        }
        StreamLimits { window_bytes: 4 << 20, replica_window_bytes: 2 << 20, frame_bytes_max: 1 << 20, replicas_max: 8 }
    }
}

struct Place {
    shelf: Arc<Shelf>,
    id: BlockId,
    bytes: Vec<u8>,
    /// Bytes received in place, not yet verified.
    landed: Vec<u8>,
}

struct ShelfStore(Arc<Shelf>);

impl ReplicaStore for ShelfStore {
    type Sink = Place;

    async fn open(&self, request: OpenReplica) -> Result<Place, ReplicaRefusal> {
        let id = request.block.id();
        if id == BlockId(404) {
            return Err(ReplicaRefusal::new(Status::ErrorAccessToken, "not this one"));
        }
        let bytes = self.0.kept.lock().remove(&id).unwrap_or_default();
        Ok(Place { shelf: self.0.clone(), id, bytes, landed: Vec::new() })
    }
}

impl Place {
    fn append(&mut self, offset: u64, data: &[u8], checksums: &[u8]) {
        ChecksumSpec::DEFAULT.verify(data, checksums).unwrap();
        let there = self.bytes.len() - offset as usize;
        self.bytes.extend_from_slice(data.get(there..).unwrap_or_default());
    }
}

impl InPlace for Place {
    fn receive(
        &mut self,
        offset: u64,
        length: usize,
        socket: BorrowedFd<'_>,
        behind: &mut [u8],
    ) -> Result<std::io::Result<usize>, ReplicaRefusal> {
        if self.shelf.came_in_place.load(Ordering::Relaxed) >= self.shelf.in_place.load(Ordering::Relaxed) {
            return Err(ReplicaRefusal::new(Status::Error, "no memory"));
        }
        assert_eq!(offset, (self.bytes.len() + self.landed.len()) as u64);
        let at = self.landed.len();
        self.landed.resize(at + length, 0);
        let parts = &mut [IoSliceMut::new(&mut self.landed[at..]), IoSliceMut::new(behind)];
        let received = std::fs::File::from(socket.try_clone_to_owned().unwrap()).read_vectored(parts);
        let own = received.as_ref().map_or(0, |bytes| (*bytes).min(length));
        self.landed.truncate(at + own);
        self.shelf.came_in_place.fetch_add(own as u64, Ordering::Relaxed);
        Ok(received)
    }

    fn accept(&mut self, length: usize, checksums: &[u8]) -> Result<(), NotAccepted> {
        ChecksumSpec::DEFAULT.verify(&self.landed[..length], checksums).map_err(NotAccepted::Corrupt)?;
        self.bytes.extend(self.landed.drain(..length));
        Ok(())
    }
}

impl ReplicaSink for Place {
    fn received(&self) -> u64 {
        self.bytes.len() as u64
    }

    fn can_store_now(&self, bytes: usize) -> bool {
        let is_slow = self.shelf.slow.load(Ordering::Relaxed) || bytes > self.shelf.now_max.load(Ordering::Relaxed);
        !is_slow && self.id.0 % 3 != 0
    }

    fn in_place(&mut self, _end: u64) -> Option<&mut dyn InPlace> {
        if self.shelf.in_place.load(Ordering::Relaxed) > 0 { Some(self) } else { None }
    }

    fn store_now(&mut self, offset: u64, data: &[u8], checksums: &[u8]) -> Result<(), ReplicaRefusal> {
        assert!(data.len() <= self.shelf.now_max.load(Ordering::Relaxed), "{} bytes may block", data.len());
        self.append(offset, data, checksums);
        Ok(())
    }

    async fn store(mut self, offset: u64, data: &[u8], checksums: &[u8]) -> Result<Self, ReplicaRefusal> {
        if self.shelf.slow.load(Ordering::Relaxed) {
            self.shelf.permits.acquire().await.unwrap().forget();
        }
        self.append(offset, data, checksums);
        Ok(self)
    }

    async fn finish(self) -> Result<(), ReplicaRefusal> {
        self.shelf.finished.lock().insert(self.id, self.bytes);
        Ok(())
    }

    fn keep(self) {
        self.shelf.kept.lock().insert(self.id, self.bytes);
    }
}

async fn pair() -> (Connection, Connection) {
    let listener = Listener::bind("127.0.0.1:0".parse().unwrap(), SocketOptions::default(), 16).unwrap();
    let address = listener.address();
    let (one, other) = tokio::join!(tcp::connect(address, None, SocketOptions::default(), WAIT), listener.accept());
    (one.unwrap(), other.unwrap())
}

type Answer = oneshot::Receiver<Result<(), ReplicaSendError>>;

fn job(id: u64, data: Vec<u8>, damaged: Option<usize>, handed_out: &Arc<AtomicU64>) -> (ReplicaJob<Memory>, Answer) {
    let (done, answer) = oneshot::channel();
    let request = request(id, data.len());
    let source = Memory { data, damaged, handed_out: handed_out.clone(), piece: Vec::new() };
    (ReplicaJob { request, source, done }, answer)
}

type Receiving = tokio::task::JoinHandle<Result<(), StreamError>>;

fn start_receiver(connection: Connection, shelf: &Arc<Shelf>) -> Receiving {
    let (store, limits) = (Arc::new(ShelfStore(shelf.clone())), shelf.limits());
    tokio::spawn(async move { receive(&connection, &mut receive_buffer(), store, limits, WAITS).await })
}

fn start_sender(connection: Connection, jobs: mpsc::Receiver<ReplicaJob<Memory>>) -> tokio::task::JoinHandle<()> {
    start_sender_within(LIMITS, connection, jobs)
}

fn start_sender_within(
    limits: StreamLimits,
    connection: Connection,
    mut jobs: mpsc::Receiver<ReplicaJob<Memory>>,
) -> tokio::task::JoinHandle<()> {
    tokio::spawn(async move {
        // Each job receives the error that broke the stream.
        let _ = send(&connection, &mut receive_buffer(), limits, WAITS, &mut jobs).await;
    })
}

/// Both ends, with a receiver that stores only what it has permits for.
struct Slow {
    shelf: Arc<Shelf>,
    jobs: mpsc::Sender<ReplicaJob<Memory>>,
    sending: tokio::task::JoinHandle<()>,
    receiving: Receiving,
}

impl Slow {
    async fn start() -> Self {
        let (here, there) = pair().await;
        let shelf = Shelf::new();
        shelf.slow.store(true, Ordering::Relaxed);
        let receiving = start_receiver(there, &shelf);
        let (jobs, queue) = mpsc::channel(64);
        Self { shelf, jobs, sending: start_sender(here, queue), receiving }
    }
}

#[tokio::test]
async fn refused_replicas_do_not_disturb_others() {
    many_replicas(0, usize::MAX).await;
}

#[tokio::test]
async fn bytes_that_cannot_be_stored_now_are_stored_in_order() {
    many_replicas(0, 4096).await;
}

#[tokio::test]
async fn refused_replicas_do_not_disturb_in_place_receives() {
    many_replicas(u64::MAX, usize::MAX).await;
}

async fn many_replicas(in_place: u64, now_max: usize) {
    let (here, there) = pair().await;
    let shelf = Shelf::new();
    shelf.in_place.store(in_place, Ordering::Relaxed);
    shelf.now_max.store(now_max, Ordering::Relaxed);
    let receiving = start_receiver(there, &shelf);
    let (jobs, queue) = mpsc::channel(64);
    let sending = start_sender_within(shelf.limits(), here, queue);
    let handed_out = Arc::default();
    let mut answers = Vec::new();
    let sizes = [0, 1, 511, 512, 513, 4096, 20_000, 65_536, 65_537, 1_000_000, 300_001];
    for id in 0..40u64 {
        let (job, answer) = job(id, content(id, sizes[id as usize % sizes.len()]), None, &handed_out);
        jobs.send(job).await.ok().unwrap();
        answers.push((id, answer));
    }
    let (unwanted, refused) = job(404, content(404, 500_000), None, &handed_out);
    jobs.send(unwanted).await.ok().unwrap();
    let (damaged, corrupt) = job(405, content(405, 500_000), Some(300_000), &handed_out);
    jobs.send(damaged).await.ok().unwrap();
    for (id, answer) in answers {
        answer.await.unwrap().unwrap();
        let bytes = shelf.finished.lock().remove(&BlockId(id as i64)).unwrap();
        assert!(bytes == content(id, sizes[id as usize % sizes.len()]), "{id}");
    }
    let Err(ReplicaSendError::Refused(refusal)) = refused.await.unwrap() else { panic!() };
    assert_eq!(refusal.status, Status::ErrorAccessToken);
    let Err(ReplicaSendError::Refused(refusal)) = corrupt.await.unwrap() else { panic!() };
    assert_eq!(refusal.status, Status::ErrorChecksum);
    let kept = shelf.kept.lock().get(&BlockId(405)).cloned().unwrap();
    assert!(kept.len() <= 300_000 && kept[..] == content(405, 500_000)[..kept.len()], "valid data is kept");
    assert!(shelf.finished.lock().is_empty());
    assert_eq!(shelf.came_in_place.load(Ordering::Relaxed) > 0, in_place > 0);
    drop(jobs);
    sending.await.unwrap();
    receiving.await.unwrap().unwrap();
}

#[tokio::test]
async fn replica_is_refused_when_its_memory_disappears() {
    let (here, there) = pair().await;
    let shelf = Shelf::new();
    shelf.in_place.store(2_000_000, Ordering::Relaxed);
    let receiving = start_receiver(there, &shelf);
    let (jobs, queue) = mpsc::channel(64);
    let sending = start_sender_within(shelf.limits(), here, queue);
    let handed_out = Arc::default();
    let mut answers = Vec::new();
    // Every third replica takes another path.
    for id in 0..12u64 {
        let (job, answer) = job(id, content(id, 1_000_000), None, &handed_out);
        jobs.send(job).await.ok().unwrap();
        answers.push((id, answer));
    }
    let (mut whole, mut refused) = (0, 0);
    for (id, answer) in answers {
        match answer.await.unwrap() {
            Ok(()) => {
                let bytes = shelf.finished.lock().remove(&BlockId(id as i64)).unwrap();
                assert!(bytes == content(id, 1_000_000), "{id}");
                whole += 1;
            }
            Err(ReplicaSendError::Refused(refusal)) => {
                assert!(refusal.status == Status::Error && id % 3 != 0, "{id}: {refusal}");
                refused += 1;
            }
            Err(error) => panic!("{id}: {error}"),
        }
    }
    assert!(whole >= 4 && refused > 0, "{whole} and {refused}");
    drop(jobs);
    sending.await.unwrap();
    receiving.await.unwrap().unwrap();
}

/// Reports which bytes of which replica were requested.
struct Watched {
    id: u64,
    memory: Memory,
    asked: Arc<Mutex<Vec<(u64, ByteRange)>>>,
}

impl ReplicaSource for Watched {
    type Error = std::io::Error;

    fn checksums(&mut self, range: ByteRange, into: &mut Vec<u8>) -> std::io::Result<()> {
        self.memory.checksums(range, into)
    }

    async fn data(&mut self, range: ByteRange) -> std::io::Result<SourceData<'_>> {
        self.asked.lock().push((self.id, range));
        self.memory.data(range).await
    }
}

#[tokio::test]
async fn turn_lasts_until_end_of_huge_page() {
    const HUGE: u64 = 2 << 20;
    // Enough credit that no replica waits for it, because waiting ends a turn early.
    let limits = StreamLimits {
        window_bytes: 32 << 20,
        replica_window_bytes: 8 << 20,
        frame_bytes_max: 512 << 10,
        replicas_max: 8,
    };
    let (here, there) = pair().await;
    let shelf = Shelf::new();
    let store = Arc::new(ShelfStore(shelf.clone()));
    let receiving = tokio::spawn(async move { receive(&there, &mut receive_buffer(), store, limits, WAITS).await });
    let asked = Arc::new(Mutex::new(Vec::new()));
    let (jobs, mut queue) = mpsc::channel(8);
    let mut answers = Vec::new();
    for id in [1, 2, 4, 5] {
        let (done, answer) = oneshot::channel();
        let data = content(id, 5 << 20);
        let request = request(id, data.len());
        let memory = Memory { data, damaged: None, handed_out: Arc::default(), piece: Vec::new() };
        jobs.send(ReplicaJob { request, source: Watched { id, memory, asked: asked.clone() }, done })
            .await
            .ok()
            .unwrap();
        answers.push((id, answer));
    }
    drop(jobs);
    send(&here, &mut receive_buffer(), limits, WAITS, &mut queue).await.unwrap();
    for (id, answer) in answers {
        answer.await.unwrap().unwrap();
        assert!(shelf.finished.lock().remove(&BlockId(id as i64)).unwrap() == content(id, 5 << 20), "{id}");
    }
    let asked = std::mem::take(&mut *asked.lock());
    for turn in asked.windows(2) {
        let ((one, range), (next, _)) = (turn[0], turn[1]);
        assert!(one == next || range.end().is_multiple_of(HUGE) || range.end() == 5 << 20, "{one} ends at {range:?}");
    }
    assert!(asked.windows(2).filter(|turn| turn[0].0 != turn[1].0).count() > 3, "replicas must take turns: {asked:?}");
    drop(here);
    receiving.await.unwrap().unwrap();
}

#[tokio::test]
async fn slow_receiver_stops_sender_at_window() {
    let Slow { shelf, jobs, sending, receiving } = Slow::start().await;
    let handed_out = Arc::new(AtomicU64::new(0));
    let mut answers = Vec::new();
    for id in 1..=20 {
        let (job, answer) = job(id, content(id, 700_000), None, &handed_out);
        jobs.send(job).await.ok().unwrap();
        answers.push(answer);
    }
    let (window, frame) = (u64::from(LIMITS.window_bytes), u64::from(LIMITS.frame_bytes_max));
    until("the window to fill", async || handed_out.load(Ordering::Relaxed) + frame >= window).await;
    // Time for the sender to exceed the window by mistake.
    tokio::time::sleep(Duration::from_millis(200)).await;
    let before = handed_out.load(Ordering::Relaxed);
    assert!(before <= window, "{before}");
    // One piece is stored, so one more is sent.
    shelf.permits.add_permits(1);
    until("one more piece", async || handed_out.load(Ordering::Relaxed) != before).await;
    // Time for a second piece to be sent by mistake.
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert!(handed_out.load(Ordering::Relaxed) <= before + frame);
    shelf.permits.add_permits(10_000);
    for answer in answers {
        answer.await.unwrap().unwrap();
    }
    assert_eq!(handed_out.load(Ordering::Relaxed), 20 * 700_000, "no piece is sent twice");
    drop(jobs);
    sending.await.unwrap();
    receiving.await.unwrap().unwrap();
}

#[tokio::test]
async fn abandoned_jobs_are_cancelled() {
    let Slow { shelf, jobs, sending, receiving } = Slow::start().await;
    let handed_out = Arc::new(AtomicU64::new(0));
    let (unwanted, dropped) = job(1, content(1, 700_000), None, &handed_out);
    jobs.send(unwanted).await.ok().unwrap();
    until("the first piece", async || handed_out.load(Ordering::Relaxed) > 0).await;
    drop(dropped);
    shelf.permits.add_permits(10_000);
    // The credit comes back, so the following replicas arrive complete.
    for id in 2..=4 {
        let (job, answer) = job(id, content(id, 700_000), None, &handed_out);
        jobs.send(job).await.ok().unwrap();
        answer.await.unwrap().unwrap();
    }
    drop(jobs);
    sending.await.unwrap();
    receiving.await.unwrap().unwrap();
    let mut finished: Vec<_> = shelf.finished.lock().keys().map(|id| id.0).collect();
    finished.sort_unstable();
    assert_eq!(finished, [2, 3, 4]);
    assert!(shelf.kept.lock().is_empty());
    assert!(handed_out.load(Ordering::Relaxed) < 4 * 700_000, "all data was sent");
}

#[tokio::test]
async fn acknowledged_bytes_are_not_resent_after_reconnect() {
    let shelf = Shelf::new();
    shelf.slow.store(true, Ordering::Relaxed);
    let data = content(7, 2_000_000);
    let handed_out = Arc::new(AtomicU64::new(0));
    let (here, there) = pair().await;
    let here = Arc::new(here);
    let receiving = start_receiver(there, &shelf);
    let (jobs, mut queue) = mpsc::channel(1);
    let carried = here.clone();
    let sending = tokio::spawn(async move {
        let _ = send(&carried, &mut receive_buffer(), LIMITS, WAITS, &mut queue).await;
    });
    let (first, answer) = job(7, data.clone(), None, &handed_out);
    jobs.send(first).await.ok().unwrap();
    shelf.permits.add_permits(10);
    // A replica may have four frames in flight: the sender has been notified that nine are stored.
    until("the acknowledgement of stored data", async || handed_out.load(Ordering::Relaxed) >= 13 * 65_536).await;
    here.shutdown();
    let Err(ReplicaSendError::Broken { stored, .. }) = answer.await.unwrap() else { panic!() };
    assert!(stored >= 9 * 65_536, "{stored}");
    sending.await.unwrap();
    shelf.permits.add_permits(1000);
    assert!(receiving.await.unwrap().is_err());
    let kept = shelf.kept.lock().get(&BlockId(7)).unwrap().len() as u64;
    assert!(kept >= stored);

    let (here, there) = pair().await;
    let receiving = start_receiver(there, &shelf);
    let (jobs, queue) = mpsc::channel(1);
    let sending = start_sender(here, queue);
    let before = handed_out.load(Ordering::Relaxed);
    let (second, answer) = job(7, data.clone(), None, &handed_out);
    jobs.send(second).await.ok().unwrap();
    answer.await.unwrap().unwrap();
    assert_eq!(handed_out.load(Ordering::Relaxed) - before, 2_000_000 - kept);
    assert!(shelf.finished.lock()[&BlockId(7)] == data);
    drop(jobs);
    sending.await.unwrap();
    receiving.await.unwrap().unwrap();
}

#[tokio::test]
async fn sender_violating_the_protocol_is_disconnected() {
    let piece = |replica, offset, data_bytes: u32| ReplicaPiece {
        replica,
        offset,
        checksum_bytes: data_bytes.div_ceil(512) * 4,
        data_bytes,
    };
    let open = |replica| ToReceiver::Open { replica, request: Box::new(request(u64::from(replica) * 3, 60 << 20)) };
    let data = |piece: ReplicaPiece| {
        let mut bytes = Vec::new();
        piece.encode_into(&mut bytes);
        bytes.resize(bytes.len() + piece.body_bytes() as usize, 0);
        bytes
    };
    let frames = |frames: &[ToReceiver]| {
        let mut bytes = Vec::new();
        frames.iter().for_each(|frame| frame.encode_into(&mut bytes));
        bytes
    };
    let mut too_much = frames(&[open(3)]);
    for at in 0..17 {
        too_much.extend(data(piece(3, at * 65_536, 65_536)));
    }
    let too_many: Vec<ToReceiver> = (1..=9).map(open).collect();
    let cases = [
        ("garbage", vec![0xEE; 64]),
        (
            "a frame longer than any",
            vec![2, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 255, 255, 255, 255, 0, 0, 0, 0],
        ),
        ("more than the window", too_much),
        ("a frame longer than announced", [frames(&[open(3)]), data(piece(3, 0, 512 << 10))].concat()),
        ("an unknown replica", data(piece(1, 0, 512))),
        ("beyond the replica's end", [frames(&[open(3)]), data(piece(3, 60 << 20, 512))].concat()),
        ("within a chunk", [frames(&[open(3)]), data(piece(3, 100, 512))].concat()),
        ("too many replicas", frames(&too_many)),
        ("a number twice", frames(&[open(3), open(3)])),
    ];
    for (what, bytes) in cases {
        let (here, there) = pair().await;
        let shelf = Shelf::new();
        shelf.slow.store(true, Ordering::Relaxed);
        shelf.permits.add_permits(1);
        let receiving = start_receiver(there, &shelf);
        // The peer may be disconnected in the middle.
        let _ = here.write_all(&bytes, WAIT).await;
        shelf.permits.add_permits(1000);
        let error = tokio::time::timeout(WAIT, receiving).await.expect(what).unwrap().expect_err(what);
        assert!(matches!(error, StreamError::Protocol { .. } | StreamError::Frame { .. }), "{what}: {error}");
        assert!(shelf.finished.lock().is_empty());
    }
}

#[tokio::test]
async fn receiver_violating_the_protocol_is_disconnected() {
    let cases = [
        ("credit for nothing", ToSender::Stored { replica: 1, offset: 0, credit: 1 << 30 }),
        ("acknowledged ahead", ToSender::Stored { replica: 1, offset: 1 << 40, credit: 0 }),
        ("from beyond the end", ToSender::Opened { replica: 1, offset: 1 << 40 }),
        ("done before it was sent", ToSender::Done { replica: 1 }),
    ];
    for (what, frame) in cases {
        let (here, there) = pair().await;
        let (jobs, queue) = mpsc::channel(1);
        let sending = start_sender(here, queue);
        let (job, answer) = job(1, content(1, 5_000_000), None, &Arc::default());
        jobs.send(job).await.ok().unwrap();
        let mut head = [0; 24];
        there.read_exact(&mut head, WAIT).await.unwrap();
        let mut bytes = Vec::new();
        frame.encode_into(&mut bytes);
        there.write_all(&bytes, WAIT).await.unwrap();
        let outcome = tokio::time::timeout(WAIT, answer).await.expect(what).unwrap();
        assert!(matches!(outcome, Err(ReplicaSendError::Broken { .. })), "{what}: {outcome:?}");
        sending.await.unwrap();
    }
}

/// Short timeouts, so that pings come soon.
const SHORT_WAITS: StreamTimeouts = StreamTimeouts { silence: Duration::from_secs(6), write: WAIT, idle: WAIT };

/// Time between two frames of a peer, and the step of the clock.
const STEP: Duration = Duration::from_millis(100);

/// Sends the same frame repeatedly. Panics after eight seconds.
async fn keep_saying(clock: &StoppedClock, connection: &Connection, frame: &[u8]) {
    for _ in 0..80 {
        connection.write_all(frame, WAIT).await.unwrap();
        clock.pass(STEP).await;
    }
    panic!("no ping arrived");
}

/// Receives the next frame from the receiver.
async fn from_receiver(connection: &Connection, buffer: &mut tcp::ReceiveBuffer) -> ToSender {
    loop {
        match ToSender::decode(buffer.available()).unwrap() {
            Decoded::Complete(frame, bytes) => {
                buffer.consume(bytes);
                return frame;
            }
            Decoded::Needs(missing) => {
                let wanted = buffer.available().len() + missing;
                buffer.fill_to(connection, wanted, WAIT).await.unwrap();
            }
        }
    }
}

/// Reads the sender's frames until a ping.
async fn until_senders_ping(connection: &Connection) {
    let mut buffer = receive_buffer();
    loop {
        let (frame, bytes) = match ToReceiver::decode(buffer.available()).unwrap() {
            Decoded::Complete(frame, bytes) => (frame, bytes),
            Decoded::Needs(missing) => {
                let wanted = buffer.available().len() + missing;
                buffer.fill_to(connection, wanted, WAIT).await.unwrap();
                continue;
            }
        };
        buffer.consume(bytes);
        let mut body = match frame {
            ToReceiver::Ping => return,
            ToReceiver::Data(piece) => piece.body_bytes() as usize,
            _ => 0,
        };
        while body > 0 {
            buffer.fill_to(connection, 1, WAIT).await.unwrap();
            let some = body.min(buffer.available().len());
            buffer.consume(some);
            body -= some;
        }
    }
}

#[tokio::test]
async fn receiver_pings_while_it_receives() {
    let (here, there) = pair().await;
    let clock = StoppedClock::new();
    let store = Arc::new(ShelfStore(Shelf::new()));
    let receiving =
        tokio::spawn(async move { receive(&there, &mut receive_buffer(), store, LIMITS, SHORT_WAITS).await });
    let (mut open, mut ping) = (Vec::new(), Vec::new());
    ToReceiver::Open { replica: 1, request: Box::new(request(1, 512)) }.encode_into(&mut open);
    ToReceiver::Ping.encode_into(&mut ping);
    here.write_all(&open, WAIT).await.unwrap();
    let hearing = async {
        let mut buffer = receive_buffer();
        while !matches!(from_receiver(&here, &mut buffer).await, ToSender::Ping) {}
    };
    tokio::select! {
        () = keep_saying(&clock, &here, &ping) => {}
        () = hearing => {}
    }
    receiving.abort();
}

/// Frequent pings do not extend the wait, and the data sent before is kept for the sender.
#[tokio::test]
async fn sender_that_only_pings_times_out() {
    let waits = StreamTimeouts { silence: Duration::from_secs(6), write: Duration::from_millis(300), idle: WAIT };
    let (here, there) = pair().await;
    let clock = StoppedClock::new();
    let shelf = Shelf::new();
    let store = Arc::new(ShelfStore(shelf.clone()));
    let mut receiving = tokio::spawn(async move { receive(&there, &mut receive_buffer(), store, LIMITS, waits).await });
    let data = content(1, 1024);
    let mut said = Vec::new();
    ToReceiver::Open { replica: 1, request: Box::new(request(1, data.len())) }.encode_into(&mut said);
    let piece = ReplicaPiece { replica: 1, offset: 0, data_bytes: 512, checksum_bytes: 4 };
    ToReceiver::Data(piece).encode_into(&mut said);
    ChecksumSpec::DEFAULT.compute(&data[..512], &mut said);
    said.extend_from_slice(&data[..512]);
    here.write_all(&said, WAIT).await.unwrap();
    let mut ping = Vec::new();
    ToReceiver::Ping.encode_into(&mut ping);
    let pinging = async {
        // Until the other end has disconnected.
        while here.write_all(&ping, WAIT).await.is_ok() {
            clock.pass(STEP).await;
        }
        std::future::pending::<()>().await
    };
    let ending = async {
        tokio::select! {
            outcome = &mut receiving => outcome.unwrap(),
            () = pinging => unreachable!("it goes on"),
        }
    };
    let outcome = tokio::time::timeout(WAIT, ending).await.expect("its place is released");
    let Err(StreamError::OnlyPings { after, .. }) = outcome else { panic!("{outcome:?}") };
    assert!(after >= waits.silence + waits.write);
    assert!(shelf.kept.lock()[&BlockId(1)] == data[..512]);
}

#[tokio::test]
async fn sender_pings_while_it_receives() {
    let (here, there) = pair().await;
    let clock = StoppedClock::new();
    let (jobs, mut queue) = mpsc::channel(1);
    // More than the sender may send before some of it is stored.
    let (job, _answer) = job(1, content(1, 5_000_000), None, &Arc::default());
    jobs.send(job).await.ok().unwrap();
    let (mut opened, mut ping) = (Vec::new(), Vec::new());
    ToSender::Opened { replica: 1, offset: 0 }.encode_into(&mut opened);
    ToSender::Ping.encode_into(&mut ping);
    let receiving = async {
        // No message about a replica is valid before it was opened.
        there.readable(WAIT).await.unwrap();
        there.write_all(&opened, WAIT).await.unwrap();
        tokio::select! {
            () = keep_saying(&clock, &there, &ping) => {}
            () = until_senders_ping(&there) => {}
        }
    };
    let mut buffer = receive_buffer();
    tokio::select! {
        outcome = send(&here, &mut buffer, LIMITS, SHORT_WAITS, &mut queue) => panic!("{outcome:?}"),
        () = receiving => {}
    }
}

/// Neither earlier messages nor frequent pings extend the wait.
#[tokio::test]
async fn receiver_that_only_pings_times_out() {
    let opened = |offset| ToSender::Opened { replica: 1, offset };
    let stored = |offset, credit| ToSender::Stored { replica: 1, offset, credit };
    // Frames of 64 KiB plus CRCs, and a window of 1 MiB. Each case: the receiver's messages, and how much data it has
    // then.
    let cases = [
        ("it does not open", vec![], 0),
        ("it stores nothing", vec![opened(0)], 0),
        ("it stores a little", vec![opened(0), stored(65_536, 65_536 + 512)], 65_536),
        ("it has all of it", vec![opened(5_000_000)], 5_000_000),
        (
            "it gives no credit",
            (0..=15).map(|at| if at == 0 { opened(0) } else { stored(at * 65_536, 0) }).collect(),
            0,
        ),
    ];
    let clock = StoppedClock::new();
    for (what, frames, least) in cases {
        only_signs_of_life_follow(&clock, what, &frames, least).await;
    }
}

/// Sends each of `frames` as soon as the receiver has the data that it acknowledges. `least`: number of bytes that must
/// have arrived in the end.
async fn only_signs_of_life_follow(clock: &StoppedClock, what: &str, frames: &[ToSender], least: u64) {
    // Progress is checked three times within the silence timeout.
    const WAITS: StreamTimeouts =
        StreamTimeouts { silence: Duration::from_secs(6), write: Duration::from_millis(500), idle: WAIT };
    let (here, there) = pair().await;
    let (jobs, mut queue) = mpsc::channel(1);
    let (job, mut answer) = job(1, content(1, 5_000_000), None, &Arc::default());
    jobs.send(job).await.ok().unwrap();
    let receiving = async {
        let (mut sink, mut read) = (vec![0; 1 << 20], 0);
        there.readable(WAIT).await.unwrap();
        for frame in frames {
            // The acknowledged data must have been sent, with a CRC of 4 bytes per 512.
            let acknowledged = match frame {
                ToSender::Stored { offset, .. } => *offset as usize / 512 * 516,
                _ => 0,
            };
            while read < acknowledged {
                read += there.read(&mut sink, WAIT).await.unwrap();
            }
            let mut bytes = Vec::new();
            frame.encode_into(&mut bytes);
            there.write_all(&bytes, WAIT).await.unwrap();
        }
        let mut ping = Vec::new();
        ToSender::Ping.encode_into(&mut ping);
        loop {
            there.write_all(&ping, WAIT).await.unwrap();
            while let Ok(Some(1..)) = there.try_read(&mut sink) {}
            clock.pass(STEP).await;
        }
    };
    let began = Instant::now();
    let mut buffer = receive_buffer();
    let sending = async {
        let _ = send(&here, &mut buffer, LIMITS, WAITS, &mut queue).await;
        std::future::pending::<()>().await
    };
    let ending = async {
        tokio::select! {
            answer = &mut answer => answer.unwrap(),
            () = sending => unreachable!("the job's owner is notified first"),
            () = receiving => unreachable!("it goes on"),
        }
    };
    let answer = tokio::time::timeout(WAIT, ending).await.expect(what);
    assert!(began.elapsed() >= WAITS.write, "{what}");
    let Err(ReplicaSendError::Broken { stored, source }) = answer else { panic!("{what}") };
    assert!(matches!(*source, StreamError::NoProgress { .. }), "{what}: {source}");
    assert!(stored >= least, "{what}: {stored}");
}

/// Never stores one of the blocks, and reports nothing about it.
struct OneHangs(ShelfStore);

impl ReplicaStore for OneHangs {
    type Sink = Place;

    async fn open(&self, request: OpenReplica) -> Result<Place, ReplicaRefusal> {
        if request.block.id() == BlockId(1) {
            return std::future::pending().await;
        }
        self.0.open(request).await
    }
}

#[tokio::test]
async fn hanging_disk_does_not_block_other_replicas() {
    // Progress is checked three times within the silence timeout.
    let waits = StreamTimeouts { silence: Duration::from_secs(9), write: Duration::from_secs(6), idle: WAIT };
    let (here, there) = pair().await;
    let shelf = Shelf::new();
    let store = Arc::new(OneHangs(ShelfStore(shelf.clone())));
    let receiving = tokio::spawn(async move { receive(&there, &mut receive_buffer(), store, LIMITS, waits).await });
    let (jobs, mut queue) = mpsc::channel(2);
    let (hangs, its_answer) = job(1, content(1, 300_000), None, &Arc::default());
    jobs.send(hangs).await.ok().unwrap();
    let sending = tokio::spawn(async move { send(&here, &mut receive_buffer(), LIMITS, waits, &mut queue).await });
    let outcome = StoppedClock::new().during(STEP, its_answer).await.unwrap();
    let Err(ReplicaSendError::Broken { stored: 0, source }) = outcome else { panic!("it hangs") };
    assert!(matches!(*source, StreamError::NoProgress { .. }), "{source}");
    let data = content(2, 300_000);
    let (well, its_answer) = job(2, data.clone(), None, &Arc::default());
    jobs.send(well).await.ok().unwrap();
    its_answer.await.unwrap().unwrap();
    assert!(shelf.finished.lock()[&BlockId(2)] == data);
    drop(jobs);
    sending.await.unwrap().unwrap();
    receiving.abort();
}

/// A slow source, for which the receiver must not be blamed.
struct Hesitant(Memory);

impl ReplicaSource for Hesitant {
    type Error = std::io::Error;

    fn checksums(&mut self, range: ByteRange, into: &mut Vec<u8>) -> std::io::Result<()> {
        self.0.checksums(range, into)
    }

    async fn data(&mut self, range: ByteRange) -> std::io::Result<SourceData<'_>> {
        // Longer than the receiver's timeout.
        tokio::time::sleep(Duration::from_secs(8)).await;
        self.0.data(range).await
    }
}

#[tokio::test]
async fn slow_source_does_not_time_out_receiver() {
    let waits = StreamTimeouts { silence: Duration::from_secs(9), write: Duration::from_secs(6), idle: WAIT };
    let (here, there) = pair().await;
    let shelf = Shelf::new();
    let store = Arc::new(ShelfStore(shelf.clone()));
    let receiving = tokio::spawn(async move { receive(&there, &mut receive_buffer(), store, LIMITS, waits).await });
    let (jobs, mut queue) = mpsc::channel(1);
    let (done, answer) = oneshot::channel();
    // One frame.
    let data = content(1, 60_000);
    let memory = Memory { data: data.clone(), damaged: None, handed_out: Arc::default(), piece: Vec::new() };
    jobs.send(ReplicaJob { request: request(1, data.len()), source: Hesitant(memory), done }).await.ok().unwrap();
    drop(jobs);
    let mut buffer = receive_buffer();
    let sending = send(&here, &mut buffer, LIMITS, waits, &mut queue);
    StoppedClock::new().during(STEP, sending).await.unwrap();
    answer.await.unwrap().unwrap();
    assert!(shelf.finished.lock()[&BlockId(1)] == data);
    drop(here);
    receiving.await.unwrap().unwrap();
}

/// A source whose bytes never come.
struct Stuck;

impl ReplicaSource for Stuck {
    type Error = std::io::Error;

    fn checksums(&mut self, range: ByteRange, into: &mut Vec<u8>) -> std::io::Result<()> {
        ChecksumSpec::DEFAULT.compute(&vec![0; range.length() as usize], into);
        Ok(())
    }

    async fn data(&mut self, _: ByteRange) -> std::io::Result<SourceData<'_>> {
        std::future::pending().await
    }
}

#[tokio::test]
async fn sender_pings_while_source_is_slow() {
    let (here, there) = pair().await;
    let clock = StoppedClock::new();
    let (jobs, mut queue) = mpsc::channel(1);
    let (done, _answer) = oneshot::channel();
    jobs.send(ReplicaJob { request: request(1, 512), source: Stuck, done }).await.ok().unwrap();
    let mut ping = Vec::new();
    ToSender::Ping.encode_into(&mut ping);
    let mut buffer = receive_buffer();
    tokio::select! {
        outcome = send(&here, &mut buffer, LIMITS, SHORT_WAITS, &mut queue) => panic!("{outcome:?}"),
        () = keep_saying(&clock, &there, &ping) => {}
        () = until_senders_ping(&there) => {}
    }
}

/// A store that never has room; counts the requests.
struct NoRoom(AtomicUsize);

impl ReplicaStore for NoRoom {
    type Sink = Place;

    async fn open(&self, _: OpenReplica) -> Result<Place, ReplicaRefusal> {
        self.0.fetch_add(1, Ordering::SeqCst);
        std::future::pending().await
    }
}

#[tokio::test]
async fn cancelled_opens_count_until_they_finish() {
    const OPENED: u32 = 100;
    let (here, there) = pair().await;
    let store = Arc::new(NoRoom(AtomicUsize::new(0)));
    let receiving = tokio::spawn({
        let store = store.clone();
        async move { receive(&there, &mut receive_buffer(), store, LIMITS, WAITS).await }
    });
    let mut bytes = Vec::new();
    for replica in 1..=OPENED {
        ToReceiver::Open { replica, request: Box::new(request(u64::from(replica), 512)) }.encode_into(&mut bytes);
        ToReceiver::Cancel { replica }.encode_into(&mut bytes);
    }
    here.write_all(&bytes, WAIT).await.unwrap();
    let refused = async {
        let mut buffer = receive_buffer();
        loop {
            if let ToSender::Refused { replica: OPENED, .. } = from_receiver(&here, &mut buffer).await {
                return;
            }
        }
    };
    tokio::time::timeout(WAIT, refused).await.expect("the last one is refused");
    let most = 2 * LIMITS.replicas_max as usize;
    assert!((1..=most).contains(&store.0.load(Ordering::SeqCst)));
    receiving.abort();
}
