//! Notices for a user who waits: which namenode does not answer, and what the client does about it.

use std::future::Future;
use std::pin::pin;
use std::sync::OnceLock;
use std::time::Duration;

type Notice = Box<dyn Fn(&str) + Send + Sync>;

static NOTICE: OnceLock<Notice> = OnceLock::new();

/// A call that takes longer is worth a notice.
const SILENCE: Duration = Duration::from_secs(5);

/// Sets the function that gets a sentence for each call that a client of this process tries again, because a namenode
/// does not answer, and for each that takes several seconds. For programs with a user who waits. It must not block.
///
/// Returns false, and changes nothing, if there is one already.
pub fn on_retry(notice: impl Fn(&str) + Send + Sync + 'static) -> bool {
    NOTICE.set(Box::new(notice)).is_ok()
}

/// Passes on `sentence`, if anyone wants it.
pub(crate) fn note(sentence: impl FnOnce() -> String) {
    if let Some(notice) = NOTICE.get() {
        notice(&sentence());
    }
}

/// Awaits `call`. Passes on `sentence`, with the time that has passed, if it takes long.
pub(crate) async fn note_silence<T>(call: impl Future<Output = T>, sentence: impl FnOnce(Duration) -> String) -> T {
    // Without a listener, calls need no timer.
    if NOTICE.get().is_none() {
        return call.await;
    }
    let mut call = pin!(call);
    match tokio::time::timeout(SILENCE, call.as_mut()).await {
        Ok(outcome) => outcome,
        Err(_) => {
            note(|| sentence(SILENCE));
            call.await
        }
    }
}
