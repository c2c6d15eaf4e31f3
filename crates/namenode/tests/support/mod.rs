//! A NameNode on a free port, clients that call it by method name, and DataNodes without data.

#![allow(dead_code, reason = "each test file uses its part")]

use std::path::Path;
use std::sync::Arc;

use hearth_config::Configuration;
use hearth_namenode::fsck::BlockCopier;
use hearth_namenode::{FormatPolicy, Handle, Namenode, NamenodeOptions};
use hearth_protocol::rpc::{RpcClient, RpcClientOptions, RpcError, Target};
use hearth_testkit::{eventually, until};
use hearth_types::{Clock, FsPermission, SystemClock};
use hearth_wire::proto::hdfs::received_deleted_block_info_proto::BlockStatus;
use hearth_wire::proto::hdfs::*;
use hearth_wire::rpc::protocols;
use prost::Message;

pub const MIB: u64 = 1 << 20;

pub type Answer<A> = Result<A, RpcError>;

/// A running NameNode with its directory. Dropping it removes both.
pub struct TestNamenode {
    handle: Option<Handle>,
    directory: tempfile::TempDir,
    configuration: Configuration,
    clock: Arc<dyn Clock>,
    client: RpcClient,
    copier: Option<Arc<dyn BlockCopier>>,
}

pub fn configuration() -> Configuration {
    Configuration::empty()
        .with("dfs.replication", "2")
        .with("dfs.namenode.safemode.extension", "0")
        .with("dfs.namenode.datanode.registration.ip-hostname-check", "false")
        .with("dfs.namenode.resource.du.reserved", "0")
        .with("hadoop.user.group.static.mapping.overrides", "root=root;bob=users;alice=users;eve=supergroup")
}

impl TestNamenode {
    pub async fn start() -> Self {
        Self::start_with(configuration(), Arc::new(SystemClock::new())).await
    }

    pub async fn start_with(configuration: Configuration, clock: Arc<dyn Clock>) -> Self {
        Self::start_with_copier(configuration, clock, None).await
    }

