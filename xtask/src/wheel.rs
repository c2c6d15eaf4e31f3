//! `cargo xtask wheel`: the Python package `hearth-hdfs` with the C library in it, in `target/wheel/PROFILE`. The release is for every Linux with
//! the glibc that its name says.

use std::env::consts::ARCH;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::libhdfs::{self, Profile};
use crate::old_glibc::GLIBC;
use crate::{python, run};

/// Variable that `setup.py` takes the wheel's platform from.
const PLATFORM: &str = "HEARTH_WHEEL_PLATFORM";

/// Builds the C library and the wheel. Returns the wheel's path.
pub fn build(profile: Profile) -> Result<PathBuf> {
    pack(&libhdfs::build(profile)?, profile)
}

/// Packs the library of `prefix`, which [`libhdfs::build`] has returned.
pub fn pack(prefix: &Path, profile: Profile) -> Result<PathBuf> {
    let python = python::libraries()?;
    run::require(&[("strip", "--version")], &["binutils"])?;
    let home = crate::target().join("wheel").join(profile.name());
    if home.exists() {
        fs::remove_dir_all(&home).with_context(|| format!("cannot remove {}", home.display()))?;
    }
    // setuptools writes beside its sources, so they are copied.
    let stage = home.join("stage");
    let source = crate::root().join("bindings/python");
    copy(&source, &stage, &["pyproject.toml", "setup.py", "README.md"])?;
    let modules: Vec<String> = fs::read_dir(source.join("hearth"))
        .context("bindings/python/hearth")?
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
        .filter(|name| name.ends_with(".py") || name == "py.typed")
        .collect();
    let names: Vec<&str> = modules.iter().map(String::as_str).collect();
    copy(&source.join("hearth"), &stage.join("hearth"), &names)?;
    let lib = stage.join("hearth/lib");
    fs::create_dir_all(&lib)?;
    let mut strip = Command::new("strip");
    strip.arg("--strip-all").arg(prefix.join("lib/libhdfs.so")).arg("-o").arg(lib.join("libhdfs.so"));
    run::run_or_fail(&mut strip)?;
    copy(&prefix.join("lib/server"), &lib, &["libjvm.so"])?;
    let mut pack = Command::new(python);
    pack.args(["-m", "pip", "wheel", "--quiet", "--disable-pip-version-check", "--no-deps", "--no-build-isolation"]);
    pack.arg("--wheel-dir").arg(&home).arg(&stage).env("HEARTH_VERSION", env!("CARGO_PKG_VERSION"));
    match profile {
        // Packed for this machine alone.
        Profile::Debug => pack.env_remove(PLATFORM),
        // Source: PEP 600. pip installs it on systems with this glibc or a newer one.
        Profile::Release => pack.env(PLATFORM, format!("manylinux_{}_{}_{ARCH}", GLIBC.0, GLIBC.1)),
    };
    run::run_or_fail(&mut pack)?;
    let wheels: Vec<PathBuf> = fs::read_dir(&home)?
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| path.extension().is_some_and(|extension| extension == "whl"))
        .collect();
    ensure!(wheels.len() == 1, "pip made {wheels:?}");
    Ok(wheels.into_iter().next().expect("one was counted"))
}

fn copy(from: &Path, to: &Path, names: &[&str]) -> Result<()> {
    fs::create_dir_all(to).with_context(|| format!("cannot make {}", to.display()))?;
    for name in names {
        fs::copy(from.join(name), to.join(name))
            .with_context(|| format!("cannot copy {}", from.join(name).display()))?;
    }
    Ok(())
}
