//! What a broken connection left of replicas: kept for a while, for a sender that comes back.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use hearth_blockstore::ReplicaWriter;
use hearth_types::{BlockId, BlockPoolId, ExtendedBlock};
use parking_lot::Mutex;

use super::sink::Progress;

/// Replicas that are kept at most.
const KEPT_MAX: usize = 64;

/// They still count as TEMPORARY, with a writer: nobody reads or reports them.
pub struct Kept {
    timeout: Duration,
    replicas: Mutex<HashMap<(BlockPoolId, BlockId), Entry>>,
}

struct Entry {
    progress: Progress,
    writer: ReplicaWriter,
    until: Instant,
}

impl Kept {
    pub fn new(timeout: Duration) -> Self {
        Self { timeout, replicas: Mutex::default() }
    }

    pub fn put(&self, progress: Progress, writer: ReplicaWriter) {
        if self.timeout.is_zero() || writer.received() == 0 {
            return;
        }
        let key = (progress.block.pool.clone(), progress.block.id());
        let entry = Entry { progress, writer, until: Instant::now() + self.timeout };
        let mut replicas = self.replicas.lock();
        let gone = if replicas.len() >= KEPT_MAX && !replicas.contains_key(&key) {
            let oldest = replicas.iter().min_by_key(|(_, entry)| entry.until).map(|(key, _)| key.clone());
            oldest.and_then(|oldest| replicas.remove(&oldest))
        } else {
            None
        };
        let replaced = replicas.insert(key, entry);
        drop(replicas);
        discard(gone.into_iter().chain(replaced).collect());
    }

    /// What there is of exactly this replica. What there is of another one of the same block goes.
    pub fn take(&self, wanted: &Progress) -> Option<ReplicaWriter> {
        let entry = self.replicas.lock().remove(&(wanted.block.pool.clone(), wanted.block.id()))?;
        if entry.progress == *wanted {
            return Some(entry.writer);
        }
        // Here and now: the block's next replica takes its place.
        drop(entry);
        None
    }

    /// Something of it, whatever its stamp and length.
    pub fn has(&self, block: &ExtendedBlock) -> bool {
        self.replicas.lock().contains_key(&(block.pool.clone(), block.id()))
    }

    pub fn forget(&self, block: &ExtendedBlock) {
        drop(self.replicas.lock().remove(&(block.pool.clone(), block.id())));
    }

    pub fn expire(&self) {
        let now = Instant::now();
        discard(self.replicas.lock().extract_if(|_, entry| entry.until <= now).map(|(_, entry)| entry).collect());
    }

    pub fn clear(&self) {
        self.replicas.lock().clear();
    }
}

/// Their files are removed, on a thread that may wait for that.
fn discard(entries: Vec<Entry>) {
    if entries.is_empty() {
        return;
    }
    for Entry { progress, writer, .. } in &entries {
        tracing::info!(block = %progress.block, received = writer.received(), "nobody came back to send the rest of a replica");
    }
    tokio::task::spawn_blocking(move || drop(entries));
}
