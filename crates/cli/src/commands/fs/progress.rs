use std::io::IsTerminal;

use indicatif::{ProgressBar, ProgressStyle};

/// Progress bar on a terminal. Prints nothing elsewhere.
pub struct Progress {
    bar: Option<ProgressBar>,
}

/// Smaller files are copied too quickly for a bar.
const SHOWN_FROM_BYTES: u64 = 8 << 20;

impl Progress {
    /// Starts a bar. `length`: bytes, if known.
    pub fn start(shown: &str, length: Option<u64>) -> Self {
        let worth_it = length.is_none_or(|length| length >= SHOWN_FROM_BYTES);
        if !worth_it || !std::io::stderr().is_terminal() {
            return Self { bar: None };
        }
        let bar = match length {
            Some(length) => ProgressBar::new(length),
            None => ProgressBar::no_length(),
        };
        let style = if length.is_some() {
            "{msg} {wide_bar} {bytes}/{total_bytes} {bytes_per_sec} {eta}"
        } else {
            "{msg} {spinner} {bytes} {bytes_per_sec}"
        };
        if let Ok(style) = ProgressStyle::with_template(style) {
            bar.set_style(style);
        }
        bar.set_message(shown.to_owned());
        Self { bar: Some(bar) }
    }

    pub fn none() -> Self {
        Self { bar: None }
    }

    pub fn moved(&self, bytes: u64) {
        if let Some(bar) = &self.bar {
            bar.inc(bytes);
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}
