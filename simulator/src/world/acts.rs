//! The effects of each action on the world.

use super::World;
use crate::scenario::action::{Action, JournalCondition, LinkEnd, ProcessVerb};
use ha_api_types::id::NodeName;
use ha_api_types::record::{Leader, ShutdownKind};

impl World {
    /// Returns the name of a node, which may not exist; `leader` means the node whose controller is the leader.
    pub(super) fn resolve_leader(&self, name: &str) -> Result<NodeName, String> {
        match name {
            "leader" => self.leader().ok_or_else(|| "no controller is leader".to_owned()),
            other => Ok(other.into()),
        }
    }

    fn resolve_link_end(&self, end: LinkEnd) -> Result<LinkEnd, String> {
        match end {
            LinkEnd::Node(node) => self.resolve_node(&node).map(LinkEnd::Node),
            LinkEnd::Store | LinkEnd::Controllers | LinkEnd::Peers => Ok(end),
        }
    }

    /// Returns the name of an existing machine; `leader` means the node whose controller is the leader.
    pub(super) fn resolve_node(&self, name: &str) -> Result<NodeName, String> {
        let name = self.resolve_leader(name)?;
        if self.machines.contains_key(&name) { Ok(name) } else { Err(format!("node {name:?} not found")) }
    }

    /// Returns the name of a machine. Fails if the machine does not exist or is not up.
    fn resolve_working_node(&self, name: &str) -> Result<NodeName, String> {
        let name = self.resolve_node(name)?;
        let works = self.machines.get(&name).is_some_and(super::machine::Machine::is_working);
        if works { Ok(name) } else { Err(format!("{name} is not up")) }
    }

