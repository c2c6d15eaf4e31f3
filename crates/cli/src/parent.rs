//! A server started by another `hearth` process ends with it, however that one ends.

use rustix::process::{Signal, getppid, set_parent_process_death_signal};

/// Set by the parent to its process id.
pub const DIES_WITH_PARENT: &str = "HEARTH_DIES_WITH_PARENT";

/// Called first thing in `main`.
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
