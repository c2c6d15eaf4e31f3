use hearth_types::RemoteSlice;

use crate::convert::ConvertError;
use crate::proto::hearth::RemoteSliceProto;

impl From<&RemoteSlice> for RemoteSliceProto {
    fn from(slice: &RemoteSlice) -> Self {
        Self { address: slice.address, length: slice.length, key: slice.key }
    }
}

impl TryFrom<RemoteSliceProto> for RemoteSlice {
    type Error = ConvertError;

    /// Rejects a slice that reaches beyond the end of the address space.
    fn try_from(message: RemoteSliceProto) -> Result<Self, ConvertError> {
        let RemoteSliceProto { address, length, key } = message;
        if address.checked_add(length).is_none() {
            return Err(ConvertError::OutOfRange { field: "slice", value: length });
        }
        Ok(Self { address, length, key })
    }
}
