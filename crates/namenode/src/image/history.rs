//! Snapshots and former states of inodes, in the form that an image has them.
//!
//! The store has a range of snapshot numbers for each former state (`namespace/history.rs`). An image has a list of
//! differences for each inode: an entry with snapshot number `s` describes how the state in snapshot `s` differs from the
//! state in the next later entry, or from the present state. An entry holds for all snapshots after the preceding entry
//! up to `s`. Here each former state is assigned to the newest existing snapshot that has it. States that no existing
//! snapshot has are left out, because they cannot be seen.
//!
//! An inode that was at another place in a snapshot is referred to indirectly: its former places and its present place
//! are entries of the section INODE_REFERENCE.
//!
//! Apache numbers snapshots from 0, the store from 1.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use bytes::Bytes;
use hearth_wire::proto::hdfs::BlockProto;
use hearth_wire::proto::hdfs::fsimage::{
    DirectoryDiffProto, FileDiffProto, InodeDirectoryProto, InodeFileProto, InodeProto, InodeReferenceProto,
    InodeTypeProto, SnapshotProto,
};

use super::messages::{Messages, being_truncated, block};
use super::past::cut;
use super::spans::{Placed, Spans};
use super::{ImageError, NO_SNAPSHOT};
use crate::changes::SnapshotRow;
use crate::namespace::stored::{RecordDecoder, SNAPSHOT_BLOCKS, SnapshotBlocks, decode_blocks};
use crate::namespace::{BlockRecord, Inode, InodeId, compare_names};
use crate::store::{InodeRows, StoreView};

/// Stands for the present among snapshot numbers. No snapshot has such a number.
const PRESENT: u32 = u32::MAX;

/// A former state of an inode, for snapshots `from < number <= until`.
struct FormerState {
    from: u32,
    until: u32,
    inode: Inode,
    parent: u64,
    /// The newest existing snapshot that has it.
    newest: u32,
}

impl FormerState {
    fn holds_for(&self, snapshot: u32) -> bool {
        self.from < snapshot && snapshot <= self.until
    }

    fn is_at(&self, place: &Place) -> bool {
        self.parent == place.parent && *self.inode.name == *place.name
    }
}

/// Place of an inode in the tree.
#[derive(Clone, PartialEq, Eq)]
struct Place {
    parent: u64,
    name: Vec<u8>,
}

/// Present place of an inode, and number of the newest snapshot when its present state began.
#[derive(Clone)]
struct Present {
    place: Place,
    since: u32,
}

/// Child of a directory at present.
pub(super) struct PresentChild {
    pub id: u64,
    pub name: Vec<u8>,
    pub since: u32,
}

/// A directory's difference, and the names of the children that the later state has and this one has not.
pub(super) type DirectoryDiff = (DirectoryDiffProto, Vec<Vec<u8>>);

/// Snapshots and former states of all inodes.
pub(super) struct Histories<'a> {
    rows: &'a InodeRows,
    view: &'a StoreView,
    decoder: RecordDecoder,
    /// Existing snapshots by number.
    snapshots: BTreeMap<u32, SnapshotRow>,
    /// Snapshots that have a directory.
    spans: Spans,
    /// Former states by inode id, oldest first.
    states: BTreeMap<u64, Vec<FormerState>>,
    /// Blocks that only snapshots have, by inode id.
    blocks: HashMap<u64, SnapshotBlocks>,
    /// Cache of present places. `None`: the inode exists only in snapshots.
    present: HashMap<u64, Option<Present>>,
    /// Inodes that have several places.
    moved: HashSet<u64>,
    /// Former states by the directory in which they are: inode id and index in `states`.
    former_children: HashMap<u64, Vec<(u64, usize)>>,
    /// Entries of the section INODE_REFERENCE.
    pub references: Vec<InodeReferenceProto>,
}

