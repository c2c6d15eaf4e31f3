use std::collections::HashMap;
use std::fmt;

use hearth_types::{BlockId, ExtendedBlock, StorageId, StorageType, Token};
use hearth_wire::block_token::{
    AccessMode, BLOCK_TOKEN_KIND, BlockTokenEncoding, BlockTokenFormatError, BlockTokenIdentifier,
};
use hearth_wire::proto::hdfs::{BlockKeyProto, ExportedBlockKeysProto};
use hmac::{Hmac, Mac};
use parking_lot::RwLock;
use sha1::Sha1;

/// A key that signs block tokens.
#[derive(Clone, PartialEq, Eq)]
pub struct BlockKey {
    pub id: u32,
    /// Milliseconds since the epoch. The key verifies no token after this time.
    pub expiry_ms: u64,
    pub secret: Vec<u8>,
}

impl fmt::Debug for BlockKey {
    /// Omits the secret, because keys end up in logs.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BlockKey").field("id", &self.id).field("expiry_ms", &self.expiry_ms).finish_non_exhaustive()
    }
}

impl BlockKey {
    pub(super) fn sign(&self, identifier: &[u8]) -> Vec<u8> {
        self.mac(identifier).finalize().into_bytes().to_vec()
    }

    /// Verifies the signature in constant time: the duration does not depend on where the two differ.
    fn verify(&self, identifier: &[u8], password: &[u8]) -> bool {
        self.mac(identifier).verify_slice(password).is_ok()
    }

    fn mac(&self, identifier: &[u8]) -> Hmac<Sha1> {
        let mut mac = Hmac::<Sha1>::new_from_slice(&self.secret).expect("HMAC accepts keys of any length");
        mac.update(identifier);
        mac
    }
}

/// All keys of a pool, as sent from the namenode to datanodes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ExportedKeys {
    /// True if tokens are used at all.
    pub enabled: bool,
    pub update_interval_ms: u64,
    /// Lifetime of a token minted now, in milliseconds.
    pub token_lifetime_ms: u64,
    /// Key that signs new tokens; `None` if tokens are off.
    pub current: Option<BlockKey>,
    /// Keys that verify tokens, including the current one.
    pub all: Vec<BlockKey>,
}

impl ExportedKeys {
    /// Keys for when tokens are off. A datanode also sends this value when it registers.
    pub fn disabled() -> Self {
        Self { enabled: false, update_interval_ms: 0, token_lifetime_ms: 0, current: None, all: Vec::new() }
    }
}

impl From<&BlockKey> for BlockKeyProto {
    fn from(key: &BlockKey) -> Self {
        Self { key_id: key.id, expiry_date: key.expiry_ms, key_bytes: Some(key.secret.clone().into()) }
    }
}

impl From<BlockKeyProto> for BlockKey {
    fn from(message: BlockKeyProto) -> Self {
        Self {
            id: message.key_id,
            expiry_ms: message.expiry_date,
            secret: message.key_bytes.map(|secret| secret.to_vec()).unwrap_or_default(),
        }
    }
}

impl From<&ExportedKeys> for ExportedBlockKeysProto {
    fn from(keys: &ExportedKeys) -> Self {
        // Java requires the current key, and an empty one if there is no key.
        let none = BlockKeyProto { key_id: 0, expiry_date: 0, key_bytes: Some(Default::default()) };
        Self {
            is_block_token_enabled: keys.enabled,
            key_update_interval: keys.update_interval_ms,
            token_life_time: keys.token_lifetime_ms,
            current_key: keys.current.as_ref().map_or(none, Into::into),
            all_keys: keys.all.iter().map(Into::into).collect(),
        }
    }
}

impl From<ExportedBlockKeysProto> for ExportedKeys {
    fn from(message: ExportedBlockKeysProto) -> Self {
        let current = BlockKey::from(message.current_key);
        Self {
            enabled: message.is_block_token_enabled,
            update_interval_ms: message.key_update_interval,
            token_lifetime_ms: message.token_life_time,
            // Anyone could sign with a key without bytes.
            current: Some(current).filter(|key| !key.secret.is_empty()),
            all: message.all_keys.into_iter().map(BlockKey::from).filter(|key| !key.secret.is_empty()).collect(),
        }
    }
}

