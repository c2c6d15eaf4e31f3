//! The requirements, each with the lines of the record that answer it.

/// Key of a line of the record.
pub struct FigureKey {
    /// Start of the workload's description: the parameters that the requirement fixes, so that a smaller run does not
    /// match.
    pub workload: &'static str,
    pub work: &'static str,
    pub system: &'static str,
    pub client: &'static str,
    pub figure: &'static str,
}

pub enum Goal {
    AtMost(f64),
    AtLeast(f64),
}

pub struct Requirement {
    pub what: &'static str,
    /// Keys whose values are added up.
    pub ours: &'static [FigureKey],
    /// Keys whose values are added up, as the divisor of `ours`. Empty: the goal applies to `ours` itself.
    pub base: &'static [FigureKey],
    pub goal: Goal,
}

pub struct Section {
    pub title: &'static str,
    /// Text above the table.
    pub remark: Option<&'static str>,
    pub requirements: &'static [Requirement],
    /// Charts shown below the table if they exist.
    pub charts: &'static [&'static str],
}

const fn of(
    workload: &'static str,
    work: &'static str,
    system: &'static str,
    client: &'static str,
    figure: &'static str,
) -> FigureKey {
    FigureKey { workload, work, system, client, figure }
}

/// CPU of the NameNode per namespace operation.
macro_rules! cpu_of {
    ($workload:expr, $operation:literal, $how:literal) => {
        at_most(
            concat!($operation, $how, ": CPU of the NameNode"),
            0.34,
            &[of($workload, $operation, "Hearth", "", "NameNode CPU")],
            &[of($workload, $operation, "Apache", "", "NameNode CPU")],
        )
    };
}

/// Rate of namespace operations.
macro_rules! rate_of {
    ($workload:expr, $operation:literal, $how:literal) => {
        at_least(
            concat!($operation, $how, ": operations per second"),
            3.0,
            &[of($workload, $operation, "Hearth", "", "operations")],
            &[of($workload, $operation, "Apache", "", "operations")],
        )
    };
}

const fn at_most(
    what: &'static str,
    bound: f64,
    ours: &'static [FigureKey],
    base: &'static [FigureKey],
) -> Requirement {
    Requirement { what, ours, base, goal: Goal::AtMost(bound) }
}

const fn at_least(
    what: &'static str,
    bound: f64,
    ours: &'static [FigureKey],
    base: &'static [FigureKey],
) -> Requirement {
    Requirement { what, ours, base, goal: Goal::AtLeast(bound) }
}

const THESIS: &str = "thesis 2048 MiB and 128 MiB, blocks of 32 MiB;";
const LOCAL_READ: &str = "local-read 128 MiB, blocks of 32 MiB, at random in 1024 MiB;";
const LOCAL_WRITE: &str = "local-write 128 MiB, blocks of 32 MiB;";
const RDMA: &str = "rdma 256 MiB, pieces of 1024 KiB, depth 8,";
const PUT_GET: &str = "put-get 2048 MiB, blocks of 32 MiB, replication 1;";
const DATANODE: &str = "datanode 1024 MiB, blocks of 32 MiB, 60 readers of 16 MiB, 24000 small reads;";
const DATANODE_COPYING: &str =
    "datanode, transferTo off, 1024 MiB, blocks of 32 MiB, 60 readers of 16 MiB, 24000 small reads;";
const STREAM: &str = "stream 64 replicas of 80 MiB";
const STREAM_SLOW: &str = "stream, slow receiver (1s a piece), 64 replicas of 16 MiB";
const ENGINE: &str = "engine 4 KiB gets, 256 MiB of memory, replicas of 32 MiB";
const SMALL_FILES: &str = "small-files 17836 files of 32 KiB, the first 32 KiB, 64 a batch";
const SMALL_FILES_FAR: &str =
    "network small-files 4000 files of 32 KiB, the first 32 KiB, 64 a batch; each way delay 10ms loss 0.1%,";