impl<'a> Histories<'a> {
    /// Reads the history. Memory: the former states.
    ///
    /// Errors: `Inexpressible` if DataNodes have still to truncate a block that only snapshots have.
    pub fn read(
        view: &'a StoreView,
        rows: &'a InodeRows,
        snapshots: Vec<(u32, SnapshotRow)>,
    ) -> Result<Self, ImageError> {
        let snapshots: BTreeMap<u32, SnapshotRow> = snapshots.into_iter().collect();
        let mut histories = Self {
            rows,
            view,
            decoder: RecordDecoder::default(),
            spans: Spans::new(&snapshots),
            snapshots,
            states: BTreeMap::new(),
            blocks: HashMap::new(),
            present: HashMap::new(),
            moved: HashSet::new(),
            former_children: HashMap::new(),
            references: Vec::new(),
        };
        let bad = |error| view.bad_record(error);
        view.each_version::<ImageError>(|id, until, bytes| {
            if until == SNAPSHOT_BLOCKS {
                let blocks = decode_blocks(id, bytes).map_err(bad)?;
                if blocks.is_being_truncated {
                    return Err(being_truncated(id));
                }
                histories.blocks.insert(id, blocks);
                return Ok(());
            }
            let (from, inode, parent) = histories.decoder.version(id, bytes).map_err(bad)?;
            let state = FormerState { from, until, inode, parent, newest: 0 };
            histories.states.entry(id).or_default().push(state);
            Ok(())
        })?;
        histories.find_newest()?;
        histories.find_moved()?;
        Ok(histories)
    }

    /// Assigns each state to a snapshot, and drops the states that no snapshot has.
    fn find_newest(&mut self) -> Result<(), ImageError> {
        let mut found = Vec::new();
        let all: Vec<(u64, usize, u32, u32)> = self
            .states
            .iter()
            .flat_map(|(id, states)| states.iter().enumerate().map(|(i, state)| (*id, i, state.from, state.until)))
            .collect();
        for (id, index, from, until) in all {
            if let Some(newest) = self.newest_with(id, from, until)? {
                found.push((id, index, newest));
            }
        }
        for (id, index, newest) in found {
            if let Some(state) = self.states.get_mut(&id).and_then(|states| states.get_mut(index)) {
                state.newest = newest;
            }
        }
        self.states.retain(|_, states| {
            states.retain(|state| state.newest > 0);
            !states.is_empty()
        });
        Ok(())
    }

    /// Returns the newest existing snapshot, numbered `from < number <= until`, that has an inode.
    fn newest_with(&mut self, id: u64, from: u32, until: u32) -> Result<Option<u32>, ImageError> {
        let mut spans = std::mem::take(&mut self.spans);
        let own = spans.own(id);
        let own = own[..own.partition_point(|number| *number <= until)].last().copied();
        let mut newest = own.filter(|number| *number > from);
        for place in self.places_of(id)? {
            let place = Placed { from: place.from.max(from), until: place.until.min(until), ..place };
            if place.from < place.until {
                spans.find(place.parent, |id| self.places_of(id))?;
                newest = newest.max(spans.numbers(place).map(|(_, last)| last).max());
            }
        }
        self.spans = spans;
        Ok(newest)
    }

    /// Returns where an inode is, and where it was in its former states.
    fn places_of(&mut self, id: u64) -> Result<Vec<Placed>, ImageError> {
        if id == InodeId::ROOT.0 {
            return Ok(Vec::new());
        }
        let present = self.present(id)?;
        let present =
            present.map(|Present { place, since }| Placed { from: since, until: PRESENT, parent: place.parent });
        let former = self.states.get(&id).into_iter().flatten();
        let former = former.map(|state| Placed { from: state.from, until: state.until, parent: state.parent });
        Ok(present.into_iter().chain(former).collect())
    }

    /// Returns the place of an inode at the time of a snapshot. `None` if it did not exist then.
    fn place_in(&mut self, snapshot: u32, id: u64) -> Result<Option<Place>, ImageError> {
        let states = self.states.get(&id).map_or(&[][..], Vec::as_slice);
        if let Some(state) = states.iter().find(|state| state.holds_for(snapshot)) {
            return Ok(Some(Place { parent: state.parent, name: state.inode.name.to_vec() }));
        }
        let present = self.present(id)?;
        Ok(present.filter(|present| present.since < snapshot).map(|present| present.place))
    }

    fn present(&mut self, id: u64) -> Result<Option<Present>, ImageError> {
        if let Some(known) = self.present.get(&id) {
            return Ok(known.clone());
        }
        let present = self.present_inode(id)?.map(|(inode, parent)| Present {
            place: Place { parent, name: inode.name.to_vec() },
            since: inode.attributes().since,
        });
        self.present.insert(id, present.clone());
        Ok(present)
    }