/// The access that an operation requires of a token.
#[derive(Clone, Copy, Debug)]
pub struct BlockAccess<'a> {
    pub block: &'a ExtendedBlock,
    pub mode: AccessMode,
    /// Storage types of the replicas to write, one entry each; empty if the operation writes nothing.
    pub storage_types: &'a [StorageType],
    pub storage_ids: &'a [StorageId],
}

impl<'a> BlockAccess<'a> {
    /// Access of an operation that writes nothing.
    pub fn new(block: &'a ExtendedBlock, mode: AccessMode) -> Self {
        Self { block, mode, storage_types: &[], storage_ids: &[] }
    }
}

/// Reasons for a token not to allow an operation. Clients receive `ERROR_ACCESS_TOKEN` and then fetch a new token.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum BlockTokenError {
    #[error("no block token for {block}: {source}")]
    Format { block: ExtendedBlock, source: BlockTokenFormatError },
    #[error("the token is for {token_block} of another pool or block, not for {block}")]
    OtherBlock { block: ExtendedBlock, token_block: BlockId },
    #[error("the token of {user} for {block} expired at {expiry_ms} ms")]
    Expired { block: ExtendedBlock, user: String, expiry_ms: u64 },
    #[error("the token of {user} for {block} does not allow {}", .mode.name())]
    Mode { block: ExtendedBlock, user: String, mode: AccessMode },
    #[error("the token of {user} for {block} does not allow the requested storage")]
    Storage { block: ExtendedBlock, user: String },
    #[error("the token of {user} for {block} is signed with key {key_id}, which is unknown here")]
    UnknownKey { block: ExtendedBlock, user: String, key_id: u32 },
    #[error("the token of {user} for {block} has a wrong signature")]
    Signature { block: ExtendedBlock, user: String },
}

/// The keys of one pool on a datanode. Shared by all its connections.
#[derive(Debug, Default)]
pub struct BlockKeys {
    state: RwLock<KeyTable>,
}

#[derive(Debug, Default)]
struct KeyTable {
    enabled: bool,
    token_lifetime_ms: u64,
    /// Id of the key that signs.
    current: Option<u32>,
    /// Keys of all namenodes. The active and the standby namenode use different key ids.
    keys: HashMap<u32, BlockKey>,
}

/// Maximum number of keys kept. A namenode has three, and there are few namenodes.
const KEYS_MAX: usize = 1024;

impl BlockKeys {
    /// Starts with tokens off, until keys are imported.
    pub fn new() -> Self {
        Self::default()
    }

    pub fn is_enabled(&self) -> bool {
        self.state.read().enabled
    }

    /// Imports the keys that a namenode sent at registration or in a key update, and drops expired keys.
    pub fn import(&self, exported: &ExportedKeys, now_ms: u64) {
        let mut state = self.state.write();
        state.enabled = exported.enabled;
        if !exported.enabled {
            return;
        }
        state.token_lifetime_ms = exported.token_lifetime_ms;
        state.keys.retain(|_, key| key.expiry_ms >= now_ms);
        for key in exported.all.iter().chain(&exported.current) {
            if key.expiry_ms >= now_ms && (state.keys.len() < KEYS_MAX || state.keys.contains_key(&key.id)) {
                state.keys.insert(key.id, key.clone());
            }
        }
        if let Some(current) = &exported.current {
            state.current = Some(current.id);
        }
    }

    /// Mints a token for a transfer started by this datanode. Empty if tokens are off, or before a key was imported.
    pub fn mint(&self, user: &str, access: &BlockAccess<'_>, encoding: BlockTokenEncoding, now_ms: u64) -> Token {
        self.mint_for(user, access, &[access.mode], encoding, now_ms)
    }

    /// Like `mint`, but for several modes; the access's own is ignored. A balancer needs one token for the two ends of
    /// a move.
    pub fn mint_for(
        &self,
        user: &str,
        access: &BlockAccess<'_>,
        modes: &[AccessMode],
        encoding: BlockTokenEncoding,
        now_ms: u64,
    ) -> Token {
        let state = self.state.read();
        match state.current.and_then(|id| state.keys.get(&id)) {
            Some(key) if state.enabled => {
                mint(key, user, access, modes, encoding, now_ms.saturating_add(state.token_lifetime_ms))
            }
            _ => Token::default(),
        }
    }

