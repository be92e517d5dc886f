//! Test of the Debian packages on a machine with systemd: installation, configuration, upgrade with an armed watchdog, removal
//! and purge.

#![expect(clippy::print_stdout, reason = "measurements are kept in the suite's log")]

use std::collections::BTreeSet;
use std::env;
use std::fs;
use std::path::PathBuf;
use std::time::Instant;

use anyhow::{Context, Result, bail, ensure};
use ha_e2e::binaries::own;
use ha_e2e::cluster::Cluster;
use ha_e2e::container;
use ha_e2e::plan::{API_PORT, ETCD_CLIENT_PORT, Plan, SHARED, stand_in_socket};
use ha_e2e::scenario::CEILING;
use ha_e2e::scratch;
use ha_e2e::wait::{wait_for, wait_for_ok, wait_until};

const NODE: &str = "node1";
const PACKAGES: [&str; 3] = ["hactl", "ha-controller", "ha-node-agent"];
const UNITS: [&str; 3] = ["ha-controller", "ha-node-agent", "ha-watchdogd"];
/// Directories to which any package installation writes and which no purge cleans.
const NOT_OURS: [&str; 7] = [
    "/var/lib/dpkg/",
    "/var/lib/apt/",
    "/var/lib/PackageKit/",
    "/var/cache/",
    "/var/log/",
    "/var/lib/systemd/",
    "/etc/.pwd.lock",
];

/// A machine without the project's packages, and an etcd member.
struct Bare {
    cluster: Cluster,
    begin: Instant,
}

impl Bare {
    fn start() -> Result<Self> {
        let begin = Instant::now();
        let mut plan = Plan::test(&scratch::folder("packages")?);
        (plan.etcd, plan.controllers, plan.nodes) = (1, 0, 1);
        (plan.units, plan.bare) = (Some(Vec::new()), true);
        let mut cluster = Cluster::start(plan)?;
        cluster.power_on(NODE)?;
        container::wait_until_booted(cluster.machine(NODE)?)?;
        let bare = Self { cluster, begin };
        // The first file prevents starts of services if this suite runs in a container. The second causes an index of all manual
        // pages.
        bare.run("rm -f /usr/sbin/policy-rc.d /var/lib/man-db/auto-update")?;
        Ok(bare)
    }

    fn tell(&self, what: &str) {
        println!("{:5.1} s {what}", self.begin.elapsed().as_secs_f64());
    }

    /// Runs a command on the machine and returns its output.
    fn run(&self, script: &str) -> Result<String> {
        let said = container::inside(self.cluster.machine(NODE)?, &["sh", "-c", script]);
        said.map(|said| said.trim().to_owned()).with_context(|| script.to_owned())
    }

    /// Runs a command that must fail, and returns its output.
    fn refused(&self, script: &str) -> Result<String> {
        self.run(&format!("if {script} >/tmp/said 2>&1; then cat /tmp/said; exit 1; else cat /tmp/said; fi"))
    }

    fn install(&self, variable: &str) -> Result<String> {
        // Copied to the shared directory, because not all directories of the host, such as /tmp, are visible on the machine.
        let there = self.cluster.shared().join(variable);
        fs::create_dir_all(&there)?;
        for package in fs::read_dir(packages(variable)?)? {
            let package = package?;
            fs::copy(package.path(), there.join(package.file_name()))?;
        }
        let options = "-o APT::Sandbox::User=root -o Dpkg::Use-Pty=0 --no-install-recommends";
        self.run(&format!(
            "DEBIAN_FRONTEND=noninteractive apt-get install --assume-yes {options} {SHARED}/{variable}/*.deb 2>&1"
        ))
    }

    /// Returns the main process of a unit, with its process id on the machine.
    fn process(&self, unit: &str) -> Result<i32> {
        let said = self.run(&format!("systemctl show --property MainPID --value {unit}"))?;
        let pid = said.parse().with_context(|| said.clone())?;
        ensure!(pid != 0, "{unit} does not run:\n{}", self.journal(unit));
        Ok(pid)
    }

