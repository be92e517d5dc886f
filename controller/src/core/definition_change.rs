//! Refusal of changes to a resource's identity or `exclusive` (FENCING, R6.7).

use ha_api_types::id::NodeName;
use ha_api_types::names;
use ha_api_types::resource::{Resource, ResourceStatus, ServiceDefinition, ServiceState};
use std::collections::BTreeSet;

/// Records, in addition to the status, that prevent a change of a Queued resource.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BlockingRecords {
    /// Node of the resource's assignment.
    pub assigned: Option<String>,
    /// Nodes that report the resource.
    pub reported: Vec<NodeName>,
    /// `true` if a tombstone of this name exists.
    pub has_tombstone: bool,
}

/// The field whose change is refused, and the cause.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RefusedChange {
    /// Field that must not change now.
    pub field: &'static str,
    /// The fact that prevents the change, and the command that removes it.
    pub message: String,
}

/// Returns `true` if both resources have the same identity, and guarantee 1 covers both or neither. Such a change is
/// never refused.
pub fn keeps_identity_and_exclusive(before: &Resource, after: &Resource) -> bool {
    ServiceDefinition::of(before).may_replace(&ServiceDefinition::of(after))
}

/// Returns why the change is refused; `None` if no copy may exist, so that any change is allowed.
///
/// The write must guard the status and the assignment on which this decision is based.
pub fn refusal(
    before: &Resource,
    after: &Resource,
    status: Option<&ResourceStatus>,
    blocking_records: &BlockingRecords,
) -> Option<RefusedChange> {
    if keeps_identity_and_exclusive(before, after) {
        return None;
    }
    let field = if before.spec.exclusive == after.spec.exclusive { "spec.driver" } else { "spec.exclusive" };
    let name = names::without_type(&before.metadata.name);
    let unseen = ResourceStatus::default();
    let status = status.filter(|status| status.uid == before.metadata.uid).unwrap_or(&unseen);
    let copies: BTreeSet<&str> = status.copies.iter().map(|copy| copy.node.as_str()).collect();
    let copies: Vec<&str> = copies.into_iter().collect();
    let refuse = |cause: String| {
        let subject = if field == "spec.driver" { "identity of the service" } else { "exclusive" };
        Some(RefusedChange {
            field,
            message: format!("{subject} cannot change while a copy may run: {cause}"),
        })
    };
    match status.state {
        ServiceState::Stopped | ServiceState::Disabled | ServiceState::Queued if !copies.is_empty() => {
            let first = copies.first().copied().unwrap_or_default();
            refuse(format!(
                "{} may still run a copy. Wait until each of these nodes is reachable again, or power it off and run \
                 \"hactl node confirm-fenced {first}\"",
                copies.join(", ")
            ))
        }
        ServiceState::Stopped | ServiceState::Disabled => None,
        ServiceState::Queued => {
            let mut blockers: Vec<String> = Vec::new();
            blockers.extend(blocking_records.assigned.iter().map(|node| format!("assigned to {node}")));
            if !blocking_records.reported.is_empty() {
                blockers.push(format!("reported by {}", blocking_records.reported.join(", ")));
            }
            if blocking_records.has_tombstone {
                blockers.push("a deleted resource of this name may still run".to_owned());
            }
            if blockers.is_empty() {
                return None;
            }
            refuse(format!("state Queued, {}. Run \"hactl stop {name}\" first", blockers.join(", ")))
        }
        state @ (ServiceState::RequestStart
        | ServiceState::Starting
        | ServiceState::Started
        | ServiceState::RequestStop
        | ServiceState::Stopping
        | ServiceState::Migrate
        | ServiceState::Relocate
        | ServiceState::Fence
        | ServiceState::Recovery
        | ServiceState::Freeze
        | ServiceState::Error
        | ServiceState::Ignored
        | ServiceState::Deleting) => {
            let on_node = status.node.as_ref().map_or(String::new(), |node| format!(" on {node}"));
            let first = if state == ServiceState::Error {
                format!("hactl set {name} state=Disabled")
            } else {
                format!("hactl stop {name}")
            };
            refuse(format!(
                "state {state:?}{on_node}. Run \"{first}\" first and wait for state Stopped or Disabled, or use \
                 \"hactl apply --stop-first\""
            ))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ha_api_types::resource::ServiceCopy;
    use serde_json::{Value, json};

    fn resource(driver: &Value, exclusive: bool) -> Resource {
        serde_json::from_value(json!({"apiVersion": "hactl.io/v1", "kind": "Resource",
            "metadata": {"name": "web", "uid": "u1"}, "spec": {"driver": driver, "exclusive": exclusive}}))
        .expect("a resource")
    }

    fn unit(name: &str) -> Resource {
        resource(&json!({"systemd": {"unit": name}}), true)
    }

    fn status(state: ServiceState, copies: &[&str]) -> ResourceStatus {
        let copies = copies.iter().map(|node| ServiceCopy { node: (*node).into(), ..ServiceCopy::default() });
        ResourceStatus { uid: "u1".into(), state, copies: copies.collect(), ..ResourceStatus::default() }
    }

    #[track_caller]
    fn check(
        after: &Resource,
        status: Option<&ResourceStatus>,
        blocking_records: &BlockingRecords,
        expected: Option<&str>,
    ) {
        let refusal = refusal(&unit("a"), after, status, blocking_records);
        match (refusal, expected) {
            (None, None) => {}
            (Some(refusal), Some(text)) => {
                assert!(format!("{}: {}", refusal.field, refusal.message).contains(text), "{refusal:?}");
            }
            (refusal, expected) => panic!("{refusal:?}, expected {expected:?}"),
        }
    }

    #[test]
    fn identity_is_immutable_while_copies_may_exist() {
        let no_records = BlockingRecords::default();
        let non_exclusive = resource(&json!({"systemd": {"unit": "a.service"}}), false);
        for state in ServiceState::ALL {
            let allowed =
                matches!(state, ServiceState::Stopped | ServiceState::Disabled | ServiceState::Queued);
            let expected = (!allowed).then_some("Run \"hactl ");
            check(&unit("b"), Some(&status(state, &[])), &no_records, expected);
            check(
                &non_exclusive,
                Some(&status(state, &[])),
                &no_records,
                (!allowed).then_some("spec.exclusive"),
            );
            // Another spelling of the same identity is allowed at any time.
            check(&unit("a.service"), Some(&status(state, &["n1"])), &no_records, None);
            check(&unit("b"), Some(&status(state, &["n1", "n2"])), &no_records, Some("cannot change"));
        }
        check(
            &unit("b"),
            Some(&status(ServiceState::Stopped, &["n1"])),
            &no_records,
            Some("hactl node confirm-fenced n1"),
        );
        check(
            &unit("b"),
            Some(&status(ServiceState::Error, &[])),
            &no_records,
            Some("hactl set web state=Disabled"),
        );
    }

    #[test]
    fn a_queued_resource_changes_only_without_blocking_records() {
        check(&unit("b"), None, &BlockingRecords::default(), None);
        let blocking_records = BlockingRecords { assigned: Some("n1".into()), ..BlockingRecords::default() };
        check(&unit("b"), None, &blocking_records, Some("assigned to n1"));
        let blocking_records = BlockingRecords { reported: vec!["n2".into()], ..BlockingRecords::default() };
        check(&unit("b"), None, &blocking_records, Some("reported by n2"));
        check(
            &unit("b"),
            None,
            &BlockingRecords { has_tombstone: true, ..BlockingRecords::default() },
            Some("deleted resource"),
        );
    }
}
