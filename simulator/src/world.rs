//! The simulated world: machines, processes, etcd, and the script of faults.

mod acts;
mod by_hand;
mod commands;
mod driver;
mod dump;
mod event;
mod fence_device;
mod history;
mod hold;
mod interactive;
mod invariants;
mod leaving;
mod link;
mod machine;
mod measure;
pub(crate) mod network;
mod notifications;
mod power;
pub(crate) mod process;
pub mod recorded;
mod rules;
mod run;
mod slow_driver;
mod startup;
mod steps;
mod store_place;
mod user;
mod version;
mod vocabulary;
mod watchdog;

pub use interactive::{MachineState, ProcessState};
pub use invariants::Violation;
pub(crate) use machine::{boot_id, controller_url, machine_id, product_id};

use crate::clock::Clock;
use crate::queue::{Queue, QueuePosition};
use crate::random::Random;
use crate::report::Check;
use crate::scenario::action::{FenceDeviceCondition, PetBehavior};
use crate::scenario::{Power, Scenario};
use crate::vocabulary::Vocabulary;
use event::Event;
use ha_api_types::id::{ControllerId, Epoch, NodeName, ResourceName};
use ha_api_types::keys::Keys;
use ha_api_types::node::NodeState;
use ha_api_types::reason::Reason;
use ha_api_types::resource::ServiceState;
use ha_api_types::time::Millis;
use ha_api_types::timing::Timings;
use ha_api_types::usage::Usage;
use ha_controller::core::combined_controller::CombinedController;
use ha_node_agent::core::{AgentCore, Journal};
use ha_node_agent::watchdog::core::Core as WatchdogCore;
use ha_node_agent::watchdog::protocol::Privileges;
use ha_store::memory_state::MemoryState;
use interactive::{StoredEvents, UserCommit};
use machine::{Machine, Watchdog};
use process::Process;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

/// Cluster name in etcd keys.
const CLUSTER: &str = "default";
/// Interval at which a process reads all keys again, in milliseconds.
const RELIST_INTERVAL_MS: Millis = 60_000;
/// Compaction interval of etcd and length of the history kept, in milliseconds: the setting that the installation guide
/// recommends.
const COMPACT_INTERVAL_MS: Millis = 300_000;

/// A move of a service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Move {
    /// Name of the service.
    pub service: ResourceName,
    /// Kind of the move: Migrate or Relocate.
    pub kind: ServiceState,
    /// Source node.
    pub from: NodeName,
    /// Target node.
    pub to: NodeName,
    /// Virtual time in milliseconds at which the service ran on the target.
    pub at: Millis,
}

/// A failover: a service was lost with its node and ran again on another node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failover {
    /// Name of the service.
    pub service: ResourceName,
    /// The lost node.
    pub from: NodeName,
    /// Node on which the service ran again.
    pub to: NodeName,
    /// `true` if the leader ran on the lost node.
    pub from_leader: bool,
    /// Virtual time in milliseconds at which the service stopped running on the lost node.
    pub lost_at: Millis,
    /// Virtual time in milliseconds at which the service ran again.
    pub running_at: Millis,
    /// Virtual time in milliseconds at which the last heartbeat of the lost node was applied.
    pub heartbeat_at: Millis,
    /// Virtual time in milliseconds at which the start on the other node was permitted.
    pub permitted_at: Millis,
}

/// A service that stopped running.
#[derive(Clone, Debug)]
struct LostService {
    /// Node on which the service ran.
    from: NodeName,
    /// `true` if the controller of that node was the leader at that time.
    from_leader: bool,
    at: Millis,
}

