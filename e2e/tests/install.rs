//! Test that runs the commands of docs/install.md on three machines with systemd, then cuts the power of one.

#![expect(clippy::print_stdout, reason = "measurements are kept in the suite's log")]

use std::env;
use std::fmt::Write;
use std::fs;
use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail, ensure};
use ha_e2e::binaries::{self, repository};
use ha_e2e::cluster::Cluster;
use ha_e2e::container;
use ha_e2e::documented_commands::{self, BlockTarget, CommandBlock};
use ha_e2e::plan::{Plan, SHARED_DIRECTORY, simulated_watchdog_socket};
use ha_e2e::scenario::STEP_TIMEOUT;
use ha_e2e::scratch;
use ha_e2e::wait::{wait_for, wait_until};

/// Machines of docs/install.md, each with its name in the test.
const MACHINES: [(&str, &str); 3] = [("c1", "node1"), ("c2", "node2"), ("c3", "node3")];
/// Longest interruption of a service by a failover with the profile Default, on a busy host.
const FAILOVER_TIMEOUT: Duration = Duration::from_secs(60);

/// Three machines without the project's packages, and the blocks of docs/install.md that have not been run yet.
struct InstallTest {
    cluster: Cluster,
    blocks: Vec<CommandBlock>,
    started_at: Instant,
}

impl InstallTest {
    fn start() -> Result<Self> {
        let started_at = Instant::now();
        let mut plan = Plan::test(&scratch::directory("install")?);
        (plan.etcd, plan.controllers, plan.nodes) = (0, 0, 3);
        (plan.units, plan.bare) = (Some(Vec::new()), true);
        let mut cluster = Cluster::start(plan)?;
        for (_, machine) in MACHINES {
            cluster.power_on(machine)?;
        }
        let blocks = documented_commands::blocks(&repository().join("docs/install.md"))?;
        let test = Self { cluster, blocks, started_at };
        test.prepare()?;
        test.print_progress("three machines with systemd started");
        Ok(test)
    }

    /// Installs the prerequisites of the page: host names, the packages and an etcd release. Also installs the simulated
    /// watchdog.
    fn prepare(&self) -> Result<()> {
        let shared = self.cluster.shared_directory();
        for package in fs::read_dir(packages()?)? {
            let package = package?;
            fs::copy(package.path(), shared.join(package.file_name()))?;
        }
        for (program, name) in [(binaries::etcd()?, "etcd"), (binaries::etcdctl()?, "etcdctl")] {
            fs::copy(program, shared.join(name))?;
        }
        let mut hosts = String::new();
        for (name, machine) in MACHINES {
            writeln!(hosts, "{} {name}", self.cluster.machine(machine)?.address)?;
        }
        fs::write(shared.join("hosts"), hosts)?;
        fs::write(
            shared.join("apt.conf"),
            "APT::Get::Assume-Yes \"true\";\nAPT::Sandbox::User \"root\";\nAPT::Install-Recommends \"false\";\nDpkg::Use-Pty \"false\";\n",
        )?;
        run_on_each_machine(|name| {
            let machine = self.cluster.machine(machine_name(name)?)?;
            container::wait_until_booted(machine)?;
            // The first file prevents starts of services if this suite runs in a container. The second causes an index of all
            // manual pages.
            let script = format!(
                "rm -f /usr/sbin/policy-rc.d /var/lib/man-db/auto-update
                echo {name} >/etc/hostname; hostname {name}; cat {SHARED_DIRECTORY}/hosts >>/etc/hosts
                install {SHARED_DIRECTORY}/etcd {SHARED_DIRECTORY}/etcdctl /usr/local/bin/
                install -m 644 {SHARED_DIRECTORY}/apt.conf /etc/apt/apt.conf.d/99test
                mkdir -p /etc/systemd/system/ha-watchdogd.service.d
                printf '[Service]\\nEnvironment=WATCHDOG_SIMULATED={}\\nReadWritePaths={}\\n' >/etc/systemd/system/ha-watchdogd.service.d/test.conf
                systemctl daemon-reload",
                simulated_watchdog_socket(machine).display(),
                machine.volatile.display()
            );
            self.run(name, &script)
        })
    }

    fn print_progress(&self, step: &str) {
        println!("{:5.1} s {step}", self.started_at.elapsed().as_secs_f64());
    }

    /// Runs commands on a machine of the page, in the directory with the packages, and returns their output.
    fn run(&self, name: &str, commands: &str) -> Result<String> {
        let script = format!("set -eu\ncd {SHARED_DIRECTORY}\n{commands}\n");
        container::run_inside(self.cluster.machine(machine_name(name)?)?, &["bash", "-c", &script])
            .with_context(|| format!("on {name}:\n{commands}"))
    }

    /// Runs the blocks below a heading. Blocks marked `another` run only if `another` is given, the name of a machine that still
    /// has power.
    fn run_section(&mut self, heading: &str, another: Option<&str>) -> Result<()> {
        let (section_blocks, remaining_blocks): (Vec<CommandBlock>, Vec<CommandBlock>) =
            self.blocks.drain(..).partition(|block| {
                block.heading == heading
                    && (another.is_some() || block.target != Some(BlockTarget::On("another".to_owned())))
            });
        self.blocks = remaining_blocks;
        ensure!(!section_blocks.is_empty(), "docs/install.md has no commands below {heading}");
        for block in section_blocks {
            match &block.target {
                None => {}
                Some(BlockTarget::Each) => run_on_each_machine(|name| self.run(name, &block.text))?,
                Some(BlockTarget::On(name)) => {
                    self.run(another.filter(|_| name == "another").unwrap_or(name), &block.text)?;
                }
            }
        }
        self.print_progress(heading);
        Ok(())
    }

