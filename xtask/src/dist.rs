//! `cargo xtask dist`: the packages that users install, reproducibly, into target/package.
//!
//! `build` makes the program for old systems, this module its documents and the order for the program in `packaging/`, which writes the packages.
//! `check` installs them in a bare Debian.

mod build;
mod check;

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use clap::{Args, ValueEnum};
use serde_json::json;

use crate::{root, run, target};

#[derive(Args)]
pub struct DistArguments {
    /// Machine that the packages are for
    #[arg(long, value_enum, default_value = std::env::consts::ARCH)]
    machine: Machine,
    /// Package this program instead of building one
    #[arg(long, value_name = "FILE")]
    program: Option<PathBuf>,
    /// Then install, use, upgrade and remove the packages in a bare Debian, as root. Of another machine's, only start the program,
    /// under qemu
    #[arg(long)]
    check: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
#[value(rename_all = "snake_case")]
pub enum Machine {
    #[value(name = "x86_64")]
    X86_64,
    Aarch64,
}

impl Machine {
    fn name(self) -> &'static str {
        match self {
            Self::X86_64 => "x86_64",
            Self::Aarch64 => "aarch64",
        }
    }

    /// The name that Debian uses.
    fn debian_name(self) -> &'static str {
        match self {
            Self::X86_64 => "amd64",
            Self::Aarch64 => "arm64",
        }
    }

    fn is_this(self) -> bool {
        self.name() == std::env::consts::ARCH
    }

    /// Returns the name of a program of binutils for this machine: each build of binutils reads one machine's programs.
    fn binutil(self, tool: &str) -> String {
        if self.is_this() { tool.to_owned() } else { format!("{}-linux-gnu-{tool}", self.name()) }
    }
}

/// Libraries of the image, from Debian: the C library, and what RDMA needs.
const IMAGE_PACKAGES: [&str; 7] =
    ["libc6", "libgcc-s1", "libibverbs1", "librdmacm1", "ibverbs-providers", "libnl-3-200", "libnl-route-3-200"];

/// State of the repository that goes into the packages.
struct Source {
    version: String,
    commit: String,
    /// Seconds since 1970, for all files.
    time: u64,
}

pub fn run(arguments: &DistArguments) -> Result<()> {
    let source = Source::read()?;
    let out = target().join("package");
    std::fs::create_dir_all(&out).with_context(|| format!("cannot make {}", out.display()))?;
    ensure!(
        !arguments.check || arguments.machine.is_this() || arguments.machine == Machine::Aarch64,
        "--check runs the program, and that of {} cannot be emulated here",
        arguments.machine.name()
    );
    let program = match &arguments.program {
        Some(program) => {
            let stripped = out.join("hearth");
            build::objcopy(arguments.machine, &["--strip-all"], program, &stripped)?;
            stripped
        }
        None => build::program(&source, arguments.machine, &out)?,
    };
    let documents = out.join("documents");
    write_documents(&program, arguments.machine, &documents)?;
    let image_packages = image_packages(arguments.machine)?;
    let package = |version: &str, out: &Path| {
        package(&source, version, arguments.machine, &program, &documents, &image_packages, out)
    };
    package(&source.version, &out)?;
    if !arguments.check {
        return Ok(());
    }
    if arguments.machine.is_this() {
        check::run(&source.version, arguments.machine, &out, package)
    } else {
        // A program that was built elsewhere may be of another commit.
        let id = if arguments.program.is_some() { &source.version } else { &source.commit };
        check::emulated(&source.version, arguments.machine, &out, &program, id)
    }
}

impl Source {
    fn read() -> Result<Self> {
        let git = |arguments: &[&str]| run::output(Command::new("git").args(arguments).current_dir(root()));
        let mut commit = git(&["rev-parse", "--short=12", "HEAD"])?;
        if !git(&["status", "--porcelain", "--untracked-files=no"])?.is_empty() {
            commit.push_str("-modified");
        }
        let time = git(&["log", "-1", "--format=%ct"])?.parse().context("git's time of the commit")?;
        let hearth = run::package("hearth")?;
        Ok(Self { version: hearth["version"].as_str().context("a package has a version")?.to_owned(), commit, time })
    }
}

/// Lets the program write its manual pages and completions. A program for another machine cannot run here: they are those of the last program
/// that could.
fn write_documents(program: &Path, machine: Machine, documents: &Path) -> Result<()> {
    if machine.is_this() {
        let _ = std::fs::remove_dir_all(documents);
        return run::run_or_fail(Command::new(program).arg("documents").arg(documents));
    }
    ensure!(
        documents.is_dir(),
        "no manual pages yet: first run `cargo xtask dist` for this machine, then for {}",
        machine.name()
    );
    Ok(())
}

