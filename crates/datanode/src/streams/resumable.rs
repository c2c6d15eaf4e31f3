//! Partial replicas of broken connections, kept for a limited time for a sender that reconnects.

use std::collections::HashMap;
use std::time::Duration;

use hearth_blockstore::ReplicaWriter;
use hearth_types::{BlockId, BlockPoolId, ChecksumSpec, ExtendedBlock};
use parking_lot::Mutex;
use tokio::time::Instant;

/// Maximum number of partial replicas that are kept.
const RESUMABLE_MAX: usize = 64;

/// Properties that must match for a replica to be resumed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ResumeKey {
    /// The block with its final length.
    pub block: ExtendedBlock,
    pub checksum: ChecksumSpec,
}

/// The replicas still count as TEMPORARY, with a writer: they are neither read nor reported.
#[derive(Default)]
pub struct ResumableReplicas {
    replicas: Mutex<HashMap<(BlockPoolId, BlockId), ResumableEntry>>,
}

struct ResumableEntry {
    resume_key: ResumeKey,
    writer: ReplicaWriter,
    until: Instant,
}

impl ResumableReplicas {
    /// `timeout`: time for which it is kept.
    pub fn put(&self, resume_key: ResumeKey, writer: ReplicaWriter, now: Instant, timeout: Duration) {
        if timeout.is_zero() || writer.received() == 0 {
            return;
        }
        let key = (resume_key.block.pool.clone(), resume_key.block.id());
        let entry = ResumableEntry { resume_key, writer, until: now + timeout };
        let mut replicas = self.replicas.lock();
        let gone = if replicas.len() >= RESUMABLE_MAX && !replicas.contains_key(&key) {
            let oldest = replicas.iter().min_by_key(|(_, entry)| entry.until).map(|(key, _)| key.clone());
            oldest.and_then(|oldest| replicas.remove(&oldest))
        } else {
            None
        };
        let replaced = replicas.insert(key, entry);
        drop(replicas);
        discard(gone.into_iter().chain(replaced).collect());
    }

    /// Takes the part of exactly this replica. Discards the part of a different replica of the same block.
    pub fn take(&self, wanted: &ResumeKey) -> Option<ReplicaWriter> {
        let entry = self.replicas.lock().remove(&(wanted.block.pool.clone(), wanted.block.id()))?;
        if entry.resume_key == *wanted {
            return Some(entry.writer);
        }
        // Dropped at once: the block's next replica takes its place.
        drop(entry);
        None
    }

    /// Returns true if there is a part of the block, whatever its stamp and length.
    pub fn has(&self, block: &ExtendedBlock) -> bool {
        self.replicas.lock().contains_key(&(block.pool.clone(), block.id()))
    }

    pub fn forget(&self, block: &ExtendedBlock) {
        drop(self.replicas.lock().remove(&(block.pool.clone(), block.id())));
    }

    pub fn expire(&self, now: Instant) {
        discard(self.replicas.lock().extract_if(|_, entry| entry.until <= now).map(|(_, entry)| entry).collect());
    }

    pub fn clear(&self) {
        self.replicas.lock().clear();
    }
}

/// Removes their files, on a blocking thread.
fn discard(entries: Vec<ResumableEntry>) {
    if entries.is_empty() {
        return;
    }
    for ResumableEntry { resume_key, writer, .. } in &entries {
        tracing::info!(block = %resume_key.block, received = writer.received(), "discarding a partial replica: its sender did not reconnect in time");
    }
    tokio::task::spawn_blocking(move || drop(entries));
}
