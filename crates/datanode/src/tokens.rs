//! Block tokens as this datanode checks and mints them: keys come from the namenodes, with the registration and by
//! command.

use std::sync::Arc;

use hearth_types::{Clock, ExtendedBlock, StorageId, StorageType, Token};
use hearth_wire::proto::hdfs::ExportedBlockKeysProto;

/// What a token must allow. Names as in `AccessModeProto`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Access {
    Read,
    Write,
    Copy,
    Replace,
}

/// Why a token does not open the block.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum TokenError {
    #[error("the request carries no block token")]
    Missing,
}

/// The keys of one pool.
pub struct BlockTokens {
    clock: Arc<dyn Clock>,
    user: String,
}

impl BlockTokens {
    /// `user`: named in the tokens minted here.
    pub fn new(clock: Arc<dyn Clock>, user: &str) -> Self {
        Self { clock, user: user.to_owned() }
    }

    /// Takes over keys that a namenode sent.
    pub fn install(&self, _keys: &ExportedBlockKeysProto) {}

    /// Checks that `token` allows `access` to `block` on these storages.
    pub fn check(
        &self,
        _token: Option<Token>,
        _block: &ExtendedBlock,
        _access: Access,
        _storage_types: &[StorageType],
        _storage_ids: &[StorageId],
    ) -> Result<(), TokenError> {
        let _ = (&self.clock, &self.user);
        Ok(())
    }

    /// A token for writing `block`; empty while tokens are off.
    pub fn mint_write(&self, _block: &ExtendedBlock, _types: &[StorageType], _ids: &[StorageId]) -> Token {
        Token::default()
    }

    #[cfg(test)]
    pub fn for_tests() -> Self {
        Self::new(Arc::new(hearth_types::SystemClock::new()), "test")
    }
}
