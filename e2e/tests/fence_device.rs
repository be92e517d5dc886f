//! Tests of fence devices: a confirmed power-off replaces the rest of W, and a broken device provides no proof.

use anyhow::{Context, Result};
use ha_api_types::record::{Fence, Proof};
use ha_e2e::bmc::Bmc;
use ha_e2e::measure::add_fence_devices;
use ha_e2e::plan::Plan;
use ha_e2e::power::PowerSupply;
use ha_e2e::scenario::{Scenario, WITNESS};
use ha_e2e::scratch;
use nix::sys::signal::Signal;
use serde_json::json;

fn start_with_devices(name: &str) -> Result<(Scenario, PowerSupply)> {
    let scenario = Scenario::start(name)?;
    let supply = add_fence_devices(&scenario)?;
    Ok((scenario, supply))
}

/// Returns the proof in a node's fence record.
fn proof(scenario: &Scenario, node: &str) -> Result<Proof> {
    let key = scenario.cluster.keys().fence(&node.into());
    let entry = scenario.cluster.etcdctl().get(&key)?.context("a fence")?;
    let fence: Fence = serde_json::from_value(entry.value)?;
    fence.proof.context("a proof")
}

#[test]
fn confirming_fence_device_proves_node_dead() -> Result<()> {
    let (mut scenario, supply) = start_with_devices("fence-device")?;
    let active_node = scenario.wait_until_started(WITNESS)?;
    scenario.cluster.cut(&active_node)?;
    scenario.wait_until_moved_from(WITNESS, &active_node)?;
    assert_eq!(supply.switch_off_count(), 1, "the device was not used");
    assert!(!scenario.cluster.machine(&active_node)?.is_on());
    let proof = proof(&scenario, &active_node)?;
    assert!(matches!(proof, Proof::Device { .. }), "{proof:?}");
    scenario.cluster.heal(&active_node)?;
    scenario.cluster.power_on(&active_node)?;
    scenario.cluster.wait_for_nodes()?;
    scenario.finish()
}

/// Uses no program of this project between the controller and the power supply: ClusterLabs' fence_ipmilan, ipmitool, and IPMI
/// over the network.
#[test]
fn a_machine_is_switched_off_by_its_management_controller() -> Result<()> {
    // With the fast profile, W could end on a busy host before the fence agent, a Python program, has finished.
    let plan = Plan { profile: "Default".to_owned(), ..Plan::test(&scratch::directory("fence-ipmi")?) };
    let mut scenario = Scenario::start_with(plan)?;
    let supply = PowerSupply::start(
        scenario.cluster.directory(),
        &scenario.cluster.volatile_directory().join("power.sock"),
    )?;
    let active_node = scenario.wait_until_started(WITNESS)?;
    let directory = scenario.cluster.directory().join("bmc");
    let bmc = Bmc::start(&directory, scenario.cluster.host_address(), &supply, &active_node)?;
    let fencing = json!({"trustWatchdogOnVirtualMachine": true, "devices": [bmc.device()]});
    scenario.apply("nodes", &active_node, &json!({"fencing": fencing}))?;
    scenario.cluster.cut(&active_node)?;
    scenario.wait_until_moved_from(WITNESS, &active_node)?;
    let proof = proof(&scenario, &active_node)?;
    assert!(matches!(proof, Proof::Device { .. }), "{proof:?}");
    assert_eq!(supply.switch_off_count(), 1, "the machine was not switched off");
    assert!(!scenario.cluster.machine(&active_node)?.is_on());
    scenario.cluster.heal(&active_node)?;
    scenario.cluster.power_on(&active_node)?;
    scenario.cluster.wait_for_nodes()?;
    scenario.finish()
}

#[test]
fn failing_fence_device_proves_nothing() -> Result<()> {
    let (scenario, supply) = start_with_devices("fence-device-broken")?;
    let active_node = scenario.wait_until_started(WITNESS)?;
    supply.reject_requests();
    scenario.cluster.machine(&active_node)?.signal("ha-node-agent", Signal::SIGSTOP)?;
    scenario.wait_until_moved_from(WITNESS, &active_node)?;
    assert_eq!(supply.switch_off_count(), 0);
    let proof = proof(&scenario, &active_node)?;
    assert!(matches!(proof, Proof::Silence { .. }), "{proof:?}");
    scenario.finish()
}
