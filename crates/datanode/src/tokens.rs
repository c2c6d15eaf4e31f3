//! Block tokens as this datanode checks and mints them. Keys come from the namenodes, with the registration and by
//! command.

use std::collections::HashSet;
use std::sync::Arc;

use hearth_protocol::block_token::{
    AccessMode, BlockAccess, BlockKeys, BlockTokenEncoding, BlockTokenError, ExportedKeys,
};
use hearth_types::{Clock, ExtendedBlock, StorageId, StorageType, Token};
use parking_lot::Mutex;

use crate::pool::NamenodeIndex;

/// The keys of one pool.
pub struct BlockTokens {
    keys: BlockKeys,
    /// The namenodes that have tokens on.
    enabled_by: Mutex<HashSet<NamenodeIndex>>,
    clock: Arc<dyn Clock>,
    user: String,
}

impl BlockTokens {
    /// `user`: named in the tokens minted here.
    pub fn new(clock: Arc<dyn Clock>, user: &str) -> Self {
        Self { keys: BlockKeys::new(), enabled_by: Mutex::default(), clock, user: user.to_owned() }
    }

    /// Takes over keys that a namenode sent. One that has tokens off does not switch them off for the others of its pool.
    pub fn install(&self, namenode: NamenodeIndex, keys: &ExportedKeys) {
        let mut on = self.enabled_by.lock();
        if keys.enabled {
            on.insert(namenode);
        } else {
            on.remove(&namenode);
            if !on.is_empty() {
                tracing::error!(
                    namenode = namenode.0,
                    "this namenode has block tokens off, others of its nameservice have them on: they stay on; give all the same dfs.block.access.token.enable"
                );
                return;
            }
        }
        self.keys.import(keys, self.clock.wall_ms());
    }

    /// Whether anybody needs a token to read or write.
    pub fn is_enabled(&self) -> bool {
        self.keys.is_enabled()
    }

    /// Checks that `token` allows `mode` for `block`; everything passes while tokens are off.
    pub fn check(&self, token: &Token, block: &ExtendedBlock, mode: AccessMode) -> Result<(), BlockTokenError> {
        self.keys.check(token, &BlockAccess::new(block, mode), self.clock.wall_ms())
    }

    /// The same for writing on these storages, an entry for each datanode of the pipeline from here on.
    pub fn check_write(
        &self,
        token: &Token,
        block: &ExtendedBlock,
        storage_types: &[StorageType],
        storage_ids: &[StorageId],
    ) -> Result<(), BlockTokenError> {
        let access = BlockAccess { block, mode: AccessMode::Write, storage_types, storage_ids };
        self.keys.check(token, &access, self.clock.wall_ms())
    }

    /// A token for writing `block` to other datanodes; empty while tokens are off.
    pub fn mint_write(&self, block: &ExtendedBlock, storage_types: &[StorageType], storage_ids: &[StorageId]) -> Token {
        let access = BlockAccess { block, mode: AccessMode::Write, storage_types, storage_ids };
        self.keys.mint(&self.user, &access, BlockTokenEncoding::default(), self.clock.wall_ms())
    }

    #[cfg(test)]
    pub fn for_tests() -> Self {
        Self::new(Arc::new(hearth_types::SystemClock::new()), "test")
    }
}

#[cfg(test)]
mod tests {
    use hearth_protocol::block_token::BlockKey;

    use super::*;

    #[test]
    fn one_namenode_does_not_switch_tokens_off_for_the_others() {
        let tokens = BlockTokens::for_tests();
        let key = BlockKey { id: 5, expiry_ms: u64::MAX, secret: b"12345678".to_vec() };
        let on = ExportedKeys {
            enabled: true,
            update_interval_ms: 600_000,
            token_lifetime_ms: 600_000,
            current: Some(key.clone()),
            all: vec![key],
        };
        let off = ExportedKeys::disabled();
        let [active, standby] = [NamenodeIndex(0), NamenodeIndex(1)];
        for (namenode, keys, is_enabled) in [
            (standby, &off, false),
            (active, &on, true),
            (standby, &off, true),
            (standby, &on, true),
            (active, &off, true),
            // The last that had them on was started without them.
            (standby, &off, false),
        ] {
            tokens.install(namenode, keys);
            assert_eq!(tokens.is_enabled(), is_enabled);
        }
    }
}
