//! Logs go to standard error, so that output can be piped. `HEARTH_LOG` sets the level (`info`, `hearth_datanode=debug`).

mod json;
mod levels;

use std::io::IsTerminal;
use std::sync::OnceLock;

use hearth_config::{Configuration, keys};
use hearth_web::LogWriter;
use hearth_web::log_level::register_log_levels;
use tracing_subscriber::EnvFilter;

use levels::{Levels, Reload};

/// Level of `--loglevel`.
static LEVEL: OnceLock<&'static str> = OnceLock::new();
/// Format of `--log-format`, else of `hearth.log.format`. Unset: text.
static FORMAT: OnceLock<Format> = OnceLock::new();

/// Form of log lines.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
pub enum Format {
    /// Lines that a person reads.
    Text,
    /// One JSON object a line.
    Json,
}

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

/// Makes `start` use this format. Called before `start`. The first call counts.
pub fn set_format(format: Format) {
    let _ = FORMAT.set(format);
}

/// Makes `start` use the format of `hearth.log.format`, unless `set_format` was called. An invalid value means text: it
/// is reported with all other faults of the configuration.
pub fn use_format_of(configuration: &Configuration) {
    if configuration.get(keys::HEARTH_LOG_FORMAT).is_ok_and(|name| name == "json") {
        set_format(Format::Json);
    }
}

/// Starts logging at the level of `--loglevel`, else of `HEARTH_LOG`, else at `default_level`. Called once, by the
/// subcommand.
pub fn start(default_level: &str) {
    let filter = match LEVEL.get() {
        Some(level) => EnvFilter::new(level),
        None => EnvFilter::try_from_env("HEARTH_LOG").unwrap_or_else(|_| EnvFilter::new(default_level)),
    };
    let start = filter.to_string();
    // Standard error, and the last lines for the servers' pages. The subscriber would report its own errors by
    // `eprintln!`, which panics where the log cannot be written.
    let logs = tracing_subscriber::fmt().with_env_filter(filter).with_writer(|| LogWriter).log_internal_errors(false);
    let reload: Reload = match FORMAT.get() {
        Some(Format::Json) => {
            let logs = logs.event_format(json::JsonLines).with_filter_reloading();
            let handle = logs.reload_handle();
            logs.init();
            Box::new(move |filter: EnvFilter| handle.reload(filter).map_err(|error| error.to_string()))
        }
        Some(Format::Text) | None => {
            let logs = logs.with_ansi(std::io::stderr().is_terminal()).with_filter_reloading();
            let handle = logs.reload_handle();
            logs.init();
            Box::new(move |filter: EnvFilter| handle.reload(filter).map_err(|error| error.to_string()))
        }
    };
    register_log_levels(Box::new(Levels::new(start, reload)));
}
