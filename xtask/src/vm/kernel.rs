//! A Linux kernel that runs as an ordinary program (User Mode Linux), with SoftiWARP and Soft-RoCE built in.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Context, Result, bail};

use crate::run;

/// Debian's package of the kernel's source, for all architectures and only unpacked, so that any release's will do.
struct Source {
    version: &'static str,
    sha256: &'static str,
}

/// In the order in which they are tried: a mirror keeps a version only until the next is uploaded to that release.
/// To move on: `apt-cache show linux-source-7.2` on Debian sid names the next version and its SHA-256.
const SOURCES: [Source; 3] = [
    // sid
    Source { version: "7.2.13-1", sha256: "30a8c5fc63f9028a62e6d7b3f7f43bee67425dbce2a05fceba83f9b87c92083d" },
    // forky
    Source { version: "7.2.12-1", sha256: "6ea01e48037651b01076e4a369d1c76051c97c3cce6f87d48b7f3a9f5fac46a8" },
    // trixie-backports, which keeps its older versions
    Source { version: "7.2.6-1~bpo13+1", sha256: "e73de537b76ee6f17deedb149707ca7dec1a27499895bf2f6b51e782687dd0c6" },
];
/// The part of the version that names the package and the folder in it.
const SERIES: &str = "7.2";
const CONFIG: &str = include_str!("kernel.config");
/// What is changed in the source: a file, the text there, the text that takes its place.
///
/// SoftiWARP notes "within a system call" per queue pair, sets it while a caller posts, and copies payloads of up to 32
/// bytes through the caller's address space then. Its own thread may go on with the same queue before the caller has
/// taken the note back (the socket was full and has room again), and has no address space: a User Mode Linux panics. It
/// goes by the pages, as it does for its own work otherwise.
const CHANGES: [(&str, &str, &str); 1] = [(
    "drivers/infiniband/sw/siw/siw_qp_tx.c",
    "} else if (c_tx->in_syscall) {",
    "} else if (c_tx->in_syscall && current->mm) {",
)];
/// Names a mirror of Debian, e.g. `http://host/debian`, on a machine whose apt is configured with none.
const MIRROR: &str = "HEARTH_DEBIAN_MIRROR";

/// The kernel, built when it is not there (some minutes, once; the source goes again). `HEARTH_VM_KERNEL` names one
/// that was built before.
pub fn kernel() -> Result<PathBuf> {
    if let Some(path) = std::env::var_os("HEARTH_VM_KERNEL") {
        return Ok(path.into());
    }
    let home = crate::root().join(".cache/vm");
    let kernel = home.join("linux");
    // What it was built from, so that a changed configuration is followed by a new build.
    let wanted = format!("{SERIES}\n{CONFIG}{CHANGES:?}\n");
    let built = home.join("built-from");
    if kernel.exists() && fs::read_to_string(&built).is_ok_and(|text| text == wanted) {
        return Ok(kernel);
    }
    if !cfg!(all(target_os = "linux", target_arch = "x86_64")) {
        bail!("User Mode Linux with several processors runs on x86-64 Linux only");
    }
    let tools = [
        ("gcc", "--version"),
        ("make", "--version"),
        ("flex", "--version"),
        ("bison", "--version"),
        ("bc", "--version"),
    ];
    run::require(&tools, &["gcc", "libc6-dev", "make", "flex", "bison", "bc"])?;
    run::require(&[("xz", "--version"), ("dpkg-deb", "--version")], &["xz-utils"])?;
    fs::create_dir_all(&home).with_context(|| format!("cannot make {}", home.display()))?;
    let package = package(&home)?;
    let source = home.join(format!("linux-source-{SERIES}"));
    let started = Instant::now();
    println!("building Linux {SERIES} as a program, log in {}", home.join("build.log").display());
    unpack(&package, &home, &source)?;
    change(&source)?;
    build(&source, &home)?;
    let part = home.join("linux.part");
    run::run_or_fail(Command::new("strip").args(["-g", "-o"]).arg(&part).arg(source.join("linux")))?;
    fs::rename(&part, &kernel).with_context(|| format!("cannot rename {}", part.display()))?;
    fs::write(&built, wanted).with_context(|| format!("cannot write {}", built.display()))?;
    fs::remove_dir_all(&source).with_context(|| format!("cannot remove {}", source.display()))?;
    fs::remove_file(&package).with_context(|| format!("cannot remove {}", package.display()))?;
    println!("built {} in {:.0} s", kernel.display(), started.elapsed().as_secs_f64());
    Ok(kernel)
}

/// The source's package, fetched by apt's own means (its proxies and time-outs) and checked against its SHA-256.
fn package(home: &Path) -> Result<PathBuf> {
    let mirror = mirror()?;
    for Source { version, sha256 } in &SOURCES {
        let name = format!("linux-source-{SERIES}_{version}_all.deb");
        let path = home.join(&name);
        let address = format!("{mirror}/pool/main/l/linux/{name}");
        println!("fetching {address}");
        // apt-helper takes what lies there already when its checksum is right.
        let fetched = Command::new("/usr/lib/apt/apt-helper")
            .args(["-o", "APT::Sandbox::User=root", "download-file", &address])
            .arg(&path)
            .arg(format!("SHA256:{sha256}"))
            .status()
            .context("cannot start apt-helper, which is part of Debian's and Ubuntu's apt")?;
        if fetched.success() {
            return Ok(path);
        }
    }
    let versions: Vec<&str> = SOURCES.iter().map(|source| source.version).collect();
    bail!("{mirror} has linux-source-{SERIES} in none of the versions {}", versions.join(", "))
}

