//! `cargo xtask vm`: a throw-away virtual machine whose kernel has RDMA verbs, in which the host's programs run.
//!
//! Machines without a card have neither verbs nor, most often, the right to load a module. So the tests bring a kernel
//! of their own: Linux built as an ordinary program ([`kernel`]), with SoftiWARP and Soft-RoCE. It boots in under a
//! second on the host's own files, read-only under a tmpfs, so that whatever was built on the host runs in it at native
//! speed, and what it writes vanishes with it. The part inside is `vm/guest.sh`.

mod kernel;
mod tests;

pub use kernel::mirror;
use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use clap::{Args, ValueEnum};

use crate::run;
pub use tests::{prepare_behind, suites};

const GUEST: &str = include_str!("vm/guest.sh");
/// Answer to a command that outlived its time, as timeout(1) gives it.
const STATUS_TIMED_OUT: u8 = 124;
/// The longest workload stores and reads 17,836 files, in Apache's way too.
const BENCH_LIMIT_S: u64 = 5400;

/// The kinds of verbs device that are made on each network device.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum Devices {
    /// SoftiWARP: RDMA over TCP
    Siw,
    /// Soft-RoCE: RDMA over UDP
    Rxe,
    Both,
    None,
}

impl Devices {
    fn kinds(self) -> &'static str {
        match self {
            Self::Siw => "siw",
            Self::Rxe => "rxe",
            Self::Both => "siw rxe",
            Self::None => "",
        }
    }
}

#[derive(Args, Clone, Debug)]
pub struct VmArguments {
    /// Verbs devices on each network device
    #[arg(long, value_enum, default_value_t = Devices::Siw)]
    devices: Devices,
    /// 0: one network device, dummy0 with 10.8.0.1. N: network namespaces host1 to hostN on one bridge, each with eth0 and
    /// 10.9.0.N; `ip netns exec host1 PROGRAM` runs a program in one
    #[arg(long, default_value_t = 0)]
    hosts: u8,
    /// Bytes of a network packet [default: 4200 on one host, 1500 between several]
    #[arg(long)]
    mtu: Option<u32>,
    /// Memory of the machine, in MiB
    #[arg(long, default_value_t = 3072)]
    memory: u32,
    #[arg(long, default_value_t = 2)]
    processors: u32,
    /// Seconds until the machine is switched off and the exit status is 124
    #[arg(long, default_value_t = 300)]
    time_limit: u64,
    /// A folder of the host that the command may write to, at the same path; all else vanishes with the machine
    #[arg(long, value_name = "FOLDER")]
    writable: Vec<PathBuf>,
    /// An environment variable that the command gets as it stands here
    #[arg(long, value_name = "NAME")]
    env: Vec<String>,
    /// Also print what the kernel and the set-up of the networks said
    #[arg(long)]
    verbose: bool,
    /// The command and its arguments
    #[arg(trailing_var_arg = true, required = true)]
    command: Vec<OsString>,
}

impl VmArguments {
    /// A command in a machine with one device.
    pub fn new(devices: Devices, command: Vec<OsString>) -> Self {
        Self {
            devices,
            hosts: 0,
            mtu: None,
            memory: 3072,
            processors: 2,
            time_limit: 300,
            writable: Vec::new(),
            env: Vec::new(),
            verbose: false,
            command,
        }
    }

    /// A command in a machine with one device, twice the usual memory, and as many seconds as it takes.
    pub fn long(command: Vec<OsString>, time_limit: u64) -> Self {
        Self { memory: 6144, time_limit, ..Self::new(Devices::Siw, command) }
    }
}

/// `cargo xtask vm -- COMMAND`: the exit status is the command's.
pub fn run(arguments: &VmArguments) -> Result<ExitCode> {
    let kernel = prepare()?;
    let status = Machine::start(&kernel, arguments, Stdio::null())?.stream(&mut std::io::stdout())?;
    Ok(ExitCode::from(status))
}

