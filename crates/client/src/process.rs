//! What a program has once per process: the runtime of programs that have none, such as the bindings for C and Python, and
//! the function that hears of calls that are tried again.
//!
//! A fork copies only the thread that calls it. In the child, a tokio runtime of the parent has no threads, and its
//! sockets are the parent's. The child must neither use nor drop them: dropping a socket removes it from the epoll
//! instance that both processes share. Two types hold this rule. [`PerProcess`] gives the child a value of its own and
//! leaks the parent's. [`OfProcess`] keeps a value for the process that made it, and leaks it in a child.

use std::pin::pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;
use std::time::Duration;

use tokio::runtime::{Builder, Runtime};
use tokio::time::Instant;

pub use crate::retry_notices::on_retry;
use crate::{Error, ErrorKind};

/// Most threads of [`runtime`]. They do little work: calls that block run on their callers' threads.
const THREADS_MAX: usize = 8;

static RUNTIME: PerProcess<Runtime> = PerProcess::new();

/// Returns the runtime of this process, which starts with the first call. It is never dropped.
///
/// Errors: kind `Other` if the system refuses threads or descriptors.
pub fn runtime() -> Result<&'static Runtime, Error> {
    RUNTIME.get_or_try(|| {
        let threads = std::thread::available_parallelism().map_or(2, usize::from).clamp(2, THREADS_MAX);
        let runtime = Builder::new_multi_thread().worker_threads(threads).thread_name("hearth").enable_all().build();
        runtime.map_err(|error| Error::new(ErrorKind::Other, format!("cannot start the client's threads: {error}")))
    })
}

/// Drops `value` inside the runtime of this process, if it has one: some values start a task when they are dropped, for
/// example to release a slot at a datanode.
pub fn drop_inside<T>(value: T) {
    let _runtime = RUNTIME.get().map(Runtime::enter);
    drop(value);
}

/// Runs `future` to its end on this thread, within `runtime`. While it waits, calls `check` once in each `interval`, outside of
/// the runtime, so that the check can make calls of its own. An error of the check ends the wait. The future is dropped
/// within `runtime`, too: it may hold values that start a task then.
///
/// The runtime needs no timer for that: a timer that ends before all others wakes one of its threads.
pub fn block_on_checked<T, E>(
    runtime: &Runtime,
    future: impl Future<Output = T>,
    interval: Duration,
    mut check: impl FnMut() -> Result<(), E>,
) -> Result<T, E> {
    let mut future = pin!(Some(future));
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    let mut context = Context::from_waker(&waker);
    let mut checked = None;
    loop {
        {
            let _entered = runtime.enter();
            let waiting = future.as_mut().as_pin_mut().expect("the future is there until the end");
            if let Poll::Ready(value) = waiting.poll(&mut context) {
                future.set(None);
                return Ok(value);
            }
        }
        let now = Instant::now();
        let left = interval.saturating_sub(now - *checked.get_or_insert(now));
        if left.is_zero() {
            if let Err(error) = check() {
                let _entered = runtime.enter();
                future.set(None);
                return Err(error);
            }
            checked = Some(Instant::now());
            // The check may have taken a wake-up of the future.
            continue;
        }
        std::thread::park_timeout(left);
    }
}

/// Wakes a thread.
struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.0.unpark();
    }
}

/// A value of the process that made it, for handles of languages that cannot know about forks. In a child it is neither
/// used nor dropped. In its own process it is dropped inside the runtime ([`drop_inside`]).
#[derive(Debug)]
pub struct OfProcess<T> {
    process: u32,
    /// Always there until it is dropped.
    value: Option<T>,
}

impl<T> OfProcess<T> {
    /// Creates the value of this process.
    pub fn new(value: T) -> Self {
        Self { process: std::process::id(), value: Some(value) }
    }

    /// Returns the value, or `None` in a child of a fork.
    pub fn get(&self) -> Option<&T> {
        self.value.as_ref().filter(|_| self.process == std::process::id())
    }

