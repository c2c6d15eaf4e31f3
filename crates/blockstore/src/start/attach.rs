//! Second step of a start, once per block pool: checks that the directories belong to it, pairs memory with its disk,
//! and merges the copies in memory and on disk into replicas.

use std::cmp::Ordering;
use std::collections::HashMap;
use std::fs;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use hearth_types::{BlockId, PoolIdentity, ReplicaState};

use super::find::{self, FoundMemory};
use crate::PoolSummary;
use crate::blockstore::Blockstore;
use crate::disk::copy;
use crate::disk::files::DiskCopy;
use crate::disk::layout::PoolDirs;
use crate::disk::scan;
use crate::disk::version::{self, VolumeVersion};
use crate::error::{Result, StoreError};
use crate::memory::copy::MemoryCopy;
use crate::memory::incarnation::{self, Incarnation};
use crate::memory::slab::Slabs;
use crate::pool::{Creations, Pool, ReplicaMap};
use crate::replica::copies::Copies;
use crate::replica::lifecycle::Lifecycle;
use crate::replica::space::Space;
use crate::replica::{Core, Replica};
use crate::verify::CopyQuality;
use crate::volume::{Slice, Volume};

/// Maximum bytes read from the disks to determine which of two volumes' replicas are good. Then the start continues
/// without: this is a minute of an ordinary disk, and a NameNode declares a DataNode that is silent for ten minutes
/// dead.
const COMPARED_BYTES_MAX: u64 = 8 << 30;

/// Refuses a directory with an upgrade in progress. From its beginning to its end Java's DataNode keeps files beside
/// its directories for a rollback, which changes by this store would break. Source: hdfs `BlockPoolSliceStorage`.
fn refuse_upgrade(volume: &Path, dirs: &PoolDirs) -> Result<()> {
    const STATES: [&str; 5] = ["previous", "previous.tmp", "removed.tmp", "finalized.tmp", "lastcheckpoint.tmp"];
    let of = |root: &Path| STATES.map(|name| root.join(name));
    let mut signs = [of(volume), of(&dirs.root)].concat();
    signs.extend([dirs.root.join("trash"), dirs.current.join("RollingUpgradeInProgress")]);
    match signs.into_iter().find(|sign| sign.exists()) {
        None => Ok(()),
        Some(path) => Err(StoreError::BadDirectory {
            path,
            reason: "an upgrade is in progress; finalize it or roll it back with the DataNode that began it".to_owned(),
        }),
    }
}

impl Blockstore {
    /// Creates or checks the pool's directories on every volume, and finds its replicas in memory and on disk.
    /// Attaching a pool twice is allowed. A volume whose disk does not answer is failed, with an event. Waits for the
    /// disks.
    ///
    /// Errors: `Foreign` (the directories belong to another cluster or namespace); `Io`, when all volumes have failed
    /// or one is full.
    pub fn attach_pool(&self, identity: &PoolIdentity) -> Result<PoolSummary> {
        let _one = self.attaching.lock();
        if let Some(pool) = self.pools.read().get(&identity.pool) {
            check_identity(&self.volumes[0].dir, &pool.identity, identity)?;
            return Ok(PoolSummary { replicas: pool.replicas.len() as u64, ..PoolSummary::default() });
        }
        check_name(&identity.pool)?;
        // Everything is checked before anything is written.
        for volume in &self.volumes {
            self.unless_failed(volume, || self.check_owner(volume, identity))?;
        }
        let mut summary = PoolSummary::default();
        let slices = self.volumes.iter().map(|volume| self.slice(volume, identity)).collect();
        let (replicas, creations) = (ReplicaMap::new(), Creations::default());
        let pool = Pool { identity: identity.clone(), slices, replicas, creations };
        for slice in &pool.slices {
            self.unless_failed(&slice.volume, || self.prepare_slice(slice, identity, &mut summary))?;
        }
        let mut room = COMPARED_BYTES_MAX;
        for slice in &pool.slices {
            self.unless_failed(&slice.volume, || self.find_replicas(&pool, slice, &mut summary, &mut room))?;
        }
        summary.replicas = pool.replicas.len() as u64;
        self.pools.write().insert(identity.pool.clone(), Arc::new(pool));
        self.threads.wake();
        Ok(summary)
    }

