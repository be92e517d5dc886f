//! Common starting points of tests: a node in some state, and processes that end and start.

use super::*;

pub(super) fn config(instance: &str, boot_id: &str) -> Config {
    Config {
        keys: Keys::new("t"),
        node: own_node(),
        instance: instance.into(),
        machine_id: "machine-1".into(),
        product_id: None,
        boot_id: boot_id.into(),
        is_virtual: false,
        sleep_protection: None,
        drivers: vec!["simulated".to_owned()],
        policy: None,
        hardware: Hardware::default(),
        version: "test".to_owned(),
    }
}

impl World {
    /// Creates a node that is registered under epoch 1 and has no services.
    pub(super) fn active() -> World {
        let mut world = World::new();
        world.open_epoch();
        world.advance(1_500);
        assert_eq!(world.node_report().mode, ha_api_types::record::Mode::Active, "{:?}", world.logs);
        world
    }

    /// Creates a node on which `web` runs under a permit.
    pub(super) fn running() -> World {
        let mut world = World::active();
        world.create_resource("web");
        world.assign("web", Action::Start);
        world.advance(1_000);
        assert!(world.copies["web"].running, "{:?} {:?}", world.logs, world.core.wait_messages(&world.now()));
        assert_eq!(world.service_report("web").phase, Phase::Running);
        world
    }

    /// Creates a node on which a probe found `web` running without a permit. The node armed its watchdog for this copy.
    pub(super) fn found_running() -> World {
        let mut world = World::active();
        world.copies.entry("web".into()).or_default().running = true;
        world.create_resource("web");
        world.advance(2_000);
        let report = world.service_report("web");
        assert_eq!(
            (report.phase, report.action_uid, report.probed_generation),
            (Phase::ProbedRunning, None, 1)
        );
        assert!(world.node_report().armed);
        world
    }

    /// Starts another agent process on the same machine; the old one ended without any clean-up.
    pub(super) fn restart_agent(&mut self, boot_id: &str) {
        self.actions += 1;
        let policy = self.config.policy.take();
        self.config = Config { policy, ..config(&format!("i{}", self.actions + 1), boot_id) };
        self.core = AgentCore::new(self.config.clone(), self.journal.clone());
        self.held_commands.clear();
        self.held_journals.clear();
        self.held_reads.clear();
        self.pending_requests.clear();
        self.heartbeat_start_times.clear();
        self.proven_ms = None;
        self.number = 0;
        self.exit = None;
        self.dead = false;
        if self.daemon_up {
            self.daemon_input(daemon::Input::Disconnected);
        }
        self.boot_core();
    }

    /// Starts the next agent process of this boot, which cannot reach etcd.
    pub(super) fn restart_agent_without_etcd(&mut self) {
        self.network = NetworkFault::Down;
        self.config = config("i9", "boot-1");
        self.core = AgentCore::new(self.config.clone(), self.journal.clone());
        self.reconnect();
    }

    /// Ends the daemon; the device keeps its last timeout.
    pub(super) fn disconnect_watchdog_daemon(&mut self) {
        self.daemon_up = false;
        self.input(Input::Watchdog(WatchdogEvent::Disconnected { message: "it is gone".into() }));
    }

    pub(super) fn reconnect(&mut self) {
        self.number = 0;
        self.pending_requests.clear();
        self.daemon_input(daemon::Input::Disconnected);
        self.daemon_input(daemon::Input::Connected);
    }
}
