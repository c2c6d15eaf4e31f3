//! `hearth up` as a process, with `hearth fs` and `hearth fsck` as its clients; `hearth demo`, with the commands that it
//! ends with.

#![expect(clippy::disallowed_methods, reason = "it waits for other processes")]

use std::fs;
use std::io::{BufRead, BufReader, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, ExitStatus, Output, Stdio};
use std::rc::Rc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use hearth_testkit::{free_port, sha256_hex, skip_or_fail, wait_until};
use rustix::process::{Pid, Signal, kill_process};

const PROGRAM: &str = env!("CARGO_BIN_EXE_hearth");
const PATIENCE: Duration = Duration::from_secs(120);

/// Running file system. Dropping it ends it.
struct Up {
    child: Child,
    conf: PathBuf,
    /// `hdfs://host:port`
    uri: String,
    /// `host:port`
    web: String,
    complaints: Receiver<String>,
    /// Directory of the replicas in memory and on disk.
    directory: Rc<tempfile::TempDir>,
    /// Exit status, once it has ended.
    ended: Option<ExitStatus>,
}

impl Drop for Up {
    fn drop(&mut self) {
        self.end();
    }
}

fn start(datanodes: usize) -> Up {
    start_in(&directory(), &["--processes", "--datanodes", &datanodes.to_string()])
}

/// Starts one DataNode, whose replicas are only in memory until it ends.
fn start_unflushed() -> Up {
    start_in(&directory(), &["--processes", "--datanodes", "1", "-D", "hearth.memory.flush.delay=3600"])
}

/// A directory on a tmpfs, like replicas in memory.
fn directory() -> Rc<tempfile::TempDir> {
    Rc::new(tempfile::Builder::new().prefix("hearth-up-").tempdir_in("/dev/shm").unwrap())
}

fn start_in(directory: &Rc<tempfile::TempDir>, options: &[&str]) -> Up {
    start_with(directory, options, Stdio::piped())
}

/// `errors`: its standard error. Without a pipe, no complaints are heard.
fn start_with(directory: &Rc<tempfile::TempDir>, options: &[&str], errors: Stdio) -> Up {
    let (data, conf) = (directory.path().join("data"), directory.path().join("conf"));
    let mut child = Command::new(PROGRAM)
        .args(["up", "--port", "0", "--http-port", "0"])
        .args(options)
        .arg("--dir")
        .arg(&data)
        .arg("--memory")
        .arg(directory.path().join("memory"))
        .arg("--write-conf")
        .arg(&conf)
        // The user of the servers is the superuser.
        .env("HADOOP_USER_NAME", "root")
        .env_remove("HADOOP_CONF_DIR")
        .stdout(Stdio::piped())
        .stderr(errors)
        .spawn()
        .unwrap();
    let out = child.stdout.take().unwrap();
    let (sender, complaints) = channel();
    if let Some(err) = child.stderr.take() {
        std::thread::spawn(move || {
            for line in BufReader::new(err).lines().map_while(Result::ok) {
                eprintln!("up: {line}");
                let _ = sender.send(line);
            }
        });
    }
    let (mut uri, mut web) = (String::new(), String::new());
    let mut lines = BufReader::new(out).lines().map_while(Result::ok);
    for line in lines.by_ref() {
        if line.starts_with("hdfs://") {
            uri = line;
        } else if let Some((_, address)) = line.split_once("web pages at http://") {
            web = address.trim_end_matches('/').to_owned();
        } else if line.starts_with("Try:") {
            break;
        }
    }
    assert!(!uri.is_empty() && !web.is_empty(), "hearth up did not start");
    std::thread::spawn(move || lines.for_each(drop));
    Up { child, conf, uri, web, complaints, directory: directory.clone(), ended: None }
}

impl Up {
    /// Ends it in good order.
    fn end(&mut self) -> ExitStatus {
        if let Some(status) = self.ended {
            return status;
        }
        if let Some(pid) = Pid::from_raw(self.child.id() as i32) {
            let _ = kill_process(pid, Signal::TERM);
        }
        let status = self.child.wait().unwrap();
        *self.ended.insert(status)
    }

