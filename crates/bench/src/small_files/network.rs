//! Emulation of a network with latency and losses: the loopback device of the virtual machine, for all TCP connections
//! there.

use std::process::Command;

use anyhow::{Context, Result, ensure};
use hearth_testkit::in_virtual_machine;

/// Maximum number of queued packets. An overflowing queue would lose more packets than configured.
const PACKETS: &str = "200000";

/// Delays and drops packets of both directions as long as this exists.
pub struct Network;

impl Network {
    /// Starts the emulation. `words`: properties in the syntax of tc-netem(8), e.g. `delay 10ms loss 0.1%`; for each
    /// direction.
    pub fn begin(words: &str) -> Result<Self> {
        ensure!(
            in_virtual_machine(),
            "--network changes the whole machine's loopback device: cargo xtask bench runs it in the virtual machine"
        );
        // Packets of Ethernet's size. Otherwise a lost packet would be 64 KiB.
        run("ip", "link set dev lo mtu 1500 gso_max_segs 1")?;
        run("tc", &format!("qdisc replace dev lo root netem {words} limit {PACKETS}"))?;
        Ok(Self)
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        let _ = run("tc", "qdisc del dev lo root");
    }
}

fn run(program: &str, words: &str) -> Result<()> {
    let output = Command::new(program).args(words.split_whitespace()).output();
    let output = output.with_context(|| format!("cannot start {program}"))?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{program} {words}: {}", said.trim());
    Ok(())
}