    /// Returns the value in a child of a fork, too. The child may only read its memory there: it must not take a lock,
    /// wait, or use a socket.
    pub fn inherited(&self) -> &T {
        self.value.as_ref().expect("the value is there until the drop")
    }

    /// Makes this look as in a child of a fork.
    #[cfg(test)]
    fn seen_in_child(mut self) -> Self {
        self.process = std::process::id().wrapping_add(1);
        self
    }
}

impl<T> Drop for OfProcess<T> {
    fn drop(&mut self) {
        let value = self.value.take();
        if self.process == std::process::id() {
            drop_inside(value);
        } else {
            std::mem::forget(value);
        }
    }
}

/// A value that each process makes for itself: after a fork, the child makes another, and leaks its parent's.
///
/// A value is made outside of any lock, so a fork during that harms no child. Several threads may make one at the same
/// time; the first is used. A thread that stores its finished value holds a lock for some instructions. A child of a fork
/// at that very moment would wait for ever.
#[derive(Debug)]
pub struct PerProcess<T> {
    first: OnceLock<Box<Made<T>>>,
}

/// A value, and the one of the next process that a fork made.
#[derive(Debug)]
struct Made<T> {
    process: u32,
    /// Always there until it is dropped.
    value: Option<T>,
    next: OnceLock<Box<Made<T>>>,
}

impl<T> PerProcess<T> {
    /// Returns a place without a value.
    pub const fn new() -> Self {
        Self { first: OnceLock::new() }
    }

    /// Returns the value of this process, if it has made one.
    pub fn get(&self) -> Option<&T> {
        let (process, mut place) = (std::process::id(), &self.first);
        loop {
            let made = place.get()?;
            match &made.value {
                Some(value) if made.process == process => return Some(value),
                _ => place = &made.next,
            }
        }
    }

    /// Returns the value of this process, which `make` makes in the first call.
    pub fn get_or_try<E>(&self, make: impl FnOnce() -> Result<T, E>) -> Result<&T, E> {
        self.get_for(std::process::id(), make)
    }

    fn get_for<E>(&self, process: u32, make: impl FnOnce() -> Result<T, E>) -> Result<&T, E> {
        let (mut place, mut make) = (&self.first, Some(make));
        loop {
            let made = match (place.get(), make.take()) {
                (Some(made), unused) => {
                    make = unused;
                    made
                }
                (None, Some(make)) => {
                    let made = Box::new(Made { process, value: Some(make()?), next: OnceLock::new() });
                    // Another thread may have been faster. Its value is then used, and this one is dropped.
                    place.get_or_init(|| made)
                }
                // Only if another process made the value that was found after `make` ran, which does not happen: a fork
                // keeps the thread that found nothing out of the child.
                (None, None) => unreachable!("a process makes its value once"),
            };
            match &made.value {
                Some(value) if made.process == process => return Ok(value),
                _ => place = &made.next,
            }
        }
    }
}

impl<T> Default for PerProcess<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T> Drop for Made<T> {
    fn drop(&mut self) {
        if self.process != std::process::id() {
            std::mem::forget(self.value.take());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::convert::Infallible;
    use std::rc::Rc;

    use tokio::runtime::Handle;

    use super::*;

    #[test]
    fn check_runs_outside_while_a_future_waits() {
        let runtime = runtime().unwrap();
        let interval = Duration::from_millis(1);
        let mut checks = 0;
        let (answer, answered) = tokio::sync::oneshot::channel();
        let mut answer = Some(answer);
        let waited = block_on_checked(runtime, answered, interval, || {
            checks += 1;
            // A call of its own, which takes the wake-up of the one that waits.
            runtime.block_on(async { tokio::time::sleep(interval).await });
            if checks == 3 {
                answer.take().unwrap().send(7).unwrap();
                std::thread::park();
            }
            Ok::<_, Infallible>(())
        });
        assert_eq!((waited.unwrap().unwrap(), checks), (7, 3));
        let never = std::future::pending::<()>();
        assert_eq!(block_on_checked(runtime, never, interval, || Err("interrupted")), Err("interrupted"));
        let ready = std::future::ready(1);
        assert_eq!(block_on_checked(runtime, ready, Duration::ZERO, || Err("not asked")), Ok(1));
    }

    /// Notes whether it is dropped within a runtime.
    struct DroppedInside<'a>(&'a Cell<Option<bool>>);

    impl Drop for DroppedInside<'_> {
        fn drop(&mut self) {
            self.0.set(Some(Handle::try_current().is_ok()));
        }
    }

