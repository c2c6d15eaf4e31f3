//! Writers of open files, interned. One client may have millions of files open, and each of them names it.

use std::collections::HashSet;
use std::sync::Arc;

use super::file::Writer;

/// Number of writers at which unused ones are dropped for the first time. Later the limit is twice the number in use.
const KNOWN_MIN: usize = 64;

/// Writers shared by open files.
#[derive(Default)]
pub(super) struct Writers {
    known: HashSet<Arc<Writer>>,
    /// Number of writers at which unused ones are dropped.
    full: usize,
}

impl Writers {
    /// Returns the shared copy of the writer. A writer that truncates a file is not shared.
    pub fn share(&mut self, writer: Writer) -> Arc<Writer> {
        if writer.truncation.is_some() {
            return Arc::new(writer);
        }
        match self.known.get(&writer) {
            Some(known) => known.clone(),
            None => {
                let writer = Arc::new(writer);
                self.note(writer.clone());
                writer
            }
        }
    }

    /// Merges the writers of files that were opened in another section.
    pub fn absorb(&mut self, other: Self) {
        other.known.into_iter().for_each(|writer| self.note(writer));
    }

    fn note(&mut self, writer: Arc<Writer>) {
        if self.known.len() >= self.full.max(KNOWN_MIN) {
            self.known.retain(|writer| Arc::strong_count(writer) > 1);
            self.full = 2 * self.known.len();
            self.known.shrink_to(self.full);
        }
        self.known.insert(writer);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn writer(client: usize) -> Writer {
        Writer { client: client.to_string(), machine: "m".into(), truncation: None }
    }

    #[test]
    fn equal_writers_are_shared() {
        let mut writers = Writers::default();
        let first = writers.share(writer(0));
        assert!(Arc::ptr_eq(&first, &writers.share(writer(0))));
        for client in 1..10_000 {
            writers.share(writer(client));
            assert!(writers.known.len() <= KNOWN_MIN, "none of them is in use");
        }
        assert!(Arc::ptr_eq(&first, &writers.share(writer(0))), "the first writer is in use");
        let used: Vec<_> = (0..1000).map(|client| writers.share(writer(client))).collect();
        assert!(writers.known.len() >= used.len());
    }
}