    fn present_inode(&mut self, id: u64) -> Result<Option<(Inode, u64)>, ImageError> {
        let decoded = self.rows.with(id, |bytes| self.decoder.inode(id, bytes))?;
        decoded.transpose().map_err(|error| ImageError::Store(self.view.bad_record(error)))
    }

    /// Returns the present place of an inode, or the last one of a removed inode.
    fn last_place(&mut self, id: u64) -> Result<Option<Place>, ImageError> {
        if let Some(present) = self.present(id)? {
            return Ok(Some(present.place));
        }
        let newest = self.states.get(&id).and_then(|states| states.last());
        Ok(newest.map(|state| Place { parent: state.parent, name: state.inode.name.to_vec() }))
    }

    fn find_moved(&mut self) -> Result<(), ImageError> {
        let ids: Vec<u64> = self.states.keys().copied().collect();
        for id in ids {
            let Some(last) = self.last_place(id)? else { continue };
            if self.states[&id].iter().any(|state| !state.is_at(&last)) {
                self.moved.insert(id);
            }
        }
        for (id, states) in &self.states {
            for (index, state) in states.iter().enumerate() {
                self.former_children.entry(state.parent).or_default().push((*id, index));
            }
        }
        Ok(())
    }

    /// Returns the inodes that exist only in snapshots, in the order of ids.
    pub fn gone(&mut self) -> Result<Vec<u64>, ImageError> {
        let ids: Vec<u64> = self.states.keys().copied().collect();
        let mut gone = Vec::new();
        for id in ids {
            if self.present(id)?.is_none() {
                gone.push(id);
            }
        }
        Ok(gone)
    }

    /// Returns the inode of the section INODE for an inode that exists only in snapshots: its newest state, with the
    /// blocks as DataNodes have them.
    pub fn gone_inode(&self, id: u64, messages: &mut Messages) -> Result<InodeProto, ImageError> {
        let newest = self.states[&id].last().expect("an inode without states is not listed");
        let mut inode = messages.inode(&newest.inode)?;
        if let Some(file) = &mut inode.file {
            file.blocks = self.last_blocks(id, &newest.inode);
            self.set_last_policy(id, file);
        }
        Ok(inode)
    }

    /// Gives a removed file the storage policy that was in effect for it, which it may have inherited, or none. A
    /// difference has its own one.
    fn set_last_policy(&self, id: u64, file: &mut InodeFileProto) {
        if let Some(blocks) = self.blocks.get(&id) {
            file.storage_policy_id = Some(u32::from(blocks.policy));
        }
    }

    pub fn is_moved(&self, id: u64) -> bool {
        self.moved.contains(&id)
    }

    /// Returns whether the image must have a list of differences for a directory.
    pub fn has_diffs(&self, directory: u64) -> bool {
        self.states.contains_key(&directory) || !self.spans.own(directory).is_empty()
    }

    /// Returns the number of existing snapshots.
    pub fn snapshot_count(&self) -> u32 {
        self.snapshots.len() as u32
    }

    /// Returns all snapshots, ordered by directory and name.
    pub fn snapshots(&mut self, messages: &mut Messages) -> Result<Vec<SnapshotProto>, ImageError> {
        let mut rows: Vec<(u32, SnapshotRow)> = self.snapshots.iter().map(|(id, row)| (*id, row.clone())).collect();
        rows.sort_by(|(_, a), (_, b)| {
            a.root.cmp(&b.root).then_with(|| compare_names(a.name.as_bytes(), b.name.as_bytes()))
        });
        let mut all = Vec::with_capacity(rows.len());
        for (number, row) in rows {
            let mut directory = self.directory_in(number, row.root, messages)?.0;
            directory.modification_time = Some(row.modification_time_ms);
            let root = InodeProto {
                r#type: InodeTypeProto::Directory as i32,
                id: row.root,
                name: Some(row.name.into_bytes().into()),
                file: None,
                directory: Some(directory),
                symlink: None,
            };
            all.push(SnapshotProto { snapshot_id: Some(number - 1), root: Some(root) });
        }
        Ok(all)
    }

