//! Test of a restore of etcd from a backup, as docs/operations.md describes. Running services continue, and no service
//! runs twice.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use ha_api_types::cluster::OnEtcdLoss;
use ha_api_types::record::BackupRecord;
use ha_e2e::binaries;
use ha_e2e::command::{path_text, run};
use ha_e2e::machine::Role;
use ha_e2e::plan::Plan;
use ha_e2e::scenario::{STEP_TIMEOUT, Scenario, WITNESS};
use ha_e2e::scratch;
use ha_e2e::wait::wait_until;
use serde_json::json;

/// Longest time for the restore. No service is assigned for the longest W, which is about 75 s.
const RESTORE_TIMEOUT: Duration = Duration::from_secs(300);

/// A service that is not in the backup.
const LATER_SERVICE: &str = "later";

#[test]
fn cluster_continues_from_an_outdated_backup() -> Result<()> {
    let directory = scratch::directory("store-restored")?;
    let plan = Plan { profile: "Default".to_owned(), ..Plan::test(&directory) };
    let mut scenario = Scenario::start_with(plan)?;
    scenario.set_on_etcd_loss(OnEtcdLoss::Hold, &json!({"profile": "Default"}))?;
    let old_node = scenario.wait_until_started(WITNESS)?;
    let backup = directory.join("backup.age");
    let identity = directory.join("age.key");
    save_encrypted_backup(&scenario, &backup, &identity)?;

    // After the backup, the first service moves and a second is created. The backup has a wrong node for the first and lacks the
    // second.
    let to = scenario.cluster.machine_names(Role::Node).into_iter().find(|node| *node != old_node);
    let to = to.context("no other node found")?;
    let moved = scenario.cluster.hactl(&["relocate", WITNESS, &to, "--wait"])?;
    ensure!(moved.status.success(), "{}", String::from_utf8_lossy(&moved.stderr));
    scenario.create_witness(LATER_SERVICE)?;
    let (active_node, later_node) =
        (scenario.wait_until_started(WITNESS)?, scenario.wait_until_started(LATER_SERVICE)?);
    assert_eq!(active_node, to);
    let process = |scenario: &Scenario, service: &str, node: &str| {
        scenario.checker.process(service, node).with_context(|| format!("{service} does not run on {node}"))
    };
    let (before, later_before) =
        (process(&scenario, WITNESS, &active_node)?, process(&scenario, LATER_SERVICE, &later_node)?);

    let members = scenario.cluster.machine_names(Role::Etcd);
    for member in &members {
        scenario.cluster.power_off(member)?;
        fs::remove_dir_all(scenario.cluster.machine(member)?.directory.join("data"))?;
    }
    let prepared = directory.join("prepared.db");
    let etcd = binaries::etcd()?;
    let programs = etcd.parent().context("etcd has no directory")?;
    run(
        binaries::workspace_program("hactl")?,
        &[
            "restore",
            &path_text(&prepared),
            "--yes",
            "--from",
            &path_text(&backup),
            "--identity",
            &path_text(&identity),
            "--programs",
            &path_text(programs),
        ],
    )?;
    for member in &members {
        let mut words = vec!["snapshot".to_owned(), "restore".to_owned(), path_text(&prepared)];
        words.extend(member_restore_flags(&scenario, member)?);
        run(programs.join("etcdutl"), &words)?;
    }
    for member in &members {
        scenario.cluster.power_on(member)?;
    }

    // No service is stopped or started until the node of every service is known.
    wait_until("the leader to probe the service", STEP_TIMEOUT, || scenario.state(WITNESS) == "Queued")?;
    let events = || {
        scenario.cluster.hactl(&["events"]).map(|output| String::from_utf8_lossy(&output.stdout).into_owned())
    };
    wait_until("the restore of etcd to be complete", RESTORE_TIMEOUT, || {
        events().is_ok_and(|events| events.contains("Restore of etcd completed"))
    })?;
    wait_until("the service to be adopted", STEP_TIMEOUT, || scenario.state(WITNESS) == "Started")?;
    assert_eq!(scenario.wait_until_started(WITNESS)?, active_node);
    assert_eq!(process(&scenario, WITNESS, &active_node)?, before, "the service was restarted");
    assert_eq!(scenario.cluster.etcdctl().get(&scenario.cluster.keys().restore_marker())?, None);

    // The service that is not in the backup keeps running unmanaged. When it is declared again, it is found on its node.
    assert!(scenario.object("resources", LATER_SERVICE).is_none());
    assert_eq!(process(&scenario, LATER_SERVICE, &later_node)?, later_before, "the service was restarted");
    scenario.create_witness(LATER_SERVICE)?;
    assert_eq!(scenario.wait_until_started(LATER_SERVICE)?, later_node);
    assert_eq!(
        process(&scenario, LATER_SERVICE, &later_node)?,
        later_before,
        "the service was restarted instead of adopted"
    );

    // The cluster works normally again: a failover succeeds.
    scenario.cluster.power_off(&active_node)?;
    scenario.wait_until_moved_from(WITNESS, &active_node)?;
    scenario.finish()
}

