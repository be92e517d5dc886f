//! Tests of replacements of the secondary of a running service: refusals, outcomes, and the secondary that is in use
//! until the end of a replacement.

use super::agent::{Agent, Read, read};
use super::services::{online_cluster, operation};
use super::test_cluster::TestCluster;
use ha_api_types::driver::{DriverSpec, ExecDriver, SimulatedDriver};
use ha_api_types::id::NodeName;
use ha_api_types::keys::Keys;
use ha_api_types::kind::Kind;
use ha_api_types::meta::ConditionStatus;
use ha_api_types::node::NodeSpec;
use ha_api_types::operation::{OperationAction, OperationPhase};
use ha_api_types::quantity::{Amounts, Quantity};
use ha_api_types::reason::Reason;
use ha_api_types::record::{
    Assignment, Fence, FenceState, Phase, ReplacementPhase, ReplacementReport, ServiceReport,
};
use ha_api_types::resource::{
    RequestedState, Resource, ResourceSpec, ServiceState, StorageMode, StorageSpec,
};
use ha_store::memory_state::MemoryState;
use ha_store::{Guard, Transaction, Write};

/// Outcome of replacements that a scripted agent is ordered to make.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum ReplacementOutcome {
    #[default]
    Succeeds,
    Fails,
    /// Replacements do not end.
    Hangs,
}

impl Agent {
    /// Returns the agent's report on the replacement that an assignment requests.
    pub(super) fn replacement_report(
        &self,
        state: &MemoryState,
        keys: &Keys,
        assignment: &Assignment,
    ) -> Option<ReplacementReport> {
        let requested = assignment.replacement.as_ref()?;
        let report: Read<ServiceReport> =
            read(state, &keys.service_report(&self.name, &assignment.definition.name))?;
        report.value.replacement.filter(|report| report.uid == requested.uid)
    }

    /// Advances a replacement by one step. Returns `true` if a replacement is in progress, which ends before any other
    /// action.
    pub(super) fn replace(
        &mut self,
        state: &mut MemoryState,
        keys: &Keys,
        fence: &Read<Fence>,
        assignment: &Assignment,
    ) -> bool {
        let Some(requested) = &assignment.replacement else { return false };
        let name = &assignment.definition.name;
        let stored: Option<Read<ServiceReport>> = read(state, &keys.service_report(&self.name, name));
        let Some(report) =
            stored.map(|stored| stored.value).filter(|report| report.epoch == fence.value.epoch)
        else {
            return false;
        };
        let phase = self.replacement_report(state, keys, assignment).map(|report| report.phase);
        let answer = match (phase, requested.is_canceled, self.faults.replacement_outcome) {
            (Some(ReplacementPhase::Done | ReplacementPhase::Failed), _, _) => return false,
            (Some(ReplacementPhase::Begun), false, ReplacementOutcome::Hangs) => return true,
            (_, true, _) => (ReplacementPhase::Failed, Reason::Interrupted, "canceled by the leader"),
            (None, false, _) if report.phase != Phase::Running => return false,
            (None, false, _) => (ReplacementPhase::Begun, Reason::ReplacingSecondary, ""),
            (Some(ReplacementPhase::Begun), false, ReplacementOutcome::Fails) => {
                (ReplacementPhase::Failed, Reason::ReplaceFailed, "no room on the new one")
            }
            (Some(ReplacementPhase::Begun), false, ReplacementOutcome::Succeeds) => {
                (ReplacementPhase::Done, Reason::SecondaryReplaced, "")
            }
        };
        let (phase, reason, message) = answer;
        let report_of_replacement =
            ReplacementReport { uid: requested.uid.clone(), phase, reason, message: message.to_owned() };
        self.commit_report(
            state,
            keys,
            fence,
            name,
            &ServiceReport { replacement: Some(report_of_replacement), ..report },
        );
        true
    }
}

