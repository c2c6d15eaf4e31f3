//! Replicas whose datanode recently refused one-sided reads of them.

use std::collections::HashMap;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use super::advertised_replica::Key;

/// Time for which a refusal of one-sided reads of a replica is remembered.
const REFUSAL_BACKOFF: Duration = Duration::from_secs(5);

/// Maximum number of refusals remembered.
const REFUSALS_MAX: usize = 4096;

/// Times of the refusals.
#[derive(Debug, Default)]
pub(super) struct Refusals(Mutex<HashMap<Key, Instant>>);

impl Refusals {
    /// Returns true if the replica was refused recently.
    pub(super) fn has(&self, key: &Key) -> bool {
        let refused = self.0.lock().get(key).copied();
        refused.is_some_and(|refused| refused.elapsed() < REFUSAL_BACKOFF)
    }

    pub(super) fn note(&self, key: Key) {
        let mut refusals = self.0.lock();
        if refusals.len() >= REFUSALS_MAX {
            refusals.retain(|_, since| since.elapsed() < REFUSAL_BACKOFF);
        }
        if refusals.len() < REFUSALS_MAX {
            refusals.insert(key, Instant::now());
        }
    }
}
