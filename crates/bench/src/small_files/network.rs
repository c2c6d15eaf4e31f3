//! A network with a long way and losses: the loopback device of the virtual machine, between whoever speaks TCP there.

use std::process::Command;

use anyhow::{Context, Result, ensure};
use hearth_testkit::in_virtual_machine;

/// Packets on their way at most: a queue that overflows would lose more than it is to.
const PACKETS: &str = "200000";

/// As long as this lives, packets of both directions are late and get lost.
pub struct Network;

impl Network {
    /// `words`: how, as tc-netem(8) has it, e.g. `delay 10ms loss 0.1%`; for each direction.
    pub fn begin(words: &str) -> Result<Self> {
        ensure!(
            in_virtual_machine(),
            "--network changes the whole machine's loopback device: cargo xtask bench runs it in the virtual machine"
        );
        // Packets as they are on Ethernet. Else one that is lost would be 64 KiB.
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
