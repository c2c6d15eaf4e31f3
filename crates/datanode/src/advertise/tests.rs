//! Readers that hold keys while replicas change. The simulated network delays reads at the most critical points.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use hearth_blockstore::*;
use hearth_fabric::Memory;
use hearth_fabric::one_sided::{Access, Connection, Error, Limits, Transfer, Transport};
use hearth_fabric::sim::{Fault, FaultAction, Sim, Step};
use hearth_testkit::until;
use hearth_types::*;
use hearth_wire::rdma_control::Advertisement;

use super::{Advertiser, Bounds, LocateOutcome};
use crate::withdraw_hooks::WithdrawHooks;

const LONG: Duration = Duration::from_secs(30);
const LEASE: Duration = Duration::from_secs(3600);

struct Bed {
    store: Arc<Blockstore>,
    advertiser: Arc<Advertiser>,
    /// The clock of the leases. It stands still until a test advances it.
    clock: Arc<ManualClock>,
    sim: Sim,
    near: Arc<dyn Connection>,
    near_domain: Arc<dyn hearth_fabric::one_sided::Domain>,
    /// The DataNode's end of the connection, which closes when this is dropped.
    _far: Arc<dyn Connection>,
    _directories: (tempfile::TempDir, tempfile::TempDir),
}

fn pool() -> PoolIdentity {
    PoolIdentity {
        pool: BlockPoolId::new("BP-1-127.0.0.1-1"),
        namespace_id: 77,
        cluster_id: "CID-test".to_owned(),
        created_ms: 1,
    }
}

fn block(id: i64, stamp: u64) -> ExtendedBlock {
    let block = Block { id: BlockId(id), stamp: GenerationStamp(stamp), length: 0 };
    ExtendedBlock { pool: pool().pool, block }
}

/// Returns `length` bytes that differ between seeds.
fn bytes(seed: u64, length: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state as u8
    };
    (0..length).map(|_| next()).collect()
}

impl Bed {
    async fn new(memory_limit: u64, registered_max: u64) -> Self {
        let disk = tempfile::tempdir().unwrap();
        let memory = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap();
        let volume = VolumeOptions::memory(disk.path().join("v0"));
        let tier = MemoryOptions::new(memory.path().join("m"), memory_limit);
        let mut options = StoreOptions::new(vec![volume], tier);
        options.background = false;
        options.default_block_bytes = 1 << 20;
        let store = Arc::new(Blockstore::open(options).unwrap());
        store.attach_pool(&pool()).unwrap();
        let sim = Sim::new();
        let clock = Arc::new(ManualClock::at(0));
        let domain = sim.domain().unwrap();
        let advertiser = Advertiser::new(&store, domain, 1, LEASE, bounds(registered_max), clock.clone());
        let withdraw_hooks = Arc::new(WithdrawHooks::default());
        withdraw_hooks.add(advertiser.clone());
        store.on_withdraw(withdraw_hooks);
        let (near, near_domain, far) = reader(&sim, &advertiser).await;
        Self { store, advertiser, clock, sim, near, near_domain, _far: far, _directories: (disk, memory) }
    }

    fn put(&self, id: i64, data: &[u8]) {
        let mut writer = self
            .store
            .create(&block(id, 1001), CreateKind::BeingWritten { replace: false }, &CreateOptions::default())
            .unwrap();
        write(&mut writer, data);
        writer.finalize(Durability::Memory).unwrap();
    }

    async fn located(&self, id: i64, stamp: u64) -> Advertisement {
        match self.advertiser.locate(&self.store, &block(id, stamp)).await.unwrap() {
            LocateOutcome::Shown(advertisement) => *advertisement,
            LocateOutcome::Small(_) => panic!("the replica is small"),
            LocateOutcome::NotShown(why) => panic!("{why}"),
        }
    }

    /// Reads like a client: data, CRCs, record.
    async fn read(&self, advertisement: &Advertisement) -> Result<Answer, Error> {
        read(&self.near, &self.near_domain, advertisement).await
    }
}

