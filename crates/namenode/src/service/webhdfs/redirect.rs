//! Redirects of clients to a DataNode that reads or writes for them: one that has the bytes, or that can take them.
//!
//! Source: `NamenodeWebHdfsMethods.redirectURI` and `chooseDatanode` of Hadoop 3.4.

use std::collections::HashSet;

use hearth_types::DatanodeId;
use hearth_web::axum::http::StatusCode;
use hearth_web::webhdfs::{Exception, PREFIX, empty, encode};
use hearth_wire::proto::hdfs::datanode_info_proto::AdminState;
use hearth_wire::proto::hdfs::{DatanodeIdProto, DatanodeInfoProto};
use hearth_wire::rpc::exceptions;
use serde_json::json;

use super::status::mode;
use super::{Answer, Operation, answer, missing};
use crate::namespace::is_valid;

const NUMBER_FORMAT: &str = "java.lang.NumberFormatException";

/// Target of a redirect.
struct Destination {
    host: String,
    /// HTTP port.
    port: u32,
}

impl From<&DatanodeIdProto> for Destination {
    fn from(id: &DatanodeIdProto) -> Self {
        Self { host: id.host_name.clone(), port: id.info_port }
    }
}

/// DataNodes that a client excludes.
///
/// Apache's NameNode identifies them by address, or by address and transfer port. Java's clients send the host and HTTP
/// port of the URL that failed, which that NameNode matches with no DataNode at all. Here such DataNodes are avoided if
/// another one is available.
struct Excluded(HashSet<String>);

impl Excluded {
    /// Errors: the text after a colon is not a number, as Java parses it.
    fn of(given: Option<&str>) -> Result<Self, Exception> {
        let names = given.unwrap_or_default().split(',').map(str::trim).filter(|name| !name.is_empty());
        let names: HashSet<String> = names.map(str::to_owned).collect();
        for name in &names {
            // `[::1]:9864`: Java would expect a number after the first colon.
            let port = if name.starts_with('[') { name.rsplit_once(':') } else { name.split_once(':') };
            if let Some((_, port)) = port
                && port.parse::<i32>().is_err()
            {
                return Err(Exception::new(NUMBER_FORMAT, format!("For input string: \"{port}\"")));
            }
        }
        Ok(Self(names))
    }

    /// Returns true if the DataNode must not be chosen.
    fn has(&self, ip: &str, transfer_port: u32) -> bool {
        !self.0.is_empty() && (self.0.contains(ip) || self.0.contains(format!("{ip}:{transfer_port}").as_str()))
    }

    /// Returns true if the DataNode may be chosen only if there is no other.
    fn avoids(&self, machine: [&str; 2], ports: [u32; 2]) -> bool {
        let is_named = |name: &str| {
            self.0.contains(name) || ports.iter().any(|port| self.0.contains(format!("{name}:{port}").as_str()))
        };
        !self.0.is_empty() && machine.into_iter().any(is_named)
    }
}

impl Operation {
    pub(super) async fn open(&self) -> Answer {
        let offset = self.parameters.long("offset", 0)?.unwrap_or(0);
        let passed = [
            ("buffersize", self.buffer_size()?),
            ("length", self.parameters.long("length", 0)?.map(|length| length.to_string())),
            ("offset", Some(offset.to_string())),
        ];
        let destination = self.holder("OPEN", Some(offset), &self.excluded()?).await?;
        self.send_on("OPEN", destination, &passed)
    }

    pub(super) async fn checksum(&self) -> Answer {
        let destination = self.holder("GETFILECHECKSUM", None, &Excluded::of(None)?).await?;
        self.send_on("GETFILECHECKSUM", destination, &[])
    }

    pub(super) async fn append(&self) -> Answer {
        let passed = [("buffersize", self.buffer_size()?)];
        let destination = self.holder("APPEND", None, &self.excluded()?).await?;
        self.send_on("APPEND", destination, &passed)
    }

    /// Redirects a create. The DataNode, which creates the file for the client, finds out whether that is permitted.
    pub(super) async fn create(&self) -> Answer {
        let given = &self.parameters;
        let block_size = given.long("blocksize", 1)?;
        let flags = given.create_flags()?;
        let text = |name: &str| given.text(name).map(str::to_owned);
        let passed = [
            ("blocksize", block_size.map(|size| size.to_string())),
            ("buffersize", self.buffer_size()?),
            ("createflag", Some(flags.join(","))),
            ("createparent", Some(given.flag("createparent", true)?.to_string())),
            ("ecpolicy", text("ecpolicy")),
            ("overwrite", Some(given.flag("overwrite", false)?.to_string())),
            ("permission", given.mode("permission")?.map(mode)),
            ("replication", given.short("replication", 1)?.map(|count| count.to_string())),
            // Java's NameNode passes on neither policy, so the file is created without one.
            ("storagepolicy", text("storagepolicy")),
            ("unmaskedpermission", given.mode("unmaskedpermission")?.map(mode)),
        ];
        self.check_path()?;
        self.webhdfs.service.datanodes.place_client(&self.caller.machine).await;
        let block_size = block_size.map_or(self.namenode().settings.defaults.block_size, |size| size as u64);
        let destination = self.gateway(block_size, &self.excluded()?)?;
        self.send_on("CREATE", destination, &passed)
    }

    fn buffer_size(&self) -> Result<Option<String>, Exception> {
        let size = self.parameters.integer("buffersize", 1)?;
        Ok(size.map(|size| size.to_string()))
    }

    fn excluded(&self) -> Result<Excluded, Exception> {
        Excluded::of(self.parameters.text("excludedatanodes"))
    }

