//! Metrics of this process and its build, under the names that Prometheus' client libraries use.

use std::sync::OnceLock;
use std::time::Duration;

use serde_json::{Value, json};

use crate::jmx::Bean;
use crate::metrics::Metric;

/// Unit of processor times and start times in /proc: the kernel's USER_HZ, which is 100 on every machine that Hearth
/// supports. Source: proc_pid_stat(5).
pub(crate) const TICKS_A_SECOND: u64 = 100;

/// What distinguishes one build of the program from another.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BuildInfo {
    pub version: &'static str,
    /// Commit of the sources, or "unknown".
    pub commit: &'static str,
    /// Names of the optional parts of this build, separated by commas.
    pub features: &'static str,
}

static BUILD: OnceLock<BuildInfo> = OnceLock::new();

/// Sets what every site of this process reports as `hearth_build_info`. Only the first call counts.
pub fn set_build_info(build: BuildInfo) {
    let _ = BUILD.set(build);
}

/// What the kernel knows about this process. `None`: it does not tell.
struct ProcessFigures {
    cpu: Option<Duration>,
    /// Since 1970.
    start: Option<Duration>,
    resident_bytes: Option<u64>,
    virtual_bytes: Option<u64>,
    threads: Option<u64>,
    open_descriptors: Option<u64>,
    max_descriptors: Option<u64>,
}

impl ProcessFigures {
    fn now() -> Self {
        let read = |name: &str| std::fs::read_to_string(format!("/proc/self/{name}")).unwrap_or_default();
        let stat = Stat::parse(&read("stat"));
        let status = read("status");
        let number = |key: &str| field(&status, key)?.split_whitespace().next()?.parse::<u64>().ok();
        Self {
            cpu: stat.as_ref().map(|stat| stat.cpu),
            start: stat.as_ref().and_then(|stat| Some(boot_time()? + stat.start_since_boot)),
            resident_bytes: number("VmRSS:").map(|kib| kib * 1024),
            virtual_bytes: number("VmSize:").map(|kib| kib * 1024),
            threads: number("Threads:"),
            open_descriptors: open_descriptors(),
            max_descriptors: descriptor_limit(&read("limits")),
        }
    }
}

/// Returns the metrics that every server has. Values that the kernel does not give are left out.
pub(crate) fn metrics() -> Vec<Metric> {
    let unknown = BuildInfo { version: env!("CARGO_PKG_VERSION"), commit: "unknown", features: "" };
    let build = BUILD.get().unwrap_or(&unknown);
    let build = Metric::gauge("hearth_build_info", "Always 1; the labels identify the build of the program", 1)
        .label("version", build.version)
        .label("commit", build.commit)
        .label("features", build.features);
    let figures = ProcessFigures::now();
    let cpu = figures.cpu.map(|cpu| {
        let help = "Processor time that the process has used, in user and in kernel mode";
        Metric::seconds_counter("process_cpu_seconds", help, cpu)
    });
    let start = figures.start.map(|start| {
        let help = "Time when the process started, in seconds since 1970";
        Metric::seconds("process_start_time_seconds", help, start)
    });
    let gauges = [
        (
            "process_resident_memory_bytes",
            "Physical memory that the process uses, with the memory of replicas that it has mapped",
            figures.resident_bytes,
        ),
        ("process_virtual_memory_bytes", "Address space that the process has mapped", figures.virtual_bytes),
        ("process_threads", "Threads of the process", figures.threads),
        ("process_open_fds", "File descriptors that the process has open", figures.open_descriptors),
        ("process_max_fds", "File descriptors that the process may have open at most", figures.max_descriptors),
    ];
    let gauges = gauges.into_iter().filter_map(|(name, help, value)| Some(Metric::gauge(name, help, value?)));
    [Some(build), cpu, start].into_iter().flatten().chain(gauges).collect()
}