/// Returns a cluster in which `web` runs on node1 and has its data there and on node2; all nodes reach its pool.
fn replicated() -> TestCluster {
    let mut cluster = online_cluster(&["node1", "node2", "node3", "node4"]);
    for node in ["node1", "node2", "node3", "node4"] {
        cluster.edit::<NodeSpec>(node, |node| node.spec.storage_pools = vec!["disks".to_owned()]);
    }
    cluster.agent("node1").running.insert("web".into());
    let driver = DriverSpec { simulated: Some(SimulatedDriver::default()), ..DriverSpec::default() };
    let storage = StorageSpec {
        pool: "disks".to_owned(),
        mode: StorageMode::Replicated,
        secondary: Some("node2".into()),
    };
    cluster.apply(Resource::new(
        "web",
        ResourceSpec { driver, storage: Some(storage), ..ResourceSpec::default() },
    ));
    cluster.run_until(20_000, "adopted", |cluster| {
        cluster.is_in_state("web", ServiceState::Started) && cluster.status("web").running
    });
    assert_eq!(
        (cluster.running_nodes("web"), secondary(&cluster)),
        (vec!["node1".into()], Some("node2".into()))
    );
    cluster
}

fn secondary(cluster: &TestCluster) -> Option<NodeName> {
    cluster.status("web").secondary().cloned()
}

fn request_replacement(cluster: &mut TestCluster, name: &str, node: &str) {
    cluster.create_operation(name, operation(OperationAction::ReplaceSecondary, Some(node)));
}

/// Returns a cluster with a replacement that its node has begun and that does not end.
fn replacing() -> TestCluster {
    let mut cluster = replicated();
    cluster.agent("node1").faults.replacement_outcome = ReplacementOutcome::Hangs;
    request_replacement(&mut cluster, "replace", "node3");
    cluster.run_until(2_000, "begun", |cluster| {
        cluster.operation("replace").message == "Node node1 is making node3 the secondary in place of node2"
    });
    let operation = cluster.operation("replace");
    assert_eq!((operation.phase, operation.reason), (OperationPhase::Running, Reason::ReplacingSecondary));
    assert_eq!(secondary(&cluster), Some("node2".into()), "the old secondary is still in use");
    cluster
}

#[test]
fn new_secondary_is_used_until_redeclared() {
    let mut cluster = replicated();
    let before = cluster.assignment("web").unwrap();
    request_replacement(&mut cluster, "replace", "node3");
    cluster.run_until(3_000, "replaced", |cluster| {
        cluster.operation("replace").phase == OperationPhase::Succeeded
    });
    cluster.run(1_000);
    assert_eq!(cluster.operation("replace").message, "node3 is the secondary in place of node2");
    assert_eq!((secondary(&cluster), cluster.status("web").replacement), (Some("node3".into()), None));
    assert_eq!(cluster.assignment("web"), Some(before), "the service keeps running under its permit");
    // The service fails over to the new secondary, and the previous primary has the other copy.
    cluster.agent("node1").power_off();
    cluster.run_until(30_000, "recovered", |cluster| cluster.running_nodes("web") == ["node3"]);
    cluster.run_until(5_000, "started", |cluster| cluster.is_in_state("web", ServiceState::Started));
    assert_eq!(secondary(&cluster), Some("node1".into()));
    request_replacement(&mut cluster, "again", "node4");
    cluster.run_until(3_000, "replaced", |cluster| {
        cluster.operation("again").phase == OperationPhase::Succeeded
    });
    assert_eq!(secondary(&cluster), Some("node4".into()));
    cluster.edit::<ResourceSpec>("web", |resource| {
        resource.spec.storage.as_mut().unwrap().secondary = Some("node1".into());
    });
    cluster.run(1_000);
    assert_eq!(secondary(&cluster), Some("node1".into()), "a new declaration has precedence");
}

