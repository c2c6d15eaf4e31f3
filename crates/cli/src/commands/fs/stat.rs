//! `-stat`

use hearth_types::{FileKind, FileStatus};

use super::failure::Failure;
use super::item::Item;
use super::options::Arguments;
use super::shell::Shell;
use super::time::Calendar;
use super::walk::{Visit, walk};

pub async fn stat(shell: &mut Shell, mut arguments: Arguments) -> Result<(), Failure> {
    let mut recursive = arguments.has("R");
    let format = if arguments.rest.first().is_some_and(|first| first.contains('%')) {
        arguments.rest.remove(0)
    } else {
        "%y".to_owned()
    };
    // -R may also follow the format.
    while arguments.rest.first().is_some_and(|word| word == "-R") {
        arguments.rest.remove(0);
        recursive = true;
    }
    if arguments.rest.is_empty() {
        return Err(Failure::Usage("Not enough arguments: expected 1 but got 0".to_owned()));
    }
    for item in shell.existing(&arguments.rest).await? {
        walk(shell, &item, &ShowStatus(&format), recursive).await;
    }
    Ok(())
}

/// Prints the attributes of each path in the format.
struct ShowStatus<'a>(&'a str);

impl Visit for ShowStatus<'_> {
    async fn visit(&self, shell: &mut Shell, item: &Item) -> Result<(), Failure> {
        let line = formatted(self.0, item)?;
        shell.line(line);
        Ok(())
    }
}

fn formatted(format: &str, item: &Item) -> Result<String, Failure> {
    let status = item.status()?;
    let mut out = String::new();
    let mut letters = format.chars();
    while let Some(letter) = letters.next() {
        if letter != '%' {
            out.push(letter);
            continue;
        }
        match letters.next() {
            Some(letter) => attribute(letter, item, status, &mut out),
            // A lone percent sign at the end.
            None => break,
        }
    }
    Ok(out)
}

fn attribute(letter: char, item: &Item, status: &FileStatus, out: &mut String) {
    let text = match letter {
        'a' => format!("{:o}", status.permission.0),
        'A' => status.permission.to_string(),
        'b' => status.length.to_string(),
        'F' => match status.kind {
            FileKind::Directory => "directory",
            FileKind::File => "regular file",
            FileKind::Symlink => "symbolic link",
        }
        .to_owned(),
        'g' => status.group.clone(),
        'n' => item.name().to_owned(),
        'o' => status.block_size.to_string(),
        'r' => status.replication.to_string(),
        'u' => status.owner.clone(),
        'x' => Calendar::utc(status.access_time_ms).to_the_second(),
        'X' => status.access_time_ms.to_string(),
        'y' => Calendar::utc(status.modification_time_ms).to_the_second(),
        'Y' => status.modification_time_ms.to_string(),
        // Other characters stand for themselves.
        other => other.to_string(),
    };
    out.push_str(&text);
}
