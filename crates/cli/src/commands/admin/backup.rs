//! `-backup`

use std::path::Path;

use anyhow::{Context, bail, ensure};
use hearth_namenode::image::NewNameDirectory;
use hearth_types::{BlockPoolId, PoolIdentity};

use super::fetch_image::{NAME_HEADER, download};
use crate::commands::fsck::ask::NamenodeHttp;
use crate::commands::tool::Tool;

/// Layout, namespace, time and cluster.
const STORAGE_HEADER: &str = "X-Hearth-Storage-Info";
const POOL_HEADER: &str = "X-Hearth-Block-Pool";
const DIGEST_HEADER: &str = "X-MD5-Digest";

/// Downloads an image into a new directory in the form of Apache's NameNode. The directory appears when it is complete
/// and on disk.
pub async fn back_up(tool: &Tool, directory: &str) -> anyhow::Result<u8> {
    let fs = tool.fs()?;
    // This call also finds out which of several NameNodes is active.
    fs.usage().await?;
    let web = NamenodeHttp::find(&tool.configuration, fs.uri(), &fs.namenode_address()).await?;
    let new = NewNameDirectory::begin(Path::new(directory))?;
    match receive(&web, &new).await {
        Ok((identity, txid, md5)) => {
            let image = new.finish(&identity, txid, md5)?;
            println!("Namespace up to change {txid} is in {}", image.display());
            Ok(0)
        }
        Err(error) => {
            new.abandon();
            Err(error)
        }
    }
}

async fn receive(web: &NamenodeHttp, new: &NewNameDirectory) -> anyhow::Result<(PoolIdentity, u64, [u8; 16])> {
    let (mut file, path) = new.create_image()?;
    let (headers, length) = download(web, &mut file, format!("cannot write {}", path.display())).await?;
    let header = |name: &str| {
        let value = headers.get(name).and_then(|value| value.to_str().ok());
        value.with_context(|| {
            format!("the NameNode does not send {name}: only a Hearth NameNode can be backed up; use -fetchImage")
        })
    };
    let advertised = header("Content-Length")?;
    ensure!(advertised == length.to_string(), "the image has {advertised} bytes, but {length} were received");
    let md5 = digest(header(DIGEST_HEADER)?).context("the NameNode sends no valid digest")?;
    let name = header(NAME_HEADER)?;
    let txid = name.strip_prefix("fsimage_").and_then(|digits| digits.parse::<u64>().ok());
    let txid = txid.with_context(|| format!("{name:?} is not the name of an image"))?;
    let identity =
        identity(header(STORAGE_HEADER)?, header(POOL_HEADER)?).context("the NameNode sends no valid identity")?;
    let found = hearth_namenode::image::digest(&path)?;
    if found != md5 {
        bail!("the image was damaged on the way: its MD5 digest is not the one that the NameNode sent; try again");
    }
    Ok((identity, txid, md5))
}

/// Parses 32 hexadecimal digits.
fn digest(text: &str) -> Option<[u8; 16]> {
    if text.len() != 32 || !text.is_ascii() {
        return None;
    }
    let mut md5 = [0; 16];
    for (byte, at) in md5.iter_mut().zip((0..32).step_by(2)) {
        *byte = u8::from_str_radix(&text[at..at + 2], 16).ok()?;
    }
    Some(md5)
}

/// Parses `LAYOUT:NAMESPACE:TIME:CLUSTER`. The name of a cluster may have colons.
fn identity(storage: &str, pool: &str) -> Option<PoolIdentity> {
    let mut parts = storage.splitn(4, ':').skip(1);
    let (namespace, time, cluster) = (parts.next()?, parts.next()?, parts.next()?);
    Some(PoolIdentity {
        pool: BlockPoolId::new(pool),
        namespace_id: namespace.parse().ok()?,
        cluster_id: cluster.to_owned(),
        created_ms: time.parse().ok()?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_are_parsed() {
        let found = identity("-67:5:1700000000000:CID-a:b", "BP-1").unwrap();
        assert_eq!((found.namespace_id, found.created_ms), (5, 1_700_000_000_000));
        assert_eq!((found.cluster_id.as_str(), found.pool.as_str()), ("CID-a:b", "BP-1"));
        assert!(identity("-67:5", "BP-1").is_none() && identity("-67:x:1:c", "BP-1").is_none());
        assert_eq!(digest(&"0f".repeat(16)), Some([15; 16]));
        assert!(digest("0f").is_none() && digest(&"é".repeat(16)).is_none() && digest(&"0g".repeat(16)).is_none());
    }
}
