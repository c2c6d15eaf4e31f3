//! Decoder of a file's blocks, as `LocatedFile.java` encodes them: numbers as `java.io.DataOutputStream` writes them, and
//! texts and tokens as their length and their bytes.

use hearth_client::{
    Block, BlockId, BlockPoolId, DatanodeId, DatanodeInfo, DatanodeUuid, ExtendedBlock, GenerationStamp, LocatedBlock,
    LocatedBlocks, Token,
};

use crate::jvm::Thrown;

const WRONG: Thrown = Thrown::Argument("blocks that are not encoded as this library expects");

/// Bytes that were not decoded yet.
struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    fn bytes(&mut self, count: usize) -> Result<&'a [u8], Thrown> {
        let (bytes, rest) = self.0.split_at_checked(count).ok_or(WRONG)?;
        self.0 = rest;
        Ok(bytes)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], Thrown> {
        self.bytes(N)?.try_into().map_err(|_| WRONG)
    }

    fn long(&mut self) -> Result<i64, Thrown> {
        Ok(i64::from_be_bytes(self.array()?))
    }

    /// A number of bytes or an offset.
    fn size(&mut self) -> Result<u64, Thrown> {
        u64::try_from(self.long()?).map_err(|_| WRONG)
    }

    fn count(&mut self) -> Result<usize, Thrown> {
        usize::try_from(i32::from_be_bytes(self.array()?)).map_err(|_| WRONG)
    }

    fn port(&mut self) -> Result<u16, Thrown> {
        u16::try_from(self.count()?).map_err(|_| WRONG)
    }

    fn flag(&mut self) -> Result<bool, Thrown> {
        Ok(self.array::<1>()? != [0])
    }

    fn blob(&mut self) -> Result<Vec<u8>, Thrown> {
        let count = self.count()?;
        Ok(self.bytes(count)?.to_vec())
    }

    fn text(&mut self) -> Result<String, Thrown> {
        String::from_utf8(self.blob()?).map_err(|_| WRONG)
    }

    fn datanode(&mut self) -> Result<DatanodeInfo, Thrown> {
        Ok(DatanodeInfo::of(DatanodeId {
            ip: self.text()?,
            host_name: self.text()?,
            uuid: DatanodeUuid(self.text()?.into()),
            transfer_port: self.port()?,
            info_port: self.port()?,
            ipc_port: self.port()?,
            info_secure_port: self.port()?,
        }))
    }

    fn block(&mut self) -> Result<LocatedBlock, Thrown> {
        let pool = BlockPoolId::new(self.text()?);
        let id = BlockId(self.long()?);
        let stamp = GenerationStamp(self.long()? as u64);
        let block = Block { id, stamp, length: self.size()? };
        let mut located = LocatedBlock::nowhere(ExtendedBlock { pool, block });
        located.offset = self.size()?;
        located.corrupt = self.flag()?;
        located.token =
            Token { identifier: self.blob()?, password: self.blob()?, kind: self.text()?, service: self.text()? };
        for _ in 0..self.count()? {
            located.locations.push(self.datanode()?);
        }
        Ok(located)
    }
}

/// Decodes a file's blocks.
///
/// Errors: `Argument`.
pub fn decode(bytes: &[u8]) -> Result<LocatedBlocks, Thrown> {
    let mut fields = Fields(bytes);
    let file_length = fields.size()?;
    let under_construction = fields.flag()?;
    let last_block_complete = fields.flag()?;
    let last_block = if fields.flag()? { Some(fields.block()?) } else { None };
    let mut blocks = Vec::new();
    for _ in 0..fields.count()? {
        blocks.push(fields.block()?);
    }
    if !fields.0.is_empty() {
        return Err(WRONG);
    }
    Ok(LocatedBlocks { file_length, under_construction, blocks, last_block, last_block_complete })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(into: &mut Vec<u8>, text: &str) {
        into.extend((text.len() as i32).to_be_bytes());
        into.extend(text.as_bytes());
    }

    fn block(into: &mut Vec<u8>, offset: i64) {
        text(into, "BP-1");
        [-7, 1001, 60, offset].iter().for_each(|number: &i64| into.extend(number.to_be_bytes()));
        into.push(0);
        ["identifier", "password", "kind", "service"].iter().for_each(|each| text(into, each));
        into.extend(1i32.to_be_bytes());
        ["127.0.0.1", "localhost", "uuid"].iter().for_each(|each| text(into, each));
        [65535, 1, 2, 0].iter().for_each(|port: &i32| into.extend(port.to_be_bytes()));
    }

    fn file() -> Vec<u8> {
        let mut bytes = 100i64.to_be_bytes().to_vec();
        bytes.extend([1, 0, 1]);
        block(&mut bytes, 100);
        bytes.extend(2i32.to_be_bytes());
        block(&mut bytes, 0);
        block(&mut bytes, 60);
        bytes
    }

    #[test]
    fn every_field_is_decoded() {
        let located = decode(&file()).unwrap();
        assert_eq!((located.file_length, located.under_construction, located.last_block_complete), (100, true, false));
        assert!(located.has_open_block());
        let [first, second] = &located.blocks[..] else { panic!("{located:?}") };
        assert_eq!((first.offset, second.offset, located.last_block.unwrap().offset), (0, 60, 100));
        assert_eq!((first.block.block.id, first.block.block.stamp), (BlockId(-7), GenerationStamp(1001)));
        assert_eq!((first.block.length(), first.block.pool.as_str(), first.corrupt), (60, "BP-1", false));
        assert_eq!((&*first.token.identifier, &*first.token.service), (&b"identifier"[..], "service"));
        let id = &first.locations[0].id;
        assert_eq!((id.ip.as_str(), id.host_name.as_str(), &*id.uuid.0), ("127.0.0.1", "localhost", "uuid"));
        assert_eq!((id.transfer_port, id.info_port, id.ipc_port, id.info_secure_port), (65535, 1, 2, 0));
    }

    #[test]
    fn incomplete_and_longer_ones_are_refused() {
        let bytes = file();
        (0..bytes.len()).for_each(|length| assert!(decode(&bytes[..length]).is_err(), "{length} bytes"));
        let longer: Vec<u8> = bytes.into_iter().chain([0]).collect();
        assert!(decode(&longer).is_err());
        assert!(decode(&[0xff; 8]).is_err(), "a negative length");
    }
}
