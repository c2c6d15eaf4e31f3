//! The NameNode's own report, requested and read as DFSck.java does it.

use std::collections::HashSet;
use std::io::Write;
use std::net::IpAddr;

use anyhow::{Context, anyhow, bail};
use hearth_config::{Configuration, HostPort, keys, parse};
use hyper::header::HeaderMap;

use super::http::{HttpTimeouts, get};
use super::request::Request;
use crate::configuration::Identity;

/// HTTP address of a NameNode.
pub struct NamenodeHttp {
    address: String,
    patience: HttpTimeouts,
}

/// Maximum length of the status answer that identifies the NameNode.
const STATUS_BYTES_MAX: usize = 1 << 20;

impl NamenodeHttp {
    /// Finds the web port of the NameNode whose RPC address is `rpc` (`host:port`), and verifies that it belongs to
    /// that NameNode: another one may listen at the configured address.
    ///
    /// Errors: why the port cannot be used.
    pub async fn find(configuration: &Configuration, uri: &str, rpc: &str) -> anyhow::Result<Self> {
        if configuration.get(keys::DFS_HTTP_POLICY)?.eq_ignore_ascii_case("HTTPS_ONLY") {
            bail!("dfs.http.policy is HTTPS_ONLY, and fsck speaks HTTP without TLS");
        }
        let rpc = HostPort::parse(rpc, None).map_err(|wanted| anyhow!("{rpc}: {wanted}"))?;
        let address = configured(configuration, uri, &rpc)?.to_string();
        let time = |key: &str| -> anyhow::Result<_> {
            Ok(configuration.get_as(key, parse::duration_ms)?.unwrap_or(std::time::Duration::from_secs(60)))
        };
        let (connect, read) = (time("dfs.client.fsck.connect.timeout")?, time("dfs.client.fsck.read.timeout")?);
        let web = Self { address, patience: HttpTimeouts { connect, read } };
        web.check_owner(&rpc).await?;
        Ok(web)
    }

    /// Requests `target`, a path with its query. `each` gets the answer's bytes, in order. Returns the answer's headers.
    pub async fn get(&self, target: &str, each: impl FnMut(&[u8])) -> anyhow::Result<HeaderMap> {
        get(&self.address, target, self.patience, each).await
    }

    /// Checks the owner. Errors: the port does not belong to the NameNode at `rpc`.
    async fn check_owner(&self, rpc: &HostPort) -> anyhow::Result<()> {
        let mut said = Vec::new();
        let question = "/jmx?qry=Hadoop:service=NameNode,name=NameNodeStatus";
        get(&self.address, question, self.patience, |bytes| {
            said.extend_from_slice(&bytes[..bytes.len().min(STATUS_BYTES_MAX - said.len())]);
        })
        .await?;
        let owner = owner(&said).with_context(|| format!("{} is not the web port of a NameNode", self.address))?;
        if owner.port != rpc.port || !may_be_same_host(&owner.host, &rpc.host).await {
            bail!("{} is the web port of the NameNode at {owner}, not of the one at {rpc}", self.address);
        }
        Ok(())
    }
}

/// Returns the RPC address in the NameNode's bean `NameNodeStatus`.
fn owner(said: &[u8]) -> anyhow::Result<HostPort> {
    let said: serde_json::Value = serde_json::from_slice(said).context("its answer is not JSON")?;
    let text = said["beans"][0]["HostAndPort"].as_str().context("its answer has no bean NameNodeStatus")?;
    HostPort::parse(text, None).map_err(|wanted| anyhow!("HostAndPort is {text}: {wanted}"))
}

/// Returns false if both names resolve here and share no address.
async fn may_be_same_host(one: &str, other: &str) -> bool {
    async fn addresses(host: &str) -> Option<HashSet<IpAddr>> {
        let found = tokio::net::lookup_host((host, 0)).await.ok()?;
        Some(found.map(|address| address.ip().to_canonical()).collect())
    }
    if one.eq_ignore_ascii_case(other) {
        return true;
    }
    match (addresses(one).await, addresses(other).await) {
        (Some(one), Some(other)) => {
            let anywhere = |addresses: &HashSet<IpAddr>| addresses.iter().any(IpAddr::is_unspecified);
            anywhere(&one) || anywhere(&other) || !one.is_disjoint(&other)
        }
        _ => true,
    }
}

/// Returns the configured web address of the NameNode at `rpc`: by its name in its nameservice, else by the plain key.
/// A wildcard host is replaced by the host of the RPC address. Source: DFSUtil.java, getInfoServer.
fn configured(configuration: &Configuration, uri: &str, rpc: &HostPort) -> anyhow::Result<HostPort> {
    let name = keys::DFS_NAMENODE_HTTP_ADDRESS.name;
    let mut names = configuration.get(keys::DFS_NAMESERVICES)?.unwrap_or_default();
    names.extend(uri.strip_prefix("hdfs://").map(str::to_owned));
    let mut found = None;
    for service in names.iter().filter_map(|name| configuration.client_nameservice(name).ok()) {
        let Some(id) = &service.id else { continue };
        for namenode in service.namenodes.iter().filter(|namenode| namenode.rpc == *rpc) {
            let own = namenode.id.as_ref().map_or_else(|| format!("{name}.{id}"), |nn| format!("{name}.{id}.{nn}"));
            found = found.or(configuration.get_as(&own, parse::address)?);
        }
    }
    let mut address = match found {
        Some(address) => address,
        None => configuration.get(keys::DFS_NAMENODE_HTTP_ADDRESS)?,
    };
    if address.host.parse::<IpAddr>().is_ok_and(|ip| ip.is_unspecified()) {
        address.host = rpc.host.clone();
    }
    Ok(address)
}

