//! Snapshots and former states of inodes in an image that is being imported; the reverse of `history.rs`.
//!
//! The differences of a directory lead from its present children back to those in each snapshot. From that follows, for
//! each inode in any list, at which place it was in which snapshots. The differences of an inode have its attributes in
//! them. The store gets a version for each range of snapshots in which neither changes.
//!
//! Snapshots of all directories are numbered together. The lists of a directory are valid only for snapshots that have the
//! directory, so the places of a moved inode may overlap. In each snapshot the valid place is the one whose parent is in
//! the snapshot, too (`spans.rs`).
//!
//! Numbers of snapshots are the store's: one more than in the image. 0 is before all snapshots.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use hearth_wire::proto::hdfs::BlockProto;
use hearth_wire::proto::hdfs::fsimage::{
    CreatedListEntryProto, DiffEntryProto, DiffTypeProto, DirectoryDiffProto, FileDiffProto, InodeDirectoryProto,
    InodeProto, InodeReferenceProto, SnapshotProto, SnapshotSectionProto,
};

use super::ImageError;
use super::import::{Converter, Places};
use super::input::Input;
use super::spans::{Placed, Spans};
use crate::changes::SnapshotRow;
use crate::namespace::InodeId;
use crate::namespace::stored::InodeParts;

/// End of a range that holds at present.
const PRESENT: u32 = u32::MAX;
/// Largest number of a snapshot, as in Apache's NameNode.
const NUMBER_MAX: u32 = 1 << 28;

/// Place of an inode in snapshots `from < number <= until`.
struct Range {
    from: u32,
    until: u32,
    parent: u64,
    name: Vec<u8>,
}

/// Place that an inode has, had, or seems to have had, in snapshots `from < number <= until`.
struct Place<'a> {
    from: u32,
    until: u32,
    parent: u64,
    /// `None`: its present name.
    name: Option<&'a [u8]>,
}

impl Place<'_> {
    fn holds_for(&self, snapshot: u32) -> bool {
        self.from < snapshot && snapshot <= self.until
    }

    fn placed(&self) -> Placed {
        Placed { from: self.from, until: self.until, parent: self.parent }
    }
}

/// Snapshots in which an inode is at one place: the numbers of the first and the last one.
#[derive(Clone, Copy)]
struct Stay {
    first: u32,
    last: u32,
    /// Index of the place among those of the inode.
    place: usize,
}

/// A former state of a directory, by the newest snapshot that has it.
struct DirectoryState {
    number: u32,
    /// `None`: as in the next later state.
    copy: Option<InodeDirectoryProto>,
    /// Names of children that the next later state has and this one has not.
    created: Vec<Vec<u8>>,
    /// Children that this state has and the next later one has not, with their names here if they are known.
    deleted: Vec<(u64, Option<Vec<u8>>)>,
}

/// A version of an inode for the store.
pub(super) struct Version {
    pub from: u32,
    pub until: u32,
    pub parts: InodeParts,
    pub parent: u64,
}

/// All former states in an image.
#[derive(Default)]
pub(super) struct Past {
    pub counter: u32,
    pub snapshottable: HashSet<u64>,
    /// Snapshots by number.
    pub snapshots: BTreeMap<u32, SnapshotRow>,
    /// Former states by inode id, newest first.
    directories: BTreeMap<u64, Vec<DirectoryState>>,
    files: HashMap<u64, Vec<FileDiffProto>>,
    /// Names that children of a directory have at present and did not always have.
    created: HashMap<u64, HashSet<Vec<u8>>>,
    /// Inodes in lists of removed children, and their own names.
    deleted: HashMap<u64, Vec<u8>>,
    /// Children with the names in `created`.
    children: HashMap<(u64, Vec<u8>), u64>,
    /// Places of the inodes in any list.
    ranges: HashMap<u64, Vec<Range>>,
    /// Snapshots that have a directory.
    spans: Spans,
}

