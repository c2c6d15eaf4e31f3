//! Writes the tables of a store as an image.

use std::collections::{BTreeSet, HashSet};
use std::io::Write;
use std::path::Path;

use bytes::Bytes;
use hearth_types::PoolIdentity;
use hearth_wire::proto::hdfs::fsimage::{
    CacheManagerSectionProto, CreatedListEntryProto, DiffEntryProto, DiffTypeProto, DirEntryProto,
    ErasureCodingSectionProto, InodeSectionProto, NameSystemSectionProto, OpenFileProto, SecretManagerSectionProto,
    SnapshotSectionProto, StringTableSectionProto,
};
use hearth_wire::proto::hdfs::{CacheDirectiveInfoExpirationProto, CacheDirectiveInfoProto, CachePoolInfoProto};

use super::ImageError;
use super::history::{DirectoryDiff, Histories, PresentChild};
use super::messages::Messages;
use super::output::Output;
use super::strings::MASK_BITS;
use crate::caching::StoredCaching;
use crate::changes::Counters;
use crate::namespace::stored::RecordDecoder;
use crate::namespace::{InodeId, compare_names};
use crate::store::{InodeRows, StoreView, ViewSource};

/// Stamp below which Apache's NameNode keeps no blocks of its first format. Source: `GenerationStamp.LAST_RESERVED_STAMP`.
const OLDEST_STAMP: u64 = 1000;
/// The image's id of the newest block group when no group exists: Java's `Long.MIN_VALUE`.
const NO_BLOCK_GROUP: u64 = i64::MIN as u64;
/// Depth of the tree at which the search for a path ends. Paths have at most 1000 names.
const DEPTH_MAX: usize = 10_000;

/// A finished image.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Written {
    /// Number of the last change in it: that of the journal's group.
    pub txid: u64,
    pub bytes: u64,
    pub md5: [u8; 16],
    /// Number of files and directories.
    pub inodes: u64,
}

/// Writes the image of the tables as they are now into `file`, whose path is `path`.
///
/// Errors: `Inexpressible` if the format lacks something that the namespace has; those of the store and of the file.
pub fn write(
    source: &ViewSource,
    identity: &PoolIdentity,
    file: impl Write,
    path: &Path,
) -> Result<Written, ImageError> {
    let view = source.view()?;
    let (rows, small, txid) = (view.inodes()?, view.small()?, view.applied()?);
    let histories = Histories::read(&view, &rows, small.snapshots)?;
    let messages = Messages::new(small.names.into_iter().map(|(_, name)| name).collect());
    let out = Output::new(file, path);
    let mut image = ImageWriter { view: &view, rows: &rows, histories, messages, out, diffs: Vec::new() };
    image.head(identity, &small.counters, txid)?;
    let (inodes, parts) = image.inodes(&small.counters)?;
    image.directories(parts.places)?;
    image.open_files(&parts.open)?;
    image.snapshots(&small.counters, parts.snapshottable)?;
    image.references()?;
    image.secrets()?;
    image.caches(&small.caching)?;
    image.strings()?;
    let (bytes, md5) = image.out.finish()?;
    Ok(Written { txid, bytes, md5, inodes })
}

struct ImageWriter<'a, W: Write> {
    view: &'a StoreView,
    rows: &'a InodeRows,
    histories: Histories<'a>,
    messages: Messages,
    out: Output<W>,
    /// Differences of directories, found with their children and written later.
    diffs: Vec<(u64, Vec<DirectoryDiff>)>,
}

/// Data from the pass over all inodes, for later sections.
#[derive(Default)]
struct Parts {
    /// Parent and id of each inode but the root. 16 bytes for each.
    places: Vec<(u64, u64)>,
    open: Vec<u64>,
    snapshottable: Vec<u64>,
}