/// The whole state of a simulation.
///
/// ```
/// use ha_simulator::{scenario::Scenario, world::World};
///
/// let text = "
/// nodes: [{name: node1}, {name: node2}, {name: node3}]
/// objects: [{kind: Resource, metadata: {name: web}, spec: {driver: {simulated: {}}}}]
/// place: {web: {node: node1, running: true}}
/// steps: [{at: 20s, do: power node1 off}]
/// expect: {services: {web: {state: Started, running: true}}, fenced: [node1]}";
/// let scenario = Scenario::parse("web.yaml", text, std::path::Path::new(".")).unwrap();
/// let mut world = World::new(scenario).unwrap();
/// world.run();
/// assert!(world.has_passed() && world.failovers()[0].from == "node1");
/// ```
#[derive(Debug)]
pub struct World {
    pub(crate) scenario: Scenario,
    pub(crate) now: Millis,
    /// World time of the scenario's time 0; `None` while the cluster is still forming.
    pub(crate) begun_at: Option<Millis>,
    pub(crate) violations: Vec<Violation>,
    pub(crate) checks: Vec<Check>,
    pub(crate) fenced: Vec<(NodeName, Millis)>,
    pub(crate) moves: Vec<Move>,
    pub(crate) failovers: Vec<Failover>,
    pub(crate) service_states: BTreeMap<ResourceName, (ServiceState, Option<NodeName>)>,
    pub(crate) node_states: BTreeMap<NodeName, NodeState>,
    pub(crate) machines: BTreeMap<NodeName, Machine>,
    pub(crate) timeline: Vec<String>,
    /// Reason and subject of every event so far.
    pub(crate) emitted_events: BTreeSet<(Reason, String)>,
    /// Words that users could read; `None` if they are not collected.
    vocabulary: Option<Box<Vocabulary>>,
    /// Recording of every step; `None` if steps are not recorded.
    recorded: Option<Box<recorded::Recording>>,
    pub(crate) keys: Keys,
    queue: Queue<Event>,
    random: Random,
    pub(crate) store: MemoryState,
    /// Content of `store` at the last backup.
    backup: Option<MemoryState>,
    /// Content that etcd has after its outage; `None`: its content at the start of the outage.
    pending_restore: Option<MemoryState>,
    store_down_until: Millis,
    /// `true` if processes of the next version have written to etcd.
    has_next_version: bool,
    store_leader: Option<NodeName>,
    deposed_etcd_leader: Option<store_place::DeposedLeader>,
    store_latency_ms: Millis,
    /// Virtual time until which requests and answers are lost or delayed.
    store_flaky_until: Millis,
    /// Virtual time until which the watches of a node's processes are delayed.
    watch_lag_until: BTreeMap<NodeName, Millis>,
    agents: BTreeMap<NodeName, Process<AgentCore>>,
    controllers: BTreeMap<NodeName, Process<CombinedController>>,
    deferred_events: Vec<(NodeName, Event)>,
    /// Cut network links.
    network: network::Network,
    /// Requests of agents for grants of hold.
    hold_requests: hold::HoldRequests,
    generation_count: u64,
    token_count: u64,
    uid_count: u64,
    watchdog_lateness_ms: Millis,
    /// Usage of each service, where a step has set it.
    service_loads: BTreeMap<ResourceName, Usage>,
    start_failures: BTreeMap<ResourceName, u32>,
    migrate_failures: BTreeMap<ResourceName, u32>,
    replace_failures: BTreeMap<ResourceName, u32>,
    operations: BTreeMap<String, String>,
    notified: Vec<String>,
    refused_commands: Vec<(String, Option<String>)>,
    /// Reasons for which commands were refused immediately.
    refusal_reasons: BTreeMap<String, Reason>,
    reported_doubles: BTreeSet<ResourceName>,
    reported_overruns: BTreeSet<(&'static str, NodeName, ResourceName)>,
    /// Specs whose write was confirmed to the user, by key, and whether a deletion was requested.
    acknowledged: BTreeMap<String, (Option<Value>, bool)>,
    /// Last assigned node of each service.
    assigned_nodes: BTreeMap<ResourceName, NodeName>,
    rules_changed_at: Millis,
    /// Time at which each node's last heartbeat was applied.
    last_heartbeat_at: BTreeMap<NodeName, Millis>,
    /// Time of the last change of each controller's keys.
    refreshed_at: BTreeMap<ControllerId, Millis>,
    /// Time of each node's last report about a service.
    last_report_at: BTreeMap<NodeName, Millis>,
    /// Time at which a start of a service on a node was last permitted.
    permit_times: BTreeMap<(ResourceName, NodeName), Millis>,
    managed_services: BTreeSet<ResourceName>,
    /// Time at which a running service was last found on a node by a probe.
    found_running_at: BTreeMap<NodeName, Millis>,
    /// Services whose status shows no action in progress.
    settled_services: BTreeSet<ResourceName>,
    node_epochs: BTreeMap<NodeName, Epoch>,
    moves_in_progress: BTreeMap<ResourceName, (ServiceState, NodeName, Millis)>,
    lost_services: BTreeMap<ResourceName, LostService>,
    recovering_services: BTreeSet<ResourceName>,
    fencing_nodes: BTreeSet<NodeName>,
    step: usize,
    step_begun_at: Millis,
    /// Position of the next step in the queue; `None` while no step has been scheduled. A step that a user gives later takes
    /// this position, so that a replay handles all events in the same order.
    next_step_position: Option<QueuePosition>,
    /// The transaction that the next step writes, with its guards, and its outcome; `None` if no user is connected.
    user_commit: Option<UserCommit>,
    /// Error of the last refused step.
    last_refusal: Option<String>,
    /// Events; `None` if no user reads them.
    events: Option<StoredEvents>,
}

impl World {
    /// Creates the world of a scenario at time 0.
    ///
    /// Errors: the scenario is invalid.
    pub fn new(scenario: Scenario) -> Result<World, String> {
        let mut world = World::before_start(scenario);
        world.begin()?;
        Ok(world)
    }

