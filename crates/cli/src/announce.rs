//! The line that a server prints on standard output when it is ready:
//! `READY namenode rpc=127.0.0.1:8020 http=127.0.0.1:9870`. It is meant for users and for `hearth up --processes`.

use std::fmt;
use std::io::Write;
use std::net::SocketAddr;

/// A server's role and its open ports by name.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Announcement {
    pub role: String,
    pub ports: Vec<(String, SocketAddr)>,
}

impl Announcement {
    pub fn new<'a>(role: &str, ports: impl IntoIterator<Item = (&'a str, SocketAddr)>) -> Self {
        let ports = ports.into_iter().map(|(name, address)| (name.to_string(), address)).collect();
        Self { role: role.to_string(), ports }
    }

    /// Prints the line and flushes it, because the reader waits for it.
    pub fn print(&self) {
        let mut out = std::io::stdout().lock();
        // A closed standard output only means that no reader waits for the line.
        let _ = writeln!(out, "{self}").and_then(|()| out.flush());
    }

    /// Parses a line. Returns `None` if `line` is no announcement.
    pub fn parse(line: &str) -> Option<Self> {
        let mut words = line.trim_end().split(' ');
        if words.next() != Some("READY") {
            return None;
        }
        let role = words.next()?.to_string();
        let ports = words
            .map(|word| {
                let (name, address) = word.split_once('=')?;
                Some((name.to_string(), address.parse().ok()?))
            })
            .collect::<Option<Vec<_>>>()?;
        Some(Self { role, ports })
    }

    pub fn port(&self, name: &str) -> Option<SocketAddr> {
        self.ports.iter().find(|(known, _)| known == name).map(|(_, address)| *address)
    }
}

impl fmt::Display for Announcement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "READY {}", self.role)?;
        for (name, address) in &self.ports {
            write!(f, " {name}={address}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn printed_line_is_parsed() {
        let rpc: SocketAddr = "127.0.0.1:8020".parse().unwrap();
        let announcement = Announcement::new("namenode", [("rpc", rpc), ("http", "[::1]:9870".parse().unwrap())]);
        let line = announcement.to_string();
        assert_eq!(line, "READY namenode rpc=127.0.0.1:8020 http=[::1]:9870");
        assert_eq!(Announcement::parse(&line), Some(announcement.clone()));
        assert_eq!(announcement.port("rpc"), Some(rpc));
        assert_eq!(announcement.port("ipc"), None);
        assert_eq!(Announcement::parse("hello"), None);
        assert_eq!(Announcement::parse("READY namenode rpc=x"), None);
    }
}
