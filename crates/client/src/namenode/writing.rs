//! Calls of a file's life under construction, and leases.

use hearth_types::{DatanodeId, DatanodeInfo, ExtendedBlock, FileStatus, FsPermission, LocatedBlock, StorageId};
use hearth_wire::proto::hdfs::*;

use super::Namenode;
use super::files::converted;
use crate::Error;

/// Bits of `CreateFlagProto`.
const CREATE: u32 = 1;
const OVERWRITE: u32 = 2;
const APPEND: u32 = 4;
const NEW_BLOCK: u32 = 32;

/// What Java's client says that it speaks; without it a file in an encryption zone is refused.
const CRYPTO_PROTOCOL_ENCRYPTION_ZONES: i32 = 2;

pub(crate) struct Creation<'a> {
    pub path: &'a str,
    /// After and before the umask.
    pub permission: (FsPermission, FsPermission),
    pub client: &'a str,
    pub overwrite: bool,
    pub parents: bool,
    pub replication: u16,
    pub block_size: u64,
}

impl Namenode {
    pub(crate) async fn create(&self, creation: &Creation<'_>) -> Result<Option<FileStatus>, Error> {
        let (masked, unmasked) = creation.permission;
        let request = CreateRequestProto {
            src: creation.path.to_owned(),
            masked: masked.into(),
            client_name: creation.client.to_owned(),
            create_flag: CREATE | if creation.overwrite { OVERWRITE } else { 0 },
            create_parent: creation.parents,
            replication: u32::from(creation.replication),
            block_size: creation.block_size,
            crypto_protocol_version: vec![CRYPTO_PROTOCOL_ENCRYPTION_ZONES],
            unmasked: Some(unmasked.into()),
            ec_policy_name: None,
            storage_policy: None,
        };
        let answer: CreateResponseProto = self.call("create", &request).await?;
        let Some(status) = answer.fs else { return Ok(None) };
        if status.ec_policy.is_some() || status.file_encryption_info.is_some() {
            return Err(Error::Unsupported { path: creation.path.to_owned() });
        }
        converted("create", status.try_into()).map(Some)
    }

    /// The block to continue, if the last one has room, and the file's status.
    pub(crate) async fn append(
        &self,
        path: &str,
        client: &str,
        new_block: bool,
    ) -> Result<(Option<LocatedBlock>, Option<FileStatus>), Error> {
        let flag = APPEND | if new_block { NEW_BLOCK } else { 0 };
        let request = AppendRequestProto { src: path.to_owned(), client_name: client.to_owned(), flag: Some(flag) };
        let answer: AppendResponseProto = self.call("append", &request).await?;
        if answer.stat.as_ref().is_some_and(|stat| stat.ec_policy.is_some() || stat.file_encryption_info.is_some()) {
            return Err(Error::Unsupported { path: path.to_owned() });
        }
        let block = answer.block.map(|block| converted("append", block.try_into())).transpose()?;
        let status = answer.stat.map(|status| converted("append", status.try_into())).transpose()?;
        Ok((block, status))
    }

    /// `previous`: the last block with its final length, which this call commits.
    pub(crate) async fn add_block(
        &self,
        path: &str,
        inode: u64,
        client: &str,
        previous: Option<&ExtendedBlock>,
        excluded: &[DatanodeInfo],
    ) -> Result<LocatedBlock, Error> {
        let request = AddBlockRequestProto {
            src: path.to_owned(),
            client_name: client.to_owned(),
            previous: previous.map(Into::into),
            exclude_nodes: excluded.iter().map(Into::into).collect(),
            file_id: Some(inode),
            favored_nodes: Vec::new(),
            flags: Vec::new(),
        };
        let answer: AddBlockResponseProto = self.call("addBlock", &request).await?;
        converted("addBlock", answer.block.try_into())
    }

    pub(crate) async fn abandon_block(
        &self,
        path: &str,
        inode: u64,
        client: &str,
        block: &ExtendedBlock,
    ) -> Result<(), Error> {
        let request = AbandonBlockRequestProto {
            b: block.into(),
            src: path.to_owned(),
            holder: client.to_owned(),
            file_id: Some(inode),
        };
        let _: AbandonBlockResponseProto = self.call("abandonBlock", &request).await?;
        Ok(())
    }