    /// Returns attributes and name of a directory in a snapshot, or at present.
    fn directory_in(
        &mut self,
        snapshot: u32,
        id: u64,
        messages: &mut Messages,
    ) -> Result<(InodeDirectoryProto, Vec<u8>), ImageError> {
        let states = self.states.get(&id).map_or(&[][..], Vec::as_slice);
        let held = states.iter().find(|state| state.holds_for(snapshot));
        if let Some(state) = held {
            return Ok((messages.directory(&state.inode)?, state.inode.name.to_vec()));
        }
        if let Some((inode, _)) = self.present_inode(id)? {
            return Ok((messages.directory(&inode)?, inode.name.to_vec()));
        }
        let newest = self.states.get(&id).and_then(|states| states.last());
        let inode = &newest.ok_or_else(|| missing(id))?.inode;
        Ok((messages.directory(inode)?, inode.name.to_vec()))
    }

    /// Returns the children of a directory that exists only in snapshots, as its newest state has them, in the order of
    /// names. Inodes that have moved on since are not among them.
    pub fn children_of_gone(&mut self, directory: u64) -> Result<Vec<PresentChild>, ImageError> {
        let newest = self.states[&directory].last().map_or(0, |state| state.newest);
        let mut children = Vec::new();
        for entry in self.entries(directory, &[]) {
            let place = Place { parent: directory, name: entry.name.clone() };
            if entry.is_in(newest) && self.last_place(entry.id)?.as_ref() == Some(&place) {
                children.push(PresentChild { id: entry.id, name: entry.name, since: 0 });
            }
        }
        Ok(children)
    }

    /// Returns the entries that a directory has or had, ordered by name.
    fn entries(&self, directory: u64, present: &[PresentChild]) -> Vec<Entry> {
        type NameAndId = (Vec<u8>, u64);
        let mut ranges: HashMap<NameAndId, Vec<(u32, u32)>> = HashMap::new();
        for child in present {
            ranges.entry((child.name.clone(), child.id)).or_default().push((child.since, PRESENT));
        }
        for (id, index) in self.former_children.get(&directory).map_or(&[][..], Vec::as_slice) {
            let state = &self.states[id][*index];
            ranges.entry((state.inode.name.to_vec(), *id)).or_default().push((state.from, state.until));
        }
        let mut entries: Vec<Entry> =
            ranges.into_iter().map(|((name, id), ranges)| Entry { name, id, ranges }).collect();
        entries.sort_unstable_by(|a, b| compare_names(&a.name, &b.name).then(a.id.cmp(&b.id)));
        entries
    }

