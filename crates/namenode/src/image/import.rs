//! Makes a store from an image.
//!
//! The inodes are read one by one and written in batches. Besides, the import keeps 16 bytes for each inode, 8 bytes for
//! each block, the former states that snapshots have, and for directories with such states the snapshots that have them. At
//! the end the new store is loaded as at a start, which checks the whole tree.

use std::cell::Cell;
use std::collections::{HashMap, HashSet};

use hearth_types::{
    Access, AclEntry, AclScope, AclType, Block, BlockId, FsPermission, GenerationStamp, PoolIdentity, Xattr, XattrSpace,
};
use hearth_wire::proto::hdfs::fsimage::{
    AclFeatureProto, CacheManagerSectionProto, DirEntryProto, ImageBlockTypeProto, InodeDirectoryProto, InodeFileProto,
    InodeProto, InodeReferenceProto, InodeSectionProto, InodeTypeProto, NameSystemSectionProto,
    SecretManagerSectionProto, StringTableEntryProto, StringTableSectionProto, XattrFeatureProto,
};
use hearth_wire::proto::hdfs::{BlockProto, CacheDirectiveInfoProto, CachePoolInfoProto};

use super::input::Input;
use super::messages::{NO_QUOTA, QUOTA_MEDIA, ROOT_NAMES};
use super::past::Past;
use super::strings::{Kind, StringsIn};
use super::{ImageError, ImageSource, POLICY_XATTR};
use crate::blocks::StoragePolicy;
use crate::caching::{EXPIRY_MAX_MS, Pool, Terms, UNLIMITED};
use crate::changes::{Changes, Counters};
use crate::namespace::stored::{FileParts, InodeParts, SNAPSHOT_BLOCKS, encode_blocks};
use crate::namespace::{Attributes, BlockRecord, InodeId, Limits, PrincipalId, Quota, RecordState, Writer};
use crate::store::{Directory, Tables, fill};

/// Number of inodes that are written in one transaction.
const BATCH: usize = 20_000;
/// Largest number of a change. Later changes continue from it.
const TXID_MAX: u64 = 1 << 60;
/// Largest id of an inode. Later inodes continue from the largest one.
const INODE_MAX: u64 = 1 << 60;
/// Largest id of a block or number of a cache directive. Later ones continue from the largest one.
const NUMBER_MAX: u64 = 1 << 60;
/// Depth of the tree at which a walk upwards ends.
pub(super) const DEPTH_MAX: usize = 10_000;
/// Sections that are imported, or that say nothing about the namespace.
const SECTIONS: [&str; 12] = [
    "NS_INFO",
    "STRING_TABLE",
    "EXTENDED_ACL",
    "ERASURE_CODING",
    "INODE",
    "INODE_REFERENCE",
    "SNAPSHOT",
    "INODE_DIR",
    "FILES_UNDERCONSTRUCTION",
    "SNAPSHOT_DIFF",
    "SECRET_MANAGER",
    "CACHE_MANAGER",
];

/// What was imported.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Imported {
    pub identity: PoolIdentity,
    /// Number of the last change in the image.
    pub txid: u64,
    /// Files and directories, with the root.
    pub inodes: u64,
    /// Blocks of files, without those that only snapshots have.
    pub blocks: u64,
    pub open_files: u64,
    pub snapshots: u64,
}

