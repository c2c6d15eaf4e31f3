//! Cache of responses, by client id and call id, for calls that must not be executed twice.
//!
//! The first arrival gets [`Attempt::New`] and executes the call. A concurrent repetition waits and then gets the
//! stored response. If the first call failed, nothing is stored and the repetition executes the call. Source: Hadoop's
//! `RetryCache`.

use std::collections::{HashMap, VecDeque, hash_map};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use hearth_types::Clock;
use hearth_wire::rpc::ClientId;
use parking_lot::Mutex;
use tokio::sync::Notify;

type Key = (ClientId, i32);

/// Limits of the cache. `lifetime`: `dfs.namenode.retrycache.expirytime.millis`.
#[derive(Clone, Debug)]
pub struct RetryCacheOptions {
    pub lifetime: Duration,
    /// Maximum number of finished entries; the oldest are dropped first.
    pub entries_max: usize,
}

impl Default for RetryCacheOptions {
    fn default() -> Self {
        Self { lifetime: Duration::from_secs(600), entries_max: 200_000 }
    }
}

enum Entry {
    /// Wakes waiting repetitions, if any.
    InProgress(Option<Arc<Notify>>),
    /// Expiry time in milliseconds since the epoch, and the response.
    Finished(u64, Bytes),
}

struct Table {
    entries: HashMap<Key, Entry>,
    /// Finished entries, oldest first. A replaced entry occurs twice; the expiry time tells the two apart.
    order: VecDeque<(u64, Key)>,
}

pub struct RetryCache {
    table: Mutex<Table>,
    options: RetryCacheOptions,
    clock: Arc<dyn Clock>,
}

/// Next step for a call.
pub enum Attempt {
    /// Execute the call, then call [`InProgress::finish`], or drop the guard if it failed.
    New(InProgress),
    /// Return this response.
    Answered(Bytes),
}

impl RetryCache {
    pub fn new(options: RetryCacheOptions, clock: Arc<dyn Clock>) -> Arc<Self> {
        let table = Mutex::new(Table { entries: HashMap::new(), order: VecDeque::new() });
        Arc::new(Self { table, options, clock })
    }

    /// Determines whether this call is new. Waits while an earlier copy of it is being executed.
    pub async fn begin(self: &Arc<Self>, client: ClientId, call_id: i32) -> Attempt {
        let key = (client, call_id);
        loop {
            let ended = {
                let now = self.clock.wall_ms();
                let mut table = self.table.lock();
                table.expire(now, self.options.entries_max);
                match table.entries.get_mut(&key) {
                    Some(Entry::Finished(_, answer)) => return Attempt::Answered(answer.clone()),
                    // Registered under the lock, so the notification of the end cannot be missed.
                    Some(Entry::InProgress(ended)) => ended.get_or_insert_default().clone().notified_owned(),
                    None => {
                        table.entries.insert(key, Entry::InProgress(None));
                        return Attempt::New(InProgress { cache: self.clone(), key, finished: false });
                    }
                }
            };
            // The call may have succeeded or failed.
            ended.await;
        }
    }

    /// Restores an entry that was stored durably. `expires_ms`: milliseconds since the epoch.
    pub fn restore(&self, client: ClientId, call_id: i32, expires_ms: u64, answer: Bytes) {
        self.table.lock().finish((client, call_id), expires_ms, answer);
    }

    /// Returns the expiry time of an entry finished now, in milliseconds since the epoch.
    pub fn expiry_ms(&self) -> u64 {
        self.clock.wall_ms() + self.options.lifetime.as_millis() as u64
    }
}

/// Wakes the tasks that wait for this call.
fn wake(ended: Option<Entry>) {
    if let Some(Entry::InProgress(Some(waiting))) = ended {
        waiting.notify_waiters();
    }
}

impl Table {
    fn finish(&mut self, key: Key, expires_ms: u64, answer: Bytes) {
        wake(self.entries.insert(key, Entry::Finished(expires_ms, answer)));
        self.order.push_back((expires_ms, key));
    }

    fn expire(&mut self, now_ms: u64, entries_max: usize) {
        while let Some(&(expires_ms, key)) = self.order.front() {
            if expires_ms > now_ms && self.order.len() <= entries_max {
                break;
            }
            self.order.pop_front();
            if let hash_map::Entry::Occupied(entry) = self.entries.entry(key)
                && matches!(entry.get(), Entry::Finished(at, _) if *at == expires_ms)
            {
                entry.remove();
            }
        }
    }
}

/// Permission to execute a call. If dropped without `finish`, the call counts as failed and a repetition executes it.
pub struct InProgress {
    cache: Arc<RetryCache>,
    key: Key,
    finished: bool,
}

impl InProgress {
    /// Stores `answer` for repetitions until `expires_ms` (milliseconds since the epoch, see
    /// [`RetryCache::expiry_ms`]).
    pub fn finish(mut self, expires_ms: u64, answer: Bytes) {
        self.cache.table.lock().finish(self.key, expires_ms, answer);
        self.finished = true;
    }
}

impl Drop for InProgress {
    fn drop(&mut self) {
        if !self.finished {
            wake(self.cache.table.lock().entries.remove(&self.key));
        }
    }
}

#[cfg(test)]
mod tests {
    use hearth_types::ManualClock;

    use super::*;

    const CLIENT: ClientId = ClientId([7; 16]);

    fn cache(entries_max: usize) -> (Arc<RetryCache>, Arc<ManualClock>) {
        let clock = Arc::new(ManualClock::at(1_000));
        let options = RetryCacheOptions { lifetime: Duration::from_secs(10), entries_max };
        (RetryCache::new(options, clock.clone()), clock)
    }

    async fn begin_new(cache: &Arc<RetryCache>, call_id: i32) -> InProgress {
        match cache.begin(CLIENT, call_id).await {
            Attempt::New(guard) => guard,
            Attempt::Answered(answer) => panic!("call {call_id} already answered: {answer:?}"),
        }
    }

    #[tokio::test]
    async fn concurrent_repetition_gets_the_first_response() {
        let (cache, _) = cache(100);
        let guard = begin_new(&cache, 1).await;
        let repeated = tokio::spawn({
            let cache = cache.clone();
            async move { matches!(cache.begin(CLIENT, 1).await, Attempt::Answered(answer) if answer == "yes") }
        });
        tokio::task::yield_now().await;
        assert!(!repeated.is_finished());
        guard.finish(cache.expiry_ms(), Bytes::from_static(b"yes"));
        assert!(repeated.await.unwrap());
    }

    #[tokio::test]
    async fn a_failed_call_runs_again() {
        let (cache, _) = cache(100);
        drop(begin_new(&cache, 1).await);
        begin_new(&cache, 1).await;
    }

    #[tokio::test]
    async fn entries_expire_and_are_bounded() {
        let (cache, clock) = cache(2);
        for call_id in 0..3 {
            begin_new(&cache, call_id).await.finish(cache.expiry_ms(), Bytes::new());
        }
        // Over the limit, the oldest entry is dropped and the newest is kept.
        begin_new(&cache, 0).await;
        assert!(matches!(cache.begin(CLIENT, 2).await, Attempt::Answered(_)));
        clock.advance(Duration::from_secs(11));
        begin_new(&cache, 2).await;
    }
}
