//! The container image: a tar archive that is an OCI image layout and what `docker save` writes, at once. So `docker load`, `podman load`,
//! `ctr image import` and `skopeo` take it.
//!
//! It has two layers: libraries from Debian's packages, without a shell; and Hearth. No package's scripts run.

use std::collections::BTreeMap;
use std::io::Read;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use tar::EntryType;

use crate::tree::{Content, Node, Tree, gzip};
use crate::{Machine, Order, layout, write_package};

/// Number of the user and the group `hearth` in the image. Fixed, so that volumes keep their owner over upgrades.
const USER: u64 = 8020;

/// Parts of Debian's packages that a server does not need.
const LEFT_OUT: [&str; 6] = [
    "usr/share/man/",
    "usr/share/locale/",
    "usr/share/lintian/",
    "usr/share/bug/",
    "usr/share/doc/",
    "usr/share/doc-base/",
];

/// Directories that are links into /usr. Packages of Debian 12 have files in them, those of Debian 13 only below /usr: there the package
/// `base-files` has the links.
const MERGED: [&str; 4] = ["bin", "lib", "lib64", "sbin"];

pub fn write(order: &Order) -> Result<()> {
    let mut blobs = Tree::default();
    let (mut layers, mut digests) = (Vec::new(), Vec::new());
    for tree in [libraries(order)?, hearth(order)?] {
        let tar = tree.tar("", order.time)?;
        digests.push(format!("sha256:{}", hex(&tar)));
        layers.push(add_blob(&mut blobs, gzip(&tar)?, "application/vnd.oci.image.layer.v1.tar+gzip"));
    }
    let created = time_of_day(order.time);
    let config = json!({
        "architecture": order.machine.debian_name(),
        "os": "linux",
        "created": created,
        "config": {
            "User": format!("{USER}:{USER}"),
            "Env": ["PATH=/usr/bin:/bin", "HADOOP_CONF_DIR=/etc/hearth"],
            "Entrypoint": ["/usr/bin/hearth"],
            "Cmd": ["--help"],
            "WorkingDir": "/var/lib/hearth",
            "ExposedPorts": { "8020/tcp": {}, "9864/tcp": {}, "9866/tcp": {}, "9867/tcp": {}, "9870/tcp": {} },
            "Volumes": { "/var/lib/hearth": {} },
            "Labels": {
                "org.opencontainers.image.title": "hearth",
                "org.opencontainers.image.version": order.version,
                "org.opencontainers.image.revision": order.commit,
                "org.opencontainers.image.licenses": "Apache-2.0",
            },
        },
        "rootfs": { "type": "layers", "diff_ids": digests },
        "history": [
            { "created": created, "created_by": "libraries of Debian" },
            { "created": created, "created_by": "cargo xtask dist" },
        ],
    });
    let config = add_blob(&mut blobs, config.to_string().into_bytes(), "application/vnd.oci.image.config.v1+json");
    let paths: Vec<String> = layers.iter().map(blob_path).collect();
    let manifest = json!({
        "schemaVersion": 2,
        "mediaType": "application/vnd.oci.image.manifest.v1+json",
        "config": config,
        "layers": layers,
    });
    let mut manifest =
        add_blob(&mut blobs, manifest.to_string().into_bytes(), "application/vnd.oci.image.manifest.v1+json");
    let name = format!("hearth:{}", order.version);
    manifest["annotations"] = json!({
        "io.containerd.image.name": format!("docker.io/library/{name}"),
        "org.opencontainers.image.ref.name": order.version,
    });
    let index = json!({
        "schemaVersion": 2,
        "mediaType": "application/vnd.oci.image.index.v1+json",
        "manifests": [manifest],
    });
    blobs.file("oci-layout", 0o644, json!({ "imageLayoutVersion": "1.0.0" }).to_string());
    blobs.file("index.json", 0o644, index.to_string());
    let saved = json!([{ "Config": blob_path(&config), "RepoTags": [name], "Layers": paths }]);
    blobs.file("manifest.json", 0o644, saved.to_string());
    let file = format!("hearth-{}-image-{}.tar", order.version, order.machine.debian_name());
    write_package(order, &file, &blobs.tar("", order.time)?)
}

