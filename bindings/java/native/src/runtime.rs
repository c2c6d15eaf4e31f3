//! The tokio runtime of the library: two threads, started on first use.

use std::sync::Arc;

use parking_lot::RwLock;
use tokio::runtime::{Builder, Runtime};

use crate::jvm::Thrown;

/// Enough for the answers of DataNodes and for watching their sockets. Callers wait on their own threads.
const THREADS: usize = 2;

static RUNTIME: RwLock<Option<Arc<Runtime>>> = RwLock::new(None);

/// Returns the runtime, and starts it if necessary.
pub fn runtime() -> Result<Arc<Runtime>, Thrown> {
    if let Some(runtime) = &*RUNTIME.read() {
        return Ok(Arc::clone(runtime));
    }
    let mut place = RUNTIME.write();
    if let Some(runtime) = &*place {
        return Ok(Arc::clone(runtime));
    }
    let built = Builder::new_multi_thread().worker_threads(THREADS).thread_name("hearth-java").enable_all().build();
    let runtime = Arc::new(built.map_err(|error| Thrown::Io(format!("cannot start Hearth's threads: {error}")))?);
    *place = Some(Arc::clone(&runtime));
    Ok(runtime)
}

/// Ends the threads. No native method runs, because the class that declares them is gone.
pub fn end() {
    if let Some(runtime) = RUNTIME.write().take().and_then(Arc::into_inner) {
        runtime.shutdown_background();
    }
}