    /// Like `start_with`. `copier`: client for the copies of `fsck -move`.
    pub async fn start_with_copier(
        configuration: Configuration,
        clock: Arc<dyn Clock>,
        copier: Option<Arc<dyn BlockCopier>>,
    ) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let client = RpcClient::new(RpcClientOptions::default());
        let mut namenode = Self { handle: None, directory, configuration, clock, client, copier };
        namenode.open().await;
        namenode
    }

    /// Starts a NameNode that checks leases and recoveries every 20 ms.
    pub async fn start_with_quick_leases(clock: Arc<dyn Clock>) -> Self {
        Self::start_with(configuration().with("dfs.namenode.lease-recheck-interval-ms", "20"), clock).await
    }

    async fn open(&mut self) {
        let options = NamenodeOptions {
            configuration: self.configuration.clone(),
            user: "root".into(),
            host_name: "namenode".into(),
            clock: self.clock.clone(),
            format: FormatPolicy::IfEmpty,
            directory: Some(self.directory.path().to_owned()),
            rpc_address: Some("127.0.0.1:0".into()),
            http_address: Some("127.0.0.1:0".into()),
            copier: self.copier.clone(),
        };
        self.handle = Some(Namenode::start(options).await.unwrap());
    }

    /// Stops and starts again on the same directory, at another port.
    pub async fn restart(&mut self) {
        self.stop().await;
        self.open().await;
    }

    /// Like `restart`, on another directory.
    pub async fn restart_on(&mut self, directory: tempfile::TempDir) {
        self.stop().await;
        self.directory = directory;
        self.open().await;
    }

    async fn stop(&mut self) {
        let handle = self.handle.take().unwrap();
        let namenode = Arc::downgrade(handle.namenode());
        drop(handle);
        // Open connections keep the NameNode, and with it the directory, for a moment.
        until("the end of the NameNode", async || namenode.strong_count() == 0).await;
    }

    /// Copies the directory in its momentary state.
    pub fn copied_directory(&self) -> tempfile::TempDir {
        let copy = tempfile::tempdir().unwrap();
        std::fs::create_dir(copy.path().join("current")).unwrap();
        for entry in std::fs::read_dir(self.path().join("current")).unwrap() {
            let path = entry.unwrap().path();
            std::fs::copy(&path, copy.path().join("current").join(path.file_name().unwrap())).unwrap();
        }
        copy
    }

    pub fn handle(&self) -> &Handle {
        self.handle.as_ref().unwrap()
    }

    pub fn path(&self) -> &Path {
        self.directory.path()
    }

    fn target(&self, user: &str, protocol: &'static str) -> Target {
        Target { address: self.handle().rpc_address(), protocol, user: user.into() }
    }

    pub async fn call_as<A: Message + Default>(&self, user: &str, method: &str, request: &impl Message) -> Answer<A> {
        self.client.call(&self.target(user, protocols::CLIENT), method, request).await
    }

    pub async fn call<A: Message + Default>(&self, method: &str, request: &impl Message) -> Answer<A> {
        self.call_as("root", method, request).await
    }

    pub fn client(&self) -> &RpcClient {
        &self.client
    }

    pub fn root(&self) -> Target {
        self.target("root", protocols::CLIENT)
    }

    pub fn pool(&self) -> String {
        self.handle().identity().pool.to_string()
    }

    // Calls that many tests make.

    pub async fn mkdirs_as(&self, user: &str, path: &str, mode: u32, parents: bool) -> Answer<bool> {
        let request = MkdirsRequestProto {
            src: path.into(),
            masked: FsPermissionProto { perm: mode },
            create_parent: parents,
            unmasked: None,
        };
        self.call_as::<MkdirsResponseProto>(user, "mkdirs", &request).await.map(|answer| answer.result)
    }

    pub async fn mkdirs(&self, path: &str) -> Answer<bool> {
        self.mkdirs_as("root", path, 0o755, true).await
    }

    pub async fn info_as(&self, user: &str, path: &str) -> Answer<Option<HdfsFileStatusProto>> {
        let request = GetFileInfoRequestProto { src: path.into() };
        self.call_as::<GetFileInfoResponseProto>(user, "getFileInfo", &request).await.map(|answer| answer.fs)
    }

    pub async fn info(&self, path: &str) -> Answer<Option<HdfsFileStatusProto>> {
        self.info_as("root", path).await
    }

    pub async fn create_request(&self, user: &str, request: CreateRequestProto) -> Answer<HdfsFileStatusProto> {
        self.call_as::<CreateResponseProto>(user, "create", &request).await.map(|answer| answer.fs.unwrap())
    }

    pub async fn create(&self, path: &str, client: &str, flags: u32) -> Answer<HdfsFileStatusProto> {
        self.create_request("root", new_file(path, client, flags)).await
    }

    pub async fn add_block_request(&self, request: AddBlockRequestProto) -> Answer<LocatedBlockProto> {
        self.call::<AddBlockResponseProto>("addBlock", &request).await.map(|answer| answer.block)
    }

    pub async fn add_block(
        &self,
        path: &str,
        client: &str,
        previous: Option<&ExtendedBlockProto>,
    ) -> Answer<LocatedBlockProto> {
        self.add_block_request(AddBlockRequestProto {
            src: path.into(),
            client_name: client.into(),
            previous: previous.cloned(),
            ..Default::default()
        })
        .await
    }

    pub async fn complete(&self, path: &str, client: &str, last: Option<&ExtendedBlockProto>) -> Answer<bool> {
        let request =
            CompleteRequestProto { src: path.into(), client_name: client.into(), last: last.cloned(), file_id: None };
        self.call::<CompleteResponseProto>("complete", &request).await.map(|answer| answer.result)
    }

    /// Creates a closed file of one block with `length` bytes, at most a block's; without a block if 0.
    pub async fn write(&self, datanodes: &[TestDatanode], path: &str, length: u64) -> HdfsFileStatusProto {
        self.create(path, "writer", 1).await.unwrap();
        let mut last = None;
        if length > 0 {
            let located = self.add_block(path, "writer", None).await.unwrap();
            let block = ExtendedBlockProto { num_bytes: Some(length), ..located.b.clone() };
            for node in &located.locs {
                let datanode = datanodes.iter().find(|datanode| datanode.uuid == node.id.datanode_uuid).unwrap();
                datanode.received(self, &block).await;
            }
            last = Some(block);
        }
        assert!(self.complete(path, "writer", last.as_ref()).await.unwrap());
        self.info(path).await.unwrap().unwrap()
    }

    pub async fn delete_as(&self, user: &str, path: &str, recursive: bool) -> Answer<bool> {
        let request = DeleteRequestProto { src: path.into(), recursive };
        self.call_as::<DeleteResponseProto>(user, "delete", &request).await.map(|answer| answer.result)
    }

    pub async fn rename_as(&self, user: &str, source: &str, destination: &str) -> Answer<bool> {
        let request = RenameRequestProto { src: source.into(), dst: destination.into() };
        self.call_as::<RenameResponseProto>(user, "rename", &request).await.map(|answer| answer.result)
    }

    pub async fn rename2(&self, source: &str, destination: &str, overwrite: bool) -> Answer<()> {
        let request = Rename2RequestProto {
            src: source.into(),
            dst: destination.into(),
            overwrite_dest: overwrite,
            move_to_trash: None,
        };
        self.call::<Rename2ResponseProto>("rename2", &request).await.map(drop)
    }

    pub async fn list(&self, path: &str, after: &str) -> Answer<Option<Vec<String>>> {
        let request = GetListingRequestProto {
            src: path.into(),
            start_after: after.as_bytes().to_vec().into(),
            need_location: false,
        };
        let answer: GetListingResponseProto = self.call("getListing", &request).await?;
        let name = |status: HdfsFileStatusProto| String::from_utf8(status.path.to_vec()).unwrap();
        Ok(answer.dir_list.map(|list| list.partial_listing.into_iter().map(name).collect()))
    }

    pub async fn locations(&self, path: &str, offset: u64, length: u64) -> Answer<LocatedBlocksProto> {
        let request = GetBlockLocationsRequestProto { src: path.into(), offset, length };
        let answer: GetBlockLocationsResponseProto = self.call("getBlockLocations", &request).await?;
        Ok(answer.locations.unwrap())
    }

    pub async fn append(&self, path: &str, client: &str, flag: u32) -> Answer<AppendResponseProto> {
        let request = AppendRequestProto { src: path.into(), client_name: client.into(), flag: Some(flag) };
        self.call("append", &request).await
    }

    pub async fn truncate(&self, path: &str, length: i64, client: &str) -> Answer<bool> {
        let request = TruncateRequestProto { src: path.into(), new_length: length as u64, client_name: client.into() };
        self.call::<TruncateResponseProto>("truncate", &request).await.map(|answer| answer.result)
    }

    pub async fn set_permission(&self, path: &str, mode: FsPermission) -> Answer<()> {
        let request = SetPermissionRequestProto { src: path.into(), permission: mode.into() };
        self.call::<SetPermissionResponseProto>("setPermission", &request).await.map(drop)
    }

    pub async fn is_closed(&self, path: &str) -> Answer<bool> {
        let request = IsFileClosedRequestProto { src: path.into() };
        self.call::<IsFileClosedResponseProto>("isFileClosed", &request).await.map(|answer| answer.result)
    }

    pub async fn recover_lease(&self, path: &str, client: &str) -> Answer<bool> {
        let request = RecoverLeaseRequestProto { src: path.into(), client_name: client.into() };
        self.call::<RecoverLeaseResponseProto>("recoverLease", &request).await.map(|answer| answer.result)
    }
}

