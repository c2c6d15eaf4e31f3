//! Creates files in a NameNode with the calls of a client and its DataNodes, without any data.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use futures_util::future::try_join_all;
use hearth_protocol::rpc::{RpcClient, RpcClientOptions, Target};
use hearth_wire::proto::hdfs::{
    AddBlockRequestProto, AddBlockResponseProto, CompleteRequestProto, CompleteResponseProto, ContentSummaryProto,
    CreateRequestProto, CreateResponseProto, ExtendedBlockProto, FsPermissionProto, GetContentSummaryRequestProto,
    GetContentSummaryResponseProto, GetFileInfoRequestProto, GetFileInfoResponseProto,
};
use hearth_wire::rpc::protocols;

use super::nodes::Node;

const REPLICATION: u32 = 3;
/// Bytes of each block.
const BLOCK_BYTES: u64 = 1 << 20;
/// Number of files in a directory.
const PER_DIRECTORY: usize = 100;
/// Number of files that are created concurrently.
const AT_ONCE: usize = 500;
/// Total number of questions.
const ASKED: usize = 20_000;
const WRITER: &str = "DFSClient_NONMAPREDUCE_1_1";
const CREATE: u32 = 1;
/// Timeout for a file to be complete.
const PATIENCE: Duration = Duration::from_secs(30);
const ASK_AGAIN: Duration = Duration::from_millis(5);
/// Interval between heartbeats.
const BEAT: Duration = Duration::from_secs(3);

#[derive(Clone, Copy)]
pub struct Shape {
    pub directory: &'static str,
    pub files: usize,
    /// Number of blocks of each file.
    pub blocks: usize,
}

impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.blocks {
            0 => write!(f, "{} empty files", self.files),
            1 => write!(f, "{} files of one block", self.files),
            blocks => write!(f, "{} files of {blocks} blocks", self.files),
        }
    }
}

pub struct Filler {
    nodes: Vec<Node>,
    rpc: RpcClient,
    namenode: Target,
}

impl Filler {
    pub async fn join(address: SocketAddr) -> Result<Self> {
        let rpc = RpcClient::new(RpcClientOptions::default());
        let target = |protocol| Target { address, protocol, user: hearth_client::os_user_name().into() };
        let to_nodes = Arc::new(target(protocols::DATANODE));
        let nodes = (0..REPLICATION).map(|number| Node::join(rpc.clone(), to_nodes.clone(), number));
        let nodes = try_join_all(nodes).await.context("registering with the NameNode")?;
        Ok(Self { nodes, rpc, namenode: target(protocols::CLIENT) })
    }

    /// Creates all files of a shape. `what` is the text of the progress bar.
    pub async fn fill(&self, what: &str, shape: Shape) -> Result<()> {
        let bar = crate::amounts::bar_of(what, shape.files as u64);
        let mut beaten = Instant::now();
        for first in (0..shape.files).step_by(AT_ONCE) {
            let paths: Vec<_> = (first..shape.files.min(first + AT_ONCE))
                .map(|which| format!("/{}/{:05}/part-m-{which:013}", shape.directory, which / PER_DIRECTORY))
                .collect();
            self.make(&paths, shape.blocks).await?;
            bar.inc(paths.len() as u64);
            if beaten.elapsed() >= BEAT {
                try_join_all(self.nodes.iter().map(Node::beat)).await?;
                beaten = Instant::now();
            }
        }
        bar.finish();
        Ok(())
    }

    /// Sends many small calls, so that all of the NameNode's threads have work.
    pub async fn ask(&self) -> Result<()> {
        let request = GetFileInfoRequestProto { src: "/".to_owned() };
        for _ in 0..ASKED / AT_ONCE {
            let asked = (0..AT_ONCE)
                .map(|_| self.rpc.call::<GetFileInfoResponseProto>(&self.namenode, "getFileInfo", &request));
            try_join_all(asked).await?;
        }
        Ok(())
    }

    /// Returns the sums of the whole namespace.
    pub async fn summary(&self) -> Result<ContentSummaryProto> {
        let request = GetContentSummaryRequestProto { path: "/".to_owned() };
        let answer: GetContentSummaryResponseProto =
            self.rpc.call(&self.namenode, "getContentSummary", &request).await?;
        Ok(answer.summary)
    }

    /// Waits until a starting NameNode answers a call.
    pub async fn wait_for_answer(&self, within: Duration) -> Result<()> {
        let request = GetFileInfoRequestProto { src: "/".to_owned() };
        let began = Instant::now();
        loop {
            match self.rpc.call::<GetFileInfoResponseProto>(&self.namenode, "getFileInfo", &request).await {
                Ok(_) => return Ok(()),
                Err(error) if began.elapsed() > within => {
                    return Err(error).context("the NameNode does not answer after its start");
                }
                Err(_) => tokio::time::sleep(ASK_AGAIN).await,
            }
        }
    }

    async fn make(&self, paths: &[String], blocks: usize) -> Result<()> {
        try_join_all(paths.iter().map(|path| self.create(path))).await?;
        let mut last: Vec<Option<ExtendedBlockProto>> = vec![None; paths.len()];
        for _ in 0..blocks {
            let added = paths.iter().zip(&last).map(|(path, previous)| self.add_block(path, previous.clone()));
            let added = try_join_all(added).await?;
            try_join_all(self.nodes.iter().map(|node| node.received(&added, BLOCK_BYTES))).await?;
            last = added
                .into_iter()
                .map(|block| Some(ExtendedBlockProto { num_bytes: Some(BLOCK_BYTES), ..block }))
                .collect();
        }
        try_join_all(paths.iter().zip(last).map(|(path, last)| self.complete(path, last))).await?;
        Ok(())
    }

    async fn create(&self, path: &str) -> Result<()> {
        let request = CreateRequestProto {
            src: path.to_owned(),
            masked: FsPermissionProto { perm: 0o644 },
            client_name: WRITER.to_owned(),
            create_flag: CREATE,
            create_parent: true,
            replication: REPLICATION,
            block_size: 128 << 20,
            ..Default::default()
        };
        self.rpc.call::<CreateResponseProto>(&self.namenode, "create", &request).await?;
        Ok(())
    }

    async fn add_block(&self, path: &str, previous: Option<ExtendedBlockProto>) -> Result<ExtendedBlockProto> {
        let request = AddBlockRequestProto {
            src: path.to_owned(),
            client_name: WRITER.to_owned(),
            previous,
            ..Default::default()
        };
        let answer: AddBlockResponseProto = self.rpc.call(&self.namenode, "addBlock", &request).await?;
        let targets = answer.block.locs.len();
        ensure!(targets == self.nodes.len(), "a block of {path} is to have {targets} replicas");
        Ok(answer.block.b)
    }

    async fn complete(&self, path: &str, last: Option<ExtendedBlockProto>) -> Result<()> {
        let request =
            CompleteRequestProto { src: path.to_owned(), client_name: WRITER.to_owned(), last, file_id: None };
        // Apache's NameNode processes DataNodes' reports after it has answered them.
        let asked = Instant::now();
        while !self.rpc.call::<CompleteResponseProto>(&self.namenode, "complete", &request).await?.result {
            ensure!(asked.elapsed() < PATIENCE, "{path} is not complete though all its replicas were reported");
            tokio::time::sleep(ASK_AGAIN).await;
        }
        Ok(())
    }
}