    /// Returns the node of the page's service, as reported by hactl on a machine.
    fn ticker_node(&self, queried_machine: &str) -> Option<String> {
        let output_text = self.run(queried_machine, "hactl get resource ticker -o json").ok()?;
        let status = serde_json::from_str::<serde_json::Value>(&output_text).ok()?["status"].take();
        (status["state"] == "Started" && status["running"] == true)
            .then(|| status["node"].as_str().map(str::to_owned))
            .flatten()
    }
}

/// Runs a function for all machines in parallel.
fn run_on_each_machine(run: impl Fn(&str) -> Result<String> + Sync) -> Result<()> {
    thread::scope(|scope| {
        let threads: Vec<_> = MACHINES.map(|(name, _)| scope.spawn(|| run(name))).into_iter().collect();
        for thread in threads {
            thread.join().map_err(|_| anyhow!("a thread panicked"))??;
        }
        Ok(())
    })
}

/// Returns the test's name for a machine of docs/install.md.
fn machine_name(name: &str) -> Result<&'static str> {
    let machine_names = MACHINES.iter().find(|(page_name, _)| *page_name == name);
    machine_names
        .map(|(_, machine)| *machine)
        .with_context(|| format!("docs/install.md does not name a machine {name}"))
}

/// Returns the directory with the packages, which `dev/test packages` sets.
fn packages() -> Result<PathBuf> {
    env::var_os("HACTL_PACKAGES")
        .map(PathBuf::from)
        .filter(|directory| directory.is_dir())
        .context("HACTL_PACKAGES is not a directory with packages: run ./dev/test packages")
}

/// Returns `true` if the journal of a machine shows that the service runs there.
fn is_ticking(test: &InstallTest, name: &str) -> bool {
    let journal_command =
        "journalctl --quiet --output cat --boot HACTL_RESOURCE=ticker SYSLOG_IDENTIFIER=ticker";
    test.run(name, journal_command)
        .is_ok_and(|output_text| output_text.contains(&format!("ticker ticks on {name}")))
}

#[test]
fn the_commands_of_the_installation_page_work() -> Result<()> {
    let mut test = InstallTest::start()?;
    test.run_section("1. Packages", None)?;
    test.run_section("2. Certificates", None)?;
    // The page copies these files with scp.
    test.run("c1", "cp -a /etc/hactl/pki .")?;
    run_on_each_machine(|name| {
        let copy_commands = format!(
            "cd pki
            mkdir -p /etc/hactl /etc/etcd
            cp -p ca.pem client-ca.pem client-crl.pem {name}.{{pem,key}} {{controller,api}}-{name}.{{pem,key}} /etc/hactl/
            cp -p client-ca.pem client-crl.pem peer-ca.pem peer-crl.pem {{etcd,peer}}-{name}.{{pem,key}} /etc/etcd/"
        );
        test.run(name, &copy_commands)
    })?;
    test.run_section("3. etcd", None)?;
    test.run_section("4. Each machine", None).with_context(|| journals(&test))?;
    // The test needs the simulated watchdog. The namespaces of this host cannot be paused individually, so W is valid
    // proof even if the host is virtual.
    test.run("c1", "hactl set cluster/default fencing.allowSimulatedWatchdog=true")?;
    for (name, _) in MACHINES {
        test.run("c1", &format!("hactl set node/{name} fencing.trustWatchdogOnVirtualMachine=true"))?;
    }
    test.run_section("5. Check the watchdogs", None)?;
    test.run_section("6. Test a failover", None).with_context(|| journals(&test))?;

    let failed_machine = test.ticker_node("c1").context("service does not run")?;
    wait_until("the service to tick", STEP_TIMEOUT, || is_ticking(&test, &failed_machine))?;
    let another = MACHINES.map(|(name, _)| name).into_iter().find(|name| *name != failed_machine);
    let another = another.context("no other machine found")?;
    test.cluster.power_off(machine_name(&failed_machine)?)?;
    test.print_progress(&format!("{failed_machine} lost power"));
    let new_machine = wait_for("the service to run elsewhere", FAILOVER_TIMEOUT, || {
        test.ticker_node(another).filter(|new_machine| *new_machine != failed_machine)
    })
    .with_context(|| journals(&test))?;
    test.print_progress(&format!("the service runs on {new_machine}"));
    wait_until("the service to tick on another machine", STEP_TIMEOUT, || is_ticking(&test, &new_machine))?;
    test.run_section("6. Test a failover", Some(another))?;
    let unused_blocks: Vec<&CommandBlock> =
        test.blocks.iter().filter(|block| block.target.is_some()).collect();
    if !unused_blocks.is_empty() {
        bail!("the test does not follow these blocks of docs/install.md: {unused_blocks:?}");
    }
    test.cluster.remove()
}

/// Returns the last lines of the machines' journals.
fn journals(test: &InstallTest) -> String {
    let journal_command = "journalctl --quiet --lines 30 -u ha-controller -u ha-node-agent -u ha-watchdogd; journalctl --quiet --lines 5 -u etcd";
    let output_text =
        MACHINES.map(|(name, _)| format!("{name}:\n{}", test.run(name, journal_command).unwrap_or_default()));
    output_text.join("\n")
}