const PYTHON: &str = "python 128 MiB, blocks of 128 MiB, at random in 512 MiB, 17836 small files by 60 threads;";
const JVM: &str = "java 128 MiB, blocks of 128 MiB, at random in 512 MiB, 17836 small files by 60 threads;";
const SATURATE: &str = "saturate 1, 2, 4, 8, 16, 32 clients, 32 files of 64 MiB;";
const METADATA: &str = "metadata: 64000 operations of each kind by 64 connections, one call open";
const METADATA_SHARED: &str = "metadata-shared: 128000 operations of each kind by 64 connections, 8 calls open";
const NAMENODE_MEMORY: &str = "namenode-memory: 300000 files of one block, 30000 of 10,";
const REREPLICATION: &str =
    "rereplication of 1024 MiB, blocks of 32 MiB, by Hearth's NameNode to 2 of 3 DataNodes; 2 readers";

const W3: &str = "write 2048 MiB, 3 DataNodes";
const R3: &str = "read 2048 MiB, 3 DataNodes";
const PACKETS: &str = "own, packets";
const SHORTEST: &str = "own, shortest path";
const JAVA: &str = "warm JVM";
const DATANODE_CPU: &str = "DataNode CPU";
const CLIENT_CPU: &str = "client CPU";
const LOCAL: &str = "hearth, local";
const WHOLE: &str = "read whole, into one buffer";
const COPIED_SMALL: &str = "1024 MiB copied, 4 KiB read meanwhile";
const COPIED_LARGE: &str = "1024 MiB copied, 1 MiB read meanwhile";
const WITHOUT_FLUSHER: &str = "The CPU of Hearth's DataNodes excludes that of their flusher.";
const FILE_OF_A_BLOCK: &str = "a file with one block, three replicas";
const FURTHER_BLOCK: &str = "each further block";
const INTO_NUMPY: &str = "read whole, into a NumPy array";
const VIEW: &str = "open and view whole";
const AT_RANDOM: &str = "read 4 KiB at random";
const FIRST_BYTE: &str = "from import to first byte";
const WHOLE_JAVA: &str = "read whole, 128 KiB at a time";
const VECTORED_JAVA: &str = "read 64 ranges of 64 KiB at once";
const WRITE_JAVA: &str = "write whole, 128 KiB at a time";
const WITH_BLOCKS: &str = "with Hearth's jar";
const WITH_FILES: &str = "with Hearth's file system";

