//! Identifier in a block token: the user, the block, the permitted access, and the expiry. It has two encodings,
//! distinguished by the first byte: above 0 a protobuf message, else the older one of Hadoop's Writables.
//!
//! ```text
//! vlong expiry | vint key id | user | pool | vlong block id | vint n, n mode names | vint n, n storage type names
//!              | vint n, n storage ids | vint n, handshake secret (absent when empty)
//! names: vint length, text      user, pool, storage ids: u32 length, text (length -1: null)
//! ```
//! The lists after the modes may be missing altogether. Source: HdfsServer.proto, `BlockTokenSecretProto`;
//! `BlockTokenIdentifier` of Hadoop 3.

use hearth_types::{BlockId, BlockPoolId, StorageId, StorageType};
use prost::Message;

use crate::convert::storage_type_from_wire;
use crate::proto::hdfs::{AccessModeProto, BlockTokenSecretProto};

/// Kind of tokens with such an identifier.
pub const BLOCK_TOKEN_KIND: &str = "HDFS_BLOCK_TOKEN";

/// Permitted access. Numbers as in `AccessModeProto`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
pub enum AccessMode {
    Read = 1,
    Write = 2,
    Copy = 3,
    Replace = 4,
}

impl AccessMode {
    pub fn name(self) -> &'static str {
        match self {
            Self::Read => "READ",
            Self::Write => "WRITE",
            Self::Copy => "COPY",
            Self::Replace => "REPLACE",
        }
    }

    fn from_name(name: &str) -> Option<Self> {
        [Self::Read, Self::Write, Self::Copy, Self::Replace].into_iter().find(|mode| mode.name() == name)
    }
}

/// Encoding in which a NameNode writes identifiers: `dfs.block.access.token.protobuf.enable`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum BlockTokenEncoding {
    #[default]
    Legacy,
    Protobuf,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BlockTokenIdentifier {
    /// Milliseconds since the epoch.
    pub expiry_ms: u64,
    /// Id of the signing key.
    pub key_id: u32,
    /// Empty if null.
    pub user: String,
    pub pool: BlockPoolId,
    pub block: BlockId,
    pub modes: Vec<AccessMode>,
    /// Permitted storage types for writes, one entry per DataNode. Empty: any.
    pub storage_types: Vec<StorageType>,
    pub storage_ids: Vec<StorageId>,
    pub handshake_secret: Vec<u8>,
}

