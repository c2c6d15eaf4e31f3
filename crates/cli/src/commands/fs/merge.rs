//! `-getmerge`

use hearth_client::CreateOptions;

use super::failure::Failure;
use super::options::Arguments;
use super::shell::Shell;

pub async fn getmerge(shell: &mut Shell, mut arguments: Arguments) -> Result<(), Failure> {
    let Some(last) = arguments.rest.pop() else { return Ok(()) };
    let target = shell.local_item(&last).await?;
    if target.is_directory() {
        return Err(Failure::is_directory(&target.shown));
    }
    let before = shell.failures();
    let items = shell.existing(&arguments.rest).await?;
    if shell.failures() > before {
        // The target's content is not replaced by only a part of the requested sources.
        return Ok(());
    }
    let mut sources = Vec::new();
    for item in items {
        if item.is_directory() {
            // Subdirectories are skipped.
            sources.extend(item.sorted_children().await?.into_iter().filter(|child| !child.is_directory()));
        } else {
            sources.push(item);
        }
    }
    let options = CreateOptions { overwrite: true, ..CreateOptions::default() };
    let mut sink = target.store.create(&target.path, &target.shown, options).await?;
    for item in sources {
        if arguments.has("skip-empty-file") && item.status()?.length == 0 {
            continue;
        }
        let mut source = item.store.open(&item.path, &item.shown).await?;
        sink.take(&mut source, |_| {}).await?;
        if arguments.has("nl") {
            sink.write(b"\n").await?;
        }
    }
    sink.close().await
}

#[cfg(test)]
mod tests {
    use std::fs;

    use hearth_config::Configuration;

    use super::super::commands;
    use super::*;

    #[tokio::test]
    async fn missing_source_leaves_target_unchanged() {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name);
        for name in ["one", "two", "merged"] {
            fs::write(at(name), name).unwrap();
        }
        let words = |names: [&str; 3]| {
            let words = names.map(|name| at(name).to_str().unwrap().to_owned()).to_vec();
            commands::find("getmerge").unwrap().format.parse(words).unwrap()
        };
        let mut shell = Shell::new(Configuration::empty());
        for (nth, missing) in [(1, "missing"), (2, "none*")] {
            getmerge(&mut shell, words(["one", missing, "merged"])).await.unwrap();
            assert_eq!(shell.failures(), nth);
            assert_eq!(fs::read(at("merged")).unwrap(), b"merged");
        }
        getmerge(&mut shell, words(["one", "two", "merged"])).await.unwrap();
        assert_eq!(fs::read(at("merged")).unwrap(), b"onetwo");
    }
}
