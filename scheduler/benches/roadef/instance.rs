//! Instances of the machine reassignment problem of ROADEF/EURO 2012, read from their two files or generated from a seed.
//!
//! Source: the challenge's problem description (Google, 2011), section "input format": numbers separated by white space.

use std::path::Path;

/// The constants of a problem.
#[derive(Clone, Debug, Default)]
pub(crate) struct Instance {
    pub(crate) resources: Vec<Resource>,
    pub(crate) machines: Vec<Machine>,
    pub(crate) services: Vec<Service>,
    pub(crate) processes: Vec<Process>,
    pub(crate) balances: Vec<Balance>,
    pub(crate) move_weights: MoveWeights,
    /// Initial machine of each process.
    pub(crate) initial_machines: Vec<usize>,
}

/// Weights of the cost of moves.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct MoveWeights {
    /// Weight of moves of processes.
    pub(crate) process: i64,
    /// Weight of the maximum number of moves in a service.
    pub(crate) service: i64,
    /// Weight of the cost of moves between machines.
    pub(crate) machine: i64,
}

/// A resource that machines provide and processes need.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Resource {
    /// `true` if a moving process needs the resource on both machines.
    pub(crate) transient: bool,
    /// Cost of each unit above the safety capacity.
    pub(crate) weight: i64,
}

#[derive(Clone, Debug)]
pub(crate) struct Machine {
    pub(crate) neighborhood: usize,
    pub(crate) location: usize,
    pub(crate) capacity: Vec<i64>,
    pub(crate) safety: Vec<i64>,
    /// Cost of a move from this machine to each machine.
    pub(crate) move_costs: Vec<i64>,
}

/// A service, whose processes must be on different machines.
#[derive(Clone, Debug)]
pub(crate) struct Service {
    /// Minimum number of locations of the service's processes.
    pub(crate) spread: usize,
    /// Services that must have a process in each neighborhood in which this service has one.
    pub(crate) depends_on: Vec<usize>,
}

#[derive(Clone, Debug)]
pub(crate) struct Process {
    pub(crate) service: usize,
    pub(crate) needs: Vec<i64>,
    pub(crate) move_cost: i64,
}

/// A desired relation: the free amount of `second` is at least `target` times that of `first`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Balance {
    pub(crate) first: usize,
    pub(crate) second: usize,
    pub(crate) target: i64,
    pub(crate) weight: i64,
}

/// Numbers of a file, in order.
struct Numbers<'a> {
    file: String,
    words: std::str::SplitWhitespace<'a>,
    read_count: usize,
}

impl Numbers<'_> {
    fn read_number(&mut self, value_name: &str) -> Result<i64, String> {
        self.read_count += 1;
        let location = || format!("{}: number {} ({value_name})", self.file, self.read_count);
        let word = self.words.next().ok_or_else(|| format!("{}: the file ends here", location()))?;
        word.parse().map_err(|_| format!("{}: a whole number was expected, not {word:?}", location()))
    }

    /// Reads a count, or the position of one of `limit` items.
    fn read_index_or_count(&mut self, value_name: &str, limit: Option<usize>) -> Result<usize, String> {
        let number = self.read_number(value_name)?;
        let index_or_count = usize::try_from(number)
            .ok()
            .filter(|index_or_count| limit.is_none_or(|limit| *index_or_count < limit));
        index_or_count.ok_or_else(|| {
            let limit_text = limit.map_or_else(String::new, |limit| format!(" below {limit}"));
            format!(
                "{}: number {} ({value_name}): a number from 0{limit_text} was expected, not {number}",
                self.file, self.read_count
            )
        })
    }

    fn read_list(&mut self, value_name: &str, count: usize) -> Result<Vec<i64>, String> {
        (0..count).map(|_| self.read_number(value_name)).collect()
    }

    fn expect_end(mut self) -> Result<(), String> {
        match self.words.next() {
            None => Ok(()),
            Some(word) => Err(format!("{}: unexpected value {word:?} at the end", self.file)),
        }
    }
}

