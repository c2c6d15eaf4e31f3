//! Block tokens as this datanode checks and mints them. Keys come from the namenodes, with the registration and by
//! command.

use std::sync::Arc;

use hearth_protocol::block_token::{Access, AccessMode, BlockKeys, BlockTokenEncoding, BlockTokenError, ExportedKeys};
use hearth_types::{Clock, ExtendedBlock, StorageId, StorageType, Token};

/// The keys of one pool.
pub struct BlockTokens {
    keys: BlockKeys,
    clock: Arc<dyn Clock>,
    user: String,
}

impl BlockTokens {
    /// `user`: named in the tokens minted here.
    pub fn new(clock: Arc<dyn Clock>, user: &str) -> Self {
        Self { keys: BlockKeys::new(), clock, user: user.to_owned() }
    }

    /// Takes over keys that a namenode sent.
    pub fn install(&self, keys: &ExportedKeys) {
        self.keys.import(keys, self.clock.wall_ms());
    }

    /// Whether anybody needs a token to read or write.
    pub fn are_on(&self) -> bool {
        self.keys.is_enabled()
    }

    /// Checks that `token` allows `mode` for `block`; everything passes while tokens are off.
    pub fn check(&self, token: &Token, block: &ExtendedBlock, mode: AccessMode) -> Result<(), BlockTokenError> {
        self.keys.check(token, &Access::new(block, mode), self.clock.wall_ms())
    }

    /// The same for writing on these storages, an entry for each datanode of the pipeline from here on.
    pub fn check_write(
        &self,
        token: &Token,
        block: &ExtendedBlock,
        storage_types: &[StorageType],
        storage_ids: &[StorageId],
    ) -> Result<(), BlockTokenError> {
        let access = Access { block, mode: AccessMode::Write, storage_types, storage_ids };
        self.keys.check(token, &access, self.clock.wall_ms())
    }

    /// A token for writing `block` to other datanodes; empty while tokens are off.
    pub fn mint_write(&self, block: &ExtendedBlock, storage_types: &[StorageType], storage_ids: &[StorageId]) -> Token {
        let access = Access { block, mode: AccessMode::Write, storage_types, storage_ids };
        self.keys.mint(&self.user, &access, BlockTokenEncoding::default(), self.clock.wall_ms())
    }

    #[cfg(test)]
    pub fn for_tests() -> Self {
        Self::new(Arc::new(hearth_types::SystemClock::new()), "test")
    }
}
