//! All cases of the metal suite, most important first.

use ha_api_types::cluster::OnEtcdLoss::Hold;
use ha_api_types::cluster::ShutdownPolicy::{Conditional, Failover, Freeze, Migrate};
use ha_api_types::node::FenceAction;

use super::case::{Case, DEFAULT, Fencing, OtherMachines, Reset, ServiceOutcome, Step};
use super::hardware::Watchdog::I6300esb;
use super::{actions, fabric, suspended, unbound};
use crate::plan;

/// All cases.
pub static ALL: &[Case] = &[
    Case {
        name: "power-cut",
        service: ServiceOutcome::StartsElsewhere,
        inject: |rig, node| rig.power_off(node),
        restore: |rig, node| rig.power_on(node),
        ..DEFAULT
    },
    Case {
        name: "network-cut",
        watchdog: I6300esb,
        service: ServiceOutcome::StartsElsewhere,
        inject: |rig, node| rig.cluster.cut(node),
        restore: |rig, node| rig.cluster.heal(node),
        ..DEFAULT
    },
    Case { name: "agent-stopped-softdog", inject: actions::stop_agent, ..RESET },
    Case { name: "agent-stopped-i6300esb", watchdog: I6300esb, inject: actions::stop_agent, ..RESET },
    Case { name: "agent-lost-softdog", ..AGENT_LOST },
    Case { name: "agent-lost-i6300esb", watchdog: I6300esb, ..AGENT_LOST },
    Case { name: "daemon-lost-softdog", ..DAEMON_LOST },
    Case { name: "daemon-lost-i6300esb", watchdog: I6300esb, ..DAEMON_LOST },
    Case { name: "panic-softdog", inject: actions::cause_kernel_panic, ..RESET },
    Case { name: "panic-i6300esb", watchdog: I6300esb, inject: actions::cause_kernel_panic, ..RESET },
    Case { name: "starved-softdog", inject: actions::starve_processor, ..RESET },
    Case { name: "starved-i6300esb", watchdog: I6300esb, inject: actions::starve_processor, ..RESET },
    Case {
        name: "driver-unbound-i6300esb",
        service: ServiceOutcome::Moves,
        inject: unbound::unbind_and_wait_for_failure,
        restore: unbound::check_failed_and_rebind,
        ..UNBOUND
    },
    Case {
        name: "driver-unbound-cut-i6300esb",
        inject: unbound::cut_and_unbind,
        restore: unbound::heal_and_rebind,
        ..UNBOUND
    },
    Case {
        name: "driver-unbound-hung-i6300esb",
        reset: Reset::MustByDaemon,
        inject: unbound::unbind_with_agent_stopped,
        restore: |rig, node| rig.cluster.heal(node),
        ..UNBOUND
    },
    Case { name: "paused-refused", fencing: Fencing::Impossible, inject: actions::pause, ..DEFAULT },
    Case {
        name: "paused-device",
        fencing: Fencing::Device,
        service: ServiceOutcome::StartsAfterFencing,
        inject: actions::pause_until_fenced,
        restore: actions::switch_on,
        ..DEFAULT
    },
    Case {
        name: "suspend-refused",
        inject: suspended::request_suspend,
        restore: suspended::check_never_suspended,
        ..DEFAULT
    },
    Case {
        name: "suspended",
        reset: Reset::AfterWakeUp,
        service: ServiceOutcome::RestartsOnSameNode,
        fencing: Fencing::Impossible,
        storage: plan::FABRIC_DIRECTORY,
        inject: suspended::suspend_and_wake,
        restore: suspended::reset,
        ..DEFAULT
    },
    Case {
        name: "suspended-device",
        fencing: Fencing::Device,
        service: ServiceOutcome::StartsAfterFencing,
        inject: suspended::suspend,
        restore: actions::switch_on,
        ..DEFAULT
    },
    Case { name: "suspended-idle-i6300esb", watchdog: I6300esb, inject: suspended::suspend_to_idle, ..RESET },
    Case { name: "fabric", fencing: Fencing::Fabric(FenceAction::Reboot), restore: fabric::reset, ..FABRIC },
    Case {
        name: "fabric-unfence",
        fencing: Fencing::Fabric(FenceAction::Off),
        restore: fabric::reset_and_unfence,
        ..FABRIC
    },
    Case {
        name: "store-outage",
        service: ServiceOutcome::RestartsOnSameNode,
        inject: actions::cause_etcd_outage,
        ..DEFAULT
    },
    Case { name: "hold-outage", inject: actions::cause_etcd_outage, ..HOLD },
    Case {
        name: "hold-cut",
        service: ServiceOutcome::StopsUntilRestored,
        prepare: actions::isolate_etcd,
        inject: |rig, node| rig.cluster.cut(node),
        restore: actions::heal_all,
        ..HOLD
    },
    Case { name: "reboot-conditional", shutdown_policy: Conditional, ..REBOOT },
    Case { name: "reboot-freeze", shutdown_policy: Freeze, ..REBOOT },
    Case { name: "reboot-failover", shutdown_policy: Failover, ..REBOOT },
    Case {
        name: "reboot-migrate",
        shutdown_policy: Migrate,
        service: ServiceOutcome::MovesAndReturns,
        ..REBOOT
    },
    Case { name: "poweroff-conditional", shutdown_policy: Conditional, ..POWER_OFF },
    Case {
        name: "poweroff-freeze",
        shutdown_policy: Freeze,
        service: ServiceOutcome::RestartsOnSameNode,
        inject: actions::switch_off_and_on,
        ..DEFAULT
    },
    Case { name: "poweroff-failover", shutdown_policy: Failover, ..POWER_OFF },
    Case {
        name: "poweroff-migrate",
        shutdown_policy: Migrate,
        service: ServiceOutcome::MovesAndReturns,
        ..POWER_OFF
    },
    Case {
        name: "maintenance",
        service: ServiceOutcome::Moves,
        inject: actions::begin_maintenance,
        restore: actions::end_maintenance,
        ..DEFAULT
    },
    Case { name: "agent-upgrade", inject: actions::upgrade_agent, ..DEFAULT },
    Case { name: "daemon-upgrade", inject: actions::upgrade_daemon, ..DEFAULT },
    Case { name: "daemon-killed", watchdog: I6300esb, inject: actions::kill_daemon, ..DEFAULT },
    Case { name: "agent-killed-50-times", inject: actions::kill_agent_often, ..DEFAULT },
    Case { name: "test-watchdog-softdog", ..TEST },
    Case { name: "test-watchdog-i6300esb", watchdog: I6300esb, ..TEST },
    Case {
        name: "test-watchdog-fails",
        reset: Reset::Requested(Step::Restoration),
        set_up: actions::disable_softdog_resets,
        inject: actions::fail_watchdog_test,
        restore: actions::restore_softdog,
        ..TEST
    },
];

