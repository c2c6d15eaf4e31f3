use hearth_types::Token;
use hearth_wire::block_token::{AccessMode, BlockTokenEncoding};
use parking_lot::Mutex;

use super::keys::{BlockAccess, BlockKey, BlockKeys, BlockTokenError, ExportedKeys, mint};

/// Lifetimes of keys and tokens. The defaults are Hadoop's.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BlockKeyMasterOptions {
    /// `dfs.block.access.key.update.interval`, here in milliseconds.
    pub update_interval_ms: u64,
    /// `dfs.block.access.token.lifetime`, here in milliseconds.
    pub token_lifetime_ms: u64,
    pub encoding: BlockTokenEncoding,
}

impl Default for BlockKeyMasterOptions {
    fn default() -> Self {
        Self { update_interval_ms: 36_000_000, token_lifetime_ms: 36_000_000, encoding: BlockTokenEncoding::default() }
    }
}

/// Keys of a namenode's pool: creates them and rolls them over.
///
/// There is a current key, a next key (sent to datanodes before it is used), and retired keys, which verify tokens
/// until the last token that they signed has expired. Keys are not kept over a restart: datanodes get the new keys when
/// they register again, and clients fetch new tokens.
#[derive(Debug)]
pub struct BlockKeyMaster {
    options: BlockKeyMasterOptions,
    state: Mutex<KeyRotation>,
    /// Verifies tokens that were minted here (delegated checks, tests).
    checker: BlockKeys,
}

#[derive(Debug)]
struct KeyRotation {
    serial: u32,
    current: BlockKey,
    next: BlockKey,
    retired: Vec<BlockKey>,
    updated_ms: u64,
}

/// Length of a key in bytes: 64 bits, as Java's generator produces for HmacSHA1.
const SECRET_BYTES: usize = 8;

impl BlockKeyMaster {
    /// Creates the first keys. Fails only if the system provides no random bytes.
    pub fn new(options: BlockKeyMasterOptions, now_ms: u64) -> Result<Self, getrandom::Error> {
        let mut serial = [0; 4];
        getrandom::fill(&mut serial)?;
        // Positive, with room to count up: Java stores an int.
        let serial = u32::from_be_bytes(serial) >> 2;
        let interval = options.update_interval_ms;
        let current = new_key(serial, now_ms + 2 * interval + options.token_lifetime_ms)?;
        let next = new_key(serial + 1, now_ms + 3 * interval + options.token_lifetime_ms)?;
        let state = KeyRotation { serial: serial + 1, current, next, retired: Vec::new(), updated_ms: now_ms };
        let master = Self { options, state: Mutex::new(state), checker: BlockKeys::new() };
        master.checker.import(&master.export(), now_ms);
        Ok(master)
    }

    /// Rolls the keys over when they are due. Returns true if [`BlockKeyMaster::export`] must be sent to all datanodes.
    pub fn update(&self, now_ms: u64) -> Result<bool, getrandom::Error> {
        let (interval, lifetime) = (self.options.update_interval_ms, self.options.token_lifetime_ms);
        {
            let mut state = self.state.lock();
            if now_ms < state.updated_ms.saturating_add(interval) {
                return Ok(false);
            }
            let serial = (state.serial + 1) & i32::MAX as u32;
            let fresh = new_key(serial, now_ms + 3 * interval + lifetime)?;
            state.serial = serial;
            let next = std::mem::replace(&mut state.next, fresh);
            let mut retired = std::mem::replace(&mut state.current, next);
            state.current.expiry_ms = now_ms + 2 * interval + lifetime;
            retired.expiry_ms = now_ms + interval + lifetime;
            state.retired.push(retired);
            state.retired.retain(|key| key.expiry_ms >= now_ms);
            state.updated_ms = now_ms;
        }
        self.checker.import(&self.export(), now_ms);
        Ok(true)
    }

    /// Returns the keys to send to datanodes.
    pub fn export(&self) -> ExportedKeys {
        let state = self.state.lock();
        ExportedKeys {
            enabled: true,
            update_interval_ms: self.options.update_interval_ms,
            token_lifetime_ms: self.options.token_lifetime_ms,
            current: Some(state.current.clone()),
            all: [&state.current, &state.next].into_iter().chain(&state.retired).cloned().collect(),
        }
    }

    /// Mints a token for `user`. `modes` replaces `access.mode`, which is ignored.
    pub fn mint(&self, user: &str, access: &BlockAccess<'_>, modes: &[AccessMode], now_ms: u64) -> Token {
        let state = self.state.lock();
        let expiry_ms = now_ms.saturating_add(self.options.token_lifetime_ms);
        mint(&state.current, user, access, modes, self.options.encoding, expiry_ms)
    }

    pub fn check(&self, token: &Token, access: &BlockAccess<'_>, now_ms: u64) -> Result<(), BlockTokenError> {
        self.checker.check(token, access, now_ms)
    }
}

fn new_key(id: u32, expiry_ms: u64) -> Result<BlockKey, getrandom::Error> {
    let mut secret = vec![0; SECRET_BYTES];
    getrandom::fill(&mut secret)?;
    Ok(BlockKey { id, expiry_ms, secret })
}

#[cfg(test)]
mod tests {
    use super::*;
    use hearth_types::{Block, BlockId, BlockPoolId, ExtendedBlock, GenerationStamp};

    #[test]
    fn tokens_survive_rollover_until_expiry() {
        let options = BlockKeyMasterOptions { update_interval_ms: 100, token_lifetime_ms: 250, ..Default::default() };
        let master = BlockKeyMaster::new(options, 1000).unwrap();
        // A datanode that receives new keys one interval late.
        let datanode = BlockKeys::new();
        datanode.import(&master.export(), 1000);
        let block = ExtendedBlock {
            pool: BlockPoolId::new("BP-1"),
            block: Block { id: BlockId(1), stamp: GenerationStamp(1), length: 0 },
        };
        let read = BlockAccess::new(&block, AccessMode::Read);
        let mut tokens = Vec::new();
        let mut ids = Vec::new();
        for now in (1000..3000).step_by(10) {
            let before = master.export();
            if master.update(now).unwrap() {
                assert!(now >= 1100);
                datanode.import(&before, now);
                ids.push(master.export().current.unwrap().id);
            }
            tokens.push((now, master.mint("alice", &read, &[AccessMode::Read], now)));
            for (minted, token) in &tokens {
                let good = now <= minted + 250;
                assert_eq!(master.check(token, &read, now).is_ok(), good, "minted {minted}, now {now}");
                assert_eq!(datanode.check(token, &read, now).is_ok(), good, "minted {minted}, now {now}");
            }
            assert!(master.export().all.len() <= 2 + 4);
        }
        assert_eq!(ids.len(), 19);
        ids.dedup();
        assert_eq!(ids.len(), 19, "each rollover has a key of its own");
    }
}
