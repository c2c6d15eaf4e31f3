//! Which snapshots have a directory.
//!
//! A snapshot has a directory if a way upwards leads to the directory that the snapshot is of, over places that are valid
//! in that snapshot. Millions of inodes may have moved and there may be thousands of snapshots, so this is not checked
//! for each of them. The snapshots that have a directory are computed once, as a few spans of each list of snapshots.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use super::ImageError;
use crate::changes::SnapshotRow;

/// Parent of an inode in snapshots `from < number <= until`, if the snapshot has the parent.
#[derive(Clone, Copy)]
pub(super) struct Placed {
    pub from: u32,
    pub until: u32,
    pub parent: u64,
}

/// Snapshots of the directory `root`: a range of indices in the list of its snapshots.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Span {
    root: u64,
    first: usize,
    end: usize,
}

/// Snapshots by directory, and the snapshots that have a directory, as far as they are found.
#[derive(Default)]
pub(super) struct Spans {
    /// Numbers of the snapshots of each directory, ascending.
    own: HashMap<u64, Vec<u32>>,
    found: HashMap<u64, Arc<[Span]>>,
}

impl Spans {
    pub fn new(snapshots: &BTreeMap<u32, SnapshotRow>) -> Self {
        let mut own: HashMap<u64, Vec<u32>> = HashMap::new();
        for (number, row) in snapshots {
            own.entry(row.root).or_default().push(*number);
        }
        Self { own, found: HashMap::new() }
    }

    /// Returns the directories that have snapshots.
    pub fn roots(&self) -> impl Iterator<Item = u64> {
        self.own.keys().copied()
    }

    /// Returns the numbers of a directory's own snapshots, ascending.
    pub fn own(&self, directory: u64) -> &[u32] {
        self.own.get(&directory).map_or(&[][..], Vec::as_slice)
    }

    /// Finds the snapshots that have a directory, and those that have the directories above it.
    ///
    /// `places`: returns the places of a directory. They may form cycles, because a directory can have been below another
    /// one and above it later. Hence the spans grow from nothing until none changes.
    pub fn find(
        &mut self,
        directory: u64,
        mut places: impl FnMut(u64) -> Result<Vec<Placed>, ImageError>,
    ) -> Result<(), ImageError> {
        let (mut waiting, mut unknown, mut seen) = (vec![directory], Vec::new(), HashSet::new());
        while let Some(at) = waiting.pop() {
            if !self.found.contains_key(&at) && seen.insert(at) {
                let places = places(at)?;
                waiting.extend(places.iter().map(|place| place.parent));
                unknown.push((at, places));
            }
        }
        // Parents first. So the first pass finds everything, unless there are cycles.
        unknown.reverse();
        let mut has_grown = true;
        while has_grown {
            has_grown = false;
            for (at, places) in &unknown {
                #[cfg(test)]
                crate::namespace::visited_inodes::count();
                let own = self.own.get(at).map(|own| Span { root: *at, first: 0, end: own.len() });
                let above = places.iter().flat_map(|place| self.during(*place));
                let spans = joined(own.into_iter().chain(above).collect());
                if *self.of(*at) == *spans {
                    continue;
                }
                // Most directories are in the same snapshots as their parent.
                let parent = places.first().and_then(|place| self.found.get(&place.parent));
                let shared = parent.filter(|above| ***above == *spans).cloned();
                self.found.insert(*at, shared.unwrap_or_else(|| spans.into()));
                has_grown = true;
            }
        }
        for (at, _) in unknown {
            self.found.entry(at).or_default();
        }
        Ok(())
    }

    fn of(&self, directory: u64) -> &[Span] {
        self.found.get(&directory).map_or(&[][..], |spans| spans.as_ref())
    }

    /// Returns the snapshots in which an inode is at a place.
    fn during(&self, place: Placed) -> Vec<Span> {
        let clipped = |span: &Span| {
            let own = self.own(span.root);
            let first = span.first.max(own.partition_point(|number| *number <= place.from));
            let end = span.end.min(own.partition_point(|number| *number <= place.until));
            (first < end).then_some(Span { root: span.root, first, end })
        };
        self.of(place.parent).iter().filter_map(clipped).collect()
    }

