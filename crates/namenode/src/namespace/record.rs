//! The stored form of an inode, and the namespace's return from it.
//!
//! ```text
//! record  = 1 (form), kind (1 directory, 2 file), parent id, name, owner, group, mode, mtime, atime, policy,
//!           file part?, extensions
//! file    = block size, replication, open (0 | 1, client, machine, truncating (0 | 1, length | 2, length, copied from | 3, length, told)), count, block*
//! block   = id (zig-zag), stamp, length, state
//! ```
//! Numbers are varints as in protobuf; texts are a length and bytes. Extensions (`extra.rs`) are tagged, so that an older
//! version refuses what it does not know instead of losing it.

use hearth_types::{Block, BlockId, FsPermission, GenerationStamp};

use super::arena::Arena;
use super::extra::Extra;
use super::file::{BlockRecord, BlockState, FilePart, Truncation, Writer};
use super::history::{Cut, LOST, Snapshot, Timeline, Version};
use super::inode::{Inode, InodeId, InodeKind, Slot};
use super::names::{NameId, Names};
use super::plain::Attributes;
use super::{Limits, Namespace, compare_names};
use crate::changes::Counters;
use crate::sparse::Sparse;

const FORM: u8 = 1;
const DIRECTORY: u8 = 1;
const FILE: u8 = 2;