pub fn new_file(path: &str, client: &str, flags: u32) -> CreateRequestProto {
    CreateRequestProto {
        src: path.into(),
        masked: FsPermissionProto { perm: 0o644 },
        client_name: client.into(),
        create_flag: flags,
        create_parent: true,
        replication: 1,
        block_size: MIB,
        ..Default::default()
    }
}

/// Reports all replicas of a file as corrupt.
pub async fn spoil(n: &TestNamenode, path: &str) {
    let blocks = n.locations(path, 0, u64::MAX >> 1).await.unwrap().blocks;
    let _: ReportBadBlocksResponseProto =
        n.call("reportBadBlocks", &ReportBadBlocksRequestProto { blocks }).await.unwrap();
}

/// Asserts that a call was refused with this message and a class that ends with `class`.
#[track_caller]
pub fn refused<A: std::fmt::Debug>(answer: Answer<A>, class: &str, message: &str) {
    match answer {
        Err(RpcError::Remote(remote)) => {
            assert!(remote.class.ends_with(class), "class {} of {:?}", remote.class, remote.message);
            assert_eq!(remote.message, message);
        }
        other => panic!("{other:?} instead of {class}: {message}"),
    }
}

/// A DataNode without data: it registers, sends heartbeats, and sends reports on request.
pub struct TestDatanode {
    pub uuid: String,
    storage: String,
    port: u32,
    registration: DatanodeRegistrationProto,
    /// Client with the address of the DataNode's machine.
    client: RpcClient,
}