/// Adds a blob under its digest. Returns its descriptor.
fn add_blob(blobs: &mut Tree, bytes: Vec<u8>, media_type: &str) -> Value {
    let digest = hex(&bytes);
    let descriptor = json!({ "mediaType": media_type, "digest": format!("sha256:{digest}"), "size": bytes.len() });
    blobs.file(&format!("blobs/sha256/{digest}"), 0o644, bytes);
    descriptor
}

fn blob_path(descriptor: &Value) -> String {
    format!("blobs/{}", descriptor["digest"].as_str().unwrap_or_default().replace(':', "/"))
}

/// Files of Debian's packages.
fn libraries(order: &Order) -> Result<Tree> {
    let mut tree = Tree::default();
    for package in &order.image_packages {
        let output = Command::new("dpkg-deb")
            .arg("--fsys-tarfile")
            .arg(package)
            .output()
            .context("cannot start dpkg-deb, which unpacks the image's libraries")?;
        ensure!(output.status.success(), "dpkg-deb: {}", String::from_utf8_lossy(&output.stderr));
        add_package(&mut tree, &output.stdout).with_context(|| format!("cannot use {}", package.display()))?;
    }
    finish_libraries(&mut tree, order.machine)?;
    Ok(tree)
}

/// Adds the files of a Debian package. `archive`: a tar archive.
fn add_package(tree: &mut Tree, archive: &[u8]) -> Result<()> {
    let mut links = BTreeMap::new();
    for entry in tar::Archive::new(archive).entries()? {
        let mut entry = entry?;
        let path = merged(&entry.path()?.to_string_lossy());
        let is_left_out = LEFT_OUT.iter().any(|left_out| path.starts_with(left_out)) && !path.ends_with("/copyright");
        if path.is_empty() || is_left_out || path.contains("/gconv/") {
            continue;
        }
        let mode = entry.header().mode()?;
        let target = entry.link_name()?.map(|target| target.to_string_lossy().into_owned());
        match (entry.header().entry_type(), target) {
            (EntryType::Directory, _) => {
                if !tree.contains(&path) {
                    tree.insert(&path, Node::directory(mode));
                }
            }
            (EntryType::Regular, _) => {
                let mut bytes = Vec::new();
                entry.read_to_end(&mut bytes)?;
                tree.file(&path, mode, bytes);
            }
            (EntryType::Symlink, Some(target)) => tree.link(&path, &target),
            (EntryType::Link, Some(target)) => {
                links.insert(path, merged(&target));
            }
            (other, _) => anyhow::bail!("{path} is a {other:?}"),
        }
    }
    // A second name of a file becomes a link to the first.
    for (path, target) in links {
        tree.link(&path, &format!("/{target}"));
    }
    Ok(())
}

/// Returns the place of a package's file in the image: without `./`, and below /usr if its directory is one of [`MERGED`].
fn merged(path: &str) -> String {
    let path = path.trim_start_matches("./").trim_matches('/');
    let first = path.split('/').next().unwrap_or_default();
    if MERGED.contains(&first) { format!("usr/{path}") } else { path.to_owned() }
}

/// Adds the links of [`MERGED`].
///
/// Errors: programs for `machine` could not start with these libraries.
fn finish_libraries(tree: &mut Tree, machine: Machine) -> Result<()> {
    for name in MERGED {
        let target = format!("usr/{name}");
        if !tree.contains(&target) {
            tree.insert(&target, Node::directory(0o755));
        }
        tree.link(name, &target);
    }
    let loader = machine.loader();
    let found = tree.resolve(loader).map(|node| &node.content);
    ensure!(
        matches!(found, Some(Content::File(_))),
        "the image's libraries lack {loader}, the loader of programs for {}: Debian's package libc6 has another layout",
        machine.name()
    );
    Ok(())
}

/// Hearth's own layer. Services and manual pages have no use in a container.
fn hearth(order: &Order) -> Result<Tree> {
    let mut tree = Tree::default();
    let wanted = ["usr/bin/", "etc/hearth/", "usr/share/doc/hearth/copyright"];
    for (path, node) in layout::installed(order, "usr/share/zsh/vendor-completions")?.iter() {
        if wanted.iter().any(|prefix| path.starts_with(prefix)) {
            tree.insert(path, node.clone());
        }
    }
    tree.file(
        "etc/passwd",
        0o644,
        format!("root:x:0:0:root:/root:/sbin/nologin\nhearth:x:{USER}:{USER}:Hearth:/var/lib/hearth:/sbin/nologin\n"),
    );
    tree.file("etc/group", 0o644, format!("root:x:0:\nhearth:x:{USER}:\n"));
    tree.file("etc/nsswitch.conf", 0o644, "passwd: files\ngroup: files\nhosts: files dns\n");
    for directory in ["var/lib/hearth", "var/lib/hearth/memory", "run/hearth"] {
        tree.insert(directory, Node { owner: USER, ..Node::directory(0o755) });
    }
    tree.insert("tmp", Node::directory(0o1777));
    Ok(tree)
}