/// A benchmark that needs verbs, or a network that can be made worse: built here, run in the machine. Its exit status.
pub fn bench(arguments: &[String]) -> Result<u8> {
    let root = crate::root();
    if arguments.iter().any(|argument| argument == "--help" || argument == "-h") {
        run::run_or_fail(Command::new(crate::bench_program()?).args(arguments))?;
        return Ok(0);
    }
    let kernel = prepare()?;
    let rdma = arguments.first().is_some_and(|workload| workload.starts_with("rdma"));
    if rdma {
        headers()?;
    }
    let program = crate::bench_program()?;
    // What needs hosts of its own is started on the first of them, and starts the others' programs there.
    let hosts = if arguments.first().is_some_and(|workload| workload == "rdma-files") { 3 } else { 0 };
    let mut command: Vec<OsString> = Vec::new();
    if hosts > 0 {
        command.extend(["ip", "netns", "exec", "host1"].map(OsString::from));
    }
    if !rdma {
        // A process has one processor at a time there, and its thread that waits for its turn burns the other one.
        command.extend(["env", "TOKIO_WORKER_THREADS=1"].map(OsString::from));
    }
    command.push(program.into_os_string());
    command.extend(arguments.iter().map(OsString::from));
    let mut machine = VmArguments::long(command, BENCH_LIMIT_S);
    machine.hosts = hosts;
    // Jumbo frames, as such a network has: SoftiWARP makes a segment for each frame, TCP cuts 64 KiB at once.
    machine.mtu = (hosts > 0).then_some(9000);
    machine.writable = ["bench", "docs/benchmarks"].map(|folder| root.join(folder)).to_vec();
    Machine::start(&kernel, &machine, Stdio::null())?.stream(&mut std::io::stdout())
}

/// Each page of a process in the machine may be a mapping of its own on the host. With more of them than the host allows, the process
/// faults on one page for ever or is killed: 256 MiB are as many as the usual limit.
fn allow_mappings() {
    const FILE: &str = "/proc/sys/vm/max_map_count";
    const WANTED: u64 = 1 << 20;
    let allowed = fs::read_to_string(FILE).ok().and_then(|text| text.trim().parse::<u64>().ok());
    let Some(allowed) = allowed.filter(|allowed| *allowed < WANTED) else { return };
    match fs::write(FILE, WANTED.to_string()) {
        Ok(()) => eprintln!("vm.max_map_count raised from {allowed} to {WANTED}, for User Mode Linux"),
        Err(error) => eprintln!("vm.max_map_count is {allowed}, and large processes in the machine may hang: {error}"),
    }
}

/// What C programs over RDMA are compiled with: the benchmark's probe, and the test that holds our layouts against the headers.
pub fn headers() -> Result<()> {
    if Path::new("/usr/include/rdma/rdma_cma.h").exists() {
        return Ok(());
    }
    run::install(&["gcc", "libc6-dev", "libibverbs-dev", "librdmacm-dev"])
}

/// Everything that the machine needs, fetched and built when it is not there. An error says what is missing and how it
/// is had.
pub fn prepare() -> Result<PathBuf> {
    // By their files: most of them answer no flag with success.
    let there = |name: &str| {
        ["/usr/bin", "/usr/sbin", "/bin", "/sbin"].iter().any(|folder| Path::new(folder).join(name).exists())
    };
    let programs = ["busybox", "ip", "rdma", "setpriv", "ib_read_bw"];
    let drivers = ["siw", "rxe"].map(|name| PathBuf::from(format!("/etc/libibverbs.d/{name}.driver")));
    if !programs.into_iter().all(there) || !drivers.iter().all(|driver| driver.exists()) {
        run::install(&[
            "busybox-static",
            "iproute2",
            "util-linux",
            "perftest",
            "rdma-core",
            "ibverbs-providers",
            "libibverbs1",
            "librdmacm1",
        ])?;
    }
    kernel::kernel()
}