/// Creates an executable script, using another process. If this process had the file open for writing, a child that
/// another test forks at that moment would inherit the descriptor, and the script could not be run until the child
/// closes it.
pub fn make_script(path: &Path, text: &str) {
    let plain = path.with_extension("text");
    std::fs::write(&plain, text).unwrap();
    let made = std::process::Command::new("install").args(["-m", "755"]).arg(&plain).arg(path).status().unwrap();
    assert!(made.success(), "{made}");
}

/// Returns a client with the address `ip` of the loopback network, as on a machine of its own.
pub fn client_from(ip: &str) -> RpcClient {
    RpcClient::new(RpcClientOptions { bind: Some(ip.parse().unwrap()), ..RpcClientOptions::default() })
}

impl TestDatanode {
    /// Registers DataNode `number` and sends an empty block report.
    pub async fn join(namenode: &TestNamenode, number: u32) -> Self {
        Self::join_with(namenode, number, &[]).await
    }

    /// Like `join`, and reports these finalized blocks.
    pub async fn join_with(namenode: &TestNamenode, number: u32, blocks: &[ExtendedBlockProto]) -> Self {
        Self::join_from(namenode, namenode.client.clone(), number, blocks).await
    }

    /// Like `join_with`, from the machine of `client`.
    pub async fn join_from(
        namenode: &TestNamenode,
        client: RpcClient,
        number: u32,
        blocks: &[ExtendedBlockProto],
    ) -> Self {
        Self::join_registering(namenode, client, number, blocks, "3.4.2").await
    }

    /// Like `join`, with software of this version.
    pub async fn join_of_version(namenode: &TestNamenode, number: u32, version: &str) -> Self {
        Self::join_registering(namenode, namenode.client.clone(), number, &[], version).await
    }

    async fn join_registering(
        namenode: &TestNamenode,
        client: RpcClient,
        number: u32,
        blocks: &[ExtendedBlockProto],
        version: &str,
    ) -> Self {
        let identity = namenode.handle().identity().clone();
        let uuid = format!("00000000-0000-4000-8000-{number:012}");
        let registration = DatanodeRegistrationProto {
            datanode_id: DatanodeIdProto {
                ip_addr: "127.0.0.1".into(),
                host_name: format!("dn{number}"),
                datanode_uuid: uuid.clone(),
                xfer_port: 10_000 + number,
                info_port: 11_000 + number,
                ipc_port: 12_000 + number,
                info_secure_port: None,
            },
            storage_info: StorageInfoProto {
                layout_version: -57i32 as u32,
                namespace_id: identity.namespace_id,
                cluster_id: identity.cluster_id.clone(),
                c_time: identity.created_ms,
            },
            keys: Default::default(),
            software_version: version.into(),
        };
        let mut datanode = Self { uuid, storage: format!("DS-{number}"), port: 10_000 + number, registration, client };
        let request =
            RegisterDatanodeRequestProto { registration: datanode.registration.clone(), ..Default::default() };
        let answer: RegisterDatanodeResponseProto = datanode.call(namenode, "registerDatanode", &request).await;
        datanode.registration = answer.registration;
        datanode.heartbeat(namenode).await;
        datanode.full_report(namenode, blocks).await;
        datanode
    }

    async fn call<A: Message + Default>(&self, namenode: &TestNamenode, method: &str, request: &impl Message) -> A {
        self.client.call(&namenode.target("hdfs", protocols::DATANODE), method, request).await.unwrap()
    }

    fn storage(&self) -> DatanodeStorageProto {
        DatanodeStorageProto { storage_uuid: self.storage.clone(), state: None, storage_type: None }
    }