    /// Returns the files and directories in the tmpfs of the replicas in memory, with the bytes of the files.
    fn in_memory(&self) -> (usize, u64) {
        fn look(directory: &Path) -> (usize, u64) {
            let mut found = (0, 0);
            for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
                // The DataNodes may remove one at any moment.
                let Ok(about) = entry.metadata() else { continue };
                let (count, bytes) = if about.is_dir() { look(&entry.path()) } else { (0, about.len()) };
                found = (found.0 + count + 1, found.1 + bytes);
            }
            found
        }
        look(&self.directory.path().join("memory"))
    }

    fn hearth_as(&self, user: &str, arguments: &[&str]) -> Output {
        let mut command = Command::new(PROGRAM);
        command.args(arguments).env("HADOOP_CONF_DIR", &self.conf).env("HADOOP_USER_NAME", user);
        command.output().unwrap()
    }

    fn hearth(&self, arguments: &[&str]) -> Output {
        self.hearth_as("root", arguments)
    }

    /// Runs a command that must succeed.
    fn done(&self, arguments: &[&str]) -> String {
        let output = self.hearth(arguments);
        assert!(output.status.success(), "{arguments:?}: {output:?}");
        text(&output.stdout)
    }

    /// Waits for an error output that contains `part`.
    fn complains(&self, part: &str) -> String {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let line = self.complaints.recv_timeout(left).unwrap_or_else(|_| panic!("no complaint about {part}"));
            if line.contains(part) {
                return line;
            }
        }
    }

    fn kill_a_datanode(&self) {
        let children = format!("/proc/{0}/task/{0}/children", self.child.id());
        let children = fs::read_to_string(children).unwrap();
        let is_datanode = |pid: &&str| {
            let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            line.split(|byte| *byte == 0).any(|word| word == b"datanode")
        };
        let pid = children.split_whitespace().find(is_datanode).expect("a DataNode is a child");
        kill_process(Pid::from_raw(pid.parse().unwrap()).unwrap(), Signal::KILL).unwrap();
    }

    /// Returns the files of replicas, in memory and on disk.
    fn replica_files(&self) -> Vec<PathBuf> {
        fn find(directory: &Path, found: &mut Vec<PathBuf>) {
            for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
                let path = entry.path();
                if path.is_dir() {
                    find(&path, found);
                } else if entry.file_name().to_string_lossy().starts_with("blk_") {
                    found.push(path);
                }
            }
        }
        let mut found = Vec::new();
        find(self.directory.path(), &mut found);
        found
    }

    fn local_file(&self, name: &str, bytes: &[u8]) -> String {
        let path = self.directory.path().join(name);
        fs::write(&path, bytes).unwrap();
        path.to_str().unwrap().to_owned()
    }
}

/// Width of the terminals here.
const COLUMNS: usize = 80;

/// A program on a pseudo-terminal, which `script` of util-linux provides. Dropping it closes the terminal, and with that
/// ends the program.
struct Terminal {
    script: Child,
    keyboard: ChildStdin,
    lines: Receiver<String>,
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let _ = self.script.kill();
        let _ = self.script.wait();
    }
}

impl Terminal {
    /// Runs a command line of the shell. `script`: the command `script` without arguments, with the environment.
    fn run(mut script: Command, line: &str) -> std::io::Result<Self> {
        let line = format!("stty -echo cols {COLUMNS} rows 24 && exec {line}");
        script.args(["-qec", &line, "/dev/null"]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut script = script.env("SHELL", "/bin/sh").env("TERM", "xterm-256color").spawn()?;
        let (keyboard, screen) = (script.stdin.take().unwrap(), script.stdout.take().unwrap());
        let (sender, lines) = channel();
        std::thread::spawn(move || {
            for line in BufReader::new(screen).lines().map_while(Result::ok) {
                let _ = sender.send(line);
            }
        });
        Ok(Self { script, keyboard, lines })
    }

    /// Returns the lines up to the first that contains `part`.
    fn shows(&self, part: &str) -> Vec<String> {
        let deadline = Instant::now() + PATIENCE;
        let mut shown: Vec<String> = Vec::new();
        while !shown.last().is_some_and(|line| line.contains(part)) {
            let left = deadline.saturating_duration_since(Instant::now());
            match self.lines.recv_timeout(left) {
                Ok(line) => shown.push(line),
                Err(error) => panic!("{error}: no {part:?} in {shown:?}"),
            }
        }
        shown
    }

    /// Presses Ctrl-C. Returns the program's exit code, and the lines up to its end.
    fn interrupt(mut self) -> (Option<i32>, Vec<String>) {
        self.keyboard.write_all(b"\x03").unwrap();
        let deadline = Instant::now() + PATIENCE;
        let mut shown = Vec::new();
        loop {
            match self.lines.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
                Ok(line) => shown.push(line),
                Err(RecvTimeoutError::Disconnected) => return (self.script.wait().unwrap().code(), shown),
                Err(RecvTimeoutError::Timeout) => panic!("the program goes on after Ctrl-C: {shown:?}"),
            }
        }
    }
}

/// Returns whether a character ends a control sequence of a terminal. Source: ECMA-48, 5.4.
fn ends_a_sequence(character: char) -> bool {
    ('@'..='~').contains(&character)
}

/// Returns a text without its control sequences.
fn without_sequences(text: &str) -> String {
    let mut parts = text.split("\x1b[");
    let mut plain = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        plain += part.split_once(ends_a_sequence).map_or("", |(_, rest)| rest);
    }
    plain
}

