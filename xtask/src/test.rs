//! `cargo xtask test`: formatting, lints, documents, every test, with real clients too; ends with one line `N passed, N failed`.

use std::collections::VecDeque;
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Command, ExitCode, Stdio};
use std::sync::{Mutex, OnceLock};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use crate::{TestArguments, apache, java, libhdfs, logrotate, prometheus, python, run, vm, wheel};

/// The suites that start real clusters, Apache's and ours, have a package of their own.
const INTEROP: &str = "hearth-interop";

/// The variable that makes suites run the checks that take minutes, too: `hearth_interop::slow`.
pub const SLOW_VARIABLE: &str = "HEARTH_TEST_CLUSTER";

/// The longest suites, the longest first. They start first, so that none of them runs alone at the end. A suite that is
/// not named here only starts later.
const LONGEST: [&str; 11] = [
    "java",
    "clients",
    "contract",
    "hearth-client rdma over siw",
    "cluster",
    "libhdfs",
    "faults_and_limits",
    "python",
    "takeover",
    "short_circuit",
    "webhdfs",
];

/// Suites that need what is fetched only for `--ecosystem`.
const ECOSYSTEM: [&str; 2] = ["ecosystem", "jdks"];

#[derive(Default)]
pub struct Tally {
    passed: u64,
    failed: u64,
    /// What was left out, and why.
    skipped: Vec<String>,
    failures: Vec<String>,
    /// What is worth knowing of a run though it failed nothing.
    notes: Vec<String>,
    /// Seconds of each suite, by its name.
    seconds: Vec<(String, f64)>,
    /// What the failed tests printed, shown once more at the end: a log's end is what people are shown of it.
    said: Vec<CapturedOutput>,
    /// Whether the lines that come now are what a failed test printed.
    listening: bool,
}

/// What one failed test printed: its first lines, which say what went wrong, and its last.
struct CapturedOutput {
    heading: String,
    first: Vec<String>,
    last: VecDeque<String>,
    left_out: usize,
}

impl CapturedOutput {
    const FIRST: usize = 24;
    const LAST: usize = 8;
    const LINE_BYTES: usize = 400;

    fn line(&mut self, text: &str) {
        let text: String = text.chars().take(Self::LINE_BYTES).collect();
        if self.first.len() < Self::FIRST {
            return self.first.push(text);
        }
        self.last.push_back(text);
        if self.last.len() > Self::LAST {
            self.last.pop_front();
            self.left_out += 1;
        }
    }

    fn print(&self) {
        println!("{}", self.heading);
        self.first.iter().for_each(|line| println!("  {line}"));
        if self.left_out > 0 {
            println!("  [{} lines]", self.left_out);
        }
        self.last.iter().for_each(|line| println!("  {line}"));
    }
}

impl Tally {
    /// Something that the tests need cannot be had here: a failure in CI, said aloud elsewhere.
    pub fn missing(&mut self, must_be_whole: bool, line: String) {
        if must_be_whole {
            self.failed += 1;
            self.failures.push(line);
        } else {
            self.skipped.push(line);
        }
    }

    /// Shows and counts one line of a test program's output. `name`: the suite that it belongs to.
    pub fn line(&mut self, name: &str, text: &str) {
        println!("{name} | {text}");
        if let Some(test) = text.strip_prefix("---- ").and_then(|rest| rest.strip_suffix(" ----")) {
            let heading = format!("---- {name}: {test} ----");
            self.said.push(CapturedOutput { heading, first: Vec::new(), last: Default::default(), left_out: 0 });
            self.listening = true;
        } else if text == "failures:" || text.starts_with("test result: ") || text.ends_with(" ... FAILED") {
            self.listening = false;
        } else if self.listening
            && let Some(said) = self.said.last_mut()
        {
            said.line(text);
        }
        if let Some((passed, failed)) = counts(text) {
            self.passed += passed;
            self.failed += failed;
        } else if let Some(test) = text.strip_prefix("test ").and_then(|rest| rest.strip_suffix(" ... FAILED")) {
            self.failures.push(format!("{name}: {test}"));
        } else if let Some(reason) = text.strip_prefix("SKIPPED ") {
            self.skipped.push(reason.to_owned());
        }
    }