    pub fn storage_id(&self) -> &str {
        &self.storage
    }

    pub fn id(&self) -> DatanodeIdProto {
        self.registration.datanode_id.clone()
    }

    pub fn info(&self) -> DatanodeInfoProto {
        DatanodeInfoProto { id: self.id(), ..Default::default() }
    }

    /// Sends a heartbeat and returns the commands.
    pub async fn heartbeat(&self, namenode: &TestNamenode) -> Vec<DatanodeCommandProto> {
        self.heartbeat_with_cache(namenode, 0, 0).await
    }

    /// Sends a heartbeat of a DataNode that can lock `capacity` bytes in memory and has locked `used`.
    pub async fn heartbeat_with_cache(
        &self,
        namenode: &TestNamenode,
        capacity: u64,
        used: u64,
    ) -> Vec<DatanodeCommandProto> {
        let said = HeartbeatRequestProto {
            cache_capacity: Some(capacity),
            cache_used: Some(used),
            ..HeartbeatRequestProto::default()
        };
        self.heartbeat_saying(namenode, said).await
    }

    /// Sends a heartbeat of a DataNode with `count` failed storage directories.
    pub async fn heartbeat_with_failed_volumes(&self, namenode: &TestNamenode, count: u32) {
        let said = HeartbeatRequestProto { failed_volumes: Some(count), ..HeartbeatRequestProto::default() };
        self.heartbeat_saying(namenode, said).await;
    }

    /// Sends a heartbeat that reports another DataNode and a directory as slow.
    pub async fn heartbeat_with_slow(&self, namenode: &TestNamenode, datanode: &str, directory: &str) {
        let peer = SlowPeerReportProto {
            data_node_id: Some(datanode.to_owned()),
            aggregate_latency: Some(90.0),
            median: Some(1.0),
            mad: Some(0.5),
            upper_limit_latency: Some(5.0),
        };
        let disk = SlowDiskReportProto {
            base_path: Some(directory.to_owned()),
            mean_write_io_latency: Some(70.0),
            ..SlowDiskReportProto::default()
        };
        // Reports without a name are ignored.
        let said = HeartbeatRequestProto {
            slow_peers: vec![peer, SlowPeerReportProto::default()],
            slow_disks: vec![disk, SlowDiskReportProto::default()],
            ..HeartbeatRequestProto::default()
        };
        self.heartbeat_saying(namenode, said).await;
    }

    async fn heartbeat_saying(
        &self,
        namenode: &TestNamenode,
        said: HeartbeatRequestProto,
    ) -> Vec<DatanodeCommandProto> {
        let request = HeartbeatRequestProto {
            registration: self.registration.clone(),
            reports: vec![StorageReportProto {
                storage_uuid: self.storage.clone(),
                capacity: Some(1 << 40),
                remaining: Some(1 << 40),
                storage: Some(self.storage()),
                ..Default::default()
            }],
            request_full_block_report_lease: Some(false),
            ..said
        };
        let answer: HeartbeatResponseProto = self.call(namenode, "sendHeartbeat", &request).await;
        answer.cmds
    }

    /// Waits for the next recovery that this DataNode is to lead.
    pub async fn recovery(&self, namenode: &TestNamenode) -> RecoveringBlockProto {
        self.recoveries(namenode, 1).await.remove(0)
    }

    /// Waits for the next `count` recoveries.
    pub async fn recoveries(&self, namenode: &TestNamenode, count: usize) -> Vec<RecoveringBlockProto> {
        let mut led = Vec::new();
        // After a restart the lease checker starts them.
        eventually(&format!("{count} recoveries"), async || {
            let commands = self.heartbeat(namenode).await;
            let recoveries = commands.into_iter().filter_map(|command| command.recovery_cmd);
            led.extend(recoveries.flat_map(|command| command.blocks));
            (led.len() >= count).then(|| std::mem::take(&mut led))
        })
        .await
    }

    /// Reports the blocks that are locked in memory.
    pub async fn cache_report(&self, namenode: &TestNamenode, blocks: &[u64]) {
        let registration = self.registration.clone();
        let request = CacheReportRequestProto { registration, block_pool_id: namenode.pool(), blocks: blocks.to_vec() };
        let _: CacheReportResponseProto = self.call(namenode, "cacheReport", &request).await;
    }

