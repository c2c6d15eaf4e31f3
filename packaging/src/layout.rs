//! The files that a package installs, and where.

use std::path::Path;

use anyhow::{Context, Result};

use crate::Order;
use crate::tree::{Node, Tree, gzip};

/// Directories of the repository that become examples.
const EXAMPLES: [&str; 3] = ["one-machine", "three-machines", "under-apache-namenode"];

/// Returns the files of the .deb and the .rpm. `zsh`: the directory of completions, the only one in which the distributions differ.
pub fn installed(order: &Order, zsh: &str) -> Result<Tree> {
    let mut tree = Tree::default();
    tree.file("usr/bin/hearth", 0o755, read(&order.program)?);
    let packaging = order.root.join("packaging");
    for (name, bytes) in folder(&packaging.join("files/systemd"))? {
        tree.file(&format!("usr/lib/systemd/system/{name}"), 0o644, bytes);
    }
    tree.file("usr/lib/sysusers.d/hearth.conf", 0o644, read(&packaging.join("files/sysusers.conf"))?);
    tree.file("usr/lib/tmpfiles.d/hearth.conf", 0o644, read(&packaging.join("files/tmpfiles.conf"))?);
    tree.insert("etc/default/hearth", configuration(read(&packaging.join("files/default"))?));
    tree.insert("etc/logrotate.d/hearth", configuration(read(&packaging.join("files/logrotate"))?));
    for (name, bytes) in folder(&packaging.join("examples/one-machine"))? {
        tree.insert(&format!("etc/hearth/{name}"), configuration(bytes));
    }
    for (name, bytes) in folder(&order.documents.join("man"))? {
        tree.file(&format!("usr/share/man/man1/{name}.gz"), 0o644, gzip(&bytes)?);
    }
    let completion = |name: &str| read(&order.documents.join("completions").join(name));
    tree.file("usr/share/bash-completion/completions/hearth", 0o644, completion("hearth.bash")?);
    tree.file(&format!("{zsh}/_hearth"), 0o644, completion("_hearth")?);
    tree.file("usr/share/fish/vendor_completions.d/hearth.fish", 0o644, completion("hearth.fish")?);
    monitoring(order, "usr/share/hearth/", &mut tree)?;
    texts(order, "usr/share/doc/hearth/", &mut tree)?;
    Ok(tree)
}

/// Returns the files of the archive, which runs from any directory.
pub fn portable(order: &Order) -> Result<Tree> {
    let mut tree = Tree::default();
    tree.file("bin/hearth", 0o755, read(&order.program)?);
    for (name, bytes) in folder(&order.documents.join("man"))? {
        tree.file(&format!("man/man1/{name}"), 0o644, bytes);
    }
    for (name, bytes) in folder(&order.documents.join("completions"))? {
        tree.file(&format!("completions/{name}"), 0o644, bytes);
    }
    for (name, bytes) in folder(&order.root.join("packaging/files/systemd"))? {
        tree.file(&format!("systemd/{name}"), 0o644, bytes);
    }
    tree.file("logrotate/hearth", 0o644, read(&order.root.join("packaging/files/logrotate"))?);
    monitoring(order, "", &mut tree)?;
    texts(order, "", &mut tree)?;
    Ok(tree)
}

/// Adds the dashboard and the alert rules below `prefix`, in the directories of the repository.
fn monitoring(order: &Order, prefix: &str, tree: &mut Tree) -> Result<()> {
    for directory in ["monitoring/grafana", "monitoring/prometheus"] {
        for (name, bytes) in folder(&order.root.join(directory))? {
            tree.file(&format!("{prefix}{directory}/{name}"), 0o644, bytes);
        }
    }
    Ok(())
}

/// Adds the license, the texts and the examples below `prefix`.
fn texts(order: &Order, prefix: &str, tree: &mut Tree) -> Result<()> {
    for name in ["README.md", "CHANGELOG.md", "docs/operations.md"] {
        let file = Path::new(name).file_name().and_then(|name| name.to_str()).unwrap_or(name);
        tree.file(&format!("{prefix}{file}"), 0o644, read(&order.root.join(name))?);
    }
    // The name that Debian's policy asks for.
    tree.file(&format!("{prefix}copyright"), 0o644, read(&order.root.join("LICENSE"))?);
    let packaging = order.root.join("packaging");
    for example in EXAMPLES {
        for (name, bytes) in folder(&packaging.join("examples").join(example))? {
            tree.file(&format!("{prefix}examples/{example}/{name}"), 0o644, bytes);
        }
    }
    for (name, bytes) in folder(&packaging.join("kubernetes"))? {
        tree.file(&format!("{prefix}examples/kubernetes/{name}"), 0o644, bytes);
    }
    Ok(())
}

fn configuration(bytes: Vec<u8>) -> Node {
    Node { content: crate::tree::Content::File(bytes), is_configuration: true, ..Node::directory(0o644) }
}

pub fn read(path: &Path) -> Result<Vec<u8>> {
    std::fs::read(path).with_context(|| format!("cannot read {}", path.display()))
}

/// Returns the files directly in a directory, sorted by name.
fn folder(path: &Path) -> Result<Vec<(String, Vec<u8>)>> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(path).with_context(|| format!("cannot list {}", path.display()))? {
        let entry = entry?;
        if entry.file_type()?.is_file() {
            found.push((entry.file_name().to_string_lossy().into_owned(), read(&entry.path())?));
        }
    }
    anyhow::ensure!(!found.is_empty(), "{} has no files", path.display());
    found.sort();
    Ok(found)
}