    /// Runs `work` on a volume that has not failed. If its error means that the volume has failed, the pool continues
    /// without it as long as another volume is left.
    fn unless_failed(&self, volume: &Arc<Volume>, work: impl FnOnce() -> Result<()>) -> Result<()> {
        if volume.is_failed() {
            return Ok(());
        }
        let Err(error) = work() else { return Ok(()) };
        let Some(reason) = error.volume_failure() else { return Err(error) };
        self.fail_volume(volume, &reason);
        if self.volumes.iter().all(|volume| volume.is_failed()) { Err(error) } else { Ok(()) }
    }

    fn check_owner(&self, volume: &Volume, identity: &PoolIdentity) -> Result<()> {
        if let Some(version) = &*volume.version.lock()
            && version.cluster_id != identity.cluster_id
        {
            return Err(StoreError::Foreign {
                path: volume.dir.clone(),
                what: "cluster",
                found: version.cluster_id.clone(),
                wanted: identity.cluster_id.clone(),
            });
        }
        let dirs = PoolDirs::new(&volume.dir, identity.pool.as_str());
        refuse_upgrade(&volume.dir, &dirs)?;
        match version::read_pool(&dirs.current)? {
            Some(found) => check_identity(&dirs.current, &found, identity),
            None => Ok(()),
        }
    }

    fn slice(&self, volume: &Arc<Volume>, identity: &PoolIdentity) -> Arc<Slice> {
        let memory_dir = volume.memory_dir.join(identity.pool.as_str());
        Arc::new(Slice {
            volume: volume.clone(),
            pool: identity.pool.clone(),
            slabs: Slabs::new(memory_dir.clone(), self.budget.clone()),
            dirs: PoolDirs::new(&volume.dir, identity.pool.as_str()),
            memory_dir,
            used: AtomicU64::new(0),
            finalized: AtomicU64::new(0),
        })
    }

    /// Creates the pool's missing directories on a volume, and ensures that its memory belongs to it.
    fn prepare_slice(&self, slice: &Slice, identity: &PoolIdentity, summary: &mut PoolSummary) -> Result<()> {
        let (volume, dirs) = (&slice.volume, &slice.dirs);
        let current = volume.dir.join("current");
        {
            let mut known = volume.version.lock();
            if known.is_none() {
                let version = VolumeVersion {
                    storage_id: volume.id.to_string(),
                    datanode_uuid: self.uuid.to_string(),
                    cluster_id: identity.cluster_id.clone(),
                };
                version.write(&current)?;
                *known = Some(version);
            }
        }
        dirs.create().map_err(StoreError::io("make the directories of", &dirs.root))?;
        if version::read_pool(&dirs.current)?.is_none() {
            version::write_pool(&dirs.current, identity)?;
        }
        summary.quarantined |= self.take_memory(&slice.memory_dir, dirs)?;
        Ok(())
    }

    /// Ensures that the content of `memory_dir` belongs to the disk. True: it did not, and was moved aside.
    fn take_memory(&self, memory_dir: &Path, dirs: &PoolDirs) -> Result<bool> {
        let make = || fs::DirBuilder::new().recursive(true).mode(0o700).create(memory_dir);
        make().map_err(StoreError::io("make", memory_dir))?;
        let version = dirs.current.join(version::FILE);
        let failed = |path: &Path| StoreError::io("compare the incarnation of", path.to_owned());
        let matches = incarnation::matches(memory_dir, &dirs.root, &version).map_err(failed(memory_dir))?;
        if !matches {
            let aside = quarantine_name(memory_dir, self.options.clock.wall_ms());
            tracing::error!(
                memory = %memory_dir.display(), aside = %aside.display(), disk = %dirs.root.display(),
                "replicas in memory do not belong to this disk, which was used without them since; they are put aside"
            );
            fs::rename(memory_dir, &aside).map_err(StoreError::io("put aside", memory_dir))?;
            make().map_err(StoreError::io("make", memory_dir))?;
        }
        let new = Incarnation::random().map_err(failed(memory_dir))?;
        incarnation::renew(memory_dir, &dirs.root, &version, new).map_err(failed(&dirs.root))?;
        Ok(!matches)
    }

