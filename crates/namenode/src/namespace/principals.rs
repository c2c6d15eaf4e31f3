//! User and group names, each kept once and stored as a number with every inode.

use std::collections::HashMap;
use std::sync::Arc;

/// The number of a user or group name.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct PrincipalId(pub u32);

/// Names never leave the table: there are as many as there were users and groups.
#[derive(Default)]
pub struct Principals {
    by_id: Vec<Arc<str>>,
    by_name: HashMap<Arc<str>, PrincipalId>,
    /// Names up to this number are stored.
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

    /// `None` when no inode ever had this owner or group.
    pub fn find(&self, name: &str) -> Option<PrincipalId> {
        self.by_name.get(name).copied()
    }

    pub fn text(&self, id: PrincipalId) -> &Arc<str> {
        &self.by_id[id.0 as usize]
    }

    /// How many names there are: numbers below it are in use.
    pub fn count(&self) -> usize {
        self.by_id.len()
    }

    /// The names that were not stored yet; from now on they count as stored.
    pub fn take_new(&mut self) -> Vec<(u32, String)> {
        let new = (self.stored..self.by_id.len()).map(|i| (i as u32, self.by_id[i].to_string())).collect();
        self.stored = self.by_id.len();
        new
    }

    /// Takes a stored name back at start-up. False when numbers come out of order or a name comes twice.
    pub fn restore(&mut self, id: u32, name: &str) -> bool {
        if id as usize != self.by_id.len() || self.by_name.contains_key(name) {
            return false;
        }
        self.intern(name);
        self.stored = self.by_id.len();
        true
    }
}
