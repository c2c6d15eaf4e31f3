use std::net::{IpAddr, UdpSocket};

use bytes::Bytes;
use hearth_protocol::rpc::{Caller, RemoteError, application_error};
use hearth_types::DatanodeId;
use hearth_wire::offer::OFFER_BYTES_MAX;
use hearth_wire::proto::hdfs::{RegisterDatanodeRequestProto, RegisterDatanodeResponseProto};
use hearth_wire::rpc::exceptions;

use super::{DatanodeService, SOFTWARE_VERSION, malformed, reverse_lookup};
use crate::blocks::{DEFAULT_RACK, Registration, RegistrationError};

impl DatanodeService {
    /// Registers a datanode, new or known. Its address is that of the connection; the address in the message is
    /// ignored.
    pub(super) async fn register_datanode(
        &self,
        caller: &Caller,
        request: RegisterDatanodeRequestProto,
    ) -> Result<RegisterDatanodeResponseProto, RemoteError> {
        let mut registration = request.registration;
        // Longer offers do not come from our datanodes. A copy, so that the frame is not kept alive.
        let offer = request.hearth_offer.filter(|offer| offer.len() <= OFFER_BYTES_MAX);
        let offer = offer.map(|offer| Bytes::copy_from_slice(&offer));
        self.check_version(&registration.software_version, registration.storage_info.c_time)?;
        let ip = caller.address.ip().to_canonical();
        registration.datanode_id.ip_addr = ip.to_string();
        let id: DatanodeId = registration.datanode_id.clone().try_into().map_err(malformed)?;
        self.check_name(ip, &id).await?;
        let rack = self.rack_of(&id).await?;
        let accepted = {
            let mut state = self.namenode.state.write();
            let now = crate::blocks::Now::of(&*self.namenode.clock);
            let software_version = registration.software_version.clone();
            let rack = rack.clone();
            state.blocks.register(Registration { id: id.clone(), software_version, rack, offer }, now)
        };
        accepted.map_err(|error| {
            let class = match error {
                RegistrationError::Disallowed { .. } => exceptions::DISALLOWED_DATANODE,
                RegistrationError::TableFull { .. } => exceptions::IO,
            };
            application_error(class, error.to_string())
        })?;
        tracing::info!(datanode = %id, uuid = %id.uuid, rack, "datanode registered");
        registration.datanode_id = (&id).into();
        registration.keys = self.exported_keys();
        Ok(RegisterDatanodeResponseProto { registration })
    }

    /// Checks the datanode's release. Datanodes of other releases must at least belong to this very file system, which
    /// its format time shows.
    fn check_version(&self, theirs: &str, created_ms: u64) -> Result<(), RemoteError> {
        let refuse = |message: String| Err(application_error(exceptions::INCORRECT_VERSION, message));
        let oldest = &self.settings.oldest_datanode;
        if compare_versions(theirs, oldest).is_lt() {
            return refuse(format!(
                "The reported DataNode version is too low to communicate with this NameNode. DataNode version: '{theirs}' Minimum DataNode version: '{oldest}'"
            ));
        }
        if theirs != SOFTWARE_VERSION && created_ms != self.namenode.identity.created_ms {
            return refuse(format!(
                "Reported DataNode version '{theirs}' of DN does not match NameNode version '{SOFTWARE_VERSION}' and CTime of DN ('{created_ms}') does not match CTime of NN ('{}')",
                self.namenode.identity.created_ms
            ));
        }
        Ok(())
    }

    async fn check_name(&self, ip: IpAddr, id: &DatanodeId) -> Result<(), RemoteError> {
        if !self.settings.check_host_names || is_of_this_machine(ip) || reverse_lookup::has_name(ip).await {
            return Ok(());
        }
        tracing::warn!(datanode = %id, "registration refused: the address has no host name (dfs.namenode.datanode.registration.ip-hostname-check)");
        Err(application_error(
            exceptions::DISALLOWED_DATANODE,
            format!(
                "Datanode denied communication with namenode because hostname cannot be resolved (ip={ip}, hostname={ip}): {id}"
            ),
        ))
    }

    async fn rack_of(&self, id: &DatanodeId) -> Result<String, RemoteError> {
        match self.racks.resolve(&id.ip, &id.host_name).await {
            Some(rack) => Ok(rack),
            None if self.settings.reject_unknown_racks => Err(application_error(
                exceptions::UNRESOLVED_TOPOLOGY,
                format!("Unresolved topology mapping for host {}", id.host_name),
            )),
            None => Ok(DEFAULT_RACK.to_owned()),
        }
    }
}

/// Returns true if the address belongs to this machine: only then can it be bound.
pub(crate) fn is_of_this_machine(ip: IpAddr) -> bool {
    ip.is_loopback() || UdpSocket::bind((ip, 0)).is_ok()
}

/// Compares version texts in Hadoop's order: part by part, numbers before words.
pub(super) fn compare_versions(left: &str, right: &str) -> std::cmp::Ordering {
    use std::cmp::Ordering;
    // A snapshot is older than its release.
    let (left_snapshot, right_snapshot) = (left.contains("SNAPSHOT"), right.contains("SNAPSHOT"));
    let (mut left_parts, mut right_parts) = (parts(left), parts(right));
    let order = loop {
        match (left_parts.next(), right_parts.next()) {
            (None, None) => break Ordering::Equal,
            // 2.1 comes after 2.1-beta and before 2.1.1.
            (Some(part), None) => break if part.parse::<u64>().is_ok() { Ordering::Greater } else { Ordering::Less },
            (None, Some(part)) => break if part.parse::<u64>().is_ok() { Ordering::Less } else { Ordering::Greater },
            (Some(one), Some(other)) => {
                let order = match (one.parse::<u64>(), other.parse::<u64>()) {
                    (Ok(one), Ok(other)) => one.cmp(&other),
                    (Ok(_), Err(_)) => Ordering::Greater,
                    (Err(_), Ok(_)) => Ordering::Less,
                    (Err(_), Err(_)) => one.cmp(other),
                };
                if order.is_ne() {
                    break order;
                }
            }
        }
    };
    order.then_with(|| right_snapshot.cmp(&left_snapshot))
}

fn parts(version: &str) -> impl Iterator<Item = &str> {
    version.split(['.', '-']).filter(|part| !part.is_empty() && *part != "SNAPSHOT")
}

#[cfg(test)]
mod tests {
    use super::compare_versions;

    #[test]
    fn versions_in_order() {
        let ordered =
            ["2.0.6-alpha", "2.1.0-alpha", "2.1.0-beta", "2.1.0", "2.1.1", "3.3.6", "3.4.2", "3.10.0", "9.9.9-mydn"];
        for pair in ordered.windows(2) {
            assert!(compare_versions(pair[0], pair[1]).is_lt(), "{} < {}", pair[0], pair[1]);
            assert!(compare_versions(pair[1], pair[0]).is_gt(), "{} > {}", pair[1], pair[0]);
        }
        assert!(compare_versions("3.4.2-SNAPSHOT", "3.4.2").is_lt());
        assert!(compare_versions("3.4.2", "3.4.2").is_eq());
    }
}
