//! Messages compared byte by byte with those of Apache Hadoop 3.4.2.

use hearth_wire::proto::hdfs::*;
use prost::Message;

fn bytes(hex: &str) -> Vec<u8> {
    (0..hex.len() / 2).map(|i| u8::from_str_radix(&hex[2 * i..2 * i + 2], 16).unwrap()).collect()
}

#[test]
fn register_datanode_request() {
    let golden = bytes(concat!(
        "0a790a480a0831302e302e302e35120b646e352e6578616d706c651a2462316137653566302d303030302d343030302d383030302d3030303",
        "03030303030303035208a4d28884d308b4d3800121608c7ffffff0f10959aef3a1a074349442d61626320001a0e080010001800220608001000",
        "1a002205332e342e32"
    ));
    let message = RegisterDatanodeRequestProto {
        registration: DatanodeRegistrationProto {
            datanode_id: DatanodeIdProto {
                ip_addr: "10.0.0.5".into(),
                host_name: "dn5.example".into(),
                datanode_uuid: "b1a7e5f0-0000-4000-8000-000000000005".into(),
                xfer_port: 9866,
                info_port: 9864,
                ipc_port: 9867,
                info_secure_port: Some(0),
            },
            storage_info: StorageInfoProto {
                layout_version: -57i32 as u32,
                namespace_id: 123456789,
                cluster_id: "CID-abc".into(),
                c_time: 0,
            },
            keys: ExportedBlockKeysProto {
                current_key: BlockKeyProto { key_bytes: Some(Default::default()), ..Default::default() },
                ..Default::default()
            },
            software_version: "3.4.2".into(),
        },
        hearth_offer: None,
    };
    assert_eq!(message.encode_to_vec(), golden);
    assert_eq!(RegisterDatanodeRequestProto::decode(&golden[..]).unwrap(), message);
}

#[test]
fn storage_report() {
    let golden = bytes(concat!(
        "0a2744532d31313131313131312d323232322d343333332d383434342d3535353535353535353535351880808080802020808080800428808080",
        "8080103080808080043a2d0a2744532d31313131313131312d323232322d343333332d383434342d353535353535353535353535100018014000",
        "4a012f"
    ));
    let storage = "DS-11111111-2222-4333-8444-555555555555";
    let message = StorageReportProto {
        storage_uuid: storage.into(),
        failed: None,
        capacity: Some(1 << 40),
        dfs_used: Some(1 << 30),
        remaining: Some(1 << 39),
        block_pool_used: Some(1 << 30),
        storage: Some(DatanodeStorageProto {
            storage_uuid: storage.into(),
            state: Some(datanode_storage_proto::StorageState::Normal as i32),
            storage_type: Some(StorageTypeProto::Disk as i32),
        }),
        non_dfs_used: Some(0),
        mount: Some("/".into()),
    };
    assert_eq!(message.encode_to_vec(), golden);
    assert_eq!(StorageReportProto::decode(&golden[..]).unwrap(), message);
}
