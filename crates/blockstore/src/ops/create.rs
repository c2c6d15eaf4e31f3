//! Creation of a new replica, which may replace an existing one of the same block.

use std::sync::Arc;

use hearth_types::{ChecksumSpec, ExtendedBlock, ReplicaState};

use crate::blockstore::Blockstore;
use crate::error::{Result, StoreError};
use crate::options::Engine;
use crate::replica::copies::Copies;
use crate::replica::lifecycle::Lifecycle;
use crate::replica::space::Space;
use crate::replica::writer_shared::WriteTarget;
use crate::replica::{Core, Replica};
use crate::volume::Volume;
use crate::write_target::CopyRequest;
use crate::{CreateKind, CreateOptions, ReplicaWriter};

impl Blockstore {
    /// Creates a new, empty replica of `block`. The length in `block` is ignored.
    ///
    /// Errors: `ReplicaExists`, with the state TEMPORARY also while another thread creates one; `NoSuchStorageType`,
    /// `NoSpace`; `WriterStillRunning`; `PoolNotAttached`.
    pub fn create(&self, block: &ExtendedBlock, kind: CreateKind, options: &CreateOptions) -> Result<ReplicaWriter> {
        let pool = self.pool(block)?;
        // Held from the lookup until the replica is in the map.
        let Some(_creation) = pool.creations.begin(block.id()) else {
            let (state, stamp) = (ReplicaState::Temporary, block.stamp());
            return Err(StoreError::ReplicaExists { block: block.clone(), state, stamp });
        };
        loop {
            if let Some(there) = pool.replicas.get(block.id()) {
                self.make_way(&there, block, kind)?;
            }
            let replica = self.new_replica(block, kind, options)?;
            let (replica, target, expected) = replica;
            // Held until the writer is registered, so that no other operation takes the replica over before.
            let _change = replica.change.lock();
            match pool.replicas.insert(replica.clone()) {
                Ok(()) => return Ok(ReplicaWriter::new(self, &replica, target, expected)),
                Err(_) => self.discard(&replica),
            }
        }
    }

    /// Returns whether [`Self::create`] of a block without a replica may wait for a disk, and belongs on a blocking
    /// thread: a storage of that type writes in files, or memory is so full that the replica may begin there.
    pub fn create_may_wait(&self, options: &CreateOptions) -> bool {
        let writes_files = |volume: &Arc<Volume>| {
            volume.storage_type == options.storage_type && !volume.is_failed() && volume.engine != Engine::Memory
        };
        // A replica begins in a slot, or with the first slice of a file.
        let begins_with = u64::from(self.options.memory.slab_replica_bytes_max);
        self.volumes.iter().any(writes_files) || self.is_short_of(ChecksumSpec::DEFAULT, begins_with)
    }

    /// Removes the existing replica of the block's id, if the new replica may replace it.
    fn make_way(&self, there: &Arc<Replica>, block: &ExtendedBlock, kind: CreateKind) -> Result<()> {
        let _change = there.change.lock();
        let (stamp, state, gone) = {
            let core = there.core();
            (core.lifecycle.stamp(), core.lifecycle.state(), core.lifecycle.is_gone())
        };
        if gone {
            return Ok(());
        }
        let older = stamp < block.stamp();
        let may = match kind {
            CreateKind::BeingWritten { replace } => replace,
            CreateKind::Transfer => older,
            // A restart's remainder of a writer's block is useless once the block continued without it: the source of a
            // copy has a finalized replica of a later stamp. (Apache's DataNode refuses the copy, which then fails
            // until its next full report.)
            CreateKind::Temporary => older && state != ReplicaState::Finalized && state != ReplicaState::UnderRecovery,
        };
        if !may {
            return Err(StoreError::ReplicaExists { block: there.named(stamp), state, stamp });
        }
        there.stop_writer(self.options.writer_stop_timeout)?;
        self.discard(there);
        Ok(())
    }

    fn new_replica(
        &self,
        block: &ExtendedBlock,
        kind: CreateKind,
        options: &CreateOptions,
    ) -> Result<(Arc<Replica>, WriteTarget, u64)> {
        if !(1..=ChecksumSpec::BYTES_PER_CHUNK_MAX).contains(&options.checksum.bytes_per_chunk) {
            let reason = format!("{} bytes per checksum", options.checksum.bytes_per_chunk);
            return Err(StoreError::BadWrite { block: block.clone(), reason });
        }
        let expected = match options.expected_bytes {
            0 => self.options.default_block_bytes,
            known => known,
        };
        let pool = self.pool(block)?;
        let slice = self.choose_volume(&pool, options.storage_type, expected)?;
        let state = match kind {
            CreateKind::BeingWritten { .. } => ReplicaState::BeingWritten,
            CreateKind::Temporary | CreateKind::Transfer => ReplicaState::Temporary,
        };
        let mut core = Core::with(Lifecycle::new(state, block.stamp()), Copies::new(0), Space::reserved(expected));
        let wanted = CopyRequest {
            slice: &slice,
            id: block.id(),
            checksum: options.checksum,
            expected_bytes: options.expected_bytes,
        };
        let target = match kind {
            CreateKind::Temporary => self.new_copy_target(&wanted, &mut core),
            CreateKind::BeingWritten { .. } | CreateKind::Transfer => self.new_target(&wanted, &mut core),
        };
        let target = target.inspect_err(|_| slice.volume.change_reserved(expected, 0))?;
        Ok((Arc::new(Replica::new(block.id(), slice, core)), target, expected))
    }
}
