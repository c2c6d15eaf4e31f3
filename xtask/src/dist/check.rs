//! `cargo xtask dist --check`: installs the packages in a bare Debian, without Rust, Java or systemd, and works with them there: the services'
//! commands, put and get, an upgrade that keeps the data, removal. The scripts are in `packaging/check`. skopeo reads the image where it is installed.
//! The program of another machine only starts, under qemu.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use super::{Machine, build, image_file};
use crate::{python, qemu, root, run, target, vm};

/// Validates Kubernetes manifests against the schemas that it contains.
const SCHEMAS: [&str; 2] = ["kubernetes-validate==1.37.0", "PyYAML"];

/// Release of the bare Debian.
const DEBIAN: &str = "bookworm";

/// Checks the packages of aarch64 on another processor: their program starts under qemu, and skopeo reads the image, if there is one.
pub fn emulated(version: &str, machine: Machine, packages: &Path, program: &Path, id: &str) -> Result<()> {
    build::check_version(&mut qemu::Aarch64::fetch()?.command(program), machine, id)?;
    let image = packages.join(image_file(version, machine));
    if image.exists() {
        inspect_image(&image, version, machine)?;
    }
    println!("the program of {} runs under qemu", machine.name());
    Ok(())
}

/// Checks the packages of this machine. `package` writes those of a version into a directory.
pub fn run(
    version: &str,
    machine: Machine,
    packages: &Path,
    package: impl Fn(&str, &Path) -> Result<()>,
) -> Result<()> {
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

    let mut engine = Command::new("unshare");
    engine.args(["--mount", "--net", "--pid", "--fork", "--kill-child", "sh"]).arg(scripts.join("image.sh"));
    for version in [version, &next] {
        let archive = both.join(image_file(version, machine));
        inspect_image(&archive, version, machine)?;
        engine.arg(unpack_image(&archive, version, &work)?);
    }
    run::run_or_fail(engine.arg(work.join("volume")))?;

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

/// Lets skopeo read an image in both of its forms, as engines do. Says so if there is no skopeo.
fn inspect_image(archive: &Path, version: &str, machine: Machine) -> Result<()> {
    ensure!(archive.exists(), "there is no image {}", archive.display());
    if !run::exists("skopeo", "--version") {
        println!("skopeo is missing, so no engine's code has read {}", archive.display());
        return Ok(());
    }
    let path = archive.display();
    for reference in [format!("docker-archive:{path}:hearth:{version}"), format!("oci-archive:{path}:{version}")] {
        let said = run::output(Command::new("skopeo").arg("inspect").arg(&reference))?;
        let found: serde_json::Value =
            serde_json::from_str(&said).with_context(|| format!("skopeo's answer about {reference}"))?;
        ensure!(
            found["Os"] == "linux"
                && found["Architecture"] == machine.debian_name()
                && found["Labels"]["org.opencontainers.image.version"] == version
                && found["Layers"].as_array().is_some_and(|layers| layers.len() == 2),
            "skopeo reads something else in {reference} than Hearth {version} for {}, in two layers: {said}",
            machine.debian_name()
        );
    }
    println!("skopeo reads {path} as an image of Docker's and of OCI");
    Ok(())
}

/// Unpacks the layers of an image as an engine does. Returns the root.
fn unpack_image(archive: &Path, version: &str, work: &Path) -> Result<PathBuf> {
    let (saved, rootfs) = (work.join(format!("image-{version}")), work.join(format!("rootfs-{version}")));
    for directory in [&saved, &rootfs] {
        std::fs::create_dir_all(directory).with_context(|| format!("cannot make {}", directory.display()))?;
    }
    run::run_or_fail(Command::new("tar").arg("-C").arg(&saved).arg("-xf").arg(archive))?;
    let manifest: serde_json::Value = serde_json::from_slice(&std::fs::read(saved.join("manifest.json"))?)?;
    let layers = manifest[0]["Layers"].as_array().context("the image has no layers")?;
    for layer in layers {
        let layer = saved.join(layer.as_str().context("a layer is a path")?);
        run::run_or_fail(Command::new("tar").arg("-C").arg(&rootfs).arg("-xpzf").arg(layer))?;
    }
    Ok(rootfs)
}
