//! The role that a service's assignment gives to this node.

use super::AgentCore;
use super::service::Service;
use super::view::Stored;
use ha_api_types::id::{BootId, Epoch, NodeName, ResourceName, Revision};
use ha_api_types::record::{Action, Assignment, Phase};
use ha_api_types::resource::RequestedState;
use std::sync::Arc;

/// This node's role for a service.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Role {
    /// The assignment orders this node to act, under this epoch and boot.
    Act {
        /// The assignment; its node is this one.
        assignment: Stored<Arc<Assignment>>,
    },
    /// The assignment orders this node to receive the service from another node, under this epoch and boot.
    Target {
        /// The assignment; its node is the source.
        assignment: Stored<Arc<Assignment>>,
    },
    /// The assignment names this node under another epoch or boot. The leader will write a new one.
    Outdated,
    /// The assignment names another node.
    Elsewhere {
        /// The modification revision of the assignment.
        mod_revision: Revision,
    },
    /// The assignment was written by a newer version and cannot be read. This node leaves the service unchanged.
    Unreadable,
    /// No assignment exists.
    Unassigned,
}

impl AgentCore {
    /// Returns this node's current role for a service.
    pub(super) fn role(&self, name: &ResourceName) -> Role {
        let Some(stored) = self.view.assignments.get(name) else { return Role::Unassigned };
        let Some(assignment) = &stored.value else { return Role::Unreadable };
        let Some(registered) = self.registration() else { return Role::Outdated };
        let own_epoch_match = |node: &NodeName, epoch: Epoch, boot_id: &BootId| {
            (*node == self.config.node).then(|| epoch == registered.epoch && *boot_id == self.config.boot_id)
        };
        if let Some(current) = own_epoch_match(&assignment.node, assignment.epoch, &assignment.boot_id) {
            return if current { Role::Act { assignment: stored.clone() } } else { Role::Outdated };
        }
        match &assignment.action {
            Action::Migrate { target, target_epoch, target_boot_id } => {
                match own_epoch_match(target, *target_epoch, target_boot_id) {
                    Some(true) => Role::Target { assignment: stored.clone() },
                    Some(false) => Role::Outdated,
                    None => Role::Elsewhere { mod_revision: stored.mod_revision },
                }
            }
            Action::Start | Action::Stop { .. } | Action::Restart | Action::DoNothing => {
                Role::Elsewhere { mod_revision: stored.mod_revision }
            }
        }
    }

    /// Returns `true` if the service is Ignored and the leader has ended its assignment. Until then the leader relies on
    /// this node's guard, because the leader may not have read Ignored (FENCING, R7.18).
    pub(super) fn is_unmanaged(&self, name: &ResourceName) -> bool {
        self.is_ignored(name) && self.role(name) == Role::Unassigned
    }

    /// Returns `true` if nothing may be begun for the service: it is Ignored, and no hand-over is in progress, which ends
    /// first (FENCING 8).
    pub(super) fn is_ignored(&self, name: &ResourceName) -> bool {
        self.view.resources.value(name).is_some_and(|resource| resource.spec.state == RequestedState::Ignored)
            && !self.is_handing_over(name)
    }

    /// Returns `true` if this node has committed its side of a live migration but not its result.
    fn is_handing_over(&self, name: &ResourceName) -> bool {
        let (Role::Act { assignment } | Role::Target { assignment }) = self.role(name) else { return false };
        let (Some(assignment), Some(report)) = (assignment.value, self.view.reports.value(name)) else {
            return false;
        };
        let receives = AgentCore::migration_target(&assignment).map(|target| target == self.config.node);
        report.action_uid.as_ref() == Some(&assignment.action_uid)
            && match receives {
                None => false,
                Some(false) => report.phase == Phase::HandingOver,
                // A copy that the target cannot clear away may still be here, so the cutover has not ended.
                Some(true) => {
                    matches!(report.phase, Phase::Receiving | Phase::Starting | Phase::StopFailed)
                }
            }
    }

    /// Returns `true` if the assignment names another node.
    pub(super) fn is_assigned_elsewhere(&self, service: &Service) -> bool {
        matches!(self.role(service.name()), Role::Elsewhere { .. })
    }

    /// Returns `true` if guarantee 1 covers the copy here, or the copy that the assignment is about to start. Both
    /// copies are guarded.
    ///
    /// The spec does not count: the effective definition is that of the assignment (FENCING, R6.1).
    pub(super) fn is_exclusive(&self, service: &Service) -> bool {
        service.definition.exclusive
            || self
                .view
                .assignments
                .value(service.name())
                .is_some_and(|assignment| assignment.definition.exclusive)
    }

    /// Returns `true` if this node guards the copies of the service: they are exclusive, and the service is managed, or a
    /// command of this agent has not ended (R4.36).
    pub(super) fn is_guarded(&self, service: &Service) -> bool {
        let has_command = service.running_command.is_some() || !service.canceling.is_empty();
        self.is_exclusive(service) && (has_command || !self.is_unmanaged(service.name()))
    }

    pub(super) fn migration_target(assignment: &Assignment) -> Option<NodeName> {
        match &assignment.action {
            Action::Migrate { target, .. } => Some(target.clone()),
            Action::Start | Action::Stop { .. } | Action::Restart | Action::DoNothing => None,
        }
    }
}
