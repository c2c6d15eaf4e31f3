//! `hearth`: arguments, configuration and start-up; no logic of its own. One file per subcommand under `commands/`.

use std::process::ExitCode;

mod announce;
mod commands;
mod configuration;
mod local_cluster;
mod logging;
mod memory;
mod parent;

// Many small allocations on every connection: mimalloc keeps idle memory and CPU below the system allocator's.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    parent::follow();
    hearth_namenode::memory::release_with(memory::release);
    commands::run()
}
