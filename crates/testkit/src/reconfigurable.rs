//! The tables of keys that change while a server runs, in `docs/compatibility/configuration.md`.

use std::collections::BTreeSet;

use anyhow::{Context, Result, ensure};

use crate::prerequisites::workspace_root;

const PAGE: &str = "docs/compatibility/configuration.md";

/// A key that a server reads.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct KeyRow {
    pub key: String,
    /// Apache's server changes it; false also for keys that Apache's does not have.
    pub apache: bool,
    /// Hearth's server changes it.
    pub hearth: bool,
    /// Reason why Hearth's does not.
    pub why_not: String,
}

/// Returns the rows of a server: `NameNode` or `DataNode`.
pub fn reconfigurable_rows(server: &str) -> Result<Vec<KeyRow>> {
    let rows = cells_below(&format!("### Keys of the {server}"))?;
    let row = |cells: Vec<String>| {
        let [key, apache, hearth, why_not] = &cells[..] else { anyhow::bail!("{PAGE}: {cells:?} has not four cells") };
        let is_yes = |cell: &str| match cell {
            "yes" => Ok(true),
            "no" | "–" => Ok(false),
            _ => Err(anyhow::anyhow!("{PAGE}: {key} has {cell:?}, neither yes nor no")),
        };
        Ok(KeyRow {
            key: key.trim_matches('`').to_owned(),
            apache: is_yes(apache)?,
            hearth: is_yes(hearth)?,
            why_not: why_not.clone(),
        })
    };
    rows.into_iter().map(row).collect()
}

/// Returns the keys that Apache's server changes and Hearth's does not read. `PORT` stands for the port in a key.
pub fn unread_reconfigurable_keys(server: &str) -> Result<BTreeSet<String>> {
    let rows = cells_below("### Keys of Apache's that Hearth does not read")?;
    let row = rows.into_iter().find(|cells| cells[0] == server).with_context(|| format!("{PAGE}: no row {server}"))?;
    Ok(row[1].split(", ").map(|key| key.trim_matches('`').to_owned()).collect())
}

/// Returns the cells of the table below a heading, without its head.
fn cells_below(heading: &str) -> Result<Vec<Vec<String>>> {
    let path = workspace_root().join(PAGE);
    let text = std::fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
    let lines = text.lines().skip_while(|line| *line != heading).skip(1).take_while(|line| !line.starts_with('#'));
    let table = lines.filter(|line| line.starts_with('|')).skip(2);
    let cells = |line: &str| {
        let inner = line.strip_prefix('|').and_then(|line| line.strip_suffix('|')).unwrap_or(line);
        inner.split('|').map(|cell| cell.trim().to_owned()).collect()
    };
    let rows: Vec<Vec<String>> = table.map(cells).collect();
    ensure!(!rows.is_empty(), "{PAGE} has no table below {heading:?}");
    Ok(rows)
}