fn hex(bytes: &[u8]) -> String {
    format!("{:x}", Sha256::digest(bytes))
}

/// Returns a time in the format of RFC 3339, in UTC.
fn time_of_day(seconds: u64) -> String {
    let (days, rest) = (seconds / 86_400, seconds % 86_400);
    // Years begin in March here, so that a leap day is the last day of its year; eras have 400 years.
    let days = days + 719_468;
    let (era, day_of_era) = (days / 146_097, days % 146_097);
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted_month + 2) / 5 + 1;
    let month = if shifted_month < 10 { shifted_month + 3 } else { shifted_month - 9 };
    let year = year_of_era + era * 400 + u64::from(month <= 2);
    format!("{year:04}-{month:02}-{day:02}T{:02}:{:02}:{:02}Z", rest / 3_600, rest / 60 % 60, rest % 60)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns libraries made of one package with a loader at `path` and a link to it, as `(path, target)`.
    fn libraries_of(machine: Machine, path: &str, link: Option<(&str, &str)>) -> Result<Tree> {
        let mut package = Tree::default();
        package.file(path, 0o755, "loader");
        if let Some((path, target)) = link {
            package.link(path, target);
        }
        let mut tree = Tree::default();
        add_package(&mut tree, &package.tar("./", 0)?)?;
        finish_libraries(&mut tree, machine)?;
        Ok(tree)
    }

    /// The links are those of libc6 in each release.
    #[test]
    fn loader_is_found_in_every_layout() {
        let x86_64 = "x86_64-linux-gnu/ld-linux-x86-64.so.2";
        let aarch64 = "aarch64-linux-gnu/ld-linux-aarch64.so.1";
        for (machine, path, link, target) in [
            (Machine::X86_64, format!("lib/{x86_64}"), "lib64/ld-linux-x86-64.so.2", format!("/lib/{x86_64}")),
            (
                Machine::X86_64,
                format!("usr/lib/{x86_64}"),
                "usr/lib64/ld-linux-x86-64.so.2",
                format!("../lib/{x86_64}"),
            ),
            (Machine::Aarch64, format!("lib/{aarch64}"), "lib/ld-linux-aarch64.so.1", aarch64.to_owned()),
            (Machine::Aarch64, format!("usr/lib/{aarch64}"), "usr/lib/ld-linux-aarch64.so.1", aarch64.to_owned()),
        ] {
            let tree = libraries_of(machine, &path, Some((link, target.as_str()))).unwrap();
            for found in [machine.loader(), path.as_str()] {
                let content = tree.resolve(found).map(|node| &node.content);
                assert!(matches!(content, Some(Content::File(bytes)) if bytes == b"loader"), "{link}: {found}");
            }
        }
        let error = libraries_of(Machine::X86_64, &format!("lib/{x86_64}"), None).map(drop).unwrap_err();
        assert!(error.to_string().contains("/lib64/ld-linux-x86-64.so.2"), "{error}");
    }

    #[test]
    fn files_are_below_usr() {
        for (path, place) in [
            ("./lib/x/y.so", "usr/lib/x/y.so"),
            ("./lib/", "usr/lib"),
            ("./lib64", "usr/lib64"),
            ("./usr/lib/x", "usr/lib/x"),
            ("./library/x", "library/x"),
            ("./etc/ld.so.conf.d/a.conf", "etc/ld.so.conf.d/a.conf"),
            ("./", ""),
        ] {
            assert_eq!(merged(path), place);
        }
    }

    #[test]
    fn times_are_those_of_the_calendar() {
        assert_eq!(time_of_day(0), "1970-01-01T00:00:00Z");
        assert_eq!(time_of_day(951_827_696), "2000-02-29T12:34:56Z");
        assert_eq!(time_of_day(1_795_899_053), "2026-11-28T20:50:53Z");
    }
}