    pub fn failed(&self) -> u64 {
        self.failed
    }

    /// Adds what another suite has counted.
    fn add(&mut self, suite: Tally) {
        self.passed += suite.passed;
        self.failed += suite.failed;
        self.skipped.extend(suite.skipped);
        self.failures.extend(suite.failures);
        self.notes.extend(suite.notes);
        self.seconds.extend(suite.seconds);
        self.said.extend(suite.said);
    }

    /// A suite failed as a whole.
    pub fn fail(&mut self, line: String) {
        self.failed += 1;
        self.failures.push(line);
    }

    pub fn note(&mut self, line: String) {
        println!("note: {line}");
        self.notes.push(line);
    }

    /// Notes what could make the run shorter: how long it has taken since `begun`, how long the suites since `started`
    /// and which of them the longest, and the share of their time in which the processors were busy. `ticks`: before and
    /// after them. `tail`: the time at their end in which fewer of them ran than could.
    fn note_times(
        &mut self,
        begun: Instant,
        started: Instant,
        ticks: Option<((u64, u64), (u64, u64))>,
        tail: Duration,
    ) {
        const LONGEST: usize = 12;
        let (minutes, seconds) = (begun.elapsed().as_secs_f64() / 60.0, started.elapsed().as_secs_f64());
        let busy = ticks.map(|(before, after)| (after.0 - before.0, after.1 - before.1));
        let busy = busy.filter(|(busy, idle)| busy + idle > 0).map(|(busy, idle)| busy * 100 / (busy + idle));
        let busy = busy.map(|percent| format!(", processors {percent} % busy")).unwrap_or_default();
        self.seconds.sort_by(|one, other| other.1.total_cmp(&one.1));
        let longest: Vec<String> =
            self.seconds.iter().take(LONGEST).map(|(name, seconds)| format!("{name} {seconds:.0} s")).collect();
        let longest = longest.join(", ");
        let busy = format!("{busy}, the last {} s with a place free", tail.as_secs());
        self.note(format!("{minutes:.1} min in all; the suites {seconds:.0} s{busy}; the longest of them: {longest}"));
    }

    /// Says how all of it ended, what went wrong and what was left out before the last line.
    fn report(&self) -> ExitCode {
        self.said.iter().for_each(CapturedOutput::print);
        for failure in &self.failures {
            println!("failed: {failure}");
        }
        for note in &self.notes {
            println!("note: {note}");
        }
        for skipped in &self.skipped {
            println!("skipped: {skipped}");
        }
        println!("{} passed, {} failed", self.passed, self.failed);
        if self.failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
    }
}

