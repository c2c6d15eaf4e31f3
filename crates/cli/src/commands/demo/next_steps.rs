//! The commands that the demo ends with. They work as they are printed.

use std::env;
use std::net::{SocketAddr, TcpListener};
use std::path::Path;

/// Ports of `hearth up`.
const PORTS: [u16; 2] = [8020, 9870];

/// Commands that start a file system, and use it from another terminal in the same directory.
pub fn of_a_new_file_system() -> [String; 3] {
    let hearth = program();
    let is_free = |port: &u16| TcpListener::bind(("127.0.0.1", *port)).is_ok();
    let ports = if PORTS.iter().all(is_free) { "" } else { " --port 0 --http-port 0" };
    [
        format!("{hearth} up --datanodes 3 --write-conf conf{ports}"),
        format!("{hearth} --config conf fs -put -f {} /", small_file()),
        format!("{hearth} --config conf fs -ls /"),
    ]
}

/// Commands that use the file system of the demo, which has the file `stored`.
pub fn of_this_file_system(namenode: SocketAddr, stored: &str) -> [String; 3] {
    let hearth = program();
    let uri = format!("hdfs://{namenode}");
    [
        format!("{hearth} fs -fs {uri} -ls {stored}"),
        format!("{hearth} fs -fs {uri} -cat {stored} | sha256sum"),
        format!("{hearth} dfsadmin -fs {uri} -report"),
    ]
}

/// Returns the path of a file that every machine has.
fn small_file() -> &'static str {
    ["/etc/hosts", "/etc/passwd"].into_iter().find(|file| Path::new(file).is_file()).unwrap_or("/proc/version")
}

/// Returns how the user can call this program: by its name, if that finds it, otherwise by its path.
fn program() -> String {
    let Ok(this) = env::current_exe() else { return "hearth".to_owned() };
    let path = env::var_os("PATH").unwrap_or_default();
    let found = env::split_paths(&path).map(|directory| directory.join("hearth")).find(|file| file.is_file());
    if found.and_then(|found| found.canonicalize().ok()).is_some_and(|found| found == this) {
        return "hearth".to_owned();
    }
    // Without a current directory, the whole path is left.
    let here = env::current_dir().unwrap_or_default();
    quoted(this.strip_prefix(here).unwrap_or(&this))
}

/// Returns the path of a program as a shell reads it.
fn quoted(path: &Path) -> String {
    let mut text = path.display().to_string();
    // A shell looks for a bare name in PATH only.
    if !text.contains('/') {
        text = format!("./{text}");
    }
    let is_plain = |character: char| character.is_ascii_alphanumeric() || "/._-+".contains(character);
    if text.chars().all(is_plain) { text } else { format!("'{}'", text.replace('\'', r"'\''")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_quoted_for_the_shell() {
        assert_eq!(quoted(Path::new("target/release/hearth")), "target/release/hearth");
        assert_eq!(quoted(Path::new("hearth")), "./hearth");
        assert_eq!(quoted(Path::new("/my programs/it's")), r"'/my programs/it'\''s'");
    }
}
