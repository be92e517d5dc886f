//! Cost and faults of an assignment by definition, without any code of the search.

use super::instance::Instance;
use std::collections::BTreeSet;

/// Computes the cost of an assignment: load, balance, moves of processes, moves per service, and moves between machines,
/// each with its weight.
pub(crate) fn cost(instance: &Instance, machine_of: &[usize]) -> i64 {
    let used = used(instance, machine_of, |_| false);
    let mut total = 0;
    for (machine, used) in instance.machines.iter().zip(&used) {
        for (resource, resource_facts) in instance.resources.iter().enumerate() {
            total += resource_facts.weight * (used[resource] - machine.safety[resource]).max(0);
        }
        for balance in &instance.balances {
            let free = |resource: usize| machine.capacity[resource] - used[resource];
            total += balance.weight * (balance.target * free(balance.first) - free(balance.second)).max(0);
        }
    }
    let moved_processes: Vec<usize> = (0..machine_of.len())
        .filter(|process| machine_of[*process] != instance.initial_machines[*process])
        .collect();
    let mut moves_of_service = vec![0; instance.services.len()];
    for process in moved_processes {
        let process_facts = &instance.processes[process];
        moves_of_service[process_facts.service] += 1;
        total += instance.move_weights.process * process_facts.move_cost;
        total += instance.move_weights.machine
            * instance.machines[instance.initial_machines[process]].move_costs[machine_of[process]];
    }
    total + instance.move_weights.service * moves_of_service.into_iter().max().unwrap_or(0)
}

/// Computes the use of each resource of each machine. If `counts_twice` returns `true` for a resource, moved
/// processes also use it on their initial machine.
fn used(instance: &Instance, machine_of: &[usize], counts_twice: impl Fn(usize) -> bool) -> Vec<Vec<i64>> {
    let mut used = vec![vec![0; instance.resources.len()]; instance.machines.len()];
    for (process, process_facts) in instance.processes.iter().enumerate() {
        for (resource, need) in process_facts.needs.iter().enumerate() {
            used[machine_of[process]][resource] += need;
            if machine_of[process] != instance.initial_machines[process] && counts_twice(resource) {
                used[instance.initial_machines[process]][resource] += need;
            }
        }
    }
    used
}

/// Returns the first fault of an assignment.
pub(crate) fn first_violation(instance: &Instance, machine_of: &[usize]) -> Option<String> {
    let used = used(instance, machine_of, |resource| instance.resources[resource].transient);
    for (index, (machine, used)) in instance.machines.iter().zip(&used).enumerate() {
        if let Some(resource) = (0..used.len()).find(|resource| used[*resource] > machine.capacity[*resource])
        {
            return Some(format!("machine {index} has too little of resource {resource}"));
        }
    }
    let mut machines_of_service = vec![Vec::new(); instance.services.len()];
    for (process, process_facts) in instance.processes.iter().enumerate() {
        machines_of_service[process_facts.service].push(machine_of[process]);
    }
    let neighborhoods = |service: usize| -> BTreeSet<usize> {
        machines_of_service[service]
            .iter()
            .map(|machine: &usize| instance.machines[*machine].neighborhood)
            .collect()
    };
    for (index, service) in instance.services.iter().enumerate() {
        let machines: BTreeSet<usize> = machines_of_service[index].iter().copied().collect();
        if machines.len() < machines_of_service[index].len() {
            return Some(format!("two processes of service {index} share a machine"));
        }
        let locations: BTreeSet<usize> =
            machines.iter().map(|machine| instance.machines[*machine].location).collect();
        if locations.len() < service.spread {
            return Some(format!("service {index} is in too few locations"));
        }
        for other in &service.depends_on {
            if !neighborhoods(index).is_subset(&neighborhoods(*other)) {
                return Some(format!("service {index} has no service {other} near"));
            }
        }
    }
    None
}
