//! Stored form of an inode. `rebuild.rs` builds a namespace from these records.
//!
//! ```text
//! record  = 1 (form), kind (1 directory, 2 file), parent id, name, owner, group, mode, mtime, atime, policy,
//!           file part?, extensions
//! file    = block size, replication, open (0 | 1, client, machine, truncating), count, block*
//! truncating = 0 | 1, length | 2, length, copied from | 3, length, told
//! block   = id (zig-zag), stamp, length, state
//! ```
//! Numbers are varints as in protobuf. Texts are a length and bytes. Extensions (`features.rs`) are tagged, so that an
//! older version refuses an unknown one instead of losing it.

use hearth_types::{Block, BlockId, FsPermission, GenerationStamp};

use super::features::Features;
use super::file::{BlockRecord, FilePart, RecordState, Truncation, Writer};
use super::history::PendingTruncation;
use super::inode::{Inode, InodeId, InodeKind};
use super::packed_inode::Attributes;
use super::principals::PrincipalId;
use super::writers::Writers;

const FORM: u8 = 1;
const DIRECTORY: u8 = 1;
const FILE: u8 = 2;

/// Reason why the stored namespace cannot be loaded.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum RecordError {
    #[error("the record of inode {inode} is damaged at byte {offset}")]
    Damaged { inode: u64, offset: usize },
    #[error("the record of inode {inode} has form {form}, written by a newer version")]
    Newer { inode: u64, form: u8 },
    #[error("inode {inode} has parent directory {parent}, which does not exist")]
    NoParent { inode: u64, parent: u64 },
    #[error("inode {inode} has parent inode {parent}, which is a file")]
    ParentIsFile { inode: u64, parent: u64 },
    #[error("directory {parent} has two entries named {name}")]
    Twice { parent: u64, name: String },
    #[error("there is no root directory")]
    NoRoot,
    #[error("inode {inode} cannot be reached from the root")]
    Unreachable { inode: u64 },
    #[error("inode {inode} names owner or group {name}, which is not known")]
    UnknownName { inode: u64, name: u32 },
    #[error("owner and group names are stored out of order at number {number}")]
    Names { number: u32 },
    #[error("snapshot {snapshot} is of inode {root}, which does not exist")]
    NoSnapshotRoot { snapshot: u32, root: u64 },
    #[error("inode {inode} is newer than the newest inode on record, {last}")]
    Counter { inode: u64, last: u64 },
    #[error("the newest generation stamp on record, {stamp}, is larger than a stamp can be")]
    Stamp { stamp: GenerationStamp },
}

pub(super) fn encode(inode: &Inode, parent: InodeId) -> Vec<u8> {
    let file = inode.as_file();
    let writer = file.and_then(FilePart::writer).map_or(0, |writer| writer.client.len() + writer.machine.len());
    // The usual sizes of numbers take half of this.
    let mut out = Vec::with_capacity(64 + inode.name.len() + writer + file.map_or(0, |file| 24 * file.blocks().len()));
    out.push(FORM);
    out.push(if inode.is_directory() { DIRECTORY } else { FILE });
    put(&mut out, parent.0);
    put_bytes(&mut out, &inode.name);
    let attributes = inode.attributes();
    put(&mut out, u64::from(attributes.owner.0));
    put(&mut out, u64::from(attributes.group.0));
    put(&mut out, u64::from(attributes.permission.0));
    put(&mut out, attributes.modification_time_ms);
    put(&mut out, attributes.access_time_ms);
    out.push(attributes.storage_policy);
    if let InodeKind::File(file) = inode.kind() {
        put(&mut out, attributes.block_size);
        put(&mut out, u64::from(attributes.replication));
        match file.writer() {
            None => out.push(0),
            Some(writer) => {
                out.push(1);
                put_bytes(&mut out, writer.client.as_bytes());
                put_bytes(&mut out, writer.machine.as_bytes());
                match writer.truncation {
                    None => out.push(0),
                    Some(Truncation { length, copied_from: Some(source), .. }) => {
                        out.push(2);
                        put(&mut out, length);
                        put(&mut out, zigzag(source));
                    }
                    Some(Truncation { length, told, copied_from: None }) if told == length => {
                        out.push(1);
                        put(&mut out, length);
                    }
                    Some(Truncation { length, told, copied_from: None }) => {
                        out.push(3);
                        put(&mut out, length);
                        put(&mut out, told);
                    }
                }
            }
        }
        put_blocks(&mut out, file.blocks().iter());
    }
    match inode.features() {
        None => Features::default().encode(attributes.since, &mut out),
        Some(features) => features.encode(attributes.since, &mut out),
    }
    out
}

