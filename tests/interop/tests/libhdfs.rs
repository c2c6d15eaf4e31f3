//! Programs in C, and PyArrow, on the library of `bindings/c` in the place of Apache's libhdfs.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Output};

use anyhow::{Context, Result, bail, ensure};
use hearth_interop::{Check, Session, Suite, run};
use hearth_testkit::{
    ClusterSpec, Implementation, apache_libhdfs_headers, libhdfs, python_with_libraries, skip_or_fail, workspace_root,
};

const BLOCK: u64 = 1 << 20;

const CHECKS: &[Check] = &[("c_program_calls_every_function", every_function), ("pyarrow_needs_no_java", pyarrow)];

const MORE_CHECKS: &[Check] = &[
    ("interface_is_apaches", interface),
    ("program_compiled_with_apaches_header_runs", apaches_header),
    ("only_libc_is_needed", only_libc),
    ("class_path_gives_the_configuration", class_path),
    ("valgrind_finds_no_error", valgrind),
    ("nothing_leaks", leaks),
];

fn main() -> ExitCode {
    let of = |implementation| {
        ClusterSpec::new(implementation, implementation)
            .set("dfs.blocksize", BLOCK)
            .set("dfs.client.block.write.locateFollowingBlock.initial.delay.ms", 2)
            .set("dfs.client.block.write.locateFollowingBlock.retries", 14)
    };
    let hearth = of(Implementation::Hearth).short_circuit();
    run(&[
        Suite { name: "libhdfs", clusters: vec![of(Implementation::Apache), hearth.clone()], checks: CHECKS },
        Suite { name: "libhdfs", clusters: vec![hearth], checks: MORE_CHECKS },
    ])
}

/// Compiles a program of `tests/interop/c` with the headers of `include`, and links it with the library.
fn compile(session: &Session, name: &str, include: &[&Path]) -> Result<PathBuf> {
    let prefix = libhdfs()?;
    let lib = prefix.join("lib");
    let program = session.local("c")?.join(name);
    let mut command = Command::new("cc");
    command.args(["-std=gnu11", "-g", "-O1", "-Wall", "-Wextra", "-Werror"]);
    for directory in include.iter().copied().chain([prefix.join("include").as_path()]) {
        command.arg("-I").arg(directory);
    }
    command.arg(workspace_root().join("tests/interop/c").join(name).with_extension("c"));
    command.arg("-o").arg(&program).arg("-L").arg(&lib).args(["-lhdfs", "-pthread"]);
    success(&command.arg(format!("-Wl,-rpath,{}", lib.display())).output().context("cannot start cc")?)?;
    Ok(program)
}

/// Returns what a program printed, which must have ended well.
fn success(output: &Output) -> Result<String> {
    let [printed, errors] = [&output.stdout, &output.stderr].map(|text| String::from_utf8_lossy(text).into_owned());
    ensure!(output.status.success(), "{}\n{printed}\n{errors}", output.status);
    Ok(printed)
}

/// Returns a command without the variables that Hadoop's programs look at, except for the configuration.
fn configured(session: &Session, program: impl AsRef<std::ffi::OsStr>) -> Command {
    let mut command = Command::new(program);
    command.env_clear().env("HADOOP_CONF_DIR", session.cluster.conf()).env("HADOOP_USER_NAME", user());
    command
}

/// The superuser, which may change owners.
fn user() -> String {
    hearth_client::os_user_name()
}

fn arguments(session: &Session) -> [String; 3] {
    let path = if session.cluster.all_datanodes_are_hearth() { "in-place" } else { "copied" };
    [path.to_owned(), "127.0.0.1".to_owned(), session.cluster.namenode_rpc_port().to_string()]
}

fn every_function(session: &mut Session) -> Result<()> {
    let program = compile(session, "every_function", &[])?;
    // What the program calls is what it has undefined.
    let output = Command::new("nm").args(["--undefined-only", "--format=just-symbols"]).arg(&program).output()?;
    let symbols = success(&output)?;
    let called: BTreeSet<&str> = symbols.lines().filter_map(|line| line.split('@').next()).collect();
    let missing: Vec<String> = functions()?.into_iter().filter(|name| !called.contains(name.as_str())).collect();
    ensure!(missing.is_empty(), "the program does not call {missing:?}");
    success(&configured(session, &program).args(arguments(session)).output()?)?;
    Ok(())
}

