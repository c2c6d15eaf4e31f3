//! `println!`, `print!`, `eprintln!` and `eprint!` of this program, in place of those of the standard library.
//!
//! Those panic if nothing can be written: on a full disk, or when the reader of a pipe has ended. A server must go on
//! then, above all to write its memory to disk. A tool goes on too, as with Java's `PrintStream`, and fails at its end.

use std::fmt;
use std::io::{self, Write};
use std::sync::OnceLock;

/// First error of standard output.
static LOST: OnceLock<io::Error> = OnceLock::new();

macro_rules! println {
    () => { $crate::output::to_stdout(format_args!("\n")) };
    ($($text:tt)*) => { $crate::output::to_stdout(format_args!("{}\n", format_args!($($text)*))) };
}

macro_rules! print {
    ($($text:tt)*) => { $crate::output::to_stdout(format_args!($($text)*)) };
}

macro_rules! eprintln {
    () => { $crate::output::to_stderr(format_args!("\n")) };
    ($($text:tt)*) => { $crate::output::to_stderr(format_args!("{}\n", format_args!($($text)*))) };
}

macro_rules! eprint {
    ($($text:tt)*) => { $crate::output::to_stderr(format_args!($($text)*)) };
}

/// Writes to standard output. An error is kept for [`lost`].
pub fn to_stdout(text: fmt::Arguments<'_>) {
    if let Err(error) = io::stdout().write_fmt(text) {
        // Only the first error is kept.
        let _ = LOST.set(error);
    }
}

/// Writes to standard error. An error is ignored: there is no other place to report it.
pub fn to_stderr(text: fmt::Arguments<'_>) {
    let _ = io::stderr().write_fmt(text);
}

/// Flushes standard output. Returns the first error, if a part of the output was lost.
pub fn lost() -> Option<&'static io::Error> {
    if let Err(error) = io::stdout().flush() {
        let _ = LOST.set(error);
    }
    LOST.get()
}