/// Returns the beans about the process that monitoring of a JVM reads, with what a process without a JVM has: the heap
/// is the resident memory, and there is no garbage collection.
///
/// `service`: "NameNode" or "DataNode". Sources: Hadoop's `JvmMetrics`, Java's `RuntimeMXBean`,
/// `MemoryMXBean` and `UnixOperatingSystemMXBean`.
pub fn process_beans(service: &str, host_name: &str) -> Vec<Bean> {
    let figures = ProcessFigures::now();
    let mib = |bytes: Option<u64>| bytes.unwrap_or_default() as f64 / f64::from(1 << 20);
    let (resident, threads) = (mib(figures.resident_bytes), figures.threads.unwrap_or_default());
    let start_ms = figures.start.unwrap_or_default().as_millis() as u64;
    let mut jvm = Bean::new(format!("Hadoop:service={service},name=JvmMetrics"))
        .with("tag.Context", "jvm")
        .with("tag.ProcessName", service)
        .with("tag.SessionId", Value::Null)
        .with("tag.Hostname", host_name)
        .with("MemHeapUsedM", resident)
        .with("MemHeapCommittedM", resident)
        .with("MemHeapMaxM", mib(figures.virtual_bytes))
        .with("MemMaxM", mib(figures.virtual_bytes));
    for name in ["MemNonHeapUsedM", "MemNonHeapCommittedM", "MemNonHeapMaxM"] {
        jvm = jvm.with(name, 0.0);
    }
    for name in ["GcCount", "GcTimeMillis", "GcNumWarnThresholdExceeded", "GcNumInfoThresholdExceeded"] {
        jvm = jvm.with(name, 0);
    }
    jvm = jvm.with("GcTotalExtraSleepTime", 0).with("ThreadsRunnable", threads);
    for name in ["ThreadsNew", "ThreadsBlocked", "ThreadsWaiting", "ThreadsTimedWaiting", "ThreadsTerminated"] {
        jvm = jvm.with(name, 0);
    }
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    vec![
        jvm,
        Bean::new("java.lang:type=Runtime")
            .with("Name", format!("{}@{host_name}", std::process::id()))
            .with("SpecName", "Hearth")
            .with("VmName", "Hearth")
            .with("VmVersion", env!("CARGO_PKG_VERSION"))
            .with("StartTime", start_ms),
        Bean::new("java.lang:type=OperatingSystem")
            .with("Name", "Linux")
            .with("Arch", std::env::consts::ARCH)
            .with("AvailableProcessors", processors)
            .with("OpenFileDescriptorCount", figures.open_descriptors.unwrap_or_default())
            .with("MaxFileDescriptorCount", figures.max_descriptors.unwrap_or_default())
            .with("CommittedVirtualMemorySize", figures.virtual_bytes.unwrap_or_default())
            // In nanoseconds.
            .with("ProcessCpuTime", figures.cpu.unwrap_or_default().as_nanos() as u64),
        Bean::new("java.lang:type=Threading").with("ThreadCount", threads),
        memory_bean(&figures),
    ]
}

/// Returns the bean about memory, in bytes. A process without a JVM has no other memory than what stands for the heap.
///
/// Source: Java's `MemoryMXBean`. `max` is -1 if there is no limit.
fn memory_bean(figures: &ProcessFigures) -> Bean {
    let resident = figures.resident_bytes.unwrap_or_default();
    let max = figures.virtual_bytes.unwrap_or_default();
    Bean::new("java.lang:type=Memory")
        .with("Verbose", false)
        .with("HeapMemoryUsage", json!({ "committed": resident, "init": 0, "max": max, "used": resident }))
        .with("NonHeapMemoryUsage", json!({ "committed": 0, "init": 0, "max": -1, "used": 0 }))
        .with("ObjectPendingFinalizationCount", 0)
        .with("ObjectName", "java.lang:type=Memory")
}

/// Returns the rest of the line that begins with `key`.
fn field<'a>(text: &'a str, key: &str) -> Option<&'a str> {
    text.lines().find_map(|line| line.strip_prefix(key))
}

/// Counts the open descriptors, without the one that the count itself takes.
fn open_descriptors() -> Option<u64> {
    let entries = std::fs::read_dir("/proc/self/fd").ok()?;
    Some(entries.count().saturating_sub(1) as u64)
}

/// Returns the soft limit of descriptors in the text of /proc/self/limits; `None` if there is no limit.
fn descriptor_limit(limits: &str) -> Option<u64> {
    field(limits, "Max open files")?.split_whitespace().next()?.parse().ok()
}

