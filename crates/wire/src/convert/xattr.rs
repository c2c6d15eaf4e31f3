use hearth_types::{Xattr, XattrSpace};

use super::ConvertError;
use crate::proto::hdfs::XAttrProto;

impl From<Xattr> for XAttrProto {
    fn from(xattr: Xattr) -> Self {
        let value = (!xattr.value.is_empty()).then(|| Vec::from(xattr.value).into());
        Self { namespace: xattr.space as i32, name: xattr.name.into(), value }
    }
}

impl TryFrom<XAttrProto> for Xattr {
    type Error = ConvertError;

    fn try_from(message: XAttrProto) -> Result<Self, ConvertError> {
        let number = message.namespace;
        let space = u8::try_from(number).ok().and_then(XattrSpace::from_number);
        let space = space.ok_or(ConvertError::UnknownNumber { field: "the space of an attribute", number })?;
        Ok(Self { space, name: message.name.into(), value: message.value.unwrap_or_default().to_vec().into() })
    }
}
