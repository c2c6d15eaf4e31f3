use hearth_types::{Outlier, SlowDisk};

use super::{ConvertError, not_empty};
use crate::proto::hdfs::{SlowDiskReportProto, SlowPeerReportProto};

impl From<&Outlier> for SlowPeerReportProto {
    fn from(outlier: &Outlier) -> Self {
        Self {
            data_node_id: Some(outlier.name.clone()),
            aggregate_latency: Some(outlier.latency_ms),
            median: Some(outlier.median_ms),
            mad: Some(outlier.deviation_ms),
            upper_limit_latency: Some(outlier.limit_ms),
        }
    }
}

impl TryFrom<SlowPeerReportProto> for Outlier {
    type Error = ConvertError;

    fn try_from(message: SlowPeerReportProto) -> Result<Self, ConvertError> {
        Ok(Self {
            latency_ms: message.aggregate_latency.unwrap_or_default(),
            median_ms: message.median.unwrap_or_default(),
            deviation_ms: message.mad.unwrap_or_default(),
            limit_ms: message.upper_limit_latency.unwrap_or_default(),
            name: not_empty(message.data_node_id.unwrap_or_default(), "slow datanode")?,
        })
    }
}

impl From<&SlowDisk> for SlowDiskReportProto {
    fn from(disk: &SlowDisk) -> Self {
        Self {
            base_path: Some(disk.directory.clone()),
            mean_metadata_op_latency: disk.metadata_ms,
            mean_read_io_latency: disk.read_ms,
            mean_write_io_latency: disk.write_ms,
        }
    }
}

impl TryFrom<SlowDiskReportProto> for SlowDisk {
    type Error = ConvertError;

    fn try_from(message: SlowDiskReportProto) -> Result<Self, ConvertError> {
        Ok(Self {
            metadata_ms: message.mean_metadata_op_latency,
            read_ms: message.mean_read_io_latency,
            write_ms: message.mean_write_io_latency,
            directory: not_empty(message.base_path.unwrap_or_default(), "slow disk")?,
        })
    }
}
