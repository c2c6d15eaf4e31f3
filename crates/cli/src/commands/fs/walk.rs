use super::failure::Failure;
use super::item::Item;
use super::shell::Shell;

/// What a command with `-R` does to each path.
pub trait Visit {
    async fn visit(&self, shell: &mut Shell, item: &Item) -> Result<(), Failure>;
}

/// Visits `item`, and with `recursive` everything below it, directories before what is in them. A failure is reported and the rest
/// goes on.
pub async fn walk(shell: &mut Shell, item: &Item, visit: &impl Visit, recursive: bool) {
    if let Err(failure) = visit.visit(shell, item).await {
        shell.report(&failure);
    }
    if !recursive || !item.is_directory() {
        return;
    }
    match item.children().await {
        Ok(children) => {
            for child in &children {
                Box::pin(walk(shell, child, visit, recursive)).await;
            }
        }
        Err(failure) => shell.report(&failure),
    }
}
