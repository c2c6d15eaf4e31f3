//! Ends a server together with the `hearth` process that started it, even if that one is killed.

use rustix::process::{Signal, getppid, set_parent_process_death_signal};

/// Environment variable that the parent sets to its process id.
pub const DIES_WITH_PARENT: &str = "HEARTH_DIES_WITH_PARENT";

/// Must be called first in `main`.
pub fn follow() {
    let Ok(parent) = std::env::var(DIES_WITH_PARENT) else { return };
    if let Err(error) = set_parent_process_death_signal(Some(Signal::TERM)) {
        eprintln!("hearth: cannot follow the parent process: {error}");
    }
    // The parent may have ended before the line above.
    let now = getppid().map(|pid| pid.as_raw_nonzero().get().to_string());
    if now.as_deref() != Some(parent.as_str()) {
        std::process::exit(1);
    }
}
