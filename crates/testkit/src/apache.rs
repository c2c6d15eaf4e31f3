//! Apache Hadoop's programs: daemons, command-line tools and the Java client driver.

use std::collections::hash_map::DefaultHasher;
use std::ffi::OsStr;
use std::fs;
use std::hash::{Hash, Hasher};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

use crate::prerequisites::{
    APACHE_VERSION, apache_contract_lib, apache_jobs_lib, apache_lib, apache_libhdfs, hearth_jar, workspace_root,
};

/// Location of the jars, and the options of JVMs that use them.
#[derive(Clone)]
pub struct Apache {
    lib: PathBuf,
    /// The program `java`.
    java: PathBuf,
    options: Vec<String>,
    /// Jars on the class path of clients besides Apache's.
    jars: Vec<PathBuf>,
    /// JVMs map Hadoop's classes from an archive.
    archive: Option<ClassArchive>,
}

/// An archive of Hadoop's classes that `cargo xtask apache` makes. A JVM maps it instead of loading and verifying each
/// class, which is most of the CPU time of a short command. The JVM ignores an archive that does not fit.
#[derive(Clone)]
struct ClassArchive {
    file: PathBuf,
    /// The class path that it was made with. A JVM uses the archive if its own class path begins with it.
    class_path: String,
}

impl ClassArchive {
    /// `lib`: the directory of Hadoop's jars.
    fn find(lib: &Path) -> Option<Self> {
        let (file, class_path) = (lib.with_file_name("classes.jsa"), lib.with_file_name("classes.path"));
        let class_path = fs::read_to_string(class_path).ok()?;
        // One that was made before the repository was moved names jars that are not there.
        let is_of_this_place = class_path.split(':').next().is_some_and(|jar| Path::new(jar).starts_with(lib));
        (is_of_this_place && file.is_file()).then_some(Self { file, class_path })
    }
}

/// Output and exit code of a command-line tool.
pub struct ToolOutput {
    /// Exit code; -1 if a signal ended the tool.
    pub code: i32,
    pub stdout: String,
    pub stderr: String,
}

impl ToolOutput {
    fn of(output: std::process::Output) -> Self {
        Self {
            code: output.status.code().unwrap_or(-1),
            stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }

    /// Returns the standard output of a tool that must succeed.
    pub fn success(self) -> Result<String> {
        if self.code != 0 {
            bail!("ended with {}\n{}\n{}", self.code, self.stdout, self.stderr);
        }
        Ok(self.stdout)
    }
}

impl Apache {
    /// Finds the jars. Error of kind [`crate::Missing`] if they were not fetched. JVMs start with options for a fast
    /// start, which suits tests; measurements use [`Apache::for_measuring`].
    pub fn find() -> Result<Self> {
        // Without its file of counters in the directory for temporary files: a JVM stops where it writes to that file
        // while a busy disk writes it back.
        let options = [OPEN_PACKAGE, "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xshare:auto", "-XX:-UsePerfData"];
        let options = options.map(str::to_owned).to_vec();
        let lib = apache_lib(APACHE_VERSION)?;
        let archive = ClassArchive::find(&lib);
        Ok(Self { lib, java: "java".into(), options, jars: Vec::new(), archive })
    }

    /// Finds the jars of another version, e.g. 3.3.6.
    pub fn of_version(version: &str) -> Result<Self> {
        let lib = apache_lib(version)?;
        let archive = ClassArchive::find(&lib);
        Ok(Self { lib, archive, ..Self::find()? })
    }

    /// Adds libhadoop, as in a Hadoop distribution: Unix sockets, file descriptors, native CRCs.
    ///
    /// Error of kind [`crate::Missing`] if it was not fetched.
    pub fn with_native(mut self) -> Result<Self> {
        if !self.has_native() {
            bail!(crate::Missing { what: "libhadoop", cure: "cargo xtask apache" });
        }
        let option = format!("-Djava.library.path={}", self.native().display());
        if !self.options.contains(&option) {
            self.options.push(option);
        }
        Ok(self)
    }

    /// Adds the jar of Hearth's Java binding.
    ///
    /// Error of kind [`crate::Missing`] if it was not built.
    pub fn with_hearth_jar(mut self) -> Result<Self> {
        self.jars.push(hearth_jar()?);
        Ok(self)
    }

    /// Starts JVMs of another JDK, whose program `java` this is. They get only options that every such version has.
    pub fn on_jdk(mut self, java: &Path, version: u32) -> Self {
        self.java = java.to_owned();
        self.options = vec!["-XX:+UseSerialGC".to_owned()];
        if version > 8 {
            self.options.push(OPEN_PACKAGE.to_owned());
        }
        // It is of the default JDK.
        self.archive = None;
        self
    }

    /// Adds an option of the JVM.
    pub fn with_option(mut self, option: &str) -> Self {
        self.options.push(option.to_owned());
        self
    }

