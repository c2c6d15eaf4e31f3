//! `-rm` and `-rmdir`

use std::io::{BufRead, Read};

use hearth_config::keys;

use super::count::summary;
use super::failure::Failure;
use super::item::Item;
use super::options::Arguments;
use super::shell::Shell;
use super::trash;

pub async fn rm(shell: &mut Shell, arguments: Arguments, recursive: bool) -> Result<(), Failure> {
    let recursive = recursive || arguments.has("r") || arguments.has("R");
    let forced = arguments.has("f");
    // All arguments are resolved first: an invalid path prevents the removal of the others.
    let mut all = Vec::new();
    for argument in &arguments.rest {
        match shell.items(argument).await {
            Ok(items) => all.extend(items),
            // A pattern without matches.
            Err(Failure::Path { .. }) if forced => {}
            Err(failure @ Failure::Usage(_)) => return Err(failure),
            Err(failure) => shell.report(&failure),
        }
    }
    for item in all {
        if !item.exists() && forced {
            continue;
        }
        match one(shell, &arguments, recursive, &item).await {
            Ok(()) => {}
            Err(failure @ (Failure::Exit(_) | Failure::Usage(_))) => return Err(failure),
            Err(failure) => shell.report(&failure),
        }
    }
    Ok(())
}

async fn one(shell: &mut Shell, arguments: &Arguments, recursive: bool, item: &Item) -> Result<(), Failure> {
    item.status()?;
    if item.is_directory() && !recursive {
        return Err(Failure::is_directory(&item.shown));
    }
    if !arguments.has("skipTrash") && trash::take(shell, item).await? {
        return Ok(());
    }
    if arguments.has("safely") && !confirmed(shell, item, &mut std::io::stdin().lock()).await? {
        return Ok(());
    }
    if !item.store.delete(&item.path, &item.shown, recursive).await? {
        return Err(Failure::path(&item.shown, "Input/output error"));
    }
    shell.line(format_args!("Deleted {}", item.shown));
    Ok(())
}

/// Asks for confirmation if more files would be removed than `hadoop.shell.safely.delete.limit.num.files`.
///
/// Errors: the input ends without a valid answer. Apache's shell asks for ever.
async fn confirmed(shell: &mut Shell, item: &Item, answers: &mut impl BufRead) -> Result<bool, Failure> {
    let limit = shell.configuration.get(keys::HADOOP_SHELL_SAFELY_DELETE_LIMIT_NUM_FILES);
    let limit = limit.map_err(|error| Failure::Message(error.to_string()))?;
    if limit <= 0 {
        return Ok(true);
    }
    let files = summary(item).await?.files;
    if files <= limit.unsigned_abs() {
        return Ok(true);
    }
    shell.flush();
    loop {
        eprint!("Proceed deleting {files} files? (Y or N) ");
        let mut answer = String::new();
        let read = answers.take(ANSWER_BYTES_MAX).read_line(&mut answer);
        if !matches!(read, Ok(bytes) if bytes > 0) {
            eprintln!();
            return Err(Failure::path(&item.shown, "not deleted: standard input ended without an answer (Y or N)"));
        }
        let answer = answer.trim_end_matches(['\r', '\n']);
        match answer.to_ascii_lowercase().as_str() {
            "y" | "yes" => return Ok(true),
            "n" | "no" => {
                eprintln!("Delete aborted at user request.\n");
                return Ok(false);
            }
            _ => eprintln!("Invalid input: {answer}"),
        }
    }
}

/// Maximum length of an answer.
const ANSWER_BYTES_MAX: u64 = 4096;

pub async fn rmdir(shell: &mut Shell, arguments: Arguments) -> Result<(), Failure> {
    let ignore = arguments.has("-ignore-fail-on-non-empty");
    for item in shell.existing(&arguments.rest).await? {
        let removed = async {
            if !item.is_directory() {
                return Err(Failure::not_directory(&item.shown));
            }
            if !item.children().await?.is_empty() {
                return if ignore { Ok(()) } else { Err(Failure::path(&item.shown, "Directory is not empty")) };
            }
            item.store.delete(&item.path, &item.shown, false).await.map(|_| ())
        };
        if let Err(failure) = removed.await {
            shell.report(&failure);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use hearth_config::Configuration;

    use super::super::commands;
    use super::*;

    #[tokio::test]
    async fn safely_asks_above_the_configured_limit() {
        let directory = tempfile::tempdir().unwrap();
        for name in ["a", "b", "c"] {
            std::fs::write(directory.path().join(name), name).unwrap();
        }
        let path = directory.path().to_str().unwrap();
        for (limit, answers, wanted) in [
            ("3", "", Some(true)),
            ("0", "", Some(true)),
            ("2", "", None),
            ("2", "what\n", None),
            ("2", "what\nYES\n", Some(true)),
            ("2", "y", Some(true)),
            ("2", "no\n", Some(false)),
        ] {
            let key = "hadoop.shell.safely.delete.limit.num.files";
            let mut shell = Shell::new(Configuration::empty().with(key, limit));
            let item = shell.item(path).await.unwrap();
            let said = confirmed(&mut shell, &item, &mut answers.as_bytes()).await;
            assert_eq!(said.ok(), wanted, "{limit} {answers:?}");
        }
    }

    #[tokio::test]
    async fn invalid_path_or_pattern_removes_nothing() {
        let directory = tempfile::tempdir().unwrap();
        let d = directory.path().join("d");
        std::fs::create_dir_all(d.join("a")).unwrap();
        let d = d.to_str().unwrap();
        let mut shell = Shell::new(Configuration::empty());
        let mut remove = async |words: &[&str]| {
            let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
            let arguments = commands::find("rm").unwrap().format.parse(words).unwrap();
            let before = shell.failures();
            rm(&mut shell, arguments, false).await.is_err() || shell.failures() > before
        };
        for end in ["{}", "{,x}", "a/{}/..", "\\", "\\.", "a/\\..", "{/,y}", "{.,x/y}"] {
            assert!(remove(&["-r", "-skipTrash", &format!("{d}/{end}")]).await, "{end}");
            assert!(std::path::Path::new(d).join("a").exists(), "{end}");
        }
        for wrong in ["", "file:x", "file://tmp/x"] {
            assert!(remove(&["-r", "-skipTrash", d, wrong]).await, "{wrong}");
            assert!(std::path::Path::new(d).join("a").exists(), "{wrong}");
        }
        assert!(!remove(&["-r", "-skipTrash", &format!("{d}/{{a,b}}")]).await);
        assert!(!std::path::Path::new(d).join("a").exists() && std::path::Path::new(d).exists());
    }
}
