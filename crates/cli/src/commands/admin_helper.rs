//! Commands of a tool whose subcommands begin with a dash, their usage and `-help`: `cacheadmin`, `storagepolicies`.
//! Source: AdminHelper.java.

use super::generic_options::GENERIC_USAGE;
use super::tool::{FAILED, Rebuilt, Tool, prettified};

/// A command of such a tool.
pub struct HelperCommand {
    /// Name with its dash.
    pub name: &'static str,
    /// Text behind the name in usage lines.
    pub takes: &'static str,
    pub about: &'static str,
    /// Arguments and their meaning, for `-help`.
    pub arguments: &'static [(&'static str, &'static str)],
}

impl HelperCommand {
    /// Returns `[-name ARGUMENTS]`, with a line end.
    pub fn short_usage(&self) -> String {
        format!("[{}{}]\n", self.name, self.takes)
    }

    /// Returns the usage, the description and the arguments.
    pub fn long_usage(&self) -> String {
        let mut out = format!("{}\n{}\n", self.short_usage(), self.about);
        if !self.arguments.is_empty() {
            out += "\n";
            out += &described(self.arguments);
        }
        out
    }
}

/// Returns a line for each command: a tab, its synopsis, a tab, its description.
pub fn reference(commands: &[HelperCommand]) -> String {
    let line = |command: &HelperCommand| format!("\t{}{}\t{}\n", command.name, command.takes, command.about);
    commands.iter().map(line).collect()
}

/// Longest line of `-help`.
const LINE: usize = 80;

/// Returns two columns, the second one wrapped. Source: TableListing.java.
fn described(arguments: &[(&str, &str)]) -> String {
    let first = arguments.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
    let second = arguments.iter().map(|(_, about)| about.len()).max().unwrap_or(0).min(LINE - 2 - first);
    let mut out = String::new();
    for (name, about) in arguments {
        for (at, line) in wrapped(about, second).iter().enumerate() {
            let name = if at == 0 { *name } else { "" };
            out += &format!("{name:<first$} {line:<second$}\n");
        }
    }
    out
}

/// Breaks a text at spaces into lines of at most `width`, if its words allow it.
fn wrapped(text: &str, width: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split(' ') {
        let last = lines.last_mut().expect("there is a line");
        if last.is_empty() {
            *last += word;
        } else if last.len() + 1 + word.len() <= width {
            *last += " ";
            *last += word;
        } else {
            lines.push(word.to_owned());
        }
    }
    lines
}

const HELP: HelperCommand = HelperCommand {
    name: "-help",
    takes: " <command-name>",
    about: "Get detailed help about a command.",
    arguments: &[(
        "<command-name>",
        "The command for which to get detailed help. If no command is specified, print detailed help for all commands",
    )],
};

fn usage(tool: &str, commands: &[HelperCommand]) -> String {
    let lines: String =
        commands.iter().chain([&HELP]).map(|command| format!("          {}", command.short_usage())).collect();
    format!("Usage: bin/hdfs {tool} [COMMAND]\n{lines}\n{GENERIC_USAGE}")
}

/// Runs the command that the first word names with the other words. `program`: name of the tool.
pub async fn dispatch(
    tool: &Tool,
    program: &str,
    commands: &'static [HelperCommand],
    mut words: Vec<String>,
    call: impl AsyncFnOnce(&Tool, &'static HelperCommand, Vec<String>) -> anyhow::Result<u8>,
) -> u8 {
    if words.is_empty() {
        eprint!("{}", usage(program, commands));
        return 1;
    }
    let name = words.remove(0);
    if name == HELP.name {
        return help(commands, &words);
    }
    let Some(command) = commands.iter().find(|command| command.name == name) else {
        eprintln!("Can't understand command '{name}'");
        if !name.starts_with('-') {
            eprintln!("Command names must start with dashes.");
        }
        eprint!("{}", usage(program, commands));
        return 1;
    };
    match call(tool, command, words).await {
        Ok(code) => code,
        Err(error) => {
            eprintln!("{}", prettified(&error, Rebuilt::All));
            FAILED
        }
    }
}

fn help(commands: &[HelperCommand], words: &[String]) -> u8 {
    match words {
        [] => {
            commands.iter().for_each(|command| eprintln!("{}", command.long_usage()));
            1
        }
        [name] => match commands.iter().chain([&HELP]).find(|command| command.name[1..] == *name) {
            Some(command) => {
                eprint!("{}", command.long_usage());
                0
            }
            None => {
                let known: Vec<&str> = commands.iter().map(|command| &command.name[1..]).collect();
                eprintln!("Unknown command '{name}'.\nValid help command names are:\n{}", known.join(", "));
                1
            }
        },
        _ => {
            eprintln!("You must give exactly one argument to -help.");
            1
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_usage_has_two_columns() {
        let command = HelperCommand {
            name: "-get",
            takes: " -path <path>",
            about: "Get it.",
            arguments: &[("<path>", "The path."), ("<a>", "Another one.")],
        };
        let usage = "[-get -path <path>]\n\nGet it.\n\n<path> The path.   \n<a>    Another one.\n";
        assert_eq!(command.long_usage(), usage);
        let long = "word ".repeat(40);
        assert!(described(&[("<x>", long.trim())]).lines().all(|line| line.len() <= LINE));
    }
}
