//! `hearth`: arguments, configuration and start-up; no logic of its own. One file per subcommand under `commands/`.

use std::process::ExitCode;

#[allow(dead_code, reason = "the parsing half is used by `up`")]
mod announce;
mod commands;
mod configuration;
#[allow(dead_code, unused_imports, reason = "`up` and `demo` use it as soon as the servers stand")]
mod local_cluster;
mod logging;
mod parent;

// Many small allocations on every connection: mimalloc keeps idle memory and CPU below the system allocator's.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    parent::follow();
    commands::run()
}