fn zigzag(block: BlockId) -> u64 {
    ((block.0 << 1) ^ (block.0 >> 63)) as u64
}

fn from_zigzag(number: u64) -> BlockId {
    BlockId((number >> 1) as i64 ^ -((number & 1) as i64))
}

fn put_blocks(out: &mut Vec<u8>, blocks: impl ExactSizeIterator<Item = BlockRecord>) {
    put(out, blocks.len() as u64);
    for block in blocks {
        put(out, zigzag(block.id));
        put(out, block.stamp().0);
        put(out, block.length);
        out.push(block.state as u8);
    }
}

/// Encodes a snapshot state of an inode: the start of its range of snapshots, then the record.
pub(super) fn encode_version(from: u32, frozen: &Inode, parent: InodeId) -> Vec<u8> {
    let mut out = Vec::new();
    put(&mut out, u64::from(from));
    out.extend(encode(frozen, parent));
    out
}

/// Encodes blocks that only snapshots have: their last known records, their pending truncations, and the storage policy
/// of a removed file. Trailing parts that are empty or 0 are left out, which is nearly always the case. An older
/// version without truncations or policies refuses rows that have them, and loses nothing.
pub(super) fn encode_snapshot_blocks(blocks: &[BlockRecord], cuts: &[PendingTruncation], policy: u8) -> Vec<u8> {
    let mut out = Vec::new();
    put_blocks(&mut out, blocks.iter().copied());
    if !cuts.is_empty() || policy != 0 {
        put(&mut out, cuts.len() as u64);
    }
    for cut in cuts {
        put(&mut out, zigzag(cut.block));
        out.push(u8::from(cut.copied_from.is_some()));
        if let Some(source) = cut.copied_from {
            put(&mut out, zigzag(source));
        }
    }
    if policy != 0 {
        out.push(policy);
    }
    out
}

pub(super) fn decode_snapshot_blocks(
    reader: &mut RecordReader<'_>,
) -> Option<(Vec<BlockRecord>, Vec<PendingTruncation>, u8)> {
    let blocks = decode_blocks(reader)?;
    let (mut cuts, mut policy) = (Vec::new(), 0);
    if reader.at < reader.bytes.len() {
        for _ in 0..reader.number()? {
            let block = from_zigzag(reader.number()?);
            let copied_from = if reader.flag()? { Some(from_zigzag(reader.number()?)) } else { None };
            cuts.push(PendingTruncation { block, copied_from });
        }
    }
    if reader.at < reader.bytes.len() {
        policy = reader.byte()?;
    }
    (reader.at == reader.bytes.len()).then_some((blocks, cuts, policy))
}

pub(super) fn put(out: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

pub(super) fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    put(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

/// Reader of a record. Each method returns `None` at the place where the record is too short or invalid.
pub(super) struct RecordReader<'a> {
    pub(super) bytes: &'a [u8],
    pub(super) at: usize,
}

impl<'a> RecordReader<'a> {
    pub(super) fn byte(&mut self) -> Option<u8> {
        let byte = *self.bytes.get(self.at)?;
        self.at += 1;
        Some(byte)
    }

    pub(super) fn flag(&mut self) -> Option<bool> {
        match self.byte()? {
            0 => Some(false),
            1 => Some(true),
            _ => None,
        }
    }

    pub(super) fn number(&mut self) -> Option<u64> {
        let mut number = 0u64;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            number |= u64::from(byte & 0x7F).checked_shl(shift)?;
            if byte & 0x80 == 0 {
                return (shift < 63 || byte <= 1).then_some(number);
            }
        }
        None
    }

    pub(super) fn small<T: TryFrom<u64>>(&mut self) -> Option<T> {
        T::try_from(self.number()?).ok()
    }

    pub(super) fn slice(&mut self) -> Option<&'a [u8]> {
        let length: usize = self.small()?;
        let end = self.at.checked_add(length)?;
        let slice = self.bytes.get(self.at..end)?;
        self.at = end;
        Some(slice)
    }

    pub(super) fn text(&mut self) -> Option<String> {
        String::from_utf8(self.slice()?.to_vec()).ok()
    }
}