/// The mirror of Debian in the environment variable [`MIRROR`], else the one that this machine's apt uses.
fn mirror() -> Result<String> {
    if let Ok(mirror) = std::env::var(MIRROR) {
        return Ok(mirror.trim_end_matches('/').to_owned());
    }
    let mut lists = vec![PathBuf::from("/etc/apt/sources.list")];
    if let Ok(entries) = fs::read_dir("/etc/apt/sources.list.d") {
        lists.extend(entries.filter_map(|entry| entry.ok().map(|entry| entry.path())));
    }
    let found = lists.iter().filter_map(|list| fs::read_to_string(list).ok()).find_map(|text| mirror_in(&text));
    found.with_context(|| {
        format!("apt is configured with no mirror of Debian, which has the kernel's source; set {MIRROR} to the address of one")
    })
}

/// The first address that ends in `/debian`, in either of apt's two formats.
fn mirror_in(list: &str) -> Option<String> {
    let lines = list.lines().filter(|line| !line.trim_start().starts_with('#'));
    lines
        .flat_map(str::split_whitespace)
        .map(|word| word.trim_end_matches('/'))
        .find(|word| word.starts_with("http") && word.ends_with("/debian"))
        .map(str::to_owned)
}

/// Only what the build reads: no documentation, no tests, and of the drivers for graphics, which are a third of the
/// whole, no more than the build's own files.
fn unpack(package: &Path, home: &Path, source: &Path) -> Result<()> {
    if source.exists() {
        fs::remove_dir_all(source).with_context(|| format!("cannot remove {}", source.display()))?;
    }
    let pipe = format!(
        "set -e; dpkg-deb --fsys-tarfile \"$1\" | tar -xO ./usr/src/linux-source-{SERIES}.tar.xz | xz -dc | \
         tar -x -C \"$2\" --exclude='*/Documentation/*/*' --exclude='*/drivers/gpu/*.[ch]' --exclude='*/tools/testing/*'"
    );
    run::run_or_fail(Command::new("sh").args(["-c", &pipe, "unpack"]).arg(package).arg(home))
}

/// Makes [`CHANGES`]. Errors: a text is not there, or more than once, and the version needs another look.
fn change(source: &Path) -> Result<()> {
    for (file, from, to) in CHANGES {
        let path = source.join(file);
        let text = fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
        if text.matches(from).count() != 1 {
            bail!("{} does not have {from:?} once", path.display());
        }
        fs::write(&path, text.replace(from, to)).with_context(|| format!("cannot write {}", path.display()))?;
    }
    Ok(())
}

fn build(source: &Path, home: &Path) -> Result<()> {
    let config = home.join("kernel.config");
    fs::write(&config, CONFIG).with_context(|| format!("cannot write {}", config.display()))?;
    let log_path = home.join("build.log");
    let log = fs::File::create(&log_path).with_context(|| format!("cannot write {}", log_path.display()))?;
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    let make = |target: &str| -> Result<()> {
        // Below what a developer does meanwhile, and the tests that may be compiling beside it.
        let mut command = Command::new("nice");
        command.args(["make", "ARCH=um", &format!("-j{processors}"), target]).current_dir(source);
        command.env("KCONFIG_ALLCONFIG", &config).env_remove("MAKEFLAGS").env_remove("MFLAGS");
        command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log.try_clone()?);
        run::run_or_fail(&mut command).with_context(|| format!("see {}", log_path.display()))
    };
    make("allnoconfig")?;
    let answered = fs::read_to_string(source.join(".config")).context("the configuration that make wrote")?;
    let refused: Vec<&str> = refused(&answered).collect();
    if !refused.is_empty() {
        bail!("Linux {SERIES} does not take these lines of kernel.config: {}", refused.join(", "));
    }
    make("linux")
}

/// The lines of [`CONFIG`] that the kernel's own rules turned down.
fn refused(answered: &str) -> impl Iterator<Item = &'static str> {
    CONFIG
        .lines()
        .filter(|line| line.ends_with("=y"))
        .filter(move |line| !answered.lines().any(|answer| answer == *line))
}

#[cfg(test)]
mod tests {
    use super::mirror_in;

    #[test]
    fn the_mirror_is_read_from_both_of_apts_formats() {
        let old =
            "# deb http://other/debian sid main\ndeb [signed-by=/x] http://mirror.example/debian/ bookworm main\n";
        assert_eq!(mirror_in(old).as_deref(), Some("http://mirror.example/debian"));
        let new = "Types: deb\n# http://snapshot/debian\nURIs: https://mirror.example/debian\nSuites: trixie\n";
        assert_eq!(mirror_in(new).as_deref(), Some("https://mirror.example/debian"));
        assert_eq!(mirror_in("deb http://archive.example/ubuntu noble main\n"), None);
    }
}