/// Names of the cases that `./dev/test` runs.
pub const SHORT: [&str; 3] = ["network-cut", "agent-stopped-softdog", "agent-stopped-i6300esb"];

/// A fault after which only the watchdog can end the service.
const RESET: Case = Case { reset: Reset::Must, service: ServiceOutcome::Recovers, ..DEFAULT };

const AGENT_LOST: Case = Case { prepare: actions::keep_agent_down, inject: actions::kill_agent, ..RESET };

/// No process still pets the watchdog, but the agent commits heartbeats until the end.
const DAEMON_LOST: Case = Case {
    reset: Reset::MustAfterStop,
    service: ServiceOutcome::StartsElsewhere,
    prepare: actions::keep_daemon_down,
    inject: actions::kill_daemon,
    ..DEFAULT
};

/// The hardware watchdog stops and rejects pets. softdog has no device that could be unbound.
const UNBOUND: Case = Case { watchdog: I6300esb, service: ServiceOutcome::StartsElsewhere, ..DEFAULT };

/// The machine keeps running, without a watchdog and isolated.
const FABRIC: Case = Case {
    reset: Reset::Requested(Step::Restoration),
    service: ServiceOutcome::StartsAfterFencing,
    storage: plan::FABRIC_DIRECTORY,
    set_up: actions::disable_softdog_resets,
    inject: fabric::isolate_with_agent_stopped,
    ..DEFAULT
};

/// With onEtcdLoss Hold, no service stops because etcd is unreachable.
const HOLD: Case = Case { on_etcd_loss: Hold, others: OtherMachines::Busy, ..DEFAULT };

/// The service has moved away, because a watchdog is tested only in maintenance.
const TEST: Case = Case {
    reset: Reset::Requested(Step::Fault),
    prepare: actions::drain,
    inject: actions::test_watchdog,
    restore: actions::end_maintenance,
    ..DEFAULT
};

const REBOOT: Case = Case {
    reset: Reset::RebootFromInside,
    service: ServiceOutcome::RestartsOnSameNode,
    inject: actions::reboot,
    ..DEFAULT
};

const POWER_OFF: Case = Case {
    service: ServiceOutcome::Moves,
    inject: actions::switch_off,
    restore: actions::switch_on,
    ..DEFAULT
};