impl Instance {
    /// Reads the model and the initial machines of processes.
    pub(crate) fn read(model: &Path, assignment: &Path) -> Result<Instance, String> {
        let contents = |path: &Path| {
            std::fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))
        };
        let (text, assignment_text) = (contents(model)?, contents(assignment)?);
        let mut numbers =
            Numbers { file: model.display().to_string(), words: text.split_whitespace(), read_count: 0 };
        let mut instance = Instance::default();
        for _ in 0..numbers.read_index_or_count("resources", None)? {
            let transient = numbers.read_index_or_count("transient", Some(2))? == 1;
            instance.resources.push(Resource { transient, weight: numbers.read_number("load cost")? });
        }
        let resources = instance.resources.len();
        let machines = numbers.read_index_or_count("machines", None)?;
        for _ in 0..machines {
            instance.machines.push(Machine {
                neighborhood: numbers.read_index_or_count("neighborhood", None)?,
                location: numbers.read_index_or_count("location", None)?,
                capacity: numbers.read_list("capacity", resources)?,
                safety: numbers.read_list("safety capacity", resources)?,
                move_costs: numbers.read_list("machine move cost", machines)?,
            });
        }
        let services = numbers.read_index_or_count("services", None)?;
        for _ in 0..services {
            let spread = numbers.read_index_or_count("spread", None)?;
            let count = numbers.read_index_or_count("dependencies", None)?;
            let depends_on = (0..count)
                .map(|_| numbers.read_index_or_count("dependency", Some(services)))
                .collect::<Result<_, _>>()?;
            instance.services.push(Service { spread, depends_on });
        }
        for _ in 0..numbers.read_index_or_count("processes", None)? {
            instance.processes.push(Process {
                service: numbers.read_index_or_count("service", Some(services))?,
                needs: numbers.read_list("requirement", resources)?,
                move_cost: numbers.read_number("process move cost")?,
            });
        }
        for _ in 0..numbers.read_index_or_count("balance costs", None)? {
            instance.balances.push(Balance {
                first: numbers.read_index_or_count("first resource", Some(resources))?,
                second: numbers.read_index_or_count("second resource", Some(resources))?,
                target: numbers.read_number("target")?,
                weight: numbers.read_number("balance weight")?,
            });
        }
        instance.move_weights = MoveWeights {
            process: numbers.read_number("weight")?,
            service: numbers.read_number("weight")?,
            machine: numbers.read_number("weight")?,
        };
        numbers.expect_end()?;
        let mut numbers = Numbers {
            file: assignment.display().to_string(),
            words: assignment_text.split_whitespace(),
            read_count: 0,
        };
        for _ in 0..instance.processes.len() {
            instance.initial_machines.push(numbers.read_index_or_count("machine", Some(machines))?);
        }
        numbers.expect_end()?;
        Ok(instance)
    }

    /// Generates an instance with this many machines and processes, whose initial assignment should be valid.
    pub(crate) fn seeded(machines: usize, processes: usize, seed: u64) -> Instance {
        let mut state = seed;
        let mut random_below = |bound: i64| {
            // Knuth's multiplier.
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            i64::try_from(state >> 33).unwrap_or(0) % bound
        };
        let index = |number: i64| usize::try_from(number).unwrap_or(0);
        let resources = vec![
            Resource { transient: false, weight: 10 },
            Resource { transient: true, weight: 10 },
            Resource { transient: false, weight: 0 },
        ];
        let per_service = 4;
        let services = processes.div_ceil(per_service);
        let mut instance = Instance {
            resources,
            balances: vec![Balance { first: 0, second: 2, target: 2, weight: 10 }],
            move_weights: MoveWeights { process: 1, service: 10, machine: 1 },
            ..Instance::default()
        };
        for service in 0..services {
            let depends_on = if random_below(4) == 0 && service > 0 { vec![service - 1] } else { Vec::new() };
            instance.services.push(Service { spread: 1 + index(random_below(2)), depends_on });
        }
        for process in 0..processes {
            let needs = (0..3).map(|_| 1 + random_below(100)).collect();
            instance.processes.push(Process {
                service: process / per_service,
                needs,
                move_cost: random_below(10),
            });
        }
        let mut used = vec![vec![0; 3]; machines];
        for (process_index, process) in instance.processes.iter().enumerate() {
            // Consecutive processes are on neighboring machines, so that a service is spread, and its dependencies are
            // near.
            let machine = (process_index + index(random_below(2)) * per_service * 2) % machines;
            let has_process = |machine: usize, instance: &Instance| {
                let first = process_index / per_service * per_service;
                instance.initial_machines[first..process_index].contains(&machine)
            };
            let machine = (0..machines)
                .map(|offset| (machine + offset) % machines)
                .find(|machine| !has_process(*machine, &instance));
            let machine = machine.unwrap_or(0);
            instance.initial_machines.push(machine);
            for (used, need) in used[machine].iter_mut().zip(&process.needs) {
                *used += need;
            }
        }
        let average =
            55 * i64::try_from(processes).unwrap_or(0) / i64::try_from(machines.max(1)).unwrap_or(1);
        for (machine, used) in used.iter().enumerate() {
            let capacity: Vec<i64> =
                used.iter().map(|used| (used + average / 4).max(average * 3 / 2)).collect();
            instance.machines.push(Machine {
                neighborhood: 0,
                location: machine % 4,
                safety: capacity.iter().map(|capacity| capacity * 6 / 10).collect(),
                capacity,
                move_costs: (0..machines)
                    .map(|other| i64::from(other != machine) * (1 + random_below(3)))
                    .collect(),
            });
        }
        instance
    }
}
