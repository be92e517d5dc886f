//! Refusal of changes to a resource's identity or `exclusive` (FENCING, R6.7).

use ha_api_types::id::NodeName;
use ha_api_types::names;
use ha_api_types::resource::{Resource, ResourceStatus, ServiceDefinition, ServiceState};
use std::collections::BTreeSet;

/// Records, in addition to the status, that prevent a change of a Queued resource.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Traces {
    /// Node of the resource's assignment.
    pub assigned: Option<String>,
    /// Nodes that report the resource.
    pub reported: Vec<NodeName>,
    /// `true` if a tombstone of this name exists.
    pub buried: bool,
}

/// A refused change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused {
    /// Field that must not change now.
    pub field: &'static str,
    /// The fact that prevents the change, and the command that removes it.
    pub message: String,
}

/// Returns `true` if both resources have the same identity, and guarantee 1 covers both or neither. Such a change is
/// never refused.
pub fn is_harmless(before: &Resource, after: &Resource) -> bool {
    ServiceDefinition::of(before).may_replace(&ServiceDefinition::of(after))
}

/// Returns why the change is refused; `None` if no copy may exist, so that any change is allowed.
///
/// The write must guard the status and the assignment on which this decision is based.
pub fn refused(
    before: &Resource,
    after: &Resource,
    status: Option<&ResourceStatus>,
    traces: &Traces,
) -> Option<Refused> {
    if is_harmless(before, after) {
        return None;
    }
    let field = if before.spec.exclusive == after.spec.exclusive { "spec.driver" } else { "spec.exclusive" };
    let name = names::bare(&before.metadata.name);
    let unseen = ResourceStatus::default();
    let status = status.filter(|status| status.uid == before.metadata.uid).unwrap_or(&unseen);
    let copies: BTreeSet<&str> = status.copies.iter().map(|copy| copy.node.as_str()).collect();
    let copies: Vec<&str> = copies.into_iter().collect();
    let refuse = |why: String| {
        let what = if field == "spec.driver" { "identity of the service" } else { "exclusive" };
        Some(Refused { field, message: format!("{what} cannot change while a copy may run: {why}") })
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
            let mut places: Vec<String> = Vec::new();
            places.extend(traces.assigned.iter().map(|node| format!("assigned to {node}")));
            if !traces.reported.is_empty() {
                places.push(format!("reported by {}", traces.reported.join(", ")));
            }
            if traces.buried {
                places.push("a deleted resource of this name may still run".to_owned());
            }
            if places.is_empty() {
                return None;
            }
            refuse(format!("state Queued, {}. Run \"hactl stop {name}\" first", places.join(", ")))
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
            let place = status.node.as_ref().map_or(String::new(), |node| format!(" on {node}"));
            let first = if state == ServiceState::Error {
                format!("hactl set {name} state=Disabled")
            } else {
                format!("hactl stop {name}")
            };
            refuse(format!(
                "state {state:?}{place}. Run \"{first}\" first and wait for state Stopped or Disabled, or use \
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
    fn check(after: &Resource, status: Option<&ResourceStatus>, traces: &Traces, expected: Option<&str>) {
        let found = refused(&unit("a"), after, status, traces);
        match (found, expected) {
            (None, None) => {}
            (Some(found), Some(words)) => {
                assert!(format!("{}: {}", found.field, found.message).contains(words), "{found:?}");
            }
            (found, expected) => panic!("{found:?}, expected {expected:?}"),
        }
    }

    #[test]
    fn identity_and_exclusive_are_fixed_while_a_copy_may_exist() {
        let none = Traces::default();
        let loose = resource(&json!({"systemd": {"unit": "a.service"}}), false);
        for state in ServiceState::ALL {
            let allowed =
                matches!(state, ServiceState::Stopped | ServiceState::Disabled | ServiceState::Queued);
            let expected = (!allowed).then_some("Run \"hactl ");
            check(&unit("b"), Some(&status(state, &[])), &none, expected);
            check(&loose, Some(&status(state, &[])), &none, (!allowed).then_some("spec.exclusive"));
            // The same identity in other words is allowed at any time.
            check(&unit("a.service"), Some(&status(state, &["n1"])), &none, None);
            check(&unit("b"), Some(&status(state, &["n1", "n2"])), &none, Some("cannot change"));
        }
        check(
            &unit("b"),
            Some(&status(ServiceState::Stopped, &["n1"])),
            &none,
            Some("hactl node confirm-fenced n1"),
        );
        check(
            &unit("b"),
            Some(&status(ServiceState::Error, &[])),
            &none,
            Some("hactl set web state=Disabled"),
        );
    }

    #[test]
    fn a_queued_resource_changes_only_where_nothing_tells_of_it() {
        check(&unit("b"), None, &Traces::default(), None);
        let traces = Traces { assigned: Some("n1".into()), ..Traces::default() };
        check(&unit("b"), None, &traces, Some("assigned to n1"));
        let traces = Traces { reported: vec!["n2".into()], ..Traces::default() };
        check(&unit("b"), None, &traces, Some("reported by n2"));
        check(&unit("b"), None, &Traces { buried: true, ..Traces::default() }, Some("deleted resource"));
    }
}
