//! Parsers for the output of `virsh`.

use crate::core::Meter;
use crate::driver::Sample;
use ha_api_types::quantity::{Amounts, Quantity};
use ha_api_types::time::{Millis, MonotonicTime};
use std::fmt;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ListedDomain {
    pub(super) uuid: String,
    pub(super) name: String,
}

/// Parses the output of `list --uuid --name`.
pub(super) fn parse_domains(printed: &str) -> Vec<ListedDomain> {
    let listed = |line: &str| {
        let (uuid, name) = line.trim().split_once(char::is_whitespace)?;
        Some(ListedDomain { uuid: uuid.to_owned(), name: name.trim().to_owned() })
    };
    printed.lines().filter_map(listed).collect()
}

/// State of a domain, and the reason for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct State {
    pub(super) state: String,
    pub(super) reason: String,
}

/// Parses the output of `domstate --reason`, such as `paused (migrating)`.
pub(super) fn parse_state(printed: &str) -> Option<State> {
    let line = printed.lines().map(str::trim).find(|line| !line.is_empty())?;
    let (state, reason) = line.split_once(" (").unwrap_or((line, ""));
    Some(State { state: state.to_owned(), reason: reason.trim_end_matches(')').to_owned() })
}

/// A libvirt job of a domain.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Job {
    /// No job.
    None,
    /// Outgoing migration.
    Outgoing(OutgoingMigration),
    /// Incoming migration.
    Incoming,
    /// Any other job, such as a backup.
    Other(String),
}

/// Progress of a live migration from this node.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct OutgoingMigration {
    /// Time since the start of the migration, in milliseconds.
    pub(super) elapsed_ms: Millis,
    /// Data that remains to be sent, and total data, in bytes; `None` if not reported.
    pub(super) remaining: Option<f64>,
    pub(super) total: Option<f64>,
    /// Memory bandwidth as printed by virsh.
    pub(super) bandwidth: Option<String>,
    /// Number of passes over the guest's memory.
    pub(super) iteration: Option<u64>,
}

/// Parses the output of `domjobinfo`, or its error.
pub(super) fn parse_job(answer: Result<&str, &str>) -> Option<Job> {
    let printed = match answer {
        Ok(printed) => printed,
        // The target of a migration reports this error, because only the source has statistics.
        Err(error_text) if error_text.contains("only on the source host") => return Some(Job::Incoming),
        Err(_) => return None,
    };
    let field = |name: &str| {
        printed.lines().find_map(|line| {
            let (key, value) = line.split_once(':')?;
            (key.trim() == name).then(|| value.split_whitespace().collect::<Vec<_>>().join(" "))
        })
    };
    let kind = field("Job type")?;
    if kind == "None" {
        return Some(Job::None);
    }
    let number = |name: &str| field(name)?.split(' ').next()?.parse::<u64>().ok();
    let operation = field("Operation").unwrap_or_default();
    Some(match operation.as_str() {
        "Outgoing migration" => Job::Outgoing(OutgoingMigration {
            elapsed_ms: number("Time elapsed").unwrap_or(0),
            remaining: field("Data remaining").and_then(|text| bytes(&text)),
            total: field("Data total").and_then(|text| bytes(&text)),
            bandwidth: field("Memory bandwidth"),
            iteration: number("Iteration"),
        }),
        "Incoming migration" => Job::Incoming,
        _ => Job::Other(if operation.is_empty() { kind } else { operation }),
    })
}

/// Parses an amount such as `118.723 MiB`.
fn bytes(text: &str) -> Option<f64> {
    let (number, unit) = text.split_once(' ')?;
    let power = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"].iter().position(|symbol| *symbol == unit)?;
    Some(number.parse::<f64>().ok()? * 1024_f64.powi(i32::try_from(power).ok()?))
}

impl fmt::Display for OutgoingMigration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.remaining, self.total) {
            (Some(remaining), Some(total)) if total > 0.0 => {
                let sent = ((total - remaining) / total * 100.0).clamp(0.0, 100.0);
                let mebibytes = |bytes: f64| bytes / 1024.0 / 1024.0;
                write!(
                    f,
                    "{sent:.0} % sent, {:.0} of {:.0} MiB left",
                    mebibytes(remaining),
                    mebibytes(total)
                )?;
            }
            (_, _) => write!(f, "starting")?,
        }
        if let Some(bandwidth) = &self.bandwidth {
            write!(f, ", {bandwidth}")?;
        }
        match self.iteration {
            Some(iteration) if iteration > 1 => write!(f, ", round {iteration}"),
            Some(_) | None => Ok(()),
        }
    }
}

/// The used part of the output of `dominfo`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct DomainInfo {
    /// `true` if libvirt starts the domain at boot.
    pub(super) autostart: bool,
    /// Number of virtual CPUs, and maximum memory.
    pub(super) amounts: Amounts,
}

/// Parses the output of `dominfo`.
pub(super) fn parse_info(printed: &str) -> DomainInfo {
    let field = |name: &str| {
        printed.lines().find_map(|line| {
            let (key, value) = line.split_once(':')?;
            (key == name).then(|| value.trim())
        })
    };
    let units = |text: &str| text.parse::<i128>().ok().map(Quantity::from_units);
    let kibibytes = |text: &str| text.strip_suffix(" KiB")?.parse::<i128>().ok();
    DomainInfo {
        autostart: field("Autostart") == Some("enable"),
        amounts: Amounts {
            cpu: field("CPU(s)").and_then(units),
            memory: field("Max memory").and_then(kibibytes).map(|number| Quantity::from_units(number << 10)),
            disk: None,
        },
    }
}

