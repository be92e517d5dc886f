//! A short form of the fault suite: every kind of fault once, and one further kind drawn by the commit.

use anyhow::Result;
use ha_e2e::faults::campaign::{self, Settings};
use ha_e2e::faults::kind::Kind;
use ha_e2e::program::number;
use ha_e2e::scratch;

#[test]
fn every_kind_of_fault_once() -> Result<()> {
    let faults = u32::try_from(Kind::ALL.len() + 1)?;
    // The text is the hash of the commit where ./dev/test runs this. Order, targets and the last fault follow from it.
    let seed = std::env::var("HACTL_DRAWN").map_or(1, |text| number(&text));
    let settings = Settings { seed, faults, length_ms: 95_000 };
    let mut said = Vec::new();
    let report = campaign::run(&scratch::folder("faults")?, settings, &mut |line| said.push(line.to_owned()));
    let report = report.map_err(|error| error.context(said.join("\n")))?;
    // One or the other may be due when what it breaks is down already, on a slow machine more.
    assert!(report.faults() * 2 > Kind::ALL.len(), "seed {seed}\n{report}\n{}", said.join("\n"));
    Ok(())
}
