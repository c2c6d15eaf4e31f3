//! A store in temporary directories that can be dropped (as after a kill) and opened again.
#![allow(dead_code, reason = "each test file uses its part")]

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use hearth_blockstore::*;
use hearth_testkit::{HugePages, skip_or_fail};
use hearth_types::*;

pub struct Bed {
    // Dropped before its directory.
    _huge: Option<HugePages>,
    pub disk: tempfile::TempDir,
    pub memory: tempfile::TempDir,
    pub options: StoreOptions,
    pub clock: Arc<ManualClock>,
    pub pool: PoolIdentity,
}

/// Store configurations that the same tests run with.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Kind {
    /// The default configuration.
    Memory,
    /// Every replica has its own files.
    NoSlabs,
    /// Like `NoSlabs`, with its own tmpfs whose larger files are in huge pages, if this process may mount one.
    HugePages,
    /// Memory is always full.
    NoMemory,
    /// `file:` engine.
    File,
    /// `mmap:` engine, mapped as soon as it is opened.
    Mmap,
    /// The same in a directory on a tmpfs.
    MmapOnTmpfs,
}

impl Kind {
    pub fn has_memory(self) -> bool {
        matches!(self, Self::Memory | Self::NoSlabs | Self::HugePages)
    }
}

pub const KINDS: [Kind; 7] =
    [Kind::Memory, Kind::NoSlabs, Kind::HugePages, Kind::NoMemory, Kind::File, Kind::Mmap, Kind::MmapOnTmpfs];

pub fn on_tmpfs() -> tempfile::TempDir {
    tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap()
}

pub fn pool_identity() -> PoolIdentity {
    PoolIdentity {
        pool: BlockPoolId::new("BP-1-127.0.0.1-1700000000000"),
        namespace_id: 77,
        cluster_id: "CID-test".to_owned(),
        created_ms: 1_700_000_000_000,
    }
}

/// Returns `None` where mounting is not permitted: the test then runs in small pages, like one of [`Kind::NoSlabs`].
fn huge_pages(at: &Path) -> Option<HugePages> {
    HugePages::mount(at).inspect_err(|error| skip_or_fail("a store in huge pages", error)).ok()
}

impl Bed {
    pub fn new(kind: Kind) -> Self {
        let disk = if kind == Kind::MmapOnTmpfs { on_tmpfs() } else { tempfile::tempdir().unwrap() };
        let memory = on_tmpfs();
        let huge = if kind == Kind::HugePages { huge_pages(memory.path()) } else { None };
        let mut volume = VolumeOptions::memory(disk.path().join("v0"));
        let mut tier = MemoryOptions::new(memory.path().join("m"), 256 << 20);
        match kind {
            Kind::Memory => {}
            Kind::NoSlabs | Kind::HugePages => tier.slab_replica_bytes_max = 0,
            Kind::NoMemory => tier.limit = 0,
            Kind::File => volume.engine = Engine::File,
            Kind::Mmap | Kind::MmapOnTmpfs => volume.engine = Engine::Mmap,
        }
        let clock = Arc::new(ManualClock::at(1_700_000_000_000));
        let mut options = StoreOptions::new(vec![volume], tier);
        options.background = false;
        options.open_file_cache.map_at = 1;
        options.clock = clock.clone();
        options.default_block_bytes = 1 << 20;
        options.writer_stop_timeout = Duration::from_secs(5);
        Self { _huge: huge, disk, memory, options, clock, pool: pool_identity() }
    }

    pub fn open(&self) -> Blockstore {
        let store = Blockstore::open(self.options.clone()).unwrap();
        store.attach_pool(&self.pool).unwrap();
        store
    }

    /// Simulates a power failure: the content of memory is lost. The store is closed.
    pub fn lose_power(&self) {
        for entry in std::fs::read_dir(self.memory.path()).unwrap() {
            std::fs::remove_dir_all(entry.unwrap().path()).unwrap();
        }
    }

    pub fn block(&self, id: i64, stamp: u64) -> ExtendedBlock {
        block(id, stamp, 0)
    }

    /// Lets the flush delay pass and flushes.
    pub fn flush(&self, store: &Blockstore) -> FlushProgress {
        self.clock.advance(Duration::from_secs(60));
        store.flush_due()
    }
}

pub fn block(id: i64, stamp: u64, length: u64) -> ExtendedBlock {
    ExtendedBlock {
        pool: pool_identity().pool,
        block: Block { id: BlockId(id), stamp: GenerationStamp(stamp), length },
    }
}

/// Returns `length` bytes that differ for every seed.
pub fn bytes(seed: u64, length: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    (0..length)
        .map(|_| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state as u8
        })
        .collect()
}

pub fn crcs(spec: ChecksumSpec, data: &[u8]) -> Vec<u8> {
    let mut crcs = Vec::new();
    spec.compute(data, &mut crcs);
    crcs
}

pub const CREATE: CreateKind = CreateKind::BeingWritten { replace: false };

pub fn create(store: &Blockstore, id: i64, stamp: u64) -> ReplicaWriter {
    store.create(&block(id, stamp, 0), CREATE, &CreateOptions::default()).unwrap()
}

/// Writes `data` from the writer's end on, in packets of `packet` bytes, as a client does: whole chunks from a
/// boundary.
pub fn send(writer: &mut ReplicaWriter, data: &[u8], packet: usize) {
    let spec = writer.checksum();
    for piece in data.chunks(packet) {
        let at = writer.received();
        writer.write(at, piece, Checksums::Given(&crcs(spec, piece))).unwrap();
        writer.acker().set(at + piece.len() as u64).unwrap();
    }
}

