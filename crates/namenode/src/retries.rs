//! Stored answers of at-most-once calls: their keys, and their expiry, after which they are removed from disk.

use std::collections::VecDeque;

use hearth_wire::rpc::ClientId;

use crate::changes::RetryKey;

/// Limit of remembered answers, in memory and on disk.
pub const RETRIES_MAX: usize = 200_000;

/// Expiry times of the stored answers, in the order in which they were stored.
#[derive(Default)]
pub struct StoredRetries(VecDeque<u64>);

impl StoredRetries {
    /// `expires_ms`: milliseconds since the epoch, never falling much from one call to the next.
    pub fn push(&mut self, expires_ms: u64) {
        self.0.push_back(expires_ms);
    }

    /// Removes expired and surplus entries from the list, at most a few at a time; returns their number.
    pub fn take_expired(&mut self, now_ms: u64) -> u32 {
        let mut taken = 0;
        while let Some(expires_ms) = self.0.front() {
            if (*expires_ms > now_ms && self.0.len() <= RETRIES_MAX) || taken == 64 {
                break;
            }
            taken += 1;
            self.0.pop_front();
        }
        taken
    }
}

/// Returns the stored key of a call.
pub fn retry_key(client: ClientId, call_id: i32) -> RetryKey {
    let mut key = [0; 20];
    key[..16].copy_from_slice(&client.0);
    key[16..].copy_from_slice(&call_id.to_be_bytes());
    key
}

/// Returns the call of a stored key.
pub fn retry_call(key: &RetryKey) -> (ClientId, i32) {
    let mut client = [0; 16];
    client.copy_from_slice(&key[..16]);
    let mut call_id = [0; 4];
    call_id.copy_from_slice(&key[16..]);
    (ClientId(client), i32::from_be_bytes(call_id))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_read_back_and_answers_expire_in_order() {
        let client = ClientId([9; 16]);
        assert_eq!(retry_call(&retry_key(client, -5)), (client, -5));
        let mut stored = StoredRetries::default();
        stored.push(10);
        stored.push(20);
        assert_eq!(stored.take_expired(9), 0);
        assert_eq!(stored.take_expired(10), 1);
        assert_eq!(stored.take_expired(100), 1);
    }
}