#[test]
fn failed_replacement_hook_keeps_old_secondary() {
    let mut cluster = replicated();
    cluster.agent("node1").faults.replacement_outcome = ReplacementOutcome::Fails;
    request_replacement(&mut cluster, "replace", "node3");
    cluster
        .run_until(3_000, "failed", |cluster| cluster.operation("replace").phase == OperationPhase::Failed);
    let operation = cluster.operation("replace");
    assert_eq!(
        (operation.reason, operation.message.as_str()),
        (Reason::ReplaceFailed, "no room on the new one; node2 remains the secondary")
    );
    assert_eq!(
        (secondary(&cluster), cluster.running_nodes("web")),
        (Some("node2".into()), vec!["node1".into()])
    );
    assert!(cluster.events.iter().any(|event| event.reason == Reason::ReplaceFailed));
}

#[test]
fn node_loss_during_replacement_uses_old_secondary() {
    let mut cluster = replacing();
    cluster.agent("node1").power_off();
    cluster.run_until(30_000, "recovered", |cluster| cluster.running_nodes("web") == ["node2"]);
    let operation = cluster.operation("replace");
    assert_eq!(
        (operation.phase, operation.reason, operation.message.as_str()),
        (
            OperationPhase::Failed,
            Reason::NodeFailed,
            "Node node1 failed during the replacement; node2 remains the secondary"
        )
    );
}

#[test]
fn node_loss_after_replacement_uses_new_secondary() {
    let mut cluster = replacing();
    // The leader is down when the node reports the outcome, and then the node dies.
    cluster.controllers[0].is_running = false;
    cluster.agent("node1").faults.replacement_outcome = ReplacementOutcome::Succeeds;
    cluster.run(1_000);
    cluster.agent("node1").power_off();
    cluster.add_controller("c1", "1");
    cluster.run_until(60_000, "recovered", |cluster| cluster.running_nodes("web") == ["node3"]);
    cluster.run(1_000);
    assert_eq!(cluster.operation("replace").phase, OperationPhase::Succeeded);
}