/// Parses the output of `domstats`.
pub(super) fn parse_sample(printed: &str, at: MonotonicTime) -> Sample {
    let fields = || printed.lines().filter_map(|line| line.trim().split_once('='));
    let number = |name: &str| fields().find(|(key, _)| *key == name)?.1.parse::<u64>().ok();
    let sum = |prefix: &str, suffixes: [&str; 2]| {
        let counts = fields().filter(|(key, _)| {
            key.starts_with(prefix) && suffixes.iter().any(|suffix| key.ends_with(suffix))
        });
        let counts: Vec<u64> = counts.filter_map(|(_, value)| value.parse().ok()).collect();
        (!counts.is_empty()).then(|| Meter::Total(counts.into_iter().fold(0, u64::saturating_add)))
    };
    Sample {
        at,
        cpu: number("cpu.time").map(|nanoseconds| Meter::Total(nanoseconds / 1000)),
        memory: number("balloon.rss").map(|kibibytes| kibibytes.saturating_mul(1024)),
        disk: sum("block.", [".rd.bytes", ".wr.bytes"]),
        network: sum("net.", [".rx.bytes", ".tx.bytes"]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn domain_lists_and_states_are_parsed() {
        let printed =
            "e9179356-0344-471b-84d6-d658b58985c7 g1 \n2ad2ffdd-0cb6-45df-8d3e-cd41ba16c7f0  100\n\n";
        let listed = parse_domains(printed);
        let names: Vec<&str> = listed.iter().map(|listed| listed.name.as_str()).collect();
        assert_eq!(names, ["g1", "100"]);
        assert_eq!(listed[1].uuid, "2ad2ffdd-0cb6-45df-8d3e-cd41ba16c7f0");
        assert_eq!(parse_domains(""), []);
        for (printed, expected) in [
            ("running (booted)\n\n", Some(("running", "booted"))),
            ("paused (I/O error)\n", Some(("paused", "I/O error"))),
            ("in shutdown (user)\n", Some(("in shutdown", "user"))),
            ("running\n", Some(("running", ""))),
            ("\n", None),
        ] {
            let expected =
                expected.map(|(state, reason)| State { state: state.into(), reason: reason.into() });
            assert_eq!(parse_state(printed), expected, "{printed:?}");
        }
    }

    #[test]
    fn migration_jobs_are_parsed() {
        let outgoing = "Job type:         Unbounded   \nOperation:        Outgoing migration\n\
            Time elapsed:     84127        ms\nData processed:   8.867 MiB\nData remaining:   96.000 MiB\n\
            Data total:       128.000 MiB\nMemory processed: 8.867 MiB\nMemory bandwidth: 3.952 MiB/s\n\
            Iteration:        2           \n";
        let Some(Job::Outgoing(outgoing_job)) = parse_job(Ok(outgoing)) else {
            panic!("{:?}", parse_job(Ok(outgoing)))
        };
        assert_eq!(outgoing_job.elapsed_ms, 84_127);
        assert_eq!(outgoing_job.to_string(), "25 % sent, 96 of 128 MiB left, 3.952 MiB/s, round 2");
        assert_eq!(OutgoingMigration::default().to_string(), "starting");
        assert_eq!(parse_job(Ok("Job type:         None        \n\n")), Some(Job::None));
        let error_text =
            "Operation not supported: migration statistics are available only on the source host";
        assert_eq!(parse_job(Err(error_text)), Some(Job::Incoming));
        assert_eq!(parse_job(Err("failed to get domain 'x'")), None);
        assert_eq!(
            parse_job(Ok("Job type:         Unbounded\nOperation:        Backup\n")),
            Some(Job::Other("Backup".into()))
        );
        assert_eq!(
            parse_job(Ok("Job type:   Unbounded\nOperation:   Incoming migration\n")),
            Some(Job::Incoming)
        );
    }

    #[test]
    fn domain_info_and_usage_are_parsed() {
        let printed = "Id:             1\nName:           g1\nCPU(s):         2\nMax memory:     131072 KiB\n\
            Used memory:    65536 KiB\nPersistent:     no\nAutostart:      disable\n";
        let domain_info = parse_info(printed);
        assert!(!domain_info.autostart);
        assert_eq!(domain_info.amounts.cpu, Some(Quantity::from_units(2)));
        assert_eq!(domain_info.amounts.memory, Some(Quantity::from_units(128 << 20)));
        assert!(parse_info("Autostart:      enable\n").autostart);
        let printed = "Domain: 'g1'\n  cpu.time=2800000000\n  cpu.user=1\n  balloon.rss=1000\n  net.count=2\n\
            \x20 net.0.rx.bytes=5\n  net.0.tx.bytes=6\n  net.1.rx.bytes=7\n  block.count=1\n  block.0.rd.bytes=10\n\
            \x20 block.0.rd.times=99\n  block.0.wr.bytes=20\n";
        let domain_info = parse_sample(printed, MonotonicTime(7));
        assert_eq!(domain_info.cpu, Some(Meter::Total(2_800_000)));
        assert_eq!(domain_info.memory, Some(1_024_000));
        assert_eq!((domain_info.disk, domain_info.network), (Some(Meter::Total(30)), Some(Meter::Total(18))));
        let without_figures = parse_sample("Domain: 'g1'\n", MonotonicTime(7));
        assert_eq!((without_figures.cpu, without_figures.memory, without_figures.disk), (None, None, None));
    }
}