/// Makes the namespace of an image in `directory`. Afterwards either all of it exists, or nothing.
///
/// Errors: `Damaged` for an invalid image; `Unsupported` if it has something that Hearth has not; those of the store,
/// among them that the directory already has a namespace.
pub fn import(source: &ImageSource, directory: &Directory, limits: Limits) -> Result<Imported, ImageError> {
    let input = Input::open(&source.path, &source.md5)?;
    if let Some(unknown) = input.names().find(|name| !SECTIONS.contains(name)) {
        return Err(input.unsupported(format!("it has the unknown section {unknown}")));
    }
    let info: NameSystemSectionProto = input.section("NS_INFO").required()?;
    if info.rolling_upgrade_start_time.is_some() {
        return Err(input.unsupported("a rolling upgrade is in progress; finalize it and save the namespace again"));
    }
    if info.namespace_id != Some(source.identity.namespace_id) {
        return Err(input.damaged("it is of another namespace than the VERSION file beside it"));
    }
    let txid = info.transaction_id.filter(|txid| *txid < TXID_MAX);
    let txid = txid.ok_or_else(|| input.damaged("its transaction id is missing or too large"))?;
    let mut imported =
        Imported { identity: source.identity.clone(), txid, inodes: 0, blocks: 0, open_files: 0, snapshots: 0 };
    fill(directory, &source.identity, txid, limits, |tables| Import::new(&input, &info)?.run(tables, &mut imported))?;
    Ok(imported)
}

/// Parent of each inode.
pub(super) struct Places {
    /// Inode and parent, ordered by inode.
    sorted: Vec<(u64, u64)>,
}

impl Places {
    fn read(input: &Input, references: &[InodeReferenceProto]) -> Result<Self, ImageError> {
        let mut sorted = Vec::new();
        let mut section = input.section("INODE_DIR");
        while let Some(entry) = section.next::<DirEntryProto>()? {
            let parent = entry.parent.unwrap_or(0);
            sorted.extend(entry.children.iter().map(|child| (*child, parent)));
            for place in &entry.ref_children {
                let reference = references.get(*place as usize).and_then(|reference| reference.referred_id);
                let child = reference.ok_or_else(|| section.damaged("it refers to no reference"))?;
                sorted.push((child, parent));
            }
        }
        sorted.sort_unstable();
        if let Some(twice) = sorted.windows(2).find(|pair| pair[0].0 == pair[1].0) {
            return Err(section.damaged(&format!("inode {} has two parent directories", twice[0].0)));
        }
        Ok(Self { sorted })
    }

    pub fn parent(&self, inode: u64) -> Option<u64> {
        let at = self.sorted.binary_search_by_key(&inode, |(child, _)| *child).ok()?;
        Some(self.sorted[at].1)
    }
}

/// Parent of an inode in snapshots `from < number <= until`.
struct FormerPlace {
    from: u32,
    until: u32,
    parent: u64,
}

struct Import<'a> {
    input: &'a Input,
    converter: Converter<'a>,
    places: Places,
    past: Past,
    /// Directories that are known to be reachable from the root at present, or not.
    live: HashMap<u64, bool>,
    /// Ids of all directories, sorted. Empty if there are no snapshots.
    directories: Vec<u64>,
    /// Places of inodes in snapshots, by inode.
    former: HashMap<u64, Vec<FormerPlace>>,
    /// Ids of all blocks.
    blocks: Vec<BlockId>,
    info: &'a NameSystemSectionProto,
}

impl<'a> Import<'a> {
    fn new(input: &'a Input, info: &'a NameSystemSectionProto) -> Result<Self, ImageError> {
        let mut references = Vec::new();
        let mut section = input.section("INODE_REFERENCE");
        while let Some(reference) = section.next::<InodeReferenceProto>()? {
            references.push(reference);
        }
        let (places, past) = (Places::read(input, &references)?, Past::read(input, &references)?);
        let legacy_stamps = info.genstamp_v1_limit.unwrap_or(0);
        let converter = Converter::new(input, legacy_stamps, past.snapshottable.clone())?;
        let (live, directories, former, blocks) = (HashMap::new(), Vec::new(), HashMap::new(), Vec::new());
        Ok(Self { input, converter, places, past, live, directories, former, blocks, info })
    }

