//! A fake NameNode that registers every DataNode, grants leases, and records what it receives.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::Arc;

use bytes::Bytes;
use hearth_protocol::block_token::{AccessMode, BlockAccess, BlockKey, BlockKeys, BlockTokenEncoding, ExportedKeys};
use hearth_protocol::rpc::{
    Call, RemoteError, RpcServer, RpcServerOptions, Service, application_error, no_such_method,
};
use hearth_testkit::until;
use hearth_types::{Block, BlockPoolId, Clock, ExtendedBlock, PoolIdentity, StorageType, SystemClock, Token};
use hearth_wire::convert::{storage_info, storage_type_from_wire};
use hearth_wire::proto::hdfs::nnha_status_heartbeat_proto::State;
use hearth_wire::proto::hdfs::received_deleted_block_info_proto::BlockStatus;
use hearth_wire::proto::hdfs::{
    AwaitWorkResponseProto, BlockCommandProto, BlockReceivedAndDeletedRequestProto,
    BlockReceivedAndDeletedResponseProto, BlockReportRequestProto, BlockReportResponseProto,
    CommitBlockSynchronizationRequestProto, CommitBlockSynchronizationResponseProto, DatanodeCommandProto,
    DatanodeRegistrationProto, ErrorReportResponseProto, HeartbeatRequestProto, HeartbeatResponseProto,
    NamespaceInfoProto, NnhaStatusHeartbeatProto, RegisterDatanodeRequestProto, RegisterDatanodeResponseProto,
    ReportBadBlocksRequestProto, ReportBadBlocksResponseProto, VersionResponseProto, block_command_proto,
    datanode_command_proto,
};
use hearth_wire::rpc::{exceptions, protocols};
use parking_lot::Mutex;
use prost::Message;
use tokio::sync::Notify;

pub const POOL: &str = "BP-1-127.0.0.1-1";

#[derive(Default)]
pub struct Told {
    pub registrations: Vec<DatanodeRegistrationProto>,
    pub heartbeats: usize,
    /// From the last heartbeat.
    pub storages: usize,
    pub failed_volumes: u32,
    /// Number of replicas in the last full report.
    pub full_report: Option<u64>,
    pub events: Vec<(BlockStatus, Block)>,
    /// Like `events`, with the type of the storage.
    pub storage_events: Vec<(BlockStatus, StorageType, Block)>,
    /// For received replicas: the DataNode whose replica is to be deleted in exchange.
    pub delete_hints: Vec<(Block, String)>,
    pub synchronized: Vec<CommitBlockSynchronizationRequestProto>,
    pub bad: Vec<ReportBadBlocksRequestProto>,
    /// The DataNode may send awaitWork, which is answered as soon as there are commands.
    pub answers_questions: bool,
    /// Number of incremental reports that are still to fail.
    pub failing_reports: usize,
    /// Sent with the next heartbeat.
    pub commands: VecDeque<DatanodeCommandProto>,
}

struct Answers {
    told: Mutex<Told>,
    /// Notified when a test may have added commands.
    commands_added: Notify,
    keys: ExportedKeys,
}

pub struct FakeNamenode {
    server: RpcServer,
    answers: Arc<Answers>,
}

pub fn pool() -> BlockPoolId {
    BlockPoolId::new(POOL)
}

fn identity() -> PoolIdentity {
    PoolIdentity { pool: pool(), namespace_id: 7, cluster_id: "CID-test".to_owned(), created_ms: 1 }
}

/// Holds the keys of a NameNode with tokens enabled.
pub struct Minter {
    keys: BlockKeys,
    now: u64,
}

impl Minter {
    pub fn token(&self, block: &ExtendedBlock, mode: AccessMode) -> Token {
        self.keys.mint("tester", &BlockAccess::new(block, mode), BlockTokenEncoding::default(), self.now)
    }
}

impl FakeNamenode {
    pub async fn start() -> Self {
        Self::with_keys(ExportedKeys::disabled()).await
    }

    pub async fn with_keys(keys: ExportedKeys) -> Self {
        let answers = Arc::new(Answers { told: Mutex::default(), commands_added: Notify::new(), keys });
        let server = RpcServer::start("127.0.0.1:0", answers.clone(), RpcServerOptions::default()).await.unwrap();
        Self { server, answers }
    }

    /// Starts a NameNode with tokens enabled. Returns it with a minter of tokens that its DataNodes accept.
    pub async fn with_tokens() -> (Self, Minter) {
        let now = SystemClock::new().wall_ms();
        let key = BlockKey { id: 5, expiry_ms: now + 3_600_000, secret: b"12345678".to_vec() };
        let exported = ExportedKeys {
            enabled: true,
            update_interval_ms: 600_000,
            token_lifetime_ms: 600_000,
            current: Some(key.clone()),
            all: vec![key],
        };
        let keys = BlockKeys::new();
        keys.import(&exported, now);
        (Self::with_keys(exported).await, Minter { keys, now })
    }

    pub fn address(&self) -> SocketAddr {
        self.server.address()
    }