    /// Uses the JVM options of Hadoop's own scripts: the JVM's defaults, and libhadoop if it exists.
    pub fn for_measuring() -> Result<Self> {
        let (lib, options) = (apache_lib(APACHE_VERSION)?, vec![OPEN_PACKAGE.to_owned()]);
        let apache = Self { lib, java: "java".into(), options, jars: Vec::new(), archive: None };
        if apache.has_native() { apache.with_native() } else { Ok(apache) }
    }

    /// Returns whether libhadoop was fetched. It is built for one processor architecture. On others a JVM silently
    /// continues without it.
    pub fn has_native(&self) -> bool {
        cfg!(target_arch = "x86_64") && self.native().join("libhadoop.so").exists()
    }

    fn native(&self) -> PathBuf {
        self.lib.with_file_name("native")
    }

    /// Returns `java MAIN` with the configuration in `conf`.
    pub fn java(&self, conf: &Path, main: &str) -> Command {
        self.java_with(&[conf], main)
    }

    /// Returns a Java program of `tests/interop/java`, compiled if it has changed.
    pub fn our_java(&self, conf: &Path, main: &str) -> Result<Command> {
        let class_path = format!("{}/*", self.lib.display());
        Ok(self.java_with(&[conf, &compiled("tests/interop/java", &class_path, &[])?], main))
    }

    /// Returns a Java program of `tests/interop/java/jdk`, compiled for Java 8 and later.
    pub fn portable_java(&self, conf: &Path, main: &str) -> Result<Command> {
        let class_path = format!("{}/*", self.lib.display());
        let ours = compiled("tests/interop/java/jdk", &class_path, &["--release", "8"])?;
        Ok(self.java_with(&[conf, &ours], main))
    }

    /// Returns a Java program of `tests/interop/java/contract`, with Apache's contract tests and JUnit.
    ///
    /// Error of kind [`crate::Missing`] if those were not fetched.
    pub fn contract(&self, conf: &Path, main: &str) -> Result<Command> {
        let jars = PathBuf::from(format!("{}/*", apache_contract_lib()?.display()));
        let class_path = format!("{}:{}/*", jars.display(), self.lib.display());
        let ours = compiled("tests/interop/java/contract", &class_path, &[])?;
        // The jars of the tests come before Hadoop's, which no archive allows.
        let unarchived = Self { archive: None, ..self.clone() };
        Ok(unarchived.java_with(&[conf, &ours, &jars], main))
    }

    fn java_with(&self, class_path: &[&Path], main: &str) -> Command {
        let mut command = Command::new(&self.java);
        command.args(&self.options);
        if let Some(archive) = &self.archive {
            command.arg(format!("-XX:SharedArchiveFile={}", archive.file.display()));
            // A JVM that cannot use the archive would say so among the output of the command.
            command.arg("-Xlog:disable");
        }
        command.arg("-cp").arg(self.class_path(class_path));
        command.arg(main).stdin(Stdio::null());
        without_environment(&mut command);
        command
    }

    /// Returns a class path with `others`, the jars of clients, and Hadoop's.
    fn class_path(&self, others: &[&Path]) -> String {
        let web = self.lib.with_file_name("web");
        let others = others.iter().copied().chain(self.jars.iter().map(PathBuf::as_path)).chain([&*web]);
        let others: Vec<String> = others.map(|path| path.display().to_string()).collect();
        let others = others.join(":");
        match &self.archive {
            // Hadoop's jars may come first: they contain no configuration.
            Some(archive) => format!("{}:{others}", archive.class_path),
            None => format!("{others}:{}/*", self.lib.display()),
        }
    }

    /// Lets `command`, a program that loads Apache's libhdfs, find that library and start a JVM in its process, with these jars and options and
    /// the configuration in `conf`. PyArrow looks for both libraries by these variables.
    ///
    /// Error of kind [`crate::Missing`] if the library was not built.
    pub fn embedded(&self, command: &mut Command, conf: &Path) -> Result<()> {
        let libhdfs = apache_libhdfs()?;
        without_environment(command);
        command.env("CLASSPATH", self.class_path(&[conf])).env("JAVA_HOME", libhdfs.join("java"));
        command.env("ARROW_LIBHDFS_DIR", libhdfs).env("HADOOP_CONF_DIR", conf);
        command.env("LIBHDFS_OPTS", self.options.join(" "));
        Ok(())
    }

    /// Runs `hdfs dfs ARGUMENTS`.
    pub fn fs<A: AsRef<OsStr>>(&self, conf: &Path, arguments: impl IntoIterator<Item = A>) -> Result<ToolOutput> {
        self.run(conf, "org.apache.hadoop.fs.FsShell", arguments)
    }

    /// Runs `hdfs dfsadmin ARGUMENTS`.
    pub fn dfsadmin<A: AsRef<OsStr>>(&self, conf: &Path, arguments: impl IntoIterator<Item = A>) -> Result<ToolOutput> {
        self.run(conf, "org.apache.hadoop.hdfs.tools.DFSAdmin", arguments)
    }

