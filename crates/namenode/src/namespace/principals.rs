//! User and group names, interned. Each inode stores their numbers.

use std::collections::HashMap;
use std::sync::Arc;

/// Number of a user or group name.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct PrincipalId(pub u32);

/// Table of names. Names are never removed, so it has all users and groups that were ever used.
#[derive(Default)]
pub struct Principals {
    by_id: Vec<Arc<str>>,
    by_name: HashMap<Arc<str>, PrincipalId>,
    /// Names below this number are stored on disk.
    stored: usize,
}

impl Principals {
    pub fn intern(&mut self, name: &str) -> PrincipalId {
        if let Some(id) = self.by_name.get(name) {
            return *id;
        }
        let id = PrincipalId(self.by_id.len() as u32);
        let name: Arc<str> = name.into();
        self.by_id.push(name.clone());
        self.by_name.insert(name, id);
        id
    }

    /// Returns the number of a name. `None` if no inode ever had this owner or group.
    pub fn find(&self, name: &str) -> Option<PrincipalId> {
        self.by_name.get(name).copied()
    }

    pub fn text(&self, id: PrincipalId) -> &Arc<str> {
        &self.by_id[id.0 as usize]
    }

    /// Returns the number of names. All smaller numbers are in use.
    pub fn count(&self) -> usize {
        self.by_id.len()
    }

    /// Returns the names that are not stored yet, and marks them as stored.
    pub fn take_new(&mut self) -> Vec<(u32, String)> {
        let new = (self.stored..self.by_id.len()).map(|i| (i as u32, self.by_id[i].to_string())).collect();
        self.stored = self.by_id.len();
        new
    }

    /// Restores a stored name at start-up. Returns false if the number is out of order or the name exists already.
    pub fn restore(&mut self, id: u32, name: &str) -> bool {
        if id as usize != self.by_id.len() || self.by_name.contains_key(name) {
            return false;
        }
        self.intern(name);
        self.stored = self.by_id.len();
        true
    }
}