async fn reader(
    sim: &Sim,
    advertiser: &Advertiser,
) -> (Arc<dyn Connection>, Arc<dyn hearth_fabric::one_sided::Domain>, Arc<dyn Connection>) {
    let listener = sim.listen(SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 0)).await.unwrap();
    let domain = sim.domain().unwrap();
    let limits = Limits::default();
    let accepting = async {
        let incoming = listener.accept().await.unwrap();
        incoming.accept(advertiser.domain(), b"", limits, LONG).await.unwrap()
    };
    let (near, far) = tokio::join!(sim.connect(&domain, listener.address(), b"", limits, LONG), accepting);
    (near.unwrap(), domain, far)
}

fn write(writer: &mut ReplicaWriter, data: &[u8]) {
    for piece in data.chunks(64 << 10) {
        let at = writer.received();
        let mut crcs = Vec::new();
        writer.checksum().compute(piece, &mut crcs);
        writer.write(at, piece, Checksums::Given(&crcs)).unwrap();
        writer.acker().set(at + piece.len() as u64).unwrap();
    }
}

/// Result of a batch of reads.
struct Answer {
    data: Vec<u8>,
    crcs: Vec<u8>,
    record: Option<ValidityRecord>,
}

impl Answer {
    /// Returns the bytes if a client may trust them.
    fn believed(&self, advertisement: &Advertisement) -> Option<&[u8]> {
        if self.record != Some(advertisement.record()) {
            return None;
        }
        advertisement.checksum.verify(&self.data, &self.crcs).expect("the record is valid, but the CRCs do not match");
        Some(&self.data)
    }
}

async fn read(
    connection: &Arc<dyn Connection>,
    domain: &Arc<dyn hearth_fabric::one_sided::Domain>,
    advertisement: &Advertisement,
) -> Result<Answer, Error> {
    let slices = [advertisement.data, advertisement.checksums, advertisement.shown];
    let total = slices.iter().map(|slice| slice.length).sum();
    let memory = Arc::new(Memory::fresh(total).unwrap());
    let local = domain.register(&memory, 0..total, Access::Local).unwrap();
    let mut offset = 0;
    let transfers = slices.map(|remote| {
        let transfer = Transfer { local: local.clone(), offset, remote };
        offset += remote.length;
        transfer
    });
    connection.read(transfers.to_vec(), LONG).await?;
    let part = |at: u64, length: u64| {
        let mut bytes = vec![0; length as usize];
        memory.read(at, &mut bytes);
        bytes
    };
    let crcs_at = advertisement.data.length;
    let shown_at = crcs_at + advertisement.checksums.length;
    Ok(Answer {
        data: part(0, crcs_at),
        crcs: part(crcs_at, advertisement.checksums.length),
        record: ValidityRecord::decode(&part(shown_at, advertisement.shown.length).try_into().unwrap()),
    })
}

const MANY: u64 = u64::MAX;

fn bounds(bytes: u64) -> Bounds {
    Bounds { bytes, replicas: MANY }
}

#[tokio::test]
async fn advertised_replica_is_read_with_crcs_and_record() {
    let bed = Bed::new(256 << 20, MANY).await;
    for (id, length) in [(1, 65_537), (2, 200_000), (3, 1 << 20), (4, (3 << 20) + 511)] {
        let data = bytes(id as u64, length);
        bed.put(id, &data);
        let advertisement = bed.located(id, 1001).await;
        assert_eq!(advertisement.block.length(), length as u64);
        let answer = bed.read(&advertisement).await.unwrap();
        assert!(answer.believed(&advertisement) == Some(&data[..]), "{length} bytes");
        // The second request gets the same answer.
        assert_eq!(bed.located(id, 1001).await, advertisement);
    }
    let figures = bed.advertiser.metrics();
    assert_eq!((figures.advertised, figures.leaving), (4, 0));
    assert_eq!(figures.bytes, bed.advertiser.domain().registered_bytes());
}

