//! A fake namenode that places each block on all its datanodes except those that the writer excludes, and counts
//! requests.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicUsize, Ordering};

use bytes::Bytes;
use hearth_protocol::rpc::{
    Call, RemoteError, RpcServer, RpcServerOptions, Service, application_error, no_such_method,
};
use hearth_types::{
    Block, BlockId, BlockPoolId, DatanodeInfo, ExtendedBlock, FileFlags, FileKind, FileStatus, FsPermission,
    GenerationStamp, LocatedBlock, LocatedBlocks, StorageId, StorageType,
};
use hearth_wire::proto::hdfs::*;
use hearth_wire::rpc::{exceptions, protocols};
use parking_lot::Mutex;
use prost::Message;
use tokio::sync::watch;

use super::BLOCK;

/// Block of [`FakeNamenode::has_file`].
pub(super) const CLOSED: BlockId = BlockId(1);

pub(super) struct FakeNamenode {
    server: RpcServer,
    state: Arc<State>,
}

struct State {
    datanodes: Vec<DatanodeInfo>,
    /// Datanodes that may replace others in a pipeline.
    spare: Mutex<Vec<DatanodeInfo>>,
    /// The last block id, and the last generation stamp.
    last: AtomicI64,
    heard: Mutex<Heard>,
    /// Request that created the last file.
    created: Mutex<Option<CreateRequestProto>>,
    /// `addBlock` is answered.
    allocates: watch::Sender<bool>,
    /// Number of times that it was called.
    asked_blocks: watch::Sender<usize>,
    /// `fsync` is answered.
    records: watch::Sender<bool>,
    /// A closed file of one block.
    closed: Mutex<Option<FileStatus>>,
    /// Its block, once another client has opened it for append.
    opened: Mutex<Option<LocatedBlock>>,
    /// Number of times that closing is still refused, and number of files closed.
    refusals: AtomicUsize,
    completed: AtomicUsize,
    /// Clients that allocated, gave up or recorded blocks, or closed files.
    holders: Mutex<BTreeSet<String>>,
    /// Block lengths that were recorded.
    recorded: Mutex<Vec<i64>>,
}

/// Counts of the requests received.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(super) struct Heard {
    /// Datanodes to exclude, counted with every block.
    pub excluded: usize,
    /// Blocks that were abandoned.
    pub abandoned: usize,
    /// Pipelines that were recovered.
    pub recovered: usize,
}

impl FakeNamenode {
    pub async fn start(datanodes: Vec<DatanodeInfo>) -> Self {
        let (last, heard, allocates) = (AtomicI64::new(1000), Mutex::default(), watch::Sender::new(true));
        let (refusals, completed) = (AtomicUsize::new(0), AtomicUsize::new(0));
        let (spare, closed, created) = (Mutex::default(), Mutex::default(), Mutex::default());
        let (asked_blocks, records) = (watch::Sender::new(0), watch::Sender::new(true));
        let (holders, recorded, opened) = (Mutex::default(), Mutex::default(), Mutex::default());
        let state = Arc::new(State {
            datanodes,
            spare,
            last,
            heard,
            created,
            allocates,
            asked_blocks,
            records,
            closed,
            opened,
            refusals,
            completed,
            holders,
            recorded,
        });
        let server = RpcServer::start("127.0.0.1:0", Arc::clone(&state), RpcServerOptions::default()).await.unwrap();
        Self { server, state }
    }

    pub fn uri(&self) -> String {
        format!("hdfs://{}", self.server.address())
    }

    pub fn heard(&self) -> Heard {
        *self.state.heard.lock()
    }

    /// Returns the request that created the last file.
    pub fn created(&self) -> CreateRequestProto {
        self.state.created.lock().clone().expect("a file was created")
    }

    /// Sets the datanodes that may replace a failed one; the first that is not excluded is chosen.
    pub fn has_spare(&self, datanodes: Vec<DatanodeInfo>) {
        *self.state.spare.lock() = datanodes;
    }

