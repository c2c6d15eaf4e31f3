//! Threads of their own for the copies, below the others in the kernel's eyes: what is copied behind everybody's back must not stand
//! before what somebody waits for, neither in a queue of this process nor at a core.
//!
//! Niceness is a share, not a ban: beside threads that always want the cores the copies still get theirs (at 6, about a quarter of
//! what one of the others gets), and where nobody else wants the cores, all of them.

use std::io;

use parking_lot::Mutex;
use rustix::process::{getpriority_process, setpriority_process};
use tokio::runtime::{Builder, Handle, Runtime};

use crate::ops::OpError;

/// The greatest niceness there is.
const NICE_MAX: i32 = 19;

/// Made when the first connection wants them; an idle datanode has none.
pub struct Threads {
    nice: i32,
    runtime: Mutex<Option<Runtime>>,
}

impl Threads {
    /// `nice`: above the process's own. 0: threads like the others.
    pub fn new(nice: i32) -> Self {
        Self { nice, runtime: Mutex::default() }
    }

    /// Where to spawn.
    ///
    /// Errors: the system has no threads left.
    pub fn start(&self) -> Result<Handle, OpError> {
        let mut runtime = self.runtime.lock();
        if let Some(runtime) = &*runtime {
            return Ok(runtime.handle().clone());
        }
        let started = self.build().map_err(OpError::Threads)?;
        Ok(runtime.insert(started).handle().clone())
    }

    /// As many as there are cores: without readers the copies may have them all.
    fn build(&self) -> io::Result<Runtime> {
        let mut builder = Builder::new_multi_thread();
        builder.thread_name("replica-streams").enable_all();
        if self.nice > 0 {
            // Here, once: new threads begin as the one that makes them, and that may be one of these.
            let nice = (getpriority_process(None)? + self.nice).min(NICE_MAX);
            builder.on_thread_start(move || {
                // For Linux this "process" is one thread, the calling one. Raising its niceness needs no privilege.
                if let Err(error) = setpriority_process(None, nice) {
                    tracing::warn!(%error, "a thread of replica streams has the priority of the others");
                }
            });
        }
        builder.build()
    }
}

impl Drop for Threads {
    fn drop(&mut self) {
        // Perhaps on one of them: nothing is waited for.
        if let Some(runtime) = self.runtime.get_mut().take() {
            runtime.shutdown_background();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn they_give_way_their_own_threads_too_and_others_do_not() {
        let own = getpriority_process(None).unwrap();
        let threads = Threads::new(4);
        let handle = threads.start().unwrap();
        let worker = handle.spawn(async {
            let blocking = tokio::task::spawn_blocking(|| getpriority_process(None).unwrap()).await.unwrap();
            (getpriority_process(None).unwrap(), blocking)
        });
        let nice = (own + 4).min(NICE_MAX);
        assert_eq!(worker.await.unwrap(), (nice, nice));
        assert_eq!(getpriority_process(None).unwrap(), own);
        // In a runtime's own thread, where waiting would panic.
        drop(threads);
    }
}
