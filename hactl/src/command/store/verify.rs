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
const UNUSED_NAME: &str = "hactl-verify";

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

/// An access to a key, and whether etcd must permit it.
struct AccessTest {
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
        for access_test in access_tests(&keys, &permissions) {
            let is_permitted = try_access(&etcdctl, &access_test).await?;
            differences += usize::from(is_permitted != access_test.is_expected);
            let permission_text =
                |is_permitted: bool| Cell::plain(if is_permitted { "permitted" } else { "refused" });
            table.add_row(vec![
                Cell::plain(&access_test.key),
                Cell::plain(if access_test.is_write { "write" } else { "read" }),
                permission_text(access_test.is_expected),
                permission_text(is_permitted),
            ]);
        }
        session.terminal().print(&table.render(session.terminal(), 0));
        if differences == 0 {
            session.terminal().report(&format!("user {user} has the expected permissions"));
            Ok(Exit::Done)
        } else {
            Err(Failure::failed(format!(
                "user {user}: {differences} of these differ from the expected permissions"
            ))
            .help("run \"hactl store secure\" with the certificate of root"))
        }
    }
}

/// Returns accesses of every kind: those of the permissions, and those that could harm other nodes.
fn access_tests(keys: &Keys, permissions: &[Permission]) -> Vec<AccessTest> {
    let unused_node = NodeName::from(UNUSED_NAME);
    let mut keys_to_try: Vec<String> = permissions
        .iter()
        .map(|permission| match permission.selector.strip_suffix('/') {
            Some(_) => format!("{}{UNUSED_NAME}", permission.selector),
            None => permission.selector.clone(),
        })
        .collect();
    keys_to_try.extend([
        keys.leader(),
        keys.fence(&unused_node),
        keys.alive(&unused_node),
        keys.node_report(&unused_node),
        keys.assignment(&UNUSED_NAME.into()),
        keys.spec(Kind::Node, UNUSED_NAME),
        keys.spec(Kind::Resource, UNUSED_NAME),
        keys.log_answer(&unused_node, "1"),
        format!("/{UNUSED_NAME}"),
    ]);
    keys_to_try.sort();
    keys_to_try.dedup();
    let is_expected = |key: &str, is_write: bool| {
        permissions.iter().any(|permission| {
            let covers = permission.selector == key
                || (permission.is_prefix() && key.starts_with(&permission.selector));
            covers && (permission.is_write || !is_write)
        })
    };
    keys_to_try
        .into_iter()
        .flat_map(|key| [false, true].map(|is_write| (key.clone(), is_write)))
        .map(|(key, is_write)| AccessTest { is_expected: is_expected(&key, is_write), key, is_write })
        .collect()
}

/// Returns `true` if etcd permits an access. A write is sent under a condition that is never met.
async fn try_access(etcdctl: &Etcdctl, access_test: &AccessTest) -> Result<bool, Failure> {
    let mut command = if access_test.is_write {
        etcdctl.command(["txn"])
    } else {
        etcdctl.command(["get", "--keys-only", "--", &access_test.key])
    };
    let etcdctl_failure = |error: std::io::Error| Failure::failed(format!("etcdctl: {error}"));
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().map_err(etcdctl_failure)?;
    if let Some(mut input) = child.stdin.take() {
        // A key without a version is never at version 2^62. Both branches need the permission.
        let text = if access_test.is_write {
            format!("version(\"{0}\") = \"4611686018427387904\"\n\nput {0} x\n\n\n", access_test.key)
        } else {
            String::new()
        };
        input.write_all(text.as_bytes()).await.map_err(etcdctl_failure)?;
    }
    let output = child.wait_with_output().await.map_err(etcdctl_failure)?;
    let errors = String::from_utf8_lossy(&output.stderr);
    match output.status.success() {
        true => Ok(true),
        false if errors.contains("permission denied") => Ok(false),
        false => {
            let last_line = errors.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or("no output");
            Err(Failure::failed(format!("etcdctl failed: {last_line}")))
        }
    }
}
