//! Inodes in pages that never move, so that growing never copies the namespace.

use super::inode::{Inode, Slot};

const PAGE: usize = 4096;

/// The inodes, by slot.
#[derive(Default)]
pub struct Arena {
    pages: Vec<Box<[Option<Inode>]>>,
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

    #[cfg(test)]
    pub fn len(&self) -> usize {
        self.used as usize - self.free.len()
    }
}
