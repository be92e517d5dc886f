//! `hactl store verify`: tries reads and writes with the identity of a controller or a node.

use super::EtcdFlags;
use crate::etcdctl::Etcdctl;
use crate::failure::{Exit, Failure, Outcome};
use crate::render::table::{Cell, Table};
use crate::session::Session;
use clap::Args;
use ha_api_types::etcd_access::{Permission, agent_permissions, controller_permissions};
use ha_api_types::id::NodeName;
use ha_api_types::keys::Keys;
use ha_api_types::kind::Kind;
use std::process::Stdio;
use tokio::io::AsyncWriteExt as _;

/// Name that no object and no node has.
const OTHER_NAME: &str = "hactl-verify";

/// Check the permissions of a controller or a node; write nothing
#[derive(Args, Debug)]
#[command(
    after_help = "The command reads keys, and sends writes under a condition that is never met. etcd checks the permissions, \
        but nothing is written.\n\n\
        Examples:\n  hactl store verify --etcd-endpoints https://c1:2379 --etcd-ca ca.pem \\\n    --etcd-cert c1.pem --etcd-key c1.key\n\n\
        Exit status: 0 as expected; 1 more or fewer permissions."
)]
pub(super) struct Verify {
    #[command(flatten)]
    etcd: EtcdFlags,
    /// Expect the permissions of a controller instead of those of a node
    #[arg(long)]
    controller: bool,
}

/// An access to a key that is tried.
struct Trial {
    key: String,
    is_write: bool,
    is_expected: bool,
}

impl Verify {
    pub(super) async fn run(&self, session: &Session) -> Outcome {
        let user = self.etcd.user()?;
        let keys = Keys::new(&self.etcd.cluster);
        let permissions = if self.controller {
            controller_permissions(&keys)
        } else {
            agent_permissions(&keys, &NodeName::from(user.as_str()))
        };
        let etcdctl = self.etcd.etcdctl()?;
        let mut table = Table::new(&["KEY", "ACCESS", "EXPECTED", "FOUND"]);
        let mut differences = 0;
        for trial in trials(&keys, &permissions) {
            let is_permitted = try_access(&etcdctl, &trial).await?;
            differences += usize::from(is_permitted != trial.is_expected);
            let word = |is_permitted: bool| Cell::plain(if is_permitted { "permitted" } else { "refused" });
            table.add_row(vec![
                Cell::plain(&trial.key),
                Cell::plain(if trial.is_write { "write" } else { "read" }),
                word(trial.is_expected),
                word(is_permitted),
            ]);
        }
        session.terminal().print(&table.render(session.terminal(), 0));
        if differences == 0 {
            session.terminal().report(&format!("user {user} has the expected permissions"));
            Ok(Exit::Done)
        } else {
            Err(Failure::refused(format!(
                "user {user}: {differences} of these differ from the expected permissions"
            ))
            .help("run \"hactl store secure\" with the certificate of root"))
        }
    }
}

/// Returns accesses of every kind: those of the permissions, and those that could harm other nodes.
fn trials(keys: &Keys, permissions: &[Permission]) -> Vec<Trial> {
    let other = NodeName::from(OTHER_NAME);
    let mut candidates: Vec<String> = permissions
        .iter()
        .map(|permission| match permission.selector.strip_suffix('/') {
            Some(_) => format!("{}{OTHER_NAME}", permission.selector),
            None => permission.selector.clone(),
        })
        .collect();
    candidates.extend([
        keys.leader(),
        keys.fence(&other),
        keys.alive(&other),
        keys.node_report(&other),
        keys.assignment(&OTHER_NAME.into()),
        keys.spec(Kind::Node, OTHER_NAME),
        keys.spec(Kind::Resource, OTHER_NAME),
        keys.log_answer(&other, "1"),
        format!("/{OTHER_NAME}"),
    ]);
    candidates.sort();
    candidates.dedup();
    let is_expected = |key: &str, is_write: bool| {
        permissions.iter().any(|permission| {
            let covers = permission.selector == key
                || (permission.is_prefix() && key.starts_with(&permission.selector));
            covers && (permission.is_write || !is_write)
        })
    };
    candidates
        .into_iter()
        .flat_map(|key| [false, true].map(|is_write| (key.clone(), is_write)))
        .map(|(key, is_write)| Trial { is_expected: is_expected(&key, is_write), key, is_write })
        .collect()
}

/// Returns `true` if etcd permits an access. A write is sent under a condition that is never met.
async fn try_access(etcdctl: &Etcdctl, trial: &Trial) -> Result<bool, Failure> {
    let mut command = if trial.is_write {
        etcdctl.command(["txn"])
    } else {
        etcdctl.command(["get", "--keys-only", "--", &trial.key])
    };
    let failed = |error: std::io::Error| Failure::refused(format!("etcdctl: {error}"));
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().map_err(failed)?;
    if let Some(mut input) = child.stdin.take() {
        // A key without a version is never at version 2^62. Both branches need the permission.
        let text = if trial.is_write {
            format!("version(\"{0}\") = \"4611686018427387904\"\n\nput {0} x\n\n\n", trial.key)
        } else {
            String::new()
        };
        input.write_all(text.as_bytes()).await.map_err(failed)?;
    }
    let output = child.wait_with_output().await.map_err(failed)?;
    let errors = String::from_utf8_lossy(&output.stderr);
    match output.status.success() {
        true => Ok(true),
        false if errors.contains("permission denied") => Ok(false),
        false => {
            let last_line = errors.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or("no output");
            Err(Failure::refused(format!("etcdctl failed: {last_line}")))
        }
    }
}