/// Returns Debian's packages for the image. None if they cannot be had on this system: there is no image then.
fn image_packages(machine: Machine) -> Result<Vec<PathBuf>> {
    if !run::exists("apt-get", "--version") || !run::exists("dpkg-deb", "--version") {
        println!(
            "no container image: its libraries are Debian's packages, which apt-get and dpkg-deb fetch and unpack"
        );
        return Ok(Vec::new());
    }
    match fetch_image_packages(machine) {
        Err(error) if !machine.is_this() => {
            println!("no container image: apt's sources have no packages for {}: {error:#}", machine.debian_name());
            Ok(Vec::new())
        }
        fetched => fetched,
    }
}

/// Downloads Debian's packages for the image, once.
fn fetch_image_packages(machine: Machine) -> Result<Vec<PathBuf>> {
    let home = root().join(".cache/dist/image").join(machine.name());
    let listed = |home: &Path| -> Result<Vec<PathBuf>> {
        let entries = std::fs::read_dir(home)?.collect::<std::io::Result<Vec<_>>>()?;
        let mut found: Vec<PathBuf> = entries.into_iter().map(|entry| entry.path()).collect();
        found.retain(|path| path.extension().is_some_and(|extension| extension == "deb"));
        found.sort();
        Ok(found)
    };
    std::fs::create_dir_all(&home).with_context(|| format!("cannot make {}", home.display()))?;
    if listed(&home)?.len() != IMAGE_PACKAGES.len() {
        let mut download = apt_get(machine, &home)?;
        download.arg("download").args(IMAGE_PACKAGES).current_dir(&home);
        if run::run_or_fail(&mut download).is_err() {
            run::run_or_fail(apt_get(machine, &home)?.args(["update", "-q"]))?;
            run::run_or_fail(&mut download)?;
        }
    }
    let packages = listed(&home)?;
    let count = packages.len();
    ensure!(
        count == IMAGE_PACKAGES.len(),
        "{} has {count} packages instead of {}: remove it and try again",
        home.display(),
        IMAGE_PACKAGES.len()
    );
    Ok(packages)
}

/// Returns apt-get for the packages of a machine. For another machine than this one, apt's lists are in `home`, so that the system's own stay as
/// they are.
fn apt_get(machine: Machine, home: &Path) -> Result<Command> {
    let mut command = Command::new("apt-get");
    // apt would change to a user who cannot write here.
    command.args(["-o", "APT::Sandbox::User=root"]);
    if machine.is_this() {
        return Ok(command);
    }
    let (lists, cache, status) = (home.join("apt/lists"), home.join("apt/cache"), home.join("apt/status"));
    for directory in [lists.join("partial"), cache.join("archives/partial")] {
        std::fs::create_dir_all(&directory).with_context(|| format!("cannot make {}", directory.display()))?;
    }
    // No package of that machine is installed.
    std::fs::write(&status, "").with_context(|| format!("cannot write {}", status.display()))?;
    let name = machine.debian_name();
    for option in [
        format!("APT::Architecture={name}"),
        format!("APT::Architectures={name}"),
        format!("Dir::State::lists={}", lists.display()),
        format!("Dir::State::status={}", status.display()),
        format!("Dir::Cache={}", cache.display()),
    ] {
        command.args(["-o", &option]);
    }
    Ok(command)
}

/// Returns the file name of a container image.
fn image_file(version: &str, machine: Machine) -> String {
    format!("hearth-{version}-image-{}.tar", machine.debian_name())
}

/// Writes all packages into `out`.
fn package(
    source: &Source,
    version: &str,
    machine: Machine,
    program: &Path,
    documents: &Path,
    image_packages: &[PathBuf],
    out: &Path,
) -> Result<()> {
    let order = json!({
        "version": version,
        "commit": source.commit,
        "time": source.time,
        "machine": machine.name(),
        "program": program,
        "documents": documents,
        "root": root(),
        "out": out,
        "image_packages": image_packages,
    });
    let path = target().join("packaging-order.json");
    std::fs::write(&path, order.to_string()).with_context(|| format!("cannot write {}", path.display()))?;
    let manifest = root().join("packaging/Cargo.toml");
    run::run_or_fail(
        run::cargo()
            .args(["run", "--quiet", "--locked", "--manifest-path"])
            .arg(manifest)
            .arg("--target-dir")
            .arg(target().join("packaging"))
            .arg("--")
            .arg(path),
    )
}