/// Returns the names of all functions in the headers.
fn functions() -> Result<BTreeSet<String>> {
    let mut names = BTreeSet::new();
    for header in ["hdfs.h", "hearth.h"] {
        names.extend(prototypes(&workspace_root().join("bindings/c/include").join(header))?.iter().map(|line| {
            let before = line.split('(').next().unwrap_or_default();
            before.rsplit([' ', '*']).next().unwrap_or_default().to_owned()
        }));
    }
    ensure!(names.len() > 90, "found only {} functions in the headers", names.len());
    Ok(names)
}

/// Returns the lines of a header that declare functions.
fn prototypes(header: &Path) -> Result<Vec<String>> {
    let text = fs::read_to_string(header).with_context(|| format!("cannot read {}", header.display()))?;
    let is_prototype =
        |line: &&str| line.ends_with(");") && !line.starts_with([' ', '/']) && !line.starts_with("typedef");
    Ok(text.lines().filter(is_prototype).map(str::to_owned).collect())
}

/// Sizes and offsets as the C compiler finds them, and the symbols of the library with their versions.
fn interface(session: &mut Session) -> Result<()> {
    let table = success(&Command::new(compile(session, "table", &[])?).output()?)?;
    let expected = workspace_root().join("tests/interop/c/table.txt");
    let expected = fs::read_to_string(&expected).with_context(|| format!("cannot read {}", expected.display()))?;
    ensure!(table == expected, "not as in table.txt:\n{table}");
    let library = libhdfs()?.join("lib/libhdfs.so");
    let output =
        Command::new("nm").args(["--dynamic", "--defined-only", "--format=just-symbols"]).arg(library).output()?;
    let symbols = success(&output)?;
    let versions = ["LIBHDFS_3.4", "HEARTH_0.1"];
    let found: BTreeSet<&str> =
        symbols.lines().filter(|symbol| !versions.iter().any(|version| symbol.starts_with(version))).collect();
    let functions = functions()?;
    let expected: BTreeSet<String> = functions
        .iter()
        .map(|name| format!("{name}@@{}", if name.starts_with("hearth_") { versions[1] } else { versions[0] }))
        .collect();
    let expected: BTreeSet<&str> = expected.iter().map(String::as_str).collect();
    let differing: Vec<_> = found.symmetric_difference(&expected).collect();
    ensure!(differing.is_empty(), "the library's symbols are not those of the headers: {differing:?}");
    Ok(())
}

/// Apache's header, of the last version that a package registry has, gives the same table and accepts our declarations.
/// Version 3.4 added the opening in the background.
fn apaches_header(session: &mut Session) -> Result<()> {
    let headers = match apache_libhdfs_headers() {
        Ok(headers) => headers,
        Err(error) => {
            skip_or_fail("libhdfs::program_compiled_with_apaches_header_runs", &error);
            return Ok(());
        }
    };
    let ours = workspace_root().join("bindings/c/include/hdfs.h");
    let text = fs::read_to_string(&ours)?;
    let unit = text.find("typedef enum javaConcurrentTimeUnit").context("our header has the units of time")?;
    let end = unit
        + text[unit..].find("} javaConcurrentTimeUnit;\n").context("the units end")?
        + "} javaConcurrentTimeUnit;\n".len();
    let later = [
        "typedef struct hdfsOpenFileBuilder hdfsOpenFileBuilder;",
        "typedef struct hdfsOpenFileFuture hdfsOpenFileFuture;",
        &text[unit..end],
    ];
    let include = session.local("apache")?;
    let both = format!(
        "#include \"{}\"\n#ifndef BOTH\n#define BOTH\n{}\n{}\n#endif\n",
        headers.join("hdfs.h").display(),
        later.join("\n"),
        prototypes(&ours)?.join("\n")
    );
    fs::write(include.join("hdfs.h"), both)?;
    let table = success(&Command::new(compile(session, "table", &[&include])?).output()?)?;
    ensure!(
        table == fs::read_to_string(workspace_root().join("tests/interop/c/table.txt"))?,
        "Apache's table:\n{table}"
    );
    let program = compile(session, "every_function", &[&include])?;
    success(&configured(session, &program).args(arguments(session)).output()?)?;
    Ok(())
}

