//! The verdict on the failure of each node, kept current: after a change, only failures whose proof is no longer valid
//! are checked again.

use super::model::{Model, Service};
use super::verdict::{CaseVerdict, Placed};
use super::{MAX_SEARCH_STEPS, Verdict};
use crate::view::{ServiceFacts, View};
use ha_api_types::id::{NodeName, ResourceName};
use std::collections::{BTreeMap, BTreeSet};

/// Verdicts on the failure of each single node.
///
/// Guarantees: each returned verdict is valid for the latest view. The cost of an update is bounded by the size of
/// the view, and the cost of [`VerdictCache::compute_missing`] by the allowed effort.
#[derive(Clone, Debug)]
pub struct VerdictCache {
    model: Model,
    /// Verdict by node; `None` if it has to be computed.
    cases: Vec<Option<CaseVerdict>>,
    /// For each node, the failures whose proof places a service on the node or removes one from it.
    dependents: Vec<BTreeSet<u32>>,
    /// Failures without a verdict.
    missing: BTreeSet<u32>,
}

impl Default for VerdictCache {
    fn default() -> VerdictCache {
        VerdictCache::new(View::default())
    }
}

impl VerdictCache {
    /// Creates a cache without verdicts.
    pub fn new(view: View) -> VerdictCache {
        let model = Model::of(view);
        let count = model.nodes.len();
        VerdictCache {
            model,
            cases: vec![None; count],
            dependents: vec![BTreeSet::new(); count],
            missing: (0..).take(count).collect(),
        }
    }

    /// Updates the cache to a new view. If only services have changed, the affected proofs are checked. Otherwise all
    /// proofs are checked, and valid proofs are kept.
    pub fn update(&mut self, view: View) {
        let current = &self.model.view;
        let is_same_cluster = current.nodes == view.nodes
            && current.groups == view.groups
            && current.node_groups == view.node_groups
            && current.rules == view.rules
            && current.settings == view.settings
            && current.reservation == view.reservation;
        if !is_same_cluster {
            self.rebuild(view);
            return;
        }
        let changed = changed_services(&current.services, &view.services);
        self.model.view.services = view.services;
        self.recheck(&changed);
    }

    /// Updates one service; `None` removes it.
    pub fn on_service_changed(&mut self, name: &ResourceName, facts: Option<ServiceFacts>) {
        match facts {
            Some(facts) => drop(self.model.view.services.insert(name.to_owned(), facts)),
            None => drop(self.model.view.services.remove(name)),
        }
        self.recheck(&BTreeSet::from([name.to_owned()]));
    }

    /// Computes missing verdicts until about `effort` candidates were examined. Returns `true` if no verdict is missing.
    pub fn compute_missing(&mut self, effort: u64) -> bool {
        let mut remaining_effort = effort;
        while remaining_effort > 0
            && let Some(node) = self.missing.pop_first()
        {
            let (verdict, steps) = self.model.compute_verdict(&[node], MAX_SEARCH_STEPS);
            remaining_effort = remaining_effort.saturating_sub(steps + 1);
            self.set_verdict(node, Some(verdict));
        }
        self.missing.is_empty()
    }

    /// Returns `true` if every failure has a verdict.
    pub fn is_complete(&self) -> bool {
        self.missing.is_empty()
    }

    /// Returns the number of failures without a verdict.
    pub fn missing_count(&self) -> usize {
        self.missing.len()
    }

    /// Returns the verdict on each node that has one, by name.
    pub fn verdicts(&self) -> impl Iterator<Item = (&NodeName, Verdict)> {
        let cases = self.model.nodes.iter().zip(&self.cases);
        cases.filter_map(|(node, case)| Some((&node.name, self.model.with_names(case.clone()?))))
    }

    /// Returns the verdicts other than *survives*, by node.
    pub fn not_survived(&self) -> impl Iterator<Item = (&NodeName, &Verdict)> {
        self.model.nodes.iter().zip(&self.cases).filter_map(|(node, case)| match case {
            Some(CaseVerdict::Other(verdict)) => Some((&node.name, verdict)),
            Some(CaseVerdict::Survives(_)) | None => None,
        })
    }