/// Prints the NameNode's answer. Returns the exit code.
pub async fn ask(web: &NamenodeHttp, request: &Request, caller: &Identity) -> anyhow::Result<u8> {
    eprintln!("Connecting to namenode via http://{}{}", web.address, request.query(caller, 0));
    if request.list_corrupt {
        return list_corrupt(web, request, caller).await;
    }
    let mut last = LastLine::default();
    let mut out = std::io::stdout().lock();
    let mut failed = None;
    get(&web.address, &request.query(caller, 0), web.patience, |bytes| {
        last.add(bytes);
        failed = failed.take().or(out.write_all(bytes).err());
    })
    .await?;
    // Java's tool prints complete lines, also if the last one has no line end.
    if !last.is_ended {
        failed = failed.or(out.write_all(b"\n").err());
    }
    if let Some(error) = failed.or(out.flush().err()) {
        return Err(error).context("cannot write to standard output");
    }
    Ok(exit_code(&last.text()))
}

/// Requests all pages of the list.
async fn list_corrupt(web: &NamenodeHttp, request: &Request, caller: &Identity) -> anyhow::Result<u8> {
    let path = &request.path;
    let (mut after, mut found) = (0, 0_u64);
    loop {
        let mut page = Vec::new();
        let mut too_long = false;
        get(&web.address, &request.query(caller, after), web.patience, |bytes| {
            too_long |= page.len() + bytes.len() > PAGE_BYTES_MAX;
            if !too_long {
                page.extend_from_slice(bytes);
            }
        })
        .await?;
        if too_long {
            bail!("a page of the list of corrupt files is longer than {PAGE_BYTES_MAX} bytes");
        }
        let page = Page::read(&String::from_utf8_lossy(&page));
        if page.is_refused {
            println!("Failed to open path '{path}': Permission denied");
            return Ok(255);
        }
        for line in &page.lines {
            if found == 0 {
                println!("The list of corrupt blocks under path '{path}' are:");
            }
            found += 1;
            println!("{line}");
        }
        match page.next {
            // A cookie that does not advance would make the list endless.
            Some(next) if next > after && !page.is_last => after = next,
            _ => break,
        }
    }
    println!("The filesystem under path '{path}' has {found} CORRUPT blocks");
    // Java's -1: for this list `hdfs fsck` returns it, not 1.
    Ok(if found == 0 { 0 } else { 255 })
}

/// Maximum length of a page of the list. A NameNode sends some hundred entries at a time.
const PAGE_BYTES_MAX: usize = 64 << 20;

/// Page of the list of corrupt files.
#[derive(PartialEq, Eq, Debug, Default)]
struct Page {
    lines: Vec<String>,
    /// Start of the next page.
    next: Option<u64>,
    /// No more entries follow.
    is_last: bool,
    is_refused: bool,
}

impl Page {
    /// Source: DFSck.java, listCorruptFileBlocks.
    fn read(text: &str) -> Self {
        let mut page = Self::default();
        for line in text.lines() {
            if let Some(cookie) = line.strip_prefix("Cookie:") {
                page.next = cookie.trim().parse().ok();
                page.is_last |= page.next.is_none();
            } else if ["has no CORRUPT files", "has no more CORRUPT files", "does not exist"]
                .iter()
                .any(|end| line.ends_with(end))
            {
                page.is_last = true;
            } else if line.starts_with("Access denied for user") {
                page.is_refused = true;
            } else if !line.is_empty()
                && !["FSCK started by", "FSCK ended at", "The filesystem under path", "Fsck on path"]
                    .iter()
                    .any(|start| line.starts_with(start))
            {
                page.lines.push(line.to_owned());
            }
        }
        page
    }
}

/// Last line of an answer, which determines the exit code.
#[derive(Default)]
struct LastLine {
    bytes: Vec<u8>,
    /// The line has its line end.
    is_ended: bool,
}

impl LastLine {
    /// Maximum length of the line that is kept, from its end.
    const BYTES_MAX: usize = 4096;

    fn add(&mut self, bytes: &[u8]) {
        for piece in bytes.split_inclusive(|byte| *byte == b'\n') {
            if self.is_ended {
                self.bytes.clear();
            }
            self.is_ended = piece.ends_with(b"\n");
            self.bytes.extend_from_slice(&piece[..piece.len() - usize::from(self.is_ended)]);
            let surplus = self.bytes.len().saturating_sub(Self::BYTES_MAX);
            self.bytes.drain(..surplus);
        }
    }