    fn run(mut self, tables: &mut Tables, imported: &mut Imported) -> Result<(), ImageError> {
        self.check_secrets()?;
        if !self.past.is_empty() {
            let mut section = self.input.section("INODE");
            section.required::<InodeSectionProto>()?;
            while let Some(inode) = section.next::<InodeProto>()? {
                self.past.learn(&inode, self.places.parent(inode.id));
                if inode.r#type == InodeTypeProto::Directory as i32 {
                    self.directories.push(inode.id);
                }
            }
            self.directories.sort_unstable();
            self.past.resolve();
            self.check_snapshot_roots()?;
        }
        let last_inode = self.inodes(tables, imported)?;
        self.check_former_places()?;
        self.check_blocks()?;
        let counters = self.counters(last_inode)?;
        let mut changes = Changes { last_directive: Some(self.caches(tables, imported.txid)?), ..Changes::default() };
        changes.counters = Some(counters);
        let names = std::mem::take(&mut self.converter.names);
        changes.names_put = (0..).zip(names).collect();
        imported.snapshots = self.past.snapshots.len() as u64;
        changes.snapshots_put = std::mem::take(&mut self.past.snapshots).into_iter().collect();
        tables.put(&changes, imported.txid)?;
        Ok(())
    }

    /// Returns the counters of the image, or the largest numbers in it if those are larger.
    fn counters(&self, last_inode: u64) -> Result<Counters, ImageError> {
        let fresh = Counters::FRESH;
        let last_block = self.info.last_allocated_block_id.unwrap_or(fresh.last_block as u64);
        let last_block = last_block.max(self.converter.last_block.get());
        let last_stamp = self.info.genstamp_v2.unwrap_or(fresh.last_stamp).max(self.converter.last_stamp.get());
        if last_block > NUMBER_MAX {
            return Err(self.input.damaged(format!("the block id {last_block} is too large")));
        }
        if GenerationStamp(last_stamp) >= BlockRecord::STAMP_MAX {
            return Err(self.input.damaged(format!("the generation stamp {last_stamp} is too large")));
        }
        Ok(Counters { last_inode, last_block: last_block as i64, last_stamp, last_snapshot: self.past.counter })
    }

    /// Checks that every block is in one file only. Afterwards the ids are no longer kept.
    fn check_blocks(&mut self) -> Result<(), ImageError> {
        let mut blocks = std::mem::take(&mut self.blocks);
        blocks.sort_unstable();
        match blocks.windows(2).find(|pair| pair[0] == pair[1]) {
            Some(twice) => Err(self.input.damaged(format!("block {} is in two files, or in one twice", twice[0].0))),
            None => Ok(()),
        }
    }

    fn is_directory(&self, id: u64) -> bool {
        self.directories.binary_search(&id).is_ok()
    }

    /// Checks that every snapshot is of a directory that exists at present.
    fn check_snapshot_roots(&mut self) -> Result<(), ImageError> {
        let roots: Vec<u64> = self.past.snapshots.values().map(|row| row.root).collect();
        match roots.into_iter().find(|root| !self.is_directory(*root) || !self.is_live(*root)) {
            Some(root) => {
                Err(self.input.damaged(format!("a snapshot is of inode {root}, which is no present directory")))
            }
            None => Ok(()),
        }
    }

    /// Checks that the places of inodes in snapshots are in directories, and that none is below itself.
    fn check_former_places(&self) -> Result<(), ImageError> {
        for (id, places) in &self.former {
            for place in places {
                if !self.is_directory(place.parent) {
                    let problem = format!("inode {id} was in inode {}, which is no directory", place.parent);
                    return Err(self.input.damaged(problem));
                }
                if !self.leads_up(place) {
                    return Err(self.input.damaged(format!("inode {id} does not lead to the root in a snapshot")));
                }
            }
        }
        Ok(())
    }

    /// Returns whether the way upwards from a former place ends within `DEPTH_MAX` steps: at the root, or at a
    /// directory that has no place in that snapshot.
    fn leads_up(&self, place: &FormerPlace) -> bool {
        let mut at = place.parent;
        for _ in 0..DEPTH_MAX {
            if at == InodeId::ROOT.0 {
                return true;
            }
            let former = self.former.get(&at).map_or(&[][..], Vec::as_slice);
            let then = former.iter().find(|other| other.from < place.until && place.until <= other.until);
            match then.map(|other| other.parent).or_else(|| self.places.parent(at)) {
                Some(parent) => at = parent,
                None => return !former.is_empty(),
            }
        }
        false
    }

    /// Writes all inodes and their versions. Returns the largest id.
    fn inodes(&mut self, tables: &mut Tables, imported: &mut Imported) -> Result<u64, ImageError> {
        let input = self.input;
        let mut section = input.section("INODE");
        let head: InodeSectionProto = section.required()?;
        let mut last = head.last_inode_id.unwrap_or(0).max(InodeId::ROOT.0);
        if last > INODE_MAX {
            return Err(section.damaged(&format!("the last id {last} is too large")));
        }
        let (mut changes, mut count, mut placed) = (Changes::default(), 0, 0);
        while let Some(inode) = section.next::<InodeProto>()? {
            let id = inode.id;
            if id > INODE_MAX {
                return Err(section.damaged(&format!("the id {id} is too large")));
            }
            count += 1;
            last = last.max(id);
            let parent = if id == InodeId::ROOT.0 { Some(id) } else { self.places.parent(id) };
            placed += u64::from(parent.is_some() && id != InodeId::ROOT.0);
            let live_parent = parent.filter(|parent| id == InodeId::ROOT.0 || self.is_live(*parent));
            let mut since = 0;
            if live_parent.is_none() || self.past.is_special(id) {
                let is_live = live_parent.is_some();
                let (versions, newest) = self.past.versions(&inode, is_live, &self.places, &mut self.converter)?;
                if !is_live && versions.is_empty() {
                    if self.past.last(id, &self.places) == 0 {
                        return Err(section.damaged(&format!("inode {id} is in no directory and in no snapshot")));
                    }
                    // It is listed only where no snapshot has it, so it cannot be seen.
                    continue;
                }
                since = newest;
                let policy = inode.file.as_ref().map_or(0, |file| file.storage_policy_id.unwrap_or(0));
                let policy = self.converter.policy(id, policy)?;
                let mut kept = self.converter.blocks(&inode)?;
                let mut seen: HashSet<BlockId> = kept.iter().map(|block| block.id).collect();
                let own = if is_live { seen.clone() } else { HashSet::new() };
                // A version may have a shorter block than DataNodes have.
                let former = self.past.blocks(id).filter(|block| seen.insert(BlockId(block.block_id as i64)));
                kept.extend(self.converter.records(id, former)?);
                let files = versions.iter().filter_map(|version| version.parts.file.as_ref());
                let in_versions = || files.clone().flat_map(|file| &file.blocks).copied();
                kept.extend(in_versions().filter(|block| seen.insert(block.id)));
                // Only blocks that a version has and the file has not at present.
                let held: HashSet<BlockId> = in_versions().map(|block| block.id).collect();
                kept.retain(|block| held.contains(&block.id) && !own.contains(&block.id));
                self.blocks.extend(kept.iter().map(|block| block.id));
                if !kept.is_empty() {
                    let bytes = encode_blocks(&kept, if is_live { 0 } else { policy });
                    changes.versions_put.push(((id, SNAPSHOT_BLOCKS), bytes));
                }
                for version in versions {
                    if id != InodeId::ROOT.0 {
                        let place = FormerPlace { from: version.from, until: version.until, parent: version.parent };
                        self.former.entry(id).or_default().push(place);
                    }
                    let bytes = version.parts.encode_version(version.from, version.parent);
                    changes.versions_put.push(((id, version.until), bytes));
                }
            }
            if let Some(parent) = live_parent {
                let mut parts = self.converter.inode(&inode)?;
                parts.attributes.since = since;
                if let Some(file) = &parts.file {
                    imported.blocks += file.blocks.len() as u64;
                    self.blocks.extend(file.blocks.iter().map(|block| block.id));
                    imported.open_files += u64::from(file.writer.is_some());
                }
                imported.inodes += 1;
                changes.inodes_put.push((id, parts.encode(parent)));
            }
            if changes.inodes_put.len() + changes.versions_put.len() >= BATCH {
                tables.put(&std::mem::take(&mut changes), imported.txid)?;
            }
        }
        tables.put(&changes, imported.txid)?;
        if head.num_inodes.is_some_and(|expected| expected != count) {
            return Err(section.damaged(&format!("it has {count} inodes, but announces {:?}", head.num_inodes)));
        }
        let stored = tables.views().view()?.inodes()?.count()?;
        if stored != imported.inodes || placed != self.places.sorted.len() as u64 {
            return Err(section.damaged("an inode occurs twice, or a directory has a child that does not exist"));
        }
        Ok(last)
    }

    /// Returns whether a directory is reachable from the root at present. Without snapshots every directory is.
    fn is_live(&mut self, directory: u64) -> bool {
        if self.past.is_empty() {
            return true;
        }
        let (mut at, mut way) = (directory, Vec::new());
        let is_live = loop {
            if at == InodeId::ROOT.0 {
                break true;
            }
            if let Some(known) = self.live.get(&at) {
                break *known;
            }
            way.push(at);
            match self.places.parent(at) {
                Some(parent) if way.len() < DEPTH_MAX => at = parent,
                _ => break false,
            }
        };
        self.live.extend(way.into_iter().map(|id| (id, is_live)));
        is_live
    }

    /// Refuses delegation tokens: Hearth issues none, so their users would lose access.
    fn check_secrets(&self) -> Result<(), ImageError> {
        let head = self.input.section("SECRET_MANAGER").next::<SecretManagerSectionProto>()?;
        match head.and_then(|head| head.num_tokens).unwrap_or(0) {
            0 => Ok(()),
            count => {
                Err(self.input.unsupported(format!("it has {count} delegation tokens, which Hearth does not keep")))
            }
        }
    }

    /// Writes cache pools and directives. Returns the number of the newest directive.
    fn caches(&mut self, tables: &mut Tables, txid: u64) -> Result<u64, ImageError> {
        let mut section = self.input.section("CACHE_MANAGER");
        let Some(head) = section.next::<CacheManagerSectionProto>()? else { return Ok(0) };
        let mut changes = Changes::default();
        for _ in 0..head.num_pools {
            let pool: CachePoolInfoProto = section.required()?;
            let name = pool.pool_name.unwrap_or_default();
            let stored = Pool {
                owner: pool.owner_name.unwrap_or_default(),
                group: pool.group_name.unwrap_or_default(),
                permission: FsPermission(pool.mode.unwrap_or(0o755) as u16),
                limit: pool.limit.map_or(UNLIMITED, |limit| limit.max(0) as u64),
                default_replication: pool.default_replication.map_or(1, |count| count.min(0x7FFF) as u16),
                max_expiry_ms: pool.max_relative_expiry.map_or(EXPIRY_MAX_MS, |ms| ms.max(0) as u64),
            };
            changes.cache_pools.push((name, Some(stored)));
        }
        let pools: HashSet<String> = changes.cache_pools.iter().map(|(name, _)| name.clone()).collect();
        let mut last = head.next_directive_id.saturating_sub(1);
        if last > NUMBER_MAX {
            return Err(section.damaged("the number of the next cache directive is too large"));
        }
        for _ in 0..head.num_directives {
            let directive: CacheDirectiveInfoProto = section.required()?;
            let id = u64::try_from(directive.id.unwrap_or(0)).unwrap_or(0);
            let pool = directive.pool.unwrap_or_default();
            if id == 0 || !pools.contains(&pool) {
                return Err(section.damaged("a cache directive has no number or no pool"));
            }
            if id > NUMBER_MAX {
                return Err(section.damaged(&format!("the number {id} of a cache directive is too large")));
            }
            let terms = Terms {
                path: directive.path.unwrap_or_default(),
                replication: directive.replication.unwrap_or(1).min(0x7FFF) as u16,
                pool,
                expires_ms: directive.expiration.map_or(i64::MAX as u64, |expiry| expiry.millis.max(0) as u64),
            };
            last = last.max(id);
            changes.cache_directives.push((id, Some(terms)));
        }
        tables.put(&changes, txid)?;
        Ok(last)
    }
}

