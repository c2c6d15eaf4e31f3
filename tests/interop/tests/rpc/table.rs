//! `docs/compatibility/rpc.md` names every method of every protocol.

use anyhow::{Context, Result, ensure};
use hearth_interop::Session;
use hearth_protocol::rpc::hadoop_methods;
use hearth_testkit::workspace_root;

pub fn names_every_method(_: &mut Session) -> Result<()> {
    let path = workspace_root().join("docs/compatibility/rpc.md");
    let text = std::fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
    let mut missing = Vec::new();
    for method in hadoop_methods() {
        let protocol = method.protocol.rsplit('.').next().unwrap_or_default();
        let section = text
            .split("\n## ")
            .find(|section| section.starts_with(protocol) || section.starts_with(&format!("`{protocol}`")));
        let is_named = section.is_some_and(|section| section.contains(&format!("`{}`", method.name)));
        if !is_named {
            missing.push(format!("{protocol}.{}", method.name));
        }
    }
    ensure!(missing.is_empty(), "{} lacks {missing:?}", path.display());
    Ok(())
}