    fn text(&self) -> String {
        String::from_utf8_lossy(&self.bytes).into_owned()
    }
}

/// Source: DFSck.java, doWork.
fn exit_code(last: &str) -> u8 {
    let ends = |end: &str| last.ends_with(end);
    if ends("is HEALTHY") || ends("does not exist") || last.contains("Incorrect blockId format:") || ends("is EXCESS") {
        return 0;
    }
    let codes = [
        ("is CORRUPT", 1),
        ("is DECOMMISSIONED", 2),
        ("is DECOMMISSIONING", 3),
        ("is IN MAINTENANCE", 4),
        ("is ENTERING MAINTENANCE", 5),
        ("is STALE", 6),
    ];
    codes.iter().find(|(end, _)| ends(end)).map_or(255, |(_, code)| *code)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn web_port(configuration: Configuration, uri: &str, rpc: &str) -> String {
        configured(&configuration, uri, &HostPort::parse(rpc, None).unwrap()).unwrap().to_string()
    }

    #[test]
    fn web_port_belongs_to_the_active_namenode() {
        let plain = Configuration::empty();
        assert_eq!(web_port(plain.clone(), "hdfs://h:8020", "h:8020"), "h:9870");
        let set = plain.with("dfs.namenode.http-address", "0.0.0.0:50070");
        assert_eq!(web_port(set.clone(), "hdfs://h:8020", "h:8020"), "h:50070");
        let ha = set
            .with("dfs.nameservices", "ns")
            .with("dfs.ha.namenodes.ns", "a,b")
            .with("dfs.namenode.rpc-address.ns.a", "ha:1")
            .with("dfs.namenode.rpc-address.ns.b", "hb:2")
            .with("dfs.namenode.http-address.ns.b", "hb:3");
        assert_eq!(web_port(ha.clone(), "hdfs://ns", "hb:2"), "hb:3");
        assert_eq!(web_port(ha.clone(), "hdfs://hb:2", "hb:2"), "hb:3");
        assert_eq!(web_port(ha, "hdfs://ns", "ha:1"), "ha:50070");
    }

    #[test]
    fn last_line_decides_for_any_chunking() {
        let mut last = LastLine::default();
        for piece in ["FSCK ended\n", "\n\nThe filesystem under ", "path '/' is HEAL", "THY"] {
            last.add(piece.as_bytes());
        }
        assert_eq!((last.text().as_str(), last.is_ended), ("The filesystem under path '/' is HEALTHY", false));
        assert_eq!(exit_code(&last.text()), 0);
        last.add(b"\nBlock replica on datanode/rack: dn1/default-rack is STALE\n");
        assert_eq!((exit_code(&last.text()), last.is_ended), (6, true));
        last.add(&[b'x'; 3 * LastLine::BYTES_MAX]);
        assert_eq!(last.text().len(), LastLine::BYTES_MAX);
        for (line, code) in [
            ("The filesystem under path '/' is CORRUPT", 1),
            ("Block blk_9 does not exist", 0),
            ("Incorrect blockId format: 9", 0),
            ("Fsck on path '/' FAILED", 255),
            ("", 255),
        ] {
            assert_eq!(exit_code(line), code, "{line}");
        }
    }

    #[test]
    fn corrupt_file_pages_end_at_the_last_page() {
        let page = Page::read(
            "FSCK started by ann from /1.2.3.4 for path / at now\nblk_1\t1\t/a\nblk_2\t2\t/b\nCookie:\t2\n\n\nThe filesystem under path '/' has 2 CORRUPT files\n\n",
        );
        assert_eq!(page.lines, ["blk_1\t1\t/a", "blk_2\t2\t/b"]);
        assert_eq!((page.next, page.is_last, page.is_refused), (Some(2), false, false));
        let last = Page::read("Cookie:\t2\n\n\nThe filesystem under path '/' has no more CORRUPT files\n\n");
        assert!(last.is_last && last.lines.is_empty());
        let refused = Page::read(
            "Access denied for user bob. Superuser privilege is required\n\n\nFsck on path '/' FAILED\nCookie:\tnone\n",
        );
        assert!(refused.is_refused && refused.is_last);
    }

    #[test]
    fn web_port_is_identified_by_its_rpc_address() {
        let bean = br#"{"beans": [{"name": "x", "HostAndPort": "127.0.0.1:8020"}]}"#;
        assert_eq!(owner(bean).unwrap().to_string(), "127.0.0.1:8020");
        for wrong in [&b"{}"[..], b"<html>", br#"{"beans": [{"HostAndPort": 5}]}"#] {
            assert!(owner(wrong).is_err());
        }
    }

    #[tokio::test]
    async fn hosts_without_a_common_address_are_different() {
        assert!(may_be_same_host("localhost", "127.0.0.1").await);
        assert!(may_be_same_host("0.0.0.0", "127.0.0.1").await);
        assert!(!may_be_same_host("127.0.0.2", "127.0.0.1").await);
    }
}
