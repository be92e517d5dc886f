//! Writes of the leader and of users to etcd, and reads of the stored values.

use super::*;
use ha_api_types::id::{ActionUid, Epoch};
use ha_api_types::reason::Reason;

impl World {
    pub(super) fn value<T: DeserializeOwned>(&self, key: &str) -> Option<T> {
        self.state
            .get(key)
            .entries
            .first()
            // A value of another version counts as absent here.
            .and_then(|entry| serde_json::from_slice(&entry.value).ok())
    }

    pub(super) fn write(&mut self, key: &str, value: &impl serde::Serialize) -> Revision {
        let guard = self
            .state
            .get(key)
            .entries
            .first()
            .map_or(Guard::Absent, |entry| Guard::Unchanged(entry.mod_revision));
        let transaction = Transaction::new().put(key, guard, serde_json::to_vec(value).expect("serializes"));
        self.state.commit(&transaction).applied().expect("applies")
    }

    pub(super) fn delete(&mut self, key: &str) {
        let guard = Guard::Unchanged(self.state.get(key).entries[0].mod_revision);
        self.state.commit(&Transaction::new().delete(key, guard)).applied().expect("applies");
    }

    pub(super) fn node_report(&self) -> NodeReport {
        self.value(&self.keys.node_report(&own_node())).expect("a node report")
    }

    pub(super) fn service_report(&self, name: &str) -> ServiceReport {
        self.value(&self.keys.service_report(&own_node(), &name.into())).expect("a service report")
    }

    pub(super) fn fence(&self) -> Fence {
        self.value(&self.keys.fence(&own_node())).unwrap_or_default()
    }

    pub(super) fn alive(&self) -> Option<Alive> {
        self.value(&self.keys.alive(&own_node()))
    }

    /// Opens an epoch for the stored request, as the leader does.
    pub(super) fn open_epoch(&mut self) {
        let request_entries = self.state.get(&self.keys.node_report(&own_node())).entries;
        let entry = request_entries.first().expect("a request");
        let report: NodeReport = serde_json::from_slice(&entry.value).expect("legible");
        let fence = Fence {
            epoch: self.fence().epoch + 1,
            machine_id: report.machine_id,
            boot_id: report.boot_id,
            request: Some(entry.mod_revision),
            state: FenceState::Open,
            ..Fence::default()
        };
        self.write(&self.keys.fence(&own_node()), &fence);
        self.deliver();
    }

    /// Closes the epoch, as the leader does.
    pub(super) fn close_epoch(&mut self) {
        let fence = self.fence();
        let closed_fence = Fence { epoch: fence.epoch + 1, state: FenceState::Fencing, ..fence };
        self.write(&self.keys.fence(&own_node()), &closed_fence);
    }

    /// Orders the node to answer again, or ends the order, as the leader does.
    pub(super) fn set_requires_probes(&mut self, requires_probes: bool) -> Revision {
        let ordered = Fence { requires_probes, ..self.fence() };
        self.write(&self.keys.fence(&own_node()), &ordered)
    }

    pub(super) fn create_resource(&mut self, name: &str) {
        self.create_resource_with(name, |_| {});
    }

    pub(super) fn create_resource_with(&mut self, name: &str, change: impl FnOnce(&mut ResourceSpec)) {
        let mut spec = ResourceSpec {
            driver: DriverSpec { simulated: Some(SimulatedDriver::default()), ..DriverSpec::default() },
            ..ResourceSpec::default()
        };
        change(&mut spec);
        let key = self.keys.spec(Kind::Resource, name);
        let stored: Option<Resource> = self.value(&key);
        let mut resource = Resource::new(name, spec);
        resource.metadata.uid = format!("uid-{name}").into();
        resource.metadata.generation = stored.map_or(1, |stored| stored.metadata.generation + 1);
        self.write(&key, &resource);
        self.deliver();
    }

    pub(super) fn definition(&self, name: &str) -> ServiceDefinition {
        ServiceDefinition::of(
            &self.value::<Resource>(&self.keys.spec(Kind::Resource, name)).expect("a resource"),
        )
    }

    /// Assigns the service as the leader does. Returns the action's uid.
    pub(super) fn assign(&mut self, name: &str, action: Action) -> ActionUid {
        self.assign_to(name, NODE, action)
    }

    pub(super) fn assign_to(&mut self, name: &str, node: &str, action: Action) -> ActionUid {
        self.actions += 1;
        let fence = self.fence();
        let action_uid = ActionUid::from(format!("7-{}", self.actions));
        let (epoch, boot_id) =
            if node == NODE { (fence.epoch, fence.boot_id) } else { (Epoch(1), "peer-boot".into()) };
        let assignment = Assignment {
            node: node.into(),
            epoch,
            boot_id,
            action_uid: action_uid.clone(),
            action,
            definition: self.definition(name),
            replacement: None,
            in_place: None,
            accepts_external_stop: false,
            source_end_revision: None,
        };
        self.write(&self.keys.assignment(&name.into()), &assignment);
        self.deliver();
        action_uid
    }

    pub(super) fn running_copies(&self) -> usize {
        self.copies.values().filter(|copy| copy.running).count()
    }

    pub(super) fn count_commands(&self, name: &str, command: &str) -> usize {
        self.executed
            .iter()
            .filter(|(service, command_ran)| service == name && command_ran.name() == command)
            .count()
    }

    pub(super) fn lease_of_alive(&self) -> LeaseId {
        self.state.get(&self.keys.alive(&own_node())).entries[0].lease
    }

    /// Registers another node, `n2`, under epoch 1.
    pub(super) fn register_peer(&mut self) {
        let fence = Fence {
            epoch: Epoch(1),
            boot_id: "peer-boot".into(),
            state: FenceState::Open,
            ..Fence::default()
        };
        let key = self.keys.fence(&"n2".into());
        self.write(&key, &fence);
    }

    /// Fences `n2`.
    pub(super) fn fence_peer(&mut self) {
        let fence = Fence {
            epoch: Epoch(2),
            boot_id: "peer-boot".into(),
            state: FenceState::Fenced,
            ..Fence::default()
        };
        let key = self.keys.fence(&"n2".into());
        self.write(&key, &fence);
    }

    /// Writes a service report of the agent of `n2`.
    pub(super) fn peer_reports(&mut self, name: &str, uid: &ActionUid, phase: Phase, reason: Reason) {
        let report = ServiceReport {
            uid: format!("uid-{name}").into(),
            action_uid: Some(uid.clone()),
            epoch: Epoch(1),
            boot_id: "peer-boot".into(),
            exclusive: true,
            phase,
            reason,
            ..ServiceReport::default()
        };
        let key = self.keys.service_report(&"n2".into(), &name.into());
        self.write(&key, &report);
    }

    /// Completes the delayed writes of the journal.
    pub(super) fn write_held_journals(&mut self) {
        self.hold_journal = false;
        for (id, journal) in std::mem::take(&mut self.held_journals) {
            self.journal = journal;
            self.input(Input::JournalWritten { id, result: Ok(()) });
        }
    }

    /// Answers the delayed reads with the values that are stored now.
    pub(super) fn answer_held_reads(&mut self) {
        self.hold_reads = false;
        for (id, keys) in std::mem::take(&mut self.held_reads) {
            let entries = keys.iter().flat_map(|key| self.state.get(key).entries).collect();
            let revision = self.state.revision();
            self.input(Input::Read { id, result: Ok((entries, revision)) });
        }
    }
}
