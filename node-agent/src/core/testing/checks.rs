//! Invariants that hold at every moment and for every effect.

use super::*;

impl World {
    /// Asserts FENCING 5 (a): once an observer has waited W after the last heartbeat, while the report shows the
    /// watchdog as armed, no exclusive service runs, or the machine was reset.
    pub(super) fn check_fenced_after_silence(&mut self) {
        let alive =
            self.state.get(&self.keys.alive(&own_node())).entries.first().map(|entry| entry.mod_revision);
        if alive != self.observed.0 && alive.is_some() {
            self.observed = (alive, self.now_ms);
        }
        let Some(report) = self.value::<NodeReport>(&self.keys.node_report(&own_node())) else { return };
        let heartbeat_age_ms = self.now_ms - self.observed.1;
        if !report.armed || heartbeat_age_ms < report.fencing_delay_ms() || self.was_reset {
            return;
        }
        for (name, copy) in &self.copies {
            let exclusive =
                self.core.services.get(name.as_str()).is_none_or(|service| service.definition.exclusive);
            assert!(
                !copy.running || !exclusive,
                "{name} runs {heartbeat_age_ms} ms after the last heartbeat: {:?} {:#?}",
                self.daemon.status(),
                self.logs
            );
        }
    }

    /// Asserts FENCING 6: a start has its permit in etcd and its action in the journal, and begins while now < D − Ts.
    pub(super) fn check_command(&self, command: &Command, service: &ServiceDefinition) {
        match command {
            Command::Start | Command::Receive | Command::Arrive { .. } => {}
            Command::ReplaceSecondary { .. } => return self.check_replacement(service),
            Command::Probe
            | Command::Stop { .. }
            | Command::Kill
            | Command::Migrate { .. }
            | Command::EndMigration
            | Command::CloseReception
            | Command::EndReplacement => return,
        }
        let report: ServiceReport = self
            .value(&self.keys.service_report(&own_node(), &service.name))
            .expect("a permit before a start");
        assert!(
            matches!(report.phase, Phase::Starting | Phase::Running | Phase::Receiving),
            "started under {:?}",
            report.phase
        );
        let uid = report.action_uid.expect("a permit names its action");
        assert_eq!(
            self.journal.services[&service.name].begun_action, uid,
            "the journal records an action before it begins"
        );
        if service.exclusive {
            self.check_before_margin();
        }
    }

    /// Asserts that a replacement of a secondary is committed as begun, begins only once, and begins while the service
    /// runs under a valid deadline.
    fn check_replacement(&self, service: &ServiceDefinition) {
        let report = self.service_report(&service.name);
        let replacement = report.replacement.expect("begun before it is");
        assert_eq!((report.phase, replacement.phase), (Phase::Running, ReplacementPhase::Begun));
        assert_eq!(self.count_commands(&service.name, "replace-secondary"), self.replacements.len());
        assert!(!self.replacements.contains(&replacement.uid), "{} was begun before", replacement.uid);
        self.check_before_margin();
    }

    /// Asserts that the margin before the deadline of the last committed heartbeat is not reached. A shorter margin applies
    /// as soon as the agent has read it, and D of a committed heartbeat stays.
    fn check_before_margin(&self) {
        let margin_ms = self.core.effective_timings().stop_margin_ms;
        let valid_ms = self.core.active_timings.heartbeat_valid_ms;
        let proven = self.proven_ms.expect("a heartbeat of this process");
        assert!(self.now_ms + margin_ms < proven + valid_ms, "after D − Ts");
    }

    /// Asserts FENCING 1, 3 and 6: every write of the agent carries its guards.
    pub(super) fn check_transaction(&self, transaction: &Transaction) {
        let keys = &self.keys;
        for key in transaction.writes().keys() {
            assert!(transaction.guards().contains_key(key), "unguarded {key}");
        }
        let guards = transaction.guards();
        assert!(guards.contains_key(&keys.fence(&own_node())), "every agent write guards its fence");
        for (key, write) in transaction.writes() {
            let Some(ha_api_types::keys::Key::ServiceReport(node, name)) = keys.parse(key) else { continue };
            if node != NODE {
                continue;
            }
            assert!(matches!(guards[&keys.alive(&own_node())], Guard::Created(_)), "guards its alive");
            let ha_store::Write::Put { value, .. } = write else { continue };
            let report: ServiceReport = serde_json::from_slice(value).expect("legible");
            let stored: Option<ServiceReport> = self.value(key);
            let is_new_action = stored.is_none_or(|earlier| earlier.action_uid != report.action_uid);
            if is_new_action && matches!(report.phase, Phase::Starting | Phase::Receiving) {
                self.check_permit(&name, &report, transaction);
            }
            assert!(!(is_new_action && report.phase == Phase::Running && report.action_uid.is_none()));
        }
    }

    fn check_permit(&self, name: &ResourceName, report: &ServiceReport, transaction: &Transaction) {
        let guards = transaction.guards();
        assert!(
            matches!(guards.get(&self.keys.assignment(name)), Some(Guard::Unchanged(_))),
            "guards its assignment"
        );
        let Some(Guard::Unchanged(fence_at)) = guards.get(&self.keys.fence(&own_node())) else {
            panic!("guards an existing fence")
        };
        let fence = self.state.get(&self.keys.fence(&own_node()));
        if fence.entries[0].mod_revision == *fence_at {
            let fence: Fence = serde_json::from_slice(&fence.entries[0].value).expect("legible");
            assert_eq!((fence.state, fence.epoch), (FenceState::Open, report.epoch));
        }
        if report.exclusive {
            let Some(Guard::Unchanged(at)) = guards.get(&self.keys.node_report(&own_node())) else {
                panic!("guards armed")
            };
            let reading = self.state.get(&self.keys.node_report(&own_node()));
            if reading.entries[0].mod_revision == *at {
                let node: NodeReport = serde_json::from_slice(&reading.entries[0].value).expect("legible");
                assert!(node.armed, "a permit guards a report with the watchdog armed");
            }
            assert!(
                matches!(self.daemon.status().state, protocol::State::Armed { .. }),
                "the daemon pets by D"
            );
        }
    }
}
