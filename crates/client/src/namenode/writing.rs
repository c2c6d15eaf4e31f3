//! Calls for files under construction and for leases.
//!
//! Apache's namenode also has files that this client cannot write: erasure-coded and encrypted ones. It allows such a
//! file to be created or opened, and reports the fact only in its answer. This module checks what it can before
//! anything changes, and closes a file that was opened in spite of that.

use std::time::Duration;

use hearth_types::{DatanodeId, DatanodeInfo, ExtendedBlock, FileStatus, FsPermission, LocatedBlock, StorageId};
use hearth_wire::proto::hdfs::*;

use super::files::converted;
use super::{Exception, Namenode};
use crate::Error;
use crate::error::Failure;

/// Bits of `CreateFlagProto`.
const CREATE: u32 = 1;
const OVERWRITE: u32 = 2;
const APPEND: u32 = 4;
const LAZY_PERSIST: u32 = 16;
const NEW_BLOCK: u32 = 32;

/// Directory that addresses inodes by number. Source: `FSDirectory.DOT_INODES_STRING`.
const INODE_PATH_PREFIX: &str = "/.reserved/.inodes";

/// Pauses between requests to close an unchanged file. They are short, because the namenode knows all of its blocks.
const CLOSE_RETRY_DELAYS_MS: [u64; 3] = [10, 100, 1000];

pub(crate) struct CreateRequest<'a> {
    pub path: &'a str,
    /// Permission after and before the umask.
    pub permission: (FsPermission, FsPermission),
    pub client: &'a str,
    pub overwrite: bool,
    pub parents: bool,
    pub replication: u16,
    pub block_size: u64,
    pub lazy_persist: bool,
    pub storage_policy: Option<&'a str>,
}

impl Namenode {
    /// Creates a file.
    ///
    /// Errors: `Unsupported`: the file would be encrypted or erasure-coded. Nothing was changed, unless the directory
    /// became erasure-coded or encrypted during the call.
    pub(crate) async fn create(&self, create_request: &CreateRequest<'_>) -> Result<Option<FileStatus>, Error> {
        // The namenode replaces an existing file before it reports the kind of the new one. Avoiding that loss is worth
        // an extra call; a file that was newly created can be deleted again.
        if create_request.overwrite && self.is_erasure_coded_in(directory_of(create_request.path)).await? {
            return Err(Failure::Unsupported { path: create_request.path.to_owned() }.into());
        }
        let (masked, unmasked) = create_request.permission;
        let overwrite = if create_request.overwrite { OVERWRITE } else { 0 };
        let lazy_persist = if create_request.lazy_persist { LAZY_PERSIST } else { 0 };
        let request = CreateRequestProto {
            src: create_request.path.to_owned(),
            masked: masked.into(),
            client_name: create_request.client.to_owned(),
            create_flag: CREATE | overwrite | lazy_persist,
            create_parent: create_request.parents,
            replication: u32::from(create_request.replication),
            block_size: create_request.block_size,
            // Empty: a file in an encryption zone is refused before anything changes.
            crypto_protocol_version: Vec::new(),
            unmasked: Some(unmasked.into()),
            ec_policy_name: None,
            storage_policy: create_request.storage_policy.map(str::to_owned),
        };
        let unsupported = || Failure::Unsupported { path: create_request.path.to_owned() }.into();
        let answer: CreateResponseProto = match self.call("create", &request).await {
            Err(error) if error.exception() == Some(Exception::UnknownCryptoProtocolVersion) => {
                return Err(unsupported());
            }
            answer => answer?,
        };
        let Some(status) = answer.fs else { return Ok(None) };
        if !is_written_here(&status) {
            // By inode number: another file may have the path by now.
            let made = format!("{INODE_PATH_PREFIX}/{}", status.file_id());
            if let Err(error) = self.delete(&made, false).await {
                tracing::warn!(path = create_request.path, %error, "cannot delete an unsupported new file");
            }
            return Err(unsupported());
        }
        converted("create", status.try_into()).map(Some)
    }

