//! Storylines: combinations of faults, timed by the protocol's own times, at the points where its rules interact.

use super::script::Script;
use ha_api_types::time::Millis;
use ha_api_types::timing::{WatchdogBounds, fencing_delay_ms};

impl Script<'_> {
    /// Returns Th.
    fn valid_ms(&self) -> Millis {
        self.cluster.timings.heartbeat_valid_ms
    }

    /// Returns W for a sliding timeout whose descriptor is retained.
    fn fencing_delay_ms(&self) -> Millis {
        let timeout_ms = self.cluster.timings.watchdog_timeout_ms;
        fencing_delay_ms(
            &self.cluster.timings,
            &WatchdogBounds { timeout_ms, sliding: true, descriptor_retained: true },
        )
    }

    /// Draws a time around the close of a silent node's epoch. At that time, D − Ts, D and o + Th are close together.
    fn around_closing(&mut self, silent_at: Millis) -> Millis {
        let (valid_ms, margin_ms) = (self.valid_ms(), self.cluster.timings.stop_margin_ms);
        silent_at + self.random_ms(valid_ms.saturating_sub(2 * margin_ms), valid_ms + margin_ms)
    }

    /// Adds a random storyline at this time, and returns its end.
    pub(super) fn add_storyline(&mut self, start_ms: Millis) -> Millis {
        match self.random.draw_below(21) {
            0..=1 | 20 => self.delay_heartbeat_answers(start_ms),
            2..=3 => self.pause_watchdog(start_ms),
            4 => self.hang_and_cut_node(start_ms),
            5 => self.restart_isolated_agent(start_ms),
            6 => self.lose_node_briefly(start_ms),
            7 => self.kill_agent_during_fencing(start_ms),
            8..=9 => self.hang_leader_during_fencing(start_ms),
            10..=11 => self.fault_during_moves(start_ms),
            12..=13 => self.arm_during_node_fault(start_ms),
            14 => self.change_services_while_disarmed(start_ms),
            15 => self.change_service_while_ignored(start_ms),
            16 => self.disturb_store_connection(start_ms),
            17 => self.lag_store_watch(start_ms),
            18 => self.shut_down_node(start_ms),
            _ => self.fence_by_operator(start_ms),
        }
    }

    /// Adds late answers: etcd applies heartbeats, but their answers wait because the agents hang. When the agents
    /// resume, they are isolated. Then they hang again, so only the watchdog ends their services.
    fn delay_heartbeat_answers(&mut self, start_ms: Millis) -> Millis {
        let interval_ms = self.cluster.timings.heartbeat_interval_ms;
        let latency_ms = self.random_ms(interval_ms / 3, interval_ms * 12 / 25);
        self.add_action(start_ms, format!("store latency {latency_ms}ms"));
        let hang_ms = start_ms + self.random_ms(4 * interval_ms, 6 * interval_ms);
        let end_ms = hang_ms + self.valid_ms() + self.fencing_delay_ms() + self.random_ms(2_000, 10_000);
        for _ in 0..2 {
            self.delay_answers_of_node(hang_ms, latency_ms, end_ms);
        }
        self.add_action(end_ms, "store latency 0ms");
        end_ms
    }

    fn delay_answers_of_node(&mut self, earliest_hang_ms: Millis, latency_ms: Millis, end_ms: Millis) {
        let node = self.random_worker();
        let timings = self.cluster.timings;
        let hang_ms = earliest_hang_ms + self.random_ms(0, timings.heartbeat_interval_ms);
        self.add_action(hang_ms, format!("agent {node} hang"));
        // The agent hangs for the longest time after which it does not kill its services immediately.
        let max_hang_ms = timings.heartbeat_valid_ms - timings.heartbeat_interval_ms - timings.stop_margin_ms;
        let resume_ms = hang_ms + self.random_ms(max_hang_ms / 3, max_hang_ms);
        let cut_ms = self.random_ms((hang_ms + latency_ms).min(resume_ms), resume_ms);
        self.add_action(cut_ms, format!("network {node} off"));
        self.add_action(resume_ms, format!("agent {node} resume"));
        if self.random.draw_chance(0.8) {
            let second_hang_ms = resume_ms + self.random_ms(1, 100);
            self.add_action(second_hang_ms, format!("agent {node} hang"));
        }
        self.add_action(end_ms, format!("network {node} on"));
        self.add_action(end_ms, format!("agent {node} resume"));
    }

    /// Hangs an agent, and pauses its watchdog daemon between reading the clock and one of the last pets.
    fn pause_watchdog(&mut self, start_ms: Millis) -> Millis {
        let node = self.random_worker();
        self.add_action(start_ms, format!("agent {node} hang"));
        let (valid_ms, timeout_ms) = (self.valid_ms(), self.cluster.timings.watchdog_timeout_ms);
        let stop_ms = start_ms + self.random_ms(valid_ms.saturating_sub(timeout_ms + 1_000), valid_ms);
        let duration_ms = self.watchdog_pause_ms();
        self.add_action(stop_ms, format!("watchdog {node} stop {duration_ms}ms"));
        let end_ms = start_ms + self.fencing_delay_ms() + self.random_ms(0, 30_000);
        self.add_action(end_ms, format!("agent {node} resume"));
        end_ms
    }

    /// Isolates a node whose agent hangs before it has stopped any service. One of the two faults ends early.
    fn hang_and_cut_node(&mut self, start_ms: Millis) -> Millis {
        let node = self.random_worker();
        self.add_action(start_ms, format!("network {node} off"));
        let hang_ms = start_ms + self.random_ms(0, self.valid_ms());
        self.add_action(hang_ms, format!("agent {node} hang"));
        let resume_ms = hang_ms + self.random_ms(0, self.fencing_delay_ms());
        let network_on_ms = start_ms + self.random_ms(self.valid_ms(), 2 * self.fencing_delay_ms());
        self.add_action(resume_ms, format!("agent {node} resume"));
        self.add_action(network_on_ms, format!("network {node} on"));
        network_on_ms.max(resume_ms)
    }

    /// Restarts an agent while it is isolated, and hangs it during the restart.
    fn restart_isolated_agent(&mut self, start_ms: Millis) -> Millis {
        let node = self.random_worker();
        let verb = if self.random.draw_chance(0.5) { "stop" } else { "restart" };
        let cut_ms = start_ms + self.random_ms(0, 400);
        let stop_ms = start_ms + self.random_ms(0, 2_000);
        self.add_action(cut_ms, format!("network {node} off"));
        self.add_action(stop_ms, format!("agent {node} {verb}"));
        if self.random.draw_chance(0.8) {
            let hang_ms = stop_ms + self.random_ms(5, 1_000);
            self.add_action(hang_ms, format!("agent {node} hang"));
        }
        let end_ms = start_ms + self.fencing_delay_ms() + self.random_ms(1_000, 30_000);
        self.add_action(end_ms, format!("network {node} on"));
        self.add_action(end_ms, format!("agent {node} resume"));
        self.add_action(end_ms + 3_000, format!("agent {node} start"));
        end_ms
    }

    /// Loses a node, which returns around the time at which it is declared dead; some services crash.
    fn lose_node_briefly(&mut self, start_ms: Millis) -> Millis {
        let node = self.random_worker();
        for _ in 0..self.random.draw_below(3) {
            let resource = self.random_resource();
            let crash_ms = start_ms + self.random_ms(0, self.valid_ms());
            self.add_action(crash_ms, format!("crash {resource}"));
        }
        let back_ms = self.around_closing(start_ms);
        if self.random.draw_chance(0.3) {
            self.add_action(start_ms, format!("power {node} off"));
            // A boot takes 5 s, so the power returns earlier.
            let power_on_ms = back_ms.saturating_sub(5_000).max(start_ms + 1);
            self.add_action(power_on_ms, format!("power {node} on"));
        } else {
            self.add_action(start_ms, format!("network {node} off"));
            self.add_action(back_ms, format!("network {node} on"));
        }
        if self.random.draw_chance(0.3) {
            let second_cut_ms = back_ms + self.random_ms(0, 2_000);
            self.add_action(second_cut_ms, format!("network {node} off"));
            let back_ms = self.around_closing(second_cut_ms);
            self.add_action(back_ms, format!("network {node} on"));
            return back_ms;
        }
        back_ms
    }

    fn kill_agent_during_fencing(&mut self, start_ms: Millis) -> Millis {
        let node = self.random_worker();
        self.add_action(start_ms, format!("network {node} off"));
        let kill_ms = self.around_closing(start_ms);
        self.add_action(kill_ms, format!("agent {node} kill"));
        let agent_start_ms = kill_ms + self.random_ms(0, self.fencing_delay_ms());
        self.add_action(agent_start_ms, format!("agent {node} start"));
        let network_on_ms = start_ms + self.random_ms(0, 2 * self.fencing_delay_ms());
        self.add_action(network_on_ms, format!("network {node} on"));
        network_on_ms.max(agent_start_ms)
    }

    /// Hangs the leader while it closes a node's epoch. Another controller takes over, and the former leader continues
    /// its work.
    fn hang_leader_during_fencing(&mut self, start_ms: Millis) -> Millis {
        let node = self.random_worker();
        let cut_switch = if self.random.draw_chance(0.5) { ("power", "on") } else { ("network", "on") };
        self.add_action(start_ms, format!("{} {node} off", cut_switch.0));
        if self.random.draw_chance(0.4) {
            let resource = self.random_resource();
            let target = self.random_worker();
            self.add_action(start_ms, format!("relocate {resource} {target}"));
        }
        let hang_ms = start_ms + self.random_ms(0, self.valid_ms() + 1_500);
        let verbs = if self.random.draw_chance(0.7) { ("hang", "resume") } else { ("kill", "start") };
        self.add_action(hang_ms, format!("controller leader {}", verbs.0));
        if self.random.draw_chance(0.3) {
            let duration_ms = self.random_ms(1_000, 8_000);
            self.add_action(hang_ms, format!("store flaky {duration_ms}ms"));
        }
        let resume_ms = hang_ms + self.random_ms(2_000, 2 * self.fencing_delay_ms());
        for controller in &self.cluster.nodes {
            self.add_action(resume_ms, format!("controller {controller} {}", verbs.1));
        }
        let back_ms = start_ms + self.random_ms(self.valid_ms(), 2 * self.fencing_delay_ms());
        self.add_action(back_ms, format!("{} {node} {}", cut_switch.0, cut_switch.1));
        back_ms.max(resume_ms)
    }

    /// Moves services, and loses the source or the target during the moves.
    fn fault_during_moves(&mut self, start_ms: Millis) -> Millis {
        let target = self.random_worker();
        for _ in 0..=self.random.draw_below(3) {
            let resource = self.random_resource();
            let verb = if self.random.draw_chance(0.6) { "migrate" } else { "relocate" };
            self.add_action(start_ms, format!("{verb} {resource} {target}"));
        }
        let node = if self.random.draw_chance(0.5) { target } else { self.random_worker() };
        let fault_ms = start_ms + self.random_ms(0, 9_000);
        let end_ms = fault_ms + self.random_duration_ms();
        let (fault_command, repair_command) = match self.random.draw_below(5) {
            0 => ("power N off", "power N on"),
            1 => ("network N off", "network N on"),
            2 => ("agent N kill", "agent N start"),
            3 => ("agent N hang", "agent N resume"),
            _ => ("maintenance N enable", "maintenance N disable"),
        };
        self.add_action(fault_ms, fault_command.replace('N', &node));
        self.add_action(end_ms, repair_command.replace('N', &node));
        end_ms
    }

    /// Disarms and arms the cluster while a node cannot receive one of the two changes.
    fn arm_during_node_fault(&mut self, start_ms: Millis) -> Millis {
        let node = self.random_worker();
        let disarm_mode = if self.random.draw_chance(0.7) { "freeze" } else { "ignore" };
        self.add_action(start_ms, format!("disarm {disarm_mode}"));
        let fault_ms = start_ms + self.random_ms(0, 8_000);
        let arm_ms = fault_ms + self.random_ms(0, 5_000);
        self.add_action(arm_ms, "arm");
        let back_ms = fault_ms + self.random_ms(self.valid_ms(), 3 * self.fencing_delay_ms());
        let (fault_command, repair_command) = match self.random.draw_below(5) {
            0 => ("agent N kill", "agent N start"),
            1 => ("agent N hang", "agent N resume"),
            2 | 3 => ("network N off", "network N on"),
            _ => ("power N off", "power N on"),
        };
        self.add_action(fault_ms, fault_command.replace('N', &node));
        if self.random.draw_chance(0.3) {
            let hang_ms = fault_ms + self.random_ms(0, self.valid_ms());
            self.add_action(hang_ms, format!("agent {node} hang"));
            self.add_action(back_ms, format!("agent {node} resume"));
        }
        self.add_action(back_ms, repair_command.replace('N', &node));
        back_ms
    }

    /// Lets an operator move, stop and start services by hand while the cluster is disarmed under Ignore.
    fn change_services_while_disarmed(&mut self, start_ms: Millis) -> Millis {
        self.add_action(start_ms, "disarm ignore");
        let mut time_ms = start_ms + self.random_ms(3_000, 15_000);
        for _ in 0..=self.random.draw_below(4) {
            self.change_random_service(time_ms, "cluster is Disarmed");
            time_ms += self.random_ms(100, 6_000);
        }
        if self.random.draw_chance(0.4) {
            let node = self.random_worker();
            self.add_action(time_ms, format!("network {node} off"));
            let network_on_ms = time_ms + self.random_duration_ms();
            self.add_action(network_on_ms, format!("network {node} on"));
        }
        self.add_action(time_ms, "arm");
        time_ms
    }

    fn change_service_while_ignored(&mut self, start_ms: Millis) -> Millis {
        let resource = self.random_resource();
        self.add_action(start_ms, format!("set {resource} state=Ignored"));
        let mut time_ms = start_ms + self.random_ms(2_000, 8_000);
        let is_ignored = format!("service {resource} is Ignored");
        for _ in 0..=self.random.draw_below(3) {
            self.change_service_by_hand(time_ms, &resource, &is_ignored);
            time_ms += self.random_ms(100, 6_000);
        }
        let final_state = if self.random.draw_chance(0.8) { "Started" } else { "Stopped" };
        self.add_action(time_ms, format!("set {resource} state={final_state}"));
        time_ms
    }

    fn change_random_service(&mut self, start_ms: Millis, allowed_condition: &str) {
        let resource = self.random_resource();
        self.change_service_by_hand(start_ms, &resource, allowed_condition);
    }

    fn change_service_by_hand(&mut self, start_ms: Millis, resource: &str, allowed_condition: &str) {
        let node = self.random_worker();
        let is_running = format!("service {resource} running");
        let is_not_running = format!("not service {resource} running");
        // On a node that is offline or was confirmed empty, no service may be started by hand.
        let is_online = format!("node {node} is Online");
        match self.random.draw_below(3) {
            0 => {
                self.add_action_if(
                    start_ms,
                    &[allowed_condition, &is_running, &is_online],
                    format!("move-by-hand {resource} {node}"),
                );
            }
            1 => self.add_action_if(
                start_ms,
                &[allowed_condition, &is_running],
                format!("stop-by-hand {resource}"),
            ),
            _ => self.add_action_if(
                start_ms,
                &[allowed_condition, &is_not_running, &is_online],
                format!("start-by-hand {resource} {node}"),
            ),
        }
    }

    /// Loses or delays requests and answers, while a user sends contradictory commands.
    fn disturb_store_connection(&mut self, start_ms: Millis) -> Millis {
        let duration_ms = self.random_ms(4_000, 25_000);
        self.add_action(start_ms, format!("store flaky {duration_ms}ms"));
        for _ in 0..=self.random.draw_below(5) {
            let command_ms = start_ms + self.random_ms(0, duration_ms);
            let command_end_ms = command_ms + self.random_ms(500, 8_000);
            self.add_command(command_ms, command_end_ms);
        }
        if self.random.draw_chance(0.5) {
            let node = self.random_worker();
            let cut_ms = start_ms + self.random_ms(0, duration_ms);
            let back_ms = self.around_closing(cut_ms);
            self.add_action(cut_ms, format!("network {node} off"));
            self.add_action(back_ms, format!("network {node} on"));
        }
        start_ms + duration_ms
    }

    /// Delays the view of a leader or an agent, while another node is lost or services move.
    fn lag_store_watch(&mut self, start_ms: Millis) -> Millis {
        let duration_ms = self.random_ms(2_000, 2 * self.fencing_delay_ms());
        let lagging_node =
            if self.random.draw_chance(0.6) { "leader".to_owned() } else { self.random_worker() };
        self.add_action(start_ms, format!("store lag {lagging_node} {duration_ms}ms"));
        let node = self.random_worker();
        let cut_ms = start_ms + self.random_ms(0, duration_ms);
        let back_ms = self.around_closing(cut_ms);
        self.add_action(cut_ms, format!("network {node} off"));
        self.add_action(back_ms, format!("network {node} on"));
        let end_ms = start_ms + duration_ms;
        self.add_command(start_ms, end_ms);
        end_ms.max(back_ms)
    }

    /// Shuts down or reboots a machine cleanly. The machine may be in maintenance before, or lose its power in the
    /// meantime. Another machine may then take its name.
    fn shut_down_node(&mut self, start_ms: Millis) -> Millis {
        let node = self.random_node();
        if self.random.draw_chance(0.3) {
            self.add_action(start_ms, format!("maintenance {node} enable"));
        }
        let shutdown_ms = start_ms + self.random_ms(0, 10_000);
        let end_ms = shutdown_ms + self.random_duration_ms();
        match self.random.draw_below(4) {
            0..=1 => self.add_action(shutdown_ms, format!("reboot {node}")),
            2 => self.add_action(shutdown_ms, format!("shutdown {node}")),
            _ => {
                self.add_action(shutdown_ms, format!("replace {node}"));
                let confirm_ms = shutdown_ms + self.fencing_delay_ms() + self.random_ms(1_000, 30_000);
                self.add_action(confirm_ms, format!("confirm-fenced {node}"));
                self.replaced_nodes.push(node.clone());
            }
        }
        if self.random.draw_chance(0.2) {
            self.add_action(shutdown_ms + 1_500, format!("power {node} off"));
        }
        self.add_action(end_ms, format!("power {node} on"));
        self.add_action(end_ms, format!("maintenance {node} disable"));
        end_ms
    }

    /// Lets an operator switch off a node, by its fence device or by hand, and confirm the fencing.
    fn fence_by_operator(&mut self, start_ms: Millis) -> Millis {
        let node = match self.cluster.nodes_with_device.as_slice() {
            [] => self.random_worker(),
            nodes_with_device => super::cluster::random_name(self.random, nodes_with_device),
        };
        let is_device_broken = self.random.draw_chance(0.4);
        if is_device_broken {
            self.add_action(start_ms, format!("fence-device {node} broken"));
        }
        let fence_ms = start_ms + self.random_ms(0, 5_000);
        let repair_ms = fence_ms + self.random_duration_ms();
        if self.random.draw_chance(0.5) {
            self.add_action(fence_ms, format!("fence {node}"));
        } else {
            self.add_action(fence_ms, format!("power {node} off"));
            let confirm_ms = fence_ms + self.random_ms(self.valid_ms() / 2, self.fencing_delay_ms() + 5_000);
            self.add_action(confirm_ms, format!("confirm-fenced {node}"));
            let power_on_ms = confirm_ms + self.random_ms(0, 20_000);
            self.add_action(power_on_ms, format!("power {node} on"));
        }
        self.add_action(repair_ms, format!("fence-device {node} ok"));
        repair_ms
    }
}