    pub(super) fn run_action(&mut self, text: &str, action: Action) -> Result<(), String> {
        match action {
            Action::Power { node, on } => {
                let node = self.resolve_node(&node)?;
                self.power(&node, on);
            }
            Action::Network { node, on } => {
                let node = self.resolve_node(&node)?;
                if let Some(machine) = self.machines.get_mut(&node) {
                    machine.network = on;
                }
            }
            Action::Reboot { node } => {
                let node = self.resolve_node(&node)?;
                self.shut_down(&node, ShutdownKind::Reboot)?;
            }
            Action::Shutdown { node } => {
                let node = self.resolve_node(&node)?;
                self.shut_down(&node, ShutdownKind::Poweroff)?;
            }
            Action::Replace { node, clone } => {
                let node = self.resolve_node(&node)?;
                self.replace(&node, clone);
            }
            Action::Agent { node, verb } => {
                let node = self.resolve_working_node(&node)?;
                self.agent_process(&node, verb);
            }
            Action::Controller { node, verb } => {
                let node = self.resolve_working_node(&node)?;
                if verb == ProcessVerb::Start
                    && !self.machines.get(&node).is_some_and(|machine| machine.has_controller)
                {
                    return Err(format!("{node} has no controller"));
                }
                self.controller_process(&node, verb);
            }
            Action::Suspend { node, duration_ms } => {
                let node = self.resolve_working_node(&node)?;
                self.suspend(&node, duration_ms);
            }
            Action::ClockRate { node, rate } => {
                let node = self.resolve_node(&node)?;
                let now = self.now;
                if let Some(machine) = self.machines.get_mut(&node) {
                    machine.clock.set_rate(now, rate);
                }
            }
            Action::Watchdog { node, duration_ms } => {
                let node = self.resolve_working_node(&node)?;
                if let Some(machine) = self.machines.get_mut(&node) {
                    machine.watchdog.stops_for_ms = Some(duration_ms);
                }
            }
            Action::PlanTime { node, duration_ms } => {
                let node = self.resolve_node(&node)?;
                if let Some(machine) = self.machines.get_mut(&node) {
                    machine.plan_ms = duration_ms;
                }
                if let Some(process) = self.controllers.get_mut(&node) {
                    process.core.set_plans_slowly(duration_ms > 0);
                }
            }
            Action::WatchdogDaemon { node, start } => {
                let node = self.resolve_working_node(&node)?;
                if start {
                    self.start_watchdog_daemon(&node);
                } else {
                    self.kill_watchdog_daemon(&node);
                }
            }
            Action::Pets { node, pets } => {
                let node = self.resolve_node(&node)?;
                self.set_pets(&node, pets);
            }
            Action::Sleep { node, protection } => {
                let node = self.resolve_node(&node)?;
                self.set_sleep(&node, protection);
            }
            Action::Drivers { node, supported } => {
                let node = self.resolve_node(&node)?;
                if let Some(machine) = self.machines.get_mut(&node) {
                    machine.has_drivers = supported;
                }
            }
            Action::Journal { node, fault } => {
                let node = self.resolve_node(&node)?;
                if let Some(machine) = self.machines.get_mut(&node) {
                    match fault {
                        JournalCondition::Full => machine.is_disk_full = true,
                        JournalCondition::Works => machine.is_disk_full = false,
                        JournalCondition::Lost => machine.journal = ha_node_agent::core::Journal::default(),
                        JournalCondition::Old => machine.journal = machine.journal_at_boot.clone(),
                    }
                }
            }
            Action::Link { from, to, on, one_way } => {
                let (from, to) = (self.resolve_link_end(from)?, self.resolve_link_end(to)?);
                self.network.set_link(from, to, on, one_way);
                self.update_store_leader();
            }
            Action::MigrationNetwork { node, on } => {
                let node = self.resolve_node(&node)?;
                self.network.set_migration(&node, on);
            }
            Action::Autostart { node, resource, on } => {
                let node = self.resolve_node(&node)?;
                self.autostart(&node, &resource, on)?;
            }
            Action::SlowDriver { node, resource, duration_ms } => {
                let node = self.resolve_node(&node)?;
                if let Some(machine) = self.machines.get_mut(&node) {
                    machine.driver_delays_ms.insert(resource, duration_ms);
                }
            }
            Action::StoreFull { on } => {
                if on {
                    let applies_next = self.random.draw_chance(0.5);
                    self.store.fill(applies_next);
                } else {
                    self.store.make_space();
                }
            }
            Action::Driver { node, hangs } => {
                let node = self.resolve_node(&node)?;
                if let Some(machine) = self.machines.get_mut(&node) {
                    machine.drivers_hang = hangs;
                }
            }
            Action::FenceDevice { node, condition } => {
                let node = self.resolve_node(&node)?;
                if let Some(machine) = self.machines.get_mut(&node) {
                    machine.fence_devices = condition;
                }
            }
            Action::StoreOutage { duration_ms } => self.stop_store(duration_ms),
            Action::StoreLeaderChange => self.start_election(),
            Action::StoreLeaderPause { duration_ms } => self.pause_store_leader(duration_ms),
            Action::StoreCompact => {
                let revision = self.store.revision();
                self.store.compact(revision);
            }
            Action::StoreSnapshot => self.backup = Some(self.store.clone()),
            Action::StoreRestore { empty } => self.restore_store(empty)?,
            Action::StoreFlaky { duration_ms } => self.store_flaky_until = self.now + duration_ms,
            Action::StoreLag { node, duration_ms } => {
                let node = self.resolve_node(&node)?;
                self.log(&"store".into(), "", &format!("stops sending changes to {node}"));
                self.watch_lag_until.insert(node, self.now + duration_ms);
            }
            Action::StoreLatency { duration_ms } => self.store_latency_ms = duration_ms,
            Action::Crash { resource } => self.crash(&resource),
            Action::Load { resource, usage } => self.load(&resource, usage),
            Action::MoveByHand { resource, node } => {
                let node = self.resolve_node(&node)?;
                self.move_by_hand(&resource, &node)?;
            }
            Action::StartByHand { resource, node } => {
                let node = self.resolve_node(&node)?;
                self.start_by_hand(&resource, &node)?;
            }
            Action::StopByHand { resource } => self.stop_by_hand(&resource)?,
            Action::Command(command) => self.command(text, command)?,
        }
        Ok(())
    }

    /// Returns the node whose controller is the leader.
    pub fn leader(&self) -> Option<NodeName> {
        self.read_record(&self.keys.leader()).map(|leader: Leader| leader.id.as_str().into())
    }
}
