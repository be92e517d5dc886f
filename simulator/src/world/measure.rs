//! Measurements of agents: the usage of a service is the load that a step has set. If no step has set a load,
//! measurements fail.

use super::World;
use super::machine::{Activity, ServiceCopy};
use ha_api_types::id::{NodeName, ResourceName};
use ha_api_types::kind::Kind;
use ha_api_types::quantity::Quantity;
use ha_api_types::resource::{Resource, ServiceDefinition};
use ha_api_types::time::MonotonicTime;
use ha_api_types::usage::Usage;
use ha_node_agent::core::{Input, Meter, Sample, UsageReadId, UsageReadings};
use std::collections::BTreeMap;

impl World {
    /// Sets the usage of a service from now on. Values that are not given stay unchanged.
    pub(super) fn load(&mut self, resource: &ResourceName, usage: Usage) {
        let load = self.service_loads.entry(resource.to_owned()).or_default();
        *load = with_default(&usage, load);
    }

    /// Answers an agent's measurement of its machine, without delay.
    pub(super) fn measure(&mut self, node: &NodeName, id: UsageReadId, services: &[ServiceDefinition]) {
        let now = self.clock_of(node);
        let measured = self.measured(node, now.monotonic_raw, services);
        // The loop is already collecting the effects of this agent, so the agent receives this input directly.
        if let Some(process) = self.agents.get_mut(node) {
            process.core.handle(&now, Input::UsageReadings { id, measured });
        }
    }

    fn measured(
        &self,
        node: &NodeName,
        time: MonotonicTime,
        requested: &[ServiceDefinition],
    ) -> UsageReadings {
        let Some(machine) = self.machines.get(node).filter(|_| !self.service_loads.is_empty()) else {
            return UsageReadings::default();
        };
        let runs = |(_, present): &(&ResourceName, &ServiceCopy)| present.activity == Activity::Runs;
        let running: Vec<&ResourceName> =
            machine.services.iter().filter(runs).map(|(name, _)| name).collect();
        let is_asked = |name: &&&ResourceName| requested.iter().any(|service| service.name == ***name);
        let service_sample =
            |name: &&ResourceName| Some(((*name).clone(), sample(time, self.service_loads.get(*name)?)));
        let services: BTreeMap<ResourceName, Sample> =
            running.iter().filter(is_asked).filter_map(service_sample).collect();
        // A service without a load uses the amounts of its requests, so it counts in the total of the machine.
        let total = running
            .iter()
            .map(|name| self.usage_of(name))
            .fold(Usage::default(), |sum, usage| usage_sum(&sum, &usage));
        let machine = (!services.is_empty()).then(|| sample(time, &total));
        UsageReadings { machine, services }
    }

    fn usage_of(&self, name: &ResourceName) -> Usage {
        let stored = self.spec_of(Kind::Resource, name);
        let resource: Option<Resource> = stored.and_then(|value| serde_json::from_value(value).ok());
        let requests = resource.map(|resource| resource.spec.requests).unwrap_or_default();
        let requested = Usage { cpu: requests.cpu, memory: requests.memory, ..Usage::default() };
        self.service_loads.get(name).map_or(requested, |load| with_default(load, &requested))
    }
}

fn with_default(usage: &Usage, default: &Usage) -> Usage {
    Usage {
        cpu: usage.cpu.or(default.cpu),
        memory: usage.memory.or(default.memory),
        disk_rate: usage.disk_rate.or(default.disk_rate),
        network_rate: usage.network_rate.or(default.network_rate),
    }
}

fn usage_sum(left: &Usage, right: &Usage) -> Usage {
    let add = |left: Option<Quantity>, right: Option<Quantity>| match (left, right) {
        (None, only) | (only, None) => only,
        (Some(left), Some(right)) => Some(Quantity::from_milli(left.milli().saturating_add(right.milli()))),
    };
    Usage {
        cpu: add(left.cpu, right.cpu),
        memory: add(left.memory, right.memory),
        disk_rate: add(left.disk_rate, right.disk_rate),
        network_rate: add(left.network_rate, right.network_rate),
    }
}

fn sample(time: MonotonicTime, load: &Usage) -> Sample {
    let unsigned = |amount: i128| u64::try_from(amount.max(0)).unwrap_or(u64::MAX);
    let rate = |rate: Option<Quantity>| rate.map(|rate| Meter::Rate(unsigned(rate.units())));
    Sample {
        at: time,
        cpu: load.cpu.map(|cpu| Meter::Rate(unsigned(cpu.milli().saturating_mul(1000)))),
        memory: load.memory.map(|memory| unsigned(memory.units())),
        disk: rate(load.disk_rate),
        network: rate(load.network_rate),
    }
}
