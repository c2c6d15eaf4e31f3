//! Colours and weights of the demo's text, on a terminal that has them.

use std::ffi::OsStr;
use std::io::IsTerminal;

/// Decides whether text is styled. Text that is padded is padded before it is styled, since escape sequences count as
/// characters.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Style {
    is_on: bool,
}

impl Style {
    /// The style of standard output: plain if that is not a terminal, or if the user wants no colours.
    pub fn of_stdout() -> Self {
        let variable = |name| std::env::var_os(name);
        Self::new(std::io::stdout().is_terminal(), variable("NO_COLOR").as_deref(), variable("TERM").as_deref())
    }

    /// `no_color`: the variable NO_COLOR, which counts unless it is empty. Source: no-color.org. `term`: the variable
    /// TERM.
    fn new(is_terminal: bool, no_color: Option<&OsStr>, term: Option<&OsStr>) -> Self {
        let is_unwanted = no_color.is_some_and(|value| !value.is_empty());
        let is_dumb = term.is_none_or(|term| term == "dumb");
        Self { is_on: is_terminal && !is_unwanted && !is_dumb }
    }

    pub fn bold(self, text: &str) -> String {
        self.with("1", text)
    }

    /// For results.
    pub fn green(self, text: &str) -> String {
        self.with("1;32", text)
    }

    /// For what the reader may skip.
    pub fn dim(self, text: &str) -> String {
        self.with("2", text)
    }

    /// `code`: parameters of the sequence "select graphic rendition". Source: ECMA-48, 8.3.117.
    fn with(self, code: &str, text: &str) -> String {
        if self.is_on { format!("\x1b[{code}m{text}\x1b[0m") } else { text.to_owned() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_terminal_whose_user_wants_colours_gets_them() {
        let xterm = Some(OsStr::new("xterm-256color"));
        let style = Style::new(true, None, xterm);
        assert_eq!(style.green("7.9"), "\x1b[1;32m7.9\x1b[0m");
        assert_eq!(style, Style::new(true, Some(OsStr::new("")), xterm));
        for plain in [
            Style::new(false, None, xterm),
            Style::new(true, Some(OsStr::new("1")), xterm),
            Style::new(true, None, Some(OsStr::new("dumb"))),
            Style::new(true, None, None),
        ] {
            assert_eq!(plain.bold("7.9"), "7.9");
        }
    }
}