    pub async fn full_report(&self, namenode: &TestNamenode, blocks: &[ExtendedBlockProto]) {
        // The old list: counts of finalized and other replicas, three longs each, and the mark between them.
        let mut longs = vec![blocks.len() as u64, 0];
        for block in blocks {
            longs.extend([block.block_id, block.num_bytes(), block.generation_stamp]);
        }
        longs.extend([u64::MAX; 3]);
        let request = BlockReportRequestProto {
            registration: self.registration.clone(),
            block_pool_id: namenode.pool(),
            reports: vec![StorageBlockReportProto {
                storage: self.storage(),
                blocks: longs,
                number_of_blocks: None,
                blocks_buffers: Vec::new(),
            }],
            context: None,
        };
        let _: BlockReportResponseProto = self.call(namenode, "blockReport", &request).await;
    }

    /// Reports a finalized replica.
    pub async fn received(&self, namenode: &TestNamenode, block: &ExtendedBlockProto) {
        let info = ReceivedDeletedBlockInfoProto {
            block: BlockProto {
                block_id: block.block_id,
                gen_stamp: block.generation_stamp,
                num_bytes: block.num_bytes,
            },
            delete_hint: None,
            status: BlockStatus::Received as i32,
        };
        let request = BlockReceivedAndDeletedRequestProto {
            registration: self.registration.clone(),
            block_pool_id: namenode.pool(),
            blocks: vec![StorageReceivedDeletedBlocksProto {
                storage_uuid: self.storage.clone(),
                blocks: vec![info],
                storage: Some(self.storage()),
            }],
        };
        let _: BlockReceivedAndDeletedResponseProto = self.call(namenode, "blockReceivedAndDeleted", &request).await;
    }

    pub async fn synchronize(
        &self,
        namenode: &TestNamenode,
        block: &ExtendedBlockProto,
        stamp: u64,
        length: u64,
    ) -> Answer<()> {
        let request = CommitBlockSynchronizationRequestProto {
            block: block.clone(),
            new_gen_stamp: stamp,
            new_length: length,
            close_file: true,
            delete_block: false,
            new_targets: vec![self.id()],
            new_target_storages: vec![self.storage.clone()],
        };
        self.commit_synchronization(namenode, request).await
    }

    /// Reports the result of a recovery in which no DataNode had a byte.
    pub async fn synchronize_nothing(
        &self,
        namenode: &TestNamenode,
        block: &ExtendedBlockProto,
        stamp: u64,
    ) -> Answer<()> {
        let request = CommitBlockSynchronizationRequestProto {
            block: block.clone(),
            new_gen_stamp: stamp,
            close_file: true,
            delete_block: true,
            ..Default::default()
        };
        self.commit_synchronization(namenode, request).await
    }

    async fn commit_synchronization(
        &self,
        namenode: &TestNamenode,
        request: CommitBlockSynchronizationRequestProto,
    ) -> Answer<()> {
        let target = namenode.target("hdfs", protocols::DATANODE);
        namenode
            .client
            .call::<CommitBlockSynchronizationResponseProto>(&target, "commitBlockSynchronization", &request)
            .await
            .map(drop)
    }
}

/// Formats a block as the measured vectors do: `blk_ID_STAMP size=N offset=N locs=N`.
pub fn show(located: &LocatedBlockProto) -> String {
    format!(
        "blk_{}_{} size={} offset={} locs={}",
        located.b.block_id,
        located.b.generation_stamp,
        located.b.num_bytes(),
        located.offset as i64,
        located.locs.len()
    )
}

/// Formats a status as the measured vectors do: `file len=N repl=N bs=N rw-r--r-- owner:group id=N children=N`.
pub fn show_status(status: &HdfsFileStatusProto) -> String {
    let kind = if status.file_type == 1 { "dir" } else { "file" };
    format!(
        "{kind} len={} repl={} bs={} {} {}:{} id={} children={} policy={}",
        status.length,
        status.block_replication(),
        status.blocksize(),
        FsPermission(status.permission.perm as u16),
        status.owner,
        status.group,
        status.file_id(),
        status.children_num(),
        status.storage_policy()
    )
}
