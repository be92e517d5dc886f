//! Cost and faults of an assignment by definition, without any code of the search.

use super::instance::Instance;
use std::collections::BTreeSet;

/// Computes the cost of an assignment: load, balance, moves of processes, moves per service, and moves between machines,
/// each with its weight.
pub(crate) fn cost(instance: &Instance, places: &[usize]) -> i64 {
    let used = used(instance, places, |_| false);
    let mut total = 0;
    for (machine, used) in instance.machines.iter().zip(&used) {
        for (resource, facts) in instance.resources.iter().enumerate() {
            total += facts.weight * (used[resource] - machine.safety[resource]).max(0);
        }
        for balance in &instance.balances {
            let free = |resource: usize| machine.capacity[resource] - used[resource];
            total += balance.weight * (balance.target * free(balance.first) - free(balance.second)).max(0);
        }
    }
    let moved: Vec<usize> =
        (0..places.len()).filter(|process| places[*process] != instance.start[*process]).collect();
    let mut of_service = vec![0; instance.services.len()];
    for process in moved {
        let facts = &instance.processes[process];
        of_service[facts.service] += 1;
        total += instance.weights[0] * facts.move_cost;
        total += instance.weights[2] * instance.machines[instance.start[process]].move_costs[places[process]];
    }
    total + instance.weights[1] * of_service.into_iter().max().unwrap_or(0)
}

/// Computes the use of each resource of each machine. If `also` returns `true` for a resource, moved processes also use
/// it on their initial machine.
fn used(instance: &Instance, places: &[usize], also: impl Fn(usize) -> bool) -> Vec<Vec<i64>> {
    let mut used = vec![vec![0; instance.resources.len()]; instance.machines.len()];
    for (process, facts) in instance.processes.iter().enumerate() {
        for (resource, need) in facts.needs.iter().enumerate() {
            used[places[process]][resource] += need;
            if places[process] != instance.start[process] && also(resource) {
                used[instance.start[process]][resource] += need;
            }
        }
    }
    used
}

/// Returns the first fault of an assignment.
pub(crate) fn fault(instance: &Instance, places: &[usize]) -> Option<String> {
    let used = used(instance, places, |resource| instance.resources[resource].transient);
    for (at, (machine, used)) in instance.machines.iter().zip(&used).enumerate() {
        if let Some(resource) = (0..used.len()).find(|resource| used[*resource] > machine.capacity[*resource])
        {
            return Some(format!("machine {at} has too little of resource {resource}"));
        }
    }
    let mut of_service = vec![Vec::new(); instance.services.len()];
    for (process, facts) in instance.processes.iter().enumerate() {
        of_service[facts.service].push(places[process]);
    }
    let neighborhoods = |service: usize| -> BTreeSet<usize> {
        of_service[service].iter().map(|machine: &usize| instance.machines[*machine].neighborhood).collect()
    };
    for (at, service) in instance.services.iter().enumerate() {
        let machines: BTreeSet<usize> = of_service[at].iter().copied().collect();
        if machines.len() < of_service[at].len() {
            return Some(format!("two processes of service {at} share a machine"));
        }
        let locations: BTreeSet<usize> =
            machines.iter().map(|machine| instance.machines[*machine].location).collect();
        if locations.len() < service.spread {
            return Some(format!("service {at} is in too few locations"));
        }
        for other in &service.depends_on {
            if !neighborhoods(at).is_subset(&neighborhoods(*other)) {
                return Some(format!("service {at} has no service {other} near"));
            }
        }
    }
    None
}
