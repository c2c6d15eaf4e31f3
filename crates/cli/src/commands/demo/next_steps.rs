//! The commands that the demo ends with. They work as they are printed.

use std::net::{SocketAddr, TcpListener};
use std::path::Path;

use crate::invocation::program;

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