    /// Adds a closed file of one block, [`CLOSED`], of `length` bytes, on all its datanodes.
    pub fn has_file(&self, length: usize, replication: u16) {
        *self.state.closed.lock() = Some(FileStatus {
            kind: FileKind::File,
            local_name: Vec::new(),
            length: length as u64,
            permission: FsPermission(0o644),
            owner: "tester".to_owned(),
            group: "tester".to_owned(),
            modification_time_ms: 0,
            access_time_ms: 0,
            replication,
            block_size: BLOCK as u64,
            inode: 17,
            children: -1,
            storage_policy: 0,
            flags: FileFlags::default(),
            symlink: None,
            erasure_coding_policy: None,
        });
    }

    /// Opens that file for append, as for another client. Returns its block.
    pub fn opened_block(&self) -> ExtendedBlock {
        let length = self.state.closed.lock().as_ref().expect("a closed file").length;
        let located = self.state.located(Some(CLOSED), self.state.datanodes.clone());
        let mut located = LocatedBlock::try_from(located).unwrap();
        located.block.block.length = length;
        let block = located.block.clone();
        *self.state.opened.lock() = Some(located);
        block
    }

    /// Makes it refuse to close the next file this many times.
    pub fn refuse_to_complete(&self, times: usize) {
        self.state.refusals.store(times, Ordering::Relaxed);
    }

    /// Returns the clients that allocated, gave up or recorded blocks, or closed files.
    pub fn holders(&self) -> Vec<String> {
        self.state.holders.lock().iter().cloned().collect()
    }

    /// Returns the block lengths that writers had recorded, in order.
    pub fn recorded(&self) -> Vec<i64> {
        self.state.recorded.lock().clone()
    }

    /// Returns the number of files closed.
    pub fn completed(&self) -> usize {
        self.state.completed.load(Ordering::Relaxed)
    }

    pub fn allocate(&self, allocates: bool) {
        self.state.allocates.send_replace(allocates);
    }

    /// Waits until this many blocks were requested in all.
    pub async fn asked_blocks(&self, count: usize) {
        let _ = self.state.asked_blocks.subscribe().wait_for(|asked| *asked >= count).await;
    }

    /// Sets whether `fsync` is answered.
    pub fn record(&self, records: bool) {
        self.state.records.send_replace(records);
    }
}

impl State {
    /// Returns a located block with a new generation stamp, and a new id if none is given.
    fn located(&self, id: Option<BlockId>, datanodes: Vec<DatanodeInfo>) -> LocatedBlockProto {
        let next = self.last.fetch_add(1, Ordering::Relaxed) + 1;
        let block = Block { id: id.unwrap_or(BlockId(next)), stamp: GenerationStamp(next as u64), length: 0 };
        let located = LocatedBlock {
            storage_ids: datanodes.iter().map(|datanode| StorageId(datanode.id.uuid.0.clone())).collect(),
            storage_types: vec![StorageType::Disk; datanodes.len()],
            locations: datanodes,
            ..LocatedBlock::nowhere(ExtendedBlock { pool: BlockPoolId::new("BP-1"), block })
        };
        (&located).into()
    }
}

impl Service for State {
    fn protocols(&self) -> &[&'static str] {
        &[protocols::CLIENT]
    }