#[tokio::test]
async fn small_and_unfinished_replicas_are_not_shown() {
    let bed = Bed::new(256 << 20, MANY).await;
    bed.put(1, &bytes(1, 1000));
    assert!(matches!(bed.advertiser.locate(&bed.store, &block(1, 1001)).await.unwrap(), LocateOutcome::Small(_)));
    let mut writer = bed
        .store
        .create(&block(2, 1001), CreateKind::BeingWritten { replace: false }, &CreateOptions::default())
        .unwrap();
    write(&mut writer, &bytes(2, 200_000));
    assert!(matches!(bed.advertiser.locate(&bed.store, &block(2, 1001)).await.unwrap(), LocateOutcome::NotShown(_)));
    writer.finalize(Durability::Memory).unwrap();
    bed.located(2, 1001).await;
    assert!(bed.advertiser.locate(&bed.store, &block(3, 1001)).await.is_err(), "there is no such replica");
    assert_eq!(bed.advertiser.metrics().advertised, 1);
}

/// Rule 1: memory for which a key was given out is not reused, however late a read is.
#[tokio::test]
async fn read_across_deletion_finds_old_bytes() {
    let bed = Bed::new(64 << 20, MANY).await;
    let old = bytes(1, 2 << 20);
    bed.put(1, &old);
    let advertisement = bed.located(1, 1001).await;
    bed.sim.fault(Fault { at: Step::Read, nth: 1, then: FaultAction::Hold });
    let reading = bed.read(&advertisement);
    let deleting = async {
        bed.sim.held().await;
        bed.store.invalidate(&pool().pool, &[advertisement.block.block]).remove(0).unwrap();
        // New replicas must not get that memory.
        for id in 10..20 {
            bed.put(id, &bytes(99, 2 << 20));
        }
        bed.sim.release();
    };
    let (answer, ()) = tokio::join!(reading, deleting);
    let answer = answer.unwrap();
    assert!(answer.data == old, "memory was reused during a read");
    assert_eq!(answer.believed(&advertisement), None, "but it is no longer the replica");
}

/// Like the previous test, but the lease expires and the key is removed during the read.
#[tokio::test]
async fn read_across_deregistration_finds_old_bytes() {
    let bed = Bed::new(64 << 20, MANY).await;
    let old = bytes(1, 2 << 20);
    bed.put(1, &old);
    let advertisement = bed.located(1, 1001).await;
    bed.sim.fault(Fault { at: Step::Read, nth: 1, then: FaultAction::Hold });
    // Only the data: the next read of a client's batch would find no key.
    let memory = Arc::new(Memory::fresh(2 << 20).unwrap());
    let local = bed.near_domain.register(&memory, 0..2 << 20, Access::Local).unwrap();
    let reading = bed.near.read(vec![Transfer { local, offset: 0, remote: advertisement.data }], LONG);
    bed.sim.held().await;
    bed.store.invalidate(&pool().pool, &[advertisement.block.block]).remove(0).unwrap();
    bed.clock.advance(LEASE);
    until("its memory to be deregistered", async || bed.advertiser.domain().registered_bytes() == 0).await;
    for id in 10..20 {
        bed.put(id, &bytes(99, 2 << 20));
    }
    bed.sim.release();
    reading.await.unwrap();
    let mut data = vec![0; 2 << 20];
    memory.read(0, &mut data);
    assert!(data == old, "memory was reused during a read");
    // A later read finds no key.
    assert!(matches!(bed.read(&advertisement).await, Err(Error::Closed { .. })));
}

