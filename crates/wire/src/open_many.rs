//! `openMany`, Hearth's own method of ClientProtocol: the block locations of many files, in one call. DataNodes are
//! listed once, because many blocks share them.

use std::collections::HashMap;

use bytes::Bytes;
use hearth_types::{
    Block, BlockId, BlockPoolId, DatanodeInfo, DatanodeUuid, ExtendedBlock, GenerationStamp, LocatedBlock,
    LocatedBlocks, Token,
};
use prost::Message;

use crate::convert::ConvertError;
use crate::proto::hearth as proto;

/// Name of the method.
pub const METHOD: &str = "openMany";

/// Maximum number of paths of one call.
pub const PATHS_MAX: usize = 4096;

/// Size from which an answer is complete: the file that exceeds it is the last one in it.
pub const ANSWER_BYTES: usize = 4 << 20;

/// Reason why a path could not be opened.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct OpenFailure {
    /// Java's exception class.
    pub exception: String,
    pub message: String,
}

/// Part of the answer for one path.
pub type Opened = Result<LocatedBlocks, OpenFailure>;

/// Returns the request message.
pub fn request(paths: &[String], offset: u64, length: u64) -> proto::OpenManyRequestProto {
    proto::OpenManyRequestProto { paths: paths.to_vec(), offset, length }
}

/// Builder of an answer.
#[derive(Default)]
pub struct OpenManyAnswer {
    message: proto::OpenManyResponseProto,
    datanode_indices: HashMap<DatanodeUuid, u32>,
    bytes: usize,
}

impl OpenManyAnswer {
    /// Adds the part for the next path.
    ///
    /// Panics: if a block has another pool than the others, which does not occur on a NameNode.
    pub fn push(&mut self, opened: Opened) {
        let file = match opened {
            Ok(located) => {
                let last = located.last_block.as_ref().filter(|_| !located.last_block_complete);
                proto::OpenedFileProto {
                    file_length: Some(located.file_length),
                    under_construction: Some(located.under_construction),
                    last_block_complete: Some(located.last_block_complete),
                    last_block: last.map(|block| self.block(block)),
                    blocks: located.blocks.iter().map(|block| self.block(block)).collect(),
                    ..Default::default()
                }
            }
            Err(OpenFailure { exception, message }) => {
                proto::OpenedFileProto { exception: Some(exception), message: Some(message), ..Default::default() }
            }
        };
        // The length prefix is not counted.
        self.bytes += file.encoded_len();
        self.message.files.push(file);
    }

    /// Returns whether no further part may be added.
    pub fn is_full(&self) -> bool {
        self.bytes >= ANSWER_BYTES || self.message.files.len() >= PATHS_MAX
    }

    pub fn encode(&self) -> Bytes {
        self.message.encode_to_vec().into()
    }

    fn block(&mut self, located: &LocatedBlock) -> proto::OpenedBlockProto {
        let ExtendedBlock { pool, block } = &located.block;
        let known = self.message.pool.get_or_insert_with(|| pool.as_str().to_owned());
        assert_eq!(known, pool.as_str(), "a namenode has one pool");
        proto::OpenedBlockProto {
            id: block.id.0 as u64,
            generation_stamp: block.stamp.0,
            length: block.length,
            offset: located.offset,
            replicas: located.locations.iter().map(|datanode| self.datanode_index(datanode)).collect(),
            corrupt: located.corrupt.then_some(true),
            token: (located.token != Token::default()).then(|| (&located.token).into()),
        }
    }

    fn datanode_index(&mut self, datanode: &DatanodeInfo) -> u32 {
        if let Some(place) = self.datanode_indices.get(&datanode.id.uuid) {
            return *place;
        }
        let place = self.message.datanodes.len() as u32;
        let message = crate::proto::hdfs::DatanodeInfoProto::from(datanode);
        self.bytes += message.encoded_len();
        self.message.datanodes.push(message);
        self.datanode_indices.insert(datanode.id.uuid.clone(), place);
        place
    }
}

/// Returns the parts of an answer to `asked` paths.
pub fn decode_response(message: proto::OpenManyResponseProto, asked: usize) -> Result<Vec<Opened>, ConvertError> {
    let actual = message.files.len();
    if actual == 0 || actual > asked {
        return Err(ConvertError::Count { field: "files of openMany", expected: asked, actual });
    }
    let pool = BlockPoolId::new(message.pool.unwrap_or_default());
    let datanodes: Vec<DatanodeInfo> =
        message.datanodes.into_iter().map(DatanodeInfo::try_from).collect::<Result<_, _>>()?;
    let block = |block: proto::OpenedBlockProto| {
        if pool.as_str().is_empty() {
            return Err(ConvertError::Empty { field: "block pool of openMany" });
        }
        let datanode = |place: u32| {
            let value = u64::from(place);
            datanodes
                .get(place as usize)
                .cloned()
                .ok_or(ConvertError::OutOfRange { field: "place of a datanode", value })
        };
        let identity = Block {
            id: BlockId(block.id as i64),
            stamp: GenerationStamp(block.generation_stamp),
            length: block.length,
        };
        Ok(LocatedBlock {
            block: ExtendedBlock { pool: pool.clone(), block: identity },
            offset: block.offset,
            locations: block.replicas.into_iter().map(datanode).collect::<Result<_, _>>()?,
            storage_ids: Vec::new(),
            storage_types: Vec::new(),
            corrupt: block.corrupt.unwrap_or(false),
            token: block.token.map(Token::from).unwrap_or_default(),
            advertisements: Vec::new(),
            cached: Vec::new(),
        })
    };
    let file = |file: proto::OpenedFileProto| {
        if let Some(exception) = file.exception {
            return Ok(Err(OpenFailure { exception, message: file.message.unwrap_or_default() }));
        }
        Ok(Ok(LocatedBlocks {
            file_length: file.file_length.unwrap_or_default(),
            under_construction: file.under_construction.unwrap_or(false),
            blocks: file.blocks.into_iter().map(block).collect::<Result<_, _>>()?,
            last_block: file.last_block.map(block).transpose()?,
            last_block_complete: file.last_block_complete.unwrap_or(false),
        }))
    };
    message.files.into_iter().map(file).collect()
}

