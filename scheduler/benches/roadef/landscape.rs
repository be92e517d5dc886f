//! The assignment of processes with an incremental cost: the landscape for the search of `hactl balance`.

use super::instance::Instance;
use ha_scheduler::balance::cooling::Landscape;
use ha_scheduler::balance::random::Random;
use std::collections::HashMap;

/// An assignment of processes to machines.
pub(crate) struct Places<'a> {
    instance: &'a Instance,
    /// The machine of each process.
    at: Vec<usize>,
    /// The processes of each machine.
    on: Vec<Vec<usize>>,
    /// The position of each process among those of its machine.
    position: Vec<usize>,
    used: Vec<Vec<i64>>,
    /// Transient resources that moved processes still use on their initial machines.
    left: Vec<Vec<i64>>,
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

impl<'a> Places<'a> {
    pub(crate) fn new(instance: &'a Instance) -> Places<'a> {
        let (machines, resources) = (instance.machines.len(), instance.resources.len());
        let mut dependents = vec![Vec::new(); instance.services.len()];
        for (service, facts) in instance.services.iter().enumerate() {
            for other in &facts.depends_on {
                dependents[*other].push(service);
            }
        }
        let mut services_with = vec![0; instance.processes.len() + 1];
        services_with[0] = instance.services.len();
        let mut places = Places {
            instance,
            at: instance.start.clone(),
            on: vec![Vec::new(); machines],
            position: vec![0; instance.processes.len()],
            used: vec![vec![0; resources]; machines],
            left: vec![vec![0; resources]; machines],
            on_machine: HashMap::new(),
            in_location: HashMap::new(),
            in_neighborhood: HashMap::new(),
            locations: vec![0; instance.services.len()],
            dependents,
            moved: vec![0; instance.services.len()],
            services_with,
            cost: 0,
            best: (i64::MAX, instance.start.clone()),
            changes: Vec::new(),
            touched: Vec::new(),
        };
        for process in 0..instance.processes.len() {
            places.enter(process, instance.start[process]);
        }
        places.cost = (0..machines).map(|machine| places.machine_cost(machine)).sum();
        places.best.0 = places.cost;
        places
    }

    /// Returns the best assignment so far and its cost.
    pub(crate) fn best(&self) -> (i64, &[usize]) {
        (self.best.0, &self.best.1)
    }

    fn enter(&mut self, process: usize, machine: usize) {
        let facts = &self.instance.processes[process];
        let home = self.instance.start[process];
        self.at[process] = machine;
        self.position[process] = self.on[machine].len();
        self.on[machine].push(process);
        for (resource, need) in facts.needs.iter().enumerate() {
            self.used[machine][resource] += need;
            if machine != home && self.instance.resources[resource].transient {
                self.left[home][resource] += need;
            }
        }
        let place = &self.instance.machines[machine];
        *self.on_machine.entry((facts.service, machine)).or_default() += 1;
        *self.in_neighborhood.entry((facts.service, place.neighborhood)).or_default() += 1;
        let there = self.in_location.entry((facts.service, place.location)).or_default();
        *there += 1;
        self.locations[facts.service] += usize::from(*there == 1);
        if machine != home {
            self.count_moved(facts.service, true);
        }
    }

    fn leave(&mut self, process: usize) {
        let facts = &self.instance.processes[process];
        let (home, machine) = (self.instance.start[process], self.at[process]);
        let position = self.position[process];
        self.on[machine].swap_remove(position);
        if let Some(other) = self.on[machine].get(position) {
            self.position[*other] = position;
        }
        for (resource, need) in facts.needs.iter().enumerate() {
            self.used[machine][resource] -= need;
            if machine != home && self.instance.resources[resource].transient {
                self.left[home][resource] -= need;
            }
        }
        let place = &self.instance.machines[machine];
        let gone = |counts: &mut HashMap<(usize, usize), usize>, key| {
            let count = counts.get_mut(&key).expect("it was counted");
            *count -= 1;
            let is_last = *count == 0;
            if is_last {
                counts.remove(&key);
            }
            is_last
        };
        gone(&mut self.on_machine, (facts.service, machine));
        gone(&mut self.in_neighborhood, (facts.service, place.neighborhood));
        self.locations[facts.service] -=
            usize::from(gone(&mut self.in_location, (facts.service, place.location)));
        if machine != home {
            self.count_moved(facts.service, false);
        }
    }

    fn count_moved(&mut self, service: usize, more: bool) {
        self.services_with[self.moved[service]] -= 1;
        self.moved[service] = if more { self.moved[service] + 1 } else { self.moved[service] - 1 };
        self.services_with[self.moved[service]] += 1;
    }

    fn machine_cost(&self, machine: usize) -> i64 {
        let (facts, used) = (&self.instance.machines[machine], &self.used[machine]);
        let over = self.instance.resources.iter().enumerate().map(|(resource, about)| {
            if about.weight == 0 {
                0
            } else {
                about.weight * (used[resource] - facts.safety[resource]).max(0)
            }
        });
        let free = |resource: usize| facts.capacity[resource] - used[resource];
        let uneven = self.instance.balances.iter().map(|balance| {
            balance.weight * (balance.target * free(balance.first) - free(balance.second)).max(0)
        });
        over.sum::<i64>() + uneven.sum::<i64>()
    }

    /// Returns the cost of the current machine of a process.
    fn move_cost(&self, process: usize) -> i64 {
        let (home, machine) = (self.instance.start[process], self.at[process]);
        if home == machine {
            return 0;
        }
        let [of_process, _, of_machines] = self.instance.weights;
        of_process * self.instance.processes[process].move_cost
            + of_machines * self.instance.machines[home].move_costs[machine]
    }

    fn most_moved(&self) -> i64 {
        // Few processes of a service move, so a scan from the smallest number is short.
        let mut seen = 0;
        let mut most = 0;
        for (moved, services) in self.services_with.iter().enumerate() {
            seen += services;
            if *services > 0 {
                most = moved;
            }
            if seen == self.instance.services.len() {
                break;
            }
        }
        self.instance.weights[1] * i64::try_from(most).unwrap_or(i64::MAX)
    }

    /// Returns `true` if no constraint is violated on the current and the previous machines of these processes.
    fn is_allowed(&self, before: &[(usize, usize)]) -> bool {
        before.iter().all(|&(process, from)| {
            let service = self.instance.processes[process].service;
            let facts = &self.instance.services[service];
            let (to, left) = (self.at[process], self.instance.machines[from].neighborhood);
            let fits = |machine: usize| {
                let capacity = &self.instance.machines[machine].capacity;
                (0..capacity.len())
                    .all(|kind| self.used[machine][kind] + self.left[machine][kind] <= capacity[kind])
            };
            let near =
                |other: usize, neighborhood: usize| self.in_neighborhood.contains_key(&(other, neighborhood));
            let neighborhood = self.instance.machines[to].neighborhood;
            fits(to)
                && fits(from)
                && self.on_machine[&(service, to)] == 1
                && self.locations[service] >= facts.spread
                && facts.depends_on.iter().all(|other| near(*other, neighborhood))
                && (near(service, left)
                    || self.dependents[service].iter().all(|dependent| !near(*dependent, left)))
        })
    }

    /// Makes the changes. Returns the previous machines of the processes and the added cost; `None` if the changes violate
    /// a constraint and were reverted.
    fn change(&mut self) -> Option<(Vec<(usize, usize)>, i64)> {
        let changes = std::mem::take(&mut self.changes);
        let before: Vec<(usize, usize)> =
            changes.iter().map(|(process, _)| (*process, self.at[*process])).collect();
        self.touched.clear();
        self.touched.extend(changes.iter().chain(&before).map(|(_, machine)| *machine));
        self.touched.sort_unstable();
        self.touched.dedup();
        let cost = |places: &Places<'_>| -> i64 {
            let machines: i64 = places.touched.iter().map(|machine| places.machine_cost(*machine)).sum();
            let moves: i64 = changes.iter().map(|(process, _)| places.move_cost(*process)).sum();
            machines + moves + places.most_moved()
        };
        let was = cost(self);
        self.place(&changes);
        let allowed = self.is_allowed(&before);
        let more = if allowed { cost(self) - was } else { 0 };
        self.changes = changes;
        if !allowed {
            self.place(&before);
        }
        allowed.then_some((before, more))
    }