/// Converts messages to records.
pub(super) struct Converter<'a> {
    input: &'a Input,
    strings: StringsIn,
    /// Owners and groups of the store, numbered.
    names: Vec<String>,
    numbers: HashMap<String, u32>,
    /// Stamps below this are of blocks with random ids.
    legacy_stamps: u64,
    snapshottable: HashSet<u64>,
    /// The largest id of a converted block, 0 if none is positive, and the largest stamp.
    last_block: Cell<u64>,
    last_stamp: Cell<u64>,
}

impl<'a> Converter<'a> {
    fn new(input: &'a Input, legacy_stamps: u64, snapshottable: HashSet<u64>) -> Result<Self, ImageError> {
        let mut section = input.section("STRING_TABLE");
        let head: StringTableSectionProto = section.required()?;
        let bits = head.mask_bits.unwrap_or(0);
        let mut strings =
            StringsIn::new(bits).ok_or_else(|| input.unsupported(format!("its names have kinds of {bits} bits")))?;
        for _ in 0..head.num_entry.unwrap_or(0) {
            strings.add(section.required::<StringTableEntryProto>()?);
        }
        let (names, numbers, last_block, last_stamp) = Default::default();
        Ok(Self { input, strings, names, numbers, legacy_stamps, snapshottable, last_block, last_stamp })
    }