/// Writes `data` from the writer's end on like a borrower of the store's memory: in pieces of `piece` bytes that start
/// on chunk boundaries, acknowledged. Bytes without granted memory go through `write`. Returns the lent descriptor, if
/// any.
pub fn fill(writer: &mut ReplicaWriter, data: &[u8], piece: usize, trusted: bool) -> Option<std::fs::File> {
    let mut file = None;
    let (spec, start) = (writer.checksum(), writer.received() as usize);
    // The whole replica up to the end of `data`; the part below `start` is unused.
    let mut all = vec![0; start];
    all.extend_from_slice(data);
    let chunk = spec.bytes_per_chunk as usize;
    if start % chunk != 0 {
        let seam = all.len().min(start.next_multiple_of(chunk));
        fill_piece(writer, &mut file, start, &all[start..seam], trusted);
    }
    while (writer.received() as usize) < all.len() {
        let from = writer.received() as usize / chunk * chunk;
        let end = all.len().min(from + piece.max(chunk));
        fill_piece(writer, &mut file, from, &all[from..end], trusted);
    }
    file
}

fn fill_piece(
    writer: &mut ReplicaWriter,
    file: &mut Option<std::fs::File>,
    offset: usize,
    piece: &[u8],
    trusted: bool,
) {
    let (offset, end) = (offset as u64, (offset + piece.len()) as u64);
    let sums = crcs(writer.checksum(), piece);
    if writer.grant(end).unwrap() < end {
        writer.write(offset, piece, Checksums::Given(&sums)).unwrap();
    } else {
        let file = file.get_or_insert_with(|| writer.lend(trusted).unwrap().into());
        std::os::unix::fs::FileExt::write_all_at(file, piece, offset).unwrap();
        assert_eq!(writer.commit(offset, piece.len() as u64, &sums).unwrap(), end);
    }
    writer.acker().set(end).unwrap();
}

/// Overwrites a whole file, like a borrower that does not stop writing.
pub fn scribble(file: &std::fs::File) {
    let length = file.metadata().unwrap().len() as usize;
    std::os::unix::fs::FileExt::write_all_at(file, &vec![0xa5; length], 0).unwrap();
}

pub fn put(store: &Blockstore, id: i64, stamp: u64, data: &[u8]) -> ReplicaSummary {
    let mut writer = create(store, id, stamp);
    send(&mut writer, data, 64 << 10);
    writer.finalize(Durability::Memory).unwrap()
}

/// Reads all bytes in both ways, and checks their CRCs.
pub fn read(reader: &ReplicaReader) -> Vec<u8> {
    let mut data = vec![0; reader.length() as usize];
    reader.read_at(0, &mut data).unwrap();
    let mut short = vec![0; data.len().min(3000)];
    reader.read_at((data.len() - short.len()) as u64, &mut short).unwrap();
    assert!(data.ends_with(&short));
    let all = ByteRange::new(0, reader.length()).unwrap();
    let mut now = b"before".to_vec();
    if reader.read_now(all, &mut now).unwrap() {
        let mut sums = Vec::new();
        reader.checksums(all, &mut sums).unwrap();
        assert!(now == [&b"before"[..], &sums, &data].concat(), "what is read without waiting");
    } else {
        assert_eq!(now, b"before");
    }
    match reader.data() {
        DataSource::Bytes(bytes) => assert_eq!(bytes, data),
        DataSource::File { file, offset } => {
            let mut again = vec![0; data.len()];
            let file = std::fs::File::from(file.try_clone_to_owned().unwrap());
            std::os::unix::fs::FileExt::read_exact_at(&file, &mut again, offset).unwrap();
            assert!(again == data);
        }
    }
    let mut sums = Vec::new();
    reader.checksums(ByteRange::new(0, reader.length()).unwrap(), &mut sums).unwrap();
    reader.checksum().verify(&data, &sums).unwrap();
    data
}

pub fn get(store: &Blockstore, id: i64, stamp: u64) -> Vec<u8> {
    read(&store.reader(&block(id, stamp, 0)).unwrap())
}

pub fn info(store: &Blockstore, id: i64) -> ReplicaInfo {
    store.replica(&pool_identity().pool, BlockId(id)).unwrap()
}

/// Returns files of that name anywhere on the disk.
pub fn files_named(bed: &Bed, name: &str) -> Vec<std::path::PathBuf> {
    let (mut found, mut dirs) = (Vec::new(), vec![bed.disk.path().to_owned()]);
    while let Some(dir) = dirs.pop() {
        for entry in std::fs::read_dir(dir).unwrap() {
            let path = entry.unwrap().path();
            match path.is_dir() {
                true => dirs.push(path),
                false if path.file_name().is_some_and(|file| file == name) => found.push(path),
                false => {}
            }
        }
    }
    found
}

/// Guard that makes a file impossible to open: a symbolic link to itself is in its place.
pub struct Loop {
    path: std::path::PathBuf,
    aside: std::path::PathBuf,
}

impl Loop {
    pub fn new(path: &std::path::Path) -> Self {
        let aside = path.with_extension("aside");
        std::fs::rename(path, &aside).unwrap();
        std::os::unix::fs::symlink(path, path).unwrap();
        Self { path: path.to_owned(), aside }
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        std::fs::rename(&self.aside, &self.path).unwrap();
    }
}
