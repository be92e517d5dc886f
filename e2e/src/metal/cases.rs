//! All cases of the metal suite, most important first.

use ha_api_types::cluster::OnEtcdLoss::Hold;
use ha_api_types::cluster::ShutdownPolicy::{Conditional, Failover, Freeze, Migrate};
use ha_api_types::node::FenceAction;

use super::case::{Case, Fencing, Others, Reset, Service, Step, USUAL};
use super::hardware::Watchdog::I6300esb;
use super::{deeds, fabric, suspended, unbound};
use crate::plan;

/// All cases.
pub static ALL: &[Case] = &[
    Case {
        name: "power-cut",
        service: Service::Elsewhere,
        act: |rig, node| rig.power_off(node),
        mend: |rig, node| rig.power_on(node),
        ..USUAL
    },
    Case {
        name: "network-cut",
        watchdog: I6300esb,
        service: Service::Elsewhere,
        act: |rig, node| rig.cluster.cut(node),
        mend: |rig, node| rig.cluster.heal(node),
        ..USUAL
    },
    Case { name: "agent-stopped-softdog", act: deeds::stop_agent, ..RESET },
    Case { name: "agent-stopped-i6300esb", watchdog: I6300esb, act: deeds::stop_agent, ..RESET },
    Case { name: "agent-lost-softdog", ..AGENT_LOST },
    Case { name: "agent-lost-i6300esb", watchdog: I6300esb, ..AGENT_LOST },
    Case { name: "daemon-lost-softdog", ..DAEMON_LOST },
    Case { name: "daemon-lost-i6300esb", watchdog: I6300esb, ..DAEMON_LOST },
    Case { name: "panic-softdog", act: deeds::panic, ..RESET },
    Case { name: "panic-i6300esb", watchdog: I6300esb, act: deeds::panic, ..RESET },
    Case { name: "starved-softdog", act: deeds::starve, ..RESET },
    Case { name: "starved-i6300esb", watchdog: I6300esb, act: deeds::starve, ..RESET },
    Case {
        name: "driver-unbound-i6300esb",
        service: Service::Moves,
        act: unbound::unbind_and_see_failed,
        mend: unbound::bind,
        ..UNBOUND
    },
    Case {
        name: "driver-unbound-cut-i6300esb",
        act: unbound::cut_and_unbind,
        mend: unbound::heal_and_bind,
        ..UNBOUND
    },
    Case {
        name: "driver-unbound-hung-i6300esb",
        reset: Reset::MustByDaemon,
        act: unbound::unbind_with_agent_stopped,
        mend: |rig, node| rig.cluster.heal(node),
        ..UNBOUND
    },
    Case { name: "paused-refused", fencing: Fencing::Impossible, act: deeds::pause, ..USUAL },
    Case {
        name: "paused-device",
        fencing: Fencing::Device,
        service: Service::Fenced,
        act: deeds::pause_for_good,
        mend: deeds::switch_on,
        ..USUAL
    },
    Case { name: "suspend-refused", act: suspended::ask, mend: suspended::never_slept, ..USUAL },
    Case {
        name: "suspended",
        reset: Reset::Asked(Step::Mending),
        service: Service::Returns,
        fencing: Fencing::Impossible,
        storage: plan::FABRIC,
        act: suspended::force,
        mend: suspended::reset,
        ..USUAL
    },
    Case {
        name: "suspended-device",
        fencing: Fencing::Device,
        service: Service::Fenced,
        act: suspended::force_for_good,
        mend: deeds::switch_on,
        ..USUAL
    },
    Case { name: "suspended-idle-i6300esb", watchdog: I6300esb, act: suspended::force_to_idle, ..RESET },
    Case { name: "fabric", fencing: Fencing::Fabric(FenceAction::Reboot), mend: fabric::reset, ..FABRIC },
    Case {
        name: "fabric-unfence",
        fencing: Fencing::Fabric(FenceAction::Off),
        mend: fabric::reset_and_unfence,
        ..FABRIC
    },
    Case { name: "store-outage", service: Service::Returns, act: deeds::store_outage, ..USUAL },
    Case { name: "hold-outage", act: deeds::store_outage, ..HOLD },
    Case {
        name: "hold-cut",
        service: Service::Withdraws,
        prepare: deeds::lose_store,
        act: |rig, node| rig.cluster.cut(node),
        mend: deeds::heal_all,
        ..HOLD
    },
    Case { name: "reboot-conditional", policy: Conditional, ..REBOOT },
    Case { name: "reboot-freeze", policy: Freeze, ..REBOOT },
    Case { name: "reboot-failover", policy: Failover, ..REBOOT },
    Case { name: "reboot-migrate", policy: Migrate, service: Service::Visits, ..REBOOT },
    Case { name: "poweroff-conditional", policy: Conditional, ..POWER_OFF },
    Case {
        name: "poweroff-freeze",
        policy: Freeze,
        service: Service::Returns,
        act: deeds::switch_off_and_on,
        ..USUAL
    },
    Case { name: "poweroff-failover", policy: Failover, ..POWER_OFF },
    Case { name: "poweroff-migrate", policy: Migrate, service: Service::Visits, ..POWER_OFF },
    Case {
        name: "maintenance",
        service: Service::Moves,
        act: deeds::begin_maintenance,
        mend: deeds::end_maintenance,
        ..USUAL
    },
    Case { name: "agent-upgrade", act: deeds::upgrade_agent, ..USUAL },
    Case { name: "daemon-upgrade", act: deeds::upgrade_daemon, ..USUAL },
    Case { name: "daemon-killed", watchdog: I6300esb, act: deeds::kill_daemon, ..USUAL },
    Case { name: "agent-killed-50-times", act: deeds::kill_agent_often, ..USUAL },
    Case { name: "test-watchdog-softdog", ..TEST },
    Case { name: "test-watchdog-i6300esb", watchdog: I6300esb, ..TEST },
    Case {
        name: "test-watchdog-fails",
        reset: Reset::Asked(Step::Mending),
        equip: deeds::deafen_softdog,
        act: deeds::fail_watchdog_test,
        mend: deeds::cure_softdog,
        ..TEST
    },
];

