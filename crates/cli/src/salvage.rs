//! Copies what can be read of corrupt files, for `fsck -move`. The NameNode itself reads no blocks: a client in its
//! process does.

use hearth_client::{ByteRange, Configuration, CreateOptions, Error, ErrorKind, FileSystem, PositionedReader, Writer};
use hearth_config::keys;
use hearth_namenode::fsck::{BlockCopier, Copied, CopyFailure, CopyFuture, CopyRequest};

/// Bytes read at a time.
const PIECE_BYTES: usize = 4 << 20;
/// Bytes read at a time of a block that cannot be read whole: one packet of Apache's DataNodes. So the bytes before the
/// fault are saved as by Apache's NameNode.
const FAULTY_PIECE_BYTES: usize = 64 << 10;

/// Client for the copies of one NameNode. It connects when it is needed.
pub struct ClientCopier {
    configuration: Configuration,
}

impl ClientCopier {
    /// `configuration`: the NameNode's.
    pub fn new(configuration: &Configuration) -> Self {
        let configuration = configuration
            .clone()
            // A NameNode maps no DataNode's memory, and opens no RDMA device.
            .with(keys::HEARTH_CLIENT_PATHS.name, "packets")
            // Blocks without a good replica are the rule here. One more round, of at most 3 s, is enough for others.
            .with(keys::DFS_CLIENT_MAX_BLOCK_ACQUIRE_FAILURES.name, "1");
        Self { configuration }
    }
}

impl BlockCopier for ClientCopier {
    fn copy(&self, request: CopyRequest) -> CopyFuture {
        let uri = format!("hdfs://{}", request.namenode);
        let connected = FileSystem::connect(&self.configuration, Some(&uri), &request.user);
        Box::pin(async move {
            let file_system = connected.map_err(failure)?;
            copy(&file_system, &request).await.map_err(failure)
        })
    }
}

/// Returns the error's text with its causes.
fn failure(error: Error) -> CopyFailure {
    CopyFailure(format!("{:#}", anyhow::Error::from(error)))
}

async fn copy(file_system: &FileSystem, request: &CopyRequest) -> Result<Copied, Error> {
    let reader = file_system.open(&request.source).await?.positioned();
    let mut writer = file_system.create(&request.target, CreateOptions::default()).await?;
    let mut buffer = vec![0; PIECE_BYTES];
    let mut copied = Copied::default();
    for block in &request.blocks {
        if let Some(error) = copy_block(&reader, *block, &mut buffer, &mut writer).await? {
            copied.unreadable = Some(failure(error));
            break;
        }
        copied.blocks += 1;
    }
    copied.bytes = writer.position();
    writer.close().await?;
    Ok(copied)
}

/// Copies one block. Returns the error if it cannot be read; the bytes before the fault are then copied.
///
/// Errors: the target cannot be written.
async fn copy_block(
    reader: &PositionedReader,
    block: ByteRange,
    buffer: &mut [u8],
    writer: &mut Writer,
) -> Result<Option<Error>, Error> {
    let (mut at, mut piece_bytes) = (block.start(), buffer.len());
    while at < block.end() {
        let left = usize::try_from(block.end() - at).unwrap_or(usize::MAX);
        let wanted = left.min(piece_bytes);
        match reader.read_at(at, &mut buffer[..wanted]).await {
            Ok(0) => return Ok(Some(Error::new(ErrorKind::FileChanged, format!("the file now ends before {at}")))),
            Ok(count) => {
                writer.write(&buffer[..count]).await?;
                at += count as u64;
            }
            Err(_) if piece_bytes > FAULTY_PIECE_BYTES => piece_bytes = FAULTY_PIECE_BYTES,
            Err(error) => return Ok(Some(error)),
        }
    }
    Ok(None)
}