    /// Checks that `token` allows `access`. Passes if tokens are off. The user is not compared: the namenode has
    /// already authorized it.
    pub fn check(&self, token: &Token, access: &BlockAccess<'_>, now_ms: u64) -> Result<(), BlockTokenError> {
        let state = self.state.read();
        if !state.enabled {
            return Ok(());
        }
        let block = || access.block.clone();
        let identifier = BlockTokenIdentifier::decode(&token.identifier)
            .map_err(|source| BlockTokenError::Format { block: block(), source })?;
        if identifier.pool != access.block.pool || identifier.block != access.block.id() {
            return Err(BlockTokenError::OtherBlock { block: block(), token_block: identifier.block });
        }
        let user = identifier.user;
        if identifier.expiry_ms < now_ms {
            return Err(BlockTokenError::Expired { block: block(), user, expiry_ms: identifier.expiry_ms });
        }
        if !identifier.modes.contains(&access.mode) {
            return Err(BlockTokenError::Mode { block: block(), user, mode: access.mode });
        }
        if !holds(&identifier.storage_types, access.storage_types)
            || !holds(&identifier.storage_ids, access.storage_ids)
        {
            return Err(BlockTokenError::Storage { block: block(), user });
        }
        let key_id = identifier.key_id;
        let Some(key) = state.keys.get(&key_id).filter(|key| key.expiry_ms >= now_ms) else {
            return Err(BlockTokenError::UnknownKey { block: block(), user, key_id });
        };
        if !key.verify(&token.identifier, &token.password) {
            return Err(BlockTokenError::Signature { block: block(), user });
        }
        Ok(())
    }
}

/// Returns true if `allowed` contains each item of `wanted`, with multiplicity. An empty `allowed` allows anything.
fn holds<T: PartialEq + Clone>(allowed: &[T], wanted: &[T]) -> bool {
    if allowed.is_empty() {
        return true;
    }
    let mut left = allowed.to_vec();
    wanted.iter().all(|item| match left.iter().position(|candidate| candidate == item) {
        Some(index) => {
            left.swap_remove(index);
            true
        }
        None => false,
    })
}

