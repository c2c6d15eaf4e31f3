//! The .deb: an `ar` archive of `debian-binary`, `control.tar.gz` and `data.tar.gz`. Source: deb(5).

use std::fmt::Write;

use anyhow::Result;
use md5::{Digest, Md5};

use crate::tree::{Tree, gzip};
use crate::{DESCRIPTION, GLIBC, Order, SUMMARY, layout, write_package};

pub fn write(order: &Order) -> Result<()> {
    let data = layout::installed(order, "usr/share/zsh/vendor-completions")?;
    let mut control = Tree::default();
    control.file("control", 0o644, control_file(order, &data));
    let mut configuration = String::new();
    let mut sums = String::new();
    for (path, bytes, node) in data.files() {
        if node.is_configuration {
            writeln!(configuration, "/{path}")?;
        } else {
            writeln!(sums, "{:x}  {path}", Md5::digest(bytes))?;
        }
    }
    control.file("conffiles", 0o644, configuration);
    control.file("md5sums", 0o644, sums);
    let scripts = order.root.join("packaging/files/scripts");
    let setup = layout::read(&scripts.join("setup.sh"))?;
    control.file("postinst", 0o755, [&layout::read(&scripts.join("deb-postinst.sh"))?[..], &setup].concat());
    let stop = layout::read(&scripts.join("stop.sh"))?;
    control.file("prerm", 0o755, [&layout::read(&scripts.join("deb-prerm.sh"))?[..], &stop].concat());
    control.file("postrm", 0o755, layout::read(&scripts.join("deb-postrm.sh"))?);

    let members = [
        ("debian-binary", b"2.0\n".to_vec()),
        ("control.tar.gz", gzip(&control.tar("", order.time)?)?),
        ("data.tar.gz", gzip(&data.tar("", order.time)?)?),
    ];
    let name = format!("hearth_{}_{}.deb", order.version, order.machine.debian_name());
    write_package(order, &name, &ar(&members, order.time))
}

fn control_file(order: &Order, data: &Tree) -> String {
    let bytes: usize = data.files().map(|(_, bytes, _)| bytes.len()).sum();
    format!(
        "Package: hearth\nVersion: {}\nArchitecture: {}\nMaintainer: Hearth contributors <hearth@localhost>\n\
         Installed-Size: {}\nDepends: libc6 (>= {GLIBC}), passwd\n\
         Recommends: libibverbs1, librdmacm1, ibverbs-providers\nSection: net\nPriority: optional\n\
         Description: {SUMMARY}\n {}\n",
        order.version,
        order.machine.debian_name(),
        bytes.div_ceil(1024),
        DESCRIPTION.replace('\n', "\n "),
    )
}

/// The common format of `ar`: a header of 60 characters before each member, and members at even offsets.
fn ar(members: &[(&str, Vec<u8>)], time: u64) -> Vec<u8> {
    let mut out = b"!<arch>\n".to_vec();
    for (name, bytes) in members {
        out.extend(format!("{name:<16}{time:<12}{:<6}{:<6}{:<8}{:<10}`\n", 0, 0, "100644", bytes.len()).bytes());
        out.extend(bytes);
        if bytes.len() % 2 == 1 {
            out.push(b'\n');
        }
    }
    out
}