/// Error of bytes that are not an identifier.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum BlockTokenFormatError {
    #[error("block token identifier ends early")]
    Truncated,
    #[error("block token identifier: {what} out of range")]
    OutOfRange { what: &'static str },
    #[error("block token identifier: {what} is not text")]
    NotText { what: &'static str },
    #[error("block token identifier: unknown {what} {name:?}")]
    UnknownName { what: &'static str, name: String },
    #[error("block token identifier: {0}")]
    Protobuf(prost::DecodeError),
}

impl BlockTokenIdentifier {
    pub fn encode(&self, encoding: BlockTokenEncoding) -> Vec<u8> {
        match encoding {
            BlockTokenEncoding::Legacy => self.encode_legacy(),
            BlockTokenEncoding::Protobuf => self.encode_protobuf(),
        }
    }

    /// Decodes either encoding.
    pub fn decode(bytes: &[u8]) -> Result<Self, BlockTokenFormatError> {
        match bytes.first() {
            None => Err(BlockTokenFormatError::Truncated),
            Some(1..=0x7f) => Self::decode_protobuf(bytes),
            Some(_) => Self::decode_legacy(WritableReader { rest: bytes }),
        }
    }

    fn encode_protobuf(&self) -> Vec<u8> {
        BlockTokenSecretProto {
            expiry_date: Some(self.expiry_ms),
            key_id: Some(self.key_id),
            user_id: Some(self.user.clone()),
            block_pool_id: Some(self.pool.as_str().to_owned()),
            block_id: Some(self.block.0 as u64),
            modes: self.modes.iter().map(|mode| *mode as i32).collect(),
            storage_types: self.storage_types.iter().map(|kind| *kind as i32).collect(),
            storage_ids: self.storage_ids.iter().map(ToString::to_string).collect(),
            handshake_secret: (!self.handshake_secret.is_empty()).then(|| self.handshake_secret.clone().into()),
        }
        .encode_to_vec()
    }

    fn decode_protobuf(bytes: &[u8]) -> Result<Self, BlockTokenFormatError> {
        let message = BlockTokenSecretProto::decode(bytes).map_err(BlockTokenFormatError::Protobuf)?;
        let mode = |number: &i32| match AccessModeProto::try_from(*number) {
            Ok(AccessModeProto::Read) => Ok(AccessMode::Read),
            Ok(AccessModeProto::Write) => Ok(AccessMode::Write),
            Ok(AccessModeProto::Copy) => Ok(AccessMode::Copy),
            Ok(AccessModeProto::Replace) => Ok(AccessMode::Replace),
            Err(_) => Err(BlockTokenFormatError::UnknownName { what: "mode", name: number.to_string() }),
        };
        Ok(Self {
            expiry_ms: message.expiry_date(),
            key_id: message.key_id(),
            user: message.user_id().to_owned(),
            pool: BlockPoolId::new(message.block_pool_id()),
            block: BlockId(message.block_id() as i64),
            modes: message.modes.iter().map(mode).collect::<Result<_, _>>()?,
            storage_types: message.storage_types.iter().map(|number| storage_type_from_wire(*number)).collect(),
            storage_ids: message.storage_ids.into_iter().map(|id| StorageId(id.into())).collect(),
            handshake_secret: message.handshake_secret.map(|secret| secret.to_vec()).unwrap_or_default(),
        })
    }

    fn encode_legacy(&self) -> Vec<u8> {
        let mut into = Vec::with_capacity(128);
        put_vlong(self.expiry_ms as i64, &mut into);
        put_vlong(i64::from(self.key_id as i32), &mut into);
        put_long_text(&self.user, &mut into);
        put_long_text(self.pool.as_str(), &mut into);
        put_vlong(self.block.0, &mut into);
        put_vlong(self.modes.len() as i64, &mut into);
        for mode in &self.modes {
            put_short_text(mode.name(), &mut into);
        }
        put_vlong(self.storage_types.len() as i64, &mut into);
        for kind in &self.storage_types {
            put_short_text(kind.name(), &mut into);
        }
        put_vlong(self.storage_ids.len() as i64, &mut into);
        for id in &self.storage_ids {
            put_long_text(&id.0, &mut into);
        }
        if !self.handshake_secret.is_empty() {
            put_vlong(self.handshake_secret.len() as i64, &mut into);
            into.extend_from_slice(&self.handshake_secret);
        }
        into
    }

    fn decode_legacy(mut reader: WritableReader<'_>) -> Result<Self, BlockTokenFormatError> {
        let expiry_ms = u64::try_from(reader.vlong()?).map_err(|_| out_of_range("expiry"))?;
        let key_id = i32::try_from(reader.vlong()?).map_err(|_| out_of_range("key id"))? as u32;
        let user = reader.long_text("user")?;
        let pool = BlockPoolId::new(reader.long_text("block pool id")?);
        let block = BlockId(reader.vlong()?);
        let modes = reader.list(|reader| {
            let name = reader.short_text("mode")?;
            AccessMode::from_name(&name).ok_or(BlockTokenFormatError::UnknownName { what: "mode", name })
        })?;
        // Identifiers of older NameNodes end here.
        let storage_types = reader.optional_list(|reader| {
            let name = reader.short_text("storage type")?;
            let kind = (1..=6).filter_map(StorageType::from_number).find(|kind| kind.name() == name);
            kind.ok_or(BlockTokenFormatError::UnknownName { what: "storage type", name })
        })?;
        let storage_ids = reader.optional_list(|reader| Ok(StorageId(reader.long_text("storage id")?.into())))?;
        let handshake_secret = if reader.rest.is_empty() {
            Vec::new()
        } else {
            let length = reader.length("handshake secret")?;
            reader.take(length)?.to_vec()
        };
        Ok(Self { expiry_ms, key_id, user, pool, block, modes, storage_types, storage_ids, handshake_secret })
    }
}

fn out_of_range(what: &'static str) -> BlockTokenFormatError {
    BlockTokenFormatError::OutOfRange { what }
}

/// Writes Hadoop's variable-length number: one byte for -112 to 127, else the first byte gives the sign and the number
/// of bytes that follow.
fn put_vlong(value: i64, into: &mut Vec<u8>) {
    if (-112..=127).contains(&value) {
        into.push(value as u8);
        return;
    }
    let (first, bits) = if value < 0 { (-121i8, !value) } else { (-113i8, value) };
    let count = (8 - bits.leading_zeros() as usize / 8).max(1);
    into.push((first - (count as i8 - 1)) as u8);
    into.extend_from_slice(&bits.to_be_bytes()[8 - count..]);
}

fn put_short_text(text: &str, into: &mut Vec<u8>) {
    put_vlong(text.len() as i64, into);
    into.extend_from_slice(text.as_bytes());
}

fn put_long_text(text: &str, into: &mut Vec<u8>) {
    into.extend_from_slice(&(text.len() as u32).to_be_bytes());
    into.extend_from_slice(text.as_bytes());
}

struct WritableReader<'a> {
    rest: &'a [u8],
}

impl<'a> WritableReader<'a> {
    fn take(&mut self, bytes: usize) -> Result<&'a [u8], BlockTokenFormatError> {
        let (taken, rest) = self.rest.split_at_checked(bytes).ok_or(BlockTokenFormatError::Truncated)?;
        self.rest = rest;
        Ok(taken)
    }

    fn vlong(&mut self) -> Result<i64, BlockTokenFormatError> {
        let first = self.take(1)?[0] as i8;
        if first >= -112 {
            return Ok(i64::from(first));
        }
        let negative = first <= -121;
        let count = if negative { -120 - i32::from(first) } else { -112 - i32::from(first) } as usize;
        let bits = self.take(count)?.iter().fold(0u64, |bits, byte| bits << 8 | u64::from(*byte)) as i64;
        Ok(if negative { !bits } else { bits })
    }

    fn length(&mut self, what: &'static str) -> Result<usize, BlockTokenFormatError> {
        usize::try_from(self.vlong()?).map_err(|_| out_of_range(what))
    }

    fn short_text(&mut self, what: &'static str) -> Result<String, BlockTokenFormatError> {
        let length = self.length(what)?;
        self.text(length, what)
    }

    /// Reads a text. Null is read as the empty text.
    fn long_text(&mut self, what: &'static str) -> Result<String, BlockTokenFormatError> {
        let prefix = self.take(4)?;
        let length = i32::from_be_bytes([prefix[0], prefix[1], prefix[2], prefix[3]]);
        if length == -1 {
            return Ok(String::new());
        }
        let length = usize::try_from(length).map_err(|_| out_of_range(what))?;
        self.text(length, what)
    }

    fn text(&mut self, length: usize, what: &'static str) -> Result<String, BlockTokenFormatError> {
        String::from_utf8(self.take(length)?.to_vec()).map_err(|_| BlockTokenFormatError::NotText { what })
    }

    /// Reads a list. Memory grows with the actual data, independent of the count.
    fn list<T>(
        &mut self,
        mut item: impl FnMut(&mut Self) -> Result<T, BlockTokenFormatError>,
    ) -> Result<Vec<T>, BlockTokenFormatError> {
        let count = self.length("count")?;
        let mut items = Vec::new();
        for _ in 0..count {
            items.push(item(self)?);
        }
        Ok(items)
    }

    fn optional_list<T>(
        &mut self,
        item: impl FnMut(&mut Self) -> Result<T, BlockTokenFormatError>,
    ) -> Result<Vec<T>, BlockTokenFormatError> {
        if self.rest.is_empty() { Ok(Vec::new()) } else { self.list(item) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::collection::vec;
    use proptest::prelude::*;

    fn bytes(hex: &str) -> Vec<u8> {
        (0..hex.len() / 2).map(|i| u8::from_str_radix(&hex[2 * i..2 * i + 2], 16).unwrap()).collect()
    }

    fn alice() -> BlockTokenIdentifier {
        BlockTokenIdentifier {
            expiry_ms: 1_700_000_600_000,
            key_id: 42,
            user: "alice".into(),
            pool: BlockPoolId::new("BP-1-10.0.0.1-1700000000000"),
            block: BlockId(1073741825),
            modes: vec![AccessMode::Read, AccessMode::Write],
            storage_types: vec![StorageType::Disk],
            storage_ids: vec![StorageId("DS-1".into())],
            handshake_secret: Vec::new(),
        }
    }

    #[test]
    fn golden_in_both_encodings() {
        let legacy = bytes(concat!(
            "8a018bcfee8fc02a00000005616c6963650000001b42502d312d31302e302e302e312d313730303030303030303030308c4000000102045245",
            "414405575249544501044449534b010000000444532d31"
        ));
        assert_eq!(alice().encode(BlockTokenEncoding::Legacy), legacy);
        assert_eq!(BlockTokenIdentifier::decode(&legacy), Ok(alice()));
        let protobuf = bytes(concat!(
            "08c09fbaffbc31102a1a05616c696365221b42502d312d31302e302e302e312d313730303030303030303030302881808080043001300238",
            "01420444532d31"
        ));
        assert_eq!(alice().encode(BlockTokenEncoding::Protobuf), protobuf);
        assert_eq!(BlockTokenIdentifier::decode(&protobuf), Ok(alice()));
    }

    #[test]
    fn an_identifier_may_end_after_the_modes() {
        let old = BlockTokenIdentifier { storage_types: Vec::new(), storage_ids: Vec::new(), ..alice() };
        let encoded = old.encode(BlockTokenEncoding::Legacy);
        assert_eq!(BlockTokenIdentifier::decode(&encoded[..encoded.len() - 2]), Ok(old));
    }

    proptest! {
        #[test]
        fn identifiers_round_trip(expiry in 128u64..1 << 62, key: u32, block: i64, user in ".{0,20}", ids in vec(".{0,9}", 0..4), secret in vec(any::<u8>(), 0..9)) {
            let identifier = BlockTokenIdentifier {
                expiry_ms: expiry,
                key_id: key,
                user,
                block: BlockId(block),
                storage_types: vec![StorageType::RamDisk; ids.len()],
                storage_ids: ids.into_iter().map(|id| StorageId(id.into())).collect(),
                handshake_secret: secret,
                ..alice()
            };
            for encoding in [BlockTokenEncoding::Legacy, BlockTokenEncoding::Protobuf] {
                prop_assert_eq!(BlockTokenIdentifier::decode(&identifier.encode(encoding)), Ok(identifier.clone()));
            }
        }

        #[test]
        fn numbers_round_trip(value: i64) {
            let mut encoded = Vec::new();
            put_vlong(value, &mut encoded);
            prop_assert!(encoded.len() <= 9);
            let mut reader = WritableReader { rest: &encoded };
            prop_assert_eq!(reader.vlong(), Ok(value));
            prop_assert!(reader.rest.is_empty());
        }

        #[test]
        fn any_bytes_are_decoded_or_refused(body in vec(any::<u8>(), 0..200), at in 0usize..80, value: u8) {
            let _ = BlockTokenIdentifier::decode(&body);
            let mut damaged = alice().encode(BlockTokenEncoding::Legacy);
            let at = at.min(damaged.len() - 1);
            damaged[at] = value;
            let _ = BlockTokenIdentifier::decode(&damaged);
        }
    }
}