    fn journal(&self, unit: &str) -> String {
        self.run(&format!("systemctl status --full --lines 50 {unit}; true")).unwrap_or_default()
    }

    /// Returns the path of a process's program. It ends with ` (deleted)` if the file was replaced.
    fn program(&self, pid: i32) -> Result<String> {
        self.run(&format!("readlink /proc/{pid}/exe"))
    }

    fn wait_for_status(&self, what: &str, words: &[&str]) -> Result<()> {
        let status =
            || self.run("systemctl show --property StatusText --value ha-node-agent").unwrap_or_default();
        wait_until(what, CEILING, || words.iter().all(|word| status().contains(word)))
            .with_context(|| format!("{}\n{}", status(), self.journal("ha-node-agent")))
    }

    /// Returns the names of all files of the machine outside [`NOT_OURS`].
    fn files(&self) -> Result<BTreeSet<String>> {
        let said = self.run("find /etc /usr /var /run/hactl -xdev 2>/dev/null; true")?;
        let ours = |name: &&str| !NOT_OURS.iter().any(|folder| name.starts_with(folder));
        Ok(said.lines().filter(ours).map(str::to_owned).collect())
    }
}

/// Returns the directory with packages that a variable names, as `dev/test packages` sets it.
fn packages(variable: &str) -> Result<PathBuf> {
    env::var_os(variable)
        .map(PathBuf::from)
        .filter(|folder| folder.is_dir())
        .with_context(|| format!("{variable} is not a directory with packages: run ./dev/test packages"))
}

#[test]
fn packages_are_installed_upgraded_removed_and_purged() -> Result<()> {
    let machine = Bare::start()?;
    machine.tell("machine with systemd started");
    let before = machine.files()?;
    let boot = machine.cluster.machine(NODE)?.namespace();
    installed_they_wait_for_a_configuration(&machine)?;
    configured_they_run_a_service(&machine)?;
    an_upgrade_restarts_the_agent_and_nothing_that_it_guards(&machine)?;
    a_removal_is_refused_while_services_run(&machine)?;
    removed_they_leave_the_configuration(&machine)?;
    purged_they_leave_nothing(&machine, &before)?;
    assert_eq!(machine.cluster.machine(NODE)?.namespace(), boot, "the machine was never reset");
    machine.cluster.remove()
}

fn installed_they_wait_for_a_configuration(machine: &Bare) -> Result<()> {
    machine.install("HACTL_PACKAGES")?;
    machine.tell("installed");
    for unit in UNITS {
        assert_eq!(machine.run(&format!("systemctl is-enabled {unit}"))?, "enabled", "{unit}");
        let state = machine.run(&format!("systemctl is-active {unit} || true"))?;
        assert_eq!(state, "inactive", "{unit}: nothing runs before it is configured");
    }
    machine.run("systemd-analyze verify /usr/lib/systemd/system/ha-*.service")?;
    for page in ["hactl.1", "hactl-init.1", "ha-controller.8", "ha-node-agent.8", "ha-watchdogd.8"] {
        let (_, section) = page.rsplit_once('.').context("manual page has no section")?;
        machine.run(&format!("test -s /usr/share/man/man{section}/{page}.gz"))?;
    }
    machine.run("bash -c '. /usr/share/bash-completion/completions/hactl && complete -p hactl'")?;
    assert!(machine.run("getent passwd _hactl")?.ends_with("/usr/sbin/nologin"));
    Ok(())
}

