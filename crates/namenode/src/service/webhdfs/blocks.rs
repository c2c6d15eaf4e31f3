//! Block locations of a file.

use hearth_types::StorageType;
use hearth_web::webhdfs::Exception;
use hearth_wire::proto::hdfs::{
    DatanodeInfoProto, GetBlockLocationsRequestProto, GetBlockLocationsResponseProto, LocatedBlockProto,
    LocatedBlocksProto,
};
use serde_json::{Value, json};

use super::{Answer, Operation, list, token};

impl Operation {
    pub(super) async fn located(&self, offset: i64, length: i64) -> Result<LocatedBlocksProto, Exception> {
        // Neither is negative.
        let (offset, length) = (offset as u64, length as u64);
        let request = GetBlockLocationsRequestProto { src: self.path.clone(), offset, length };
        let found: GetBlockLocationsResponseProto = self.call("getBlockLocations", &request).await?;
        Ok(found.locations.unwrap_or_default())
    }

    /// Returns the blocks of the requested range, else of the whole file.
    async fn located_range(&self) -> Result<LocatedBlocksProto, Exception> {
        let offset = self.parameters.long("offset", 0)?.unwrap_or(0);
        let length = self.parameters.long("length", 0)?.unwrap_or(i64::MAX);
        self.located(offset, length).await
    }

    /// Answers in the form of DFSClient.
    pub(super) async fn block_locations(&self) -> Answer {
        let located = self.located_range().await?;
        let last = located.last_block.as_ref().map(located_block);
        let before = format!(
            "{{\"LocatedBlocks\":{{\"fileLength\":{},\"isLastBlockComplete\":{},\"isUnderConstruction\":{},\
             \"lastLocatedBlock\":{},\"locatedBlocks\":[",
            located.file_length,
            located.is_last_block_complete,
            located.under_construction,
            last.unwrap_or_default()
        );
        Ok(list(before, located.blocks, located_block, "]}}".to_owned()))
    }

    /// Answers in the form of FileSystem's users.
    pub(super) async fn file_block_locations(&self) -> Answer {
        let located = self.located_range().await?;
        let before = "{\"BlockLocations\":{\"BlockLocation\":[".to_owned();
        Ok(list(before, located.blocks, block_location, "]}}".to_owned()))
    }
}

/// Source: `JsonUtil.toJsonMap(LocatedBlock)`.
fn located_block(located: &LocatedBlockProto) -> Value {
    let cached: Vec<Value> = cached(located).map(datanode).collect();
    let locations: Vec<Value> = located.locs.iter().map(datanode).collect();
    json!({
        "block": {
            "blockPoolId": located.b.pool_id,
            "blockId": located.b.block_id as i64,
            "numBytes": located.b.num_bytes() as i64,
            "generationStamp": located.b.generation_stamp as i64,
        },
        "blockToken": { "urlString": token::encode(&located.block_token) },
        "cachedLocations": cached,
        "isCorrupt": located.corrupt,
        "locations": locations,
        "startOffset": located.offset as i64,
        "storageTypes": storage_types(&located.storage_types),
    })
}

/// Source: `DFSUtilClient.locatedBlocks2Locations`, `JsonUtil.toJsonMap(BlockLocation)`.
fn block_location(located: &LocatedBlockProto) -> Value {
    let topology = |info: &DatanodeInfoProto| format!("{}/{}", info.location().trim_end_matches('/'), address(info));
    let cached: Vec<&str> = cached(located).map(|info| info.id.host_name.as_str()).collect();
    let hosts: Vec<&str> = located.locs.iter().map(|info| info.id.host_name.as_str()).collect();
    let names: Vec<String> = located.locs.iter().map(address).collect();
    let paths: Vec<String> = located.locs.iter().map(topology).collect();
    json!({
        "cachedHosts": cached,
        "corrupt": located.corrupt,
        "hosts": hosts,
        "length": located.b.num_bytes() as i64,
        "names": names,
        "offset": located.offset as i64,
        "storageTypes": storage_types(&located.storage_types),
        "topologyPaths": paths,
    })
}

fn cached(located: &LocatedBlockProto) -> impl Iterator<Item = &DatanodeInfoProto> {
    let locations = located.locs.iter().zip(&located.is_cached);
    locations.filter(|(_, is_cached)| **is_cached).map(|(info, _)| info)
}