    /// Returns the snapshots in which an inode is at a place, as pairs of the first and the last number. Snapshots of
    /// other directories may be between them. [`Self::find`] must have found the parent's snapshots.
    pub fn numbers(&self, place: Placed) -> impl Iterator<Item = (u32, u32)> {
        let spans = self.during(place).into_iter();
        spans.map(move |span| {
            let own = self.own(span.root);
            (own[span.first], own[span.end - 1])
        })
    }

    /// Returns whether snapshot `number` of `root` has a directory. [`Self::find`] must have found the directory's
    /// snapshots.
    pub fn has(&self, number: u32, root: u64, directory: u64) -> bool {
        #[cfg(test)]
        crate::namespace::visited_inodes::count();
        let at = self.own(root).partition_point(|own| *own < number);
        self.of(directory).iter().any(|span| span.root == root && span.first <= at && at < span.end)
    }
}

/// Joins spans that overlap or follow each other.
fn joined(mut spans: Vec<Span>) -> Vec<Span> {
    spans.sort_unstable_by_key(|span| (span.root, span.first));
    spans.dedup_by(|next, last| {
        let is_joined = next.root == last.root && next.first <= last.end;
        if is_joined {
            last.end = last.end.max(next.end);
        }
        is_joined
    });
    spans
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Directories 1 and 2 have snapshots 1, 3, 5 and 2, 4, 6.
    fn spans() -> Spans {
        let row = |root| SnapshotRow { root, name: String::new(), modification_time_ms: 0 };
        Spans::new(&(1..=6).map(|number: u32| (number, row(u64::from(2 - number % 2)))).collect())
    }

    fn found(spans: &mut Spans, directory: u64, places: &[(u64, Placed)]) -> Vec<u32> {
        let of = |id: u64| -> Result<Vec<Placed>, ImageError> {
            Ok(places.iter().filter(|(at, _)| *at == id).map(|(_, place)| *place).collect())
        };
        spans.find(directory, of).unwrap();
        (1..=6u32).filter(|number| spans.has(*number, u64::from(2 - number % 2), directory)).collect()
    }

    fn at(parent: u64, from: u32, until: u32) -> Placed {
        Placed { from, until, parent }
    }

    #[test]
    fn places_are_valid_in_snapshots_of_their_directory() {
        let places = [(10, at(1, 0, 3)), (10, at(2, 0, u32::MAX)), (11, at(10, 2, u32::MAX)), (12, at(9, 0, 6))];
        let mut spans = spans();
        assert_eq!(found(&mut spans, 11, &places), [3, 4, 6]);
        assert_eq!(found(&mut spans, 10, &places), [1, 2, 3, 4, 6]);
        assert!(found(&mut spans, 12, &places).is_empty());
        let numbers = |spans: &Spans, place| spans.numbers(place).collect::<Vec<_>>();
        assert_eq!(numbers(&spans, at(10, 0, 4)), [(1, 3), (2, 4)]);
        assert!(numbers(&spans, at(10, 4, 5)).is_empty());
    }

    #[test]
    fn directories_may_have_been_below_each_other() {
        // 20 was below 21 until snapshot 3. Since then 21 is below 20.
        let places = [(20, at(21, 0, 3)), (20, at(2, 3, u32::MAX)), (21, at(1, 0, 3)), (21, at(20, 3, u32::MAX))];
        for first in [20, 21] {
            let mut spans = spans();
            assert_eq!(found(&mut spans, first, &places), [1, 3, 4, 6]);
            assert_eq!(found(&mut spans, 41 - first, &places), [1, 3, 4, 6]);
        }
        // Without a way to a snapshot.
        assert!(found(&mut spans(), 30, &[(30, at(31, 0, 9)), (31, at(30, 0, 9))]).is_empty());
    }

    #[test]
    fn adjacent_spans_are_joined() {
        let span = |root, first, end| Span { root, first, end };
        let spans = vec![span(2, 0, 3), span(1, 5, 6), span(1, 0, 2), span(1, 2, 4), span(1, 1, 2), span(2, 1, 2)];
        assert_eq!(joined(spans), [span(1, 0, 4), span(1, 5, 6), span(2, 0, 3)]);
    }
}