pub(super) fn mint(
    key: &BlockKey,
    user: &str,
    access: &BlockAccess<'_>,
    modes: &[AccessMode],
    encoding: BlockTokenEncoding,
    expiry_ms: u64,
) -> Token {
    let identifier = BlockTokenIdentifier {
        expiry_ms,
        key_id: key.id,
        user: user.to_owned(),
        pool: access.block.pool.clone(),
        block: access.block.id(),
        modes: modes.to_vec(),
        storage_types: access.storage_types.to_vec(),
        storage_ids: access.storage_ids.to_vec(),
        handshake_secret: Vec::new(),
    }
    .encode(encoding);
    Token { password: key.sign(&identifier), identifier, kind: BLOCK_TOKEN_KIND.to_owned(), service: String::new() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hearth_types::{Block, BlockPoolId, GenerationStamp};

    const NOW: u64 = 1_700_000_000_000;

    fn block() -> ExtendedBlock {
        ExtendedBlock {
            pool: BlockPoolId::new("BP-1-10.0.0.1-1700000000000"),
            block: Block { id: BlockId(1073741825), stamp: GenerationStamp(1001), length: 0 },
        }
    }

    fn key(id: u32) -> BlockKey {
        BlockKey { id, expiry_ms: NOW + 1_200_000, secret: vec![0, 1, 2, 3, 4, 5, 6, 7] }
    }

    fn keys() -> BlockKeys {
        let keys = BlockKeys::new();
        let exported = ExportedKeys {
            enabled: true,
            update_interval_ms: 600_000,
            token_lifetime_ms: 600_000,
            current: Some(key(42)),
            all: vec![key(42), key(43)],
        };
        keys.import(&ExportedBlockKeysProto::from(&exported).into(), NOW);
        keys
    }

    #[test]
    fn signatures_match_java() {
        let block = block();
        let disks = [StorageType::Disk];
        let ids = [StorageId("DS-1".into())];
        let access =
            BlockAccess { storage_types: &disks, storage_ids: &ids, ..BlockAccess::new(&block, AccessMode::Read) };
        for (encoding, signature) in [
            (BlockTokenEncoding::Legacy, "462a9ca3dfb5872f7e82c3f9e78211ed00990f1a"),
            (BlockTokenEncoding::Protobuf, "affc525a170ada92a5e0b41095d617eb4768f9b3"),
        ] {
            let modes = [AccessMode::Read, AccessMode::Write];
            let token = mint(&key(42), "alice", &access, &modes, encoding, NOW + 600_000);
            let hex: String = token.password.iter().map(|byte| format!("{byte:02x}")).collect();
            assert_eq!(hex, signature);
            assert_eq!(keys().check(&token, &access, NOW), Ok(()));
        }
    }

    #[test]
    fn every_check_can_refuse() {
        let keys = keys();
        let block = block();
        let disks = [StorageType::Disk, StorageType::Ssd];
        let write = BlockAccess { storage_types: &disks, ..BlockAccess::new(&block, AccessMode::Write) };
        let token = keys.mint("alice", &write, BlockTokenEncoding::Legacy, NOW);
        assert_eq!(keys.check(&token, &write, NOW), Ok(()));
        assert_eq!(keys.check(&token, &BlockAccess { storage_types: &disks[1..], ..write }, NOW), Ok(()));
        let twice = [StorageType::Disk, StorageType::Disk];
        assert!(matches!(
            keys.check(&token, &BlockAccess { storage_types: &twice, ..write }, NOW),
            Err(BlockTokenError::Storage { .. })
        ));
        let ids = [StorageId("DS-9".into())];
        assert_eq!(keys.check(&token, &BlockAccess { storage_ids: &ids, ..write }, NOW), Ok(()), "no ids: any id");
        let read = BlockAccess::new(&block, AccessMode::Read);
        assert!(matches!(keys.check(&token, &read, NOW), Err(BlockTokenError::Mode { .. })));
        assert!(matches!(keys.check(&token, &write, NOW + 600_001), Err(BlockTokenError::Expired { .. })));
        let mut other = block.clone();
        other.block.id = BlockId(7);
        let elsewhere = BlockAccess { block: &other, ..write };
        assert!(matches!(keys.check(&token, &elsewhere, NOW), Err(BlockTokenError::OtherBlock { .. })));
        assert!(matches!(keys.check(&Token::default(), &write, NOW), Err(BlockTokenError::Format { .. })));
        for flip in 0..token.password.len() {
            let mut forged = token.clone();
            forged.password[flip] ^= 1;
            assert!(matches!(keys.check(&forged, &write, NOW), Err(BlockTokenError::Signature { .. })));
        }
        let short = Token { password: Vec::new(), ..token.clone() };
        assert!(matches!(keys.check(&short, &write, NOW), Err(BlockTokenError::Signature { .. })));
        let unknown = mint(&key(44), "alice", &write, &[AccessMode::Write], BlockTokenEncoding::Legacy, NOW + 1);
        assert!(matches!(keys.check(&unknown, &write, NOW), Err(BlockTokenError::UnknownKey { key_id: 44, .. })));
    }

    #[test]
    fn token_can_allow_several_modes() {
        let keys = keys();
        let block = block();
        let replace = BlockAccess::new(&block, AccessMode::Replace);
        let modes = [AccessMode::Replace, AccessMode::Copy];
        let token = keys.mint_for("alice", &replace, &modes, BlockTokenEncoding::Legacy, NOW);
        for mode in modes {
            assert_eq!(keys.check(&token, &BlockAccess::new(&block, mode), NOW), Ok(()));
        }
        let read = BlockAccess::new(&block, AccessMode::Read);
        assert!(matches!(keys.check(&token, &read, NOW), Err(BlockTokenError::Mode { .. })));
    }

    #[test]
    fn disabled_tokens_pass_and_mint_nothing() {
        let keys = BlockKeys::new();
        let block = block();
        let read = BlockAccess::new(&block, AccessMode::Read);
        assert_eq!(keys.check(&Token::default(), &read, NOW), Ok(()));
        assert_eq!(keys.mint("alice", &read, BlockTokenEncoding::Legacy, NOW), Token::default());
        keys.import(&ExportedBlockKeysProto::from(&ExportedKeys::disabled()).into(), NOW);
        assert!(!keys.is_enabled());
    }
}
