//! `-mv`

use super::copy::{check_destination, destination};
use super::failure::Failure;
use super::item::Item;
use super::options::Arguments;
use super::shell::Shell;

pub async fn mv(shell: &mut Shell, mut arguments: Arguments) -> Result<(), Failure> {
    let target = destination(shell, &mut arguments.rest).await?;
    check_destination(arguments.rest.len(), &target, false).await?;
    for argument in &arguments.rest {
        let items = match shell.items(argument).await {
            Ok(items) => items,
            Err(failure) => {
                shell.report(&failure);
                continue;
            }
        };
        for source in items {
            if let Err(failure) = one(&source, &target).await {
                shell.report(&failure);
            }
        }
    }
    Ok(())
}

async fn one(source: &Item, target: &Item) -> Result<(), Failure> {
    source.status()?;
    let target = if target.is_directory() { target.child(source.name()).await? } else { target.clone() };
    if !source.store.same(&target.store) {
        return Err(Failure::path(&source.shown, "Does not match target filesystem"));
    }
    if target.exists() {
        return Err(Failure::exists(&target.shown));
    }
    if !source.store.rename(&source.path, &target.path, &source.shown).await? {
        // The namenode does not say why.
        return Err(Failure::path(&source.shown, "Input/output error"));
    }
    Ok(())
}