    /// Runs `hdfs fsck ARGUMENTS`.
    pub fn fsck<A: AsRef<OsStr>>(&self, conf: &Path, arguments: impl IntoIterator<Item = A>) -> Result<ToolOutput> {
        self.run(conf, "org.apache.hadoop.hdfs.tools.DFSck", arguments)
    }

    /// Runs a program of Apache's MapReduce in one JVM (LocalJobRunner) to its end.
    pub fn job<A: AsRef<OsStr>>(
        &self,
        conf: &Path,
        main: &str,
        arguments: impl IntoIterator<Item = A>,
    ) -> Result<ToolOutput> {
        ended(self.job_command(conf, main)?, arguments)
    }

    /// Returns the command of [`Apache::job`], without arguments.
    pub fn job_command(&self, conf: &Path, main: &str) -> Result<Command> {
        let jars = format!("{}/*", apache_jobs_lib()?.display());
        Ok(self.java_with(&[conf, Path::new(&jars)], main))
    }

    /// Runs one of the project's jobs, of `tests/interop/java/jobs`, in one JVM to its end. They use Hearth's jar, so the
    /// class path must have it: [`Apache::with_hearth_jar`].
    pub fn our_job<A: AsRef<OsStr>>(
        &self,
        conf: &Path,
        main: &str,
        arguments: impl IntoIterator<Item = A>,
    ) -> Result<ToolOutput> {
        let jobs = PathBuf::from(format!("{}/*", apache_jobs_lib()?.display()));
        let own: Vec<String> = self.jars.iter().map(|jar| jar.display().to_string()).collect();
        let class_path = format!("{}:{}/*:{}", jobs.display(), self.lib.display(), own.join(":"));
        let ours = compiled("tests/interop/java/jobs", &class_path, &[])?;
        ended(self.java_with(&[conf, &ours, &jobs], main), arguments)
    }

    /// Runs any main class to its end.
    pub fn run<A: AsRef<OsStr>>(
        &self,
        conf: &Path,
        main: &str,
        arguments: impl IntoIterator<Item = A>,
    ) -> Result<ToolOutput> {
        ended(self.java(conf, main), arguments)
    }
}

/// Runs a command to its end.
fn ended<A: AsRef<OsStr>>(mut command: Command, arguments: impl IntoIterator<Item = A>) -> Result<ToolOutput> {
    let output = command.args(arguments).output().context("cannot start java")?;
    Ok(ToolOutput::of(output))
}

/// JAXB, which Hadoop's WebHDFS loads, needs access to this package.
const OPEN_PACKAGE: &str = "--add-opens=java.base/java.lang=ALL-UNNAMED";

/// Removes Hadoop variables of the test's environment, which must not reach the started programs.
pub(crate) fn without_environment(command: &mut Command) {
    for name in ["HADOOP_CONF_DIR", "HADOOP_USER_NAME", "HADOOP_HOME", "JAVA_TOOL_OPTIONS", "CLASSPATH"] {
        command.env_remove(name);
    }
}

/// Returns the directory of the project's compiled Java classes. It is named after the content of their sources, which
/// are in `sources` of the workspace. `options`: further ones of javac.
pub(crate) fn compiled(sources: &str, class_path: &str, options: &[&str]) -> Result<PathBuf> {
    let sources = workspace_root().join(sources);
    let mut files: Vec<PathBuf> = fs::read_dir(&sources)
        .with_context(|| format!("cannot read {}", sources.display()))?
        .filter_map(|entry| entry.ok().map(|entry| entry.path()))
        .filter(|path| path.extension().is_some_and(|extension| extension == "java"))
        .collect();
    files.sort();
    let mut hasher = DefaultHasher::new();
    for file in &files {
        fs::read(file).with_context(|| format!("cannot read {}", file.display()))?.hash(&mut hasher);
    }
    let classes = workspace_root().join(format!(".cache/java/{:016x}", hasher.finish()));
    if classes.is_dir() {
        return Ok(classes);
    }
    // Compiled in a temporary directory and renamed, because test programs run concurrently.
    let aside = tempfile::Builder::new()
        .prefix("compiling-")
        .tempdir_in(parent_made(&classes)?)
        .context("cannot make a directory for Java classes")?;
    let output = Command::new("javac")
        .args(["-nowarn", "-proc:none"])
        .args(options)
        .arg("-cp")
        .arg(class_path)
        .arg("-d")
        .arg(aside.path())
        .args(&files)
        .output()
        .context("cannot start javac")?;
    if !output.status.success() {
        bail!("javac ended with {}\n{}", output.status, String::from_utf8_lossy(&output.stderr));
    }
    match fs::rename(aside.path(), &classes) {
        Ok(()) => drop(aside.keep()),
        Err(_) if classes.is_dir() => {}
        Err(error) => return Err(error).with_context(|| format!("cannot make {}", classes.display())),
    }
    Ok(classes)
}

fn parent_made(path: &Path) -> Result<&Path> {
    let parent = path.parent().context("a path below the workspace")?;
    fs::create_dir_all(parent).with_context(|| format!("cannot make {}", parent.display()))?;
    Ok(parent)
}
