//! `-mv`

use super::copy::{check_destination, destination, target_of};
use super::failure::Failure;
use super::item::Item;
use super::options::Arguments;
use super::shell::Shell;

pub async fn mv(shell: &mut Shell, mut arguments: Arguments) -> Result<(), Failure> {
    let target = destination(shell, &mut arguments.rest).await?;
    let sources = shell.all_items(&arguments.rest).await?;
    check_destination(arguments.rest.len().max(sources.len()), &target, false).await?;
    for source in &sources {
        if let Err(failure) = one(source, &target).await {
            shell.report(&failure);
        }
    }
    Ok(())
}

async fn one(source: &Item, target: &Item) -> Result<(), Failure> {
    source.status()?;
    let target = target_of(source, target).await?;
    if !source.store.same(&target.store) {
        return Err(Failure::path(&source.shown, "Does not match target filesystem"));
    }
    if target.exists() {
        return Err(Failure::exists(&target.shown));
    }
    if !source.store.rename(&source.path, &target.path, &source.shown).await? {
        // The NameNode does not give a reason.
        return Err(Failure::path(&source.shown, "Input/output error"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::fs;

    use hearth_config::Configuration;

    use super::super::commands;
    use super::*;

    #[tokio::test]
    async fn several_sources_need_a_target_directory() {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name);
        for name in ["from/one", "from/two"] {
            fs::create_dir_all(at(name)).unwrap();
        }
        fs::write(at("file"), "bytes").unwrap();
        let written = |name: &str| at(name).to_str().unwrap().to_owned();
        let words = |from: &str, to: &str| {
            commands::find("mv").unwrap().format.parse(vec![written(from), written(to)]).unwrap()
        };
        let mut shell = Shell::new(Configuration::empty());
        for (to, why) in [("none", "No such file or directory"), ("file", "Is not a directory")] {
            let refused = mv(&mut shell, words("from/*", to)).await.unwrap_err();
            assert_eq!(refused.to_string(), format!("`{}': {why}", written(to)));
        }
        assert!(at("from/one").exists() && at("from/two").exists() && !at("none").exists());
        // Moves onto itself, and into itself.
        for (from, to, why) in [
            ("file", "file", "File exists"),
            ("from", "from", "is a subdirectory of itself"),
            ("from", "from/one/below", "is a subdirectory of itself"),
        ] {
            let before = shell.failures();
            let refused = mv(&mut shell, words(from, to)).await;
            assert!(
                refused.is_err_and(|failure| failure.to_string().contains(why)) || shell.failures() == before + 1,
                "{from} {to}"
            );
        }
        assert!(at("file").exists() && at("from/one").exists());
        let failures = shell.failures();
        mv(&mut shell, words("from/o*", "none")).await.unwrap();
        mv(&mut shell, words("from/*", "none")).await.unwrap();
        assert_eq!(shell.failures(), failures);
        assert!(at("none/two").exists() && !at("from/one").exists());
    }
}