/// Returns when the machine booted, as the time since 1970.
fn boot_time() -> Option<Duration> {
    static BOOT: OnceLock<Option<Duration>> = OnceLock::new();
    *BOOT.get_or_init(|| {
        let stat = std::fs::read_to_string("/proc/stat").ok()?;
        Some(Duration::from_secs(field(&stat, "btime ")?.trim().parse().ok()?))
    })
}

/// The part of /proc/self/stat that is used here.
#[derive(PartialEq, Eq, Debug)]
struct Stat {
    cpu: Duration,
    start_since_boot: Duration,
}

impl Stat {
    fn parse(text: &str) -> Option<Self> {
        // The program's name, in parentheses, may have spaces and parentheses itself.
        let (_, rest) = text.rsplit_once(')')?;
        let fields: Vec<&str> = rest.split_whitespace().collect();
        // The first field here is the third of the line.
        let ticks = |number: usize| fields.get(number - 3)?.parse::<u64>().ok();
        let time = |ticks: u64| Duration::from_millis(ticks * (1000 / TICKS_A_SECOND));
        Some(Self { cpu: time(ticks(14)? + ticks(15)?), start_since_boot: time(ticks(22)?) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stat_is_read_whatever_the_program_is_called() {
        let line = "4242 (a) b (c) S 1 4242 4242 0 -1 4194560 9 8 7 6 150 250 5 4 20 0 12 0 36000 123456 789 18446744073709551615 1 1";
        let expected = Stat { cpu: Duration::from_secs(4), start_since_boot: Duration::from_secs(360) };
        assert_eq!(Stat::parse(line), Some(expected));
        assert_eq!(Stat::parse("4242 (short) S 1"), None);
        assert_eq!(Stat::parse(""), None);
    }

    #[test]
    fn limit_of_descriptors_is_the_soft_one() {
        let limits = "Limit                     Soft Limit           Hard Limit           Units     \n\
                      Max open files            1024                 524288               files     \n";
        assert_eq!(descriptor_limit(limits), Some(1024));
        assert_eq!(descriptor_limit(&limits.replace("1024  ", "unlimited")), None);
    }

    #[test]
    fn this_process_has_every_metric() {
        let metrics = metrics();
        let names: Vec<&str> = metrics.iter().map(|metric| metric.name).collect();
        assert_eq!(
            names,
            [
                "hearth_build_info",
                "process_cpu_seconds",
                "process_start_time_seconds",
                "process_resident_memory_bytes",
                "process_virtual_memory_bytes",
                "process_threads",
                "process_open_fds",
                "process_max_fds",
            ]
        );
        // A running process has memory, threads and descriptors.
        assert!(
            metrics.iter().filter(|metric| metric.name != "process_cpu_seconds").all(|metric| metric.value() > 0.0)
        );
    }

    #[test]
    fn beans_are_about_this_process() {
        let beans = process_beans("DataNode", "here");
        let value = |bean: &str, attribute: &str| {
            let bean = beans.iter().find(|found| found.name == bean).unwrap();
            bean.attributes.iter().find(|(name, _)| name == attribute).unwrap().1.clone()
        };
        assert!(value("Hadoop:service=DataNode,name=JvmMetrics", "MemHeapUsedM").as_f64().unwrap() > 0.0);
        assert!(value("java.lang:type=Runtime", "StartTime").as_u64().unwrap() > 1_600_000_000_000);
        assert!(value("java.lang:type=OperatingSystem", "OpenFileDescriptorCount").as_u64().unwrap() > 0);
        assert!(value("java.lang:type=Threading", "ThreadCount").as_u64().unwrap() > 0);
        let heap = value("java.lang:type=Memory", "HeapMemoryUsage");
        let bytes = |member: &str| heap[member].as_u64().unwrap();
        assert!(bytes("used") > 0 && bytes("used") == bytes("committed") && bytes("used") < bytes("max"), "{heap}");
        assert_eq!(value("java.lang:type=Memory", "NonHeapMemoryUsage")["used"], 0);
    }
}