/// Decodes an inode without its place in the tree, and its parent's id. `writers` shares the writers of open files.
pub(super) fn decode(id: InodeId, bytes: &[u8], writers: &mut Writers) -> Result<(Inode, InodeId), RecordError> {
    let mut reader = RecordReader { bytes, at: 0 };
    match reader.byte() {
        Some(FORM) => {}
        Some(form) if form > FORM => return Err(RecordError::Newer { inode: id.0, form }),
        _ => return Err(RecordError::Damaged { inode: id.0, offset: 0 }),
    }
    match decode_rest(id, &mut reader, writers) {
        Some(found) if reader.at == bytes.len() => Ok(found),
        _ => Err(RecordError::Damaged { inode: id.0, offset: reader.at }),
    }
}

fn decode_rest(id: InodeId, reader: &mut RecordReader<'_>, writers: &mut Writers) -> Option<(Inode, InodeId)> {
    let kind = reader.byte()?;
    let parent = InodeId(reader.number()?);
    let name = reader.slice()?.into();
    let owner = PrincipalId(reader.small()?);
    let group = PrincipalId(reader.small()?);
    let permission = FsPermission(reader.small()?);
    let modification_time_ms = reader.number()?;
    let access_time_ms = reader.number()?;
    let storage_policy = reader.byte()?;
    let (kind, block_size, replication) = match kind {
        DIRECTORY => (InodeKind::Directory(Box::default()), 0, 0),
        FILE => {
            let (block_size, replication) = (reader.number()?, reader.small()?);
            (InodeKind::File(decode_file(reader, writers)?), block_size, replication)
        }
        _ => return None,
    };
    let (features, since) = Features::decode(reader)?;
    let attributes = Attributes {
        id,
        owner,
        group,
        permission,
        storage_policy,
        replication,
        block_size,
        modification_time_ms,
        access_time_ms,
        since,
    };
    let mut inode = Inode::new(attributes, features, kind);
    inode.name = name;
    Some((inode, parent))
}

/// Decodes the part that only files have, from the writer on.
fn decode_file(reader: &mut RecordReader<'_>, writers: &mut Writers) -> Option<FilePart> {
    let writer = if reader.flag()? {
        let client = reader.text()?;
        let machine = reader.text()?;
        let how = reader.byte()?;
        let truncation = if how == 0 {
            None
        } else {
            let length = reader.number()?;
            let (told, copied_from) = match how {
                1 => (length, None),
                2 => (length, Some(from_zigzag(reader.number()?))),
                3 => (reader.number()?, None),
                _ => return None,
            };
            Some(Truncation { length, told, copied_from })
        };
        Some(Writer { client, machine, truncation })
    } else {
        None
    };
    let mut file = FilePart::new(decode_blocks(reader)?);
    if let Some(writer) = writer {
        file.open(writers.share(writer));
    }
    Some(file)
}

