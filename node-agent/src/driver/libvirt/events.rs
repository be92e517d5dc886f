//! Events of libvirt: the lines of `virsh event` and `virsh qemu-monitor-event`, and their meaning for a service.

/// A lifecycle event of a domain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct LifecycleEvent {
    pub(super) domain: String,
    pub(super) change: Change,
}

/// Kind of a lifecycle event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Change {
    /// The domain runs, is starting, or is being received.
    Started,
    /// The domain is switching off; an event for the end follows.
    SwitchesOff {
        /// `true` if the host initiated this, `false` if the guest did.
        by_host: bool,
    },
    /// The power button of the domain was pressed: QEMU's event for a request to shut down, such as `virsh shutdown`.
    PowerButton,
    /// The domain ended.
    Ended {
        /// Clause that describes the end of the domain.
        message: &'static str,
        /// `true` if libvirt's own tools ended the domain.
        stopped_externally: bool,
    },
    /// Any other event.
    Other,
}

/// Description of the end of a domain whose guest has shut down.
pub(super) const GUEST_SHUTDOWN: &str = "virtual machine shut itself down";

/// Parses a line such as `event 'lifecycle' for domain 'web': Stopped Destroyed`, or
/// `event POWERDOWN at 1700000000.123456 for domain 'web': <null>`.
pub(super) fn parse(line: &str) -> Option<LifecycleEvent> {
    if let Some((_, rest)) = line.split_once("event POWERDOWN at ") {
        let (domain, _) = rest.split_once(" for domain ")?.1.rsplit_once(':')?;
        let domain = domain.trim().trim_matches('\'').to_owned();
        return Some(LifecycleEvent { domain, change: Change::PowerButton });
    }
    let (_, rest) = line.split_once("event 'lifecycle' for domain ")?;
    let (domain, event_text) = rest.rsplit_once(": ")?;
    let domain = domain.trim().trim_matches('\'').to_owned();
    let (event, detail) = event_text.trim().split_once(' ').unwrap_or((event_text.trim(), ""));
    let ended = |message, stopped_externally| Change::Ended { message, stopped_externally };
    let change = match (event, detail) {
        ("Started", _) => Change::Started,
        ("Shutdown", detail) => Change::SwitchesOff { by_host: detail.contains("host") },
        ("Stopped", "Shutdown") => ended(GUEST_SHUTDOWN, false),
        ("Stopped", "Destroyed") => ended("domain was destroyed with libvirt tools", true),
        ("Stopped", "Crashed") => ended("guest crashed", false),
        ("Stopped", "Migrated") => ended("domain was migrated with libvirt tools", true),
        ("Stopped", "Saved") => ended("domain was saved with libvirt tools", true),
        ("Stopped", "Snapshot") => ended("domain was reverted to a snapshot with libvirt tools", true),
        ("Stopped", "Failed") => ended("QEMU exited unexpectedly", false),
        ("Stopped", _) => ended("domain stopped", false),
        ("Crashed", _) => ended("kernel panic in the virtual machine", false),
        (_, _) => Change::Other,
    };
    Some(LifecycleEvent { domain, change })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn virsh_event_lines_are_parsed() {
        let check = |line: &str, domain: &str, expected: Change| {
            let event = parse(line).expect(line);
            assert_eq!((event.domain.as_str(), event.change), (domain, expected), "{line}");
        };
        let ended = |message, stopped_externally| Change::Ended { message, stopped_externally };
        check("event 'lifecycle' for domain 'g1': Started Booted", "g1", Change::Started);
        check("event 'lifecycle' for domain g1: Started Migrated", "g1", Change::Started);
        check(
            "2026-11-23 02:49:07.165+0000: event 'lifecycle' for domain 'g:1': Resumed Unpaused",
            "g:1",
            Change::Other,
        );
        check(
            "event 'lifecycle' for domain 'g1': Shutdown Finished after guest request",
            "g1",
            Change::SwitchesOff { by_host: false },
        );
        check(
            "event 'lifecycle' for domain 'g1': Shutdown Finished after host request",
            "g1",
            Change::SwitchesOff { by_host: true },
        );
        check(
            "event 'lifecycle' for domain 'g1': Stopped Shutdown",
            "g1",
            ended("virtual machine shut itself down", false),
        );
        check(
            "event 'lifecycle' for domain 'g1': Stopped Destroyed",
            "g1",
            ended("domain was destroyed with libvirt tools", true),
        );
        check(
            "event 'lifecycle' for domain 'g1': Stopped Failed",
            "g1",
            ended("QEMU exited unexpectedly", false),
        );
        check(
            "event 'lifecycle' for domain 'g1': Crashed Panicked",
            "g1",
            ended("kernel panic in the virtual machine", false),
        );
        check("event POWERDOWN at 1700000000.123456 for domain g1: <null>", "g1", Change::PowerButton);
        check("event POWERDOWN at 1700000000.123456 for domain 'g:1': <null>", "g:1", Change::PowerButton);
        assert_eq!(parse("event POWERDOWN at 1700000000.123456"), None);
        assert_eq!(parse("events received: 7"), None);
        assert_eq!(parse("event 'reboot' for domain 'g1'"), None);
    }
}