/// A running virtual machine. It is switched off when this is dropped.
pub struct Machine {
    child: Child,
    folder: PathBuf,
    until: Instant,
    verbose: bool,
}

impl Machine {
    pub fn start(kernel: &Path, arguments: &VmArguments, input: Stdio) -> Result<Self> {
        allow_mappings();
        // The kernel's sockets lie in it: their paths must be short, and without spaces for the kernel's command line.
        let folder = std::env::temp_dir().join(format!("hearth-vm-{}-{}", std::process::id(), serial()));
        fs::create_dir(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
        let started = Self::start_in(&folder, kernel, arguments, input);
        if started.is_err() {
            let _ = fs::remove_dir_all(&folder);
        }
        let child = started?;
        let until = Instant::now() + Duration::from_secs(arguments.time_limit);
        Ok(Self { child, folder, until, verbose: arguments.verbose })
    }

    fn start_in(folder: &Path, kernel: &Path, arguments: &VmArguments, input: Stdio) -> Result<Child> {
        let write = |name: &str, text: &[u8]| {
            let path = folder.join(name);
            fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))
        };
        let guest = folder.join("guest.sh");
        write("guest.sh", GUEST.as_bytes())?;
        run::run_or_fail(Command::new("chmod").arg("755").arg(&guest))?;
        write("settings", settings(arguments)?.as_bytes())?;
        let mut shared = Vec::new();
        for path in &arguments.writable {
            let path = path.canonicalize().with_context(|| format!("no folder {}", path.display()))?;
            shared.extend_from_slice(path.as_os_str().as_encoded_bytes());
            shared.push(b'\n');
        }
        write("shared", &shared)?;
        let words: Vec<Vec<u8>> = arguments.command.iter().map(|word| quoted(word.as_encoded_bytes())).collect();
        write("command", &[b"exec ".to_vec(), words.join(&b' '), b"\n".to_vec()].concat())?;
        for name in ["out", "err"] {
            write(name, b"")?;
        }
        let console = File::create(folder.join("console")).context("cannot make the console's file")?;
        // The kernel makes a session of its own: without this it would outlive a killed xtask.
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL", "--"]).arg(kernel);
        command
            .arg(format!("mem={}M", arguments.memory))
            .arg("seccomp=on")
            .arg(format!("ncpus={}", arguments.processors));
        command.args(["root=/dev/root", "rootfstype=hostfs", "rootflags=/", "ro", "quiet"]);
        command.args(["con=null", "con0=null,fd:1", "umid=machine"]).arg(format!("uml_dir={}/", folder.display()));
        command.arg(format!("init={}", guest.display())).arg(format!("HEARTH_VM={}", folder.display()));
        command.stdin(input).stdout(console.try_clone()?).stderr(console);
        command.spawn().with_context(|| format!("cannot start {}", run::spelled(&command)))
    }

    /// Hands on what the command writes, as it comes: its standard output to `out`, its errors to ours. Returns its
    /// exit status.
    pub fn stream(mut self, out: &mut impl Write) -> Result<u8> {
        let mut output = Tail::open(&self.folder.join("out"))?;
        let mut errors = Tail::open(&self.folder.join("err"))?;
        let mut timed_out = false;
        loop {
            // Asked first: what is written before the end is then in the files.
            let ended = self.child.try_wait().context("waiting for the virtual machine")?.is_some();
            output.copy(out)?;
            errors.copy(&mut std::io::stderr())?;
            if ended {
                break;
            }
            if Instant::now() >= self.until {
                timed_out = true;
                self.child.kill().context("switching the virtual machine off")?;
                self.child.wait().context("waiting for the virtual machine")?;
                continue;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        if self.verbose {
            eprint!("{}", self.said());
        }
        let status = fs::read_to_string(self.folder.join("status")).unwrap_or_default();
        match status.trim().parse() {
            Ok(status) => Ok(status),
            Err(_) if timed_out => {
                eprintln!("error: the time is over; the virtual machine was switched off");
                Ok(STATUS_TIMED_OUT)
            }
            Err(_) => bail!("the virtual machine ended without the command's exit status:\n{}", self.said()),
        }
    }

    fn said(&self) -> String {
        let text = |name: &str| fs::read(self.folder.join(name)).unwrap_or_default();
        format!("{}{}", String::from_utf8_lossy(&text("setup")), String::from_utf8_lossy(&text("console")))
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// A file that grows while it is read.
struct Tail(File);

impl Tail {
    fn open(path: &Path) -> Result<Self> {
        Ok(Self(File::open(path).with_context(|| format!("cannot read {}", path.display()))?))
    }

    fn copy(&mut self, into: &mut dyn Write) -> Result<()> {
        let mut piece = [0; 16384];
        loop {
            match self.0.read(&mut piece).context("reading the command's output")? {
                0 => return into.flush().context("writing the command's output"),
                bytes => into.write_all(&piece[..bytes]).context("writing the command's output")?,
            }
        }
    }
}

/// What `guest.sh` reads in: shell variables, and the command's environment.
fn settings(arguments: &VmArguments) -> Result<String> {
    ensure!(arguments.hosts < 100, "at most 99 hosts");
    let directory = std::env::current_dir().context("no current folder")?;
    let mtu = arguments.mtu.unwrap_or(if arguments.hosts == 0 { 4200 } else { 1500 });
    let mut lines = vec![
        format!("devices='{}'", arguments.devices.kinds()),
        format!("hosts={}", arguments.hosts),
        format!("mtu={mtu}"),
        format!("megahertz={}", megahertz()),
        format!("directory={}", spelled(directory.as_os_str().as_encoded_bytes())?),
        // By this a test knows where it runs, and that it may not leave itself out.
        format!("export HEARTH_VM={}", arguments.devices.kinds().replace(' ', "+")),
    ];
    let passed =
        ["PATH", "HOME", "RUST_BACKTRACE", "RUST_LOG"].into_iter().chain(arguments.env.iter().map(String::as_str));
    for name in passed {
        ensure!(
            name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_'),
            "{name} is no environment variable's name"
        );
        if let Some(value) = std::env::var_os(name) {
            lines.push(format!("export {name}={}", spelled(value.as_encoded_bytes())?));
        }
    }
    lines.push(String::new());
    Ok(lines.join("\n"))
}

/// The processor's clock rate, which perftest insists on.
fn megahertz() -> String {
    let text = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let rate = text.lines().find_map(|line| line.strip_prefix("cpu MHz")?.split_once(':').map(|(_, rate)| rate.trim()));
    rate.unwrap_or("1000.000").to_owned()
}

fn spelled(word: &[u8]) -> Result<String> {
    String::from_utf8(quoted(word)).context("a name that is not UTF-8")
}

/// `word` as the shell takes it for one word.
fn quoted(word: &[u8]) -> Vec<u8> {
    let mut quoted = vec![b'\''];
    for byte in word {
        match byte {
            b'\'' => quoted.extend_from_slice(b"'\\''"),
            byte => quoted.push(*byte),
        }
    }
    quoted.push(b'\'');
    quoted
}

fn serial() -> u32 {
    static NEXT: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
    NEXT.fetch_add(1, std::sync::atomic::Ordering::Relaxed)
}

#[cfg(test)]
mod unit {
    use super::quoted;

    #[test]
    fn words_survive_the_shell() {
        for word in ["plain", "two words", "it's", "$HOME `x` \\ \" *", ""] {
            let line = [b"printf %s ".to_vec(), quoted(word.as_bytes())].concat();
            let output =
                std::process::Command::new("sh").arg("-c").arg(String::from_utf8(line).unwrap()).output().unwrap();
            assert_eq!(String::from_utf8(output.stdout).unwrap(), word);
        }
    }
}
