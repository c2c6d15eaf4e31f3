//! Connections that have not said yet who they are. They have a bound of their own, at which the oldest gives way to the newest: silent
//! ones take no place that somebody else needs, and who speaks at once is not kept waiting by them.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::oneshot;

/// All strangers of one port.
#[derive(Debug)]
pub struct Strangers {
    most: usize,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// By age.
    waiting: BTreeMap<u64, oneshot::Sender<()>>,
    next: u64,
}

/// One of them, until this is dropped.
#[derive(Debug)]
pub struct Stranger {
    all: Arc<Strangers>,
    number: u64,
}

impl Strangers {
    /// `most`: how many there are at a time, at least one.
    pub fn new(most: usize) -> Arc<Self> {
        Arc::new(Self { most: most.max(1), state: Mutex::default() })
    }

    /// One more has come. The receiver brings `Ok` when it has to give way, an error when it is a stranger no more.
    pub fn admit(self: &Arc<Self>) -> (Stranger, oneshot::Receiver<()>) {
        let (give_way, gives_way) = oneshot::channel();
        let mut state = self.state.lock();
        let number = state.next;
        state.next += 1;
        let oldest = if state.waiting.len() < self.most { None } else { state.waiting.pop_first() };
        state.waiting.insert(number, give_way);
        drop(state);
        if let Some((_, oldest)) = oldest {
            // It may be about to end by itself.
            let _ = oldest.send(());
        }
        (Stranger { all: self.clone(), number }, gives_way)
    }
}

impl Drop for Stranger {
    fn drop(&mut self) {
        self.all.state.lock().waiting.remove(&self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_of_those_that_are_not_known_gives_way() {
        let strangers = Strangers::new(2);
        let (known, mut first) = strangers.admit();
        drop(known);
        assert_eq!(first.try_recv(), Err(oneshot::error::TryRecvError::Closed));
        let (_second, mut second) = strangers.admit();
        let (_third, mut third) = strangers.admit();
        assert_eq!(second.try_recv(), Err(oneshot::error::TryRecvError::Empty));
        let (_fourth, mut fourth) = strangers.admit();
        assert_eq!(second.try_recv(), Ok(()));
        for staying in [&mut third, &mut fourth] {
            assert_eq!(staying.try_recv(), Err(oneshot::error::TryRecvError::Empty));
        }
    }
}