    fn check_path(&self) -> Result<(), Exception> {
        // Trailing slashes are ignored, as by Apache's NameNode.
        let path = match self.path.trim_end_matches('/') {
            "" => "/",
            path => path,
        };
        match is_valid(path) {
            true => Ok(()),
            false => Err(Exception::new(exceptions::INVALID_PATH, format!("Invalid path name {}", self.path))),
        }
    }

    /// Chooses a DataNode that has the byte at `offset`, or the last byte if no offset is given. For an empty file, or
    /// a path that is not a file, any DataNode is chosen: it reports the error to the client.
    async fn holder(
        &self,
        operation: &str,
        offset: Option<i64>,
        excluded: &Excluded,
    ) -> Result<Destination, Exception> {
        self.check_path()?;
        let path = &self.path;
        let found = self.status_of(path).await?;
        let length = found.ok_or_else(|| missing(format!("File {path} not found.")))?.length as i64;
        let offset = offset.unwrap_or((length - 1).max(0));
        if length == 0 {
            return self.gateway(0, excluded);
        }
        if offset >= length {
            let message = format!("Offset={offset} out of the range [0, {length}); {operation}, path={path}");
            return Err(Exception::io(message));
        }
        let located = self.located(offset, 1).await?;
        let Some(block) = located.blocks.first() else { return self.gateway(0, excluded) };
        // Locations are sorted: nearest to the client first, stale and leaving ones last.
        let is_fit = |info: &&DatanodeInfoProto| {
            let id = &info.id;
            info.admin_state() != AdminState::Decommissioned
                && id.info_port != 0
                && !excluded.has(&id.ip_addr, id.xfer_port)
        };
        let is_avoided = |info: &&DatanodeInfoProto| {
            let id = &info.id;
            excluded.avoids([&id.ip_addr, &id.host_name], [id.info_port, id.xfer_port])
        };
        // `min_by_key` returns the first of equal ones, so the nearest.
        match block.locs.iter().filter(is_fit).min_by_key(is_avoided) {
            Some(info) => Ok((&info.id).into()),
            None => Err(Exception::io("No active nodes contain this block")),
        }
    }

    /// Chooses a DataNode that can take a block of this size; 0 for any.
    fn gateway(&self, block_size: u64, excluded: &Excluded) -> Result<Destination, Exception> {
        let is_excluded = |id: &DatanodeId| excluded.has(&id.ip, u32::from(id.transfer_port));
        let is_avoided = |id: &DatanodeId| {
            let ports = [u32::from(id.info_port), u32::from(id.transfer_port)];
            excluded.avoids([&id.ip, &id.host_name], ports) || is_excluded(id)
        };
        let namenode = self.namenode();
        let now = namenode.now();
        let machine = &self.caller.machine;
        let found = {
            let state = namenode.read();
            let other = state.blocks.gateway(machine, block_size, is_avoided, now);
            other.or_else(|| state.blocks.gateway(machine, block_size, is_excluded, now))
        };
        match found {
            Some(id) => Ok(Destination { host: id.host_name, port: u32::from(id.info_port) }),
            None => Err(Exception::io(format!(
                "Failed to find datanode, suggest to check cluster health. excludeDatanodes={}",
                self.parameters.text("excludedatanodes").unwrap_or("null")
            ))),
        }
    }

    /// Redirects to a DataNode. `passed`: parameters for the DataNode, in the order of their names.
    fn send_on(&self, operation: &str, to: Destination, passed: &[(&str, Option<String>)]) -> Answer {
        let host = if to.host.contains(':') { format!("[{}]", to.host) } else { to.host };
        let mut location = format!("http://{host}:{}{PREFIX}{}?op={operation}", to.port, encode(&self.path));
        for name in ["doas", "user.name"] {
            if let Some(value) = self.parameters.text(name) {
                location.push_str(&format!("&{name}={}", encode(value)));
            }
        }
        location.push_str(&format!("&namenoderpcaddress={}", self.webhdfs.rpc_address));
        for (name, value) in passed {
            if let Some(value) = value {
                location.push_str(&format!("&{name}={}", encode(value)));
            }
        }
        Ok(match self.parameters.flag("noredirect", false)? {
            true => answer(&json!({ "Location": location })),
            false => empty(StatusCode::TEMPORARY_REDIRECT, Some(&location)),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn excluded_datanodes_match_address_host_and_ports() {
        let of = |given: &str| Excluded::of(Some(given)).unwrap();
        let is_excluded = |given: &str| of(given).has("10.0.0.1", 9866);
        let is_avoided = |given: &str| of(given).avoids(["10.0.0.1", "dn1"], [9864, 9866]);
        for given in ["10.0.0.1", "x, 10.0.0.1", "10.0.0.1:9866 ,y"] {
            assert!(is_excluded(given) && is_avoided(given), "{given}");
        }
        for given in ["dn1", "x, dn1:9864", "10.0.0.1:9864", "dn1:9866"] {
            assert!(!is_excluded(given) && is_avoided(given), "{given}");
        }
        for given in ["", ",", "dn1:1", "dn11", "dn", "[::1]:9864"] {
            assert!(!is_excluded(given) && !is_avoided(given), "{given}");
        }
        for given in ["dn1:", "dn1:x", "a,b:9864x", "[::1]"] {
            assert_eq!(Excluded::of(Some(given)).err().map(|refused| refused.status().as_u16()), Some(400), "{given}");
        }
        assert!(!Excluded::of(None).unwrap().avoids(["", ""], [0, 0]));
    }
}
