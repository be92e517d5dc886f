//! Fence devices: a confirmed power-off replaces the rest of the waiting time; a broken device counts for nothing.

use anyhow::{Context, Result};
use ha_api_types::record::{Fence, Proof};
use ha_e2e::measure::devices;
use ha_e2e::power::PowerSupply;
use ha_e2e::scenario::{Scenario, WITNESS};
use nix::sys::signal::Signal;

fn with_devices(name: &str) -> Result<(Scenario, PowerSupply)> {
    let scenario = Scenario::start(name)?;
    let supply = devices(&scenario)?;
    Ok((scenario, supply))
}

/// What proved that a node is gone.
fn proof(scenario: &Scenario, node: &str) -> Result<Proof> {
    let key = scenario.cluster.keys().fence(node);
    let entry = scenario.cluster.etcdctl().get(&key)?.context("a fence")?;
    let fence: Fence = serde_json::from_value(entry.value)?;
    fence.proof.context("a proof")
}

#[test]
fn a_device_that_confirms_is_proof() -> Result<()> {
    let (mut scenario, supply) = with_devices("fence-device")?;
    let home = scenario.home(WITNESS)?;
    scenario.cluster.cut(&home)?;
    scenario.elsewhere(WITNESS, &home)?;
    assert_eq!(supply.switched_off(), 1, "the device was not used");
    assert!(!scenario.cluster.machine(&home)?.is_on());
    let proof = proof(&scenario, &home)?;
    assert!(matches!(proof, Proof::Device { .. }), "{proof:?}");
    scenario.cluster.heal(&home)?;
    scenario.cluster.power_on(&home)?;
    scenario.cluster.wait_for_nodes()?;
    scenario.finish()
}

#[test]
fn a_device_that_fails_counts_for_nothing() -> Result<()> {
    let (scenario, supply) = with_devices("fence-device-broken")?;
    let home = scenario.home(WITNESS)?;
    supply.break_down();
    scenario.cluster.machine(&home)?.signal("ha-node-agent", Signal::SIGSTOP)?;
    scenario.elsewhere(WITNESS, &home)?;
    assert_eq!(supply.switched_off(), 0);
    let proof = proof(&scenario, &home)?;
    assert!(matches!(proof, Proof::Silence { .. }), "{proof:?}");
    scenario.finish()
}
