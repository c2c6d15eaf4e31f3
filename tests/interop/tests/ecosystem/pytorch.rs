//! The recipe for PyTorch on Hearth. PyTorch from PyPI needs gigabytes of libraries, so it does not run with the other recipes.

use anyhow::{Result, ensure};
use hearth_interop::recipes::{SYSTEM_PATH, recipe_pages, run_recipes, with_wheel};
use hearth_interop::{Check, Session, Suite};
use hearth_testkit::{ClusterSpec, Implementation, python_with_torch};

const CHECKS: &[Check] = &[("recipe", recipe)];

pub fn suite() -> Suite {
    let cluster = ClusterSpec::new(Implementation::Hearth, Implementation::Hearth).short_circuit();
    Suite { name: "pytorch", clusters: vec![cluster], checks: CHECKS }
}

fn recipe(session: &mut Session) -> Result<()> {
    let (session, python) = (&*session, python_with_torch()?);
    let mut found = 0;
    for page in recipe_pages()?.iter().filter(|page| page.ends_with("pytorch.md")) {
        found += run_recipes(session, page, || {
            let mut command = with_wheel(session, &python)?;
            command.env("PATH", SYSTEM_PATH);
            Ok(command)
        })?;
    }
    ensure!(found > 0, "docs/recipes/pytorch.md has no block");
    Ok(())
}
