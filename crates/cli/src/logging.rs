//! Logs go to standard error, so that output can be piped. `HEARTH_LOG` sets the level (`info`, `hearth_datanode=debug`).

use std::io::IsTerminal;

use tracing_subscriber::EnvFilter;

/// Starts logging at `default_level`, unless `HEARTH_LOG` is set. Called once, by the subcommand.
pub fn start(default_level: &str) {
    let filter = EnvFilter::try_from_env("HEARTH_LOG").unwrap_or_else(|_| EnvFilter::new(default_level));
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal())
        .init();
}
