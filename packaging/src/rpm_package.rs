//! The .rpm, with the same files and scripts as the .deb.

use std::path::Path;

use anyhow::{Context, Result};
use rpm::{BuildConfig, CompressionType, Dependency, FileOptions, PackageBuilder};

use crate::tree::Content;
use crate::{DESCRIPTION, GLIBC, Order, SUMMARY, layout, write_package};

pub fn write(order: &Order) -> Result<()> {
    let machine = order.machine.name();
    let mut builder = PackageBuilder::new("hearth", &order.version, "Apache-2.0", machine, SUMMARY);
    let time = u32::try_from(order.time).context("RPM has no time after 2106")?;
    builder
        .using_config(BuildConfig::v4().compression(CompressionType::Gzip).source_date(time))
        .release("1")
        .description(DESCRIPTION)
        .vcs(order.commit.as_str())
        .build_host("localhost")
        .requires(Dependency::any(format!("libc.so.6(GLIBC_{GLIBC})(64bit)")))
        // For `useradd`.
        .requires(Dependency::script_post("/usr/sbin/useradd"))
        .recommends(Dependency::any("libibverbs"))
        .recommends(Dependency::any("librdmacm"));
    for (path, node) in layout::installed(order, "usr/share/zsh/site-functions")?.iter() {
        // Of directories, only those that no other package owns.
        let owned = ["etc/hearth", "usr/share/doc/hearth", "usr/share/hearth"];
        let own = owned.iter().any(|top| Path::new(path).starts_with(top));
        let destination = format!("/{path}");
        match &node.content {
            Content::Directory if own => builder.with_dir_entry(FileOptions::dir(destination).permissions(0o755))?,
            Content::Directory => continue,
            Content::File(bytes) => {
                let mut options = FileOptions::new(destination).permissions(node.mode as u16);
                if node.is_configuration {
                    options = options.config().noreplace();
                }
                builder.with_file_contents(bytes.clone(), options)?
            }
            Content::Link(target) => builder.with_symlink(FileOptions::symlink(destination, target))?,
        };
    }
    let script = |names: &[&str]| -> Result<String> {
        let scripts = order.root.join("packaging/files/scripts");
        let texts: Result<Vec<_>> = names.iter().map(|name| layout::read(&scripts.join(name))).collect();
        Ok(String::from_utf8(texts?.concat())?)
    };
    builder
        .post_install_script(script(&["rpm-post.sh", "setup.sh"])?)
        .pre_uninstall_script(script(&["rpm-preun.sh", "stop.sh"])?)
        .post_uninstall_script(script(&["rpm-postun.sh"])?);
    let mut bytes = Vec::new();
    builder.build()?.write(&mut bytes)?;
    write_package(order, &format!("hearth-{}-1.{machine}.rpm", order.version), &bytes)
}