fn decode_blocks(reader: &mut RecordReader<'_>) -> Option<Vec<BlockRecord>> {
    let count: usize = reader.small()?;
    // A block takes at least four bytes, so a damaged count cannot request more memory than the record has.
    let mut blocks = Vec::with_capacity(count.min(reader.bytes.len() / 4));
    for _ in 0..count {
        let id = from_zigzag(reader.number()?);
        let stamp = Some(GenerationStamp(reader.number()?)).filter(|stamp| *stamp <= BlockRecord::STAMP_MAX)?;
        let block = Block { id, stamp, length: reader.number()? };
        blocks.push(BlockRecord::new(block, RecordState::from_number(reader.byte()?)?));
    }
    Some(blocks)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::changes::Counters;
    use crate::namespace::quota::Quota;
    use crate::namespace::{Limits, Rebuild};
    use hearth_types::{Access, AclEntry, AclScope, AclType};
    use hearth_types::{Xattr, XattrSpace};

    fn file_inode() -> Inode {
        let block = |id, stamp, length| Block { id: BlockId(id), stamp: GenerationStamp(stamp), length };
        let first = BlockRecord::new(block(1073741825, 1001, 5), RecordState::Complete);
        let second = BlockRecord::new(block(-9, BlockRecord::STAMP_MAX.0, u64::MAX), RecordState::Committed);
        let mut file = FilePart::new(vec![first, second]);
        file.open(Writer {
            client: "DFSClient_1".into(),
            machine: "127.0.0.1".into(),
            truncation: Some(Truncation { length: 3, told: 3, copied_from: Some(BlockId(-7)) }),
        });
        let attributes = Attributes {
            id: InodeId(16400),
            owner: PrincipalId(0),
            group: PrincipalId(1),
            permission: FsPermission(0o1644),
            storage_policy: 7,
            replication: 3,
            block_size: 134_217_728,
            modification_time_ms: 1_700_000_000_000,
            access_time_ms: 0,
            since: 300,
        };
        let features = Features {
            xattrs: vec![Xattr { space: XattrSpace::User, name: "note".into(), value: [1, 0, 255].into() }],
            acl: vec![AclEntry {
                scope: AclScope::Access,
                kind: AclType::User,
                name: Some("bob".into()),
                access: Access::ALL,
            }],
            quota: Some(Box::new(Quota { names: Some(7), space: Some(u64::MAX >> 1), ..Quota::default() })),
            history: None,
        };
        let mut inode = Inode::new(attributes, features, InodeKind::File(file));
        inode.name = "é".as_bytes().into();
        inode
    }

    #[test]
    fn inode_record_round_trips() {
        let truncations = [
            None,
            Some(Truncation { length: 3, told: 3, copied_from: None }),
            Some(Truncation { length: 3, told: 3, copied_from: Some(BlockId(-7)) }),
            Some(Truncation { length: 3, told: u64::MAX, copied_from: None }),
        ];
        for truncation in truncations {
            let mut file = file_inode();
            let writer = file.as_file_mut().and_then(FilePart::writer_mut).unwrap();
            writer.truncation = truncation;
            let bytes = encode(&file, InodeId(16399));
            let (inode, parent) = decode(InodeId(16400), &bytes, &mut Writers::default()).unwrap();
            assert_eq!(parent, InodeId(16399));
            assert_eq!(format!("{inode:?}"), format!("{file:?}"));
        }
    }

    #[test]
    fn oversized_stamp_is_damage() {
        let mut record = vec![1];
        for (stamp, fits) in
            [(BlockRecord::STAMP_MAX.0, true), (BlockRecord::STAMP_MAX.0 + 1, false), (u64::MAX, false)]
        {
            record.truncate(1);
            record.push(2);
            put(&mut record, stamp);
            record.extend([5, RecordState::Complete as u8]);
            let blocks = decode_blocks(&mut RecordReader { bytes: &record, at: 0 });
            assert_eq!(blocks.is_some_and(|blocks| blocks[0].stamp().0 == stamp), fits);
        }
        let counters = Counters { last_stamp: u64::MAX, ..Counters::FRESH };
        let refused = Rebuild::start(Limits::default(), counters, []).err();
        assert_eq!(refused, Some(RecordError::Stamp { stamp: GenerationStamp(u64::MAX) }));
    }

    #[test]
    fn snapshot_blocks_row_round_trips() {
        let block = Block { id: BlockId(-9), stamp: GenerationStamp(1001), length: 5 };
        let blocks = [BlockRecord::new(block, RecordState::Complete)];
        let cut = PendingTruncation { block: BlockId(-9), copied_from: Some(BlockId(-7)) };
        let (none, one): (&[PendingTruncation], &[PendingTruncation]) = (&[], &[cut]);
        for (cuts, policy) in [(none, 0), (one, 0), (none, 7), (one, 15)] {
            let record = encode_snapshot_blocks(&blocks, cuts, policy);
            let found = decode_snapshot_blocks(&mut RecordReader { bytes: &record, at: 0 });
            assert_eq!(found, Some((blocks.to_vec(), cuts.to_vec(), policy)));
        }
        // Without truncations and policy it equals the form before they were introduced.
        let mut before = Vec::new();
        put_blocks(&mut before, blocks.iter().copied());
        assert_eq!(encode_snapshot_blocks(&blocks, &[], 0), before);
    }

    #[test]
    fn newer_record_form_is_refused() {
        let mut bytes = encode(&file_inode(), InodeId(16399));
        bytes[0] = 2;
        assert_eq!(
            decode(InodeId(7), &bytes, &mut Writers::default()).unwrap_err(),
            RecordError::Newer { inode: 7, form: 2 }
        );
    }

    proptest! {
        #[test]
        fn any_attributes_round_trip(attributes in crate::namespace::packed_inode::tests::attributes()) {
            let inode = Inode::new(attributes, Features::default(), InodeKind::File(FilePart::default()));
            let (decoded, _) = decode(attributes.id, &encode(&inode, InodeId(16399)), &mut Writers::default()).unwrap();
            prop_assert_eq!(decoded.attributes(), attributes);
        }

        #[test]
        fn damaged_record_never_panics(at in 0usize..100, byte: u8, cut in 0usize..100) {
            let mut bytes = encode(&file_inode(), InodeId(16399));
            let length = bytes.len();
            bytes[at % length] = byte;
            bytes.truncate(length - cut % length);
            let _ = decode(InodeId(16400), &bytes, &mut Writers::default());
        }

        #[test]
        fn decoding_random_bytes_never_panics(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = decode(InodeId(16400), &bytes, &mut Writers::default());
        }
    }
}
