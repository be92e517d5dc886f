//! Rules of every write of a fence by a controller, which the test environment checks after each commit.

use ha_api_types::id::{NodeName, Revision};
use ha_api_types::keys::Keys;
use ha_api_types::record::{Fence, FenceState};
use ha_api_types::time::Timestamp;
use ha_store::memory_state::MemoryState;
use ha_store::{Entry, Transaction};

/// The fences of some nodes before a commit.
pub(super) struct FencesBefore(Vec<(NodeName, Option<Entry>)>);

impl FencesBefore {
    /// Reads the fences that a transaction writes.
    pub(super) fn read<'a>(
        nodes: impl Iterator<Item = &'a NodeName>,
        state: &MemoryState,
        keys: &Keys,
        transaction: &Transaction,
    ) -> FencesBefore {
        let written = nodes.filter(|node| transaction.writes_key(&keys.fence(node)));
        FencesBefore(written.map(|node| (node.clone(), state.get(&keys.fence(node)).entries.pop())).collect())
    }

    /// Checks each of these fences after the transaction was applied.
    pub(super) fn check(&self, state: &MemoryState, keys: &Keys, transaction: &Transaction, now: &Timestamp) {
        for (node, before) in &self.0 {
            let Some(entry) = state.get(&keys.fence(node)).entries.pop() else { continue };
            let after = parse(&entry).unwrap();
            match before {
                None => check_opened(&after, now),
                // Only a confirmation replaces a fence that cannot be read.
                Some(before) => match parse(before) {
                    None => assert_eq!(after.state, FenceState::Fenced, "{node}: {after:?}"),
                    Some(fence) => check_change(&fence, before.mod_revision, &after, now),
                },
            }
            let is_close = before.as_ref().and_then(parse).is_some_and(|fence| fence.epoch < after.epoch);
            if is_close {
                for key in [keys.node_report(node), keys.alive(node)] {
                    assert!(transaction.guards().contains_key(&key), "the close of {node} must guard {key}");
                }
            }
        }
    }
}

fn parse(entry: &Entry) -> Option<Fence> {
    serde_json::from_slice(&entry.value).ok()
}

fn check_change(before: &Fence, before_revision: Revision, after: &Fence, now: &Timestamp) {
    if after.state == FenceState::Open && before.state != FenceState::Open {
        assert_eq!(after.epoch, before.epoch, "a closed epoch is opened: {after:?}");
        check_opened(after, now);
        return;
    }
    let machine = |fence: &Fence| (fence.boot_id.clone(), fence.machine_id.clone());
    assert_eq!(machine(after), machine(before), "only an admission changes the machine");
    if before.state == FenceState::Open && after.state != FenceState::Open {
        check_closed(before, after, now);
        return;
    }
    assert_eq!(after.epoch, before.epoch, "only a close changes the epoch");
    // A device that ends makes earlier registrations invalid.
    assert!(
        after.request == before.request || (before.device.is_some() && after.request > before.request),
        "{before:?} became {after:?}"
    );
    let keeps_proof =
        (&after.proof, after.state, after.off_revision) == (&before.proof, before.state, before.off_revision);
    let expected_revision =
        before.proof.is_some().then(|| before.proven_at(before_revision)).filter(|_| keeps_proof);
    assert_eq!(after.proof_revision, expected_revision, "{before:?} became {after:?}");
}

/// A registration is admitted: nothing of the closed epoch remains.
fn check_opened(after: &Fence, now: &Timestamp) {
    let expected = Fence {
        epoch: after.epoch,
        machine_id: after.machine_id.clone(),
        product_id: after.product_id.clone(),
        boot_id: after.boot_id.clone(),
        request: after.request,
        state: FenceState::Open,
        refuted_devices: after.refuted_devices.clone(),
        requires_probes: after.requires_probes,
        at: now.clone(),
        ..Fence::default()
    };
    assert_eq!(*after, expected);
    assert!(after.request.is_some(), "the registration is unknown: {after:?}");
}

/// An open epoch is closed: nothing of an earlier close remains, and the registration stays.
fn check_closed(before: &Fence, after: &Fence, now: &Timestamp) {
    let expected = Fence {
        epoch: before.epoch + 1,
        product_id: before.product_id.clone(),
        machine_id: before.machine_id.clone(),
        boot_id: before.boot_id.clone(),
        request: before.request,
        refuted_devices: before.refuted_devices.clone(),
        requires_probes: before.requires_probes,
        // These fields change with the close, so they are not compared.
        state: after.state,
        proof: after.proof.clone(),
        on_missed_heartbeats: after.on_missed_heartbeats,
        armed_fencing_delay_ms: after.armed_fencing_delay_ms,
        hold: after.hold,
        at: now.clone(),
        ..Fence::default()
    };
    assert_eq!(*after, expected);
    assert_eq!(after.proof.is_some(), after.state != FenceState::Fencing, "{after:?}");
}