impl Past {
    /// Reads the sections SNAPSHOT and SNAPSHOT_DIFF.
    pub fn read(input: &Input, references: &[InodeReferenceProto]) -> Result<Self, ImageError> {
        let mut past = Self::default();
        let mut section = input.section("SNAPSHOT");
        let Some(head) = section.next::<SnapshotSectionProto>()? else { return Ok(past) };
        past.counter = head.snapshot_counter.unwrap_or(0);
        if past.counter > NUMBER_MAX {
            return Err(section.damaged("the number of the next snapshot is too large"));
        }
        past.snapshottable = head.snapshottable_dir.into_iter().collect();
        let mut roots: HashMap<u32, InodeDirectoryProto> = HashMap::new();
        let mut names = HashSet::new();
        for _ in 0..head.num_snapshots.unwrap_or(0) {
            let SnapshotProto { snapshot_id, root } = section.required()?;
            let number = past.number(snapshot_id).ok_or_else(|| section.damaged("a snapshot has no valid number"))?;
            let root = root.ok_or_else(|| section.damaged("a snapshot has no root"))?;
            let name = String::from_utf8(root.name.unwrap_or_default().to_vec());
            let name = name.map_err(|_| section.damaged("the name of a snapshot is not UTF-8"))?;
            let directory = root.directory.unwrap_or_default();
            let time = directory.modification_time.unwrap_or(0);
            if name.is_empty() || name.contains(['/', ':']) || [".", ".."].contains(&name.as_str()) {
                return Err(section.damaged(&format!("the name of snapshot {number} is not valid")));
            }
            if !names.insert((root.id, name.clone())) {
                return Err(section.damaged(&format!("directory {} has two snapshots with the same name", root.id)));
            }
            let row = SnapshotRow { root: root.id, name, modification_time_ms: time };
            if past.snapshots.insert(number, row).is_some() {
                return Err(section.damaged("two snapshots have the same number"));
            }
            roots.insert(number, directory);
        }
        past.spans = Spans::new(&past.snapshots);
        let mut section = input.section("SNAPSHOT_DIFF");
        while let Some(entry) = section.next::<DiffEntryProto>()? {
            let id = entry.inode_id.unwrap_or(0);
            let count = entry.num_of_diff.unwrap_or(0);
            if entry.r#type == DiffTypeProto::Filediff as i32 {
                for _ in 0..count {
                    let diff: FileDiffProto = section.required()?;
                    past.number(diff.snapshot_id).ok_or_else(|| section.damaged("a state has no valid snapshot"))?;
                    past.files.entry(id).or_default().push(diff);
                }
                continue;
            }
            for _ in 0..count {
                let diff: DirectoryDiffProto = section.required()?;
                let number = past.number(diff.snapshot_id);
                let number = number.ok_or_else(|| section.damaged("a state has no valid snapshot"))?;
                let mut created = Vec::new();
                for _ in 0..diff.created_list_size.unwrap_or(0) {
                    let entry: CreatedListEntryProto = section.required()?;
                    created.push(entry.name.unwrap_or_default().to_vec());
                }
                let mut deleted: Vec<(u64, Option<Vec<u8>>)> =
                    diff.deleted_inode.iter().map(|id| (*id, None)).collect();
                for place in &diff.deleted_inode_ref {
                    let reference = references.get(*place as usize);
                    let reference = reference.ok_or_else(|| section.damaged("it refers to no reference"))?;
                    let name = reference.name.as_ref().map(|name| name.to_vec());
                    deleted.push((reference.referred_id.unwrap_or(0), name));
                }
                let copy = match diff.is_snapshot_root.unwrap_or(false) {
                    true => roots.get(&number).cloned(),
                    false => diff.snapshot_copy,
                };
                past.created.entry(id).or_default().extend(created.iter().cloned());
                past.deleted.extend(deleted.iter().map(|(id, _)| (*id, Vec::new())));
                past.directories.entry(id).or_default().push(DirectoryState { number, copy, created, deleted });
            }
        }
        past.check_order(input)?;
        Ok(past)
    }

    fn number(&self, id: Option<u32>) -> Option<u32> {
        id.filter(|id| *id < self.counter).map(|id| id + 1)
    }

    fn check_order(&self, input: &Input) -> Result<(), ImageError> {
        let directories = self.directories.values().map(|states| states.is_sorted_by(|a, b| a.number > b.number));
        let files = self.files.values().map(|diffs| diffs.is_sorted_by(|a, b| a.snapshot_id > b.snapshot_id));
        match directories.chain(files).all(|is_sorted| is_sorted) {
            true => Ok(()),
            false => Err(input.damaged("the former states of an inode are not ordered")),
        }
    }

    /// Returns whether there are neither snapshots nor former states.
    pub fn is_empty(&self) -> bool {
        self.snapshots.is_empty() && self.directories.is_empty() && self.files.is_empty()
    }

    /// Notes the name of an inode, if [`Self::resolve`] needs it.
    pub fn learn(&mut self, inode: &InodeProto, parent: Option<u64>) {
        let name = inode.name.as_deref().unwrap_or_default();
        if let Some(parent) = parent
            && self.created.get(&parent).is_some_and(|names| names.contains(name))
        {
            self.children.insert((parent, name.to_vec()), inode.id);
        }
        if let Some(known) = self.deleted.get_mut(&inode.id) {
            *known = name.to_vec();
        }
    }

    /// Computes the places of all inodes in lists.
    pub fn resolve(&mut self) {
        for (directory, states) in &self.directories {
            // Children by name, and the newest snapshot in which they are there.
            let mut active: HashMap<&[u8], (u64, u32)> = HashMap::new();
            for name in self.created.get(directory).into_iter().flatten() {
                if let Some(id) = self.children.get(&(*directory, name.clone())) {
                    active.insert(name, (*id, PRESENT));
                }
            }
            let mut note = |id: u64, from: u32, until: u32, name: &[u8]| {
                let range = Range { from, until, parent: *directory, name: name.to_vec() };
                self.ranges.entry(id).or_default().push(range);
            };
            for state in states {
                for name in &state.created {
                    if let Some((id, until)) = active.remove(name.as_slice()) {
                        note(id, state.number, until, name);
                    }
                }
                for (id, name) in &state.deleted {
                    let own = self.deleted.get(id).map_or(&[][..], Vec::as_slice);
                    active.insert(name.as_deref().unwrap_or(own), (*id, state.number));
                }
            }
            for (name, (id, until)) in active {
                note(id, 0, until, name);
            }
        }
    }

    /// Returns whether an inode has other states or places than its present one.
    pub fn is_special(&self, id: u64) -> bool {
        self.directories.contains_key(&id) || self.files.contains_key(&id) || self.ranges.contains_key(&id)
    }

    /// Returns the places of an inode. In a snapshot that does not have the parent, a place is not valid.
    fn places_of<'a>(&'a self, id: u64, places: &Places) -> impl Iterator<Item = Place<'a>> + use<'a> {
        let ranges = self.ranges.get(&id).map_or(&[][..], Vec::as_slice);
        // If no list has its present place, that place may be valid for all snapshots.
        let is_listed = ranges.iter().any(|range| range.until == PRESENT);
        let present = places.parent(id).filter(|_| !is_listed);
        let present = present.map(|parent| Place { from: 0, until: PRESENT, parent, name: None });
        let listed = |range: &'a Range| {
            let Range { from, until, parent, ref name } = *range;
            Place { from, until, parent, name: Some(name.as_slice()) }
        };
        ranges.iter().map(listed).chain(present)
    }

    /// Finds the snapshots that have the directories in which an inode is or was.
    fn find_spans(&mut self, parents: &[u64], places: &Places) -> Result<(), ImageError> {
        let mut spans = std::mem::take(&mut self.spans);
        let of = |id: u64| -> Result<Vec<Placed>, ImageError> {
            Ok(self.places_of(id, places).map(|place| place.placed()).collect())
        };
        let outcome = parents.iter().try_for_each(|parent| spans.find(*parent, of));
        self.spans = spans;
        outcome
    }

    /// Returns whether a snapshot has a directory. [`Self::find_spans`] must have found the directory's snapshots.
    fn is_in(&self, snapshot: u32, directory: u64) -> bool {
        self.snapshots.get(&snapshot).is_some_and(|row| self.spans.has(snapshot, row.root, directory))
    }

    /// Returns where an inode is in the snapshots up to `until`, ordered by the first snapshot.
    fn stays(&self, all: &[Place<'_>], until: u32) -> Vec<Stay> {
        let mut stays = Vec::new();
        for (index, place) in all.iter().enumerate() {
            let numbers = self.spans.numbers(Placed { until: place.until.min(until), ..place.placed() });
            stays.extend(numbers.map(|(first, last)| Stay { first, last, place: index }));
        }
        stays.sort_unstable_by_key(|stay| (stay.first, stay.last));
        stays
    }

    /// Returns the newest snapshot that an inode which exists only in snapshots may have. 0: none.
    pub fn last(&self, id: u64, places: &Places) -> u32 {
        let (mut at, mut last) = (id, 0);
        // Each step leads to the parent: an inode that did not leave it is there for as long as the parent exists.
        // Longer ways than the tree can be deep are cycles.
        for _ in 0..super::import::DEPTH_MAX {
            let ranges = self.ranges.get(&at).map_or(&[][..], Vec::as_slice);
            last = ranges.iter().map(|range| range.until).filter(|until| *until != PRESENT).fold(last, u32::max);
            match places.parent(at) {
                Some(parent) => at = parent,
                None => return last,
            }
        }
        0
    }

    /// Returns the numbers at which the content of an inode may end.
    fn content_ends(&self, id: u64) -> BTreeSet<u32> {
        let of_directory = self.directories.get(&id).into_iter().flatten().map(|state| state.number);
        let of_file = self.files.get(&id).into_iter().flatten().filter_map(|diff| self.number(diff.snapshot_id));
        of_directory.chain(of_file).collect()
    }

    /// Returns the numbers at which the state of an inode may end: its content or its place. If the inode has moved, or
    /// exists only in snapshots, [`Self::find_spans`] must have found the snapshots of its parents.
    fn ends(&self, id: u64, is_live: bool, has_moved: bool, all: &[Place<'_>], places: &Places) -> BTreeSet<u32> {
        let mut ends = self.content_ends(id);
        ends.extend(all.iter().flat_map(|place| [place.from, place.until]));
        ends.remove(&0);
        ends.remove(&PRESENT);
        if is_live && !has_moved {
            return ends;
        }
        // The present state begins after the last end.
        let last = if is_live { ends.last().copied().unwrap_or(0) } else { self.last(id, places) };
        let stays = self.stays(all, last);
        if !is_live {
            let Some(last) = stays.iter().map(|stay| stay.last).max() else { return BTreeSet::new() };
            ends.insert(last);
            ends.retain(|end| *end <= last);
        }
        if has_moved {
            // A state may end at a snapshot of another directory, which does not have the inode. The snapshot before it that
            // has the inode must not be lost.
            let known = ends.clone();
            for stay in &stays {
                let own = self.snapshots.get(&stay.first).map_or(&[][..], |row| self.spans.own(row.root));
                let before = |end: &u32| own.get(own.partition_point(|number| number <= end).checked_sub(1)?).copied();
                ends.extend(known.range(stay.first..stay.last).filter_map(before));
            }
            let number = |(number, _): (&u32, &SnapshotRow)| *number;
            let mut longest: Option<Stay> = None;
            for stay in stays {
                ends.insert(stay.last);
                ends.extend(self.snapshots.range(..stay.first).next_back().map(number));
                if let Some(other) = longest
                    && other.place != stay.place
                    && stay.first <= other.last
                {
                    // In two places by turns, which no valid image has.
                    ends.extend(self.snapshots.range(stay.first..=other.last.min(stay.last)).map(number));
                }
                longest = longest.filter(|other| other.last > stay.last).or(Some(stay));
            }
        }
        ends
    }

    /// Returns the versions of an inode, oldest first, and the number after which its present state holds.
    pub fn versions(
        &mut self,
        inode: &InodeProto,
        is_live: bool,
        places: &Places,
        converter: &mut Converter<'_>,
    ) -> Result<(Vec<Version>, u32), ImageError> {
        let is_root = inode.id == InodeId::ROOT.0;
        let parents: Vec<u64> = match is_root {
            true => vec![inode.id],
            false => self.places_of(inode.id, places).map(|place| place.parent).collect(),
        };
        // Only places in several directories may overlap.
        let has_moved = parents.windows(2).any(|pair| pair[0] != pair[1]);
        if has_moved || !is_live {
            self.find_spans(&parents, places)?;
        }
        let all: Vec<Place<'_>> = match is_root {
            true => vec![Place { from: 0, until: PRESENT, parent: inode.id, name: None }],
            false => self.places_of(inode.id, places).collect(),
        };
        let own_name = inode.name.as_deref().unwrap_or_default();
        let contents = self.content_ends(inode.id);
        let mut versions: Vec<Version> = Vec::new();
        // The newest version may also hold for the snapshots up to `from` if it `reaches` there. Its content ends at
        // `content`.
        let (mut from, mut reaches, mut content) = (0, false, None);
        for until in self.ends(inode.id, is_live, has_moved, &all, places) {
            let is_at = |place: &Place<'_>, version: &Version| {
                place.parent == version.parent && place.name.unwrap_or(own_name) == version.parts.name.as_slice()
            };
            let mut then = all.iter().filter(|place| place.holds_for(until));
            if let Some(place) = then.clone().find(|place| !has_moved || self.is_in(until, place.parent)) {
                let content_then = contents.range(until..).next().copied();
                if let Some(last) = versions.last_mut().filter(|last| reaches && is_at(place, last))
                    && content_then == content
                {
                    (last.until, from) = (until, until);
                    continue;
                }
                content = content_then;
                let (parent, name) = (place.parent, place.name.unwrap_or(own_name));
                if name.is_empty() != (inode.id == InodeId::ROOT.0) || name.contains(&b'/') {
                    return Err(converter.damaged(inode.id, "its name in a snapshot is not valid"));
                }
                let mut parts = self.state(inode, until, converter)?;
                parts.name = name.to_vec();
                match versions.last_mut() {
                    Some(last) if reaches && last.parent == parent && last.parts == parts => last.until = until,
                    _ => versions.push(Version { from, until, parts, parent }),
                }
                reaches = true;
            } else if let Some(last) = versions.last() {
                // The snapshot does not have this directory, so the version may hold for it and a later snapshot.
                reaches = reaches && then.any(|place| is_at(place, last));
            }
            from = until;
        }
        for version in &mut versions {
            version.parts.attributes.since = version.from;
        }
        Ok((versions, from))
    }

    /// Returns all blocks in the differences of a file, as DataNodes have them, newest first. Some occur several times.
    pub fn blocks(&self, id: u64) -> impl Iterator<Item = &BlockProto> {
        self.files.get(&id).into_iter().flatten().flat_map(|diff| &diff.blocks)
    }

    /// Returns the content of an inode in a snapshot, with its present name.
    fn state(&self, inode: &InodeProto, number: u32, converter: &mut Converter<'_>) -> Result<InodeParts, ImageError> {
        let mut then = inode.clone();
        if let Some(states) = self.directories.get(&inode.id) {
            // Newest first, so the last state that is not too old is the first one from the snapshot on.
            let mut later = states.iter().rev().filter(|state| state.number >= number);
            if let Some(copy) = later.find_map(|state| state.copy.as_ref()) {
                then.directory = Some(copy.clone());
            }
        } else if let (Some(diffs), Some(file)) = (self.files.get(&inode.id), &mut then.file) {
            let blocks = std::mem::take(&mut file.blocks);
            let later: Vec<&FileDiffProto> = diffs
                .iter()
                .rev()
                .filter(|diff| self.number(diff.snapshot_id).is_some_and(|at| at >= number))
                .collect();
            if let Some(copy) = later.iter().find_map(|diff| diff.snapshot_copy.as_ref()) {
                *file = copy.clone();
            }
            let own = later.first().and_then(|diff| diff.snapshot_copy.as_ref()).filter(|copy| !copy.blocks.is_empty());
            if own.is_none() {
                let listed = later.iter().find(|diff| !diff.blocks.is_empty()).map(|diff| diff.blocks.clone());
                file.blocks = listed.unwrap_or(blocks);
                if let Some(size) = later.first().map(|diff| diff.file_size.unwrap_or(0)) {
                    file.blocks = cut(&file.blocks, size);
                }
            }
        }
        if let Some(file) = &mut then.file {
            file.file_uc = None;
        }
        let mut parts = converter.inode(&then)?;
        parts.is_snapshottable = false;
        Ok(parts)
    }
}

/// Returns the first blocks, up to `size` bytes in all.
pub(super) fn cut(blocks: &[BlockProto], size: u64) -> Vec<BlockProto> {
    let mut left = size;
    let mut kept = Vec::new();
    for block in blocks {
        if left == 0 {
            break;
        }
        let length = block.num_bytes.unwrap_or(0).min(left);
        kept.push(BlockProto { num_bytes: Some(length), ..*block });
        left -= length;
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_cut_at_the_size() {
        let block = |block_id, length| BlockProto { block_id, gen_stamp: 1, num_bytes: Some(length) };
        let all = [block(1, 10), block(2, 10), block(3, 5)];
        assert_eq!(cut(&all, 25), all);
        assert_eq!(cut(&all, 20), all[..2]);
        assert_eq!(cut(&all, 11), [block(1, 10), block(2, 1)]);
        assert!(cut(&all, 0).is_empty());
    }
}
