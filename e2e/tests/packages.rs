//! Test of the Debian packages on a machine with systemd: installation, configuration, upgrade with an armed watchdog, removal
//! and purge.

#![expect(clippy::print_stdout, reason = "measurements are kept in the suite's log")]

use std::collections::BTreeSet;
use std::env;
use std::fs;
use std::path::PathBuf;
use std::time::Instant;

use anyhow::{Context, Result, bail, ensure};
use ha_e2e::binaries::workspace_program;
use ha_e2e::cluster::Cluster;
use ha_e2e::container;
use ha_e2e::plan::{API_PORT, ETCD_CLIENT_PORT, Plan, SHARED_DIRECTORY, simulated_watchdog_socket};
use ha_e2e::scenario::STEP_TIMEOUT;
use ha_e2e::scratch;
use ha_e2e::wait::{wait_for, wait_for_ok, wait_until};

const NODE: &str = "node1";
const PACKAGES: [&str; 3] = ["hactl", "ha-controller", "ha-node-agent"];
const UNITS: [&str; 3] = ["ha-controller", "ha-node-agent", "ha-watchdogd"];
/// Directories to which any package installation writes and which no purge cleans.
const FOREIGN_DIRECTORIES: [&str; 7] = [
    "/var/lib/dpkg/",
    "/var/lib/apt/",
    "/var/lib/PackageKit/",
    "/var/cache/",
    "/var/log/",
    "/var/lib/systemd/",
    "/etc/.pwd.lock",
];

/// A machine without the project's packages, and an etcd member.
struct BareMachine {
    cluster: Cluster,
    begin: Instant,
}

