//! The Python package `hearth-hdfs`: its own tests, fsspec's, and the recipes, with the wheel installed.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use anyhow::{Context, Result, ensure};
use hearth_interop::recipes::{SYSTEM_PATH, configured, printed, recipe_pages, run_recipes, with_wheel};
use hearth_interop::{Check, Session, Suite, run};
use hearth_testkit::{
    ClusterSpec, Implementation, Missing, python_wheel, python_with_libraries, skip_or_fail, workspace_root,
};

const BLOCK: u64 = 1 << 20;

const CHECKS: &[Check] = &[
    ("wheel_works_in_an_empty_environment", empty_environment),
    ("tests_of_the_package", own_tests),
    ("every_version_of_python_runs_it", versions),
    ("recipes", recipes),
];

fn main() -> ExitCode {
    let cluster = ClusterSpec::new(Implementation::Hearth, Implementation::Hearth)
        .set("dfs.blocksize", BLOCK)
        .set("dfs.client.block.write.locateFollowingBlock.initial.delay.ms", 2)
        .set("dfs.client.block.write.locateFollowingBlock.retries", 14)
        .short_circuit();
    run(&[Suite { name: "python", clusters: vec![cluster], checks: CHECKS }])
}

/// As a new user would: a virtual environment with nothing in it, the wheel, and a few lines.
fn empty_environment(session: &mut Session) -> Result<()> {
    let home = session.local("empty")?;
    printed(Command::new("python3").args(["-m", "venv"]).arg(&home))?;
    let python = home.join("bin/python");
    let mut install = Command::new(&python);
    install.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-index"]);
    printed(install.arg(python_wheel()?))?;
    let lines = "import hearth\n\
                 fs = hearth.FileSystem()\n\
                 fs.write_file('/notes.txt', b'in memory')\n\
                 print(fs.read_file('/notes.txt').decode(), hearth.__version__)\n";
    let said = printed(configured(session, &python).args(["-c", lines]))?;
    ensure!(said == format!("in memory {}\n", env!("CARGO_PKG_VERSION")), "{said}");
    Ok(())
}

/// Returns Python with the libraries and the wheel, or `None` after saying that the libraries are missing.
fn python_with_wheel(session: &Session, check: &str) -> Result<Option<Command>> {
    match python_with_libraries() {
        Ok(python) => Ok(Some(with_wheel(session, &python)?)),
        Err(error) => {
            skip_or_fail(&format!("python::{check}"), &error);
            Ok(None)
        }
    }
}

fn own_tests(session: &mut Session) -> Result<()> {
    let Some(mut python) = python_with_wheel(session, "tests_of_the_package")? else { return Ok(()) };
    python.env("HEARTH_TEST_DATANODE", session.cluster.datanodes[0].id()?.to_string());
    python.args(["-m", "pytest", "-q", "--maxfail=5", "-p", "no:cacheprovider", "--durations=5"]);
    let said = printed(python.arg(workspace_root().join("bindings/python/tests")))?;
    let last = said.lines().last().unwrap_or_default();
    ensure!(last.contains(" passed") && !last.contains("failed"), "{said}");
    println!("{last}");
    Ok(())
}

/// Oldest and newest minor versions of Python 3 that are looked for.
const MINOR_VERSIONS: std::ops::RangeInclusive<u32> = 9..=14;

/// Runs what may differ between versions with each Python that this machine has.
fn versions(session: &mut Session) -> Result<()> {
    let site = session.local("plain-site")?;
    let mut install = Command::new("python3");
    install.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-index", "--no-deps"]);
    printed(install.arg("--target").arg(&site).arg(python_wheel()?))?;
    let smoke = workspace_root().join("bindings/python/tests/smoke.py");
    let mut found = Vec::new();
    for minor in MINOR_VERSIONS {
        let Some(python) = python_of_version(minor) else { continue };
        let mut command = configured(session, &python);
        command.env("PYTHONPATH", &site).env("PYTHONDONTWRITEBYTECODE", "1").arg(&smoke);
        let said = printed(&mut command)?;
        ensure!(said == "all is well\n", "{said}");
        found.push(minor);
    }
    ensure!(!found.is_empty(), "no Python was found");
    println!("Python 3.{found:?}");
    Ok(())
}

/// Finds Python 3.`minor` on PATH, or among those of pyenv.
fn python_of_version(minor: u32) -> Option<PathBuf> {
    let name = format!("python3.{minor}");
    let on_path = std::env::var_os("PATH").unwrap_or_default();
    let mut directories: Vec<PathBuf> =
        std::env::split_paths(&on_path).filter(|path| !path.ends_with("shims")).collect();
    if let Some(home) = std::env::var_os("HOME") {
        let versions = fs::read_dir(Path::new(&home).join(".pyenv/versions")).into_iter().flatten();
        directories.extend(versions.filter_map(|entry| Some(entry.ok()?.path().join("bin"))));
    }
    directories.into_iter().map(|directory| directory.join(&name)).find(|python| python.is_file())
}

/// Runs the blocks of each page of docs/recipes. That for PyTorch is in the suite `ecosystem`.
fn recipes(session: &mut Session) -> Result<()> {
    let python = match python_with_libraries() {
        Ok(python) => python,
        Err(error) => {
            skip_or_fail("python::recipes", &error);
            return Ok(());
        }
    };
    let (session, mut found) = (&*session, 0);
    for page in recipe_pages()? {
        match page.file_name().and_then(|name| name.to_str()) {
            Some("pytorch.md") => {}
            Some("ray.md") => found += ray(session, &page, &python)?,
            _ => found += run_recipes(session, &page, || with_wheel(session, &python))?,
        }
    }
    ensure!(found >= 7, "only {found} blocks were found in docs/recipes");
    Ok(())
}

/// Runs the page for Ray, which starts processes of its own.
fn ray(session: &Session, page: &Path, python: &Path) -> Result<usize> {
    let has_ray =
        Command::new(python).args(["-c", "import importlib.util; importlib.util.find_spec('ray').name"]).output();
    if !has_ray.context("cannot start Python")?.status.success() {
        skip_or_fail("python::recipes: ray.md", Missing { what: "Ray", cure: "cargo xtask python" });
        return Ok(0);
    }
    // In /tmp: the paths of Ray's sockets must be short.
    let directory = tempfile::Builder::new().prefix("ray-").tempdir_in("/tmp").context("cannot make a directory")?;
    run_recipes(session, page, || {
        let mut command = with_wheel(session, python)?;
        command.env("PATH", SYSTEM_PATH).env("RAY_TMPDIR", directory.path());
        // It would tell its makers that it runs, and would end tasks because other tests use memory.
        command.env("RAY_USAGE_STATS_ENABLED", "0").env("RAY_memory_monitor_refresh_ms", "0");
        Ok(command)
    })
}