/// Returns whether a text has colours or weights: control sequences that end in `m`. Progress bars have others.
fn is_styled(text: &str) -> bool {
    let is_parameter = |character: char| !ends_a_sequence(character);
    text.split("\x1b[").skip(1).any(|part| part.trim_start_matches(is_parameter).starts_with('m'))
}

/// Checks that all lines fit the terminal. A carriage return writes over the line.
fn fit_the_terminal(lines: &[String]) {
    for line in lines {
        let plain = without_sequences(line);
        assert!(plain.split('\r').all(|line| line.chars().count() <= COLUMNS), "{line:?}");
    }
}

/// Returns a command that is run in `place` and finds `hearth` by PATH: the demo prints its commands with that name then.
fn command_in(place: &Path, program: &str, arguments: &[&str]) -> Command {
    let programs = Path::new(PROGRAM).parent().unwrap().display().to_string();
    let path = format!("{programs}:{}", std::env::var("PATH").unwrap());
    let mut command = Command::new(program);
    command.args(arguments).current_dir(place).env("PATH", path).env_remove("HADOOP_CONF_DIR");
    command
}

/// Returns whether a directory has no entries.
fn is_empty(directory: &Path) -> bool {
    fs::read_dir(directory).unwrap().next().is_none()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn content() -> Vec<u8> {
    (0..1_500_000_u32).map(|at| (at >> 4) as u8).collect()
}

#[test]
fn killed_datanode_is_restarted() {
    let up = start(2);
    let conf = fs::read_to_string(up.conf.join("hdfs-site.xml")).unwrap();
    let expected = format!("<value>{}</value>", up.web);
    assert!(conf.contains("dfs.namenode.http-address"), "{expected} in {conf}");
    assert!(conf.contains(&expected), "{expected} in {conf}");

    let bytes = content();
    let local = up.local_file("local", &bytes);
    up.done(&["fs", "-put", &local, "/file"]);
    up.kill_a_datanode();
    let said = up.complains("is started again");
    assert!(said.contains("datanode"), "{said}");
    assert!(said.contains("signal: 9"), "{said}");
    up.complains("is back, as process");
    assert!(up.hearth(&["fs", "-cat", "/file"]).stdout == bytes);
    up.done(&["fs", "-put", &local, "/another"]);
    let is_healthy = || Ok((up.hearth(&["fsck", "/"]).status.code() == Some(0)).then_some(()));
    wait_until("a healthy file system", PATIENCE, is_healthy).unwrap();
}

#[test]
fn memory_is_free_after_a_good_end() {
    for processes in [&["--processes"][..], &[]] {
        let directory = directory();
        let bytes = content();
        let mut up = start_in(&directory, &[processes, &["--datanodes", "2"]].concat());
        let local = up.local_file("local", &bytes);
        for name in ["/file", "/small"] {
            up.done(&["fs", "-put", &local, name]);
        }
        up.done(&["fs", "-truncate", "-w", "100", "/small"]);
        assert!(up.in_memory().1 > bytes.len() as u64, "{:?}", up.in_memory());
        assert!(up.end().success(), "{processes:?}");
        up.complains("everything is on disk, and the memory is free");
        assert_eq!(up.in_memory(), (0, 0), "{processes:?}");

        // The next one has it from disk, and keeps it in memory when it is told to.
        let keeping = [processes, &["--datanodes", "2", "-D", "hearth.memory.keep=true"]].concat();
        let mut up = start_in(&directory, &keeping);
        assert!(up.hearth(&["fs", "-cat", "/file"]).stdout == bytes, "{processes:?}");
        assert!(up.hearth(&["fs", "-cat", "/small"]).stdout == bytes[..100], "{processes:?}");
        up.done(&["fs", "-put", &local, "/another"]);
        assert!(up.end().success(), "{processes:?}");
        up.complains("for the next start");
        assert!(up.in_memory().1 > bytes.len() as u64, "{processes:?}: {:?}", up.in_memory());
        let up = start_in(&directory, &keeping);
        assert!(up.hearth(&["fs", "-cat", "/another"]).stdout == bytes, "{processes:?}");
    }
}

/// A file that takes no bytes, like one on a full disk.
fn full() -> Stdio {
    fs::File::options().write(true).open("/dev/full").unwrap().into()
}

#[test]
fn servers_whose_log_cannot_be_written_flush_their_memory() {
    for processes in [&["--processes"][..], &[]] {
        let directory = directory();
        let data = directory.path().join("data");
        fs::create_dir_all(data.join("logs")).unwrap();
        for role in ["namenode", "datanode1"] {
            std::os::unix::fs::symlink("/dev/full", data.join("logs").join(format!("{role}.log"))).unwrap();
        }
        let bytes = content();
        let mut up = start_with(&directory, &[processes, &["-D", "hearth.memory.flush.delay=3600"]].concat(), full());
        let local = up.local_file("local", &bytes);
        up.done(&["fs", "-put", &local, "/file"]);
        assert!(up.hearth(&["fs", "-cat", "/file"]).stdout == bytes, "{processes:?}");
        let on_disk = |up: &Up| {
            let files = up.replica_files().into_iter().filter(|file| file.starts_with(&data));
            files.map(|file| fs::metadata(file).unwrap().len()).sum::<u64>()
        };
        assert_eq!(on_disk(&up), 0, "{processes:?}");
        assert!(up.end().success(), "{processes:?}");
        assert!(on_disk(&up) > bytes.len() as u64, "{processes:?}: {:?}", up.replica_files());
    }
}

#[test]
fn tool_whose_output_is_lost_fails() {
    let output = Command::new(PROGRAM).arg("version").stdout(full()).output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(text(&output.stderr).contains("cannot write the output"), "{output:?}");
}

#[test]
fn demo_fits_80_columns_and_its_commands_work() {
    let (memory, place) = (directory(), tempfile::tempdir().unwrap());
    let command = |program: &str, arguments: &[&str]| command_in(place.path(), program, arguments);
    let demo = command(PROGRAM, &["demo", "--size", "64m", "--memory", memory.path().to_str().unwrap()]).output();
    let demo = demo.unwrap();
    assert!(demo.status.success(), "{demo:?}");
    let said = text(&demo.stdout);
    for line in said.lines() {
        assert!(line.chars().count() <= COLUMNS && !line.contains('\x1b'), "{line:?}");
    }
    for part in [
        "of varied content",
        "a random read of 4.0 KiB",
        "a view of all 64.0 MiB",
        "datanode1 killed",
        "to plain copy",
        "to limit",
        "Plain copies: 3 x cp ",
        "Limits: 3 x memcpy ",
    ] {
        assert!(said.contains(part), "{part}: {said}");
    }
    assert!(is_empty(memory.path()));

    let commands: Vec<&str> = said.lines().skip(said.lines().count() - 3).map(str::trim).collect();
    let mut up = command("sh", &["-c", &format!("exec {}", commands[0])]).stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(up.stdout.take().unwrap()).lines().map_while(Result::ok);
    assert!(lines.any(|line| line.starts_with("Try:")), "{} did not start", commands[0]);
    let [put, list] = [commands[1], commands[2]].map(|line| command("sh", &["-c", line]).output().unwrap());
    kill_process(Pid::from_raw(up.id() as i32).unwrap(), Signal::TERM).unwrap();
    assert!(up.wait().unwrap().success());
    assert!(put.status.success() && list.status.success(), "{put:?} {list:?}");
    assert!(text(&list.stdout).contains(" /hosts\n"), "{list:?}");
}

/// Starts `hearth demo` on a terminal, in `place`. Its files go to `memory` and to `disk`.
fn demo_on_a_terminal(
    place: &Path,
    memory: &Path,
    disk: &Path,
    options: &str,
    no_color: Option<&str>,
) -> std::io::Result<Terminal> {
    let mut script = command_in(place, "script", &[]);
    script.env("TMPDIR", disk).env_remove("NO_COLOR");
    if let Some(value) = no_color {
        script.env("NO_COLOR", value);
    }
    Terminal::run(script, &format!("hearth demo {options} --memory '{}'", memory.display()))
}

#[test]
fn demo_has_colours_on_a_terminal_and_can_be_used_until_ctrl_c() {
    let (memory, place, disk) = (directory(), tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let options = "--size 16m --keep";
    let terminal = match demo_on_a_terminal(place.path(), memory.path(), disk.path(), options, None) {
        Ok(terminal) => terminal,
        Err(error) => return skip_or_fail("demo_has_colours_on_a_terminal_and_can_be_used_until_ctrl_c", error),
    };
    let mut shown = terminal.shows("It runs until Ctrl-C");
    let commands = terminal.shows(" -report");
    shown.extend(commands.iter().cloned());
    fit_the_terminal(&shown);
    let all = shown.join("\n");
    // The title, a step that is done, a result, the head of the table.
    for part in ["\x1b[1mHearth: ", "\x1b[1;32m✓\x1b[0m a NameNode and 3 DataNodes", " ms\x1b[0m  ", "\x1b[2m  "] {
        assert!(all.contains(part), "{part:?}: {all:?}");
    }
    let plain = without_sequences(&all);
    for part in ["16.0 MiB of varied content", "datanode1 killed", "to plain copy", "Limits: 3 x memcpy "] {
        assert!(plain.contains(part), "{part}: {plain}");
    }

    let commands: Vec<&str> = commands.iter().map(|line| line.trim()).collect();
    let [list, hash, report] = commands[..] else { panic!("not three commands: {commands:?}") };
    let run = |line: &str| {
        let output = command_in(place.path(), "sh", &["-c", line]).output().unwrap();
        assert!(output.status.success(), "{line}: {output:?}");
        output.stdout
    };
    let listed = text(&run(list));
    assert!(listed.contains(" 16777216 ") && listed.ends_with(" /demo/file\n"), "{listed}");
    let (cat, _) = hash.split_once(" | ").unwrap();
    let content = run(cat);
    assert_eq!(content.len(), 16 << 20);
    assert_eq!(text(&run(hash)).split_whitespace().next(), Some(sha256_hex(&content).as_str()));
    let reported = text(&run(report));
    assert!(reported.contains("Live datanodes ("), "{reported}");

    assert!(!is_empty(memory.path()) && !is_empty(disk.path()));
    let (code, rest) = terminal.interrupt();
    assert_eq!(code, Some(0), "{rest:?}");
    assert!(is_empty(memory.path()) && is_empty(disk.path()));
}

#[test]
fn demo_on_a_terminal_is_plain_with_no_color_and_ends_at_ctrl_c() {
    let (memory, place, disk) = (directory(), tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let terminal = match demo_on_a_terminal(place.path(), memory.path(), disk.path(), "--size 64m", Some("1")) {
        Ok(terminal) => terminal,
        Err(error) => return skip_or_fail("demo_on_a_terminal_is_plain_with_no_color_and_ends_at_ctrl_c", error),
    };
    // Next it makes the file. The servers get the signal too, and are not in use then.
    let mut shown = terminal.shows("a NameNode and 3 DataNodes");
    fit_the_terminal(&shown);
    let (code, rest) = terminal.interrupt();
    shown.extend(rest);
    assert_eq!(code, Some(130), "{shown:?}");
    assert!(shown.iter().any(|line| line.contains("hearth: interrupted; removing what the demo made")), "{shown:?}");
    assert!(shown.iter().any(|line| line.starts_with("Hearth: ")), "{shown:?}");
    assert!(shown.iter().any(|line| line.contains("  ✓ a NameNode and 3 DataNodes")), "{shown:?}");
    assert!(!shown.iter().any(|line| is_styled(line)), "{shown:?}");
    assert!(is_empty(memory.path()) && is_empty(disk.path()));
}

#[test]
fn up_names_the_option_for_a_port_that_is_in_use() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    let directory = directory();
    for option in ["--port", "--http-port"] {
        let other = if option == "--port" { "--http-port" } else { "--port" };
        let mut command = Command::new(PROGRAM);
        // The last of several counts: units of systemd have ports, and administrators add theirs.
        let words = ["up", other, &port, option, "0", other, "0", option, &port];
        let refused = command.args(words).current_dir(directory.path()).output().unwrap();
        let said = text(&refused.stderr);
        assert_eq!((refused.status.code(), said.lines().count()), (Some(1), 1), "{said}");
        assert!(said.starts_with(&format!("hearth: port {port} is in use")) && said.contains(option), "{said}");
    }
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0, "nothing was made");
}

#[test]
fn refused_connection_is_shown_at_once_on_a_terminal_only() {
    // A port on which nothing listens.
    let free = format!("127.0.0.1:{}", free_port());
    let uri = format!("hdfs://{free}/");
    let retries = ["-D", "ipc.client.connect.max.retries=1", "-D", "ipc.client.connect.retry.interval=100"];
    let words = [&["fs"][..], &retries, &["-ls", uri.as_str()]].concat();
    let mut command = Command::new(PROGRAM);
    let piped = command.args(&words).env_remove("HADOOP_CONF_DIR").output().unwrap();
    let said = text(&piped.stderr);
    assert_eq!((piped.status.code(), said.lines().count()), (Some(1), 1), "{said}");
    assert!(said.starts_with("ls: ") && said.contains(&free), "{said}");

    // `script` gives the command a terminal, and passes on what it prints there.
    let line = format!("'{PROGRAM}' {}", words.join(" "));
    let script = Command::new("script").args(["-qec", &line, "/dev/null"]).env_remove("HADOOP_CONF_DIR").output();
    let shown = match script {
        Ok(output) => text(&output.stdout),
        Err(error) => return skip_or_fail("refused_connection_is_shown_at_once_on_a_terminal_only", error),
    };
    let notice =
        format!("hearth: the NameNode at {free} does not answer (connection refused): trying again every 100ms, once");
    for part in [notice.as_str(), "hearth: `hearth up` starts a file system here", "ls: "] {
        assert_eq!(shown.matches(part).count(), 1, "{part}: {shown}");
    }

    // By default it tries for ten seconds. The notice does not wait for the end.
    let line = format!("'{PROGRAM}' fs -ls {uri}");
    let mut command = Command::new("script");
    command.args(["-qec", &line, "/dev/null"]).env_remove("HADOOP_CONF_DIR").stdin(Stdio::null());
    let mut waiting = command.stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(waiting.stdout.take().unwrap()).lines().map_while(Result::ok);
    let is_noticed = lines.any(|line| line.contains("does not answer (connection refused): trying again every 1s"));
    let ended = waiting.try_wait().unwrap();
    let _ = waiting.kill();
    let _ = waiting.wait();
    assert!(is_noticed && ended.is_none(), "noticed: {is_noticed}, ended: {ended:?}");
}

#[test]
fn fsck_continues_after_unreadable_paths() {
    let up = start(1);
    let local = up.local_file("local", &content());
    for directory in ["/open", "/private", "/open/shut"] {
        up.done(&["fs", "-mkdir", directory]);
    }
    for path in ["/open/file", "/private/file", "/open/unreadable", "/zlast"] {
        up.done(&["fs", "-put", &local, path]);
    }
    up.done(&["fs", "-chmod", "700", "/private", "/open/shut"]);
    up.done(&["fs", "-chmod", "600", "/open/unreadable"]);

    let all = up.hearth(&["fsck", "/", "-files", "-storagepolicies"]);
    let said = text(&all.stdout);
    assert_eq!(all.status.code(), Some(0), "{all:?}");
    assert!(said.ends_with("The filesystem under path '/' is HEALTHY\n") && said.contains("DISK:1(HOT)"), "{said}");
    assert!(text(&all.stderr).starts_with(&format!("Connecting to namenode via http://{}/fsck?ugi=root", up.web)));

    // With the NameNode's report, and with the one made without it, because another port is configured.
    let other_port = ["-D", "dfs.namenode.http-address=127.0.0.1:1"];
    for before in [&[][..], &other_port[..]] {
        let line = [&["fsck"], before, &["/", "-files"]].concat();
        let by_bob = up.hearth_as("bob", &line);
        let said = text(&by_bob.stdout);
        assert_eq!(by_bob.status.code(), Some(255), "{by_bob:?}");
        for part in
            ["/open/file ", "/zlast ", "Status: INCOMPLETE", "3 paths were not checked: user bob may not read them"]
        {
            assert!(said.contains(part), "{part}: {said}");
        }
        for path in ["/private", "/open/shut", "/open/unreadable"] {
            assert!(said.contains(&format!("\n{path}: not checked: Permission denied: user=bob")), "{path}: {said}");
        }
        assert!(said.ends_with("Fsck on path '/' FAILED\n") && !said.contains("/private/file"), "{said}");
        assert_eq!(text(&by_bob.stderr).contains("cannot be asked over HTTP"), !before.is_empty(), "{by_bob:?}");
    }
    // Options that only the NameNode can carry out are rejected without it.
    let refused = up.hearth(&[&["fsck"], &other_port[..], &["/", "-delete"]].concat());
    assert!(!refused.status.success() && text(&refused.stderr).contains("-delete needs the NameNode"), "{refused:?}");
    let moved = up.hearth(&[&["fsck"], &other_port[..], &["/", "-move"]].concat());
    assert!(!moved.status.success() && text(&moved.stderr).contains("-move needs the NameNode"), "{moved:?}");

    let blocks = up.done(&["fsck", "/zlast", "-files", "-blocks"]);
    let name = blocks.split([':', '_']).find(|part| part.len() == 10 && part.starts_with('1')).unwrap_or_default();
    let block = up.done(&["fsck", "-blockId", &format!("blk_{name}")]);
    assert!(block.contains("Block belongs to: /zlast\n") && block.trim_end().ends_with("is HEALTHY"), "{block}");
}

#[test]
fn fsck_does_not_ask_another_namenode() {
    let (one, other) = (start(1), start(1));
    let address = format!("dfs.namenode.http-address={}", other.web);
    let asked = one.hearth(&["fsck", "-D", &address, "-fs", &one.uri, "/", "-delete"]);
    let said = text(&asked.stderr);
    assert!(!asked.status.success() && said.contains("is the web port of the NameNode at"), "{asked:?}");
}

#[test]
fn lost_files_are_listed_and_deleted() {
    let up = start_unflushed();
    let local = up.local_file("local", &content());
    up.done(&["fs", "-put", &local, "/lost"]);
    for path in up.replica_files() {
        fs::remove_file(path).unwrap();
    }
    up.done(&["fs", "-touchz", "/kept"]);
    up.kill_a_datanode();
    up.complains("is back");
    let is_corrupt = || Ok((up.hearth(&["fsck", "/"]).status.code() == Some(1)).then_some(()));
    wait_until("a corrupt file system", PATIENCE, is_corrupt).unwrap();
    let list = up.hearth(&["fsck", "/", "-list-corruptfileblocks"]);
    let said = text(&list.stdout);
    assert_eq!(list.status.code(), Some(255), "{list:?}");
    assert!(
        said.starts_with("The list of corrupt blocks under path '/' are:\nblk_") && said.contains("/lost\n"),
        "{said}"
    );
    assert!(said.ends_with("The filesystem under path '/' has 1 CORRUPT blocks\n"), "{said}");
    let deleted = up.hearth(&["fsck", "/", "-delete"]);
    assert!(text(&deleted.stdout).contains("FSCK deleted the corrupt file /lost\n"), "{deleted:?}");
    assert_eq!(up.hearth(&["fsck", "/"]).status.code(), Some(0));
    assert_eq!(up.done(&["fs", "-ls", "-C", "/"]), "/kept\n");
}

#[test]
fn remains_of_corrupt_files_are_copied_to_lost_found() {
    const BLOCK: usize = 1 << 20;
    let up = start_unflushed();
    let bytes = [content(), content(), content()].concat();
    let local = up.local_file("local", &bytes);
    up.done(&["fs", "-mkdir", "/d"]);
    up.done(&["fs", "-D", "dfs.blocksize=1m", "-put", &local, "/d/file"]);
    let id_of = |path: &Path| -> u64 {
        let name = path.file_name().unwrap().to_str().unwrap().strip_prefix("blk_").unwrap();
        name.split(['_', '.']).next().unwrap().parse().unwrap()
    };
    let mut blocks: Vec<u64> = up.replica_files().iter().map(|path| id_of(path)).collect();
    blocks.sort_unstable();
    blocks.dedup();
    assert_eq!(blocks.len(), bytes.len().div_ceil(BLOCK), "{blocks:?}");
    for path in up.replica_files().iter().filter(|path| id_of(path) == blocks[1]) {
        fs::remove_file(path).unwrap();
    }
    up.kill_a_datanode();
    up.complains("is back");
    let is_corrupt = || {
        let report = up.hearth(&["fsck", "/d"]);
        Ok((report.status.code() == Some(1) && text(&report.stdout).contains(" MISSING 1 blocks")).then_some(()))
    };
    wait_until("one lost block", PATIENCE, is_corrupt).unwrap();

    // A user without permission to make directories in the root moves nothing.
    let refused = up.hearth_as("bob", &["fsck", "/d", "-move", "-delete"]);
    let said = text(&refused.stdout);
    assert_eq!(refused.status.code(), Some(255), "{refused:?}");
    let reason = "FSCK cannot copy the remains of the corrupt file /d/file: Permission denied: user=bob";
    assert!(said.contains(reason) && said.ends_with("Fsck on path '/d' FAILED\n"), "{said}");
    assert_eq!(up.done(&["fs", "-ls", "-C", "/"]), "/d\n");

    let moved = up.hearth(&["fsck", "/d", "-move"]);
    let left = bytes.len() - BLOCK;
    let line =
        format!("FSCK copied the remains of the corrupt file /d/file to /lost+found/d/file: 2 files, {left} B\n");
    assert!(moved.status.code() == Some(1) && text(&moved.stdout).contains(&line), "{moved:?}");
    assert_eq!(up.done(&["fs", "-ls", "-C", "/lost+found/d/file"]), "/lost+found/d/file/0\n/lost+found/d/file/1\n");
    for (name, part) in [("0", &bytes[..BLOCK]), ("1", &bytes[2 * BLOCK..])] {
        let read = up.hearth(&["fs", "-cat", &format!("/lost+found/d/file/{name}")]);
        assert!(read.status.success() && read.stdout == part, "{name}: {:?}", text(&read.stderr));
    }

    // An existing copy is kept, and so is the file that it may be incomplete for.
    let again = up.hearth(&["fsck", "/d", "-move", "-delete"]);
    let said = text(&again.stdout);
    for part in ["FSCK did not copy /d/file: /lost+found/d/file exists\n", "FSCK did not delete /d/file: "] {
        assert!(again.status.code() == Some(1) && said.contains(part), "{part}: {again:?}");
    }
    up.done(&["fs", "-rm", "-r", "-skipTrash", "/lost+found/d/file"]);
    let both = up.hearth(&["fsck", "/d", "-move", "-delete"]);
    let said = text(&both.stdout);
    for part in [line.as_str(), "FSCK deleted the corrupt file /d/file\n"] {
        assert!(both.status.code() == Some(1) && said.contains(part), "{part}: {both:?}");
    }
    assert_eq!(up.done(&["fs", "-ls", "-C", "/d"]), "");
    let read = up.hearth(&["fs", "-cat", "/lost+found/d/file/1"]);
    assert!(read.stdout == bytes[2 * BLOCK..], "{:?}", text(&read.stderr));
    assert_eq!(up.hearth(&["fsck", "/"]).status.code(), Some(0));
}

#[test]
fn corrupt_bytes_are_read_only_with_ignore_crc() {
    let up = start_unflushed();
    let mut bytes = content();
    let local = up.local_file("local", &bytes);
    up.done(&["fs", "-put", &local, "/file"]);
    // Number of corrupted copies: in memory and on disk.
    let mut spoiled = 0;
    for path in up.replica_files() {
        let is_data = fs::metadata(&path).unwrap().len() >= bytes.len() as u64;
        if is_data {
            let mut file = fs::OpenOptions::new().read(true).write(true).open(&path).unwrap();
            let mut byte = [0];
            file.seek(SeekFrom::Start(700_000)).unwrap();
            file.read_exact(&mut byte).unwrap();
            assert_eq!(byte[0], bytes[700_000]);
            file.seek(SeekFrom::Start(700_000)).unwrap();
            file.write_all(&[byte[0] ^ 1]).unwrap();
            spoiled += 1;
        }
    }
    assert!(spoiled > 0, "no file of the replica was found");
    bytes[700_000] ^= 1;
    let quick = ["-D", "dfs.client.max.block.acquire.failures=0"];
    let fs_command = |words: &[&str]| up.hearth(&[&["fs"], &quick[..], words].concat());
    let ignored = fs_command(&["-cat", "-ignoreCrc", "/file"]);
    assert!(ignored.status.success() && ignored.stdout == bytes, "{:?}", text(&ignored.stderr));
    let ignored = fs_command(&["-text", "-ignoreCrc", "/file"]);
    assert!(ignored.status.success() && ignored.stdout == bytes, "{:?}", text(&ignored.stderr));
    let got = up.directory.path().join("got");
    let ignored = fs_command(&["-get", "-ignoreCrc", "/file", got.to_str().unwrap()]);
    assert!(ignored.status.success() && fs::read(&got).unwrap() == bytes, "{:?}", text(&ignored.stderr));
    let checked = fs_command(&["-cat", "/file"]);
    assert!(!checked.status.success() && checked.stdout.len() < bytes.len(), "{:?}", text(&checked.stderr));
}

#[test]
fn concurrent_copies_keep_attributes() {
    let up = start(1);
    let tree = up.directory.path().join("tree");
    for number in 0..40 {
        let directory = tree.join(format!("d{}", number % 4));
        fs::create_dir_all(&directory).unwrap();
        fs::write(directory.join(format!("f{number}")), vec![number as u8; 1000 + number]).unwrap();
    }
    let tree = tree.to_str().unwrap();
    // The queue is shorter than the number of files.
    up.done(&["fs", "-put", "-p", "-t", "4", "-q", "3", tree, "/tree"]);
    let back = up.directory.path().join("back");
    up.done(&["fs", "-get", "-crc", "-p", "-t", "8", "/tree", back.to_str().unwrap()]);
    for number in 0..40 {
        let name = format!("d{}/f{number}", number % 4);
        assert!(fs::read(back.join(&name)).unwrap() == vec![number as u8; 1000 + number], "{name}");
        assert!(back.join(format!("d{}/.f{number}.crc", number % 4)).exists());
    }
    // A directory has the time of its source, although files were created in it afterwards.
    let time =
        |path: PathBuf| fs::metadata(path).unwrap().modified().unwrap().duration_since(std::time::UNIX_EPOCH).unwrap();
    for directory in ["d0", "d3"] {
        let (from, to) = (time(Path::new(tree).join(directory)), time(back.join(directory)));
        assert_eq!(from.as_millis(), to.as_millis(), "{directory}");
    }
    // Failures are reported, and the other files are copied.
    let failing = up.hearth(&["fs", "-put", "-t", "4", tree, "/tree/d0/f0"]);
    assert_eq!(failing.status.code(), Some(1), "{failing:?}");
    up.done(&["fs", "-rm", "-r", "-skipTrash", "/tree/d1"]);
    let again = up.hearth(&["fs", "-put", "-t", "4", &format!("{tree}/d1"), &format!("{tree}/d2"), "/tree"]);
    assert_eq!((again.status.code(), text(&again.stderr).matches("File exists").count()), (Some(1), 10), "{again:?}");
    assert_eq!(up.done(&["fs", "-ls", "-C", "/tree/d1"]).lines().count(), 10);
}

#[test]
fn checksum_files_of_local_copies_are_written_and_checked() {
    let up = start(1);
    let local = up.local_file("local", &content());
    up.done(&["fs", "-put", &local, "/file"]);
    let got = up.directory.path().join("got");
    let name = got.to_str().unwrap();
    up.done(&["fs", "-get", "-crc", "/file", name]);
    let mut bytes = content();
    bytes[1000] ^= 1;
    fs::write(&got, &bytes).unwrap();
    let refused = up.hearth(&["fs", "-put", name, "/again"]);
    assert_eq!(refused.status.code(), Some(1));
    assert!(text(&refused.stderr).contains(&format!("put: Checksum error: file:{name} at 512 exp: ")), "{refused:?}");
    let ignored = up.hearth(&["fs", "-cat", "-ignoreCrc", &format!("file://{name}")]);
    assert!(ignored.stdout == bytes, "{:?}", text(&ignored.stderr));
    // A copy without -crc leaves no stale checksum file.
    up.done(&["fs", "-get", "-f", "/file", name]);
    assert!(!up.directory.path().join(".got.crc").exists());
    up.done(&["fs", "-put", name, "/again"]);
}
