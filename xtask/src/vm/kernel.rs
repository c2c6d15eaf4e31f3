//! A Linux kernel that runs as an ordinary program (User Mode Linux), with SoftiWARP and Soft-RoCE built in.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Context, Result, bail};

use crate::run;

/// Debian's package of the kernel source. It is for all architectures and is only unpacked, so the package of any
/// release works.
struct Source {
    version: &'static str,
    sha256: &'static str,
}

/// Versions, in the order in which they are tried: a mirror keeps a version only until the next one is uploaded to that
/// release. To update: `apt-cache show linux-source-7.2` on Debian sid shows the next version and its SHA-256.
const SOURCES: [Source; 3] = [
    // sid
    Source { version: "7.2.13-1", sha256: "30a8c5fc63f9028a62e6d7b3f7f43bee67425dbce2a05fceba83f9b87c92083d" },
    // forky
    Source { version: "7.2.12-1", sha256: "6ea01e48037651b01076e4a369d1c76051c97c3cce6f87d48b7f3a9f5fac46a8" },
    // trixie-backports, which keeps its older versions
    Source { version: "7.2.6-1~bpo13+1", sha256: "e73de537b76ee6f17deedb149707ca7dec1a27499895bf2f6b51e782687dd0c6" },
];
/// Part of the version that names the package and the directory in it.
const SERIES: &str = "7.2";
const CONFIG: &str = include_str!("kernel.config");
/// Changes to the source: a file, the original text, the replacement.
///
/// SoftiWARP has a flag "within a system call" for each queue pair. It is set while a caller posts, and payloads of up
/// to 32 bytes are then copied through the caller's address space. SoftiWARP's own thread may continue with the same
/// queue before the caller has cleared the flag (if the socket was full and has space again). That thread has no
/// address space, so a User Mode Linux panics. With the change it copies by pages, as it does for its other work.
const CHANGES: [(&str, &str, &str); 1] = [(
    "drivers/infiniband/sw/siw/siw_qp_tx.c",
    "} else if (c_tx->in_syscall) {",
    "} else if (c_tx->in_syscall && current->mm) {",
)];
/// Names a mirror of Debian, e.g. `http://host/debian`, on a machine whose apt is configured with none.
const MIRROR: &str = "HEARTH_DEBIAN_MIRROR";

/// Returns the kernel, which is built if missing (some minutes, once; the source is then removed). `HEARTH_VM_KERNEL`
/// names a kernel that is already built.
pub fn kernel() -> Result<PathBuf> {
    if let Some(path) = std::env::var_os("HEARTH_VM_KERNEL") {
        return Ok(path.into());
    }
    let home = crate::root().join(".cache/vm");
    let kernel = home.join("linux");
    // Records the build's inputs, so that a changed configuration causes a new build.
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

/// Fetches the source package by apt's own means (with its proxies and timeouts), and checks its SHA-256.
fn package(home: &Path) -> Result<PathBuf> {
    let mirror = mirror()?;
    for Source { version, sha256 } in &SOURCES {
        let name = format!("linux-source-{SERIES}_{version}_all.deb");
        let path = home.join(&name);
        let address = format!("{mirror}/pool/main/l/linux/{name}");
        println!("fetching {address}");
        // apt-helper keeps an existing file if its checksum is right.
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
    bail!("{mirror} has none of these versions of linux-source-{SERIES}: {}", versions.join(", "))
}

/// The mirror of Debian in the environment variable [`MIRROR`], else the one that this machine's apt uses.
pub fn mirror() -> Result<String> {
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

/// Returns the first address that ends in `/debian`, in either of apt's two formats.
fn mirror_in(list: &str) -> Option<String> {
    let lines = list.lines().filter(|line| !line.trim_start().starts_with('#'));
    lines
        .flat_map(str::split_whitespace)
        .map(|word| word.trim_end_matches('/'))
        .find(|word| word.starts_with("http") && word.ends_with("/debian"))
        .map(str::to_owned)
}

/// Unpacks only the files that the build reads: no documentation, no tests, and of the graphics drivers, which are a
/// third of the source, only the build files.
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

/// Applies [`CHANGES`]. Errors: a text is missing or occurs more than once, so the change must be adapted to the
/// version.
fn change(source: &Path) -> Result<()> {
    for (file, from, to) in CHANGES {
        let path = source.join(file);
        let text = fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
        if text.matches(from).count() != 1 {
            bail!("{} does not contain {from:?} exactly once", path.display());
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
        // Lower priority than the developer's other work, and than tests that may be compiling at the same time.
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
        bail!("Linux {SERIES} rejects these lines of kernel.config: {}", refused.join(", "));
    }
    make("linux")
}

/// Returns the lines of [`CONFIG`] that the kernel's own rules rejected.
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
    fn mirror_is_parsed_from_both_apt_formats() {
        let old =
            "# deb http://other/debian sid main\ndeb [signed-by=/x] http://mirror.example/debian/ bookworm main\n";
        assert_eq!(mirror_in(old).as_deref(), Some("http://mirror.example/debian"));
        let new = "Types: deb\n# http://snapshot/debian\nURIs: https://mirror.example/debian\nSuites: trixie\n";
        assert_eq!(mirror_in(new).as_deref(), Some("https://mirror.example/debian"));
        assert_eq!(mirror_in("deb http://archive.example/ubuntu noble main\n"), None);
    }
}