    /// Returns true if new files in `directory` are erasure-coded.
    async fn is_erasure_coded_in(&self, directory: &str) -> Result<bool, Error> {
        match self.file_info(directory).await {
            Ok(status) => Ok(status.is_some_and(|status| status.erasure_coding_policy.is_some())),
            // The creation reports a problem with the path more precisely.
            Err(error) if error.exception().is_some() => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Opens a file for append. Returns the block to continue, if the last one has room, and the file's status.
    ///
    /// Errors: `Unsupported`: the file is encrypted or erasure-coded. On this error and on `Answer`, the file is closed
    /// again unchanged.
    pub(crate) async fn append(
        &self,
        path: &str,
        client: &str,
        new_block: bool,
    ) -> Result<(Option<LocatedBlock>, Option<FileStatus>), Error> {
        let flag = APPEND | if new_block { NEW_BLOCK } else { 0 };
        let request = AppendRequestProto { src: path.to_owned(), client_name: client.to_owned(), flag: Some(flag) };
        let answer: AppendResponseProto = self.call("append", &request).await?;
        let inode = answer.stat.as_ref().map_or(0, |status| status.file_id());
        // With a new block, the namenode does not reopen the last one.
        let last = answer.block.as_ref().filter(|_| !new_block).map(|block| block.b.clone());
        let opened = if answer.stat.as_ref().is_none_or(is_written_here) {
            opened(answer)
        } else {
            Err(Failure::Unsupported { path: path.to_owned() }.into())
        };
        if opened.is_err() {
            let last: Option<ExtendedBlock> = last.and_then(|block| block.try_into().ok());
            self.close_unchanged(path, inode, client, last.as_ref()).await;
        }
        opened
    }

    /// Closes a file that was opened for append and not written to. Otherwise no other client could write it while this
    /// client renews its lease for other files.
    ///
    /// `last`: the block that was reopened.
    pub(crate) async fn close_unchanged(&self, path: &str, inode: u64, client: &str, last: Option<&ExtendedBlock>) {
        match self.complete_soon(path, inode, client, last, &CLOSE_RETRY_DELAYS_MS).await {
            Ok(true) => {}
            Ok(false) => tracing::warn!(path, "cannot close a file that this client cannot write"),
            Err(error) => tracing::warn!(path, %error, "cannot close a file that this client cannot write"),
        }
    }

    /// Like `complete`, but retries after each of `pauses_ms` (milliseconds).
    pub(crate) async fn complete_soon(
        &self,
        path: &str,
        inode: u64,
        client: &str,
        last: Option<&ExtendedBlock>,
        pauses_ms: &[u64],
    ) -> Result<bool, Error> {
        let mut pauses = pauses_ms.iter().map(|pause| Duration::from_millis(*pause));
        loop {
            if self.complete(path, inode, client, last).await? {
                return Ok(true);
            }
            let Some(pause) = pauses.next() else { return Ok(false) };
            tokio::time::sleep(pause).await;
        }
    }

    /// Adds a block to the file. `previous`: the last block with its final length, which this call commits.
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

    /// Returns the existing datanodes and one more, if one is available.
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

    /// Returns the block with a new generation stamp, and a token for it.
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

    /// Persists the file's blocks in the namenode, the last one with `length` bytes.
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

    /// Completes the file. False means that it is not complete yet and the call must be repeated.
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

/// Decodes the answer about a file that was opened for append.
fn opened(answer: AppendResponseProto) -> Result<(Option<LocatedBlock>, Option<FileStatus>), Error> {
    let block = answer.block.map(|block| converted("append", block.try_into())).transpose()?;
    let status = answer.stat.map(|status| converted("append", status.try_into())).transpose()?;
    Ok((block, status))
}

/// Returns true if this client can write a file of this status.
fn is_written_here(status: &HdfsFileStatusProto) -> bool {
    status.ec_policy.is_none() && status.file_encryption_info.is_none()
}

/// Returns the parent directory of an absolute path.
fn directory_of(path: &str) -> &str {
    match path.rsplit_once('/') {
        Some((directory, _)) if !directory.is_empty() => directory,
        _ => "/",
    }
}