/// Names of the cases that `./dev/test` runs.
pub const SHORT: [&str; 3] = ["network-cut", "agent-stopped-softdog", "agent-stopped-i6300esb"];

/// A fault after which only the watchdog can end the service.
const RESET: Case = Case { reset: Reset::Must, service: Service::Recovers, ..USUAL };

const AGENT_LOST: Case = Case { prepare: deeds::keep_agent_down, act: deeds::kill_agent, ..RESET };

/// No process still pets the watchdog, but the agent commits heartbeats until the end.
const DAEMON_LOST: Case = Case {
    reset: Reset::MustEmpty,
    service: Service::Elsewhere,
    prepare: deeds::keep_daemon_down,
    act: deeds::kill_daemon,
    ..USUAL
};

/// The hardware watchdog stops and rejects pets. softdog has no device that could be unbound.
const UNBOUND: Case = Case { watchdog: I6300esb, service: Service::Elsewhere, ..USUAL };

/// The machine keeps running, without a watchdog and isolated.
const FABRIC: Case = Case {
    reset: Reset::Asked(Step::Mending),
    service: Service::Fenced,
    storage: plan::FABRIC,
    equip: deeds::deafen_softdog,
    act: fabric::leave_to_itself,
    ..USUAL
};

/// With onEtcdLoss Hold, no service stops because etcd is unreachable.
const HOLD: Case = Case { on_etcd_loss: Hold, others: Others::Busy, ..USUAL };

/// The service has moved away, because a watchdog is tested only in maintenance.
const TEST: Case = Case {
    reset: Reset::Asked(Step::Deed),
    prepare: deeds::empty,
    act: deeds::test_watchdog,
    mend: deeds::end_maintenance,
    ..USUAL
};

const REBOOT: Case = Case { reset: Reset::Own, service: Service::Returns, act: deeds::reboot, ..USUAL };

const POWER_OFF: Case =
    Case { service: Service::Moves, act: deeds::switch_off, mend: deeds::switch_on, ..USUAL };