/// Names of media.
pub fn storage_types(numbers: &[i32]) -> Vec<&'static str> {
    numbers.iter().map(|number| StorageType::from_number(*number).unwrap_or_default().name()).collect()
}

fn address(info: &DatanodeInfoProto) -> String {
    format!("{}:{}", info.id.ip_addr, info.id.xfer_port)
}

/// Source: `JsonUtil.toJsonMap(DatanodeInfo)`.
fn datanode(info: &DatanodeInfoProto) -> Value {
    let mut shown = json!({
        "ipAddr": info.id.ip_addr,
        "name": address(info),
        "hostName": info.id.host_name,
        "storageID": info.id.datanode_uuid,
        "xferPort": info.id.xfer_port,
        "infoPort": info.id.info_port,
        "infoSecurePort": info.id.info_secure_port(),
        "ipcPort": info.id.ipc_port,
        "capacity": info.capacity(),
        "dfsUsed": info.dfs_used(),
        "remaining": info.remaining(),
        "blockPoolUsed": info.block_pool_used(),
        "cacheCapacity": info.cache_capacity(),
        "cacheUsed": info.cache_used(),
        "lastUpdate": info.last_update(),
        "lastUpdateMonotonic": info.last_update_monotonic(),
        "xceiverCount": info.xceiver_count(),
        "networkLocation": info.location(),
        "adminState": info.admin_state().as_str_name(),
        "lastBlockReportTime": info.last_block_report_time(),
        "lastBlockReportMonotonic": info.last_block_report_monotonic(),
    });
    if let Some(domain) = &info.upgrade_domain {
        shown["upgradeDomain"] = domain.as_str().into();
    }
    shown
}

#[cfg(test)]
mod tests {
    use hearth_wire::proto::hdfs::{DatanodeIdProto, ExtendedBlockProto};

    use super::*;

    fn located() -> LocatedBlockProto {
        let datanode = |number: u32| DatanodeInfoProto {
            id: DatanodeIdProto {
                ip_addr: format!("10.0.0.{number}"),
                host_name: format!("dn{number}"),
                datanode_uuid: format!("uuid{number}"),
                xfer_port: 9866,
                info_port: 9864,
                ipc_port: 9867,
                info_secure_port: None,
            },
            location: Some("/rack".into()),
            admin_state: Some(1),
            ..DatanodeInfoProto::default()
        };
        let b = ExtendedBlockProto {
            pool_id: "BP-1".into(),
            block_id: -5i64 as u64,
            generation_stamp: 1001,
            num_bytes: Some(7),
        };
        LocatedBlockProto {
            b,
            offset: 100,
            locs: vec![datanode(1), datanode(2)],
            is_cached: vec![false, true],
            storage_types: vec![1, 2],
            ..LocatedBlockProto::default()
        }
    }

    #[test]
    fn located_block_has_all_required_fields() {
        let shown = located_block(&located());
        let block = json!({ "blockPoolId": "BP-1", "blockId": -5, "numBytes": 7, "generationStamp": 1001 });
        assert_eq!(shown["block"], block);
        assert_eq!(shown["blockToken"], json!({ "urlString": "AAAAAA" }));
        assert_eq!(shown["storageTypes"], json!(["DISK", "SSD"]));
        assert_eq!((&shown["startOffset"], &shown["isCorrupt"]), (&json!(100), &json!(false)));
        let first = &shown["locations"][0];
        assert_eq!(
            (&first["name"], &first["hostName"], &first["adminState"]),
            (&json!("10.0.0.1:9866"), &json!("dn1"), &json!("DECOMMISSION_INPROGRESS"))
        );
        assert_eq!(shown["cachedLocations"].as_array().unwrap().len(), 1);
        assert_eq!(shown["cachedLocations"][0]["storageID"], "uuid2");
    }

    #[test]
    fn a_block_location_has_the_racks_of_its_datanodes() {
        let wanted = json!({
            "cachedHosts": ["dn2"], "corrupt": false, "hosts": ["dn1", "dn2"], "length": 7,
            "names": ["10.0.0.1:9866", "10.0.0.2:9866"], "offset": 100, "storageTypes": ["DISK", "SSD"],
            "topologyPaths": ["/rack/10.0.0.1:9866", "/rack/10.0.0.2:9866"],
        });
        assert_eq!(block_location(&located()), wanted);
    }
}