    fn find_replicas(&self, pool: &Pool, slice: &Arc<Slice>, summary: &mut PoolSummary, room: &mut u64) -> Result<()> {
        let mut memory = find::in_memory(&slice.memory_dir, &self.budget, &slice.slabs)
            .map_err(StoreError::io("find the replicas in", &slice.memory_dir))?;
        let found = scan::scan(&slice.dirs).map_err(StoreError::io("find the replicas in", &slice.dirs.root))?;
        let mut disk: HashMap<BlockId, DiskCopy> = HashMap::with_capacity(found.len());
        for scan::FoundCopy { id, copy: found } in found {
            let best = match disk.get(&id) {
                None => found,
                Some(other) => {
                    let (best, worse) = find::better_on_disk(*other, found);
                    copy::remove(&slice.dirs, id, worse);
                    best
                }
            };
            disk.insert(id, best);
        }
        for (id, disk) in disk {
            let replica = self.merge(slice, id, memory.remove(&id), Some(disk));
            self.adopt(pool, replica, summary, room);
        }
        for (id, found) in memory {
            let replica = self.merge(slice, id, Some(found), None);
            self.adopt(pool, replica, summary, room);
        }
        Ok(())
    }

    /// Merges the copies of one block into a replica. `None`: it was TEMPORARY.
    fn merge(
        &self,
        slice: &Arc<Slice>,
        id: BlockId,
        memory: Option<FoundMemory>,
        disk: Option<DiskCopy>,
    ) -> Option<Replica> {
        let memory = memory.filter(|found| {
            let counts = disk.is_none_or(|disk| find::memory_counts(&found.progress, &disk));
            let keep = counts && found.progress.state != ReplicaState::Temporary;
            if !keep {
                found.memory.retire();
            }
            keep
        });
        let lifecycle = match (&memory, &disk) {
            (Some(found), _) => Lifecycle::found_in_memory(&found.progress, found.identity.checksum),
            (None, Some(disk)) => Lifecycle::found_on_disk(disk),
            (None, None) => return None,
        };
        let copies = Copies::found(memory.map(|found| (found.memory, found.progress.sequence)), disk);
        let core = Core::with(lifecycle, copies, Space::default());
        Some(Replica::new(id, slice.clone(), core))
    }

