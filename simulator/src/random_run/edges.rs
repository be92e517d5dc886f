//! Faults at the edges of the protocol: cut links, etcd without space, late orders, services that start at boot, lost
//! journals, and edits of settings that the protocol relies on.

use super::cluster::random_name;
use super::script::Script;
use ha_api_types::time::Millis;

impl Script<'_> {
    pub(super) fn add_rare_fault(&mut self, start_ms: Millis, end_ms: Millis) {
        match self.random.draw_below(21) {
            0..=4 => self.cut_link(start_ms, end_ms),
            5 => {
                let node = self.random_worker();
                self.add_action(start_ms, format!("migration-network {node} off"));
                self.add_action(end_ms, format!("migration-network {node} on"));
            }
            6 => {
                self.add_action(start_ms, "store full on");
                self.add_action(end_ms, "store full off");
            }
            7..=8 => self.slow_down_driver(start_ms, end_ms),
            9..=10 => self.autostart_service(start_ms, end_ms),
            11 => self.damage_journal(start_ms),
            12..=14 => self.edit_objects(start_ms, end_ms),
            15..=16 => self.upgrade_processes(start_ms),
            17..=19 => self.fail_watchdog(start_ms, end_ms),
            _ => self.restart_controllers(start_ms),
        }
    }

    /// Cuts a link in one or both directions: to etcd, to the controllers, to all machines or to one machine.
    pub(super) fn cut_link(&mut self, start_ms: Millis, end_ms: Millis) {
        let node = self.random_worker();
        let mut link_ends = match self.random.draw_below(8) {
            0..=2 => [node, "store".to_owned()],
            3 => [node, "controllers".to_owned()],
            4 => [node, "peers".to_owned()],
            5 => ["controllers".to_owned(), "store".to_owned()],
            _ => [node, self.random_worker()],
        };
        if self.random.draw_chance(0.5) {
            link_ends.reverse();
        }
        if link_ends[0] == link_ends[1] {
            return;
        }
        let one_way = if self.random.draw_chance(0.5) { " one-way" } else { "" };
        let link = link_ends.join(" ");
        self.add_action(start_ms, format!("link {link} off{one_way}"));
        self.add_action(end_ms, format!("link {link} on"));
        self.links.push(link);
    }

    /// Delays a driver's orders while its agent ends or its node is lost.
    fn slow_down_driver(&mut self, start_ms: Millis, end_ms: Millis) {
        let (node, resource) = (self.random_worker(), self.random_resource());
        let slow_ms = self.random_ms(200, 2 * self.cluster.timings.heartbeat_valid_ms);
        self.add_action(start_ms, format!("driver {node} slow {resource} {slow_ms}ms"));
        let order_ms = start_ms + self.random_ms(0, 2_000);
        let verb = if self.random.draw_chance(0.5) { "restart" } else { "relocate" };
        let text = if verb == "restart" {
            format!("restart {resource}")
        } else {
            format!("relocate {resource} {node}")
        };
        self.add_action(order_ms, text);
        if self.random.draw_chance(0.6) {
            let kill_ms = order_ms + self.random_ms(0, slow_ms + 500);
            self.add_action(kill_ms, format!("agent {node} kill"));
            let agent_start_ms = kill_ms + self.random_ms(100, 3_000);
            self.add_action(agent_start_ms, format!("agent {node} start"));
        }
        self.add_action(end_ms + slow_ms, format!("driver {node} slow {resource} 0ms"));
    }

    /// Sets a service to start automatically at the boot of its machine, and boots the machine.
    fn autostart_service(&mut self, start_ms: Millis, end_ms: Millis) {
        // A service that cannot be stopped would prevent the node's admission.
        if self.cluster.some_stops_fail {
            return;
        }
        let (node, resource) = (self.random_worker(), self.random_resource());
        self.add_action(start_ms, format!("autostart {node} {resource} on"));
        if self.random.draw_chance(0.7) {
            let off_ms = start_ms + self.random_ms(0, 5_000);
            self.add_action(off_ms, format!("power {node} off"));
            self.add_action(end_ms.max(off_ms + 500), format!("power {node} on"));
        }
    }

    /// Loses an agent's journal, or replaces the journal by an old one. The agent detects this at its start.
    fn damage_journal(&mut self, start_ms: Millis) {
        let node = self.random_worker();
        let fault = if self.random.draw_chance(0.6) { "lost" } else { "old" };
        self.add_action(start_ms, format!("agent {node} kill"));
        self.add_action(start_ms + 1, format!("journal {node} {fault}"));
        let agent_start_ms = start_ms + self.random_ms(100, 20_000);
        self.add_action(agent_start_ms, format!("agent {node} start"));
    }

    /// Changes a setting on which the protocol relies. The API refuses a change that is not allowed at that time.
    fn edit_objects(&mut self, start_ms: Millis, end_ms: Millis) {
        let resource = self.random_resource();
        let node = random_name(self.random, &self.cluster.nodes);
        match self.random.draw_below(8) {
            0..=1 => {
                // The service must be stopped before it may run twice.
                let stopped = format!("service {resource} is Stopped");
                self.add_action(start_ms, format!("set {resource} state=Stopped"));
                self.add_action_if(start_ms + 4_000, &[&stopped], format!("set {resource} exclusive=false"));
                self.add_action(end_ms.max(start_ms + 4_001), format!("set {resource} state=Started"));
            }
            2 => {
                let hold = self.random.draw_chance(0.5);
                let (first_policy, last_policy) = if hold { ("Hold", "Stop") } else { ("Stop", "Hold") };
                self.add_action(start_ms, format!("set cluster/default fencing.onEtcdLoss={first_policy}"));
                self.add_action(end_ms, format!("set cluster/default fencing.onEtcdLoss={last_policy}"));
            }
            3 => {
                let max_fencing = ["50%", "100%", "1"][self.random.draw_below(3)];
                self.add_action(start_ms, format!("set cluster/default fencing.maxFencing={max_fencing}"));
                self.add_action(end_ms, "set cluster/default fencing.maxFencing=100%");
            }
            4 => {
                let worker_limit = 1 + self.random.draw_below(5);
                self.add_action(start_ms, format!("set cluster/default maxWorkers={worker_limit}"));
            }
            5..=6 => {
                // Simulated devices have at most the lateness in the timings of this run, so the setting must not be smaller.
                let lateness_ms = self.cluster.timings.watchdog_lateness_ms;
                let profile_count = if lateness_ms <= 500 {
                    3
                } else if lateness_ms <= 1_000 {
                    2
                } else {
                    1
                };
                let profile = ["Conservative", "Default", "Fast"][self.random.draw_below(profile_count)];
                self.add_action(start_ms, format!("set cluster/default timing.profile={profile}"));
            }
            _ => {
                let trust_watchdog = self.random.draw_chance(0.5);
                self.add_action(
                    start_ms,
                    format!("set node/{node} fencing.trustWatchdogOnVirtualMachine={trust_watchdog}"),
                );
                self.add_action(
                    end_ms,
                    format!("set node/{node} fencing.trustWatchdogOnVirtualMachine=true"),
                );
            }
        }
    }

    /// Upgrades all processes one at a time, in either order; a node fails in the meantime, and some processes may be
    /// downgraded.
    fn upgrade_processes(&mut self, start_ms: Millis) {
        let nodes = self.cluster.nodes.clone();
        let process_order =
            if self.random.draw_chance(0.5) { ["controller", "agent"] } else { ["agent", "controller"] };
        let gap_ms = self.random_ms(200, 8_000);
        let mut upgrade_ms = start_ms;
        for process in process_order {
            for node in &nodes {
                self.add_action(upgrade_ms, format!("{process} {node} upgrade"));
                upgrade_ms += gap_ms;
                if self.random.draw_chance(0.1) {
                    self.add_action(upgrade_ms, format!("{process} {node} downgrade"));
                    upgrade_ms += gap_ms;
                }
            }
        }
        let node = self.random_worker();
        let off_ms = self.random_ms(start_ms, upgrade_ms);
        let on_ms = off_ms + self.random_duration_ms();
        self.add_action(off_ms, format!("power {node} off"));
        self.add_action(on_ms, format!("power {node} on"));
        self.upgraded = true;
    }

    /// Makes the watchdog device of one node refuse pets, or kills and restarts the daemon of another. With both faults
    /// at the same time on one node, no watchdog could reset the machine.
    fn fail_watchdog(&mut self, start_ms: Millis, end_ms: Millis) {
        let nodes = self.cluster.nodes.clone();
        let Some((first_node, other_nodes)) = nodes.split_first() else { return };
        if self.random.draw_chance(0.5) {
            let failure = if self.random.draw_chance(0.5) { "fail" } else { "fail-counting" };
            self.add_action(start_ms, format!("pets {first_node} {failure}"));
            self.add_action(end_ms, format!("pets {first_node} ok"));
        } else if !other_nodes.is_empty() {
            let node = random_name(self.random, other_nodes);
            self.add_action(start_ms, format!("watchdogd {node} kill"));
            let daemon_start_ms = start_ms + self.random_ms(50, 3_000);
            self.add_action(daemon_start_ms, format!("watchdogd {node} start"));
        }
    }

    /// Restarts controllers cleanly one at a time, as an upgrade does, around the loss of a node.
    pub(super) fn restart_controllers(&mut self, start_ms: Millis) {
        let node = self.random_worker();
        let off_ms = start_ms + self.random_ms(0, 8_000);
        self.add_action(off_ms, format!("power {node} off"));
        let mut restart_ms = start_ms;
        for _ in 0..=self.random.draw_below(5) {
            let target =
                if self.random.draw_chance(0.5) { "leader".to_owned() } else { self.random_worker() };
            self.add_action(restart_ms, format!("controller {target} restart"));
            restart_ms += self.random_ms(300, 6_000);
        }
        let on_ms = restart_ms + self.random_duration_ms();
        self.add_action(on_ms, format!("power {node} on"));
        for node in &self.cluster.nodes {
            self.add_action(on_ms, format!("controller {node} start"));
        }
    }
}