pub fn run(arguments: &TestArguments) -> Result<ExitCode> {
    let begun = Instant::now();
    let must_be_whole = std::env::var("CI").is_ok_and(|value| value == "true");
    let mut tally = Tally::default();
    let filter: Vec<&str> = arguments.filter.as_deref().into_iter().collect();
    if arguments.ecosystem {
        let fetched = vec![
            ("Apache Hadoop", apache::fetch()),
            ("HBase", apache::fetch_hbase()),
            ("Spark", apache::fetch_spark()),
            ("PyTorch", python::torch()),
        ];
        for line in missing("engines with", fetched) {
            tally.missing(must_be_whole, line);
        }
        programs()?;
        let ecosystem = interop(&mut tally, must_be_whole, &filter, Wanted::Ecosystem)?;
        run_all(&mut tally, ecosystem.into());
        return Ok(tally.report());
    }
    let (only_interop, only_vm) = (arguments.interop && !arguments.vm, arguments.vm && !arguments.interop);
    let only_some = arguments.interop || arguments.vm;
    let in_the_machine = !arguments.unit && !only_interop;
    if in_the_machine {
        vm::prepare_behind();
    }
    // Beside the compilation: downloads wait more than they compute.
    let slow = arguments.cluster;
    let fetching = (!arguments.unit).then(|| std::thread::spawn(move || fetch(slow)));
    if !only_some && filter.is_empty() {
        check(&mut tally, "formatting", run::cargo().args(["fmt", "--all", "--check"]));
        let lints = ["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"];
        check(&mut tally, "lints", run::cargo().args(lints));
        // Broken links and, in the client, missing documentation. The packages left out are not for users.
        let documents = ["doc", "--no-deps", "--workspace", "--features", "hearth-client/object_store"];
        let left_out = ["hearth-bench", "hearth-testkit", INTEROP, "xtask"];
        let mut command = run::cargo();
        command.args(documents);
        command.args(left_out.iter().flat_map(|package| ["--exclude", package]));
        check(&mut tally, "documents", command.env("RUSTDOCFLAGS", "-D warnings"));
    }
    let built = programs();
    // Before any test: some crates have tests of their own with Apache's servers, and so has the virtual machine.
    if let Some(fetching) = fetching {
        let lines = fetching.join().unwrap_or_else(|_| vec!["interop: fetching panicked".to_owned()]);
        lines.into_iter().for_each(|line| tally.missing(must_be_whole, line));
    }
    match built {
        Ok(_) => tally.passed += 1,
        Err(error) => {
            tally.fail(format!("the test programs: {error:#}"));
            return Ok(tally.report());
        }
    }
    let mut suites = Suites::new();
    if !only_some {
        suites.extend(crates(&filter)?);
    }
    if in_the_machine {
        suites.extend(vm::suites(must_be_whole, &filter, slow)?);
    }
    if !arguments.unit && !only_vm {
        let wanted = if slow { Wanted::Slow } else { Wanted::Quick };
        suites.extend(interop(&mut tally, must_be_whole, &filter, wanted)?);
    }
    // A stable sort: the crates' tests stay in front, where the first worker takes them.
    suites.make_contiguous().sort_by_key(|(name, _)| place_from_end(name));
    let (started, ticks) = (Instant::now(), processor_ticks());
    let tail = run_all(&mut tally, suites);
    tally.note_times(begun, started, ticks.zip(processor_ticks()), tail);
    // At the end: it builds the program once more, with another feature, in the place of the one that the suites use.
    if slow
        && !only_some
        && filter.is_empty()
        && let Err(error) = count_tracing(&mut tally)
    {
        tally.fail(format!("tracing: {error:#}"));
    }
    Ok(tally.report())
}

/// Returns a number that is larger for suites that take longer, and 0 for all that are not among [`LONGEST`].
fn place_from_end(name: &str) -> usize {
    LONGEST.iter().rev().position(|longest| *longest == name).map_or(0, |place| place + 1)
}

/// `cargo xtask tracing`.
pub fn tracing() -> Result<ExitCode> {
    let mut tally = Tally::default();
    count_tracing(&mut tally)?;
    Ok(tally.report())
}

/// Lints and tests of the code behind the feature `opentelemetry`. Only the slow run has them, because they compile most crates once more.
fn count_tracing(tally: &mut Tally) -> Result<()> {
    const FEATURE: [&str; 2] = ["--features", "opentelemetry"];
    let lints = ["clippy", "-p", "hearth-protocol", "-p", "hearth-client", "-p", "hearth", "--all-targets"];
    check(tally, "lints with tracing", run::cargo().args(lints).args(FEATURE).args(["--", "-D", "warnings"]));
    for (package, target) in [("hearth-protocol", "--lib"), ("hearth", "--test=traces")] {
        let mut command = run::cargo();
        command.args(["test", "-p", package, target]).args(FEATURE).args(["--", "--test-threads=1"]);
        if package == "hearth-protocol" {
            command.arg("trace");
        }
        suite(tally, &format!("{package} with tracing"), &mut command)?;
    }
    Ok(())
}

/// Clock ticks that the processors have been busy and idle since the machine started. `None` without `/proc/stat`, whose
/// first line they are from (proc_stat(5)).
fn processor_ticks() -> Option<(u64, u64)> {
    let text = std::fs::read_to_string("/proc/stat").ok()?;
    let fields: Vec<u64> =
        text.lines().next()?.split_whitespace().skip(1).filter_map(|word| word.parse().ok()).collect();
    // user, nice, system, idle, iowait, irq, softirq, steal
    let &[user, nice, system, idle, iowait, irq, softirq, ..] = fields.as_slice() else { return None };
    Some((user + nice + system + irq + softirq, idle + iowait))
}

