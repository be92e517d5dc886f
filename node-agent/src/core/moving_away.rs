//! Shutdown under the policy Migrate or in maintenance: the machine waits for its services to move away.

use super::role::Role;
use super::service::Service;
use super::{AgentCore, Level};
use ha_api_types::cluster::ShutdownPolicy;
use ha_api_types::operation::OperationAction;
use ha_api_types::record::{Action, Mode};
use ha_api_types::time::MonotonicTime;

impl AgentCore {
    /// Returns `true` if this node is in maintenance, which takes precedence over the shutdown policy.
    pub(super) fn is_in_maintenance(&self) -> bool {
        self.view.nodes.value(&self.config.node).is_some_and(|node| node.spec.maintenance)
    }

    /// Returns `true` if the shutdown waits for services to move away. They keep running; only moves end them here.
    pub(super) fn awaits_moves(&self) -> bool {
        self.is_awaiting_moves
    }

    /// Recomputes whether the shutdown waits. Call it while every service is in the map.
    pub(super) fn update_awaiting_moves(&mut self) {
        self.is_awaiting_moves =
            self.may_await_moves() && self.services.values().any(|service| self.is_to_move(service));
    }

    /// Returns `true` if no new action is begun for services: the agent exits, or the cluster is disarmed.
    pub(super) fn is_quiescing(&self) -> bool {
        (self.is_ending() && !self.awaits_moves()) || self.is_disarmed()
    }

    /// Returns the time limit of the wait; `None` if it is unlimited.
    pub(super) fn moves_deadline(&self) -> Option<MonotonicTime> {
        let at = self.shutdown_at?;
        let duration_ms = self.desired_timings().shutdown_timeout_ms;
        (duration_ms > 0).then(|| at + duration_ms)
    }

    /// Ends the wait permanently: by an operator's command, at the time limit, or after the last move.
    pub(super) fn advance_moves(&mut self) {
        if self.shutdown_revision.is_none() {
            self.shutdown_revision = self.view.node_reports.get(&self.config.node).and_then(|stored| {
                let report = stored.value.as_ref()?;
                let is_of_this_instance = report.instance == self.config.instance;
                (is_of_this_instance && matches!(report.mode, Mode::Shutdown(_)))
                    .then_some(stored.mod_revision)
            });
        }
        self.update_awaiting_moves();
        if self.has_stopped_awaiting_moves || self.awaits_moves() {
            return;
        }
        self.has_stopped_awaiting_moves = true;
        self.are_all_dirty = true;
        self.changed = true;
        let remaining_services = self.services.values().filter(|service| self.may_have_copy(service)).count();
        if remaining_services > 0 {
            let text = format!(
                "shutdown continues: stopping the services that are still on this node ({remaining_services})"
            );
            self.log(Level::Info, text);
        }
    }

    fn may_await_moves(&self) -> bool {
        if !self.is_leaving() || self.has_stopped_awaiting_moves {
            return false;
        }
        let policy = self.view.cluster().map(|cluster| cluster.spec.shutdown_policy).unwrap_or_default();
        let is_moved = self.is_in_maintenance()
            || match policy {
                ShutdownPolicy::Migrate => true,
                ShutdownPolicy::Conditional | ShutdownPolicy::Freeze | ShutdownPolicy::Failover => false,
            };
        is_moved
            && !self.is_disarmed()
            && self.moves_deadline().is_none_or(|deadline| self.last_input_at < deadline)
            && !self.is_continue_ordered()
    }

    /// Returns `true` if a service is here and the leader can move it. A service that must be left unchanged does not
    /// count.
    fn is_to_move(&self, service: &Service) -> bool {
        if self.is_ignored(service.name()) || !self.may_have_copy(service) {
            return false;
        }
        match self.role(service.name()) {
            Role::Act { assignment } => assignment.value.is_some_and(|value| match value.action {
                Action::Start | Action::Restart | Action::Stop { .. } | Action::Migrate { .. } => true,
                Action::DoNothing => false,
            }),
            Role::Target { .. } => true,
            Role::Outdated | Role::Elsewhere { .. } | Role::Unreadable | Role::Unassigned => false,
        }
    }

    /// Returns `true` if `hactl node shutdown-continue` was given after this shutdown began.
    fn is_continue_ordered(&self) -> bool {
        let Some(shutdown_revision) = self.shutdown_revision else { return false };
        let later_operations =
            self.view.operations.iter().filter(|(_, stored)| stored.create_revision > shutdown_revision);
        later_operations.filter_map(|(_, stored)| stored.value.as_ref()).any(|operation| {
            let spec = &operation.spec;
            spec.action == OperationAction::ShutdownContinue
                && spec.node.as_ref() == Some(&self.config.node)
                && spec.boot_id.as_ref() == Some(&self.config.boot_id)
        })
    }
}