    /// Creates a world before its first event: every machine is down, and etcd is empty.
    fn before_start(scenario: Scenario) -> World {
        let mut random = Random::new(scenario.seed);
        let timings = Timings::from(&scenario.timing);
        let mut machines = BTreeMap::new();
        for machine in &scenario.nodes {
            // Clocks start at random times, so code that compares the clocks of two machines fails.
            let mut clock = Clock::new(0, random.draw_between_ms(1_000, 1_000_000_000));
            clock.set_wall(scenario.wall_ms);
            machines.insert(
                machine.name.clone(),
                Machine {
                    is_up: false,
                    is_powered: machine.power == Power::On,
                    shutdown_in_progress: None,
                    hardware_number: 0,
                    disk_copy: 0,
                    clone_of: machine.clone_of.clone(),
                    sleep: machine.sleep,
                    has_drivers: true,
                    drivers: machine.drivers.clone(),
                    policy: machine.policy.clone(),
                    is_virtual: machine.is_virtual,
                    device: machine.watchdog,
                    fence_devices: FenceDeviceCondition::Works,
                    is_storage_isolated: false,
                    agent_restarts: false,
                    controller_restarts: false,
                    plan_ms: 0,
                    watchdog_expired: false,
                    boot: 0,
                    network: true,
                    is_suspended: false,
                    has_controller: machine.has_controller,
                    capacity: machine.capacity,
                    clock,
                    watchdog: Watchdog {
                        daemon: WatchdogCore::new(Privileges::default()),
                        has_exited: false,
                        saved: None,
                        is_open: false,
                        pets: PetBehavior::Accept,
                        timeout_seconds: 1,
                        fires_at: None,
                        next_check_at: None,
                        number: 0,
                        waiting: BTreeMap::new(),
                        wake_at: None,
                        stops_for_ms: None,
                        stopped: None,
                        opened_to_start_at: None,
                    },
                    services: BTreeMap::new(),
                    commands: BTreeMap::new(),
                    journal: Journal::default(),
                    journal_at_boot: Journal::default(),
                    agent_version: version::Version::default(),
                    controller_version: version::Version::default(),
                    driver_delays_ms: BTreeMap::new(),
                    driver_requests: BTreeMap::new(),
                    autostart: BTreeMap::new(),
                    started_by_boot: BTreeSet::new(),
                    is_disk_full: false,
                    drivers_hang: false,
                    resets: Vec::new(),
                    bound: invariants::Bound::default(),
                },
            );
        }
        World {
            now: 0,
            begun_at: None,
            violations: Vec::new(),
            checks: Vec::new(),
            fenced: Vec::new(),
            moves: Vec::new(),
            failovers: Vec::new(),
            service_states: BTreeMap::new(),
            node_states: BTreeMap::new(),
            machines,
            timeline: Vec::new(),
            emitted_events: BTreeSet::new(),
            vocabulary: None,
            recorded: None,
            keys: Keys::new(CLUSTER),
            queue: Queue::default(),
            random,
            store: MemoryState::default(),
            backup: None,
            pending_restore: None,
            store_down_until: 0,
            has_next_version: false,
            store_leader: None,
            deposed_etcd_leader: None,
            store_latency_ms: 0,
            store_flaky_until: 0,
            watch_lag_until: BTreeMap::new(),
            agents: BTreeMap::new(),
            controllers: BTreeMap::new(),
            deferred_events: Vec::new(),
            network: network::Network::default(),
            hold_requests: hold::HoldRequests::default(),
            generation_count: 0,
            token_count: 0,
            uid_count: 0,
            watchdog_lateness_ms: timings.watchdog_lateness_ms,
            service_loads: BTreeMap::new(),
            start_failures: BTreeMap::new(),
            migrate_failures: BTreeMap::new(),
            replace_failures: BTreeMap::new(),
            operations: BTreeMap::new(),
            notified: Vec::new(),
            refused_commands: Vec::new(),
            refusal_reasons: BTreeMap::new(),
            reported_doubles: BTreeSet::new(),
            reported_overruns: BTreeSet::new(),
            acknowledged: BTreeMap::new(),
            assigned_nodes: BTreeMap::new(),
            rules_changed_at: 0,
            last_heartbeat_at: BTreeMap::new(),
            refreshed_at: BTreeMap::new(),
            last_report_at: BTreeMap::new(),
            permit_times: BTreeMap::new(),
            managed_services: BTreeSet::new(),
            settled_services: BTreeSet::new(),
            node_epochs: BTreeMap::new(),
            found_running_at: BTreeMap::new(),
            moves_in_progress: BTreeMap::new(),
            lost_services: BTreeMap::new(),
            recovering_services: BTreeSet::new(),
            fencing_nodes: BTreeSet::new(),
            step: 0,
            step_begun_at: 0,
            next_step_position: None,
            user_commit: None,
            last_refusal: None,
            events: None,
            scenario,
        }
    }