/// Fetches what the suites with real clients and servers need. Returns a line for each thing that cannot be had: a failure
/// in CI, said aloud elsewhere.
fn fetch(slow: bool) -> Vec<String> {
    let mut wanted = vec![
        ("Apache Hadoop", apache::fetch()),
        ("hdfs-native", python::environment()),
        ("PyArrow and its like", python::libraries()),
        ("Apache's hdfs.h", libhdfs::fetch_headers()),
        ("Debian's Prometheus", prometheus::fetch()),
        ("logrotate", logrotate::fetch()),
        ("valgrind", run::require(&[("valgrind", "--version")], &["valgrind"]).map(|()| crate::root())),
        ("Chromium", run::require(&[(CHROMIUM, "--version")], &[CHROMIUM]).map(|()| crate::root())),
    ];
    if slow {
        wanted.push(("Apache Hadoop's jobs and version 3.3", apache::fetch_more().map(|()| crate::root())));
    }
    missing("interop with", wanted)
}

/// Returns a line for each thing that could not be had. `with`: what cannot run without it.
fn missing(with: &str, wanted: Vec<(&str, Result<PathBuf>)>) -> Vec<String> {
    let errors = wanted.into_iter().filter_map(|(what, outcome)| Some((what, outcome.err()?)));
    errors.map(|(what, error)| format!("{with} {what}: {error:#}")).collect()
}

/// Debian's package of Chromium without a window, and its program.
const CHROMIUM: &str = "chromium-headless-shell";

/// Which of the suites with real clients and servers are run.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Wanted {
    Quick,
    /// Also what takes minutes.
    Slow,
    /// Only the engines that keep their data on HDFS.
    Ecosystem,
}

/// One suite: its name, and what runs it and counts its tests.
pub type Suite<'a> = (String, Box<dyn FnOnce(&mut Tally, &str) -> Result<()> + Send + 'a>);
type Suites<'a> = VecDeque<Suite<'a>>;