fn configured_they_run_a_service(machine: &Bare) -> Result<()> {
    let cluster = &machine.cluster;
    let etcd = cluster.machine("etcd1")?.address;
    let node = cluster.machine(NODE)?;
    let tls = cluster.folder().join("tls");
    let tls = tls.display();
    machine.run(&format!(
        "mkdir -p /etc/hactl && cp {tls}/ca.pem {tls}/{NODE}.pem {tls}/{NODE}.key /etc/hactl/ && \
         mkdir -p /etc/systemd/system/ha-watchdogd.service.d && \
         printf '[Service]\\nEnvironment=WATCHDOG_SIMULATED={}\\nReadWritePaths={}\\n' >/etc/systemd/system/ha-watchdogd.service.d/test.conf && \
         systemctl daemon-reload",
        stand_in_socket(node).display(),
        node.volatile.display()
    ))?;
    let said = machine.run(&format!(
        "hactl init --etcd-endpoints https://{etcd}:{ETCD_CLIENT_PORT} --etcd-ca /etc/hactl/ca.pem --etcd-cert /etc/hactl/{NODE}.pem \
         --etcd-key /etc/hactl/{NODE}.key --node {NODE} --listen {}:{API_PORT} --profile fast",
        node.address
    ))?;
    // `hactl init` lists the next steps. The test runs them unchanged.
    let steps: Vec<&str> = said
        .lines()
        .skip_while(|line| *line != "next:")
        .skip(1)
        .map(|line| line.split("    (").next().unwrap_or_default().trim())
        .collect();
    for step in
        ["chgrp _hactl", "systemctl start ha-controller", "systemctl start ha-watchdogd ha-node-agent"]
    {
        ensure!(steps.iter().any(|said| said.starts_with(step)), "{step} is missing:\n{said}");
    }
    for step in steps {
        if step.starts_with("hactl doctor") {
            continue;
        }
        wait_for_ok(step, CEILING, || machine.run(step)).with_context(|| machine.journal("ha-controller"))?;
    }
    machine.run("hactl set cluster/default fencing.allowSimulatedWatchdog=true")?;
    machine
        .run(&format!("hactl wait node/{NODE} --for=condition=Ready --timeout 60s"))
        .with_context(|| machine.journal("ha-node-agent"))?;
    machine.tell("configured");
    let witness = own("ha-witness")?;
    machine.run(&format!(
        "hactl create resource web --exec --wait --timeout 60s -- {} --file {SHARED}/web",
        witness.display()
    ))?;
    machine.wait_for_status("the watchdog to be armed", &["watchdog armed", "; 1 service may run"])?;
    machine.tell("a service runs");
    the_journal_finds_a_service(machine)
}

/// Checks that log lines of the daemons are journal entries with the fields of their objects.
fn the_journal_finds_a_service(machine: &Bare) -> Result<()> {
    for unit in ["ha-controller", "ha-node-agent"] {
        let fields = [
            "HACTL_RESOURCE=web".to_owned(),
            format!("HACTL_NODE={NODE}"),
            format!("_SYSTEMD_UNIT={unit}.service"),
        ];
        let asked = format!("journalctl --quiet --output json {}", fields.join(" "));
        let entry = wait_for(&format!("{unit} in the journal"), CEILING, || {
            let said = machine.run(&asked).ok()?;
            serde_json::from_str::<serde_json::Value>(said.lines().next()?).ok()
        })?;
        let text = |field: &str| entry[field].as_str().unwrap_or_default().to_owned();
        assert_eq!(text("SYSLOG_IDENTIFIER"), unit, "{entry}");
        assert_eq!(text("PRIORITY"), "6", "{entry}");
        for field in ["HACTL_ACTION", "HACTL_EPOCH", "HACTL_REASON", "CODE_FILE"] {
            assert!(!text(field).is_empty(), "{field} of {entry}");
        }
        assert!(text("MESSAGE").contains("resource=\"web\""), "{entry}");
    }
    // The simulated watchdog must cause a warning.
    let warned = machine.run("journalctl --quiet --unit ha-watchdogd --priority warning --output cat")?;
    ensure!(warned.contains("simulated watchdog"), "{warned}");
    Ok(())
}