/// Sections, in the order of the page.
pub const SECTIONS: &[Section] = &[
    Section {
        title: "A. The in-memory, RDMA-enabled HDFS (the thesis's figures)",
        remark: Some(
            "In `thesis`, the CPU of Hearth's DataNodes excludes that of their flusher, which copies replicas to disk \
             after the write; Apache's DataNodes keep their replicas in the tmpfs. Apache's client uses TCP, also on \
             one machine, unless short-circuit reads are named.",
        ),
        requirements: &[
            at_most(
                "write 2 GiB, 3 DataNodes: CPU of the DataNodes, over TCP to the first and from each to the next",
                0.38,
                &[of(THESIS, W3, "Hearth", PACKETS, DATANODE_CPU)],
                &[of(THESIS, W3, "Apache", JAVA, DATANODE_CPU)],
            ),
            at_most(
                "the same on one machine: first replica written in place, forwarded through memory",
                0.38,
                &[of(THESIS, W3, "Hearth", SHORTEST, DATANODE_CPU)],
                &[of(THESIS, W3, "Apache", JAVA, DATANODE_CPU)],
            ),
            at_most(
                "the same: CPU of the client",
                0.25,
                &[of(THESIS, W3, "Hearth", SHORTEST, CLIENT_CPU)],
                &[of(THESIS, W3, "Apache", JAVA, CLIENT_CPU)],
            ),
            at_most(
                "read 2 GiB: CPU of the DataNodes, over TCP",
                0.78,
                &[of(THESIS, R3, "Hearth", PACKETS, DATANODE_CPU)],
                &[of(THESIS, R3, "Apache", JAVA, DATANODE_CPU)],
            ),
            at_most(
                "the same, local path",
                0.78,
                &[of(THESIS, R3, "Hearth", SHORTEST, DATANODE_CPU)],
                &[of(THESIS, R3, "Apache", JAVA, DATANODE_CPU)],
            ),
            at_most(
                "read 2 GiB: CPU of the client, local path",
                0.96,
                &[of(THESIS, R3, "Hearth", SHORTEST, CLIENT_CPU)],
                &[of(THESIS, R3, "Apache", JAVA, CLIENT_CPU)],
            ),
            at_most(
                "write 128 MiB: latency, over TCP",
                0.7,
                &[of(THESIS, "write 128 MiB", "Hearth", PACKETS, "latency")],
                &[of(THESIS, "write 128 MiB", "Apache", JAVA, "latency")],
            ),
            at_most(
                "read 128 MiB: latency, over TCP",
                0.88,
                &[of(THESIS, "read 128 MiB", "Hearth", PACKETS, "latency")],
                &[of(THESIS, "read 128 MiB", "Apache", JAVA, "latency")],
            ),
            at_most(
                "8 clients at once, over TCP: until the last has read its file",
                1.0,
                &[of(THESIS, "8 clients read 128 MiB each", "Hearth", PACKETS, "wall")],
                &[of(THESIS, "8 clients read 128 MiB each", "Apache", JAVA, "wall")],
            ),
            at_most(
                "2 clients at once, over TCP: until both have read their files (base: one alone; in the thesis nearly twice as long)",
                1.5,
                &[of(THESIS, "2 clients read 128 MiB each", "Hearth", PACKETS, "wall")],
                &[of(THESIS, "1 clients read 128 MiB each", "Hearth", PACKETS, "wall")],
            ),
            at_most(
                "6 clients without a pause, over TCP: CPU of the DataNode per GB",
                0.33,
                &[of(THESIS, "6 clients without a pause", "Hearth", PACKETS, DATANODE_CPU)],
                &[of(THESIS, "6 clients without a pause", "Apache", JAVA, DATANODE_CPU)],
            ),
            at_most(
                "read 128 MiB on the DataNode's machine, checked (base: memcpy)",
                1.5,
                &[of(LOCAL_READ, WHOLE, "Hearth", LOCAL, "wall")],
                &[of(LOCAL_READ, WHOLE, "memcpy", "", "wall")],
            ),
            at_most(
                "the same (base: Apache's client over TCP)",
                0.34,
                &[of(LOCAL_READ, WHOLE, "Hearth", LOCAL, "wall")],
                &[of(LOCAL_READ, WHOLE_JAVA, "Apache", "warm JVM, TCP", "wall")],
            ),
            at_most(
                "the same (base: its short-circuit reads)",
                1.0,
                &[of(LOCAL_READ, WHOLE, "Hearth", LOCAL, "wall")],
                &[of(LOCAL_READ, WHOLE_JAVA, "Apache", "warm JVM, short-circuit", "wall")],
            ),
            at_most(
                "a view of the file, no copy: milliseconds",
                1.0,
                &[of(LOCAL_READ, "view whole, no copy", "Hearth", LOCAL, "wall")],
                &[],
            ),
            at_most(
                "4 KiB at random there, p50: microseconds",
                2.0,
                &[of(LOCAL_READ, "read 4 KiB at random", "Hearth", LOCAL, "p50")],
                &[],
            ),
            at_most(
                "store a file of 128 MiB from a tmpfs, on the DataNode's machine, trusted writer",
                0.34,
                &[of(LOCAL_WRITE, "write", "Hearth local", "own", "wall")],
                &[of(LOCAL_WRITE, "write", "Apache", JAVA, "wall")],
            ),
            at_most(
                "the same: CPU of the DataNode, including the flusher",
                0.34,
                &[
                    of(LOCAL_WRITE, "write", "Hearth local", "own", DATANODE_CPU),
                    of(LOCAL_WRITE, "write", "Hearth local", "own", "flusher CPU"),
                ],
                &[of(LOCAL_WRITE, "write", "Apache", JAVA, DATANODE_CPU)],
            ),
            at_least(
                "RDMA reads: throughput (base: a probe in C, same pieces and depth)",
                0.8,
                &[of(RDMA, "read", "Hearth", "", "throughput")],
                &[of(RDMA, "read", "probe in C", "", "throughput")],
            ),
            at_least(
                "RDMA writes: throughput (base: the probe)",
                0.8,
                &[of(RDMA, "write", "Hearth", "", "throughput")],
                &[of(RDMA, "write", "probe in C", "", "throughput")],
            ),
            at_most(
                "RDMA reads of 4 KiB, checked, p50 (base: the probe)",
                1.3,
                &[of(RDMA, "4 KiB read, checked", "Hearth", "", "p50")],
                &[of(RDMA, "4 KiB read, checked", "probe in C", "", "p50")],
            ),
            at_most(
                "RDMA reads: CPU of the remote process in seconds, without the kernel threads of SoftiWARP",
                0.0,
                &[of(RDMA, "read", "Hearth", "", "far end's CPU")],
                &[],
            ),
            at_most(
                "idle memory of NameNode and DataNode",
                0.34,
                &[
                    of(PUT_GET, "idle", "Hearth", "", "NameNode memory"),
                    of(PUT_GET, "idle", "Hearth", "", "DataNode memory"),
                ],
                &[
                    of(PUT_GET, "idle", "Apache", "", "NameNode memory"),
                    of(PUT_GET, "idle", "Apache", "", "DataNode memory"),
                ],
            ),
        ],
        charts: &[
            "thesis-5.3.svg",
            "thesis-5.4.svg",
            "thesis-5.5.svg",
            "thesis-5.6.svg",
            "thesis-5.7.svg",
            "thesis-5.8.svg",
            "thesis-5.9.svg",
            "thesis-5.10.svg",
            "thesis-5.11.svg",
        ],
    },
    Section {
        title: "B. Zero-copy block serving over TCP",
        remark: Some(WITHOUT_FLUSHER),
        requirements: &[
            at_most(
                "`hdfs dfs -get` of 2 GiB: CPU of the DataNode",
                0.5,
                &[of(PUT_GET, "get", "Hearth", "hdfs dfs", DATANODE_CPU)],
                &[of(PUT_GET, "get", "Apache", "hdfs dfs", DATANODE_CPU)],
            ),
            at_most(
                "the same (base: a minimal sendfile server in C)",
                1.3,
                &[of(PUT_GET, "get", "Hearth", "hdfs dfs", DATANODE_CPU)],
                &[of(PUT_GET, "get", "minimal C", "hdfs dfs", DATANODE_CPU)],
            ),
            at_most(
                "a warm JVM reads 1 GiB: CPU of the DataNode",
                0.5,
                &[of(DATANODE, "get", "Hearth", JAVA, DATANODE_CPU)],
                &[of(DATANODE, "get", "Apache", JAVA, DATANODE_CPU)],
            ),
            at_most(
                "`transferTo.allowed=false`: CPU of the DataNode",
                0.6,
                &[of(DATANODE_COPYING, "get", "Hearth", JAVA, DATANODE_CPU)],
                &[of(DATANODE_COPYING, "get", "Apache", JAVA, DATANODE_CPU)],
            ),
            at_most(
                "60 readers: CPU of the DataNode",
                1.0,
                &[of(DATANODE, "60 readers", "Hearth", JAVA, DATANODE_CPU)],
                &[of(DATANODE, "60 readers", "Apache", JAVA, DATANODE_CPU)],
            ),
            at_least(
                "60 readers: throughput",
                1.0,
                &[of(DATANODE, "60 readers", "Hearth", JAVA, "throughput")],
                &[of(DATANODE, "60 readers", "Apache", JAVA, "throughput")],
            ),
            at_most(
                "4 KiB positioned reads, 1 thread: p99",
                1.0,
                &[of(DATANODE, "4 KiB, 1 thread", "Hearth", JAVA, "p99")],
                &[of(DATANODE, "4 KiB, 1 thread", "Apache", JAVA, "p99")],
            ),
            at_most(
                "4 KiB positioned reads, 8 threads: p99",
                1.0,
                &[of(DATANODE, "4 KiB, 8 threads", "Hearth", JAVA, "p99")],
                &[of(DATANODE, "4 KiB, 8 threads", "Apache", JAVA, "p99")],
            ),
        ],
        charts: &["put-get.svg", "datanode.svg"],
    },
    Section {
        title: "C. Replica streams between DataNodes",
        remark: Some("The CPU of copies between the DataNodes' memories excludes that of their flushers."),
        requirements: &[
            at_most(
                "the same replicas, CPU of both ends (base: gRPC; a fifth is five times its throughput per CPU second)",
                0.2,
                &[of(STREAM, "stream", "Hearth", "", "both ends' CPU")],
                &[of(STREAM, "stream", "gRPC", "", "both ends' CPU")],
            ),
            at_most(
                "the same (base: plain sendfile, without verification)",
                1.3,
                &[of(STREAM, "stream", "Hearth", "", "both ends' CPU")],
                &[of(STREAM, "stream", "raw sendfile", "", "both ends' CPU")],
            ),
            at_least(
                "the same: throughput (base: gRPC; in Apache Ozone, streams reduced 11.66 s to 2.7 s)",
                4.3,
                &[of(STREAM, "stream", "Hearth", "", "throughput")],
                &[of(STREAM, "stream", "gRPC", "", "throughput")],
            ),
            at_most(
                "new replicas between DataNodes of one machine, from memory to memory, CPU of both (base: gRPC)",
                0.2,
                &[of(STREAM, "stream", "Hearth, through memory", "", "both ends' CPU")],
                &[of(STREAM, "stream", "gRPC", "", "both ends' CPU")],
            ),
            at_most(
                "64 concurrent replicas, receiver waits 1 s before each piece: MiB above idle, sender",
                64.0,
                &[of(STREAM_SLOW, "stream", "Hearth", "", "sender's memory above idle")],
                &[],
            ),
            at_most(
                "the same, receiver",
                64.0,
                &[of(STREAM_SLOW, "stream", "Hearth", "", "receiver's memory above idle")],
                &[],
            ),
        ],
        charts: &["stream.svg"],
    },
    Section {
        title: "D. Storage engines",
        remark: None,
        requirements: &[
            at_least(
                "4 KiB reads of a set that fits in memory: peak throughput of mmap (base: engine file, pread)",
                1.4,
                &[of(ENGINE, "set of half of memory", "mmap", "", "peak throughput")],
                &[of(ENGINE, "set of half of memory", "file", "", "peak throughput")],
            ),
            at_most(
                "the same: kernel CPU per read",
                0.98,
                &[of(ENGINE, "set of half of memory", "mmap", "1 threads", "kernel CPU a get")],
                &[of(ENGINE, "set of half of memory", "file", "1 threads", "kernel CPU a get")],
            ),
            at_least(
                "the same with a set of 4 times memory: peak throughput of file (base: mmap)",
                1.0,
                &[of(ENGINE, "set of 4 times memory", "file", "", "peak throughput")],
                &[of(ENGINE, "set of 4 times memory", "mmap", "", "peak throughput")],
            ),
        ],
        charts: &["engine.svg", "engine-latency.svg", "engine-latency-larger.svg"],
    },
    Section {
        title: "E. Many small reads at once",
        remark: None,
        requirements: &[
            at_least(
                "32 KiB of 17,836 files, 60 threads, local path, many opened with one call: files/s (base: Apache's short-circuit)",
                10.0,
                &[of(SMALL_FILES, "60 threads", "Hearth", "hearth, local, many opened", "throughput")],
                &[of(SMALL_FILES, "60 threads", "Apache", "warm JVM, short-circuit", "throughput")],
            ),
            at_least(
                "the same over multiplexed packets (base: Apache's TCP)",
                4.0,
                &[of(SMALL_FILES, "60 threads", "Hearth", "hearth, multiplexed, many opened", "throughput")],
                &[of(SMALL_FILES, "60 threads", "Apache", "warm JVM, TCP", "throughput")],
            ),
            at_least(
                "the same with 4,000 files, a round trip of 20 ms, and 0.1 % loss in each direction",
                10.0,
                &[of(SMALL_FILES_FAR, "60 threads", "Hearth", "hearth, multiplexed, many opened", "throughput")],
                &[of(SMALL_FILES_FAR, "60 threads", "Apache", "warm JVM, TCP", "throughput")],
            ),
        ],
        charts: &["small-files.svg", "small-files-network.svg"],
    },
    Section {
        title: "F. Reach: Python without a JVM",
        remark: Some(
            "Every client reads from Hearth's servers, on their machine. PyArrow with a JVM is on Apache's libhdfs and Java client, \
             with short-circuit reads.",
        ),
        requirements: &[
            at_most(
                "128 MiB into a NumPy array (base: NumPy's copy in the same process)",
                1.5,
                &[of(PYTHON, INTO_NUMPY, "Hearth", "hearth", "wall")],
                &[of(PYTHON, INTO_NUMPY, "memcpy", "hearth", "wall")],
            ),
            at_most(
                "a view of 128 MiB, with opening the file: milliseconds",
                0.3,
                &[of(PYTHON, VIEW, "Hearth", "hearth", "wall")],
                &[],
            ),
            at_most(
                "the same: MiB that the process copies",
                0.5,
                &[of(PYTHON, VIEW, "Hearth", "hearth", "memory copied")],
                &[],
            ),
            at_most(
                "4 KiB at random, p50: microseconds",
                5.0,
                &[of(PYTHON, AT_RANDOM, "Hearth", "hearth", "p50")],
                &[],
            ),
            at_least(
                "17,836 files of 32 KiB, opened one by one by 60 threads: files/s (base: hdfs-native)",
                8.0,
                &[of(PYTHON, "small files", "Hearth", "hearth", "rate")],
                &[of(PYTHON, "small files", "Hearth", "hdfs-native", "rate")],
            ),
            at_least(
                "the same (base: PyArrow with a JVM)",
                10.0,
                &[of(PYTHON, "small files", "Hearth", "hearth", "rate")],
                &[of(PYTHON, "small files", "Hearth", "PyArrow, JVM", "rate")],
            ),
            at_least(
                "the same files by `read_files` (base: hdfs-native)",
                8.0,
                &[of(PYTHON, "small files", "Hearth", "hearth, read_files", "rate")],
                &[of(PYTHON, "small files", "Hearth", "hdfs-native", "rate")],
            ),
            at_least(
                "the same (base: PyArrow with a JVM)",
                10.0,
                &[of(PYTHON, "small files", "Hearth", "hearth, read_files", "rate")],
                &[of(PYTHON, "small files", "Hearth", "PyArrow, JVM", "rate")],
            ),
            at_most(
                "memory of a process that has read its first byte (base: PyArrow with a JVM)",
                0.2,
                &[of(PYTHON, FIRST_BYTE, "Hearth", "hearth", "memory")],
                &[of(PYTHON, FIRST_BYTE, "Hearth", "PyArrow, JVM", "memory")],
            ),
        ],
        charts: &["python.svg"],
    },
    Section {
        title: "G. Reach: Java",
        remark: Some(
            "Hearth's jar gives Hadoop's client single blocks, or the file system reads and writes by Hearth's client. All JVMs are \
             warm. Short-circuit is Apache's client on Apache's servers with libhadoop, as it is by default.",
        ),
        requirements: &[
            at_most(
                "128 MiB by the file system (base: a copy in the same JVM)",
                1.5,
                &[of(JVM, WHOLE_JAVA, "Hearth", WITH_FILES, "wall")],
                &[of(JVM, WHOLE_JAVA, "memcpy", "", "wall")],
            ),
            at_most(
                "128 MiB by blocks (base: a copy in the same JVM)",
                2.0,
                &[of(JVM, WHOLE_JAVA, "Hearth", WITH_BLOCKS, "wall")],
                &[of(JVM, WHOLE_JAVA, "memcpy", "", "wall")],
            ),
            at_most(
                "4 KiB at random by the file system, p50: microseconds",
                3.0,
                &[of(JVM, AT_RANDOM, "Hearth", WITH_FILES, "p50")],
                &[],
            ),
            at_most(
                "4 KiB at random by blocks, p50: microseconds",
                8.0,
                &[of(JVM, AT_RANDOM, "Hearth", WITH_BLOCKS, "p50")],
                &[],
            ),
            at_most(
                "64 ranges by the file system: time (base: short-circuit)",
                0.34,
                &[of(JVM, VECTORED_JAVA, "Hearth", WITH_FILES, "p50")],
                &[of(JVM, VECTORED_JAVA, "Apache", "short-circuit", "p50")],
            ),
            at_least(
                "17,836 files of 32 KiB, opened one by one by 60 threads: files/s (base: short-circuit)",
                8.0,
                &[of(JVM, "small files", "Hearth", WITH_FILES, "rate")],
                &[of(JVM, "small files", "Apache", "short-circuit", "rate")],
            ),
            at_least(
                "the same files by `readStarts` (base: short-circuit)",
                8.0,
                &[of(JVM, "small files", "Hearth", WITH_FILES, "rate, by one call")],
                &[of(JVM, "small files", "Apache", "short-circuit", "rate")],
            ),
            at_most(
                "write of 128 MiB: time (base: Apache's client and servers)",
                0.34,
                &[of(JVM, WRITE_JAVA, "Hearth", WITH_FILES, "wall")],
                &[of(JVM, WRITE_JAVA, "Apache", "TCP", "wall")],
            ),
        ],
        charts: &[],
    },
    Section {
        title: "Many clients",
        remark: Some(WITHOUT_FLUSHER),
        requirements: &[
            at_least(
                "1, 2, 4 .. 32 clients of one DataNode, over TCP: throughput of any number (base: highest of fewer clients; 0.9, because two equal runs differ by as much)",
                0.9,
                &[of(SATURATE, "all", "Hearth", PACKETS, "kept as clients are added")],
                &[],
            ),
            at_least(
                "32 clients: throughput",
                1.0,
                &[of(SATURATE, "32 clients", "Hearth", PACKETS, "throughput")],
                &[of(SATURATE, "32 clients", "Apache", JAVA, "throughput")],
            ),
            at_most(
                "32 clients: CPU of the DataNode per GB",
                0.33,
                &[of(SATURATE, "32 clients", "Hearth", PACKETS, DATANODE_CPU)],
                &[of(SATURATE, "32 clients", "Apache", JAVA, DATANODE_CPU)],
            ),
        ],
        charts: &["saturate-throughput.svg", "saturate-cpu.svg"],
    },
    Section {
        title: "NameNode",
        remark: None,
        requirements: &[
            cpu_of!(METADATA, "create", ""),
            rate_of!(METADATA, "create", ""),
            cpu_of!(METADATA, "open", ""),
            rate_of!(METADATA, "open", ""),
            cpu_of!(METADATA, "mkdirs", ""),
            rate_of!(METADATA, "mkdirs", ""),
            cpu_of!(METADATA, "stat", ""),
            rate_of!(METADATA, "stat", ""),
            cpu_of!(METADATA, "rename", ""),
            rate_of!(METADATA, "rename", ""),
            cpu_of!(METADATA, "delete", ""),
            rate_of!(METADATA, "delete", ""),
            cpu_of!(METADATA_SHARED, "create", ", eight calls open on each connection"),
            rate_of!(METADATA_SHARED, "create", ", eight calls open on each connection"),
            cpu_of!(METADATA_SHARED, "open", ", eight calls open on each connection"),
            rate_of!(METADATA_SHARED, "open", ", eight calls open on each connection"),
            cpu_of!(METADATA_SHARED, "mkdirs", ", eight calls open on each connection"),
            rate_of!(METADATA_SHARED, "mkdirs", ", eight calls open on each connection"),
            cpu_of!(METADATA_SHARED, "stat", ", eight calls open on each connection"),
            rate_of!(METADATA_SHARED, "stat", ", eight calls open on each connection"),
            cpu_of!(METADATA_SHARED, "rename", ", eight calls open on each connection"),
            rate_of!(METADATA_SHARED, "rename", ", eight calls open on each connection"),
            cpu_of!(METADATA_SHARED, "delete", ", eight calls open on each connection"),
            rate_of!(METADATA_SHARED, "delete", ", eight calls open on each connection"),
            at_most(
                "memory of a file with one block of three replicas: bytes (base: Apache's live heap after a full collection)",
                0.5,
                &[of(NAMENODE_MEMORY, FILE_OF_A_BLOCK, "Hearth", "", "memory")],
                &[of(NAMENODE_MEMORY, FILE_OF_A_BLOCK, "Apache", "", "memory")],
            ),
            at_most(
                "the same for each further block: bytes",
                0.5,
                &[of(NAMENODE_MEMORY, FURTHER_BLOCK, "Hearth", "", "memory")],
                &[of(NAMENODE_MEMORY, FURTHER_BLOCK, "Apache", "", "memory")],
            ),
            at_most(
                "1 GiB of lost replicas restored during 4 KiB reads: seconds from detection",
                2.0,
                &[of(REREPLICATION, COPIED_SMALL, "Hearth", "", "time from detection")],
                &[],
            ),
            at_least(
                "the same: rate of reads (base: before)",
                0.5,
                &[of(REREPLICATION, COPIED_SMALL, "Hearth", "", "reads meanwhile")],
                &[of(REREPLICATION, COPIED_SMALL, "Hearth", "", "reads before")],
            ),
            at_most(
                "the same during 1 MiB reads: seconds from detection",
                2.0,
                &[of(REREPLICATION, COPIED_LARGE, "Hearth", "", "time from detection")],
                &[],
            ),
            at_least(
                "the same: rate of reads (base: before)",
                0.5,
                &[of(REREPLICATION, COPIED_LARGE, "Hearth", "", "reads meanwhile")],
                &[of(REREPLICATION, COPIED_LARGE, "Hearth", "", "reads before")],
            ),
        ],
        charts: &["metadata.svg", "metadata-shared.svg", "namenode-memory.svg", "rereplication.svg"],
    },
];
