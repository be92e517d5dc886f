//! Short form of the fault suite: every kind of fault once, and one more that the commit selects.

use anyhow::Result;
use ha_e2e::faults::campaign::{self, Settings};
use ha_e2e::faults::kind::FaultKind;
use ha_e2e::program::fnv1a_hash;
use ha_e2e::scratch;

#[test]
fn services_survive_every_kind_of_fault() -> Result<()> {
    let faults = u32::try_from(FaultKind::ALL.len() + 1)?;
    // The text is the hash of the commit when `./dev/test` runs this test. It determines the order, the targets and the last
    // fault.
    let seed = std::env::var("HACTL_DRAWN").map_or(1, |text| fnv1a_hash(&text));
    let settings = Settings { seed, faults, duration_ms: 95_000 };
    let mut lines = Vec::new();
    let report =
        campaign::run(&scratch::directory("faults")?, settings, &mut |line| lines.push(line.to_owned()));
    let report = report.map_err(|error| error.context(lines.join("\n")))?;
    // A fault is impossible if its target is already down, which is more frequent on a slow host.
    assert!(report.faults() * 2 > FaultKind::ALL.len(), "seed {seed}\n{report}\n{}", lines.join("\n"));
    Ok(())
}
