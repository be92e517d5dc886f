//! Storylines: combinations of faults, timed by the protocol's own times, at the points where its rules interact.

use super::script::Script;
use ha_api_types::time::Millis;
use ha_api_types::timing::{WatchdogBounds, wait_ms};

impl Script<'_> {
    /// Returns Th.
    fn valid_ms(&self) -> Millis {
        self.cluster.timings.heartbeat_valid_ms
    }

    /// Returns W for a sliding timeout whose descriptor is retained.
    fn wait_ms(&self) -> Millis {
        let timeout_ms = self.cluster.timings.watchdog_timeout_ms;
        wait_ms(
            &self.cluster.timings,
            &WatchdogBounds { timeout_ms, sliding: true, descriptor_retained: true },
        )
    }

    /// Draws a time around the closing of a silent node's epoch: D − Ts, D and o + Th are close together.
    fn around_closing(&mut self, silent_at: Millis) -> Millis {
        let (valid, margin) = (self.valid_ms(), self.cluster.timings.stop_margin_ms);
        silent_at + self.random_ms(valid.saturating_sub(2 * margin), valid + margin)
    }

    /// Adds a random storyline at this time, and returns its end.
    pub(super) fn storyline(&mut self, at: Millis) -> Millis {
        match self.random.below(21) {
            0..=1 | 20 => self.late_answers(at),
            2..=3 => self.stopped_watchdog(at),
            4 => self.hung_and_cut(at),
            5 => self.restarts_unheard(at),
            6 => self.gone_and_back(at),
            7 => self.agent_is_killed_while_closed(at),
            8..=9 => self.leader_hangs_over_a_close(at),
            10..=11 => self.moves_into_a_fault(at),
            12..=13 => self.armed_without_a_node(at),
            14 => self.by_hand_while_disarmed(at),
            15 => self.by_hand_while_ignored(at),
            16 => self.bad_way_to_the_store(at),
            17 => self.lagging_view(at),
            18 => self.shuts_down(at),
            _ => self.operator_fences(at),
        }
    }

    /// Adds late answers: heartbeats are applied, but their answers wait because the agents hang. When the agents
    /// resume, they are isolated; then they hang again, so that only the watchdog ends their services.
    fn late_answers(&mut self, at: Millis) -> Millis {
        let interval = self.cluster.timings.heartbeat_interval_ms;
        let latency = self.random_ms(interval / 3, interval * 12 / 25);
        self.add_action(at, format!("store latency {latency}ms"));
        let hangs = at + self.random_ms(4 * interval, 6 * interval);
        let end = hangs + self.valid_ms() + self.wait_ms() + self.random_ms(2_000, 10_000);
        for _ in 0..2 {
            self.late_answer(hangs, latency, end);
        }
        self.add_action(end, "store latency 0ms");
        end
    }

    fn late_answer(&mut self, earliest: Millis, latency: Millis, end: Millis) {
        let node = self.random_worker();
        let timings = self.cluster.timings;
        let hangs = earliest + self.random_ms(0, timings.heartbeat_interval_ms);
        self.add_action(hangs, format!("agent {node} hang"));
        // The agent hangs for the longest time after which it does not kill its services immediately.
        let most = timings.heartbeat_valid_ms - timings.heartbeat_interval_ms - timings.stop_margin_ms;
        let resumes = hangs + self.random_ms(most / 3, most);
        let cut = self.random_ms((hangs + latency).min(resumes), resumes);
        self.add_action(cut, format!("network {node} off"));
        self.add_action(resumes, format!("agent {node} resume"));
        if self.random.chance(0.8) {
            let again = resumes + self.random_ms(1, 100);
            self.add_action(again, format!("agent {node} hang"));
        }
        self.add_action(end, format!("network {node} on"));
        self.add_action(end, format!("agent {node} resume"));
    }

    /// Hangs an agent, and pauses its watchdog daemon between reading the clock and one of the last pets.
    fn stopped_watchdog(&mut self, at: Millis) -> Millis {
        let node = self.random_worker();
        self.add_action(at, format!("agent {node} hang"));
        let (valid, timeout) = (self.valid_ms(), self.cluster.timings.watchdog_timeout_ms);
        let stops = at + self.random_ms(valid.saturating_sub(timeout + 1_000), valid);
        let length = self.stop_of_a_watchdog_ms();
        self.add_action(stops, format!("watchdog {node} stop {length}ms"));
        let end = at + self.wait_ms() + self.random_ms(0, 30_000);
        self.add_action(end, format!("agent {node} resume"));
        end
    }

    /// Isolates a node, whose agent hangs before it has stopped anything; one of the two faults ends early.
    fn hung_and_cut(&mut self, at: Millis) -> Millis {
        let node = self.random_worker();
        self.add_action(at, format!("network {node} off"));
        let hangs = at + self.random_ms(0, self.valid_ms());
        self.add_action(hangs, format!("agent {node} hang"));
        let resumes = hangs + self.random_ms(0, self.wait_ms());
        let back = at + self.random_ms(self.valid_ms(), 2 * self.wait_ms());
        self.add_action(resumes, format!("agent {node} resume"));
        self.add_action(back, format!("network {node} on"));
        back.max(resumes)
    }

    /// Restarts an agent while it is isolated, and hangs it during the restart.
    fn restarts_unheard(&mut self, at: Millis) -> Millis {
        let node = self.random_worker();
        let verb = if self.random.chance(0.5) { "stop" } else { "restart" };
        let cut = at + self.random_ms(0, 400);
        let told = at + self.random_ms(0, 2_000);
        self.add_action(cut, format!("network {node} off"));
        self.add_action(told, format!("agent {node} {verb}"));
        if self.random.chance(0.8) {
            let hangs = told + self.random_ms(5, 1_000);
            self.add_action(hangs, format!("agent {node} hang"));
        }
        let end = at + self.wait_ms() + self.random_ms(1_000, 30_000);
        self.add_action(end, format!("network {node} on"));
        self.add_action(end, format!("agent {node} resume"));
        self.add_action(end + 3_000, format!("agent {node} start"));
        end
    }

    /// Loses a node, which returns around the time at which it is declared dead; some services crash.
    fn gone_and_back(&mut self, at: Millis) -> Millis {
        let node = self.random_worker();
        for _ in 0..self.random.below(3) {
            let resource = self.random_resource();
            let crashes = at + self.random_ms(0, self.valid_ms());
            self.add_action(crashes, format!("crash {resource}"));
        }
        let back = self.around_closing(at);
        if self.random.chance(0.3) {
            self.add_action(at, format!("power {node} off"));
            // A boot takes 5 s, so the power returns earlier.
            let on = back.saturating_sub(5_000).max(at + 1);
            self.add_action(on, format!("power {node} on"));
        } else {
            self.add_action(at, format!("network {node} off"));
            self.add_action(back, format!("network {node} on"));
        }
        if self.random.chance(0.3) {
            let again = back + self.random_ms(0, 2_000);
            self.add_action(again, format!("network {node} off"));
            let back = self.around_closing(again);
            self.add_action(back, format!("network {node} on"));
            return back;
        }
        back
    }

    fn agent_is_killed_while_closed(&mut self, at: Millis) -> Millis {
        let node = self.random_worker();
        self.add_action(at, format!("network {node} off"));
        let killed = self.around_closing(at);
        self.add_action(killed, format!("agent {node} kill"));
        let started = killed + self.random_ms(0, self.wait_ms());
        self.add_action(started, format!("agent {node} start"));
        let back = at + self.random_ms(0, 2 * self.wait_ms());
        self.add_action(back, format!("network {node} on"));
        back.max(started)
    }

    /// Hangs the leader while it closes a node's epoch. Another controller takes over, and the former leader continues
    /// its work.
    fn leader_hangs_over_a_close(&mut self, at: Millis) -> Millis {
        let node = self.random_worker();
        let dark = if self.random.chance(0.5) { ("power", "on") } else { ("network", "on") };
        self.add_action(at, format!("{} {node} off", dark.0));
        if self.random.chance(0.4) {
            let resource = self.random_resource();
            let target = self.random_worker();
            self.add_action(at, format!("relocate {resource} {target}"));
        }
        let hangs = at + self.random_ms(0, self.valid_ms() + 1_500);
        let verb = if self.random.chance(0.7) { ("hang", "resume") } else { ("kill", "start") };
        self.add_action(hangs, format!("controller leader {}", verb.0));
        if self.random.chance(0.3) {
            let length = self.random_ms(1_000, 8_000);
            self.add_action(hangs, format!("store flaky {length}ms"));
        }
        let resumes = hangs + self.random_ms(2_000, 2 * self.wait_ms());
        for controller in &self.cluster.nodes {
            self.add_action(resumes, format!("controller {controller} {}", verb.1));
        }
        let back = at + self.random_ms(self.valid_ms(), 2 * self.wait_ms());
        self.add_action(back, format!("{} {node} {}", dark.0, dark.1));
        back.max(resumes)
    }

    /// Moves services, and loses the source or the target during the moves.
    fn moves_into_a_fault(&mut self, at: Millis) -> Millis {
        let target = self.random_worker();
        for _ in 0..=self.random.below(3) {
            let resource = self.random_resource();
            let verb = if self.random.chance(0.6) { "migrate" } else { "relocate" };
            self.add_action(at, format!("{verb} {resource} {target}"));
        }
        let node = if self.random.chance(0.5) { target } else { self.random_worker() };
        let dies = at + self.random_ms(0, 9_000);
        let end = dies + self.random_duration_ms();
        let (begin, finish) = match self.random.below(5) {
            0 => ("power N off", "power N on"),
            1 => ("network N off", "network N on"),
            2 => ("agent N kill", "agent N start"),
            3 => ("agent N hang", "agent N resume"),
            _ => ("maintenance N enable", "maintenance N disable"),
        };
        self.add_action(dies, begin.replace('N', &node));
        self.add_action(end, finish.replace('N', &node));
        end
    }

    /// Disarms and arms the cluster while a node cannot receive one of the two.
    fn armed_without_a_node(&mut self, at: Millis) -> Millis {
        let node = self.random_worker();
        let how = if self.random.chance(0.7) { "freeze" } else { "ignore" };
        self.add_action(at, format!("disarm {how}"));
        let gone = at + self.random_ms(0, 8_000);
        let armed = gone + self.random_ms(0, 5_000);
        self.add_action(armed, "arm");
        let back = gone + self.random_ms(self.valid_ms(), 3 * self.wait_ms());
        let (begin, end) = match self.random.below(5) {
            0 => ("agent N kill", "agent N start"),
            1 => ("agent N hang", "agent N resume"),
            2 | 3 => ("network N off", "network N on"),
            _ => ("power N off", "power N on"),
        };
        self.add_action(gone, begin.replace('N', &node));
        if self.random.chance(0.3) {
            let hangs = gone + self.random_ms(0, self.valid_ms());
            self.add_action(hangs, format!("agent {node} hang"));
            self.add_action(back, format!("agent {node} resume"));
        }
        self.add_action(back, end.replace('N', &node));
        back
    }

    /// Lets an operator move, stop and start services by hand while the cluster is disarmed under Ignore.
    fn by_hand_while_disarmed(&mut self, at: Millis) -> Millis {
        self.add_action(at, "disarm ignore");
        let mut now = at + self.random_ms(3_000, 15_000);
        for _ in 0..=self.random.below(4) {
            self.by_hand(now, "cluster is Disarmed");
            now += self.random_ms(100, 6_000);
        }
        if self.random.chance(0.4) {
            let node = self.random_worker();
            self.add_action(now, format!("network {node} off"));
            let back = now + self.random_duration_ms();
            self.add_action(back, format!("network {node} on"));
        }
        self.add_action(now, "arm");
        now
    }

    fn by_hand_while_ignored(&mut self, at: Millis) -> Millis {
        let resource = self.random_resource();
        self.add_action(at, format!("set {resource} state=Ignored"));
        let mut now = at + self.random_ms(2_000, 8_000);
        let ignored = format!("service {resource} is Ignored");
        for _ in 0..=self.random.below(3) {
            self.one_by_hand(now, &resource, &ignored);
            now += self.random_ms(100, 6_000);
        }
        let wanted = if self.random.chance(0.8) { "Started" } else { "Stopped" };
        self.add_action(now, format!("set {resource} state={wanted}"));
        now
    }

    fn by_hand(&mut self, at: Millis, allowed: &str) {
        let resource = self.random_resource();
        self.one_by_hand(at, &resource, allowed);
    }

    fn one_by_hand(&mut self, at: Millis, resource: &str, allowed: &str) {
        let node = self.random_worker();
        let runs = format!("service {resource} running");
        let rests = format!("not service {resource} running");
        // On a node that is offline or was confirmed empty, nothing may be started by hand.
        let online = format!("node {node} is Online");
        match self.random.below(3) {
            0 => {
                self.add_action_if(at, &[allowed, &runs, &online], format!("move-by-hand {resource} {node}"));
            }
            1 => self.add_action_if(at, &[allowed, &runs], format!("stop-by-hand {resource}")),
            _ => self.add_action_if(
                at,
                &[allowed, &rests, &online],
                format!("start-by-hand {resource} {node}"),
            ),
        }
    }

    /// Loses or delays requests and answers, while a user sends contradictory commands.
    fn bad_way_to_the_store(&mut self, at: Millis) -> Millis {
        let length = self.random_ms(4_000, 25_000);
        self.add_action(at, format!("store flaky {length}ms"));
        for _ in 0..=self.random.below(5) {
            let when = at + self.random_ms(0, length);
            let later = when + self.random_ms(500, 8_000);
            self.command(when, later);
        }
        if self.random.chance(0.5) {
            let node = self.random_worker();
            let cut = at + self.random_ms(0, length);
            let back = self.around_closing(cut);
            self.add_action(cut, format!("network {node} off"));
            self.add_action(back, format!("network {node} on"));
        }
        at + length
    }

    /// Delays the view of a leader or an agent, while another node is lost or services move.
    fn lagging_view(&mut self, at: Millis) -> Millis {
        let length = self.random_ms(2_000, 2 * self.wait_ms());
        let lags = if self.random.chance(0.6) { "leader".to_owned() } else { self.random_worker() };
        self.add_action(at, format!("store lag {lags} {length}ms"));
        let node = self.random_worker();
        let cut = at + self.random_ms(0, length);
        let back = self.around_closing(cut);
        self.add_action(cut, format!("network {node} off"));
        self.add_action(back, format!("network {node} on"));
        let later = at + length;
        self.command(at, later);
        later.max(back)
    }

    /// Shuts down or reboots a machine cleanly, perhaps out of maintenance, perhaps with a power loss meanwhile.
    /// Another machine may then take its name.
    fn shuts_down(&mut self, at: Millis) -> Millis {
        let node = self.random_node();
        if self.random.chance(0.3) {
            self.add_action(at, format!("maintenance {node} enable"));
        }
        let goes = at + self.random_ms(0, 10_000);
        let end = goes + self.random_duration_ms();
        match self.random.below(4) {
            0..=1 => self.add_action(goes, format!("reboot {node}")),
            2 => self.add_action(goes, format!("shutdown {node}")),
            _ => {
                self.add_action(goes, format!("replace {node}"));
                let confirmed = goes + self.wait_ms() + self.random_ms(1_000, 30_000);
                self.add_action(confirmed, format!("confirm-fenced {node}"));
                self.replaced.push(node.clone());
            }
        }
        if self.random.chance(0.2) {
            self.add_action(goes + 1_500, format!("power {node} off"));
        }
        self.add_action(end, format!("power {node} on"));
        self.add_action(end, format!("maintenance {node} disable"));
        end
    }

    /// Lets an operator switch off a node, by its fence device or by hand, and confirm the fencing.
    fn operator_fences(&mut self, at: Millis) -> Millis {
        let node = match self.cluster.with_device.as_slice() {
            [] => self.random_worker(),
            devices => super::cluster::pick(self.random, devices),
        };
        let broken = self.random.chance(0.4);
        if broken {
            self.add_action(at, format!("fence-device {node} broken"));
        }
        let asks = at + self.random_ms(0, 5_000);
        let ends_fault = asks + self.random_duration_ms();
        if self.random.chance(0.5) {
            self.add_action(asks, format!("fence {node}"));
        } else {
            self.add_action(asks, format!("power {node} off"));
            let confirmed = asks + self.random_ms(self.valid_ms() / 2, self.wait_ms() + 5_000);
            self.add_action(confirmed, format!("confirm-fenced {node}"));
            let on = confirmed + self.random_ms(0, 20_000);
            self.add_action(on, format!("power {node} on"));
        }
        self.add_action(ends_fault, format!("fence-device {node} ok"));
        ends_fault
    }
}