/// Rule 4: every change of a replica, and which of its old bytes a late reader may still trust.
#[tokio::test]
async fn every_change_withdraws_replica_first() {
    type Change = fn(&Bed, &Advertisement);
    let changes: [(&str, Change, Option<u64>); 5] = [
        (
            "append",
            |bed, shown| {
                let mut writer = bed.store.append(&shown.block, GenerationStamp(1002), shown.block.length()).unwrap();
                write(&mut writer, &bytes(50, 100_000 / 512 * 512));
                writer.finalize(Durability::Memory).unwrap();
            },
            Some(300_032 + 99_840),
        ),
        (
            "recovery that cuts",
            |bed, shown| {
                bed.store.initiate_recovery(&shown.block, GenerationStamp(1002)).unwrap();
                bed.store.update_under_recovery(&shown.block, GenerationStamp(1002), 150_000, None).unwrap();
            },
            Some(150_000),
        ),
        (
            "a new stamp",
            |bed, shown| {
                bed.store.initiate_recovery(&shown.block, GenerationStamp(1002)).unwrap();
                let length = shown.block.length();
                bed.store.update_under_recovery(&shown.block, GenerationStamp(1002), length, None).unwrap();
            },
            Some(300_032),
        ),
        (
            "deletion",
            |bed, shown| {
                bed.store.invalidate(&pool().pool, &[shown.block.block]).remove(0).unwrap();
            },
            None,
        ),
        (
            "deletion and another of the same name",
            |bed, shown| {
                bed.store.invalidate(&pool().pool, &[shown.block.block]).remove(0).unwrap();
                let kind = CreateKind::BeingWritten { replace: false };
                let mut writer = bed.store.create(&block(1, 1002), kind, &CreateOptions::default()).unwrap();
                write(&mut writer, &bytes(60, 300_032));
                writer.finalize(Durability::Memory).unwrap();
            },
            Some(300_032),
        ),
    ];
    for (what, change, length_after) in changes {
        // Between data and CRCs, between CRCs and record, and before the batch.
        for held in [1, 2, 3] {
            let bed = Bed::new(64 << 20, MANY).await;
            let old = bytes(1, 300_032);
            bed.put(1, &old);
            let advertisement = bed.located(1, 1001).await;
            bed.sim.fault(Fault { at: Step::Read, nth: held, then: FaultAction::Hold });
            let changing = async {
                bed.sim.held().await;
                change(&bed, &advertisement);
                bed.sim.release();
            };
            let (answer, ()) = tokio::join!(bed.read(&advertisement), changing);
            let answer = answer.unwrap();
            assert!(answer.data == old, "{what}, held at {held}: other bytes under the old key");
            assert_eq!(answer.believed(&advertisement), None, "{what}, held at {held}: trusted after its withdrawal");
            // Every later read with the old advertisement is rejected too.
            let late = bed.read(&advertisement).await.unwrap();
            assert_eq!(late.believed(&advertisement), None, "{what}: trusted later");
            if let Some(length) = length_after {
                let now = bed.located(1, 1002).await;
                assert_eq!((now.block.stamp(), now.block.length()), (GenerationStamp(1002), length), "{what}");
                let answer = bed.read(&now).await.unwrap();
                let reader = bed.store.reader(&block(1, 1002)).unwrap();
                let mut expected = vec![0; length as usize];
                reader.read_at(0, &mut expected).unwrap();
                assert!(answer.believed(&now) == Some(&expected[..]), "{what}: the new replica");
            }
        }
    }
}

/// Rules 4 and 8: an eviction waits for leases; without leases it takes the memory at once.
#[tokio::test]
async fn eviction_waits_exactly_for_lease() {
    let (data, more) = (bytes(1, 3 << 20), bytes(2, 6 << 20));
    let bed = Bed::new(8 << 20, MANY).await;
    bed.put(1, &data);
    bed.store.flush_all(&mut |_| true);
    let advertisement = bed.located(1, 1001).await;
    bed.clock.advance(LEASE - Duration::from_millis(1));
    // More than the rest of the memory: a replica would have to be evicted.
    bed.put(2, &more);
    let answer = bed.read(&advertisement).await.unwrap();
    assert!(answer.data == data, "memory was freed during a lease");
    bed.clock.advance(Duration::from_millis(1));
    until("the memory to be free again", async || bed.advertiser.domain().registered_bytes() == 0).await;
    let in_memory = || bed.store.replica(&pool().pool, BlockId(1)).unwrap().in_memory;
    for id in 3..30 {
        bed.put(id, &bytes(id as u64, 1 << 20));
        bed.store.flush_all(&mut |_| true);
        if !in_memory() {
            break;
        }
    }
    assert!(!in_memory(), "an expired lease keeps nothing in memory");
    assert!(matches!(bed.advertiser.locate(&bed.store, &block(1, 1001)).await.unwrap(), LocateOutcome::NotShown(_)));
}