fn an_upgrade_restarts_the_agent_and_nothing_that_it_guards(machine: &Bare) -> Result<()> {
    let pids = || UNITS.map(|unit| machine.process(unit)).into_iter().collect::<Result<Vec<_>>>();
    let service = || machine.run(&format!("pgrep --full -- '^[^ ]*ha-witness --file {SHARED}/web'"));
    machine.run("echo '# by the administrator' >>/etc/default/ha-node-agent")?;
    let (old, running) = (pids()?, service()?);
    let beats = machine.cluster.witness("web").beats()?.len();
    let said = machine.install("HACTL_PACKAGES_NEXT")?;
    ensure!(said.contains("restarting the agent"), "{said}");
    let new = pids()?;
    machine.tell("upgraded");
    let [controller, agent, watchdogd] = [0, 1, 2].map(|at| (old[at], new[at]));
    assert_ne!(controller.0, controller.1, "the controller was not restarted");
    assert_ne!(agent.0, agent.1, "the agent was not restarted");
    assert_eq!(watchdogd.0, watchdogd.1, "the watchdog daemon was restarted");
    for (pid, program) in [
        (controller.1, "/usr/bin/ha-controller"),
        (agent.1, "/usr/bin/ha-node-agent"),
        (watchdogd.1, "/usr/bin/ha-watchdogd (deleted)"),
    ] {
        assert_eq!(machine.program(pid)?, program);
    }
    machine.wait_for_status("the new agent to arm", &["watchdog armed", "; 1 service may run"])?;
    machine.run(&format!("hactl wait node/{NODE} resource/web --for=condition=Ready --timeout 60s"))?;
    assert_eq!(service()?, running, "the service was restarted");
    wait_until("the service to continue", CEILING, || {
        machine.cluster.witness("web").beats().is_ok_and(|now| now.len() > beats)
    })?;
    let kept = machine.run("tail -n 1 /etc/default/ha-node-agent")?;
    assert_eq!(kept, "# by the administrator", "an upgrade keeps what the administrator has written");
    machine.tell("the new agent has armed");
    Ok(())
}

fn a_removal_is_refused_while_services_run(machine: &Bare) -> Result<()> {
    let said = machine.refused("apt-get remove --assume-yes -o Dpkg::Use-Pty=0 ha-node-agent")?;
    for words in
        ["error: services still run on this node", "; 1 service may run", "hactl node maintenance enable"]
    {
        ensure!(said.contains(words), "{words} is missing:\n{said}");
    }
    machine.wait_for_status("the agent to continue", &["watchdog armed", "; 1 service may run"])?;
    let state = machine.run("dpkg-query --show --showformat '${Status}' ha-node-agent")?;
    assert!(state.ends_with("ok installed"), "{state}");
    machine.tell("a removal was refused");
    Ok(())
}

fn removed_they_leave_the_configuration(machine: &Bare) -> Result<()> {
    machine.run("hactl delete resource web --stop && hactl wait resource/web --for=delete --timeout 60s")?;
    machine.wait_for_status("nothing to run", &["; 0 services may run"])?;
    let watchdogd = machine.process("ha-watchdogd")?;
    machine.run("apt-get remove --assume-yes -o Dpkg::Use-Pty=0 ha-node-agent 2>&1")?;
    // The agent has left permanently, not for a restart, so its node can be deleted.
    machine.run(&format!("hactl delete node/{NODE}"))?;
    machine.run(&format!("hactl wait node/{NODE} --for=delete --timeout 60s"))?;
    machine.run("apt-get remove --assume-yes -o Dpkg::Use-Pty=0 ha-controller hactl 2>&1")?;
    machine.tell("removed");
    for unit in UNITS {
        let state = machine.run(&format!("systemctl is-active {unit} || true"))?;
        assert_eq!(state, "inactive", "{unit}");
    }
    machine.run(&format!("test ! -e /proc/{watchdogd}"))?;
    machine
        .run("test ! -e /usr/bin/hactl && test -e /etc/hactl/agent.yaml && test -d /var/lib/hactl/agent")?;
    Ok(())
}

fn purged_they_leave_nothing(machine: &Bare, before: &BTreeSet<String>) -> Result<()> {
    // Files that the administrator created have to be removed by the administrator.
    machine.run("rm -r /etc/hactl/*.pem /etc/hactl/*.key /etc/systemd/system/ha-watchdogd.service.d")?;
    machine.run(&format!("apt-get purge --assume-yes -o Dpkg::Use-Pty=0 {} 2>&1", PACKAGES.join(" ")))?;
    machine.tell("purged");
    let after = machine.files()?;
    let left: Vec<&String> = after.difference(before).collect();
    if !left.is_empty() {
        bail!("files remain after the purge: {left:?}");
    }
    Ok(())
}
