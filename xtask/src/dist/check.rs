//! `cargo xtask dist --check`: installs the packages in a bare Debian, without Rust, Java or systemd, and works with them there: the services'
//! commands, put and get, an upgrade that keeps the data, removal. The scripts are in `packaging/check`.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};

use crate::{python, root, run, target, vm};

/// Validates Kubernetes manifests against the schemas that it contains.
const SCHEMAS: [&str; 2] = ["kubernetes-validate==1.37.0", "PyYAML"];

/// Release of the bare Debian.
const DEBIAN: &str = "bookworm";

/// `package` writes the packages of a version into a directory.
pub fn run(version: &str, packages: &Path, package: impl Fn(&str, &Path) -> Result<()>) -> Result<()> {
    run::require(
        &[("debootstrap", "--version"), ("rpm", "--version"), ("ip", "-V")],
        &["debootstrap", "rpm", "iproute2"],
    )?;
    // The program that writes the packages is outside of the workspace, and so are its tests.
    let manifest = root().join("packaging/Cargo.toml");
    let mut tests = run::cargo();
    tests.args(["test", "--quiet", "--locked", "--manifest-path"]).arg(manifest);
    run::run_or_fail(tests.arg("--target-dir").arg(target().join("packaging")))?;

    let work = target().join("package/check");
    let _ = std::fs::remove_dir_all(&work);
    install_by_cargo(&work.join("cargo"))?;
    let next = format!("{version}.1");
    // In one directory, with the version before it.
    let both = work.join("packages");
    package(version, &both)?;
    are_the_same(packages, &both)?;
    package(&next, &both)?;

    let bare = bare_root()?;
    let scripts = root().join("packaging/check");
    let mut deb = Command::new("unshare");
    deb.args(["--mount", "--net", "--pid", "--fork", "--kill-child", "sh"]).arg(scripts.join("in-root.sh"));
    deb.arg(&bare).arg(work.join("deb")).arg(&both).arg(&scripts).args(["deb.sh", version, &next]);
    run::run_or_fail(&mut deb)?;

    let copy = work.join("rpm");
    run::run_or_fail(Command::new("cp").arg("-a").arg(&bare).arg(&copy))?;
    let mut rpm = Command::new("sh");
    run::run_or_fail(rpm.arg(scripts.join("rpm.sh")).arg(&copy).arg(&both).args([version, &next]))?;

    let mut image = Command::new("unshare");
    image.args(["--mount", "--net", "--pid", "--fork", "--kill-child", "sh"]).arg(scripts.join("image.sh"));
    for version in [version, &next] {
        image.arg(unpack_image(&both, version, &work)?);
    }
    run::run_or_fail(image.arg(work.join("volume")))?;

    let python = python::tools(&root().join(".cache/dist/schemas"), &SCHEMAS)?.join("python");
    let manifests = root().join("packaging/kubernetes/hearth.yaml");
    run::run_or_fail(Command::new(python).arg(scripts.join("manifests.py")).arg(manifests))?;
    std::fs::remove_dir_all(&work).with_context(|| format!("cannot remove {}", work.display()))?;
    println!("all packages are good");
    Ok(())
}

/// Installs the program below `home` as users do who have Rust. Without optimization, so that the tests' artifacts are used.
fn install_by_cargo(home: &Path) -> Result<()> {
    let mut install = run::cargo();
    install.args(["install", "--quiet", "--locked", "--debug", "--no-track", "--path", "crates/cli", "--root"]);
    run::run_or_fail(install.arg(home).arg("--target-dir").arg(target()))?;
    let said = run::output(Command::new(home.join("bin/hearth")).arg("version"))?;
    ensure!(said.starts_with("hearth ") && said.contains("features:"), "the installed program says {said}");
    Ok(())
}

/// Checks that the packages of a second run have the same bytes.
fn are_the_same(first: &Path, second: &Path) -> Result<()> {
    let mut compared = 0;
    for entry in std::fs::read_dir(second)? {
        let name = entry?.file_name();
        let read = |directory: &Path| {
            let path = directory.join(&name);
            std::fs::read(&path).with_context(|| format!("cannot read {}", path.display()))
        };
        ensure!(read(first)? == read(second)?, "{} differs in a second run", name.to_string_lossy());
        compared += 1;
    }
    ensure!(compared >= 3, "only {compared} packages were compared");
    println!("{compared} packages have the same bytes in a second run");
    Ok(())
}

/// Returns a Debian root with nothing but what each Debian has.
fn bare_root() -> Result<PathBuf> {
    let home = root().join(".cache/dist/debian");
    let done = home.join("etc/debian_version");
    if !done.exists() {
        let part = root().join(".cache/dist/debian.part");
        let _ = std::fs::remove_dir_all(&part);
        let mirror = vm::mirror()?;
        let mut make = Command::new("debootstrap");
        run::run_or_fail(make.args(["--variant=minbase", DEBIAN]).arg(&part).arg(mirror))?;
        std::fs::rename(&part, &home).with_context(|| format!("cannot make {}", home.display()))?;
    }
    Ok(home)
}

/// Unpacks the layers of an image as an engine does. Returns the root.
fn unpack_image(packages: &Path, version: &str, work: &Path) -> Result<PathBuf> {
    let prefix = format!("hearth-{version}-image-");
    let entries = std::fs::read_dir(packages)?.collect::<std::io::Result<Vec<_>>>()?;
    let Some(image) = entries.iter().find(|entry| entry.file_name().to_string_lossy().starts_with(&prefix)) else {
        bail!("there is no image of version {version}");
    };
    let (saved, rootfs) = (work.join(format!("image-{version}")), work.join(format!("rootfs-{version}")));
    for directory in [&saved, &rootfs] {
        std::fs::create_dir_all(directory).with_context(|| format!("cannot make {}", directory.display()))?;
    }
    run::run_or_fail(Command::new("tar").arg("-C").arg(&saved).arg("-xf").arg(image.path()))?;
    let manifest: serde_json::Value = serde_json::from_slice(&std::fs::read(saved.join("manifest.json"))?)?;
    let layers = manifest[0]["Layers"].as_array().context("the image has no layers")?;
    for layer in layers {
        let layer = saved.join(layer.as_str().context("a layer is a path")?);
        run::run_or_fail(Command::new("tar").arg("-C").arg(&rootfs).arg("-xpzf").arg(layer))?;
    }
    Ok(rootfs)
}