    /// Returns the differences of a directory, newest first. `present`: its children; for a directory that exists only
    /// in snapshots, those of [`Self::children_of_gone`].
    pub fn directory_diffs(
        &mut self,
        directory: u64,
        present: &[PresentChild],
        messages: &mut Messages,
    ) -> Result<Vec<DirectoryDiff>, ImageError> {
        let is_gone = self.present(directory)?.is_none();
        let mut points: BTreeSet<u32> = self.spans.own(directory).iter().copied().collect();
        let states = self.states.get(&directory).map_or(&[][..], Vec::as_slice);
        points.extend(states.iter().map(|state| state.newest));
        let Some(oldest) = points.first().copied() else { return Ok(Vec::new()) };
        // Children that all snapshots have are only counted.
        let mut always = 0;
        let (mut varying, mut listed) = (Vec::new(), HashSet::new());
        for child in present {
            if !is_gone && child.since < oldest {
                always += 1;
            } else {
                varying.push(PresentChild { id: child.id, name: child.name.clone(), since: child.since });
            }
            if is_gone {
                listed.insert((child.id, child.name.clone()));
            }
        }
        let entries = if is_gone { self.entries(directory, &[]) } else { self.entries(directory, &varying) };
        let is_present = |entry: &Entry| match is_gone {
            true => listed.contains(&(entry.id, entry.name.clone())),
            false => entry.is_in(PRESENT),
        };
        let moved: Vec<bool> = entries.iter().map(|entry| self.is_moved(entry.id)).collect();
        let mut diffs = Vec::new();
        let mut later: Vec<bool> = entries.iter().map(is_present).collect();
        let (mut later_copy, _) = self.directory_in(PRESENT, directory, messages)?;
        let mut later_place = self.last_place(directory)?;
        let mut later_number = PRESENT;
        for snapshot in points.into_iter().rev() {
            let here: Vec<bool> = entries.iter().map(|entry| entry.is_in(snapshot)).collect();
            let (copy, name) = self.directory_in(snapshot, directory, messages)?;
            let place = self.place_in(snapshot, directory)?;
            let is_root = self.snapshots.get(&snapshot).is_some_and(|row| row.root == directory);
            let size = always + here.iter().filter(|is_here| **is_here).count() as u32;
            let mut diff = DirectoryDiffProto {
                snapshot_id: Some(snapshot - 1),
                children_size: Some(size),
                is_snapshot_root: Some(is_root),
                name: (!is_root).then(|| Bytes::copy_from_slice(&name)),
                snapshot_copy: (!is_root).then(|| copy.clone()),
                ..DirectoryDiffProto::default()
            };
            let mut created = Vec::new();
            for (((entry, is_here), is_later), is_moved) in entries.iter().zip(&here).zip(&later).zip(&moved) {
                // As in Apache's NameNode, a child that has left and come back is another entry than before.
                let was_away =
                    *is_moved && *is_here && *is_later && self.was_away(entry, directory, snapshot, later_number);
                if *is_later && (!is_here || was_away) {
                    created.push(entry.name.clone());
                }
                match (is_here, !is_later || was_away) {
                    (true, true) if *is_moved => {
                        let name = Some(Bytes::copy_from_slice(&entry.name));
                        let place = self.refer(InodeReferenceProto {
                            referred_id: Some(entry.id),
                            name,
                            dst_snapshot_id: None,
                            last_snapshot_id: Some(snapshot - 1),
                        });
                        diff.deleted_inode_ref.push(place);
                    }
                    (true, true) => diff.deleted_inode.push(entry.id),
                    _ => {}
                }
            }
            diff.created_list_size = Some(created.len() as u32);
            let has_lists = !(created.is_empty() && diff.deleted_inode.is_empty() && diff.deleted_inode_ref.is_empty());
            // Apache's NameNode refuses to remove a moved directory that has no difference from before the move.
            if is_root || has_lists || copy != later_copy || place != later_place {
                diffs.push((diff, created));
            }
            (later, later_copy, later_place, later_number) = (here, copy, place, snapshot);
        }
        Ok(diffs)
    }

    /// Returns whether an entry was at another place in a snapshot between two numbers.
    fn was_away(&self, entry: &Entry, directory: u64, from: u32, until: u32) -> bool {
        let states = self.states.get(&entry.id).map_or(&[][..], Vec::as_slice);
        let after = &states[states.partition_point(|state| state.newest <= from)..];
        let mut between = after.iter().take_while(|state| state.newest < until);
        between.any(|state| state.parent != directory || *state.inode.name != *entry.name)
    }

    /// Adds an entry of INODE_REFERENCE. Returns its place.
    fn refer(&mut self, reference: InodeReferenceProto) -> u32 {
        self.references.push(reference);
        self.references.len() as u32 - 1
    }

    /// Adds the reference to the present place of an inode that has moved. Returns its place in INODE_REFERENCE.
    pub fn refer_to_present(&mut self, id: u64) -> Result<u32, ImageError> {
        let last = self.last_place(id)?.ok_or_else(|| missing(id))?;
        let states = self.states.get(&id).map_or(&[][..], Vec::as_slice);
        let before = states.iter().rev().find(|state| !state.is_at(&last)).map_or(0, |state| state.until);
        let snapshot = self.newest_with(last.parent, 0, before)?.map_or(NO_SNAPSHOT, |number| number - 1);
        Ok(self.refer(InodeReferenceProto {
            referred_id: Some(id),
            name: None,
            dst_snapshot_id: Some(snapshot),
            last_snapshot_id: None,
        }))
    }

    /// Returns the directories with former states or snapshots, in the order of ids.
    pub fn directories(&self) -> Vec<u64> {
        let changed = self.states.iter().filter(|(_, states)| states.iter().any(|state| state.inode.is_directory()));
        let all: BTreeSet<u64> = changed.map(|(id, _)| *id).chain(self.spans.roots()).collect();
        all.into_iter().collect()
    }

    /// Returns whether an inode exists only in snapshots.
    pub fn is_gone(&mut self, id: u64) -> Result<bool, ImageError> {
        Ok(self.present(id)?.is_none())
    }

    /// Returns the ids of inodes with former states.
    pub fn ids(&self) -> Vec<u64> {
        self.states.keys().copied().collect()
    }