    async fn call(&self, call: Call) -> Result<Bytes, RemoteError> {
        let answer = match call.method.as_str() {
            "create" => {
                *self.created.lock() = Some(CreateRequestProto::decode(call.request).unwrap());
                CreateResponseProto::default().encode_to_vec()
            }
            "append" => {
                let Some(status) = self.closed.lock().clone() else {
                    return Err(application_error(exceptions::IO, "no file is closed"));
                };
                let mut block = self.located(Some(CLOSED), self.datanodes.clone());
                block.b.num_bytes = Some(status.length);
                AppendResponseProto { block: Some(block), stat: Some((&status).into()) }.encode_to_vec()
            }
            "getBlockLocations" => {
                let located = LocatedBlocks {
                    file_length: 0,
                    under_construction: true,
                    blocks: Vec::new(),
                    last_block: self.opened.lock().clone(),
                    last_block_complete: false,
                };
                GetBlockLocationsResponseProto { locations: Some((&located).into()) }.encode_to_vec()
            }
            "addBlock" => {
                let asked = AddBlockRequestProto::decode(call.request).unwrap();
                self.holders.lock().insert(asked.client_name.clone());
                self.asked_blocks.send_modify(|count| *count += 1);
                let _ = self.allocates.subscribe().wait_for(|allocates| *allocates).await;
                self.heard.lock().excluded += asked.exclude_nodes.len();
                let excluded = |uuid: &str| asked.exclude_nodes.iter().any(|node| node.id.datanode_uuid == uuid);
                let mut datanodes = self.datanodes.clone();
                datanodes.retain(|datanode| !excluded(&datanode.id.uuid.0));
                if datanodes.is_empty() {
                    return Err(application_error(exceptions::IO, "no datanode is left"));
                }
                AddBlockResponseProto { block: self.located(None, datanodes) }.encode_to_vec()
            }
            "abandonBlock" => {
                let asked = AbandonBlockRequestProto::decode(call.request).unwrap();
                self.holders.lock().insert(asked.holder);
                self.heard.lock().abandoned += 1;
                AbandonBlockResponseProto::default().encode_to_vec()
            }
            "updateBlockForPipeline" => {
                let asked = UpdateBlockForPipelineRequestProto::decode(call.request).unwrap();
                self.holders.lock().insert(asked.client_name);
                let block = self.located(Some(BlockId(asked.block.block_id as i64)), Vec::new());
                UpdateBlockForPipelineResponseProto { block }.encode_to_vec()
            }
            "getAdditionalDatanode" => {
                let asked = GetAdditionalDatanodeRequestProto::decode(call.request).unwrap();
                let is_in = |list: &[DatanodeInfoProto], datanode: &DatanodeInfo| {
                    list.iter().any(|known| *known.id.datanode_uuid == *datanode.id.uuid.0)
                };
                let spare = self.spare.lock();
                let mut datanodes = [&self.datanodes[..], &spare[..]].concat();
                datanodes.retain(|datanode| is_in(&asked.existings, datanode));
                let is_new =
                    |datanode: &&DatanodeInfo| !is_in(&asked.excludes, datanode) && !is_in(&asked.existings, datanode);
                let Some(another) = spare.iter().find(is_new) else {
                    return Err(application_error(exceptions::IO, "no datanode is left"));
                };
                datanodes.push(another.clone());
                let block = self.located(Some(BlockId(asked.blk.block_id as i64)), datanodes);
                GetAdditionalDatanodeResponseProto { block }.encode_to_vec()
            }
            "updatePipeline" => {
                let asked = UpdatePipelineRequestProto::decode(call.request).unwrap();
                self.holders.lock().insert(asked.client_name);
                self.heard.lock().recovered += 1;
                UpdatePipelineResponseProto::default().encode_to_vec()
            }
            "fsync" => {
                let asked = FsyncRequestProto::decode(call.request).unwrap();
                self.holders.lock().insert(asked.client);
                self.recorded.lock().extend(asked.last_block_length);
                let _ = self.records.subscribe().wait_for(|records| *records).await;
                FsyncResponseProto::default().encode_to_vec()
            }
            "complete" => {
                let asked = CompleteRequestProto::decode(call.request).unwrap();
                self.holders.lock().insert(asked.client_name);
                let left = |refusals: usize| refusals.checked_sub(1);
                let result = self.refusals.fetch_update(Ordering::Relaxed, Ordering::Relaxed, left).is_err();
                self.completed.fetch_add(usize::from(result), Ordering::Relaxed);
                CompleteResponseProto { result }.encode_to_vec()
            }
            method => return Err(no_such_method(&call.protocol, method)),
        };
        Ok(answer.into())
    }
}