/// Saves a backup with `hactl backup`, and checks its file, its record in etcd, and that a failure changes nothing.
fn save_encrypted_backup(scenario: &Scenario, backup: &Path, identity: &Path) -> Result<()> {
    run("age-keygen", &["-o", &path_text(identity)])?;
    let recipient = run("age-keygen", &["-y", &path_text(identity)])?;
    let etcdctl = scenario.cluster.etcdctl();
    let programs = binaries::etcd()?;
    let programs = programs.parent().context("etcd has no directory")?;
    let hactl = binaries::workspace_program("hactl")?;
    // The first endpoint is a closed port: the command takes the next one.
    let endpoints = format!("https://127.0.0.1:1,{}", etcdctl.endpoints);
    let backup_as = |user: &str| {
        Command::new(&hactl)
            .arg("backup")
            .arg(backup)
            .args(["--encrypt-to", recipient.trim(), "--etcd-endpoints", &endpoints])
            .arg("--etcd-ca")
            .arg(etcdctl.certificates.join("ca.pem"))
            .arg("--etcd-cert")
            .arg(etcdctl.certificates.join(format!("{user}.pem")))
            .arg("--etcd-key")
            .arg(etcdctl.certificates.join(format!("{user}.key")))
            .arg("--programs")
            .arg(programs)
            .output()
    };
    let saved = backup_as("root")?;
    let output_text = String::from_utf8_lossy(&saved.stdout).into_owned();
    ensure!(saved.status.success(), "{output_text}{}", String::from_utf8_lossy(&saved.stderr));
    ensure!(output_text.contains("encrypted") && output_text.contains("can be restored"), "{output_text}");
    let content = fs::read(backup)?;
    ensure!(content.starts_with(b"age-encryption.org/"), "the backup is not encrypted");
    ensure!(fs::metadata(backup)?.permissions().mode() & 0o777 == 0o600, "others can read the backup");
    let record = etcdctl.get(&scenario.cluster.keys().backup_record())?.context("no record of the backup")?;
    let record: BackupRecord = serde_json::from_value(record.value)?;
    ensure!(record.encrypted && record.size_bytes == content.len() as u64, "{record:?}");
    let status = scenario.cluster.hactl(&["status"])?;
    let status = String::from_utf8_lossy(&status.stdout).into_owned();
    ensure!(status.contains("Last backup: ") && status.contains(", encrypted"), "{status}");

    // A node may not save a snapshot, and the last backup stays.
    let refused = backup_as("node1")?;
    let error_text = String::from_utf8_lossy(&refused.stderr).into_owned();
    ensure!(refused.status.code() == Some(1) && error_text.contains("no snapshot from"), "{error_text}");
    ensure!(fs::read(backup)? == content, "a failed backup changed the file");
    let remains = fs::read_dir(backup.parent().context("the backup has no directory")?)?
        .filter_map(Result::ok)
        .filter(|entry| entry.file_name().to_string_lossy().starts_with(".hactl-backup-"))
        .count();
    ensure!(remains == 0, "the scratch directory remains");

    let prepared = backup.with_extension("prepared");
    let refused = Command::new(&hactl)
        .arg("restore")
        .arg(&prepared)
        .arg("--from")
        .arg(backup)
        .args(["--yes", "--programs"])
        .arg(programs)
        .output()?;
    let error_text = String::from_utf8_lossy(&refused.stderr).into_owned();
    ensure!(refused.status.code() == Some(2) && error_text.contains("add --identity FILE"), "{error_text}");
    ensure!(!prepared.exists(), "a refused restore wrote a file");
    Ok(())
}

/// Returns the flags of a member's command that a restore also needs.
fn member_restore_flags(scenario: &Scenario, member: &str) -> Result<Vec<String>> {
    let command =
        &scenario.cluster.machine(member)?.programs.first().context("machine does not run etcd")?.command;
    let kept_options = [
        "--name",
        "--data-dir",
        "--initial-cluster",
        "--initial-cluster-token",
        "--initial-advertise-peer-urls",
    ];
    let pairs = command.windows(2).filter(|pair| kept_options.contains(&pair[0].as_str()));
    Ok(pairs.flatten().cloned().collect())
}
