//! A machine that shuts down under the policy Migrate, or in maintenance, waits for its services to move away (SEMANTICS 7).

use super::role::Role;
use super::service::Service;
use super::{AgentCore, Level};
use ha_api_types::cluster::ShutdownPolicy;
use ha_api_types::operation::OperationAction;
use ha_api_types::record::{Action, Mode};
use ha_api_types::time::Mono;

impl AgentCore {
    /// Whether this node is in maintenance, which wins over the shutdown policy.
    pub(super) fn is_in_maintenance(&self) -> bool {
        self.view.nodes.value(&self.config.node).is_some_and(|node| node.spec.maintenance)
    }

    /// Whether the shutdown waits for services to move away: they run on, and only what ends them here is done.
    pub(super) fn awaits_moves(&self) -> bool {
        self.awaiting_moves
    }

    /// Looks whether it waits, while every service is at its place in the map.
    pub(super) fn look_at_moves(&mut self) {
        self.awaiting_moves =
            self.may_await_moves() && self.services.values().any(|service| self.is_to_move(service));
    }

    /// Whether nothing new is begun for services: the agent ends, or the cluster is disarmed.
    pub(super) fn begins_nothing(&self) -> bool {
        (self.is_ending() && !self.awaits_moves()) || self.is_disarmed()
    }

    /// Until when it waits at most; `None`: for as long as it takes.
    pub(super) fn moves_until(&self) -> Option<Mono> {
        let at = self.shutdown_at?;
        let length_ms = self.wanted_timings().shutdown_timeout_ms;
        (length_ms > 0).then(|| at + length_ms)
    }

    /// Once it has ended, by the operator, by time or because nothing is left, the waiting does not begin again.
    pub(super) fn moves_step(&mut self) {
        if self.shutting_since.is_none() {
            self.shutting_since = self.view.node_reports.get(&self.config.node).and_then(|stored| {
                let report = stored.value.as_ref()?;
                let ours = report.instance == self.config.instance;
                (ours && matches!(report.mode, Mode::Shutdown(_))).then_some(stored.modified)
            });
        }
        self.look_at_moves();
        if self.moves_over || self.awaits_moves() {
            return;
        }
        self.moves_over = true;
        self.all_stale = true;
        self.changed = true;
        let left = self.services.values().filter(|service| self.may_be_here(service)).count();
        if left > 0 {
            let text = format!("the shutdown goes on: stopping the {left} services that are still here");
            self.log(Level::Info, text);
        }
    }

    fn may_await_moves(&self) -> bool {
        if !self.is_leaving() || self.moves_over {
            return false;
        }
        let policy = self.view.cluster().map(|cluster| cluster.spec.shutdown_policy).unwrap_or_default();
        let moves_away = self.is_in_maintenance()
            || match policy {
                ShutdownPolicy::Migrate => true,
                ShutdownPolicy::Conditional | ShutdownPolicy::Freeze | ShutdownPolicy::Failover => false,
            };
        moves_away
            && !self.is_disarmed()
            && self.moves_until().is_none_or(|until| self.last < until)
            && !self.is_told_to_go_on()
    }

    /// A service that is here and that the leader can move: not one that is to be left alone.
    fn is_to_move(&self, service: &Service) -> bool {
        if self.is_ignored(service.name()) || !self.may_be_here(service) {
            return false;
        }
        match self.role(service.name()) {
            Role::Act { assignment } => assignment.value.is_some_and(|value| match value.action {
                Action::Start | Action::Restart | Action::Stop { .. } | Action::Migrate { .. } => true,
                Action::Leave => false,
            }),
            Role::Target { .. } => true,
            Role::Outdated | Role::Elsewhere { .. } | Role::Illegible | Role::Unassigned => false,
        }
    }

    /// `hactl node shutdown-continue`, given since this shutdown began.
    fn is_told_to_go_on(&self) -> bool {
        let Some(since) = self.shutting_since else { return false };
        let given = self.view.operations.iter().filter(|(_, stored)| stored.created > since);
        given.filter_map(|(_, stored)| stored.value.as_ref()).any(|operation| {
            let spec = &operation.spec;
            spec.action == OperationAction::ShutdownContinue
                && spec.node.as_deref() == Some(self.config.node.as_str())
                && spec.boot_id.as_deref() == Some(self.config.boot_id.as_str())
        })
    }
}
