//! Arena of inodes in pages that never move, so that growing never copies the namespace.

use std::ops::Range;

use super::inode::{Inode, Slot};

/// Number of inodes in a page. With 72 bytes each they fill 320 KiB, which is a size class of the allocator.
pub(super) const PAGE: usize = (320 << 10) / size_of::<Option<Inode>>();

type InodePage = Box<[Option<Inode>]>;

/// Inodes by slot.
#[derive(Default)]
pub struct Arena {
    pages: Vec<InodePage>,
    /// Slots below `used` that are empty.
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

    /// Returns the inode at a slot that may be empty by now.
    pub fn find(&self, slot: Slot) -> Option<&Inode> {
        self.pages.get(slot.0 as usize / PAGE)?[slot.0 as usize % PAGE].as_ref()
    }

    pub fn get(&self, slot: Slot) -> &Inode {
        self.pages[slot.0 as usize / PAGE][slot.0 as usize % PAGE].as_ref().expect("a slot in use holds an inode")
    }

    pub fn get_mut(&mut self, slot: Slot) -> &mut Inode {
        self.pages[slot.0 as usize / PAGE][slot.0 as usize % PAGE].as_mut().expect("a slot in use holds an inode")
    }

    /// Appends the pages of another arena. Returns the offset that is added to its slots.
    pub fn append(&mut self, other: Self) -> u32 {
        // The rest of the last page is filled later.
        let base = u32::try_from(self.pages.len() * PAGE).expect("fewer than 2^32 inodes");
        self.free.extend((self.used..base).map(Slot));
        self.free.extend(other.free.into_iter().map(|slot| Slot(slot.0 + base)));
        self.used = base.checked_add(other.used).expect("fewer than 2^32 inodes");
        self.pages.extend(other.pages);
        base
    }

    /// Number of pages.
    pub fn page_count(&self) -> usize {
        self.pages.len()
    }

    /// Iterates over the inodes of some pages, with their slots.
    pub fn of_pages(&self, pages: Range<usize>) -> impl Iterator<Item = (Slot, &Inode)> {
        let first = pages.start * PAGE;
        let places = self.pages[pages].iter().flatten().enumerate();
        places.filter_map(move |(place, inode)| Some((Slot((first + place) as u32), inode.as_ref()?)))
    }

    /// Iterates mutably over the inodes of each page, for several threads.
    pub fn pages_mut(&mut self) -> impl Iterator<Item = impl Iterator<Item = &mut Inode> + Send> {
        self.pages.iter_mut().map(|page| page.iter_mut().flatten())
    }

    #[cfg(test)]
    pub fn len(&self) -> usize {
        self.used as usize - self.free.len()
    }
}