    /// Runs the steps. The run then continues until no action was pending for `settle`, or until `duration` has passed.
    pub fn run(&mut self) {
        let end_ms = self.now.saturating_add(self.scenario.duration.0);
        let settle = self.scenario.settle.0;
        let mut quiet_since = None;
        while self.now < end_ms {
            let slice_end_ms = (self.now + 1_000).min(end_ms);
            while self.advance(slice_end_ms) {}
            if self.is_pending() || self.misses_required_leader() {
                quiet_since = None;
            } else {
                let quiet_start_ms = *quiet_since.get_or_insert(self.now);
                if self.now - quiet_start_ms >= settle {
                    break;
                }
            }
        }
        if let Some(remaining_steps) =
            self.scenario.steps.len().checked_sub(self.step).filter(|remaining_steps| *remaining_steps > 0)
        {
            let actual =
                format!("{remaining_steps} steps remained at {} s", self.elapsed_ms(end_ms) as f64 / 1000.0);
            self.checks.push(Check {
                check: "every step is reached within `duration`".to_owned(),
                ok: false,
                actual,
            });
        }
        self.record_explanations();
        self.check_expectations();
        if self.scenario.expect.requires_progress {
            self.check_progress();
        }
    }

    /// Returns `true` if no controller is leader, in a scenario that requires progress. A leader whose keep-alives were
    /// lost may be replaced in the last moment of the run.
    fn misses_required_leader(&self) -> bool {
        self.scenario.expect.requires_progress && self.leader().is_none()
    }

    /// Returns the failovers so far.
    pub fn failovers(&self) -> &[Failover] {
        &self.failovers
    }

    /// Returns the virtual time since time 0, in milliseconds.
    pub fn simulated_ms(&self) -> Millis {
        self.elapsed_ms(self.now)
    }

    /// Converts a world time to the time since the scenario's time 0.
    pub(crate) fn elapsed_ms(&self, at: Millis) -> Millis {
        at.saturating_sub(self.begun_at.unwrap_or(at))
    }

    /// Records that a service no longer runs on a node.
    fn record_lost_service(&mut self, node: &NodeName, name: &ResourceName) {
        let from_leader = self.leader().as_deref() == Some(node);
        let failed_service = LostService { from: node.to_owned(), from_leader, at: self.now };
        self.lost_services.insert(name.to_owned(), failed_service);
    }

    /// Records that a service's node has failed, so that its next start on another node counts as a failover.
    fn record_recovery(&mut self, name: &ResourceName, node: Option<&NodeName>) {
        let Some(node) = node else { return };
        self.recovering_services.insert(name.to_owned());
        if self.lost_services.get(name).is_none_or(|failed_service| failed_service.from != *node) {
            self.record_lost_service(node, name);
        }
    }

    /// Records that a service has started to run on a node.
    fn record_started(&mut self, node: &NodeName, name: &ResourceName) {
        let failed_service = self.lost_services.remove(name);
        if let (true, Some(failed_service)) = (self.recovering_services.remove(name), failed_service)
            && failed_service.from != *node
        {
            let from = failed_service.from;
            let permitted = self.permit_times.get(&(name.to_owned(), node.to_owned()));
            let failover = Failover {
                service: name.to_owned(),
                to: node.to_owned(),
                from_leader: failed_service.from_leader,
                lost_at: failed_service.at,
                running_at: self.now,
                heartbeat_at: self.last_heartbeat_at.get(&from).copied().unwrap_or_default(),
                permitted_at: permitted.copied().unwrap_or_default(),
                from,
            };
            self.failovers.push(failover);
        }
        self.log(node, "driver", &format!("{name} runs"));
    }

    /// Appends a line to the timeline: time, node, component, text.
    fn log(&mut self, node: &NodeName, component: &str, text: &str) {
        // Events before time 0 form the cluster and are not part of the scenario.
        let Some(began) = self.begun_at else { return };
        let elapsed_ms = self.now.saturating_sub(began);
        let seconds = elapsed_ms / 1000;
        let ms = elapsed_ms % 1000;
        self.timeline.push(format!("{seconds:>6}.{ms:03} {node:<8} {component:<10} {text}"));
    }
}
