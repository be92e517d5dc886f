//! Whether some node could take a service now, found out without the scheduler: from the objects and what runs.

use crate::world::World;
use ha_api_types::kind::Kind;
use ha_api_types::placement::{Affinity, AffinityRule};
use ha_api_types::resource::Resource;
use serde_json::Value;
use std::collections::BTreeMap;

impl World {
    /// A node that is up and may take the service as things are; `None`: there is none. Conservative: a node that only a
    /// move of another service would free does not count.
    pub(super) fn feasible_node(&self, name: &str, resource: &Resource) -> Option<String> {
        let rules = self.rules_in_force();
        let running = self.running();
        self.machines.keys().find(|node| self.may_take(node, name, resource, &rules, &running)).cloned()
    }

    fn may_take(
        &self,
        node: &str,
        name: &str,
        resource: &Resource,
        rules: &[AffinityRule],
        running: &BTreeMap<String, Vec<String>>,
    ) -> bool {
        let spec = self.spec_of(Kind::Node, node).unwrap_or_default();
        let is = |field: &str| spec.pointer(&format!("/spec/{field}")).and_then(Value::as_bool);
        if !self
            .machines
            .get(node)
            .is_some_and(|machine| machine.up && (machine.is_guarded() || !resource.spec.exclusive))
            || is("maintenance") == Some(true)
            || is("schedulable") == Some(false)
        {
            return false;
        }
        let simulated = resource.spec.driver.simulated.clone().unwrap_or_default();
        if simulated.missing.iter().any(|missing| missing == node) {
            return false;
        }
        let runs_at = |other: &str| running.get(other).into_iter().flatten();
        let mut by_partners = World::partners(rules, name).map(|(_, about, others)| match about.affinity {
            Affinity::Negative => !others.iter().any(|other| runs_at(other).any(|at| at == node)),
            Affinity::Positive => others.iter().all(|other| runs_at(other).all(|at| at == node)),
        });
        if !self.kept_off(rules, name, node).is_empty() || !by_partners.all(|allowed| allowed) {
            return false;
        }
        let others: Vec<String> = running
            .iter()
            .filter(|(other, nodes)| *other != name && nodes.iter().any(|at| at == node))
            .map(|(other, _)| other.clone())
            .collect();
        self.lacking(resource, node, &others).is_empty()
    }
}