/// Why the stored namespace cannot be taken back.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum RecordError {
    #[error("the record of inode {inode} is damaged at byte {offset}")]
    Damaged { inode: u64, offset: usize },
    #[error("the record of inode {inode} has form {form}, written by a newer version")]
    Newer { inode: u64, form: u8 },
    #[error("inode {inode} stands in directory {parent}, which does not exist")]
    NoParent { inode: u64, parent: u64 },
    #[error("inode {inode} stands in inode {parent}, which is a file")]
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
    // Usual numbers take half of it.
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
    match inode.extra() {
        None => Extra::default().encode(attributes.since, &mut out),
        Some(extra) => extra.encode(attributes.since, &mut out),
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

/// A state of an inode that snapshots have: since when it held, and the record.
pub(super) fn encode_version(from: u32, frozen: &Inode, parent: InodeId) -> Vec<u8> {
    let mut out = Vec::new();
    put(&mut out, u64::from(from));
    out.extend(encode(frozen, parent));
    out
}

/// Blocks that only snapshots have, as they last were, the cuts behind them, and the storage policy of a file that is gone. At the end
/// what is empty, or 0, is left out, as nearly always: an older version, which knows no cuts or no policy, refuses them and loses nothing.
pub(super) fn encode_lost(blocks: &[BlockRecord], cuts: &[Cut], policy: u8) -> Vec<u8> {
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

fn decode_lost(reader: &mut Reader<'_>) -> Option<(Vec<BlockRecord>, Vec<Cut>, u8)> {
    let blocks = decode_blocks(reader)?;
    let (mut cuts, mut policy) = (Vec::new(), 0);
    if reader.at < reader.bytes.len() {
        for _ in 0..reader.number()? {
            let block = from_zigzag(reader.number()?);
            let copied_from = if reader.flag()? { Some(from_zigzag(reader.number()?)) } else { None };
            cuts.push(Cut { block, copied_from });
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

/// Reads a record; every shortfall is `None` at the place where it was found.
pub(super) struct Reader<'a> {
    pub(super) bytes: &'a [u8],
    pub(super) at: usize,
}

impl<'a> Reader<'a> {
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

    fn small<T: TryFrom<u64>>(&mut self) -> Option<T> {
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

/// The inode without its place, and the id of its parent.
fn decode(id: InodeId, bytes: &[u8]) -> Result<(Inode, InodeId), RecordError> {
    let mut reader = Reader { bytes, at: 0 };
    match reader.byte() {
        Some(FORM) => {}
        Some(form) if form > FORM => return Err(RecordError::Newer { inode: id.0, form }),
        _ => return Err(RecordError::Damaged { inode: id.0, offset: 0 }),
    }
    match decode_rest(id, &mut reader) {
        Some(found) if reader.at == bytes.len() => Ok(found),
        _ => Err(RecordError::Damaged { inode: id.0, offset: reader.at }),
    }
}

fn decode_rest(id: InodeId, reader: &mut Reader<'_>) -> Option<(Inode, InodeId)> {
    let kind = reader.byte()?;
    let parent = InodeId(reader.number()?);
    let name = reader.slice()?.into();
    let owner = NameId(reader.small()?);
    let group = NameId(reader.small()?);
    let permission = FsPermission(reader.small()?);
    let modification_time_ms = reader.number()?;
    let access_time_ms = reader.number()?;
    let storage_policy = reader.byte()?;
    let (kind, block_size, replication) = match kind {
        DIRECTORY => (InodeKind::Directory(Box::default()), 0, 0),
        FILE => {
            let (block_size, replication) = (reader.number()?, reader.small()?);
            (InodeKind::File(decode_file(reader)?), block_size, replication)
        }
        _ => return None,
    };
    let (extra, since) = Extra::decode(reader)?;
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
    let mut inode = Inode::new(attributes, extra, kind);
    inode.name = name;
    Some((inode, parent))
}

/// What only files have, from their writer on.
fn decode_file(reader: &mut Reader<'_>) -> Option<FilePart> {
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
        file.open(writer);
    }
    Some(file)
}

fn decode_blocks(reader: &mut Reader<'_>) -> Option<Vec<BlockRecord>> {
    let count: usize = reader.small()?;
    // A block takes at least four bytes: a damaged count cannot ask for more memory than the record has.
    let mut blocks = Vec::with_capacity(count.min(reader.bytes.len() / 4));
    for _ in 0..count {
        let id = from_zigzag(reader.number()?);
        let stamp = Some(GenerationStamp(reader.number()?)).filter(|stamp| *stamp <= BlockRecord::STAMP_MAX)?;
        let block = Block { id, stamp, length: reader.number()? };
        blocks.push(BlockRecord::new(block, BlockState::from_number(reader.byte()?)?));
    }
    Some(blocks)
}

/// Takes a stored namespace back, record by record.
pub struct Rebuild {
    namespace: Namespace,
    /// Inodes in the order of their ids, with the ids of their parents.
    waiting: Vec<(Slot, InodeId)>,
    /// States in snapshots: their inode, since when and until when they held, where they stand, and the id of the parent.
    versions: Vec<(InodeId, Version, InodeId)>,
}

impl Rebuild {
    /// `names`: every stored user and group name with its number, in the order of the numbers.
    pub fn start(
        limits: Limits,
        counters: Counters,
        stored_names: impl IntoIterator<Item = (u32, String)>,
    ) -> Result<Self, RecordError> {
        let mut names = Names::default();
        for (number, name) in stored_names {
            if !names.restore(number, &name) {
                return Err(RecordError::Names { number });
            }
        }
        let stamp = GenerationStamp(counters.last_stamp);
        if stamp >= BlockRecord::STAMP_MAX {
            return Err(RecordError::Stamp { stamp });
        }
        let namespace = Namespace {
            inodes: Arena::default(),
            by_id: Sparse::default(),
            root: Slot(0),
            names,
            counters,
            limits,
            files: 0,
            blocks: 0,
            changed: Vec::new(),
            removed: Vec::new(),
            counters_changed: false,
            quotas: 0,
            touched: Vec::new(),
            timeline: Timeline::default(),
            recent: Default::default(),
        };
        Ok(Self { namespace, waiting: Vec::new(), versions: Vec::new() })
    }

    pub fn inode(&mut self, id: u64, record: &[u8]) -> Result<(), RecordError> {
        let (inode, parent) = decode(InodeId(id), record)?;
        let names = self.namespace.names.count() as u32;
        if let Some(name) = [inode.owner().0, inode.group().0].into_iter().find(|name| *name >= names) {
            return Err(RecordError::UnknownName { inode: id, name });
        }
        if id > self.namespace.counters.last_inode {
            return Err(RecordError::Counter { inode: id, last: self.namespace.counters.last_inode });
        }
        if let Some(file) = inode.as_file() {
            self.namespace.files += 1;
            self.namespace.blocks += file.blocks().len() as u64;
        }
        self.namespace.quotas += u64::from(inode.quota().is_some());
        let slot = self.namespace.inodes.insert(inode);
        self.namespace.by_id.insert(id, slot);
        self.waiting.push((slot, parent));
        Ok(())
    }

    /// A row of the table of versions: `until` is the number of the last snapshot that can have it, or `LOST`.
    pub fn version(&mut self, id: u64, until: u32, bytes: &[u8]) -> Result<(), RecordError> {
        let damaged = || RecordError::Damaged { inode: id, offset: 0 };
        let id = InodeId(id);
        let mut reader = Reader { bytes, at: 0 };
        if until == LOST {
            let slot = *self.namespace.by_id.get(id.0).ok_or_else(damaged)?;
            let (lost, cuts, policy) = decode_lost(&mut reader).ok_or_else(damaged)?;
            let inode = self.namespace.inodes.get_mut(slot);
            let history = inode.history_mut();
            (history.lost, history.cuts) = (lost, cuts);
            if history.gone {
                inode.change(|attributes| attributes.storage_policy = policy);
            }
            return Ok(());
        }
        let from = reader.small().ok_or_else(damaged)?;
        let (frozen, parent) = decode(id, &bytes[reader.at..])?;
        let names = self.namespace.names.count() as u32;
        if let Some(name) = [frozen.owner().0, frozen.group().0].into_iter().find(|name| *name >= names) {
            return Err(RecordError::UnknownName { inode: id.0, name });
        }
        if !self.namespace.by_id.contains(id.0) {
            let slot = self.namespace.inodes.insert(frozen.ghost());
            self.namespace.by_id.insert(id.0, slot);
            self.namespace.timeline.gone += 1;
        }
        let frozen = self.namespace.inodes.insert(frozen);
        self.versions.push((id, Version { from, until, frozen }, parent));
        Ok(())
    }

    /// A row of the table of snapshots.
    pub fn snapshot(&mut self, snapshot: Snapshot, root: u64) -> Result<(), RecordError> {
        let namespace = &mut self.namespace;
        let slot = namespace.slot(InodeId(root)).ok_or(RecordError::NoSnapshotRoot { snapshot: snapshot.id, root })?;
        namespace.timeline.roots.insert(snapshot.id, slot);
        let snapshots = namespace.inodes.get_mut(slot).history_mut().snapshots.get_or_insert_default();
        snapshots.push(snapshot);
        snapshots.sort_by(|a, b| compare_names(a.name.as_bytes(), b.name.as_bytes()));
        Ok(())
    }

    /// Links everything and checks that it is one tree.
    pub fn finish(mut self) -> Result<Namespace, RecordError> {
        let namespace = &mut self.namespace;
        namespace.root = namespace.slot(InodeId::ROOT).ok_or(RecordError::NoRoot)?;
        if !namespace.inode(namespace.root).is_directory() {
            return Err(RecordError::NoRoot);
        }
        let root = namespace.root;
        for (slot, parent) in std::mem::take(&mut self.waiting) {
            let id = namespace.inode(slot).id();
            let parent_slot = namespace.slot(parent).ok_or(RecordError::NoParent { inode: id.0, parent: parent.0 })?;
            namespace.inodes.get_mut(slot).parent = parent_slot;
            if slot == namespace.root {
                continue;
            }
            if !namespace.inode(parent_slot).is_directory() {
                return Err(RecordError::ParentIsFile { inode: id.0, parent: parent.0 });
            }
            let name = &namespace.inode(slot).name;
            if namespace.child(parent_slot, name).is_some() {
                return Err(RecordError::Twice { parent: parent.0, name: String::from_utf8_lossy(name).into_owned() });
            }
            let InodeKind::Directory(children) = namespace.inodes.get_mut(parent_slot).kind_mut() else {
                unreachable!("seen to be a directory")
            };
            let mut children = std::mem::take(&mut **children);
            let name = &namespace.inode(slot).name;
            children.insert(slot, |other| compare_names(&namespace.inode(other).name, name));
            namespace.put_children(parent_slot, children);
        }
        check_reachable(namespace)?;
        for (id, version, parent) in std::mem::take(&mut self.versions) {
            let parent_slot = *namespace.by_id.get(parent.0).unwrap_or(&root);
            namespace.inodes.get_mut(version.frozen).parent = parent_slot;
            namespace.restore_version(id, version);
        }
        let snapshottable = |slot: &Slot| namespace.inode(*slot).snapshots().is_some();
        namespace.timeline.snapshottable =
            namespace.by_id.values().copied().filter(snapshottable).map(|slot| namespace.inode(slot).id()).collect();
        let limited = |slot: &Slot| namespace.inode(*slot).quota().is_some();
        let limited: Vec<Slot> = namespace.by_id.values().copied().filter(limited).collect();
        for slot in limited {
            namespace.recount(slot);
        }
        Ok(self.namespace)
    }
}

/// A cycle would hang every walk up the tree.
fn check_reachable(namespace: &Namespace) -> Result<(), RecordError> {
    let mut seen = 0u64;
    let mut waiting = vec![namespace.root];
    let mut reached = Sparse::<()>::default();
    while let Some(slot) = waiting.pop() {
        let inode = namespace.inode(slot);
        seen += 1;
        reached.insert(inode.id().0, ());
        if let Some(children) = inode.children() {
            waiting.extend(children.iter());
        }
    }
    if seen == namespace.inode_count() - namespace.timeline.gone {
        return Ok(());
    }
    let lost = namespace.iter().map(|inode| inode.id().0).find(|id| !reached.contains(*id));
    Err(RecordError::Unreachable { inode: lost.unwrap_or_default() })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::namespace::quota::Quota;
    use hearth_types::{Access, AclEntry, AclScope, AclType};
    use hearth_types::{Xattr, XattrSpace};

    fn file_inode() -> Inode {
        let block = |id, stamp, length| Block { id: BlockId(id), stamp: GenerationStamp(stamp), length };
        let first = BlockRecord::new(block(1073741825, 1001, 5), BlockState::Complete);
        let second = BlockRecord::new(block(-9, BlockRecord::STAMP_MAX.0, u64::MAX), BlockState::Committed);
        let mut file = FilePart::new(vec![first, second]);
        file.open(Writer {
            client: "DFSClient_1".into(),
            machine: "127.0.0.1".into(),
            truncation: Some(Truncation { length: 3, told: 3, copied_from: Some(BlockId(-7)) }),
        });
        let attributes = Attributes {
            id: InodeId(16400),
            owner: NameId(0),
            group: NameId(1),
            permission: FsPermission(0o1644),
            storage_policy: 7,
            replication: 3,
            block_size: 134_217_728,
            modification_time_ms: 1_700_000_000_000,
            access_time_ms: 0,
            since: 300,
        };
        let extra = Extra {
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
        let mut inode = Inode::new(attributes, extra, InodeKind::File(file));
        inode.name = "é".as_bytes().into();
        inode
    }

    #[test]
    fn a_record_comes_back_as_it_was() {
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
            let (inode, parent) = decode(InodeId(16400), &bytes).unwrap();
            assert_eq!(parent, InodeId(16399));
            assert_eq!(format!("{inode:?}"), format!("{file:?}"));
        }
    }

    #[test]
    fn a_stamp_that_there_is_no_room_for_is_damage() {
        let mut record = vec![1];
        for (stamp, fits) in
            [(BlockRecord::STAMP_MAX.0, true), (BlockRecord::STAMP_MAX.0 + 1, false), (u64::MAX, false)]
        {
            record.truncate(1);
            record.push(2);
            put(&mut record, stamp);
            record.extend([5, BlockState::Complete as u8]);
            let blocks = decode_blocks(&mut Reader { bytes: &record, at: 0 });
            assert_eq!(blocks.is_some_and(|blocks| blocks[0].stamp().0 == stamp), fits);
        }
        let counters = Counters { last_stamp: u64::MAX, ..Counters::FRESH };
        let refused = Rebuild::start(Limits::default(), counters, []).err();
        assert_eq!(refused, Some(RecordError::Stamp { stamp: GenerationStamp(u64::MAX) }));
    }

    #[test]
    fn what_snapshots_keep_of_a_file_comes_back_as_it_was() {
        let block = Block { id: BlockId(-9), stamp: GenerationStamp(1001), length: 5 };
        let blocks = [BlockRecord::new(block, BlockState::Complete)];
        let cut = Cut { block: BlockId(-9), copied_from: Some(BlockId(-7)) };
        let (none, one): (&[Cut], &[Cut]) = (&[], &[cut]);
        for (cuts, policy) in [(none, 0), (one, 0), (none, 7), (one, 15)] {
            let record = encode_lost(&blocks, cuts, policy);
            let found = decode_lost(&mut Reader { bytes: &record, at: 0 });
            assert_eq!(found, Some((blocks.to_vec(), cuts.to_vec(), policy)));
        }
        // Without the two it is what it was before there were any.
        let mut before = Vec::new();
        put_blocks(&mut before, blocks.iter().copied());
        assert_eq!(encode_lost(&blocks, &[], 0), before);
    }

    #[test]
    fn a_newer_form_is_refused_by_name() {
        let mut bytes = encode(&file_inode(), InodeId(16399));
        bytes[0] = 2;
        assert_eq!(decode(InodeId(7), &bytes).unwrap_err(), RecordError::Newer { inode: 7, form: 2 });
    }

    proptest! {
        #[test]
        fn any_attributes_come_back(attributes in crate::namespace::plain::tests::attributes()) {
            let inode = Inode::new(attributes, Extra::default(), InodeKind::File(FilePart::default()));
            let (decoded, _) = decode(attributes.id, &encode(&inode, InodeId(16399))).unwrap();
            prop_assert_eq!(decoded.attributes(), attributes);
        }

        #[test]
        fn damage_is_an_error_or_another_inode_never_a_panic(at in 0usize..100, byte: u8, cut in 0usize..100) {
            let mut bytes = encode(&file_inode(), InodeId(16399));
            let length = bytes.len();
            bytes[at % length] = byte;
            bytes.truncate(length - cut % length);
            let _ = decode(InodeId(16400), &bytes);
        }

        #[test]
        fn random_bytes_are_no_record(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = decode(InodeId(16400), &bytes);
        }
    }
}