/// Runs suites, one more at a time than there are processors, for most of them wait more than they compute. The first worker takes the first of
/// those left, every other one the last, so that in a whole run the crates' own tests, which load the processors, rarely run beside one another.
///
/// Returns the time from the end of the first worker, for which no suite was left, to that of the last.
fn run_all<'a>(tally: &mut Tally, suites: Suites<'a>) -> Duration {
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    // Each suite has up to 2 GiB of servers.
    let at_a_time = (processors + 1).min(4);
    let suites = Mutex::new(suites);
    let tally = Mutex::new(tally);
    let first_end = OnceLock::new();
    let worker = |next: fn(&mut Suites<'a>) -> Option<Suite<'a>>| {
        loop {
            let suite = next(&mut suites.lock().expect("no worker panics with it"));
            let Some((name, run)) = suite else {
                first_end.get_or_init(Instant::now);
                return;
            };
            let (mut own, started) = (Tally::default(), Instant::now());
            if let Err(error) = run(&mut own, &name) {
                own.fail(format!("{name}: {error:#}"));
            }
            own.seconds.push((name, started.elapsed().as_secs_f64()));
            tally.lock().expect("no worker panics with it").add(own);
        }
    };
    std::thread::scope(|scope| {
        scope.spawn(|| worker(VecDeque::pop_front));
        for _ in 1..at_a_time {
            scope.spawn(|| worker(VecDeque::pop_back));
        }
    });
    first_end.get().map_or(Duration::ZERO, Instant::elapsed)
}

/// The tests of all crates but `tests/interop`, then the examples in their documentation.
fn crates<'a>(filter: &[&str]) -> Result<Vec<Suite<'a>>> {
    let mut suites = Vec::new();
    for program in programs()?.iter().filter(|program| program.package != INTEROP) {
        let mut command = program.command();
        command.args(filter);
        suites.push(counted(program.name(), command));
    }
    let mut examples = run::cargo();
    examples.args(["test", "--workspace", "--doc", "--no-fail-fast", "--"]).args(filter);
    suites.push(counted("examples in the documentation".to_owned(), examples));
    Ok(suites)
}

/// Real clients and servers.
fn interop<'a>(tally: &mut Tally, must_be_whole: bool, filter: &[&str], wanted: Wanted) -> Result<Vec<Suite<'a>>> {
    let bindings = bindings(tally, must_be_whole, wanted);
    let jdks = (wanted == Wanted::Ecosystem).then(java::native_jdks).transpose();
    let jdks = jdks.unwrap_or_else(|error| {
        tally.missing(must_be_whole, format!("Hearth's jar with other versions of Java: {error:#}"));
        None
    });
    let jdks = jdks.map(|jdks| java::jdks_variable(&jdks));
    let mut suites = Vec::new();
    for program in programs()?.iter().filter(|program| program.package == INTEROP && program.kind == "test") {
        let is_ecosystem = ECOSYSTEM.contains(&program.target.as_str());
        if is_ecosystem != (wanted == Wanted::Ecosystem) {
            continue;
        }
        let mut command = program.command();
        command.envs(bindings.iter().map(|(name, path)| (name, path)));
        // `hearth_interop::slow` and `ecosystem` look at these.
        command.env(SLOW_VARIABLE, if wanted == Wanted::Slow { "1" } else { "0" });
        command.env("HEARTH_TEST_ECOSYSTEM", if is_ecosystem { "1" } else { "0" });
        if let Some(jdks) = &jdks {
            command.env("HEARTH_TEST_JDKS", jdks);
        }
        if wanted == Wanted::Slow {
            // Tests of libtest that take long; `hearth_interop::suite` ignores the flag.
            command.arg("--include-ignored");
        }
        command.arg("--test-threads=1").args(filter);
        suites.push(counted(program.target.clone(), command));
    }
    Ok(suites)
}

/// Makes the jar, the C library and the Python package of what was built with the tests; for the engines only the jar, since their suite makes
/// the package itself. Returns the variables that tell the suites where they are. Those that cannot be made are counted as missing.
fn bindings(tally: &mut Tally, must_be_whole: bool, wanted: Wanted) -> Vec<(&'static str, PathBuf)> {
    let mut made = Vec::new();
    let mut note = |name, what: &str, outcome: Result<PathBuf>| match outcome {
        Ok(path) => {
            made.push((name, path.clone()));
            Some(path)
        }
        Err(error) => {
            tally.missing(must_be_whole, format!("interop with {what}: {error:#}"));
            // Not one that was built earlier, of other sources.
            made.push((name, PathBuf::from("/nonexistent")));
            None
        }
    };
    note("HEARTH_JAR", "Hearth's jar", hearth_jar());
    if wanted == Wanted::Ecosystem {
        return made;
    }
    let archive = LIBHDFS_ARCHIVE.get().context("cargo built no archive of the C library");
    let linked = archive.and_then(|archive| libhdfs::link_for_tests(archive));
    if let Some(prefix) = note("HEARTH_LIBHDFS", "the C library", linked) {
        note("HEARTH_WHEEL", "the Python package", wheel::pack(&prefix, libhdfs::Profile::Debug));
    }
    made
}

fn counted<'a>(name: String, mut command: Command) -> Suite<'a> {
    (name, Box::new(move |tally, name| suite(tally, name, &mut command)))
}

/// Builds the jar of the Java binding with the library that was built with the tests. Without debug information it has
/// less than half the size: each JVM of the suites unpacks it.
fn hearth_jar() -> Result<PathBuf> {
    let library = NATIVE_LIBRARY.get().context("cargo has built no library of the Java binding")?;
    run::require(&[("strip", "--version")], &["binutils"])?;
    let directory = crate::target().join("java-test-library");
    std::fs::create_dir_all(&directory).with_context(|| format!("cannot make {}", directory.display()))?;
    let stripped = directory.join("libhearth_java.so");
    run::run_or_fail(Command::new("strip").arg("--strip-debug").arg(library).arg("-o").arg(&stripped))?;
    java::jar(&[(std::env::consts::ARCH, stripped)], &crate::target().join("java-test"))
}

/// The Java binding's native library, which cargo builds with its tests.
static NATIVE_LIBRARY: OnceLock<PathBuf> = OnceLock::new();

/// A program that cargo has built of tests.
pub struct TestProgram {
    pub package: String,
    /// Name of the library, program or file in `tests/` that it tests.
    pub target: String,
    /// `lib`, `bin`, `test`, `example`.
    kind: String,
    pub path: PathBuf,
    /// Folder of the package, where cargo would run it.
    folder: PathBuf,
}

impl TestProgram {
    fn name(&self) -> String {
        match self.kind.as_str() {
            "test" => format!("{} tests/{}", self.package, self.target),
            kind => format!("{} {kind}", self.package),
        }
    }

    /// Runs it as cargo would. The servers that it starts are those that were built with it: `cargo build --package hearth` would compile
    /// them a second time, with the features that the program alone asks for.
    fn command(&self) -> Command {
        let mut command = Command::new(&self.path);
        command.current_dir(&self.folder).env("HEARTH_PROGRAM", crate::target().join("debug/hearth"));
        command
    }
}

/// The C library's archive, which is built with the programs of tests.
static LIBHDFS_ARCHIVE: OnceLock<PathBuf> = OnceLock::new();

/// Builds all programs of tests, once, for the whole workspace: so cargo chooses one set of features, and compiles nothing twice.
pub fn programs() -> Result<&'static [TestProgram]> {
    static PROGRAMS: OnceLock<Vec<TestProgram>> = OnceLock::new();
    if let Some(programs) = PROGRAMS.get() {
        return Ok(programs);
    }
    let mut build = run::cargo();
    build.args(["test", "--workspace", "--no-run", "--message-format", "json-render-diagnostics"]);
    let started = begin("the test programs", &build);
    let output =
        build.stderr(Stdio::inherit()).output().with_context(|| format!("cannot start {}", run::spelled(&build)))?;
    end("the test programs", started);
    ensure!(output.status.success(), "{} ended with {}", run::spelled(&build), output.status);
    let mut programs = Vec::new();
    for line in output.stdout.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
        let message: serde_json::Value = serde_json::from_slice(line).context("cargo's messages")?;
        let text = |value: &serde_json::Value| value.as_str().map(str::to_owned);
        let files = message["filenames"].as_array().into_iter().flatten().filter_map(|file| file.as_str());
        if let Some(archive) = files.map(PathBuf::from).find(|file| libhdfs::is_archive(file)) {
            let _ = LIBHDFS_ARCHIVE.set(archive);
        }
        if message["target"]["name"] == "hearth_java"
            && message["target"]["kind"][0] == "cdylib"
            && let Some(library) = text(&message["filenames"][0])
        {
            NATIVE_LIBRARY.get_or_init(|| library.into());
        }
        let (true, Some(path)) = (message["profile"]["test"] == true, text(&message["executable"])) else { continue };
        let manifest = text(&message["manifest_path"]).context("cargo names the manifest of each program")?;
        let folder = PathBuf::from(manifest).parent().context("a manifest lies in a folder")?.to_owned();
        // `path+file:///…/crates/cli#hearth@0.1.0`; a package named as its folder has only the version behind the `#`.
        let id = text(&message["package_id"]).context("cargo names the package of each program")?;
        let package = match id.rsplit_once('#').map_or(id.as_str(), |(_, rest)| rest).split_once('@') {
            Some((name, _)) => name.to_owned(),
            None => folder.file_name().unwrap_or_default().to_string_lossy().into_owned(),
        };
        programs.push(TestProgram {
            package,
            target: text(&message["target"]["name"]).context("cargo names the target of each program")?,
            kind: text(&message["target"]["kind"][0]).context("cargo names the kind of each program")?,
            path: path.into(),
            folder,
        });
    }
    ensure!(!programs.is_empty(), "cargo named no test programs");
    programs.sort_by_key(TestProgram::name);
    Ok(PROGRAMS.get_or_init(|| programs))
}

