//! Checks and mints block tokens. The keys come from the NameNodes, with the registration and by command.

use std::collections::HashSet;
use std::sync::Arc;

use hearth_protocol::block_token::{
    AccessMode, BlockAccess, BlockKeys, BlockTokenEncoding, BlockTokenError, ExportedKeys,
};
use hearth_types::{Clock, ExtendedBlock, StorageId, StorageType, Token};
use parking_lot::Mutex;

use crate::pool::NamenodeIndex;

/// The token of a request does not allow it.
#[derive(Debug, thiserror::Error)]
#[error("access to {block} denied")]
pub struct AccessDenied {
    pub block: ExtendedBlock,
    pub source: BlockTokenError,
}

/// The keys of one pool.
pub struct BlockTokens {
    keys: BlockKeys,
    /// The NameNodes that have tokens enabled.
    enabled_by: Mutex<HashSet<NamenodeIndex>>,
    clock: Arc<dyn Clock>,
    user: String,
}

impl BlockTokens {
    /// `user`: user name in the tokens that are minted here.
    pub fn new(clock: Arc<dyn Clock>, user: &str) -> Self {
        Self { keys: BlockKeys::new(), enabled_by: Mutex::default(), clock, user: user.to_owned() }
    }

    /// Installs keys that a NameNode sent. A NameNode with tokens disabled does not disable them for the others of its
    /// pool.
    pub fn install(&self, namenode: NamenodeIndex, keys: &ExportedKeys) {
        let mut on = self.enabled_by.lock();
        if keys.enabled {
            on.insert(namenode);
        } else {
            on.remove(&namenode);
            if !on.is_empty() {
                tracing::error!(
                    namenode = namenode.0,
                    "this namenode has block tokens disabled, others of its nameservice have them enabled; they stay enabled: set dfs.block.access.token.enable to the same value on all of them"
                );
                return;
            }
        }
        self.keys.import(keys, self.clock.wall_ms());
    }

    /// Returns true if a token is required to read or write.
    pub fn is_enabled(&self) -> bool {
        self.keys.is_enabled()
    }

    /// Checks that `token` allows `mode` for `block`; always succeeds while tokens are disabled.
    pub fn check(&self, token: &Token, block: &ExtendedBlock, mode: AccessMode) -> Result<(), AccessDenied> {
        self.check_access(token, &BlockAccess::new(block, mode))
    }

    /// Like `check`, for writing to these storages, with one entry for each DataNode of the pipeline from here on.
    pub fn check_write(
        &self,
        token: &Token,
        block: &ExtendedBlock,
        storage_types: &[StorageType],
        storage_ids: &[StorageId],
    ) -> Result<(), AccessDenied> {
        self.check_access(token, &BlockAccess { block, mode: AccessMode::Write, storage_types, storage_ids })
    }

    fn check_access(&self, token: &Token, access: &BlockAccess<'_>) -> Result<(), AccessDenied> {
        let checked = self.keys.check(token, access, self.clock.wall_ms());
        checked.map_err(|source| AccessDenied { block: access.block.clone(), source })
    }

    /// Mints a token for writing `block` to other DataNodes; empty while tokens are disabled.
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
    fn one_namenode_cannot_disable_tokens_for_others() {
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
            // The last NameNode that had them enabled was restarted without them.
            (standby, &off, false),
        ] {
            tokens.install(namenode, keys);
            assert_eq!(tokens.is_enabled(), is_enabled);
        }
    }
}
