//! The assignment of processes with an incremental cost: the landscape for the search of `hactl balance`.

use super::instance::Instance;
use ha_scheduler::balance::cooling::Landscape;
use ha_scheduler::balance::random::Random;
use std::collections::HashMap;

/// An assignment of processes to machines.
pub(crate) struct Assignment<'a> {
    instance: &'a Instance,
    /// The machine of each process.
    machine_of: Vec<usize>,
    /// The processes of each machine.
    processes_on: Vec<Vec<usize>>,
    /// The position of each process among those of its machine.
    position: Vec<usize>,
    used: Vec<Vec<i64>>,
    /// Transient resources that moved processes still use on their initial machines.
    transient_use: Vec<Vec<i64>>,
    /// Number of processes of a service on a machine. The next two maps have the number in a location and in a
    /// neighborhood.
    on_machine: HashMap<(usize, usize), usize>,
    in_location: HashMap<(usize, usize), usize>,
    in_neighborhood: HashMap<(usize, usize), usize>,
    locations: Vec<usize>,
    /// Services that depend on each service.
    dependents: Vec<Vec<usize>>,
    /// Number of moved processes of each service. `services_with` has the number of services for each such number.
    moved: Vec<usize>,
    services_with: Vec<usize>,
    cost: i64,
    best: (i64, Vec<usize>),
    changes: Vec<(usize, usize)>,
    touched: Vec<usize>,
}

