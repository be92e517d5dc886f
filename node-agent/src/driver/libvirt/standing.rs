//! How a domain stands, from its state and what libvirt is at with it.

use super::answers::{Job, Outgoing, State};
use ha_api_types::record::Observed;

/// How a domain stands on this node.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Standing {
    /// Libvirt does not know it.
    Absent,
    /// It is defined, and does not run.
    Off,
    /// It runs.
    Runs,
    /// It stands still, whole: somebody paused it, or it has arrived and was not let go on yet.
    Paused {
        /// A migration left it so: it is this driver that lets it go on.
        by_migration: bool,
    },
    /// A live migration to here is under way.
    Arriving,
    /// What is left is of no use any more, and why.
    Broken(&'static str),
    /// A live migration from here is under way.
    Leaving(Outgoing),
    /// It is becoming something else, and what.
    Changing(String),
}

impl Standing {
    /// Of an active domain. `receiving`: this node was told to receive it and has not let it go on yet.
    pub(super) fn of_active(state: &State, job: &Job, receiving: bool) -> Standing {
        let reason = state.reason.as_str();
        match state.state.as_str() {
            "shut off" => return Standing::Off,
            "crashed" => {
                return Standing::Broken("its kernel panicked, and libvirt keeps what is left of it");
            }
            _ => {}
        }
        match (state.state.as_str(), reason) {
            (_, "post-copy failed") => {
                return Standing::Broken(
                    "its migration broke after the change to post-copy: neither node has all of it",
                );
            }
            ("paused", "panicked" | "crashed") => {
                return Standing::Broken("its kernel panicked, and libvirt keeps what is left of it");
            }
            _ => {}
        }
        match job {
            Job::Outgoing(outgoing) => return Standing::Leaving(outgoing.clone()),
            // Since post-copy it runs here, without all of its memory.
            Job::Incoming if state.state == "running" => {
                return Standing::Changing("the rest of its memory is on its way (post-copy)".to_owned());
            }
            Job::Incoming => return Standing::Arriving,
            Job::None | Job::Other(_) => {}
        }
        match (state.state.as_str(), reason) {
            ("running" | "idle" | "in shutdown" | "pmsuspended" | "blocked", _) => Standing::Runs,
            ("paused", "starting up") => Standing::Changing("it is being started".to_owned()),
            ("paused", "post-copy") => {
                Standing::Changing("the rest of its memory is on its way (post-copy)".to_owned())
            }
            // Here a source died after all was sent, and nobody let it go on; on a target nothing is whole before it is let go.
            ("paused", "migrating") if receiving => Standing::Arriving,
            ("paused", "migrating") => Standing::Paused { by_migration: true },
            ("paused", _) => Standing::Paused { by_migration: receiving },
            (other, _) => Standing::Changing(format!("libvirt says that it is {other:?}")),
        }
    }

    /// What a probe says.
    pub(super) fn observed(&self) -> Observed {
        match self {
            Standing::Absent | Standing::Off => Observed::NotRunning,
            // Paused by somebody: it holds its disks, and goes on when they like.
            Standing::Runs | Standing::Paused { .. } => Observed::Running,
            Standing::Arriving => {
                Observed::Remnant("a live migration to this node has not arrived".to_owned())
            }
            Standing::Broken(why) => Observed::Remnant((*why).to_owned()),
            Standing::Leaving(outgoing) => {
                Observed::Unknown(format!("a live migration from this node is under way: {outgoing}"))
            }
            Standing::Changing(what) => Observed::Unknown(what.clone()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The job as a letter: `-` none, `<` from here, `>` to here, `b` a backup; with `!` this node was told to receive it.
    fn check(state: &str, job: &str, expected: &str) {
        let read = super::super::answers::state(state).expect("a state");
        let known = match job.trim_end_matches('!') {
            "<" => Job::Outgoing(Outgoing::default()),
            ">" => Job::Incoming,
            "b" => Job::Other("Backup".into()),
            _ => Job::None,
        };
        let standing = Standing::of_active(&read, &known, job.ends_with('!'));
        let found = match (standing.observed(), &standing) {
            (Observed::Running, Standing::Paused { by_migration: true }) => "goes on when told",
            (Observed::Running, _) => "runs",
            (Observed::NotRunning, _) => "not",
            (Observed::Remnant(_), _) => "remnant",
            (Observed::Unknown(_), _) => "unknown",
        };
        assert_eq!(found, expected, "{state} {job}");
    }

    #[test]
    fn what_a_state_means() {
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
    fn sources_and_targets_of_migrations() {
        // Source: while it is under way nothing can be said.
        check("running (booted)", "<", "unknown");
        check("paused (migrating)", "<", "unknown");
        check("paused (post-copy)", "<", "unknown");
        check("paused (post-copy failed)", "-", "remnant");
        check("paused (post-copy failed)", "<", "remnant");
        // Its libvirt died when all was sent: nobody else has let it go on.
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