    /// Chooses between two volumes' replicas of one block. Returns the one to keep and the other. The other is removed
    /// if it is older or the first was found good on its disk; otherwise its files stay for the next start.
    ///
    /// This occurs when a move was interrupted, or when a failed volume is back after a replica was created again
    /// elsewhere. Both may be whole then, but the failed volume's need not be: the kernel treats data that it could not
    /// write as written.
    fn better<'a>(
        &self,
        there: &'a Arc<Replica>,
        replica: &'a Arc<Replica>,
        room: &mut u64,
    ) -> (&'a Arc<Replica>, &'a Arc<Replica>) {
        let rank = |replica: &Replica| {
            let core = replica.core();
            (core.lifecycle.stamp(), core.lifecycle.is_finalized(), core.lifecycle.received())
        };
        let (keep, other, is_sure) = match rank(replica).cmp(&rank(there)) {
            Ordering::Greater => (replica, there, true),
            Ordering::Less => (there, replica, true),
            Ordering::Equal => {
                let (first, second) = (self.assess(there, room), self.assess(replica, room));
                let (keep, other) = if second > first { (replica, there) } else { (there, replica) };
                (keep, other, first.max(second) == CopyQuality::GoodOnDisk)
            }
        };
        let (block, storage) = (keep.named(keep.core().lifecycle.stamp()), &keep.slice.volume.id);
        if is_sure {
            tracing::warn!(%block, %storage, "replica found on two volumes; the other copy is removed");
            self.discard(other);
        } else {
            tracing::warn!(%block, %storage, other = %other.slice.volume.id, "replica found on two volumes; both copies stay, since neither is known to be good on disk");
            self.pass_over(other);
        }
        (keep, other)
    }

    /// Ignores a replica until the next start; its files stay where they are.
    fn pass_over(&self, replica: &Replica) {
        let mut core = replica.core();
        self.clear_dirty(&mut core);
        core.lifecycle.remove();
        core.copies.ignore();
        replica.settle_space(&mut core);
    }

    /// Adds a found replica to the pool. `room`: bytes that may still be read to compare replicas.
    fn adopt(&self, pool: &Pool, replica: Option<Replica>, summary: &mut PoolSummary, room: &mut u64) {
        let Some(replica) = replica.map(Arc::new) else { return };
        if let Err(there) = pool.replicas.insert(replica.clone()) {
            let (keep, other) = self.better(&there, &replica, room);
            pool.replicas.remove(other);
            if Arc::ptr_eq(keep, &there) || pool.replicas.insert(replica.clone()).is_err() {
                return;
            }
        }
        let mut core = replica.core();
        summary.bytes += core.lifecycle.received();
        summary.in_memory += u64::from(core.copies.is_in_memory());
        let on_disk = core.is_on_disk();
        replica.settle_space(&mut core);
        if core.copies.is_in_memory() {
            if core.lifecycle.is_finalized() && !on_disk {
                summary.dirty += 1;
                self.note_dirty(&replica, &mut core);
            }
            // A borrower of its memory may have outlived the previous process.
            let is_lent = core.copies.memory().is_some_and(MemoryCopy::may_be_written_outside);
            drop(core);
            self.resident.lock().add(&replica);
            if is_lent {
                self.lent.add(&replica);
            }
        }
    }
}

fn check_identity(path: &Path, found: &PoolIdentity, wanted: &PoolIdentity) -> Result<()> {
    let foreign =
        |what, found: String, wanted: String| Err(StoreError::Foreign { path: path.to_owned(), what, found, wanted });
    if found.pool != wanted.pool {
        return foreign("block pool", found.pool.to_string(), wanted.pool.to_string());
    }
    if found.namespace_id != wanted.namespace_id {
        return foreign("namespace", found.namespace_id.to_string(), wanted.namespace_id.to_string());
    }
    if found.created_ms != wanted.created_ms {
        return foreign("namespace (creation time)", found.created_ms.to_string(), wanted.created_ms.to_string());
    }
    if !found.cluster_id.is_empty() && found.cluster_id != wanted.cluster_id {
        return foreign("cluster", found.cluster_id.clone(), wanted.cluster_id.clone());
    }
    Ok(())
}

/// Checks a pool name, which comes from a NameNode and becomes the name of a directory.
fn check_name(pool: &hearth_types::BlockPoolId) -> Result<()> {
    let name = pool.as_str();
    let fine = name.starts_with("BP-")
        && name.len() <= 200
        && name.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '.' | '_' | ':'));
    if fine { Ok(()) } else { Err(StoreError::BadOptions(format!("invalid block pool name {name:?}"))) }
}

fn quarantine_name(memory_dir: &Path, now_ms: u64) -> PathBuf {
    let mut name = memory_dir.file_name().unwrap_or_default().to_owned();
    name.push(format!(".quarantined-{now_ms}"));
    memory_dir.with_file_name(name)
}