/// One command that passes or fails as a whole.
fn check(tally: &mut Tally, name: &str, command: &mut Command) {
    let started = begin(name, command);
    match run::run_or_fail(command) {
        Ok(()) => tally.passed += 1,
        Err(error) => {
            tally.fail(format!("{name}: {error:#}"));
        }
    }
    end(name, started);
}

/// A program whose tests are counted one by one. Each line it prints is shown with the suite's name, because another suite may run beside it.
fn suite(tally: &mut Tally, name: &str, command: &mut Command) -> Result<()> {
    let started = begin(name, command);
    let mut child = command.stdout(Stdio::piped()).spawn().with_context(|| format!("cannot start {name}"))?;
    let output = child.stdout.take().expect("piped above");
    let failed_before = tally.failed;
    for line in BufReader::new(output).split(b'\n') {
        let line = line.context("reading the tests' output")?;
        tally.line(name, &String::from_utf8_lossy(&line));
    }
    let status = child.wait().with_context(|| format!("waiting for {name}"))?;
    // A test that does not compile, or a crash, reports no counts.
    if !status.success() && tally.failed == failed_before {
        tally.fail(format!("{name}: {} ended with {status}", run::spelled(command)));
    }
    end(name, started);
    Ok(())
}

/// `(passed, failed)` of libtest's closing line.
fn counts(line: &str) -> Option<(u64, u64)> {
    let rest = line.strip_prefix("test result: ")?;
    let rest = rest.strip_prefix("ok. ").or_else(|| rest.strip_prefix("FAILED. "))?;
    let mut parts = rest.split("; ");
    let passed = parts.next()?.strip_suffix(" passed")?.parse().ok()?;
    let failed = parts.next()?.strip_suffix(" failed")?.parse().ok()?;
    Some((passed, failed))
}

