//! Tests of usage measurement: the figures have a separate key and are rarely written.

use super::*;
use ha_api_types::id::{Epoch, ResourceName};
use ha_api_types::quantity::Quantity;
use ha_api_types::record::UsageReport;

impl World {
    fn usage(&self) -> Option<UsageReport> {
        self.value(&self.keys.usage_report(&own_node()))
    }

    /// Returns how often the usage report was written.
    fn count_usage_writes(&self) -> usize {
        let key = self.keys.usage_report(&own_node());
        self.commits.iter().filter(|(transaction, _)| transaction.writes().contains_key(&key)).count()
    }

    pub(super) fn measure(&mut self, id: UsageReadId, services: &[ServiceDefinition]) {
        if self.measuring_hangs {
            return;
        }
        self.readings += 1;
        let sample = |(cpu, memory): (u64, u64)| Sample {
            at: MonotonicTime(self.now_ms),
            cpu: Some(Meter::Rate(cpu * 1000)),
            memory: Some(memory << 20),
            ..Sample::default()
        };
        let read =
            |service: &ServiceDefinition| Some((service.name.clone(), *self.loads.get(&service.name)?));
        let load_of_services: BTreeMap<ResourceName, (u64, u64)> = services.iter().filter_map(read).collect();
        let total_load =
            load_of_services.values().copied().reduce(|sum, load| (sum.0 + load.0, sum.1 + load.1));
        let measured = UsageReadings {
            machine: total_load.map(sample),
            services: load_of_services.into_iter().map(|(name, load)| (name, sample(load))).collect(),
        };
        self.input(Input::UsageReadings { id, measured });
    }

    /// Sets the usage that is read from now on: milli-cores and MiB of memory.
    fn set_load(&mut self, name: &str, cpu: u64, memory: u64) {
        self.loads.insert(name.into(), (cpu, memory));
    }

    fn cpu_of(&self, name: &str) -> Option<i128> {
        self.usage()?.services.get(name)?.usage.cpu.map(Quantity::milli)
    }
}

#[test]
fn only_significant_usage_changes_are_written() {
    let mut world = World::running();
    let node_report = world.state.get(&world.keys.node_report(&own_node())).entries[0].mod_revision;
    world.advance(120_000);
    assert_eq!(world.usage(), None, "nothing could be measured");
    world.set_load("web", 2000, 4096);
    world.advance(16_000);
    let written = world.usage().expect("the usage was written");
    assert_eq!(written.services["web"].usage.memory, Some(Quantity::from_units(4 << 30)));
    assert_eq!(world.cpu_of("web"), Some(2000));
    assert_eq!(written.node.cpu, Some(Quantity::from_milli(2000)));
    assert_eq!((written.epoch, written.boot_id.as_str()), (Epoch(1), "boot-1"));
    world.set_load("web", 2100, 4100);
    world.advance(120_000);
    assert_eq!(
        (world.cpu_of("web"), world.count_usage_writes()),
        (Some(2000), 1),
        "the change is too small for a write"
    );
    world.set_load("web", 3000, 4100);
    world.advance(16_000);
    assert_eq!((world.cpu_of("web"), world.count_usage_writes()), (Some(3000), 2));
    let memory = world.usage().expect("written").services["web"].usage.memory;
    assert_eq!(memory, Some(Quantity::from_units(4100 << 20)), "all figures are of one time");
    // Permits guard the node's report, so it must not change for the measurement.
    assert_eq!(world.state.get(&world.keys.node_report(&own_node())).entries[0].mod_revision, node_report);
}

#[test]
fn usage_is_written_once_per_interval() {
    let mut world = World::running();
    for round in 0..40 {
        world.set_load("web", if round % 2 == 0 { 500 } else { 4000 }, 100);
        world.advance(15_000);
    }
    assert!(
        (10..=21).contains(&world.count_usage_writes()),
        "{} writes in ten minutes",
        world.count_usage_writes()
    );
}

#[test]
fn old_usage_reports_include_small_changes() {
    let mut world = World::running();
    world.advance(80_000);
    world.set_load("web", 2000, 4096);
    world.advance(16_000);
    world.set_load("web", 2100, 4096);
    world.advance(560_000);
    assert_eq!(world.cpu_of("web"), Some(2000));
    world.advance(60_000);
    assert_eq!((world.cpu_of("web"), world.count_usage_writes()), (Some(2100), 2));
}

