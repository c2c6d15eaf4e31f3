//! Logs go to standard error, so that output can be piped. `HEARTH_LOG` sets the level (`info`, `hearth_datanode=debug`).

use std::io::IsTerminal;
use std::sync::OnceLock;

use hearth_web::LogWriter;
use tracing_subscriber::EnvFilter;

/// Level of `--loglevel`.
static LEVEL: OnceLock<&'static str> = OnceLock::new();

/// Level by the name that Hadoop's scripts use (`INFO`, `WARN`), in any case.
pub fn level(name: &str) -> Result<&'static str, String> {
    match name.to_ascii_lowercase().as_str() {
        "off" => Ok("off"),
        "fatal" | "error" => Ok("error"),
        "warn" => Ok("warn"),
        "info" => Ok("info"),
        "debug" => Ok("debug"),
        "trace" | "all" => Ok("trace"),
        _ => Err("wanted OFF, FATAL, ERROR, WARN, INFO, DEBUG or TRACE".to_owned()),
    }
}

/// Makes `start` use this level. Called once, before `start`.
pub fn set_level(level: &'static str) {
    let set = LEVEL.set(level);
    assert!(set.is_ok(), "the level is set once");
}

/// Starts logging at the level of `--loglevel`, else of `HEARTH_LOG`, else at `default_level`. Called once, by the
/// subcommand.
pub fn start(default_level: &str) {
    let filter = match LEVEL.get() {
        Some(level) => EnvFilter::new(level),
        None => EnvFilter::try_from_env("HEARTH_LOG").unwrap_or_else(|_| EnvFilter::new(default_level)),
    };
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        // Standard error, and the last lines for the servers' pages.
        .with_writer(|| LogWriter)
        .with_ansi(std::io::stderr().is_terminal())
        .init();
}
