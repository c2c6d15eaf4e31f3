//! A fake namenode that serves the files added to it, and records the replicas that readers report as corrupt.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use hearth_protocol::rpc::{Call, RemoteError, RpcServer, RpcServerOptions, Service, no_such_method};
use hearth_types::{LocatedBlock, LocatedBlocks};
use hearth_wire::proto::hdfs::{
    GetBlockLocationsRequestProto, GetBlockLocationsResponseProto, ReportBadBlocksRequestProto,
    ReportBadBlocksResponseProto,
};
use hearth_wire::rpc::protocols;
use parking_lot::Mutex;
use prost::Message;

pub(super) struct FakeNamenode {
    server: RpcServer,
    state: Arc<State>,
}

#[derive(Default)]
struct State {
    files: Mutex<HashMap<String, LocatedBlocks>>,
    bad: Mutex<Vec<LocatedBlock>>,
    /// Reports are recorded but not answered.
    silent: AtomicBool,
}

impl FakeNamenode {
    pub async fn start() -> Self {
        let state = Arc::<State>::default();
        let server = RpcServer::start("127.0.0.1:0", Arc::clone(&state), RpcServerOptions::default()).await.unwrap();
        Self { server, state }
    }

    pub fn uri(&self) -> String {
        format!("hdfs://{}", self.server.address())
    }

    /// Adds a closed file of these blocks, or replaces the file at `path`.
    pub fn put(&self, path: &str, blocks: Vec<LocatedBlock>) {
        let last = blocks.last().expect("a block");
        let file = LocatedBlocks {
            file_length: last.offset + last.block.length(),
            under_construction: false,
            last_block: Some(last.clone()),
            last_block_complete: true,
            blocks,
        };
        self.state.files.lock().insert(path.to_owned(), file);
    }

    /// Adds a file of these blocks, the last of which is being written. The last block's length is what was reported to
    /// the namenode, and the block is sent with every response.
    pub fn put_open(&self, path: &str, blocks: Vec<LocatedBlock>) {
        let last = blocks.last().expect("a block");
        let file = LocatedBlocks {
            file_length: last.offset,
            under_construction: true,
            last_block: Some(last.clone()),
            last_block_complete: false,
            blocks,
        };
        self.state.files.lock().insert(path.to_owned(), file);
    }

    pub fn fall_silent(&self) {
        self.state.silent.store(true, Ordering::Release);
    }

    /// Returns the replicas reported so far.
    pub fn bad(&self) -> Vec<LocatedBlock> {
        self.state.bad.lock().clone()
    }
}

impl Service for State {
    fn protocols(&self) -> &[&'static str] {
        &[protocols::CLIENT]
    }

    async fn call(&self, call: Call) -> Result<Bytes, RemoteError> {
        let answer = match call.method.as_str() {
            "getBlockLocations" => {
                let asked = GetBlockLocationsRequestProto::decode(call.request).unwrap();
                let mut found = self.files.lock().get(&asked.src).cloned().expect("a file of the test's");
                let end = asked.offset.saturating_add(asked.length);
                found.blocks.retain(|block| block.offset < end && asked.offset < block.offset + block.block.length());
                GetBlockLocationsResponseProto { locations: Some((&found).into()) }.encode_to_vec()
            }
            "reportBadBlocks" => {
                let told = ReportBadBlocksRequestProto::decode(call.request).unwrap();
                self.bad.lock().extend(told.blocks.into_iter().map(|block| LocatedBlock::try_from(block).unwrap()));
                if self.silent.load(Ordering::Acquire) {
                    std::future::pending::<()>().await;
                }
                ReportBadBlocksResponseProto::default().encode_to_vec()
            }
            method => return Err(no_such_method(&call.protocol, method)),
        };
        Ok(answer.into())
    }
}