#[test]
fn usage_of_stopped_service_is_not_reported() {
    let mut world = World::running();
    world.set_load("web", 2000, 4096);
    world.advance(16_000);
    assert_eq!(world.cpu_of("web"), Some(2000));
    world.assign("web", Action::Stop { timeout_ms: Some(0) });
    world.advance(16_000);
    assert_eq!(world.cpu_of("web"), None, "the end of a service is reported immediately");
}

#[test]
fn end_of_an_unmeasured_service_is_reported() {
    let mut world = World::running();
    world.create_resource("db");
    world.assign("db", Action::Start);
    world.set_load("web", 2000, 4096);
    world.advance(16_000);
    let reported_services =
        |world: &World| world.usage().expect("written").services.into_keys().collect::<Vec<_>>();
    assert_eq!(reported_services(&world), ["db", "web"], "the machine's figures include both services");
    assert_eq!(world.cpu_of("db"), None);
    world.assign("db", Action::Stop { timeout_ms: Some(0) });
    world.advance(16_000);
    assert_eq!(reported_services(&world), ["web"], "the machine's figures no longer include db");
}

#[test]
fn usage_is_written_again_once_rates_exclude_an_ended_service() {
    let mut world = World::running();
    world.create_resource("db");
    world.assign("db", Action::Start);
    world.set_load("web", 2000, 4096);
    world.advance(80_000);
    world.assign("db", Action::Stop { timeout_ms: Some(0) });
    world.advance(16_000);
    world.set_load("web", 1900, 4096);
    world.advance(75_000);
    assert_eq!(world.cpu_of("web"), Some(1900), "a small change is written after the window of the rates");
    world.set_load("web", 2000, 4096);
    world.advance(300_000);
    assert_eq!(world.cpu_of("web"), Some(1900), "later, a small change is not written soon");
}

#[test]
fn unreadable_usage_is_not_reported() {
    let mut world = World::running();
    world.set_load("web", 2000, 4096);
    world.advance(16_000);
    world.measuring_hangs = true;
    world.advance(40_000);
    assert_eq!(world.cpu_of("web"), Some(2000), "a reading may be late");
    world.advance(60_000);
    assert_eq!(world.cpu_of("web"), None);
}

#[test]
fn new_epoch_starts_new_usage_measurement() {
    let mut world = World::running();
    world.set_load("web", 2000, 4096);
    world.advance(16_000);
    world.restart_agent("boot-2");
    world.copies.clear();
    world.advance(500);
    world.open_epoch();
    world.advance(20_000);
    let written = world.usage().expect("of the epoch before, or of this one");
    assert_eq!(
        (written.epoch, written.boot_id.as_str()),
        (Epoch(1), "boot-1"),
        "an idle machine measures nothing here"
    );
    world.assign("web", Action::Start);
    world.advance(20_000);
    let written = world.usage().expect("written");
    assert_eq!((written.epoch, written.boot_id.as_str()), (Epoch(2), "boot-2"));
    assert_eq!(world.cpu_of("web"), Some(2000));
}

#[test]
fn failed_usage_writes_are_retried_later() {
    let mut world = World::running();
    let readings_before = world.readings;
    while world.readings == readings_before {
        world.advance(100);
    }
    world.advance(14_000);
    world.set_load("web", 2000, 4096);
    world.network = NetworkFault::Down;
    world.advance(2_000);
    assert_eq!((world.readings, world.count_usage_writes()), (readings_before + 2, 1));
    world.network = NetworkFault::Up;
    world.deliver();
    world.advance(16_000);
    assert_eq!((world.cpu_of("web"), world.count_usage_writes()), (Some(2000), 2));
}

#[test]
fn usage_measurement_delays_no_due_work() {
    let mut world = World::running();
    let deadline = loop {
        let (at, wake_reason) = world.core.deadline().expect("heartbeats are due again and again");
        if wake_reason.contains("heartbeat") {
            break at;
        }
        world.now_ms = at.0;
        world.input(Input::Tick);
    };
    world.now_ms = deadline.0 + 1;
    let commits = world.commits.len();
    world.input(Input::UsageReadings { id: UsageReadId(0), measured: UsageReadings::default() });
    assert_eq!(world.commits.len(), commits + 1, "the heartbeat");
}
