//! `-fetchImage`

use std::io::Write;
use std::path::Path;

use anyhow::{Context, bail, ensure};
use hyper::header::HeaderMap;

use crate::commands::fsck::ask::NamenodeHttp;
use crate::commands::tool::Tool;

/// Name of the image file in the NameNode's answer.
pub(super) const NAME_HEADER: &str = "X-Image-Edits-Name";

/// Writes the NameNode's newest image to `file`. Returns the headers of the answer, and the number of bytes received.
/// `cannot`: the error if they cannot be written.
pub(super) async fn download(
    web: &NamenodeHttp,
    file: &mut impl Write,
    cannot: String,
) -> anyhow::Result<(HeaderMap, u64)> {
    let (mut failed, mut length) = (None, 0);
    let headers = web
        .get("/imagetransfer?getimage=1&txid=latest", |bytes| {
            length += bytes.len() as u64;
            failed = failed.take().or(file.write_all(bytes).err());
        })
        .await
        .context("cannot fetch the image")?;
    match failed {
        Some(error) => Err(error).context(cannot),
        None => Ok((headers, length)),
    }
}

/// Downloads the newest image into `directory`, under the name that the NameNode gives it, or into the file of that
/// name. The file appears when it is complete.
pub async fn fetch(tool: &Tool, directory: &str) -> anyhow::Result<u8> {
    let fs = tool.fs()?;
    // This call also finds out which of several NameNodes is active.
    fs.usage().await?;
    let web = NamenodeHttp::find(&tool.configuration, fs.uri(), &fs.namenode_address()).await?;
    let target = Path::new(directory);
    let parent = match target.is_dir() {
        true => target,
        false => target.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new(".")),
    };
    let mut file = tempfile::NamedTempFile::new_in(parent)
        .with_context(|| format!("cannot create a file in {}", parent.display()))?;
    let (headers, length) = download(&web, &mut file, format!("cannot write to {}", parent.display())).await?;
    let header = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    if let Some(advertised) = header("Content-Length") {
        let received = length.to_string();
        ensure!(advertised == received, "the image has {advertised} bytes, but {received} were received");
    }
    let path = match target.is_dir() {
        false => target.to_owned(),
        true => {
            let name = header(NAME_HEADER).context("No filename header provided by server")?;
            // The name comes from the network: it must not lead out of the directory.
            if name.is_empty() || name.starts_with('.') || name.contains('/') {
                bail!("{name:?} is not the name of an image");
            }
            target.join(name)
        }
    };
    file.as_file().sync_all().with_context(|| format!("cannot write to {}", parent.display()))?;
    file.persist(&path).with_context(|| format!("cannot create {}", path.display()))?;
    Ok(0)
}