impl<W: Write> ImageWriter<'_, W> {
    fn head(&mut self, identity: &PoolIdentity, counters: &Counters, txid: u64) -> Result<(), ImageError> {
        self.out.message(&NameSystemSectionProto {
            namespace_id: Some(identity.namespace_id),
            genstamp_v1: Some(OLDEST_STAMP),
            genstamp_v2: Some(counters.last_stamp),
            genstamp_v1_limit: Some(0),
            last_allocated_block_id: Some(counters.last_block as u64),
            transaction_id: Some(txid),
            rolling_upgrade_start_time: None,
            last_allocated_striped_block_id: Some(NO_BLOCK_GROUP),
        })?;
        self.out.end_section("NS_INFO");
        // Apache's NameNode adds its own policies.
        self.out.message(&ErasureCodingSectionProto { policies: Vec::new() })?;
        self.out.end_section("ERASURE_CODING");
        Ok(())
    }

    /// Writes the inodes. Returns their number.
    fn inodes(&mut self, counters: &Counters) -> Result<(u64, Parts), ImageError> {
        let gone = self.histories.gone()?;
        let count = self.rows.count()? + gone.len() as u64;
        self.out.message(&InodeSectionProto { last_inode_id: Some(counters.last_inode), num_inodes: Some(count) })?;
        let mut parts = Parts::default();
        let mut decoder = RecordDecoder::default();
        let (view, rows) = (self.view, self.rows);
        rows.each::<ImageError>(|id, bytes| {
            let (inode, parent) = decoder.inode(id, bytes).map_err(|error| view.bad_record(error))?;
            if id != InodeId::ROOT.0 {
                parts.places.push((parent, id));
            }
            if inode.as_file().is_some_and(|file| file.is_open()) {
                parts.open.push(id);
            }
            if inode.snapshots().is_some() {
                parts.snapshottable.push(id);
            }
            self.out.message(&self.messages.inode(&inode)?)
        })?;
        for id in gone {
            self.out.message(&self.histories.gone_inode(id, &mut self.messages)?)?;
        }
        self.out.end_section("INODE");
        Ok((count, parts))
    }

    /// Writes the children of all directories, and collects the directories' differences. `places`: parent and id of
    /// each inode.
    fn directories(&mut self, mut places: Vec<(u64, u64)>) -> Result<(), ImageError> {
        places.sort_unstable();
        let mut decoder = RecordDecoder::default();
        let mut with_children = HashSet::new();
        for group in places.chunk_by(|a, b| a.0 == b.0) {
            let parent = group[0].0;
            let mut children = Vec::with_capacity(group.len());
            for (_, id) in group {
                let child = self.rows.with(*id, |bytes| decoder.inode(*id, bytes))?;
                let Some(child) = child else { continue };
                let (inode, _) = child.map_err(|error| self.view.bad_record(error))?;
                let (name, since) = (inode.name.to_vec(), inode.attributes().since);
                children.push(PresentChild { id: *id, name, since });
            }
            children.sort_unstable_by(|a, b| compare_names(&a.name, &b.name));
            if self.histories.has_diffs(parent) {
                with_children.insert(parent);
            }
            self.directory(parent, &children)?;
        }
        drop(places);
        // Directories that have no children at present, and those that only snapshots have.
        for id in self.histories.directories() {
            if with_children.contains(&id) {
                continue;
            }
            let children = match self.histories.is_gone(id)? {
                true => self.histories.children_of_gone(id)?,
                false => Vec::new(),
            };
            self.directory(id, &children)?;
        }
        self.out.end_section("INODE_DIR");
        Ok(())
    }

    fn directory(&mut self, id: u64, children: &[PresentChild]) -> Result<(), ImageError> {
        if !children.is_empty() {
            let mut entry = DirEntryProto { parent: Some(id), ..DirEntryProto::default() };
            for child in children {
                if self.histories.is_moved(child.id) {
                    entry.ref_children.push(self.histories.refer_to_present(child.id)?);
                } else {
                    entry.children.push(child.id);
                }
            }
            self.out.message(&entry)?;
        }
        if self.histories.has_diffs(id) {
            let diffs = self.histories.directory_diffs(id, children, &mut self.messages)?;
            if !diffs.is_empty() {
                self.diffs.push((id, diffs));
            }
        }
        Ok(())
    }

    fn open_files(&mut self, open: &[u64]) -> Result<(), ImageError> {
        let mut decoder = RecordDecoder::default();
        for id in open {
            let path = self.path_of(*id, &mut decoder)?;
            self.out.message(&OpenFileProto { inode_id: Some(*id), full_path: Some(path) })?;
        }
        self.out.end_section("FILES_UNDERCONSTRUCTION");
        Ok(())
    }

    fn path_of(&self, id: u64, decoder: &mut RecordDecoder) -> Result<String, ImageError> {
        let mut names = Vec::new();
        let mut at = id;
        while at != InodeId::ROOT.0 && names.len() < DEPTH_MAX {
            let found = self.rows.with(at, |bytes| decoder.inode(at, bytes))?;
            let Some(found) = found else { break };
            let (inode, parent) = found.map_err(|error| self.view.bad_record(error))?;
            names.push(String::from_utf8_lossy(&inode.name).into_owned());
            at = parent;
        }
        names.reverse();
        Ok(format!("/{}", names.join("/")))
    }

    fn snapshots(&mut self, counters: &Counters, snapshottable: Vec<u64>) -> Result<(), ImageError> {
        let count = self.histories.snapshot_count();
        self.out.message(&SnapshotSectionProto {
            // Snapshots are numbered from 0 there and from 1 here, so the next number is the last one here.
            snapshot_counter: Some(counters.last_snapshot),
            snapshottable_dir: snapshottable,
            num_snapshots: Some(count),
        })?;
        for snapshot in self.histories.snapshots(&mut self.messages)? {
            self.out.message(&snapshot)?;
        }
        self.out.end_section("SNAPSHOT");
        if count == 0 {
            return Ok(());
        }
        for (id, diffs) in std::mem::take(&mut self.diffs) {
            self.diff_head(DiffTypeProto::Directorydiff, id, diffs.len())?;
            for (diff, created) in diffs {
                self.out.message(&diff)?;
                for name in created {
                    self.out.message(&CreatedListEntryProto { name: Some(Bytes::from(name)) })?;
                }
            }
        }
        for id in self.histories.ids() {
            if self.histories.is_file(id) {
                let diffs = self.histories.file_diffs(id, &mut self.messages)?;
                if !diffs.is_empty() {
                    self.diff_head(DiffTypeProto::Filediff, id, diffs.len())?;
                }
                for diff in diffs {
                    self.out.message(&diff)?;
                }
            }
        }
        self.out.end_section("SNAPSHOT_DIFF");
        Ok(())
    }

    fn diff_head(&mut self, kind: DiffTypeProto, id: u64, count: usize) -> Result<(), ImageError> {
        let count = u32::try_from(count).expect("there are fewer snapshots than numbers");
        self.out.message(&DiffEntryProto { r#type: kind as i32, inode_id: Some(id), num_of_diff: Some(count) })
    }

    fn references(&mut self) -> Result<(), ImageError> {
        for reference in std::mem::take(&mut self.histories.references) {
            self.out.message(&reference)?;
        }
        self.out.end_section("INODE_REFERENCE");
        Ok(())
    }

    /// Writes no keys and no tokens: none is issued without security.
    fn secrets(&mut self) -> Result<(), ImageError> {
        let none = Some(0);
        self.out.message(&SecretManagerSectionProto {
            current_id: none,
            token_sequence_number: none,
            num_keys: none,
            num_tokens: none,
        })?;
        self.out.end_section("SECRET_MANAGER");
        Ok(())
    }

    fn caches(&mut self, caching: &StoredCaching) -> Result<(), ImageError> {
        // Directives without their pool cannot be seen.
        let pools: BTreeSet<&str> = caching.pools.iter().map(|(name, _)| name.as_str()).collect();
        let directives: Vec<_> =
            caching.directives.iter().filter(|(_, terms)| pools.contains(terms.pool.as_str())).collect();
        let newest = caching.directives.iter().map(|(id, _)| *id).max().unwrap_or(0).max(caching.last_directive);
        self.out.message(&CacheManagerSectionProto {
            next_directive_id: newest + 1,
            num_pools: caching.pools.len() as u32,
            num_directives: directives.len() as u32,
        })?;
        for (name, pool) in &caching.pools {
            self.out.message(&CachePoolInfoProto {
                pool_name: Some(name.clone()),
                owner_name: Some(pool.owner.clone()),
                group_name: Some(pool.group.clone()),
                mode: Some(i32::from(pool.permission.0)),
                limit: Some(pool.limit as i64),
                max_relative_expiry: Some(pool.max_expiry_ms as i64),
                default_replication: Some(u32::from(pool.default_replication)),
            })?;
        }
        for (id, terms) in directives {
            let expires = CacheDirectiveInfoExpirationProto { millis: terms.expires_ms as i64, is_relative: false };
            self.out.message(&CacheDirectiveInfoProto {
                id: Some(*id as i64),
                path: Some(terms.path.clone()),
                replication: Some(u32::from(terms.replication)),
                pool: Some(terms.pool.clone()),
                expiration: Some(expires),
            })?;
        }
        self.out.end_section("CACHE_MANAGER");
        Ok(())
    }

    /// Writes the names, last because the other sections collect them.
    fn strings(&mut self) -> Result<(), ImageError> {
        let entries = self.messages.strings.entries();
        let count = u32::try_from(entries.len()).expect("names have numbers of 24 bits");
        self.out.message(&StringTableSectionProto { num_entry: Some(count), mask_bits: Some(MASK_BITS) })?;
        for entry in entries {
            self.out.message(&entry)?;
        }
        self.out.end_section("STRING_TABLE");
        Ok(())
    }
}