    fn rebuild(&mut self, view: View) {
        let before = std::mem::replace(self, VerdictCache::new(view));
        for (node, case) in before.model.nodes.iter().zip(before.cases) {
            let (Some(CaseVerdict::Survives(placed)), Some(number)) =
                (case, self.model.node_number(&node.name))
            else {
                continue;
            };
            let translated = placed.iter().map(|placed| {
                Some(Placed {
                    service: self.model.service_number(&before.model.service(placed.service).name)?,
                    to: self.model.node_number(&before.model.node(placed.to).name)?,
                    is_preempted: placed.is_preempted,
                })
            });
            if let Some(placed) = translated.collect::<Option<Vec<Placed>>>()
                && self.model.is_still_valid(&[number], &placed)
            {
                self.missing.remove(&number);
                self.set_verdict(number, Some(CaseVerdict::Survives(placed)));
            }
        }
    }

    /// Updates services that have changed, and rechecks the proofs that depend on them.
    fn recheck(&mut self, changed: &BTreeSet<ResourceName>) {
        if changed.is_empty() {
            return;
        }
        // The node on which a stopped service counts depends on its partners, so the partners are also updated.
        let companions = changed.iter().flat_map(|name| self.model.view.rules.strict_affinity_partners(name));
        let affected_services: BTreeSet<ResourceName> = changed.iter().cloned().chain(companions).collect();
        let mut used_nodes: BTreeSet<u32> = BTreeSet::new();
        let mut is_relevant = false;
        for name in &affected_services {
            let (before, after) = self.model.update_service(name);
            is_relevant |= before != after;
            used_nodes.extend(nodes_of(&before).chain(nodes_of(&after)));
        }
        // No verdict depends on the other facts of a service, such as its measured usage.
        if !is_relevant {
            return;
        }
        self.model.sort_nodes();
        let affected: BTreeSet<u32> = used_nodes
            .iter()
            .chain(used_nodes.iter().flat_map(|node| &self.dependents[*node as usize]))
            .copied()
            .collect();
        for (node, case) in (0..).zip(std::mem::take(&mut self.cases)) {
            let stays = match &case {
                Some(CaseVerdict::Survives(placed)) => {
                    !affected.contains(&node) || self.model.is_still_valid(&[node], placed)
                }
                Some(CaseVerdict::Other(_)) | None => false,
            };
            self.cases.push(None);
            if stays {
                self.cases[node as usize] = case;
            } else {
                self.remove_dependents(node, case.as_ref());
                self.missing.insert(node);
            }
        }
    }

    fn nodes_of_proof(&self, node: u32, placed: &[Placed]) -> BTreeSet<u32> {
        let from = placed.iter().filter_map(|placed| self.model.service(placed.service).current_node);
        placed.iter().map(|placed| placed.to).chain(from).filter(|other| *other != node).collect()
    }

    fn set_verdict(&mut self, node: u32, case: Option<CaseVerdict>) {
        if let Some(CaseVerdict::Survives(placed)) = &case {
            for other in self.nodes_of_proof(node, placed) {
                self.dependents[other as usize].insert(node);
            }
        }
        self.cases[node as usize] = case;
    }

    fn remove_dependents(&mut self, node: u32, case: Option<&CaseVerdict>) {
        if let Some(CaseVerdict::Survives(placed)) = case {
            for other in placed.iter().map(|placed| placed.to).collect::<BTreeSet<_>>() {
                self.dependents[other as usize].remove(&node);
            }
        }
    }
}

fn nodes_of(service: &Service) -> impl Iterator<Item = u32> + '_ {
    service.used_nodes.iter().chain(&service.current_node).copied()
}

/// Returns the names of services that differ, by a merge of both ordered maps.
fn changed_services(
    before: &BTreeMap<ResourceName, ServiceFacts>,
    after: &BTreeMap<ResourceName, ServiceFacts>,
) -> BTreeSet<ResourceName> {
    let mut changed_services = BTreeSet::new();
    let mut old = before.iter().peekable();
    for (name, facts) in after {
        while let Some((removed_name, _)) = old.next_if(|(old_name, _)| *old_name < name) {
            changed_services.insert(removed_name.clone());
        }
        let old_entry = old.next_if(|(old_name, _)| *old_name == name);
        if old_entry.is_none_or(|(_, old_facts)| old_facts != facts) {
            changed_services.insert(name.clone());
        }
    }
    changed_services.extend(old.map(|(name, _)| name.clone()));
    changed_services
}