    fn place(&mut self, places: &[(usize, usize)]) {
        for (process, _) in places {
            self.leave(*process);
        }
        for (process, machine) in places {
            self.enter(*process, *machine);
        }
    }

    /// Proposes a random move, exchange, chain of three, or return.
    fn propose(&mut self, random: &mut Random) {
        self.changes.clear();
        let (processes, machines) = (self.at.len(), self.on.len());
        let one = random.below(processes);
        match random.below(8) {
            0 => self.changes.push((one, self.instance.start[one])),
            1..4 => {
                let other = random.below(processes);
                self.changes.extend([(one, self.at[other]), (other, self.at[one])]);
            }
            4 => {
                let other = random.below(processes);
                self.changes.extend([(one, self.at[other]), (other, random.below(machines))]);
            }
            _ => self.changes.push((one, random.below(machines))),
        }
        let stays = self.changes.iter().any(|(process, to)| self.at[*process] == *to);
        let twice = self.changes.len() == 2 && self.changes[0].0 == self.changes[1].0;
        if stays || twice {
            self.changes.clear();
        }
    }
}

impl Landscape for Places<'_> {
    fn typical_change(&mut self, random: &mut Random) -> f64 {
        let mut worse = Vec::new();
        for _ in 0..1000 {
            self.propose(random);
            if self.changes.is_empty() {
                continue;
            }
            if let Some((before, more)) = self.change() {
                self.place(&before);
                if more > 0 {
                    worse.push(more);
                }
            }
        }
        worse.sort_unstable();
        worse.get(worse.len() / 10).map_or(1.0, |more| *more as f64)
    }

    fn trial(&mut self, temperature: f64, random: &mut Random) {
        self.propose(random);
        if self.changes.is_empty() {
            return;
        }
        let Some((before, more)) = self.change() else { return };
        if more > 0 && random.unit_f64() >= (-(more as f64) / temperature).exp() {
            self.place(&before);
            return;
        }
        self.cost += more;
        if self.cost < self.best.0 {
            self.best.0 = self.cost;
            self.best.1.clone_from(&self.at);
        }
    }
}
