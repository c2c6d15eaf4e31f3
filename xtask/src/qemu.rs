//! Emulation of aarch64 by qemu, one program at a time, with a C library: packages of Debian, unpacked without an installation.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Result;

use crate::{debian, root};

/// qemu's emulator of programs for aarch64.
pub struct Aarch64 {
    qemu: PathBuf,
    /// Directory with the C library, which programs look for in `/lib`.
    system: PathBuf,
}

impl Aarch64 {
    /// Fetches the emulator, once.
    pub fn fetch() -> Result<Self> {
        const QEMU: &str = "usr/bin/qemu-aarch64-static";
        const SYSTEM: &str = "usr/aarch64-linux-gnu";
        let loader = format!("{SYSTEM}/lib/ld-linux-aarch64.so.1");
        let packages = ["qemu-user-static", "libc6-arm64-cross"];
        let home = debian::unpacked(&packages, root().join(".cache/qemu-aarch64"), &[QEMU, &loader])?;
        Ok(Self { qemu: home.join(QEMU), system: home.join(SYSTEM) })
    }

    /// Returns a command that runs a program of aarch64. The caller adds the program's arguments.
    pub fn command(&self, program: &Path) -> Command {
        let mut command = Command::new(&self.qemu);
        // A plain processor: qemu is slow in the pointer authentication of newer ones.
        command.args(["-cpu", "cortex-a72", "-L"]).arg(&self.system).arg(program);
        command
    }
}