impl BareMachine {
    fn start() -> Result<Self> {
        let begin = Instant::now();
        let mut plan = Plan::test(&scratch::directory("packages")?);
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

    fn print_progress(&self, step: &str) {
        println!("{:5.1} s {step}", self.begin.elapsed().as_secs_f64());
    }

    /// Runs a command on the machine and returns its output.
    fn run(&self, script: &str) -> Result<String> {
        let output_text = container::run_inside(self.cluster.machine(NODE)?, &["sh", "-c", script]);
        output_text.map(|output_text| output_text.trim().to_owned()).with_context(|| script.to_owned())
    }

    /// Runs a command that must fail, and returns its output.
    fn run_expecting_failure(&self, script: &str) -> Result<String> {
        self.run(&format!("if {script} >/tmp/said 2>&1; then cat /tmp/said; exit 1; else cat /tmp/said; fi"))
    }

    fn install(&self, variable: &str) -> Result<String> {
        // The packages are copied to the shared directory, because not all directories of the host, such as /tmp, are
        // visible on the machine.
        let target = self.cluster.shared_directory().join(variable);
        fs::create_dir_all(&target)?;
        for package in fs::read_dir(packages(variable)?)? {
            let package = package?;
            fs::copy(package.path(), target.join(package.file_name()))?;
        }
        let options = "-o APT::Sandbox::User=root -o Dpkg::Use-Pty=0 --no-install-recommends";
        self.run(&format!(
            "DEBIAN_FRONTEND=noninteractive apt-get install --assume-yes {options} {SHARED_DIRECTORY}/{variable}/*.deb 2>&1"
        ))
    }

    /// Returns the main process of a unit, with its process id on the machine.
    fn process(&self, unit: &str) -> Result<i32> {
        let output_text = self.run(&format!("systemctl show --property MainPID --value {unit}"))?;
        let pid = output_text.parse().with_context(|| output_text.clone())?;
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

    fn wait_for_status(&self, condition_name: &str, words: &[&str]) -> Result<()> {
        let status =
            || self.run("systemctl show --property StatusText --value ha-node-agent").unwrap_or_default();
        wait_until(condition_name, STEP_TIMEOUT, || words.iter().all(|word| status().contains(word)))
            .with_context(|| format!("{}\n{}", status(), self.journal("ha-node-agent")))
    }

    /// Returns the names of all files of the machine outside [`FOREIGN_DIRECTORIES`].
    fn files(&self) -> Result<BTreeSet<String>> {
        let output_text = self.run("find /etc /usr /var /run/hactl -xdev 2>/dev/null; true")?;
        let is_checked =
            |name: &&str| !FOREIGN_DIRECTORIES.iter().any(|directory| name.starts_with(directory));
        Ok(output_text.lines().filter(is_checked).map(str::to_owned).collect())
    }
}

/// Returns the directory with packages that a variable names, as `dev/test packages` sets it.
fn packages(variable: &str) -> Result<PathBuf> {
    env::var_os(variable)
        .map(PathBuf::from)
        .filter(|directory| directory.is_dir())
        .with_context(|| format!("{variable} is not a directory with packages: run ./dev/test packages"))
}

#[test]
fn packages_are_installed_upgraded_removed_and_purged() -> Result<()> {
    let machine = BareMachine::start()?;
    machine.print_progress("machine with systemd started");
    let before = machine.files()?;
    let boot = machine.cluster.machine(NODE)?.namespace();
    check_installation(&machine)?;
    check_configuration(&machine)?;
    check_upgrade(&machine)?;
    check_refused_removal(&machine)?;
    check_removal(&machine)?;
    check_purge(&machine, &before)?;
    assert_eq!(machine.cluster.machine(NODE)?.namespace(), boot, "the machine was never reset");
    machine.cluster.remove()
}

fn check_installation(machine: &BareMachine) -> Result<()> {
    machine.install("HACTL_PACKAGES")?;
    machine.print_progress("installed");
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

fn check_configuration(machine: &BareMachine) -> Result<()> {
    let cluster = &machine.cluster;
    let etcd = cluster.machine("etcd1")?.address;
    let node = cluster.machine(NODE)?;
    let tls = cluster.directory().join("tls");
    let tls = tls.display();
    machine.run(&format!(
        "mkdir -p /etc/hactl && cp {tls}/ca.pem {tls}/{NODE}.pem {tls}/{NODE}.key /etc/hactl/ && \
         mkdir -p /etc/systemd/system/ha-watchdogd.service.d && \
         printf '[Service]\\nEnvironment=WATCHDOG_SIMULATED={}\\nReadWritePaths={}\\n' >/etc/systemd/system/ha-watchdogd.service.d/test.conf && \
         systemctl daemon-reload",
        simulated_watchdog_socket(node).display(),
        node.volatile.display()
    ))?;
    let output_text = machine.run(&format!(
        "hactl init --etcd-endpoints https://{etcd}:{ETCD_CLIENT_PORT} --etcd-ca /etc/hactl/ca.pem --etcd-cert /etc/hactl/{NODE}.pem \
         --etcd-key /etc/hactl/{NODE}.key --node {NODE} --listen {}:{API_PORT} --profile fast",
        node.address
    ))?;
    // The services of this test run as root.
    machine.run("grep -q 'allowRoot: false' /etc/hactl/agent.yaml")?;
    machine.run("sed -i 's/allowRoot: false/allowRoot: true/' /etc/hactl/agent.yaml")?;
    // `hactl init` lists the next steps. The test runs them unchanged.
    let steps: Vec<&str> = output_text
        .lines()
        .skip_while(|line| *line != "next:")
        .skip(1)
        .map(|line| line.split("    (").next().unwrap_or_default().trim())
        .collect();
    for step in
        ["chgrp _hactl", "systemctl start ha-controller", "systemctl start ha-watchdogd ha-node-agent"]
    {
        ensure!(steps.iter().any(|command| command.starts_with(step)), "{step} is missing:\n{output_text}");
    }
    for step in steps {
        if step.starts_with("hactl doctor") {
            continue;
        }
        wait_for_ok(step, STEP_TIMEOUT, || machine.run(step))
            .with_context(|| machine.journal("ha-controller"))?;
    }
    machine.run("hactl set cluster/default fencing.allowSimulatedWatchdog=true")?;
    machine
        .run(&format!("hactl wait node/{NODE} --for=condition=Ready --timeout 60s"))
        .with_context(|| machine.journal("ha-node-agent"))?;
    machine.print_progress("configured");
    let witness = workspace_program("ha-witness")?;
    machine.run(&format!(
        "hactl create resource web --exec --wait --timeout 60s -- {} --file {SHARED_DIRECTORY}/web",
        witness.display()
    ))?;
    machine.wait_for_status("the watchdog to be armed", &["watchdog armed", "; 1 service may run"])?;
    machine.print_progress("a service runs");
    check_journal_fields(machine)
}

/// Checks that log lines of the daemons are journal entries with the fields of their objects.
fn check_journal_fields(machine: &BareMachine) -> Result<()> {
    for unit in ["ha-controller", "ha-node-agent"] {
        let fields = [
            "HACTL_RESOURCE=web".to_owned(),
            format!("HACTL_NODE={NODE}"),
            format!("_SYSTEMD_UNIT={unit}.service"),
        ];
        let journal_command = format!("journalctl --quiet --output json {}", fields.join(" "));
        let entry = wait_for(&format!("{unit} in the journal"), STEP_TIMEOUT, || {
            let output_text = machine.run(&journal_command).ok()?;
            serde_json::from_str::<serde_json::Value>(output_text.lines().next()?).ok()
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

fn check_upgrade(machine: &BareMachine) -> Result<()> {
    let pids = || UNITS.map(|unit| machine.process(unit)).into_iter().collect::<Result<Vec<_>>>();
    let service =
        || machine.run(&format!("pgrep --full -- '^[^ ]*ha-witness --file {SHARED_DIRECTORY}/web'"));
    machine.run("echo '# by the administrator' >>/etc/default/ha-node-agent")?;
    let (old, running) = (pids()?, service()?);
    let lines = machine.cluster.witness("web").lines()?.len();
    let output_text = machine.install("HACTL_PACKAGES_NEXT")?;
    ensure!(output_text.contains("restarting the agent"), "{output_text}");
    let new = pids()?;
    machine.print_progress("upgraded");
    let [controller, agent, watchdogd] = [0, 1, 2].map(|index| (old[index], new[index]));
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
    wait_until("the service to continue", STEP_TIMEOUT, || {
        machine.cluster.witness("web").lines().is_ok_and(|now| now.len() > lines)
    })?;
    let last_line = machine.run("tail -n 1 /etc/default/ha-node-agent")?;
    assert_eq!(last_line, "# by the administrator", "an upgrade keeps what the administrator has written");
    machine.print_progress("the new agent has armed");
    Ok(())
}

fn check_refused_removal(machine: &BareMachine) -> Result<()> {
    let output_text =
        machine.run_expecting_failure("apt-get remove --assume-yes -o Dpkg::Use-Pty=0 ha-node-agent")?;
    for words in
        ["error: services still run on this node", "; 1 service may run", "hactl node maintenance enable"]
    {
        ensure!(output_text.contains(words), "{words} is missing:\n{output_text}");
    }
    machine.wait_for_status("the agent to continue", &["watchdog armed", "; 1 service may run"])?;
    let state = machine.run("dpkg-query --show --showformat '${Status}' ha-node-agent")?;
    assert!(state.ends_with("ok installed"), "{state}");
    machine.print_progress("a removal was refused");
    Ok(())
}

fn check_removal(machine: &BareMachine) -> Result<()> {
    machine.run("hactl delete resource web --stop && hactl wait resource/web --for=delete --timeout 60s")?;
    machine.wait_for_status("nothing to run", &["; 0 services may run"])?;
    let watchdogd = machine.process("ha-watchdogd")?;
    machine.run("apt-get remove --assume-yes -o Dpkg::Use-Pty=0 ha-node-agent 2>&1")?;
    // The agent has left permanently, not for a restart, so its node can be deleted.
    machine.run(&format!("hactl delete node/{NODE}"))?;
    machine.run(&format!("hactl wait node/{NODE} --for=delete --timeout 60s"))?;
    machine.run("apt-get remove --assume-yes -o Dpkg::Use-Pty=0 ha-controller hactl 2>&1")?;
    machine.print_progress("removed");
    for unit in UNITS {
        let state = machine.run(&format!("systemctl is-active {unit} || true"))?;
        assert_eq!(state, "inactive", "{unit}");
    }
    machine.run(&format!("test ! -e /proc/{watchdogd}"))?;
    machine
        .run("test ! -e /usr/bin/hactl && test -e /etc/hactl/agent.yaml && test -d /var/lib/hactl/agent")?;
    Ok(())
}

fn check_purge(machine: &BareMachine, before: &BTreeSet<String>) -> Result<()> {
    // Files that the administrator created have to be removed by the administrator.
    machine.run("rm -r /etc/hactl/*.pem /etc/hactl/*.key /etc/systemd/system/ha-watchdogd.service.d")?;
    machine.run(&format!("apt-get purge --assume-yes -o Dpkg::Use-Pty=0 {} 2>&1", PACKAGES.join(" ")))?;
    machine.print_progress("purged");
    let after = machine.files()?;
    let remaining: Vec<&String> = after.difference(before).collect();
    if !remaining.is_empty() {
        bail!("files remain after the purge: {remaining:?}");
    }
    Ok(())
}
