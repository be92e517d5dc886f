//! `hactl node add` and `hactl node remove`: the etcd user and the role of one node.

use super::access::{AccessRules, EtcdctlStep, desired_access, node_role, plan};
use super::{EtcdFlags, ROOT, SecuredEtcd};
use crate::client::WriteMode;
use crate::failure::{Exit, Failure, Outcome};
use crate::session::Session;
use crate::terminal::Terminal;
use clap::Args;
use ha_api_types::id::ObjectUid;
use ha_api_types::keys::Keys;
use ha_api_types::kind::Kind;
use ha_api_types::names::{MAX_NODE_NAME_LENGTH, invalid_reason};
use std::collections::BTreeSet;

/// Create the etcd user of a new node
#[derive(Args, Debug)]
#[command(
    after_help = "Run the command before the agent of the node starts, with the certificate of root. It prints its steps, and a \
                  repeated run performs only missing steps. The Node object is created when the agent registers.\n\n\
        Examples:\n  hactl node add c4 --etcd-endpoints https://c1:2379 --etcd-ca ca.pem --etcd-cert root.pem --etcd-key root.key"
)]
pub(crate) struct AddNode {
    /// Name of the node
    node: String,
    #[command(flatten)]
    etcd: EtcdFlags,
    /// Print the steps without running them
    #[arg(long)]
    dry_run: bool,
}

/// Delete a node that is not in use, and its etcd user
#[derive(Args, Debug)]
#[command(
    after_help = "Drain the node and remove its agent first: the API refuses the deletion while the node can run services. If the \
                  node has failed, confirm with \"hactl node confirm-fenced\" that it is powered off. A repeated run performs only \
                  missing steps.\n\n\
        Examples:\n  hactl node remove c4 --etcd-endpoints https://c1:2379 --etcd-ca ca.pem --etcd-cert root.pem --etcd-key root.key"
)]
pub(crate) struct RemoveNode {
    /// Name of the node
    node: String,
    #[command(flatten)]
    etcd: EtcdFlags,
    /// Print the steps without running them
    #[arg(long)]
    dry_run: bool,
    /// Do not ask for confirmation
    #[arg(long, short = 'y')]
    yes: bool,
}

impl AddNode {
    pub(crate) async fn run(&self, session: &Session) -> Outcome {
        session.format(&[])?;
        let (store, present) = read_secured_etcd(&self.etcd, &self.node).await?;
        let nodes = BTreeSet::from([self.node.clone()]);
        let steps =
            plan(&present, &desired_access(&self.etcd.cluster, &BTreeSet::new(), &nodes), &BTreeSet::new());
        let terminal = session.terminal();
        if steps.is_empty() {
            terminal.report(&format!("etcd already has user {} with the permissions of a node", self.node));
            return Ok(Exit::Done);
        }
        print_steps(terminal, &steps);
        if self.dry_run {
            return Ok(Exit::Done);
        }
        for step in &steps {
            store.run_step(step).await?;
        }
        terminal.report(&format!("etcd user {} created", self.node));
        terminal.hint(&format!(
            "run \"hactl pki join-token {0}\", or \"hactl pki issue node {0}\", for the certificate of the node",
            self.node
        ));
        Ok(Exit::Done)
    }
}

impl RemoveNode {
    pub(crate) async fn run(&self, session: &Session) -> Outcome {
        session.format(&[])?;
        let (store, present) = read_secured_etcd(&self.etcd, &self.node).await?;
        let terminal = session.terminal();
        let client = session.client()?;
        let name = &self.node;
        // The API refuses the deletion while the node can run services.
        let object = client.get(Kind::Node, name).await?;
        if object.is_some() {
            client.delete(Kind::Node, name, &ObjectUid::default(), WriteMode::DryRun).await?;
            terminal.print_line(&format!("hactl delete node/{name}"));
        }
        let steps = removal(&present, &self.etcd.cluster, name);
        print_steps(terminal, &steps);
        if object.is_none() && steps.is_empty() {
            terminal.report(&format!("node {name} and its etcd user do not exist"));
            return Ok(Exit::Done);
        }
        if self.dry_run {
            return Ok(Exit::Done);
        }
        let question = format!("The machine of {name} loses its access to the cluster. Run these steps?");
        if !self.yes && !Terminal::confirm(&question)? {
            return Err(Failure::failed("not confirmed: nothing was changed"));
        }
        if object.is_some() {
            client.delete(Kind::Node, name, &ObjectUid::default(), WriteMode::Persist).await?;
        }
        for step in &steps {
            store.run_step(step).await?;
        }
        terminal.report(&format!("node {name} and its etcd user removed"));
        terminal.hint(&format!("run \"hactl pki revoke {name} --renewed\" to revoke its certificates"));
        Ok(Exit::Done)
    }
}

