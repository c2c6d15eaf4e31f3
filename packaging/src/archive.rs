//! The archive for any Linux with glibc: unpack it anywhere, run `bin/hearth`.

use anyhow::Result;

use crate::tree::gzip;
use crate::{Order, layout, write_package};

pub fn write(order: &Order) -> Result<()> {
    let name = format!("hearth-{}-{}-linux", order.version, order.machine.name());
    let archive = layout::portable(order)?.tar(&format!("{name}/"), order.time)?;
    write_package(order, &format!("{name}.tar.gz"), &gzip(&archive)?)
}
