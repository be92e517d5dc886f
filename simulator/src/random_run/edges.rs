//! Faults at the edges of the protocol: cut links, etcd without space, late orders, services that start at boot, lost
//! journals, and edits of settings that the protocol relies on.

use super::cluster::pick;
use super::script::Script;
use ha_api_types::time::Millis;

impl Script<'_> {
    /// Adds one such fault, with its end.
    pub(super) fn edge(&mut self, at: Millis, later: Millis) {
        match self.random.below(21) {
            0..=4 => self.link(at, later),
            5 => {
                let node = self.random_worker();
                self.add_action(at, format!("migration-network {node} off"));
                self.add_action(later, format!("migration-network {node} on"));
            }
            6 => {
                self.add_action(at, "store full on");
                self.add_action(later, "store full off");
            }
            7..=8 => self.slow_driver(at, later),
            9..=10 => self.starts_at_boot(at, later),
            11 => self.journal(at),
            12..=14 => self.edit(at, later),
            15..=16 => self.upgrade(at),
            17..=19 => self.watchdog_fails(at, later),
            _ => self.controllers_restart(at),
        }
    }

    /// Cuts a link in one or both directions: to etcd, to the controllers, to all machines or to one.
    pub(super) fn link(&mut self, at: Millis, later: Millis) {
        let node = self.random_worker();
        let mut ends = match self.random.below(8) {
            0..=2 => [node, "store".to_owned()],
            3 => [node, "controllers".to_owned()],
            4 => [node, "peers".to_owned()],
            5 => ["controllers".to_owned(), "store".to_owned()],
            _ => [node, self.random_worker()],
        };
        if self.random.chance(0.5) {
            ends.reverse();
        }
        if ends[0] == ends[1] {
            return;
        }
        let one_way = if self.random.chance(0.5) { " one-way" } else { "" };
        let link = ends.join(" ");
        self.add_action(at, format!("link {link} off{one_way}"));
        self.add_action(later, format!("link {link} on"));
        self.links.push(link);
    }

    /// Delays a driver's orders while its agent ends or its node is lost.
    fn slow_driver(&mut self, at: Millis, later: Millis) {
        let (node, resource) = (self.random_worker(), self.random_resource());
        let slow = self.random_ms(200, 2 * self.cluster.timings.heartbeat_valid_ms);
        self.add_action(at, format!("driver {node} slow {resource} {slow}ms"));
        let ordered = at + self.random_ms(0, 2_000);
        let verb = if self.random.chance(0.5) { "restart" } else { "relocate" };
        let text = if verb == "restart" {
            format!("restart {resource}")
        } else {
            format!("relocate {resource} {node}")
        };
        self.add_action(ordered, text);
        if self.random.chance(0.6) {
            let dies = ordered + self.random_ms(0, slow + 500);
            self.add_action(dies, format!("agent {node} kill"));
            let starts = dies + self.random_ms(100, 3_000);
            self.add_action(starts, format!("agent {node} start"));
        }
        self.add_action(later + slow, format!("driver {node} slow {resource} 0ms"));
    }

    /// Lets a service start automatically at the boot of its machine, and boots the machine.
    fn starts_at_boot(&mut self, at: Millis, later: Millis) {
        // A service that cannot be stopped would prevent the node's admission.
        if self.cluster.stops_fail {
            return;
        }
        let (node, resource) = (self.random_worker(), self.random_resource());
        self.add_action(at, format!("autostart {node} {resource} on"));
        if self.random.chance(0.7) {
            let goes = at + self.random_ms(0, 5_000);
            self.add_action(goes, format!("power {node} off"));
            self.add_action(later.max(goes + 500), format!("power {node} on"));
        }
    }

    /// Loses an agent's journal, or replaces it by an old one; the agent notices at its start.
    fn journal(&mut self, at: Millis) {
        let node = self.random_worker();
        let what = if self.random.chance(0.6) { "lost" } else { "old" };
        self.add_action(at, format!("agent {node} kill"));
        self.add_action(at + 1, format!("journal {node} {what}"));
        let starts = at + self.random_ms(100, 20_000);
        self.add_action(starts, format!("agent {node} start"));
    }

    /// Changes a setting that the protocol relies on; the API refuses changes that are not allowed now.
    fn edit(&mut self, at: Millis, later: Millis) {
        let resource = self.random_resource();
        let node = pick(self.random, &self.cluster.nodes);
        match self.random.below(8) {
            0..=1 => {
                // The service must be stopped before it may run twice.
                let stopped = format!("service {resource} is Stopped");
                self.add_action(at, format!("set {resource} state=Stopped"));
                self.add_action_if(at + 4_000, &[&stopped], format!("set {resource} exclusive=false"));
                self.add_action(later.max(at + 4_001), format!("set {resource} state=Started"));
            }
            2 => {
                let hold = self.random.chance(0.5);
                let (first, then) = if hold { ("Hold", "Stop") } else { ("Stop", "Hold") };
                self.add_action(at, format!("set cluster/default fencing.onEtcdLoss={first}"));
                self.add_action(later, format!("set cluster/default fencing.onEtcdLoss={then}"));
            }
            3 => {
                let most = ["50%", "100%", "1"][self.random.below(3)];
                self.add_action(at, format!("set cluster/default fencing.maxFencing={most}"));
                self.add_action(later, "set cluster/default fencing.maxFencing=100%");
            }
            4 => {
                let workers = 1 + self.random.below(5);
                self.add_action(at, format!("set cluster/default maxWorkers={workers}"));
            }
            5..=6 => {
                // Simulated devices have at most the lateness in the timings of this run, so the setting must not be smaller.
                let lateness = self.cluster.timings.watchdog_lateness_ms;
                let most = if lateness <= 500 {
                    3
                } else if lateness <= 1_000 {
                    2
                } else {
                    1
                };
                let profile = ["Conservative", "Default", "Fast"][self.random.below(most)];
                self.add_action(at, format!("set cluster/default timing.profile={profile}"));
            }
            _ => {
                let allow = self.random.chance(0.5);
                self.add_action(at, format!("set node/{node} fencing.trustWatchdogOnVirtualMachine={allow}"));
                self.add_action(later, format!("set node/{node} fencing.trustWatchdogOnVirtualMachine=true"));
            }
        }
    }

    /// Upgrades all processes one at a time, in either order; a node fails meanwhile, and some processes may be downgraded.
    fn upgrade(&mut self, at: Millis) {
        let nodes = self.cluster.nodes.clone();
        let order = if self.random.chance(0.5) { ["controller", "agent"] } else { ["agent", "controller"] };
        let gap = self.random_ms(200, 8_000);
        let mut now = at;
        for what in order {
            for node in &nodes {
                self.add_action(now, format!("{what} {node} upgrade"));
                now += gap;
                if self.random.chance(0.1) {
                    self.add_action(now, format!("{what} {node} downgrade"));
                    now += gap;
                }
            }
        }
        let node = self.random_worker();
        let dies = self.random_ms(at, now);
        let back = dies + self.random_duration_ms();
        self.add_action(dies, format!("power {node} off"));
        self.add_action(back, format!("power {node} on"));
        self.upgraded = true;
    }

    /// Makes the watchdog device of one node refuse pets, or kills and restarts the daemon of another. Both faults at
    /// the same time on one node would leave nothing to reset the machine.
    fn watchdog_fails(&mut self, at: Millis, later: Millis) {
        let nodes = self.cluster.nodes.clone();
        let Some((first, others)) = nodes.split_first() else { return };
        if self.random.chance(0.5) {
            let fails = if self.random.chance(0.5) { "fail" } else { "fail-counting" };
            self.add_action(at, format!("pets {first} {fails}"));
            self.add_action(later, format!("pets {first} ok"));
        } else if !others.is_empty() {
            let node = pick(self.random, others);
            self.add_action(at, format!("watchdogd {node} kill"));
            let starts = at + self.random_ms(50, 3_000);
            self.add_action(starts, format!("watchdogd {node} start"));
        }
    }

    /// Restarts controllers cleanly one at a time, as an upgrade does, around the loss of a node.
    pub(super) fn controllers_restart(&mut self, at: Millis) {
        let node = self.random_worker();
        let gone = at + self.random_ms(0, 8_000);
        self.add_action(gone, format!("power {node} off"));
        let mut now = at;
        for _ in 0..=self.random.below(5) {
            let restarted = if self.random.chance(0.5) { "leader".to_owned() } else { self.random_worker() };
            self.add_action(now, format!("controller {restarted} restart"));
            now += self.random_ms(300, 6_000);
        }
        let back = now + self.random_duration_ms();
        self.add_action(back, format!("power {node} on"));
        for node in &self.cluster.nodes {
            self.add_action(back, format!("controller {node} start"));
        }
    }
}
