//! An administrator's commands against `hearth up`, without Java. The suite `administration` compares them with Apache's.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Output, Stdio};

use rustix::process::{Pid, Signal, kill_process};

const PROGRAM: &str = env!("CARGO_BIN_EXE_hearth");

/// Running file system of one process. Dropping it ends it.
struct Up {
    child: Child,
    directory: tempfile::TempDir,
}

impl Drop for Up {
    fn drop(&mut self) {
        if let Some(pid) = Pid::from_raw(self.child.id() as i32) {
            let _ = kill_process(pid, Signal::TERM);
        }
        let _ = self.child.wait();
    }
}

fn start() -> Up {
    let directory = tempfile::Builder::new().prefix("hearth-admin-").tempdir_in("/dev/shm").unwrap();
    let at = |name: &str| directory.path().join(name);
    let mut child = Command::new(PROGRAM)
        .args(["up", "--port", "0", "--http-port", "0", "--dir"])
        .arg(at("data"))
        .arg("--memory")
        .arg(at("memory"))
        .arg("--write-conf")
        .arg(at("conf"))
        .env("HADOOP_USER_NAME", "root")
        .env_remove("HADOOP_CONF_DIR")
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
    assert!(lines.any(|line| line.starts_with("Try:")), "hearth up did not start");
    std::thread::spawn(move || lines.for_each(drop));
    Up { child, directory }
}

impl Up {
    fn hearth(&self, line: &str) -> Output {
        let mut command = Command::new(PROGRAM);
        let conf = self.directory.path().join("conf");
        command.args(line.split(' ')).env("HADOOP_CONF_DIR", conf).env("HADOOP_USER_NAME", "root");
        command.output().unwrap()
    }

    /// Runs a line that must succeed. Returns its output.
    fn done(&self, line: &str) -> String {
        let output = self.hearth(line);
        assert!(output.status.success(), "{line}: {output:?}");
        String::from_utf8(output.stdout).unwrap()
    }

    /// Runs a line that must fail. Returns its exit code and its error output.
    fn refused(&self, line: &str) -> (i32, String) {
        let output = self.hearth(line);
        assert!(!output.status.success(), "{line}: {output:?}");
        (output.status.code().unwrap(), String::from_utf8(output.stderr).unwrap())
    }
}

#[test]
fn missing_subcommands_of_hdfs_are_refused_with_a_replacement() {
    let run = |words: &[&str]| {
        let output = Command::new(PROGRAM).args(words).output().unwrap();
        assert!(output.stdout.is_empty(), "{output:?}");
        (output.status.code(), String::from_utf8(output.stderr).unwrap())
    };
    let (code, said) = run(&["oiv", "-p", "XML", "-i", "fsimage"]);
    assert_eq!(code, Some(1));
    assert_eq!(
        said,
        "hearth: there is no `hearth oiv`: run Apache's hdfs oiv on an image that `hearth dfsadmin -fetchImage` has fetched\n"
    );
    // A word that `hdfs` does not know either has clap's error.
    let (code, said) = run(&["dfadmin"]);
    assert_eq!(code, Some(2));
    assert!(said.contains("dfadmin") && said.contains("dfsadmin"), "{said}");
}

#[test]
fn administrator_needs_no_java() {
    let up = start();
    assert!(up.done("dfsadmin -report").contains("Live datanodes (1):\n\nName: 127.0.0.1:"));
    assert!(up.done("admin -printTopology").starts_with("Rack: /default-rack\n   127.0.0.1:"));
    assert_eq!(up.done("dfsadmin -safemode enter"), "Safe mode is ON\n");
    assert_eq!(up.done("dfsadmin -saveNamespace"), "Save namespace successful\n");
    assert_eq!(up.done("dfsadmin -safemode leave"), "Safe mode is OFF\n");

    up.done("dfs -mkdir -p /q/sub");
    assert_eq!(up.done("dfsadmin -setQuota 2 /q"), "");
    let (code, error) = up.refused("dfs -mkdir /q/more");
    assert!(code == 1 && error.contains("NameSpace quota"), "{error}");
    assert_eq!(up.done("dfsadmin -clrQuota /q"), "");
    up.done("dfs -mkdir /q/more");
    let (code, error) = up.refused("dfsadmin -setQuota 0 /q");
    assert_eq!(code, 255);
    assert!(error.starts_with("setQuota: Invalid values for quota : 0 and "), "{error}");

    assert_eq!(up.done("dfsadmin -allowSnapshot /q"), "Allowing snapshot on /q succeeded\n");
    up.done("dfs -createSnapshot /q one");
    up.done("dfs -rmdir /q/more");
    assert!(up.done("lsSnapshottableDir").ends_with(" 1 65536 /q\n"), "{}", up.done("lsSnapshottableDir"));
    let difference = "Difference between snapshot one and current directory under directory /q:\nM\t.\n-\t./more\n\n";
    assert_eq!(up.done("snapshotDiff /q one ."), difference);

    up.done("cacheadmin -addPool pool -limit 5000");
    up.done("cacheadmin -addDirective -path /q -pool pool");
    let listed = up.done("cacheadmin -listDirectives");
    assert_eq!(listed, "Found 1 entry\nID POOL REPL EXPIRY PATH\n 1 pool    1 never  /q  \n");
    assert_eq!(up.done("cacheadmin -removePool pool"), "Successfully removed cache pool pool.\n");

    up.done("storagepolicies -setStoragePolicy -path /q -policy COLD");
    assert!(up.done("storagepolicies -getStoragePolicy -path /q").contains("BlockStoragePolicy{COLD:2, "));
    let (code, error) = up.refused("storagepolicies -setStoragePolicy -path /none -policy HOT");
    assert_eq!((code, error.as_str()), (2, "FileNotFoundException: File/Directory does not exist: /none\n"));

    assert_eq!(up.done("getconf -namenodes"), "localhost\n");
    assert!(up.done("groups nobody").starts_with("nobody :"));
    let (code, error) = up.refused("haadmin -getServiceState nn1");
    assert_eq!((code, error.as_str()), (255, "Illegal argument: Unable to determine the name service ID.\n"));
    let (code, error) = up.refused("dfsadmin -rollingUpgrade prepare");
    assert!(code == 255 && error.starts_with("rollingUpgrade: "), "{error}");
}