fn only_libc(_: &mut Session) -> Result<()> {
    let output = Command::new("readelf").arg("-d").arg(libhdfs()?.join("lib/libhdfs.so")).output()?;
    let text = success(&output)?;
    let named = |tag: &str| -> Vec<String> {
        let lines = text.lines().filter(|line| line.contains(tag));
        lines.filter_map(|line| line.split(['[', ']']).nth(1).map(str::to_owned)).collect()
    };
    ensure!(named("(SONAME)") == ["libhdfs.so.0.0.0"], "soname {:?}", named("(SONAME)"));
    let libc = ["libc.so.6", "libm.so.6", "libpthread.so.0", "libdl.so.2", "librt.so.1"];
    let needed = named("(NEEDED)");
    let others: Vec<_> =
        needed.iter().filter(|name| !libc.contains(&name.as_str()) && !name.starts_with("ld-linux")).collect();
    ensure!(!needed.is_empty() && others.is_empty(), "needs {needed:?}");
    let modules = Command::new("pkg-config")
        .env("PKG_CONFIG_PATH", libhdfs()?.join("lib/pkgconfig"))
        .args(["--libs", "libhdfs"])
        .output();
    // Not every machine has pkg-config.
    if let Ok(output) = modules {
        ensure!(success(&output)?.contains("-lhdfs"), "pkg-config");
    }
    Ok(())
}

/// A directory on CLASSPATH takes the place of HADOOP_CONF_DIR, as for Apache's library.
fn class_path(session: &mut Session) -> Result<()> {
    let program = compile(session, "every_function", &[])?;
    let mut command = configured(session, &program);
    command
        .env_remove("HADOOP_CONF_DIR")
        .env("CLASSPATH", format!("/nowhere/x.jar:{}", session.cluster.conf().display()));
    success(&command.args(arguments(session)).output()?)?;
    Ok(())
}

fn valgrind(session: &mut Session) -> Result<()> {
    let program = compile(session, "every_function", &[])?;
    if Command::new("valgrind").arg("--version").output().is_err() {
        let missing = hearth_testkit::Missing { what: "valgrind", cure: "apt-get install valgrind" };
        skip_or_fail("libhdfs::valgrind_finds_no_error", missing);
        return Ok(());
    }
    let mut command = configured(session, "/usr/bin/env");
    command.args([
        "valgrind",
        "--quiet",
        // They would only name more functions in an error, and reading them takes long.
        "--read-inline-info=no",
        "--error-exitcode=9",
        "--leak-check=full",
        "--errors-for-leak-kinds=definite",
    ]);
    command.args(["--show-leak-kinds=definite", "--fair-sched=yes"]).arg(program).args(arguments(session));
    command.env("PATH", std::env::var_os("PATH").unwrap_or_default());
    success(&command.output()?)?;
    Ok(())
}

fn leaks(session: &mut Session) -> Result<()> {
    let program = compile(session, "leaks", &[])?;
    success(&configured(session, program).output()?)?;
    Ok(())
}

/// PyArrow and fsspec with the library, on a machine without Java: with an empty PATH and without JAVA_HOME.
fn pyarrow(session: &mut Session) -> Result<()> {
    let python = match python_with_libraries() {
        Ok(python) => python,
        Err(error) => {
            skip_or_fail("libhdfs::pyarrow_needs_no_java", &error);
            return Ok(());
        }
    };
    let lib = libhdfs()?.join("lib");
    let script = workspace_root().join("tests/interop/python/pyarrow_on_libhdfs.py");
    let by_library_path = format!("{}:{}", lib.display(), lib.join("server").display());
    // The second way is for programs that cannot change LD_LIBRARY_PATH.
    let ways = [
        vec![("LD_LIBRARY_PATH", by_library_path.as_str()), ("JAVA_HOME", "")],
        vec![("ARROW_LIBHDFS_DIR", lib.to_str().context("text")?), ("JAVA_HOME", libhdfs_home(&lib)?)],
    ];
    for variables in ways {
        let mut command = configured(session, &python);
        command.arg(&script).env("PATH", "").envs(variables.clone());
        let printed = success(&command.output()?).with_context(|| format!("{variables:?}"))?;
        ensure!(printed.ends_with("all is well\n"), "{printed}");
    }
    Ok(())
}

fn libhdfs_home(lib: &Path) -> Result<&str> {
    match lib.parent().and_then(Path::to_str) {
        Some(home) => Ok(home),
        None => bail!("{} has no parent", lib.display()),
    }
}