    /// Returns true if the states of an inode are those of a file.
    pub fn is_file(&self, id: u64) -> bool {
        self.states[&id].first().is_some_and(|state| !state.inode.is_directory())
    }

    /// Returns the blocks of a removed file's newest state, as DataNodes have them.
    fn last_blocks(&self, id: u64, newest: &Inode) -> Vec<BlockProto> {
        let kept = self.blocks.get(&id).map_or(&[][..], |blocks| &blocks.blocks);
        let last = |record: BlockRecord| kept.iter().find(|kept| kept.id == record.id).copied().unwrap_or(record);
        let blocks = newest.as_file().map(|file| file.blocks());
        blocks.into_iter().flat_map(|blocks| blocks.iter()).map(|record| block(last(record))).collect()
    }

    /// Returns the differences of a file, newest first.
    pub fn file_diffs(&mut self, id: u64, messages: &mut Messages) -> Result<Vec<FileDiffProto>, ImageError> {
        let present = self.present_inode(id)?.map(|(inode, _)| inode);
        let mut later_place = self.last_place(id)?;
        let states = &self.states[&id];
        let newest = states.last().map(|state| &state.inode);
        let last = present.as_ref().or(newest).ok_or_else(|| missing(id))?;
        let last_blocks = match &present {
            Some(inode) => blocks_of(inode),
            None => self.last_blocks(id, last),
        };
        let mut copy = messages.file(last)?;
        if present.is_none() {
            self.set_last_policy(id, &mut copy);
        }
        let mut later = Comparable { copy, size: length(&last_blocks), blocks: last_blocks.clone() };
        let known: HashMap<u64, BlockProto> = {
            let kept = self.blocks.get(&id).map_or(&[][..], |blocks| &blocks.blocks);
            kept.iter().map(|record| block(*record)).chain(last_blocks).map(|block| (block.block_id, block)).collect()
        };
        let mut diffs = Vec::new();
        for state in states.iter().rev() {
            let own = blocks_of(&state.inode);
            let here = Comparable { copy: messages.file(&state.inode)?, size: length(&own), blocks: own };
            // Apache's NameNode refuses to remove a moved file that has no difference from before the move.
            let has_moved = later_place.is_some_and(|place| !state.is_at(&place));
            if here != later || has_moved {
                let now = |own: &BlockProto| known.get(&own.block_id).copied().unwrap_or(*own);
                let blocks: Vec<BlockProto> = here.blocks.iter().map(now).collect();
                let mut copy = here.copy.clone();
                let lengths = here.blocks.iter().map(|own| BlockProto { num_bytes: own.num_bytes, ..now(own) });
                let own: Vec<BlockProto> = lengths.collect();
                if cut(&blocks, here.size) != own {
                    // Only the last block of a file grows. This one became the last when later blocks were truncated
                    // away. Apache's NameNode has one length for each block, and ignores these.
                    copy.blocks = own;
                }
                diffs.push(FileDiffProto {
                    snapshot_id: Some(state.newest - 1),
                    file_size: Some(here.size),
                    name: Some(Bytes::copy_from_slice(&state.inode.name)),
                    snapshot_copy: Some(copy),
                    blocks,
                });
            }
            later = here;
            later_place = Some(Place { parent: state.parent, name: state.inode.name.to_vec() });
        }
        Ok(diffs)
    }
}

/// State of a file, for the comparison with the next one.
#[derive(PartialEq)]
struct Comparable {
    copy: InodeFileProto,
    size: u64,
    blocks: Vec<BlockProto>,
}

fn blocks_of(inode: &Inode) -> Vec<BlockProto> {
    inode.as_file().map(|file| file.blocks().iter().map(block).collect()).unwrap_or_default()
}

fn length(blocks: &[BlockProto]) -> u64 {
    blocks.iter().filter_map(|block| block.num_bytes).fold(0, u64::saturating_add)
}

/// A child that a directory has or had, and the ranges of snapshots for which it has it.
struct Entry {
    name: Vec<u8>,
    id: u64,
    ranges: Vec<(u32, u32)>,
}

impl Entry {
    fn is_in(&self, snapshot: u32) -> bool {
        self.ranges.iter().any(|(from, until)| *from < snapshot && snapshot <= *until)
    }
}

fn missing(id: u64) -> ImageError {
    ImageError::Inexpressible { what: format!("inode {id} of a snapshot does not exist") }
}
