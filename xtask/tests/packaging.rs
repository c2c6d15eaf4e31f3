//! The files that packages install: units, and examples of configurations. `cargo xtask dist --check` installs and uses them.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

fn packaging() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().join("packaging")
}

/// A directory that is removed at the end.
struct Scratch(PathBuf);

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn files(directory: &Path) -> Vec<PathBuf> {
    let mut found: Vec<PathBuf> = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path()).collect();
    found.sort();
    found
}

fn systemd_reads(units: &[PathBuf]) -> (bool, String) {
    let scratch = Scratch(std::env::temp_dir().join(format!("hearth-units-{}-{}", std::process::id(), units.len())));
    let (system, programs) = (scratch.0.join("usr/lib/systemd/system"), scratch.0.join("usr/bin"));
    for directory in [&system, &programs] {
        fs::create_dir_all(directory).unwrap();
    }
    for program in ["hearth", "install"] {
        fs::copy("/bin/true", programs.join(program)).unwrap();
    }
    // Units on which all others depend.
    for target in ["sysinit", "basic", "shutdown"] {
        fs::write(system.join(format!("{target}.target")), "[Unit]\nDescription=of systemd\n").unwrap();
    }
    let mut names = Vec::new();
    for unit in units {
        let name = unit.file_name().unwrap().to_str().unwrap();
        fs::copy(unit, system.join(name)).unwrap();
        names.push(name.replace("@.", "@demo."));
    }
    let root = format!("--root={}", scratch.0.display());
    let output = Command::new("systemd-analyze").args(["verify", "--man=no", &root]).args(names).output().unwrap();
    (output.status.success(), String::from_utf8_lossy(&output.stderr).into_owned())
}

#[test]
fn systemd_accepts_the_units() {
    if Command::new("systemd-analyze").arg("--version").output().is_err() {
        // Not by println!, which the test harness keeps to itself.
        writeln!(std::io::stdout(), "\nSKIPPED the units' syntax: there is no systemd-analyze").unwrap();
        return;
    }
    let units = files(&packaging().join("files/systemd"));
    assert!(units.len() >= 4, "{units:?}");
    let (accepted, said) = systemd_reads(&units);
    assert!(accepted && said.is_empty(), "{said}");
    // It would report a mistake.
    let wrong = Scratch(std::env::temp_dir().join(format!("hearth-wrong-{}", std::process::id())));
    fs::create_dir_all(&wrong.0).unwrap();
    let unit = wrong.0.join("hearth-datanode.service");
    let text = fs::read_to_string(packaging().join("files/systemd/hearth-datanode.service")).unwrap();
    fs::write(&unit, text.replace("LimitMEMLOCK", "LimitMEMORYLOCK")).unwrap();
    assert!(systemd_reads(&[unit]).1.contains("LimitMEMORYLOCK"));
}

/// Services must not lose acknowledged data or fail under load: the keys that matter for that are there.
#[test]
fn units_have_the_limits_that_servers_need() {
    for name in ["hearth-namenode.service", "hearth-datanode.service", "hearth@.service"] {
        let text = fs::read_to_string(packaging().join("files/systemd").join(name)).unwrap();
        let mut wanted = vec!["Type=notify", "User=hearth", "LimitNOFILE=1048576", "Restart=on-failure"];
        if name != "hearth-namenode.service" {
            wanted.extend(["LimitMEMLOCK=infinity", "TimeoutStopSec=30min"]);
            wanted.push("RequiresMountsFor=/var/lib/hearth /var/lib/hearth/memory");
        }
        for line in wanted {
            assert!(text.lines().any(|own| own == line), "{name} has no {line}");
        }
    }
}

/// Several file systems of `hearth@NAME` run at once: each has its own files, sockets and configuration, and free ports.
#[test]
fn instances_share_nothing() {
    let text = fs::read_to_string(packaging().join("files/systemd/hearth@.service")).unwrap();
    let start = text.lines().find_map(|line| line.strip_prefix("ExecStart=")).unwrap();
    for words in [
        "--dir /var/lib/hearth/up/%i ",
        "--write-conf /run/hearth-%i ",
        "-D dfs.domain.socket.path=/run/hearth-%i/dn_PORT ",
        "--port 0 --http-port 0 ",
    ] {
        assert!(start.contains(words), "{words}: {start}");
    }
    // Last, so that the administrator's options count.
    assert!(start.ends_with(" $HEARTH_UP_OPTIONS"), "{start}");
    assert!(text.lines().any(|line| line == "RuntimeDirectory=hearth-%i"));
}