#[tokio::test]
async fn preregistration_evicts_no_other_replica() {
    let bed = Bed::new(16 << 20, MANY).await;
    for id in [1, 2] {
        bed.put(id, &bytes(id as u64, 6 << 20));
        bed.advertiser.on_finalized(block(id, 1001));
    }
    until("both to be registered", async || bed.advertiser.metrics().advertised == 2).await;
    bed.store.flush_all(&mut |_| true);
    // These replicas have no lease and are evicted.
    bed.put(3, &bytes(3, 7 << 20));
    let in_memory = |id| bed.store.replica(&pool().pool, BlockId(id)).unwrap().in_memory;
    assert!(in_memory(3) && !(in_memory(1) && in_memory(2)));
    assert!(bed.advertiser.metrics().advertised < 2);
}

/// Memory announced to a NameNode stays for as long as announced, and shows nothing of the replica once that is gone.
#[tokio::test]
async fn announced_memory_outlives_deleted_replica() {
    let bed = Bed::new(64 << 20, MANY).await;
    let data = bytes(1, 1 << 20);
    for id in [1, 2] {
        bed.put(id, &data);
        bed.advertiser.on_finalized(block(id, 1001));
    }
    let pool = pool().pool;
    until("both to be recent", async || bed.advertiser.recent(&pool, 0, u64::MAX).len() == 2).await;
    assert_eq!(bed.advertiser.recent(&pool, 0, (1 << 20) - 1), []);
    let announced_for = 2 * LEASE;
    let until_ms = bed.advertiser.now_ms() + announced_for.as_millis() as u64;
    let announced = bed.advertiser.lease_until(&pool, BlockId(1), until_ms).unwrap();
    assert_eq!(bed.advertiser.leases(), 0, "it was not requested");
    // A lease on request does not shorten the announced one.
    assert_eq!(Advertisement { lease: Duration::ZERO, ..bed.located(1, 1001).await }, announced);
    for id in [1, 2] {
        bed.store.invalidate(&pool, &[block(id, 1001).block]).remove(0).unwrap();
    }
    bed.clock.advance(announced_for - Duration::from_millis(1));
    until("the other's memory to be gone", async || bed.advertiser.metrics().bytes <= (1 << 20) + (64 << 10)).await;
    let late = bed.read(&announced).await.unwrap();
    assert!(late.data == data, "announced memory was freed");
    assert_eq!(late.believed(&announced), None);
    assert_eq!(bed.advertiser.recent(&pool, 0, u64::MAX), []);
    assert_eq!(bed.advertiser.lease_until(&pool, BlockId(1), until_ms), None);
    bed.clock.advance(Duration::from_millis(1));
    until("the announced memory to be gone", async || bed.advertiser.metrics().bytes == 0).await;
}

/// Corrupt memory must not be read, lease or not.
#[tokio::test]
async fn corruption_invalidates_keys_at_once() {
    let bed = Bed::new(64 << 20, MANY).await;
    bed.put(1, &bytes(1, 300_000));
    let advertisement = bed.located(1, 1001).await;
    // The file itself is changed, bypassing the store.
    let memory = bed._directories.1.path();
    let mut found = false;
    let mut directories = vec![memory.to_owned()];
    while let Some(directory) = directories.pop() {
        for entry in std::fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                directories.push(path);
            } else if path.extension().is_some_and(|extension| extension == "data") {
                let file = std::fs::OpenOptions::new().write(true).open(path).unwrap();
                std::os::unix::fs::FileExt::write_all_at(&file, &[0xff; 3000], 1000).unwrap();
                found = true;
            }
        }
    }
    assert!(found);
    bed.store.verify(&advertisement.block).unwrap_err();
    assert_eq!(bed.advertiser.domain().registered_bytes(), 0);
    assert!(matches!(bed.read(&advertisement).await, Err(Error::Closed { .. })));
}