    /// The existing datanodes and one more, if there is one.
    #[expect(clippy::too_many_arguments, reason = "the fields of the request, each used once")]
    pub(crate) async fn additional_datanode(
        &self,
        path: &str,
        inode: u64,
        client: &str,
        block: &ExtendedBlock,
        existing: &[DatanodeInfo],
        existing_storages: &[StorageId],
        excluded: &[DatanodeInfo],
    ) -> Result<LocatedBlock, Error> {
        let request = GetAdditionalDatanodeRequestProto {
            src: path.to_owned(),
            blk: block.into(),
            existings: existing.iter().map(Into::into).collect(),
            excludes: excluded.iter().map(Into::into).collect(),
            num_additional_nodes: 1,
            client_name: client.to_owned(),
            existing_storage_uuids: existing_storages.iter().map(|storage| storage.to_string()).collect(),
            file_id: Some(inode),
        };
        let answer: GetAdditionalDatanodeResponseProto = self.call("getAdditionalDatanode", &request).await?;
        converted("getAdditionalDatanode", answer.block.try_into())
    }

    /// The block with a fresh stamp, and a token for it.
    pub(crate) async fn update_block_for_pipeline(
        &self,
        block: &ExtendedBlock,
        client: &str,
    ) -> Result<LocatedBlock, Error> {
        let request = UpdateBlockForPipelineRequestProto { block: block.into(), client_name: client.to_owned() };
        let answer: UpdateBlockForPipelineResponseProto = self.call("updateBlockForPipeline", &request).await?;
        converted("updateBlockForPipeline", answer.block.try_into())
    }

    pub(crate) async fn update_pipeline(
        &self,
        client: &str,
        old: &ExtendedBlock,
        new: &ExtendedBlock,
        datanodes: &[DatanodeId],
        storages: &[StorageId],
    ) -> Result<(), Error> {
        let request = UpdatePipelineRequestProto {
            client_name: client.to_owned(),
            old_block: old.into(),
            new_block: new.into(),
            new_nodes: datanodes.iter().map(Into::into).collect(),
            storage_ids: storages.iter().map(|storage| storage.to_string()).collect(),
        };
        let _: UpdatePipelineResponseProto = self.call("updatePipeline", &request).await?;
        Ok(())
    }

    /// Makes the file's blocks durable, the last one with `length` bytes.
    pub(crate) async fn fsync(&self, path: &str, inode: u64, client: &str, length: u64) -> Result<(), Error> {
        let request = FsyncRequestProto {
            src: path.to_owned(),
            client: client.to_owned(),
            last_block_length: Some(length as i64),
            file_id: Some(inode),
        };
        let _: FsyncResponseProto = self.call("fsync", &request).await?;
        Ok(())
    }

    /// False: not yet, ask again.
    pub(crate) async fn complete(
        &self,
        path: &str,
        inode: u64,
        client: &str,
        last: Option<&ExtendedBlock>,
    ) -> Result<bool, Error> {
        let request = CompleteRequestProto {
            src: path.to_owned(),
            client_name: client.to_owned(),
            last: last.map(Into::into),
            file_id: Some(inode),
        };
        let answer: CompleteResponseProto = self.call("complete", &request).await?;
        Ok(answer.result)
    }

    pub(crate) async fn renew_lease(&self, client: &str) -> Result<(), Error> {
        let request = RenewLeaseRequestProto { client_name: client.to_owned(), namespaces: Vec::new() };
        let _: RenewLeaseResponseProto = self.call("renewLease", &request).await?;
        Ok(())
    }

    pub(crate) async fn report_bad_blocks(&self, blocks: &[LocatedBlock]) -> Result<(), Error> {
        let request = ReportBadBlocksRequestProto { blocks: blocks.iter().map(Into::into).collect() };
        let _: ReportBadBlocksResponseProto = self.call("reportBadBlocks", &request).await?;
        Ok(())
    }
}