/// Returns the steps that delete the user and the role of a node.
fn removal(present: &AccessRules, cluster: &str, node: &str) -> Vec<EtcdctlStep> {
    let role = node_role(cluster, node);
    let mut steps = Vec::new();
    if present.users.contains_key(node) {
        steps.push(EtcdctlStep::of(&["user", "delete", node]));
    }
    if present.roles.contains_key(&role) {
        steps.push(EtcdctlStep::of(&["role", "delete", &role]));
    }
    steps
}

fn print_steps(terminal: &Terminal, steps: &[EtcdctlStep]) {
    terminal.print(&steps.iter().map(|step| format!("{step}\n")).collect::<String>());
}

/// Connects as root to an etcd with authentication, and reads its users.
///
/// # Errors
/// Fails if the certificate is not that of root, if authentication is disabled, or if the name is that of another client.
async fn read_secured_etcd(etcd: &EtcdFlags, node: &str) -> Result<(SecuredEtcd, AccessRules), Failure> {
    if let Some(problem) = invalid_reason(node, MAX_NODE_NAME_LENGTH) {
        return Err(Failure::usage(format!("{node:?} is not a valid node name: {problem}")));
    }
    etcd.require_root()?;
    let store = SecuredEtcd { etcdctl: etcd.etcdctl()?, keys: Keys::new(&etcd.cluster) };
    let present = store.access().await?;
    if !present.is_enabled {
        return Err(
            Failure::failed("authentication of etcd is disabled").help("run \"hactl store secure\" first")
        );
    }
    let own_role = node_role(&etcd.cluster, node);
    let roles = present.users.get(node).into_iter().flatten();
    if let Some(role) = roles.clone().find(|role| **role != own_role) {
        return Err(Failure::failed(format!(
            "etcd user {node} has role {role}, so it is not the user of a node"
        )));
    }
    if node == ROOT {
        return Err(Failure::usage("root is the administrator of etcd, not a node"));
    }
    Ok((store, present))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_exists_is_removed() {
        let nodes = BTreeSet::from(["n1".to_owned(), "n2".to_owned()]);
        let mut present = desired_access("lab", &BTreeSet::from(["c1".to_owned()]), &nodes);
        let texts = |present: &AccessRules, node: &str| -> Vec<String> {
            removal(present, "lab", node).iter().map(EtcdctlStep::to_string).collect()
        };
        assert_eq!(
            texts(&present, "n1"),
            ["etcdctl user delete n1", "etcdctl role delete hactl-lab-node-n1"]
        );
        present.users.remove("n1");
        assert_eq!(texts(&present, "n1"), ["etcdctl role delete hactl-lab-node-n1"]);
        assert!(texts(&present, "n3").is_empty());
    }

    #[test]
    fn a_new_node_changes_nothing_of_other_users() {
        let set_of = |name: &str| BTreeSet::from([name.to_owned()]);
        let mut present = desired_access("lab", &set_of("c1"), &set_of("n1"));
        present.users.insert("backup".to_owned(), set_of("reader"));
        let steps = plan(&present, &desired_access("lab", &BTreeSet::new(), &set_of("n2")), &BTreeSet::new());
        let texts: Vec<String> = steps.iter().map(EtcdctlStep::to_string).collect();
        assert_eq!(texts.first().map(String::as_str), Some("etcdctl role add hactl-lab-node-n2"));
        assert!(texts.iter().all(|text| text.contains("n2")), "{texts:?}");
        assert!(texts.contains(&"etcdctl user add n2 --no-password".to_owned()), "{texts:?}");
    }
}