    pub fn damaged(&self, inode: u64, problem: &str) -> ImageError {
        self.input.damaged(format!("inode {inode}: {problem}"))
    }

    fn unsupported(&self, inode: u64, what: &str) -> ImageError {
        self.input.unsupported(format!("inode {inode} (/.reserved/.inodes/{inode}) {what}"))
    }

    fn string(&self, inode: u64, kind: Kind, number: u32) -> Result<&str, ImageError> {
        self.strings.name(kind, number).ok_or_else(|| self.damaged(inode, &format!("{kind:?} {number} has no name")))
    }

    fn principal(&mut self, inode: u64, kind: Kind, number: u32) -> Result<PrincipalId, ImageError> {
        let name = self.string(inode, kind, number)?;
        if let Some(known) = self.numbers.get(name) {
            return Ok(PrincipalId(*known));
        }
        let (name, number) = (name.to_owned(), self.names.len() as u32);
        self.names.push(name.clone());
        self.numbers.insert(name, number);
        Ok(PrincipalId(number))
    }

    /// Converts an inode, with its present name.
    pub fn inode(&mut self, message: &InodeProto) -> Result<InodeParts, ImageError> {
        let id = message.id;
        let name = message.name.as_deref().unwrap_or_default();
        let is_root = id == InodeId::ROOT.0;
        if name.is_empty() != is_root || name.contains(&b'/') {
            return Err(self.damaged(id, "its name is not valid"));
        }
        match message.r#type {
            kind if kind == InodeTypeProto::File as i32 => {
                let file = message.file.as_ref().ok_or_else(|| self.damaged(id, "the file has no content"))?;
                self.file(id, name, file)
            }
            kind if kind == InodeTypeProto::Directory as i32 => {
                let directory = message.directory.as_ref();
                let directory = directory.ok_or_else(|| self.damaged(id, "the directory has no content"))?;
                self.directory(id, name, directory)
            }
            kind if kind == InodeTypeProto::Symlink as i32 => Err(self.unsupported(id, "is a symbolic link")),
            _ => Err(self.damaged(id, "its type is unknown")),
        }
    }

    /// Returns owner, group and mode.
    fn permission(
        &mut self,
        id: u64,
        packed: Option<u64>,
    ) -> Result<(PrincipalId, PrincipalId, FsPermission), ImageError> {
        let packed = packed.ok_or_else(|| self.damaged(id, "it has no permission"))?;
        let number = |shift: u32| (packed >> shift) as u32 & 0xFF_FFFF;
        let owner = self.principal(id, Kind::User, number(40))?;
        let group = self.principal(id, Kind::Group, number(16))?;
        Ok((owner, group, FsPermission(packed as u16)))
    }

    fn file(&mut self, id: u64, name: &[u8], file: &InodeFileProto) -> Result<InodeParts, ImageError> {
        if file.erasure_coding_policy_id.is_some() || file.block_type == Some(ImageBlockTypeProto::Striped as i32) {
            return Err(self.unsupported(id, "is erasure-coded; copy it to a replicated file first"));
        }
        let (owner, group, permission) = self.permission(id, file.permission)?;
        let replication = u16::try_from(file.replication.unwrap_or(0)).ok().filter(|count| *count > 0);
        let attributes = Attributes {
            id: InodeId(id),
            owner,
            group,
            permission,
            storage_policy: self.policy(id, file.storage_policy_id.unwrap_or(0))?,
            replication: replication.ok_or_else(|| self.damaged(id, "its replication is not valid"))?,
            block_size: file.preferred_block_size.unwrap_or(0),
            modification_time_ms: file.modification_time.unwrap_or(0),
            access_time_ms: file.access_time.unwrap_or(0),
            since: 0,
        };
        let (xattrs, _) = self.xattrs(id, file.xattrs.as_ref())?;
        let mut blocks = self.records(id, &file.blocks)?;
        let writer = file.file_uc.as_ref().map(|uc| Writer {
            client: uc.client_name.clone().unwrap_or_default(),
            machine: uc.client_machine.clone().unwrap_or_default(),
            truncation: None,
        });
        if writer.is_some()
            && let Some(last) = blocks.last_mut()
        {
            last.state = RecordState::UnderConstruction;
        }
        Ok(InodeParts {
            attributes,
            name: name.to_vec(),
            xattrs,
            acl: self.acl(id, file.acl.as_ref())?,
            quota: None,
            is_snapshottable: false,
            file: Some(FileParts { blocks, writer }),
        })
    }

    fn directory(&mut self, id: u64, name: &[u8], directory: &InodeDirectoryProto) -> Result<InodeParts, ImageError> {
        let (owner, group, permission) = self.permission(id, directory.permission)?;
        let (xattrs, policy) = self.xattrs(id, directory.xattrs.as_ref())?;
        let time = directory.modification_time.unwrap_or(0);
        let attributes =
            Attributes { storage_policy: policy, ..Attributes::directory(InodeId(id), owner, group, permission, time) };
        let without = if id == InodeId::ROOT.0 { ROOT_NAMES } else { NO_QUOTA };
        let limit = |value: Option<u64>| value.filter(|limit| *limit <= i64::MAX as u64);
        let mut quota = Quota {
            names: limit(directory.ns_quota).filter(|names| *names != without),
            space: limit(directory.ds_quota),
            ..Quota::default()
        };
        for entry in directory.type_quotas.iter().flat_map(|all| &all.quotas) {
            let at = QUOTA_MEDIA.iter().position(|medium| *medium as i32 == entry.storage_type);
            let at = at.ok_or_else(|| self.damaged(id, "it has a quota of an unknown storage type"))?;
            quota.types[at] = limit(Some(entry.quota));
        }
        Ok(InodeParts {
            attributes,
            name: name.to_vec(),
            xattrs,
            acl: self.acl(id, directory.acl.as_ref())?,
            quota: (quota != Quota::default()).then_some(quota),
            is_snapshottable: self.snapshottable.contains(&id),
            file: None,
        })
    }

    fn policy(&self, id: u64, number: u32) -> Result<u8, ImageError> {
        let known = u8::try_from(number).ok().filter(|number| *number == 0 || StoragePolicy::by_id(*number).is_some());
        known.ok_or_else(|| self.unsupported(id, &format!("has storage policy {number}, which Hearth does not know")))
    }

    /// Returns the blocks of an inode at present. A directory has none.
    pub fn blocks(&self, message: &InodeProto) -> Result<Vec<BlockRecord>, ImageError> {
        message.file.as_ref().map_or(Ok(Vec::new()), |file| self.records(message.id, &file.blocks))
    }

    fn records<'b>(
        &self,
        id: u64,
        blocks: impl IntoIterator<Item = &'b BlockProto>,
    ) -> Result<Vec<BlockRecord>, ImageError> {
        let record = |block: &BlockProto| {
            let stamp = GenerationStamp(block.gen_stamp);
            if stamp >= BlockRecord::STAMP_MAX {
                return Err(self.damaged(id, "the stamp of a block is too large"));
            }
            if stamp.0 < self.legacy_stamps {
                return Err(self.unsupported(id, "has blocks with random ids, of Hadoop 1; copy it first"));
            }
            self.last_block.set(self.last_block.get().max(u64::try_from(block.block_id as i64).unwrap_or(0)));
            self.last_stamp.set(self.last_stamp.get().max(stamp.0));
            let length = block.num_bytes.unwrap_or(0);
            let block = Block { id: BlockId(block.block_id as i64), stamp, length };
            Ok(BlockRecord::new(block, RecordState::Complete))
        };
        blocks.into_iter().map(record).collect()
    }

    fn acl(&self, id: u64, acl: Option<&AclFeatureProto>) -> Result<Vec<AclEntry>, ImageError> {
        let entry = |packed: &u32| {
            let kind = AclType::from_number((packed >> 3) as u8 & 3);
            let scope = AclScope::from_number((packed >> 5) as u8 & 1);
            let (Some(kind), Some(scope)) = (kind, scope) else {
                return Err(self.damaged(id, "its ACL is not valid"));
            };
            let name = match (kind, packed >> 6 & 0xFF_FFFF) {
                (AclType::User, number) if number != 0 => Some(self.string(id, Kind::User, number)?),
                (AclType::Group, number) if number != 0 => Some(self.string(id, Kind::Group, number)?),
                _ => None,
            };
            Ok(AclEntry { scope, kind, name: name.map(Into::into), access: Access::from_bits((packed & 7) as u8) })
        };
        acl.map_or(Ok(Vec::new()), |acl| acl.entries.iter().map(entry).collect())
    }

    /// Returns the attributes, and the storage policy if one of them is that of a directory.
    fn xattrs(&self, id: u64, xattrs: Option<&XattrFeatureProto>) -> Result<(Vec<Xattr>, u8), ImageError> {
        let (mut all, mut policy) = (Vec::new(), 0);
        for xattr in xattrs.into_iter().flat_map(|xattrs| &xattrs.xattrs) {
            let space = (xattr.name >> 30 | (xattr.name >> 5 & 1) << 2) as u8;
            let space =
                XattrSpace::from_number(space).ok_or_else(|| self.damaged(id, "an attribute has no namespace"))?;
            let name = self.string(id, Kind::Xattr, xattr.name >> 6 & 0xFF_FFFF)?;
            let value = xattr.value.as_deref().unwrap_or_default();
            match (space, name) {
                (XattrSpace::System, POLICY_XATTR) => match value {
                    [number] => policy = self.policy(id, u32::from(*number))?,
                    _ => return Err(self.damaged(id, "its storage policy is not valid")),
                },
                (XattrSpace::System, _) => {
                    let what = format!(
                        "has the attribute system.{name} of Apache's NameNode, which Hearth does not know (erasure coding, or a \
                         storage policy that waits to be satisfied); undo it first"
                    );
                    return Err(self.unsupported(id, &what));
                }
                (XattrSpace::Raw, _) if name.starts_with("hdfs.crypto.") => {
                    return Err(self.unsupported(id, "is encrypted at rest, or an encryption zone"));
                }
                _ => all.push(Xattr { space, name: name.into(), value: value.into() }),
            }
        }
        Ok((all, policy))
    }
}
