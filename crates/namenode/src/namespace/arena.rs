//! Inodes in pages that never move, so that growing never copies the namespace.

use std::ops::Range;

use super::inode::{Inode, Slot};

/// Inodes of a page: of 72 bytes each, they fill 320 KiB, which is a size that the allocator gives out as it is.
pub(super) const PAGE: usize = (320 << 10) / size_of::<Option<Inode>>();

type InodePage = Box<[Option<Inode>]>;

/// The inodes, by slot.
#[derive(Default)]
pub struct Arena {
    pages: Vec<InodePage>,
    /// Slots below `used` that hold nothing.
    free: Vec<Slot>,
    used: u32,
}

impl Arena {
    pub fn insert(&mut self, inode: Inode) -> Slot {
        let slot = self.free.pop().unwrap_or_else(|| {
            let slot = Slot(self.used);
            self.used = self.used.checked_add(1).expect("fewer than 2^32 inodes");
            slot
        });
        let page = slot.0 as usize / PAGE;
        if page == self.pages.len() {
            self.pages.push((0..PAGE).map(|_| None).collect());
        }
        let place = &mut self.pages[page][slot.0 as usize % PAGE];
        assert!(place.is_none(), "slot {} is free", slot.0);
        *place = Some(inode);
        slot
    }

    pub fn remove(&mut self, slot: Slot) -> Inode {
        let inode =
            self.pages[slot.0 as usize / PAGE][slot.0 as usize % PAGE].take().expect("a slot in use holds an inode");
        self.free.push(slot);
        inode
    }

    /// What stands at a slot that may hold nothing any more.
    pub fn find(&self, slot: Slot) -> Option<&Inode> {
        self.pages.get(slot.0 as usize / PAGE)?[slot.0 as usize % PAGE].as_ref()
    }

    pub fn get(&self, slot: Slot) -> &Inode {
        self.pages[slot.0 as usize / PAGE][slot.0 as usize % PAGE].as_ref().expect("a slot in use holds an inode")
    }

    pub fn get_mut(&mut self, slot: Slot) -> &mut Inode {
        self.pages[slot.0 as usize / PAGE][slot.0 as usize % PAGE].as_mut().expect("a slot in use holds an inode")
    }

    /// Puts the pages of another arena behind these. Returns by how much its slots are higher from now on.
    pub fn append(&mut self, other: Self) -> u32 {
        // What is left of the last page is filled later.
        let base = u32::try_from(self.pages.len() * PAGE).expect("fewer than 2^32 inodes");
        self.free.extend((self.used..base).map(Slot));
        self.free.extend(other.free.into_iter().map(|slot| Slot(slot.0 + base)));
        self.used = base.checked_add(other.used).expect("fewer than 2^32 inodes");
        self.pages.extend(other.pages);
        base
    }

    /// How many pages there are.
    pub fn page_count(&self) -> usize {
        self.pages.len()
    }

    /// The inodes of some pages, with their slots.
    pub fn of_pages(&self, pages: Range<usize>) -> impl Iterator<Item = (Slot, &Inode)> {
        let first = pages.start * PAGE;
        let places = self.pages[pages].iter().flatten().enumerate();
        places.filter_map(move |(place, inode)| Some((Slot((first + place) as u32), inode.as_ref()?)))
    }

    /// The inodes of each page, to change by several threads.
    pub fn pages_mut(&mut self) -> impl Iterator<Item = impl Iterator<Item = &mut Inode> + Send> {
        self.pages.iter_mut().map(|page| page.iter_mut().flatten())
    }

    #[cfg(test)]
    pub fn len(&self) -> usize {
        self.used as usize - self.free.len()
    }
}
