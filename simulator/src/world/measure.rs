//! Measurements of agents: the usage of a service is the load set by a step; without any load, nothing can be measured.

use super::World;
use super::machine::{Doing, Present};
use ha_api_types::id::{NodeName, ResourceName};
use ha_api_types::kind::Kind;
use ha_api_types::quantity::Quantity;
use ha_api_types::resource::{Resource, ServiceDefinition};
use ha_api_types::time::Mono;
use ha_api_types::usage::Usage;
use ha_node_agent::core::{Input, MeasureId, Measured, Meter, Sample};
use std::collections::BTreeMap;

impl World {
    /// Sets the usage of a service from now on. Values that are not given stay unchanged.
    pub(super) fn load(&mut self, resource: &ResourceName, usage: Usage) {
        let known = self.loads.entry(resource.to_owned()).or_default();
        *known = with_default(&usage, known);
    }

    /// Answers an agent's measurement of its machine, without delay.
    pub(super) fn measure(&mut self, node: &NodeName, id: MeasureId, services: &[ServiceDefinition]) {
        let now = self.clock_of(node);
        let measured = self.measured(node, now.raw, services);
        // The agent's effects are being collected, so it receives this input directly.
        if let Some(process) = self.agents.get_mut(node) {
            process.core.handle(&now, Input::Measured { id, measured });
        }
    }

    fn measured(&self, node: &NodeName, at: Mono, asked: &[ServiceDefinition]) -> Measured {
        let Some(machine) = self.machines.get(node).filter(|_| !self.loads.is_empty()) else {
            return Measured::default();
        };
        let runs = |(_, present): &(&ResourceName, &Present)| present.doing == Doing::Runs;
        let running: Vec<&ResourceName> =
            machine.services.iter().filter(runs).map(|(name, _)| name).collect();
        let is_asked = |name: &&&ResourceName| asked.iter().any(|service| service.name == ***name);
        let of_service = |name: &&ResourceName| Some(((*name).clone(), sample(at, self.loads.get(*name)?)));
        let services: BTreeMap<ResourceName, Sample> =
            running.iter().filter(is_asked).filter_map(of_service).collect();
        // A service without a load uses the amounts of its requests, so that the total of the machine can be measured.
        let total = running
            .iter()
            .map(|name| self.used_by(name))
            .fold(Usage::default(), |sum, one| sum_of(&sum, &one));
        let machine = (!services.is_empty()).then(|| sample(at, &total));
        Measured { machine, services }
    }

    fn used_by(&self, name: &ResourceName) -> Usage {
        let stored = self.spec_of(Kind::Resource, name);
        let resource: Option<Resource> = stored.and_then(|value| serde_json::from_value(value).ok());
        let requests = resource.map(|resource| resource.spec.requests).unwrap_or_default();
        let asked = Usage { cpu: requests.cpu, memory: requests.memory, ..Usage::default() };
        self.loads.get(name).map_or(asked, |load| with_default(load, &asked))
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

fn sum_of(one: &Usage, other: &Usage) -> Usage {
    let add = |one: Option<Quantity>, other: Option<Quantity>| match (one, other) {
        (None, only) | (only, None) => only,
        (Some(one), Some(other)) => Some(Quantity::from_milli(one.milli().saturating_add(other.milli()))),
    };
    Usage {
        cpu: add(one.cpu, other.cpu),
        memory: add(one.memory, other.memory),
        disk_rate: add(one.disk_rate, other.disk_rate),
        network_rate: add(one.network_rate, other.network_rate),
    }
}

fn sample(at: Mono, load: &Usage) -> Sample {
    let number = |amount: i128| u64::try_from(amount.max(0)).unwrap_or(u64::MAX);
    let rate = |rate: Option<Quantity>| rate.map(|rate| Meter::Rate(number(rate.units())));
    Sample {
        at,
        cpu: load.cpu.map(|cpu| Meter::Rate(number(cpu.milli().saturating_mul(1000)))),
        memory: load.memory.map(|memory| number(memory.units())),
        disk: rate(load.disk_rate),
        network: rate(load.network_rate),
    }
}
