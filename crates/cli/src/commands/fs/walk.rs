use super::failure::Failure;
use super::item::Item;
use super::shell::Shell;

/// Action of a command with `-R` on each path.
pub trait Visit {
    async fn visit(&self, shell: &mut Shell, item: &Item) -> Result<(), Failure>;
}

/// Visits `item`, and with `recursive` everything below it. A directory is visited before its entries. A failure is
/// reported and does not end the walk.
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
