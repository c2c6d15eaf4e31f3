//! Debian's package `logrotate` and the one library of it that not every Debian has, unpacked into `.cache/logrotate` without an
//! installation: `xtask/tests/packaging.rs` rotates logs with it.

use std::path::PathBuf;

use anyhow::Result;

use crate::{debian, run};

/// Returns the program `logrotate`: the installed one, else Debian's, which is fetched once.
pub fn fetch() -> Result<PathBuf> {
    const PROGRAM: &str = "usr/sbin/logrotate";
    if run::exists("logrotate", "--version") {
        return Ok("logrotate".into());
    }
    let home = crate::root().join(".cache/logrotate");
    Ok(debian::unpacked(&["logrotate", "libpopt0"], home, &[PROGRAM])?.join(PROGRAM))
}