pub fn begin(name: &str, command: &Command) -> Instant {
    println!("\n=== {name}: {}", run::spelled(command));
    Instant::now()
}

pub fn end(name: &str, started: Instant) {
    println!("=== {name}: {:.0} s", started.elapsed().as_secs_f64());
}

#[cfg(test)]
mod tests {
    use super::{Suites, Tally, counts, place_from_end, run_all};

    #[test]
    fn what_failed_tests_say_is_kept() {
        let mut tally = Tally::default();
        let lines =
            ["failures:", "", "---- one stdout ----", "why", "", "---- two ----", "how", "failures:", "    one"];
        for line in lines.iter().chain(&["test result: FAILED. 1 passed; 2 failed; 0 ignored", "rest"]) {
            tally.line("suite", line);
        }
        let said: Vec<_> = tally.said.iter().map(|said| (said.heading.as_str(), said.first.join("|"))).collect();
        assert_eq!(said, [("---- suite: one stdout ----", "why|".into()), ("---- suite: two ----", "how".to_owned())]);
        // The suites with real servers say it at once.
        for line in ["---- suite::A+B::check ----", "waited in vain", "test suite::A+B::check ... FAILED", "2.0 s"] {
            tally.line("cluster", line);
        }
        let last = tally.said.last().unwrap();
        assert_eq!(
            (last.heading.as_str(), last.first.join("|").as_str()),
            ("---- cluster: suite::A+B::check ----", "waited in vain")
        );
        assert_eq!(tally.failures, ["cluster: suite::A+B::check"]);
        (0..100).for_each(|number| tally.said[0].line(&number.to_string()));
        let said = &tally.said[0];
        assert_eq!((said.first.len(), said.left_out, said.last.back().unwrap().as_str()), (24, 70, "99"));
    }

    #[test]
    fn libtest_closing_lines_are_counted() {
        let ok = "test result: ok. 12 passed; 0 failed; 1 ignored; 0 measured; 3 filtered out; finished in 0.01s";
        assert_eq!(counts(ok), Some((12, 0)));
        let bad = "test result: FAILED. 3 passed; 2 failed; 0 ignored; 0 measured; 0 filtered out; finished in 9.10s";
        assert_eq!(counts(bad), Some((3, 2)));
        assert_eq!(counts("test counts ... ok"), None);
    }

    #[test]
    fn every_suite_runs_once_and_is_counted() {
        let mut suites = Suites::new();
        for number in 0..9 {
            suites.push_back((
                number.to_string(),
                Box::new(move |tally, name| {
                    tally.line(name, "test result: ok. 2 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out");
                    anyhow::ensure!(number != 4, "cannot start");
                    Ok(())
                }),
            ));
        }
        let mut tally = Tally::default();
        run_all(&mut tally, suites);
        assert_eq!((tally.passed, tally.failed, tally.failures), (18, 1, vec!["4: cannot start".to_owned()]));
    }

    #[test]
    fn longest_suites_come_last() {
        let mut names = ["contract", "hearth-types lib", "java", "shell"];
        names.sort_by_key(|name| place_from_end(name));
        assert_eq!(names, ["hearth-types lib", "shell", "contract", "java"]);
    }
}