impl<'a> Assignment<'a> {
    pub(crate) fn new(instance: &'a Instance) -> Assignment<'a> {
        let (machines, resources) = (instance.machines.len(), instance.resources.len());
        let mut dependents = vec![Vec::new(); instance.services.len()];
        for (service, facts) in instance.services.iter().enumerate() {
            for other in &facts.depends_on {
                dependents[*other].push(service);
            }
        }
        let mut services_with = vec![0; instance.processes.len() + 1];
        services_with[0] = instance.services.len();
        let mut assignment = Assignment {
            instance,
            machine_of: instance.initial_machines.clone(),
            processes_on: vec![Vec::new(); machines],
            position: vec![0; instance.processes.len()],
            used: vec![vec![0; resources]; machines],
            transient_use: vec![vec![0; resources]; machines],
            on_machine: HashMap::new(),
            in_location: HashMap::new(),
            in_neighborhood: HashMap::new(),
            locations: vec![0; instance.services.len()],
            dependents,
            moved: vec![0; instance.services.len()],
            services_with,
            cost: 0,
            best: (i64::MAX, instance.initial_machines.clone()),
            changes: Vec::new(),
            touched: Vec::new(),
        };
        for process in 0..instance.processes.len() {
            assignment.enter(process, instance.initial_machines[process]);
        }
        assignment.cost = (0..machines).map(|machine| assignment.machine_cost(machine)).sum();
        assignment.best.0 = assignment.cost;
        assignment
    }

    /// Returns the best assignment so far and its cost.
    pub(crate) fn best(&self) -> (i64, &[usize]) {
        (self.best.0, &self.best.1)
    }

    fn enter(&mut self, process: usize, machine: usize) {
        let process_facts = &self.instance.processes[process];
        let initial_machine = self.instance.initial_machines[process];
        self.machine_of[process] = machine;
        self.position[process] = self.processes_on[machine].len();
        self.processes_on[machine].push(process);
        for (resource, need) in process_facts.needs.iter().enumerate() {
            self.used[machine][resource] += need;
            if machine != initial_machine && self.instance.resources[resource].transient {
                self.transient_use[initial_machine][resource] += need;
            }
        }
        let machine_facts = &self.instance.machines[machine];
        *self.on_machine.entry((process_facts.service, machine)).or_default() += 1;
        *self.in_neighborhood.entry((process_facts.service, machine_facts.neighborhood)).or_default() += 1;
        let process_count =
            self.in_location.entry((process_facts.service, machine_facts.location)).or_default();
        *process_count += 1;
        self.locations[process_facts.service] += usize::from(*process_count == 1);
        if machine != initial_machine {
            self.count_moved(process_facts.service, true);
        }
    }

    fn leave(&mut self, process: usize) {
        let process_facts = &self.instance.processes[process];
        let (initial_machine, machine) = (self.instance.initial_machines[process], self.machine_of[process]);
        let position = self.position[process];
        self.processes_on[machine].swap_remove(position);
        if let Some(other) = self.processes_on[machine].get(position) {
            self.position[*other] = position;
        }
        for (resource, need) in process_facts.needs.iter().enumerate() {
            self.used[machine][resource] -= need;
            if machine != initial_machine && self.instance.resources[resource].transient {
                self.transient_use[initial_machine][resource] -= need;
            }
        }
        let machine_facts = &self.instance.machines[machine];
        let remove_one = |counts: &mut HashMap<(usize, usize), usize>, key| {
            let count = counts.get_mut(&key).expect("it was counted");
            *count -= 1;
            let is_last = *count == 0;
            if is_last {
                counts.remove(&key);
            }
            is_last
        };
        remove_one(&mut self.on_machine, (process_facts.service, machine));
        remove_one(&mut self.in_neighborhood, (process_facts.service, machine_facts.neighborhood));
        self.locations[process_facts.service] -=
            usize::from(remove_one(&mut self.in_location, (process_facts.service, machine_facts.location)));
        if machine != initial_machine {
            self.count_moved(process_facts.service, false);
        }
    }

    fn count_moved(&mut self, service: usize, is_added: bool) {
        self.services_with[self.moved[service]] -= 1;
        self.moved[service] = if is_added { self.moved[service] + 1 } else { self.moved[service] - 1 };
        self.services_with[self.moved[service]] += 1;
    }

    fn machine_cost(&self, machine: usize) -> i64 {
        let (machine_facts, used) = (&self.instance.machines[machine], &self.used[machine]);
        let overload_costs = self.instance.resources.iter().enumerate().map(|(resource, resource_facts)| {
            if resource_facts.weight == 0 {
                0
            } else {
                resource_facts.weight * (used[resource] - machine_facts.safety[resource]).max(0)
            }
        });
        let free = |resource: usize| machine_facts.capacity[resource] - used[resource];
        let balance_costs = self.instance.balances.iter().map(|balance| {
            balance.weight * (balance.target * free(balance.first) - free(balance.second)).max(0)
        });
        overload_costs.sum::<i64>() + balance_costs.sum::<i64>()
    }

    /// Returns the cost of the current machine of a process.
    fn move_cost(&self, process: usize) -> i64 {
        let (initial_machine, machine) = (self.instance.initial_machines[process], self.machine_of[process]);
        if initial_machine == machine {
            return 0;
        }
        let weights = self.instance.move_weights;
        weights.process * self.instance.processes[process].move_cost
            + weights.machine * self.instance.machines[initial_machine].move_costs[machine]
    }

    fn service_move_cost(&self) -> i64 {
        // Few processes of a service move, so a scan from the smallest number is short.
        let mut counted_services = 0;
        let mut max_moved = 0;
        for (moved, services) in self.services_with.iter().enumerate() {
            counted_services += services;
            if *services > 0 {
                max_moved = moved;
            }
            if counted_services == self.instance.services.len() {
                break;
            }
        }
        self.instance.move_weights.service * i64::try_from(max_moved).unwrap_or(i64::MAX)
    }

    /// Returns `true` if no constraint is violated on the current and the previous machines of these processes.
    fn is_allowed(&self, before: &[(usize, usize)]) -> bool {
        before.iter().all(|&(process, from)| {
            let service = self.instance.processes[process].service;
            let facts = &self.instance.services[service];
            let (to, left_neighborhood) =
                (self.machine_of[process], self.instance.machines[from].neighborhood);
            let fits = |machine: usize| {
                let capacity = &self.instance.machines[machine].capacity;
                (0..capacity.len()).all(|kind| {
                    self.used[machine][kind] + self.transient_use[machine][kind] <= capacity[kind]
                })
            };
            let has_process_in =
                |other: usize, neighborhood: usize| self.in_neighborhood.contains_key(&(other, neighborhood));
            let neighborhood = self.instance.machines[to].neighborhood;
            fits(to)
                && fits(from)
                && self.on_machine[&(service, to)] == 1
                && self.locations[service] >= facts.spread
                && facts.depends_on.iter().all(|other| has_process_in(*other, neighborhood))
                && (has_process_in(service, left_neighborhood)
                    || self.dependents[service]
                        .iter()
                        .all(|dependent| !has_process_in(*dependent, left_neighborhood)))
        })
    }

    /// Makes the changes. Returns the previous machines of the processes and the added cost; `None` if the changes violate
    /// a constraint and were reverted.
    fn change(&mut self) -> Option<(Vec<(usize, usize)>, i64)> {
        let changes = std::mem::take(&mut self.changes);
        let before: Vec<(usize, usize)> =
            changes.iter().map(|(process, _)| (*process, self.machine_of[*process])).collect();
        self.touched.clear();
        self.touched.extend(changes.iter().chain(&before).map(|(_, machine)| *machine));
        self.touched.sort_unstable();
        self.touched.dedup();
        let cost = |assignment: &Assignment<'_>| -> i64 {
            let machines: i64 =
                assignment.touched.iter().map(|machine| assignment.machine_cost(*machine)).sum();
            let moves: i64 = changes.iter().map(|(process, _)| assignment.move_cost(*process)).sum();
            machines + moves + assignment.service_move_cost()
        };
        let cost_before = cost(self);
        self.move_all(&changes);
        let is_allowed = self.is_allowed(&before);
        let added_cost = if is_allowed { cost(self) - cost_before } else { 0 };
        self.changes = changes;
        if !is_allowed {
            self.move_all(&before);
        }
        is_allowed.then_some((before, added_cost))
    }

