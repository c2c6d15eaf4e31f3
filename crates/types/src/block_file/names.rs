use crate::{BlockId, GenerationStamp};

/// Formats `blk_<id>`, with the id in signed decimal.
pub fn block_file_name(id: BlockId) -> String {
    format!("blk_{}", id.0)
}

/// Formats `blk_<id>_<stamp>.meta`.
pub fn meta_file_name(id: BlockId, stamp: GenerationStamp) -> String {
    format!("blk_{}_{}.meta", id.0, stamp.0)
}

/// Returns `subdir<A>/subdir<B>` below `finalized`, from bits 16 to 20 and 8 to 12 of the id.
pub fn finalized_subdirectory(id: BlockId) -> String {
    let bits = id.0 as u64;
    format!("subdir{}/subdir{}", (bits >> 16) & 31, (bits >> 8) & 31)
}

/// A file of a replica directory, parsed from its name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ReplicaFile {
    Data { id: BlockId },
    Meta { id: BlockId, stamp: GenerationStamp },
}

impl ReplicaFile {
    /// Parses a file name; returns `None` for every other name. Accepts only the spelling that Hearth writes (no `+`,
    /// no leading zeros), so that two names never refer to the same replica.
    pub fn parse(name: &str) -> Option<Self> {
        let rest = name.strip_prefix("blk_")?;
        let parsed = match rest.strip_suffix(".meta") {
            None => Self::Data { id: BlockId(rest.parse().ok()?) },
            Some(rest) => {
                let (id, stamp) = rest.rsplit_once('_')?;
                Self::Meta { id: BlockId(id.parse().ok()?), stamp: GenerationStamp(stamp.parse().ok()?) }
            }
        };
        (parsed.name() == name).then_some(parsed)
    }

    pub fn name(self) -> String {
        match self {
            Self::Data { id } => block_file_name(id),
            Self::Meta { id, stamp } => meta_file_name(id, stamp),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_names_round_trip() {
        let id = BlockId(-9223372036854775792);
        assert_eq!(block_file_name(id), "blk_-9223372036854775792");
        for file in [ReplicaFile::Data { id }, ReplicaFile::Meta { id, stamp: GenerationStamp(1001) }] {
            assert_eq!(ReplicaFile::parse(&file.name()), Some(file));
        }
        for other in
            ["blk_", "blk_x", "blk_+1", "blk_01", "blk_1_2", "blk_1.meta", "blk_1_-2.meta", "VERSION", "blk_1_2.meta~"]
        {
            assert_eq!(ReplicaFile::parse(other), None, "{other}");
        }
    }

    #[test]
    fn subdirectories_match_hadoop() {
        assert_eq!(finalized_subdirectory(BlockId(1073741825)), "subdir0/subdir0");
        assert_eq!(finalized_subdirectory(BlockId(0x4001_1f00 + 7)), "subdir1/subdir31");
        assert_eq!(finalized_subdirectory(BlockId(-1)), "subdir31/subdir31");
    }
}
