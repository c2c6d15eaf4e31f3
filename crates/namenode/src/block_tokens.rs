//! Block tokens on the namenode: switching them on or off, and signing located blocks.

use hearth_config::{ConfigError, Configuration, keys};
use hearth_protocol::block_token::{
    AccessMode, BlockAccess, BlockKeyMaster, BlockKeyMasterOptions, BlockTokenEncoding, ExportedKeys,
};
use hearth_types::LocatedBlock;

/// Error from enabling block tokens.
#[derive(Debug, thiserror::Error)]
pub enum BlockTokensError {
    #[error(transparent)]
    Configuration(#[from] ConfigError),
    #[error("cannot read random bytes for block keys: {0}")]
    Randomness(getrandom::Error),
}

/// The namenode's half of `dfs.block.access.token.enable`. Keys are new at every start; datanodes receive them when
/// they register.
pub struct BlockTokens(Option<BlockKeyMaster>);

impl BlockTokens {
    pub fn off() -> Self {
        Self(None)
    }

    pub fn on(options: BlockKeyMasterOptions, now_ms: u64) -> Result<Self, BlockTokensError> {
        Ok(Self(Some(BlockKeyMaster::new(options, now_ms).map_err(BlockTokensError::Randomness)?)))
    }

    pub fn from_configuration(configuration: &Configuration, now_ms: u64) -> Result<Self, BlockTokensError> {
        if !configuration.get(keys::DFS_BLOCK_ACCESS_TOKEN_ENABLE)? {
            return Ok(Self::off());
        }
        let protobuf = configuration.get(keys::DFS_BLOCK_ACCESS_TOKEN_PROTOBUF_ENABLE)?;
        let options = BlockKeyMasterOptions {
            update_interval_ms: configuration.get(keys::DFS_BLOCK_ACCESS_KEY_UPDATE_INTERVAL)?.as_millis() as u64,
            token_lifetime_ms: configuration.get(keys::DFS_BLOCK_ACCESS_TOKEN_LIFETIME)?.as_millis() as u64,
            encoding: if protobuf { BlockTokenEncoding::Protobuf } else { BlockTokenEncoding::Legacy },
        };
        Self::on(options, now_ms)
    }

    pub fn is_on(&self) -> bool {
        self.0.is_some()
    }

    /// Gives the block a token of `mode` for its locations. If tokens are off, the token stays empty.
    ///
    /// `mode`: `Read` for readers, `Write` for the pipelines of addBlock, append and updateBlockForPipeline, `Copy` for
    /// getAdditionalDatanode (the source's right to transfer).
    pub fn sign(&self, located: &mut LocatedBlock, mode: AccessMode, user: &str, now_ms: u64) {
        let Some(master) = &self.0 else { return };
        let access = BlockAccess {
            storage_types: &located.storage_types,
            storage_ids: &located.storage_ids,
            ..BlockAccess::new(&located.block, mode)
        };
        located.token = master.mint(user, &access, &[mode], now_ms);
    }

    /// Returns the keys to send to datanodes.
    pub fn exported(&self) -> ExportedKeys {
        self.0.as_ref().map_or_else(ExportedKeys::disabled, BlockKeyMaster::export)
    }

    /// Rolls the keys if they are due. Returns true if they changed and must be announced.
    pub fn roll(&self, now_ms: u64) -> bool {
        match self.0.as_ref().map(|master| master.update(now_ms)) {
            None | Some(Ok(false)) => false,
            Some(Ok(true)) => true,
            Some(Err(error)) => {
                // The old keys stay valid for a while; the next tick retries.
                tracing::error!(%error, "cannot create a new block key; retrying");
                false
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hearth_protocol::block_token::BlockKeys;
    use hearth_types::{Block, BlockId, BlockPoolId, ExtendedBlock, GenerationStamp, StorageId, StorageType};

    fn located() -> LocatedBlock {
        let block = Block { id: BlockId(1), stamp: GenerationStamp(1001), length: 5 };
        LocatedBlock {
            storage_ids: vec![StorageId("DS-1".into())],
            storage_types: vec![StorageType::Disk],
            ..LocatedBlock::nowhere(ExtendedBlock { pool: BlockPoolId::new("BP-1"), block })
        }
    }

    #[test]
    fn datanode_with_keys_accepts_signed_tokens() {
        let tokens = BlockTokens::on(BlockKeyMasterOptions::default(), 1000).unwrap();
        let datanode = BlockKeys::new();
        datanode.import(&tokens.exported(), 1000);
        let mut located = located();
        tokens.sign(&mut located, AccessMode::Write, "alice", 1000);
        let access = BlockAccess::new(&located.block, AccessMode::Write);
        datanode.check(&located.token, &access, 1000).unwrap();
        assert!(datanode.check(&located.token, &BlockAccess { mode: AccessMode::Read, ..access }, 1000).is_err());
        assert!(!tokens.roll(1001));
        assert!(tokens.roll(1000 + 36_000_000));
    }

    #[test]
    fn switched_off_by_default() {
        let tokens = BlockTokens::from_configuration(&Configuration::empty(), 0).unwrap();
        let mut located = located();
        tokens.sign(&mut located, AccessMode::Read, "alice", 0);
        assert_eq!(located.token, Default::default());
        assert!(!tokens.exported().enabled);
    }
}
