//! What a service's assignment makes of this node.

use super::AgentCore;
use super::service::Service;
use super::view::Stored;
use ha_api_types::record::{Action, Assignment, Phase};
use ha_api_types::resource::RequestedState;

/// What this node is for a service.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Role {
    /// Told to act, under this epoch and boot.
    Act {
        /// The assignment.
        assignment: Stored<Assignment>,
    },
    /// Told to receive it from another node, under this epoch and boot.
    Target {
        /// The assignment; its node is the source.
        assignment: Stored<Assignment>,
    },
    /// Told under an epoch or boot that is not the present one: a fresh assignment will come.
    Outdated,
    /// Another node is told to act.
    Elsewhere {
        /// When it was told.
        modified: i64,
    },
    /// The assignment was written by a newer version: nothing is done.
    Illegible,
    /// Nobody is told anything.
    Unassigned,
}

impl AgentCore {
    /// What this node is for a service now.
    pub(super) fn role(&self, name: &str) -> Role {
        let Some(stored) = self.view.assignments.get(name) else { return Role::Unassigned };
        let Some(assignment) = &stored.value else { return Role::Illegible };
        let Some(registered) = self.registered() else { return Role::Outdated };
        let own = |node: &str, epoch: u64, boot_id: &str| {
            (node == self.config.node).then(|| epoch == registered.epoch && boot_id == self.config.boot_id)
        };
        if let Some(current) = own(&assignment.node, assignment.epoch, &assignment.boot_id) {
            return if current { Role::Act { assignment: stored.clone() } } else { Role::Outdated };
        }
        match &assignment.action {
            Action::Migrate { target, target_epoch, target_boot_id } => {
                match own(target, *target_epoch, target_boot_id) {
                    Some(true) => Role::Target { assignment: stored.clone() },
                    Some(false) => Role::Outdated,
                    None => Role::Elsewhere { modified: stored.modified },
                }
            }
            Action::Start | Action::Stop { .. } | Action::Restart | Action::Leave => {
                Role::Elsewhere { modified: stored.modified }
            }
        }
    }

    /// Whether the service is not to be touched: it is Ignored, and no hand-over is under way, which ends first (FENCING 8).
    pub(super) fn is_ignored(&self, name: &str) -> bool {
        self.view.resources.value(name).is_some_and(|resource| resource.spec.state == RequestedState::Ignored)
            && !self.is_handing_over(name)
    }

    /// Whether this node has committed its side of a live migration and not yet what came of it.
    fn is_handing_over(&self, name: &str) -> bool {
        let (Role::Act { assignment } | Role::Target { assignment }) = self.role(name) else { return false };
        let (Some(assignment), Some(report)) = (assignment.value, self.view.reports.value(name)) else {
            return false;
        };
        let receives = AgentCore::migration_target(&assignment).map(|target| target == self.config.node);
        report.action_uid.as_ref() == Some(&assignment.action_uid)
            && match receives {
                None => false,
                Some(false) => report.phase == Phase::HandingOver,
                // What it cannot clear away may still be here, and the hand-over has not ended.
                Some(true) => {
                    matches!(report.phase, Phase::Receiving | Phase::Starting | Phase::StopFailed)
                }
            }
    }

    /// Whether another node is told to act for the service.
    pub(super) fn acts_elsewhere(&self, service: &Service) -> bool {
        matches!(self.role(service.name()), Role::Elsewhere { .. })
    }

    /// Whether promise 1 covers the copy that is here, or the one that the assignment is about to start: both are guarded.
    ///
    /// What the spec says does not count: the definition in force is that of the assignment (FENCING, R6.1).
    pub(super) fn is_exclusive(&self, service: &Service) -> bool {
        service.definition.exclusive
            || self
                .view
                .assignments
                .value(service.name())
                .is_some_and(|assignment| assignment.definition.exclusive)
    }

    /// The receiving node of a migration.
    pub(super) fn migration_target(assignment: &Assignment) -> Option<String> {
        match &assignment.action {
            Action::Migrate { target, .. } => Some(target.clone()),
            Action::Start | Action::Stop { .. } | Action::Restart | Action::Leave => None,
        }
    }
}