#[test]
fn replacement_report_is_recorded_before_readmission() {
    for lost_count in 0..3 {
        let mut cluster = replacing();
        // The leader closes the epoch and dies before it receives the success of the replacement.
        cluster.controllers[0].is_running = false;
        cluster.agent("node1").faults.replacement_outcome = ReplacementOutcome::Succeeds;
        cluster.run(1_000);
        cluster.agent("node1").power_off();
        let (key, fence) = (cluster.keys.fence(&"node1".into()), cluster.fence("node1"));
        let closed = Fence { epoch: fence.epoch + 1, state: FenceState::Fenced, ..fence };
        let guard = Guard::Unchanged(cluster.state.get(&key).entries[0].mod_revision);
        let close = Transaction::new().put(key, guard, serde_json::to_vec(&closed).unwrap());
        cluster.state.commit(&close).applied().unwrap();
        cluster.agent("node1").boot_again();
        cluster.run(10_000);
        // The next leader's first writes about the service are lost.
        let key = cluster.keys.status(Kind::Resource, "web");
        cluster.lost_commits_by_key = vec![key.clone(); lost_count];
        cluster.add_controller("c1", "1");
        cluster.run_until(60_000, "runs", |cluster| !cluster.running_nodes("web").is_empty());
        cluster.run(5_000);
        assert_eq!(cluster.operation("replace").phase, OperationPhase::Succeeded, "{lost_count} writes lost");
        assert_eq!(cluster.status("web").replicas, ["node1", "node3"], "{lost_count} writes lost");
        let applied = |key: &str, word: &str| {
            cluster.controllers[1].commits.iter().position(|(_, transaction, outcome)| {
                let written = transaction.writes().get(key).is_some_and(|write| match write {
                    Write::Put { value, .. } => String::from_utf8_lossy(value).contains(word),
                    Write::Delete => false,
                });
                outcome.applied().is_some() && written
            })
        };
        let recorded = applied(&key, r#""replicas":["node1","node3"]"#).unwrap();
        let admitted = applied(&cluster.keys.fence(&"node1".into()), r#""state":"Open""#).unwrap();
        assert!(recorded < admitted, "{lost_count} writes lost: from then on its agent says other things");
    }
}

#[test]
fn replacement_blocks_moves_and_stop_cancels_it() {
    let mut cluster = replacing();
    cluster.create_operation("move", operation(OperationAction::Migrate, Some("node2")));
    cluster.edit::<NodeSpec>("node1", |node| node.spec.maintenance = true);
    cluster.run(5_000);
    assert_eq!(cluster.operation("move").phase, OperationPhase::Pending);
    assert_eq!(cluster.running_nodes("web"), ["node1"]);
    let ready =
        cluster.status("web").conditions.into_iter().find(|condition| condition.kind == "Ready").unwrap();
    assert_eq!((ready.status, ready.reason), (ConditionStatus::True, Reason::ReplacingSecondary));
    cluster.set_requested_state("web", RequestedState::Stopped);
    cluster.run_until(5_000, "stopped", |cluster| cluster.is_in_state("web", ServiceState::Stopped));
    let operation = cluster.operation("replace");
    assert_eq!((operation.phase, operation.reason), (OperationPhase::Failed, Reason::Interrupted));
    assert_eq!(cluster.status("web").replacement, None);
}

#[test]
fn a_replacement_is_canceled_with_its_operation_or_service() {
    for end_cause in ["operation", "ignored", "deleted"] {
        let mut cluster = replacing();
        match end_cause {
            "operation" => {
                let key = cluster.keys.spec(Kind::Operation, "replace");
                let revision = cluster.state.get(&key).entries[0].mod_revision;
                let guard = Guard::Unchanged(revision);
                cluster.state.commit(&Transaction::new().delete(key, guard)).applied().unwrap();
            }
            "ignored" => cluster.set_requested_state("web", RequestedState::Ignored),
            _ => cluster.delete("web"),
        }
        cluster.run_until(5_000, end_cause, |cluster| cluster.status("web").replacement.is_none());
        cluster.run(2_000);
        assert_eq!(cluster.running_nodes("web"), ["node1"], "the service keeps running");
        let is_canceled = cluster
            .events
            .iter()
            .any(|event| event.message.contains("canceled by the leader; node2 remains"));
        assert!(is_canceled, "{end_cause}: its node has answered for it");
        let state = match end_cause {
            "operation" => Some(ServiceState::Started),
            "ignored" => Some(ServiceState::Ignored),
            _ => None,
        };
        let stored = cluster
            .read::<ha_api_types::resource::ResourceStatus>(&cluster.keys.status(Kind::Resource, "web"));
        assert_eq!(stored.map(|status| status.state), state, "{end_cause}");
    }
}

#[test]
fn another_leader_continues_a_replacement() {
    let mut cluster = replacing();
    cluster.controllers[0].is_running = false;
    cluster.add_controller("c1", "1");
    cluster.run(30_000);
    assert_eq!(cluster.operation("replace").phase, OperationPhase::Running);
    cluster.agent("node1").faults.replacement_outcome = ReplacementOutcome::Succeeds;
    cluster.run_until(5_000, "replaced", |cluster| {
        cluster.operation("replace").phase == OperationPhase::Succeeded
    });
    assert_eq!(secondary(&cluster), Some("node3".into()));
}

#[test]
fn concurrent_replacements_per_node_are_limited() {
    let mut cluster = replacing();
    for name in ["two", "three"] {
        cluster.agent("node1").running.insert(name.into());
        let mut resource: Resource = cluster.read(&cluster.keys.spec(Kind::Resource, "web")).unwrap();
        resource.metadata.name = name.to_owned();
        resource.metadata.uid = String::new().into();
        cluster.apply(Resource::new(name, resource.spec));
        cluster.run_until(20_000, "started", |cluster| cluster.is_in_state(name, ServiceState::Started));
        let mut spec = operation(OperationAction::ReplaceSecondary, Some("node4"));
        spec.resource = Some(name.to_owned());
        cluster.create_operation(name, spec);
        cluster.run(1_000);
    }
    assert_eq!(cluster.operation("two").phase, OperationPhase::Running);
    let waiting = cluster.operation("three");
    assert_eq!(waiting.phase, OperationPhase::Pending);
    assert!(
        waiting.message.contains(
            "2 live migrations or replacements in progress on node1, limit reached (maxMigrations)"
        ),
        "{}",
        waiting.message
    );
}

/// Requests a replacement, and compares the reason and message of its refusal.
fn check(node: &str, change: impl FnOnce(&mut TestCluster), reason: Reason, message: &str) {
    let mut cluster = replicated();
    change(&mut cluster);
    cluster.run(2_000);
    request_replacement(&mut cluster, "replace", node);
    cluster.run(500);
    let status = cluster.operation("replace");
    assert_eq!(
        (status.phase, status.reason, status.message.as_str()),
        (OperationPhase::Refused, reason, message)
    );
}

#[test]
fn a_replacement_is_refused_with_its_reason() {
    let edit = |change: fn(&mut ResourceSpec)| {
        move |cluster: &mut TestCluster| {
            cluster.edit::<ResourceSpec>("web", |resource| change(&mut resource.spec));
        }
    };
    let node3 = |change: fn(&mut NodeSpec)| {
        move |cluster: &mut TestCluster| cluster.edit::<NodeSpec>("node3", |node| change(&mut node.spec))
    };
    check("node9", |_| {}, Reason::NotFound, "Node node9 not found");
    check("node2", |_| {}, Reason::CurrentNode, "node2 is already the secondary of web");
    check("node1", |_| {}, Reason::Refused, "web runs on node1: the secondary must be another node");
    check(
        "node3",
        edit(|spec| spec.storage = None),
        Reason::Refused,
        "web has no secondary: spec.storage.mode is not Replicated",
    );
    let simulated = |spec: &mut ResourceSpec| {
        spec.driver.simulated =
            Some(SimulatedDriver { replaces_secondary: false, ..SimulatedDriver::default() });
    };
    check(
        "node3",
        edit(simulated),
        Reason::Refused,
        "Driver of web cannot replace the secondary: add a replaceSecondary command (driver exec)",
    );
    check(
        "node3",
        edit(|spec| {
            spec.driver = DriverSpec {
                exec: Some(ExecDriver {
                    command: vec!["web".to_owned()],
                    replace_secondary: vec!["copy".to_owned()],
                    ..ExecDriver::default()
                }),
                ..DriverSpec::default()
            };
        }),
        Reason::Refused,
        "web was started by a different driver: run \"hactl restart web\" first",
    );
    check(
        "node3",
        edit(|spec| spec.exclusive = false),
        Reason::Refused,
        "web has exclusive: false, so hactl does not move its data",
    );
    check(
        "node3",
        edit(|spec| spec.state = RequestedState::Stopped),
        Reason::Refused,
        "web is in state Stopped: the secondary can be replaced only in state Started",
    );
    check(
        "node3",
        |cluster| {
            cluster.agent("node3").power_off();
            cluster.run(20_000);
        },
        Reason::NodeNotOnline,
        "node3 is not eligible as the secondary: node is not online: Registration was revoked while the node ran no exclusive services",
    );
    check(
        "node3",
        node3(|node| node.maintenance = true),
        Reason::NodeInMaintenance,
        "node3 is not eligible as the secondary: node is in maintenance",
    );
    check(
        "node3",
        node3(|node| node.storage_pools.clear()),
        Reason::StorageUnreachable,
        "node3 is not eligible as the secondary: storage pool disks is not connected to the node",
    );
    let disk = |gibibytes: i128| Amounts {
        disk: Some(Quantity::from_milli((gibibytes * 1000) << 30)),
        ..Amounts::default()
    };
    check(
        "node3",
        move |cluster| {
            cluster.edit::<ResourceSpec>("web", |resource| resource.spec.requests = disk(20));
            cluster.edit::<NodeSpec>("node3", |node| node.spec.capacity = Some(disk(10)));
        },
        Reason::NotEnoughDisk,
        "node3 is not eligible as the secondary: not enough disk: 20Gi requested, 10Gi of 10Gi free",
    );
}