    #[test]
    fn interrupted_future_is_dropped_inside() {
        let is_inside = Cell::new(None);
        let held = DroppedInside(&is_inside);
        let never = async move {
            let _held = held;
            std::future::pending::<()>().await;
        };
        let waited = block_on_checked(runtime().unwrap(), never, Duration::from_millis(1), || Err("interrupted"));
        assert_eq!((waited, is_inside.get()), (Err("interrupted"), Some(true)));
    }

    #[test]
    fn each_process_has_its_own_value_and_leaks_the_parents() {
        let counted = Rc::new(());
        let per_process = PerProcess::new();
        let (parent, child) = (std::process::id() + 1, std::process::id());
        let value = |process, name| {
            let made = per_process.get_for(process, || Ok::<_, Infallible>((name, Rc::clone(&counted))));
            made.unwrap().0
        };
        assert_eq!(
            [value(parent, "parent"), value(parent, "again"), value(child, "child")],
            ["parent", "parent", "child"]
        );
        assert_eq!([value(child, "again"), value(parent, "again")], ["child", "parent"]);
        assert_eq!(Rc::strong_count(&counted), 3);
        drop(per_process);
        assert_eq!(Rc::strong_count(&counted), 2, "the parent's value is left alone");
    }

    #[test]
    fn value_of_the_parent_is_neither_used_nor_dropped_in_a_child() {
        let counted = Rc::new(());
        let own = OfProcess::new(Rc::clone(&counted));
        assert!(own.get().is_some_and(|value| Rc::ptr_eq(value, &counted)));
        drop(own);
        assert_eq!(Rc::strong_count(&counted), 1);
        let inherited = OfProcess::new(Rc::clone(&counted)).seen_in_child();
        assert!(inherited.get().is_none() && Rc::ptr_eq(inherited.inherited(), &counted));
        drop(inherited);
        assert_eq!(Rc::strong_count(&counted), 2, "the parent's value is left alone");
    }

    /// Otherwise a child of a fork during the long work of making a value would wait for a thread that it does not have.
    #[test]
    fn value_is_made_without_a_lock() {
        static PLACE: PerProcess<u8> = PerProcess::new();
        let (entered, making) = std::sync::mpsc::channel();
        let (finish, finished) = std::sync::mpsc::channel();
        let slow = std::thread::spawn(move || {
            let value = PLACE.get_or_try(|| {
                entered.send(()).unwrap();
                finished.recv().unwrap();
                Ok::<_, Infallible>(1)
            });
            *value.unwrap()
        });
        making.recv().unwrap();
        assert_eq!(PLACE.get(), None);
        assert_eq!(PLACE.get_or_try(|| Ok::<_, Infallible>(2)), Ok(&2));
        finish.send(()).unwrap();
        assert_eq!((slow.join().unwrap(), PLACE.get()), (2, Some(&2)));
    }

    #[test]
    fn failed_attempt_is_repeated() {
        let per_process = PerProcess::new();
        assert_eq!(per_process.get_or_try(|| Err::<u8, _>("full")), Err("full"));
        assert_eq!(per_process.get_or_try(|| Ok::<_, &str>(7)), Ok(&7));
    }

    #[test]
    fn runtime_runs_calls_of_threads_without_one() {
        let answer = runtime().unwrap().block_on(async { tokio::spawn(async { 7 }).await.unwrap() });
        assert_eq!(answer, 7);
        assert!(std::ptr::eq(runtime().unwrap(), runtime().unwrap()));
    }
}