    pub fn told<T>(&self, look: impl FnOnce(&mut Told) -> T) -> T {
        let seen = look(&mut self.answers.told.lock());
        self.answers.commands_added.notify_waiters();
        seen
    }

    /// Waits until `found` returns true.
    pub async fn wait(&self, what: &str, mut found: impl FnMut(&mut Told) -> bool) {
        until(what, async || found(&mut self.answers.told.lock())).await;
    }

    pub async fn wait_event(&self, status: BlockStatus, block: Block) {
        self.wait(&format!("{status:?} of {block:?}"), |told| told.events.contains(&(status, block))).await;
    }
}

/// Builds the command that makes a DataNode delete `blocks`.
pub fn invalidate(blocks: &[Block]) -> DatanodeCommandProto {
    with_blocks(block_command_proto::Action::Invalidate, blocks, BlockCommandProto::default())
}

/// Builds a command for `blocks`, with the other fields from `command`.
pub fn with_blocks(
    action: block_command_proto::Action,
    blocks: &[Block],
    command: BlockCommandProto,
) -> DatanodeCommandProto {
    DatanodeCommandProto {
        cmd_type: datanode_command_proto::Type::Block as i32,
        blk_cmd: Some(BlockCommandProto {
            action: action as i32,
            block_pool_id: POOL.to_owned(),
            blocks: blocks.iter().map(|block| block.into()).collect(),
            ..command
        }),
        ..Default::default()
    }
}

fn decode<M: Message + Default>(call: &Call) -> M {
    M::decode(call.request.clone()).unwrap()
}

impl Service for Answers {
    fn protocols(&self) -> &[&'static str] {
        &[protocols::DATANODE]
    }

    async fn call(&self, call: Call) -> Result<Bytes, RemoteError> {
        if call.method == "awaitWork" {
            // The DataNode, not this call, limits the wait.
            loop {
                let added = self.commands_added.notified();
                if !self.told.lock().commands.is_empty() {
                    break;
                }
                added.await;
            }
            return Ok(AwaitWorkResponseProto { waiting: Some(true) }.encode_to_vec().into());
        }
        let mut told = self.told.lock();
        let answer = match call.method.as_str() {
            "versionRequest" => VersionResponseProto {
                info: NamespaceInfoProto {
                    build_version: "test".to_owned(),
                    unused: 0,
                    block_pool_id: POOL.to_owned(),
                    storage_info: storage_info(&identity(), -67),
                    software_version: "3.4.2".to_owned(),
                    capabilities: Some(1),
                    state: Some(State::Active as i32),
                },
            }
            .encode_to_vec(),
            "registerDatanode" => {
                let mut registration = decode::<RegisterDatanodeRequestProto>(&call).registration;
                registration.datanode_id.ip_addr = "127.0.0.1".to_owned();
                registration.keys = (&self.keys).into();
                told.registrations.push(registration.clone());
                RegisterDatanodeResponseProto { registration }.encode_to_vec()
            }
            "sendHeartbeat" => {
                let request = decode::<HeartbeatRequestProto>(&call);
                told.heartbeats += 1;
                told.storages = request.reports.len();
                told.failed_volumes = request.failed_volumes();
                HeartbeatResponseProto {
                    cmds: told.commands.drain(..).collect(),
                    ha_status: NnhaStatusHeartbeatProto { state: State::Active as i32, txid: 1 },
                    hearth_awaits_work: Some(told.answers_questions),
                    full_block_report_lease_id: Some(u64::from(request.request_full_block_report_lease())),
                    ..Default::default()
                }
                .encode_to_vec()
            }
            "blockReport" => {
                let request = decode::<BlockReportRequestProto>(&call);
                told.full_report = Some(request.reports.iter().map(|report| report.number_of_blocks()).sum());
                BlockReportResponseProto::default().encode_to_vec()
            }
            "blockReceivedAndDeleted" if told.failing_reports > 0 => {
                told.failing_reports -= 1;
                return Err(application_error(exceptions::IO, "the test wants it to fail"));
            }
            "blockReceivedAndDeleted" => {
                let request = decode::<BlockReceivedAndDeletedRequestProto>(&call);
                for storage in request.blocks {
                    let number = storage.storage.and_then(|storage| storage.storage_type).unwrap_or_default();
                    for event in storage.blocks {
                        let (status, block) = (event.status(), event.block.into());
                        told.delete_hints.extend(event.delete_hint.map(|hint| (block, hint)));
                        told.events.push((status, block));
                        told.storage_events.push((status, storage_type_from_wire(number), block));
                    }
                }
                BlockReceivedAndDeletedResponseProto::default().encode_to_vec()
            }
            "commitBlockSynchronization" => {
                told.synchronized.push(decode(&call));
                CommitBlockSynchronizationResponseProto::default().encode_to_vec()
            }
            "reportBadBlocks" => {
                told.bad.push(decode(&call));
                ReportBadBlocksResponseProto::default().encode_to_vec()
            }
            "errorReport" => ErrorReportResponseProto::default().encode_to_vec(),
            method => return Err(no_such_method(&call.protocol, method)),
        };
        Ok(answer.into())
    }
}