/// The script finds the setting in each form in which systemd reads it.
#[test]
fn restart_on_upgrade_can_be_turned_off() {
    let text = fs::read_to_string(packaging().join("files/scripts/setup.sh")).unwrap();
    let (_, rest) = text.split_once("! grep -Eqs ").unwrap();
    let (pattern, _) = rest.split_once(" /etc/default/hearth").unwrap();
    let own = fs::read_to_string(packaging().join("files/default")).unwrap();
    let scratch = Scratch(std::env::temp_dir().join(format!("hearth-restart-{}", std::process::id())));
    fs::create_dir_all(&scratch.0).unwrap();
    let file = scratch.0.join("default");
    let key = "HEARTH_RESTART_ON_UPGRADE";
    for (text, is_off) in [
        (own, false),
        (format!("{key}=no\n"), true),
        (format!("HEARTH_LOG=info\n{key}=\"no\" \n"), true),
        (format!("  {key}='no'\n"), true),
        (format!("{key}=yes\n"), false),
        (format!("{key}=nobody\n"), false),
        (format!("#{key}=no\n"), false),
    ] {
        fs::write(&file, &text).unwrap();
        let script = format!("grep -Eqs {pattern} \"$0\"");
        let status = Command::new("sh").args(["-c", &script]).arg(&file).status().unwrap();
        assert_eq!(status.success(), is_off, "{text}");
    }
}

/// logrotate takes the file, and renames or truncates the logs that it names.
#[test]
fn logs_are_rotated() {
    let mut logrotate = match hearth_testkit::logrotate() {
        Ok(command) => command,
        Err(error) => return hearth_testkit::skip_or_fail("logs_are_rotated", error),
    };
    let scratch = Scratch(std::env::temp_dir().join(format!("hearth-logrotate-{}", std::process::id())));
    let home = scratch.0.join("hearth");
    let logs = home.join("up/one/logs");
    fs::create_dir_all(&logs).unwrap();
    let (audit, namenode) = (home.join("audit.log"), logs.join("namenode.log"));
    for log in [&audit, &namenode] {
        fs::write(log, "a line\n").unwrap();
    }
    let text = fs::read_to_string(packaging().join("files/logrotate")).unwrap();
    assert_eq!(text.matches("su hearth hearth\n").count(), 2);
    // The user is made by the package.
    let text = text.replace("su hearth hearth\n", "").replace("/var/lib/hearth", home.to_str().unwrap());
    let (file, state) = (scratch.0.join("logrotate"), scratch.0.join("state"));
    fs::write(&file, text).unwrap();
    let output = logrotate.arg("--force").arg("--state").arg(&state).arg(&file).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said.is_empty(), "{said}");
    // The NameNode makes a new file. Servers of `hearth up --processes` keep theirs.
    assert!(!audit.exists());
    assert_eq!(fs::read_to_string(home.join("audit.log.1")).unwrap(), "a line\n");
    assert_eq!(fs::read_to_string(&namenode).unwrap(), "");
    assert!(logs.join("namenode.log.1.gz").exists());
}

/// The scripts are those of POSIX's shell: packages run them with `sh`.
#[test]
fn shells_read_the_scripts() {
    let folders = ["files/scripts", "check"].map(|folder| files(&packaging().join(folder)));
    let scripts: Vec<_> = folders.iter().flatten().filter(|path| path.extension().is_some_and(|e| e == "sh")).collect();
    assert!(scripts.len() >= 10, "{scripts:?}");
    for script in scripts {
        let output = Command::new("sh").arg("-n").arg(script).output().unwrap();
        assert!(output.status.success(), "{}: {}", script.display(), String::from_utf8_lossy(&output.stderr));
    }
}
