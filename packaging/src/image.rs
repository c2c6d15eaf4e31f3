//! The container image: a tar archive that is an OCI image layout and what `docker save` writes, at once. So `docker load`, `podman load`,
//! `ctr image import` and `skopeo` take it.
//!
//! It has two layers: libraries from Debian's packages, without a shell; and Hearth. No package's scripts run.

use std::collections::BTreeMap;
use std::io::Read;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use tar::EntryType;

use crate::tree::{Node, Tree, gzip};
use crate::{Order, layout, write_package};

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

pub fn write(order: &Order) -> Result<()> {
    let mut blobs = Tree::default();
    let (mut layers, mut digests) = (Vec::new(), Vec::new());
    for tree in [libraries(&order.image_packages)?, hearth(order)?] {
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
fn libraries(packages: &[impl AsRef<Path>]) -> Result<Tree> {
    let mut tree = Tree::default();
    for package in packages {
        let package = package.as_ref();
        let output = Command::new("dpkg-deb")
            .arg("--fsys-tarfile")
            .arg(package)
            .output()
            .context("cannot start dpkg-deb, which unpacks the image's libraries")?;
        ensure!(output.status.success(), "dpkg-deb: {}", String::from_utf8_lossy(&output.stderr));
        let mut links = BTreeMap::new();
        let mut archive = tar::Archive::new(output.stdout.as_slice());
        for entry in archive.entries()? {
            let mut entry = entry?;
            let path = entry.path()?.to_string_lossy().trim_start_matches("./").trim_end_matches('/').to_owned();
            let is_left_out =
                LEFT_OUT.iter().any(|left_out| path.starts_with(left_out)) && !path.ends_with("/copyright");
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
                    links.insert(path, target.trim_start_matches("./").to_owned());
                }
                (other, _) => anyhow::bail!("{}: {path} is a {other:?}", package.display()),
            }
        }
        // A second name of a file becomes a link to the first.
        for (path, target) in links {
            tree.link(&path, &format!("/{target}"));
        }
    }
    Ok(tree)
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
    use super::time_of_day;

    #[test]
    fn times_are_those_of_the_calendar() {
        assert_eq!(time_of_day(0), "1970-01-01T00:00:00Z");
        assert_eq!(time_of_day(951_827_696), "2000-02-29T12:34:56Z");
        assert_eq!(time_of_day(1_795_899_053), "2026-11-28T20:50:53Z");
    }
}