    fn move_all(&mut self, new_machines: &[(usize, usize)]) {
        for (process, _) in new_machines {
            self.leave(*process);
        }
        for (process, machine) in new_machines {
            self.enter(*process, *machine);
        }
    }

    /// Proposes a random move, exchange, chain of three, or return.
    fn propose(&mut self, random: &mut Random) {
        self.changes.clear();
        let (processes, machines) = (self.machine_of.len(), self.processes_on.len());
        let first = random.draw_below(processes);
        match random.draw_below(8) {
            0 => self.changes.push((first, self.instance.initial_machines[first])),
            1..4 => {
                let second = random.draw_below(processes);
                self.changes.extend([(first, self.machine_of[second]), (second, self.machine_of[first])]);
            }
            4 => {
                let second = random.draw_below(processes);
                self.changes
                    .extend([(first, self.machine_of[second]), (second, random.draw_below(machines))]);
            }
            _ => self.changes.push((first, random.draw_below(machines))),
        }
        let is_unchanged = self.changes.iter().any(|(process, to)| self.machine_of[*process] == *to);
        let twice = self.changes.len() == 2 && self.changes[0].0 == self.changes[1].0;
        if is_unchanged || twice {
            self.changes.clear();
        }
    }
}

impl Landscape for Assignment<'_> {
    fn estimate_typical_increase(&mut self, random: &mut Random) -> f64 {
        let mut worse = Vec::new();
        for _ in 0..1000 {
            self.propose(random);
            if self.changes.is_empty() {
                continue;
            }
            if let Some((before, cost_increase)) = self.change() {
                self.move_all(&before);
                if cost_increase > 0 {
                    worse.push(cost_increase);
                }
            }
        }
        worse.sort_unstable();
        worse.get(worse.len() / 10).map_or(1.0, |cost_increase| *cost_increase as f64)
    }

    fn try_change(&mut self, temperature: f64, random: &mut Random) {
        self.propose(random);
        if self.changes.is_empty() {
            return;
        }
        let Some((before, cost_increase)) = self.change() else { return };
        if cost_increase > 0 && random.draw_unit_f64() >= (-(cost_increase as f64) / temperature).exp() {
            self.move_all(&before);
            return;
        }
        self.cost += cost_increase;
        if self.cost < self.best.0 {
            self.best.0 = self.cost;
            self.best.1.clone_from(&self.machine_of);
        }
    }
}