#[cfg(test)]
mod tests {
    use hearth_types::DatanodeId;
    use proptest::prelude::*;

    use super::*;

    fn datanode(name: &str) -> DatanodeInfo {
        DatanodeInfo {
            offer: Some(Bytes::from_static(b"offer")),
            location: "/rack".to_owned(),
            ..DatanodeInfo::of(DatanodeId {
                ip: "10.0.0.1".to_owned(),
                host_name: name.to_owned(),
                uuid: DatanodeUuid(name.into()),
                transfer_port: 9866,
                info_port: 0,
                ipc_port: 9867,
                info_secure_port: 0,
            })
        }
    }

    fn block(id: i64, length: u64, locations: Vec<DatanodeInfo>) -> LocatedBlock {
        let identity = Block { id: BlockId(id), stamp: GenerationStamp(1001), length };
        LocatedBlock {
            locations,
            token: Token { identifier: vec![id as u8], ..Token::default() },
            ..LocatedBlock::nowhere(ExtendedBlock { pool: BlockPoolId::new("BP-1-127.0.0.1-1"), block: identity })
        }
    }

    fn file(blocks: Vec<LocatedBlock>, last_block: Option<LocatedBlock>) -> LocatedBlocks {
        let file_length = blocks.iter().map(|block| block.block.length()).sum();
        LocatedBlocks {
            file_length,
            under_construction: last_block.is_some(),
            last_block_complete: last_block.is_none(),
            blocks,
            last_block,
        }
    }

    fn answer(parts: &[Opened]) -> Bytes {
        let mut answer = OpenManyAnswer::default();
        parts.iter().for_each(|part| answer.push(part.clone()));
        answer.encode()
    }

    fn decode(bytes: &[u8], asked: usize) -> Result<Vec<Opened>, ConvertError> {
        super::decode_response(proto::OpenManyResponseProto::decode(bytes).expect("a message"), asked)
    }

    #[test]
    fn parts_round_trip_and_datanodes_are_sent_once() {
        let (one, other) = (datanode("one"), datanode("other"));
        let not = OpenFailure { exception: "java.io.FileNotFoundException".into(), message: "no".into() };
        let parts = vec![
            Ok(file(vec![block(1, 10, vec![one.clone(), other.clone()])], None)),
            Err(not),
            Ok(file(Vec::new(), Some(block(-2, 0, vec![other])))),
            Ok(file(Vec::new(), None)),
            Ok(file(vec![block(3, 5, vec![one])], None)),
        ];
        let bytes = answer(&parts);
        assert_eq!(proto::OpenManyResponseProto::decode(&bytes[..]).unwrap().datanodes.len(), 2);
        assert_eq!(decode(&bytes, 5).unwrap(), parts);
        assert_eq!(decode(&bytes, 9).unwrap().len(), 5, "fewer than were asked for is allowed");
        assert!(decode(&bytes, 4).is_err(), "more is not");
        assert!(decode(&answer(&[]), 1).is_err(), "and none neither");
    }

    #[test]
    fn invalid_indices_and_missing_pool_are_rejected() {
        let bytes = answer(&[Ok(file(vec![block(1, 10, vec![datanode("one")])], None))]);
        let mut message = proto::OpenManyResponseProto::decode(&bytes[..]).unwrap();
        message.files[0].blocks[0].replicas = vec![1];
        assert!(super::decode_response(message.clone(), 1).is_err());
        message.files[0].blocks[0].replicas.clear();
        message.pool = None;
        assert!(super::decode_response(message, 1).is_err());
    }

    proptest! {
        #[test]
        fn damaged_answers_are_decoded_or_refused(at in 0usize..300, value: u8, cut in 0usize..300) {
            let parts = [Ok(file(vec![block(1, 10, vec![datanode("one")])], Some(block(2, 3, vec![datanode("b")]))))];
            let mut bytes = answer(&parts).to_vec();
            let at = at.min(bytes.len() - 1);
            bytes[at] = value;
            for _ in 0..2 {
                if let Ok(message) = proto::OpenManyResponseProto::decode(&bytes[..]) {
                    let _ = super::decode_response(message, 1);
                }
                bytes.truncate(cut);
            }
        }
    }
}
