//! Task of each connection: handles completions and connection manager events, and shuts the connection down.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::unix::AsyncFd;
use tokio::time::Instant;

use super::shared::RdmaShared;
use super::{Events, RECEIVES, SENDS};
use crate::rdma::verbs::{CompletionChannel, EventKind};

/// Time limit for flushing the operations of an ended connection. The remaining ones are released when the queue pair
/// is destroyed, which waits until the device has finished with it.
const FLUSH: Duration = Duration::from_secs(2);

pub fn start(shared: &Arc<RdmaShared>, completions: Arc<CompletionChannel>, events: Events) -> io::Result<()> {
    let heard = Some((completions.watched()?, events));
    let driver = Driver { shared: Arc::clone(shared), heard };
    tokio::spawn(async move {
        let shared = &driver.shared;
        // Both queues: completions that came earlier are taken at once.
        shared.on_receive_event();
        if let Some((completions, events)) = &driver.heard {
            hear(shared, completions, events).await;
        }
        drain(shared).await;
    });
    Ok(())
}

/// Resources of the task until the connection is over. Its runtime may end before that.
struct Driver {
    shared: Arc<RdmaShared>,
    heard: Option<(AsyncFd<Arc<CompletionChannel>>, Events)>,
}

impl Drop for Driver {
    fn drop(&mut self) {
        self.shared.fail(|| "the runtime of the connection has ended".to_owned());
        destroy(&self.shared);
        // Closes the descriptors only here, after the queue pair was destroyed.
        drop(self.heard.take());
        self.shared.set_over();
    }
}

/// Destroys the queue pair; afterwards nothing is accessible through it. Idempotent. Blocks in a system call that waits
/// for the device.
fn destroy(shared: &RdmaShared) {
    // Notifies the other side; an error means that it already knows.
    let _ = shared.queue_pair.with_id(|id| id.disconnect());
    for batch in shared.queue_pair.destroy() {
        batch.abandon();
    }
}

/// Handles events until the connection has ended.
async fn hear(shared: &Arc<RdmaShared>, completions: &AsyncFd<Arc<CompletionChannel>>, events: &Events) {
    while shared.is_open() {
        tokio::select! {
            () = shared.ending.notified() => return,
            ready = completions.readable() => match ready {
                Ok(mut ready) => match completions.get_ref().notice() {
                    Ok(Some(SENDS)) => shared.on_send_event(),
                    Ok(Some(RECEIVES)) => shared.on_receive_event(),
                    Ok(Some(other)) => unreachable!("there is no completion queue {other}"),
                    Ok(None) => ready.clear_ready(),
                    Err(error) => shared.fail(|| format!("completion channel: {error}")),
                },
                Err(error) => shared.fail(|| format!("completion channel: {error}")),
            },
            event = events.next() => match event {
                Ok(event) => match event.kind {
                    EventKind::Disconnected => {
                        // The status of a failed operation says more than the disconnect event.
                        shared.poll_sends();
                        shared.fail(|| "the peer closed the connection".to_owned());
                    }
                    EventKind::DeviceRemoved => shared.fail(|| "the device is gone".to_owned()),
                    _ => {}
                },
                Err(error) => shared.fail(|| format!("connection manager: {error}")),
            },
        }
    }
}

/// Collects flushed operations, then destroys the queue pair.
async fn drain(shared: &Arc<RdmaShared>) {
    let until = Instant::now() + FLUSH;
    loop {
        shared.poll_sends();
        shared.poll_receives();
        if shared.queue_pair.posted() == 0 || Instant::now() >= until {
            break;
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let left = shared.queue_pair.posted();
    if left > 0 {
        tracing::debug!(peer = %shared.peer, left, "operations were not flushed");
    }
    let destroying = Arc::clone(shared);
    if tokio::task::spawn_blocking(move || destroy(&destroying)).await.is_err() {
        tracing::debug!(peer = %shared.peer, "the runtime ended before the connection");
    }
}