/// Rule 8: keys of an earlier incarnation open nothing, even though addresses and connections look the same.
#[tokio::test]
async fn advertisement_of_earlier_incarnation_opens_nothing() {
    let bed = Bed::new(64 << 20, MANY).await;
    bed.put(1, &bytes(1, 300_000));
    let advertisement = bed.located(1, 1001).await;
    // The same store and files, whether mapped at the same addresses or not: only the domain of the new incarnation
    // counts.
    let domain = bed.sim.domain().unwrap();
    let next = Advertiser::new(&bed.store, domain, 2, LEASE, bounds(MANY), bed.clock.clone());
    let LocateOutcome::Shown(now) = next.locate(&bed.store, &block(1, 1001)).await.unwrap() else {
        panic!("not shown")
    };
    assert_ne!(now.incarnation, advertisement.incarnation);
    let (near, domain, _far) = reader(&bed.sim, &next).await;
    assert!(read(&near, &domain, &now).await.unwrap().believed(&now).is_some());
    let stale = Advertisement { incarnation: now.incarnation, ..advertisement };
    assert!(matches!(read(&near, &domain, &stale).await, Err(Error::Closed { .. })));
}

#[tokio::test]
async fn registered_memory_is_limited() {
    let bed = Bed::new(64 << 20, 3 << 20).await;
    for id in 1..=4 {
        bed.put(id, &bytes(id as u64, 1 << 20));
    }
    bed.located(1, 1001).await;
    bed.located(2, 1001).await;
    bed.clock.advance(LEASE - Duration::from_millis(1));
    let third = bed.advertiser.locate(&bed.store, &block(3, 1001)).await.unwrap();
    assert!(matches!(third, LocateOutcome::NotShown(_)), "both others are leased");
    bed.clock.advance(Duration::from_millis(1));
    let advertisement = bed.located(3, 1001).await;
    assert!(bed.read(&advertisement).await.unwrap().believed(&advertisement).is_some());
    assert!(bed.advertiser.domain().registered_bytes() <= 3 << 20);
}

/// Rule 10, on the DataNode's side: no part of a reader's connection keeps memory here.
#[tokio::test]
async fn all_resources_are_released() {
    let bed = Bed::new(64 << 20, MANY).await;
    // One slab remains from the first replica, because every writer begins in it.
    bed.put(100, &bytes(100, 1 << 20));
    let pool_id = pool().pool;
    bed.store.invalidate(&pool_id, &[block(100, 1001).block]).remove(0).unwrap();
    let used = bed.store.metrics().memory_used;
    for id in 1..=5 {
        bed.put(id, &bytes(id as u64, 1 << 20));
        let advertisement = bed.located(id, 1001).await;
        drop(bed.near.read(
            vec![Transfer {
                local: {
                    let memory = Arc::new(Memory::fresh(1 << 20).unwrap());
                    bed.near_domain.register(&memory, 0..1 << 20, Access::Local).unwrap()
                },
                offset: 0,
                remote: advertisement.data,
            }],
            LONG,
        ));
        bed.store.invalidate(&pool().pool, &[advertisement.block.block]).remove(0).unwrap();
    }
    bed.clock.advance(LEASE);
    until("memory to be deregistered", async || bed.advertiser.domain().registered_bytes() == 0).await;
    until("replicas to be read or flushed", async || bed.near_domain.registered_bytes() == 0).await;
    // Deregistered memory is released a moment later, by the thread that does both.
    let given_back = async || {
        bed.store.sweep();
        bed.store.metrics().memory_used <= used
    };
    until("memory to be given back", given_back).await;
    assert_eq!(bed.advertiser.metrics(), super::AdvertisedMetrics::default());
}
