//! `hearth`: arguments, configuration and start-up, without logic of its own. One file per subcommand under
//! `commands/`.

#![expect(
    clippy::disallowed_methods,
    reason = "the program hands the system's clock in, and measures what its user waits for"
)]

use std::process::ExitCode;

// First, because its macros apply to the modules behind it.
#[macro_use]
mod output;

mod announce;
mod commands;
mod configuration;
mod invocation;
mod local_cluster;
mod logging;
mod memory;
mod notices;
mod parent;
mod salvage;
mod supervisor;

// Connections make many small allocations. mimalloc uses less idle memory and CPU than the system allocator.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    parent::follow();
    hearth_namenode::memory::release_with(memory::release);
    commands::run()
}
