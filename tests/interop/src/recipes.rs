//! The recipes for Python in `docs/recipes`, and Python with the wheel of this build.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use hearth_testkit::{python_wheel, workspace_root};

use crate::Session;

/// Programs that Ray and PyTorch start. The other recipes run with an empty PATH, so that none finds Java.
pub const SYSTEM_PATH: &str = "/usr/local/bin:/usr/bin:/bin";

/// A cluster of Ray that takes a small part of this machine, and listens on no other address.
const SMALL_RAY: &str = "ray.init(num_cpus=2, include_dashboard=False, object_store_memory=200 << 20, \
                         _node_ip_address='127.0.0.1')";

/// Runs a command to its end. Returns its standard output.
pub fn printed(command: &mut Command) -> Result<String> {
    let output = command.output().with_context(|| format!("cannot start {command:?}"))?;
    let [printed, errors] = [&output.stdout, &output.stderr].map(|text| String::from_utf8_lossy(text).into_owned());
    ensure!(output.status.success(), "{command:?} ended with {}\n{printed}\n{errors}", output.status);
    Ok(printed)
}

/// Returns a command that sees only the cluster's configuration.
pub fn configured(session: &Session, program: &Path) -> Command {
    let mut command = Command::new(program);
    command.env_clear().env("PATH", "").env("HADOOP_CONF_DIR", session.cluster.conf());
    command.env("HADOOP_USER_NAME", hearth_client::os_user_name());
    command
}

/// Returns a command of this Python that can import the wheel, which is installed without its dependencies.
pub fn with_wheel(session: &Session, python: &Path) -> Result<Command> {
    let site = session.local("site")?;
    if !site.join("hearth").exists() {
        let mut install = Command::new(python);
        install.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-index", "--no-deps"]);
        printed(install.arg("--target").arg(&site).arg(python_wheel()?))?;
    }
    let mut command = configured(session, python);
    command.env("PYTHONPATH", &site).env("PYTHONDONTWRITEBYTECODE", "1").current_dir(session.local("work")?);
    Ok(command)
}

/// Returns the pages with recipes, in order of their names.
pub fn recipe_pages() -> Result<Vec<PathBuf>> {
    let mut pages: Vec<PathBuf> = fs::read_dir(workspace_root().join("docs/recipes"))
        .context("cannot read docs/recipes")?
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|page| page.extension().is_some_and(|extension| extension == "md"))
        .collect();
    pages.sort();
    Ok(pages)
}

/// Runs each block of Python of a page in a process of its own, one after another, on the session's cluster. Returns their number.
pub fn run_recipes(session: &Session, page: &Path, python: impl Fn() -> Result<Command>) -> Result<usize> {
    let text = fs::read_to_string(page).with_context(|| format!("cannot read {}", page.display()))?;
    let blocks = blocks(&text, session.cluster.namenode_rpc_port());
    for block in &blocks {
        printed(python()?.args(["-c", block])).with_context(|| format!("{}\n{block}", page.display()))?;
    }
    Ok(blocks.len())
}

/// Returns the blocks of Python of a page, with this port of the NameNode.
fn blocks(page: &str, port: u16) -> Vec<String> {
    let blocks = page.split("```python\n").skip(1).filter_map(|rest| rest.split("```").next());
    blocks
        .map(|block| {
            block
                .replace("namenode:8020", &format!("127.0.0.1:{port}"))
                .replace("host=\"namenode\", port=8020", &format!("host=\"127.0.0.1\", port={port}"))
                .replace("ray.init()", SMALL_RAY)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_get_the_port() {
        let page = "# Page\n\n```python\na(\"hdfs://namenode:8020/b\")\n```\n\ntext\n\n```sh\nc\n```\n\n```python\nray.init()\n```\n";
        let found = blocks(page, 7);
        assert_eq!(found.len(), 2);
        assert_eq!(found[0], "a(\"hdfs://127.0.0.1:7/b\")\n");
        assert!(found[1].starts_with("ray.init(num_cpus=2"), "{}", found[1]);
    }
}
