//! The state of a domain, derived from libvirt's state and job.

use super::answers::{Job, OutgoingMigration, State};
use ha_api_types::record::Observed;

/// State of a domain on this node.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum DomainState {
    /// The domain does not exist in libvirt.
    Absent,
    /// The domain is defined, but does not run.
    Off,
    Runs,
    /// The domain is paused and complete: an operator paused it, or it has arrived and has not been resumed yet.
    Paused {
        /// `true` if a migration left the domain paused, so that this driver must resume it.
        by_migration: bool,
    },
    /// A live migration to this node is in progress.
    Arriving,
    /// The rest of a domain that cannot run again, and the reason.
    Broken(&'static str),
    /// A live migration from this node is in progress.
    Leaving(OutgoingMigration),
    /// The domain is changing to another state, with a description.
    Changing(String),
}

impl DomainState {
    /// Returns the state of an active domain. `receiving` is `true` if this node was requested to receive the domain
    /// and has not resumed it yet.
    pub(super) fn of_active(state: &State, job: &Job, receiving: bool) -> DomainState {
        let reason = state.reason.as_str();
        match state.state.as_str() {
            "shut off" => return DomainState::Off,
            "crashed" => {
                return DomainState::Broken(
                    "kernel panic in the virtual machine, and libvirt keeps the crashed domain",
                );
            }
            _ => {}
        }
        match (state.state.as_str(), reason) {
            (_, "post-copy failed") => {
                return DomainState::Broken(
                    "migration failed after the change to post-copy: neither node has the complete memory of the virtual machine",
                );
            }
            ("paused", "panicked" | "crashed") => {
                return DomainState::Broken(
                    "kernel panic in the virtual machine, and libvirt keeps the crashed domain",
                );
            }
            _ => {}
        }
        match job {
            Job::Outgoing(outgoing) => return DomainState::Leaving(outgoing.clone()),
            // After the change to post-copy, the domain runs here without all of its memory.
            Job::Incoming if state.state == "running" => {
                return DomainState::Changing("remaining memory is being transferred (post-copy)".to_owned());
            }
            Job::Incoming => return DomainState::Arriving,
            Job::None | Job::Other(_) => {}
        }
        match (state.state.as_str(), reason) {
            ("running" | "idle" | "in shutdown" | "pmsuspended" | "blocked", _) => DomainState::Runs,
            ("paused", "starting up") => DomainState::Changing("domain is being started".to_owned()),
            ("paused", "post-copy") => {
                DomainState::Changing("remaining memory is being transferred (post-copy)".to_owned())
            }
            // On a source, this state means that libvirt died after all data was sent, and the domain was not resumed.
            // On a target, the domain is not complete before it is resumed.
            ("paused", "migrating") if receiving => DomainState::Arriving,
            ("paused", "migrating") => DomainState::Paused { by_migration: true },
            ("paused", _) => DomainState::Paused { by_migration: receiving },
            (other, _) => DomainState::Changing(format!("libvirt reports the state {other:?}")),
        }
    }

    /// Returns the result of a probe.
    pub(super) fn to_observed(&self) -> Observed {
        match self {
            DomainState::Absent | DomainState::Off => Observed::NotRunning,
            // A domain that an operator paused still holds its disks, and may be resumed at any time.
            DomainState::Runs | DomainState::Paused { .. } => Observed::Running,
            DomainState::Arriving => {
                Observed::Remnant("live migration to this node is not complete".to_owned())
            }
            DomainState::Broken(problem) => Observed::Remnant((*problem).to_owned()),
            DomainState::Leaving(outgoing) => {
                Observed::Unknown(format!("live migration from this node is in progress: {outgoing}"))
            }
            DomainState::Changing(transition) => Observed::Unknown(transition.clone()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Checks the state for a job given as a character: `-` none, `<` outgoing, `>` incoming, `b` a backup. A trailing
    /// `!` means that this node was requested to receive the domain.
    fn check(state: &str, job: &str, expected: &str) {
        let read = super::super::answers::parse_state(state).expect("a state");
        let job_state = match job.trim_end_matches('!') {
            "<" => Job::Outgoing(OutgoingMigration::default()),
            ">" => Job::Incoming,
            "b" => Job::Other("Backup".into()),
            _ => Job::None,
        };
        let domain_state = DomainState::of_active(&read, &job_state, job.ends_with('!'));
        let result = match (domain_state.to_observed(), &domain_state) {
            (Observed::Running, DomainState::Paused { by_migration: true }) => "goes on when told",
            (Observed::Running, _) => "runs",
            (Observed::NotRunning, _) => "not",
            (Observed::Remnant(_), _) => "remnant",
            (Observed::Unknown(_), _) => "unknown",
        };
        assert_eq!(result, expected, "{state} {job}");
    }

    #[test]
    fn virsh_states_map_to_domain_states() {
        for state in ["running (booted)", "running (unpaused)", "idle", "in shutdown (user)", "pmsuspended"] {
            check(state, "-", "runs");
        }
        check("running (booted)", "b", "runs");
        check("paused (user)", "-", "runs");
        check("paused (I/O error)", "-", "runs");
        check("shut off (destroyed)", "-", "not");
        check("crashed (panicked)", "-", "remnant");
        check("paused (panicked)", "-", "remnant");
        check("paused (starting up)", "-", "unknown");
        check("no state", "-", "unknown");
    }

    #[test]
    fn migration_source_and_target_states_are_recognized() {
        // Source: the state is unknown while the migration is in progress.
        check("running (booted)", "<", "unknown");
        check("paused (migrating)", "<", "unknown");
        check("paused (post-copy)", "<", "unknown");
        check("paused (post-copy failed)", "-", "remnant");
        check("paused (post-copy failed)", "<", "remnant");
        // Libvirt died after all data was sent, and no node has resumed the domain.
        check("paused (migrating)", "-", "goes on when told");
        // Target.
        check("paused (migrating)", ">!", "remnant");
        check("paused (migrating)", "-!", "remnant");
        check("paused (user)", "-!", "goes on when told");
        check("running (post-copy)", ">!", "unknown");
        check("running (post-copy failed)", ">!", "remnant");
        check("running (post-copy failed)", "-!", "remnant");
        check("running (migrated)", "-!", "runs");
    }
}
