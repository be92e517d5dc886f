//! `hactl store`: users and permissions of etcd, one for each controller and each node.

mod access;
mod identity;
mod node_user;
mod verify;

use crate::etcdctl::{EtcdConnection, Etcdctl};
use crate::failure::{Exit, Failure, Outcome};
use crate::session::Session;
use crate::terminal::Terminal;
use access::{AccessRules, EtcdctlStep, ROOT, RoleAnswer, controller_role, desired_access, node_role, plan};
use clap::{Args, Subcommand};
use ha_api_types::cluster::{CLUSTER_NAME, Cluster};
use ha_api_types::keys::{Key, Keys};
use ha_api_types::kind::Kind;
use ha_api_types::timing::Timings;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

pub(crate) use node_user::{AddNode, RemoveNode};

/// Interval of the checks that controllers and nodes still write.
const POLL_INTERVAL: Duration = Duration::from_millis(100);
/// Longest wait for a write of each controller.
const CONTROLLER_TIMEOUT: Duration = Duration::from_secs(10);

/// Set up and verify the users and permissions of etcd
#[derive(Args, Debug)]
pub(crate) struct StoreCommand {
    #[command(subcommand)]
    command: Subcommands,
}

#[derive(Subcommand, Debug)]
enum Subcommands {
    /// Create the users and roles of etcd, and enable authentication
    Secure(Secure),
    /// Check the permissions of a controller or a node; write nothing
    Verify(verify::Verify),
}

impl StoreCommand {
    pub(crate) async fn run(&self, session: &Session) -> Outcome {
        session.format(&[])?;
        match &self.command {
            Subcommands::Secure(secure) => secure.run(session).await,
            Subcommands::Verify(verify) => verify.run(session).await,
        }
    }
}

/// Connection to the etcd of one cluster, with one identity.
#[derive(Args, Clone, Debug)]
struct EtcdFlags {
    #[command(flatten)]
    connection: EtcdConnection,
    /// Name of the cluster
    #[arg(long, value_name = "NAME", default_value = "default")]
    cluster: String,
}

impl EtcdFlags {
    fn etcdctl(&self) -> Result<Etcdctl, Failure> {
        self.connection.etcdctl()
    }

    /// Refuses a certificate of a user other than root.
    fn require_root(&self) -> Result<(), Failure> {
        let user = self.user()?;
        if user == ROOT {
            return Ok(());
        }
        Err(Failure::usage(format!("the certificate of --etcd-cert is of user {user:?}, not of root"))
            .help("use the certificate from \"hactl pki issue root\", and keep its key off the nodes"))
    }

    /// Returns the etcd user of the certificate: its common name.
    fn user(&self) -> Result<String, Failure> {
        identity::common_name(&self.connection.etcd_cert)
    }
}

/// Create the users and roles of etcd, and enable authentication
#[derive(Args, Debug)]
#[command(
    after_help = "The common name of each client certificate is its etcd user. etcd must run with client-cert-auth. \
                  The command prints the steps before it runs them, and can be repeated: later runs add and remove \
                  users. After enabling authentication, the command checks that every controller and node can still \
                  write, and otherwise disables authentication again.\n\n\
        Examples:\n  hactl store secure --controller controller-c1,controller-c2,controller-c3 --node c1,c2,c3 \\\n    \
        --etcd-endpoints https://c1:2379 --etcd-ca ca.pem --etcd-cert root.pem --etcd-key root.key"
)]
struct Secure {
    #[command(flatten)]
    etcd: EtcdFlags,
    /// Common names of the controllers' certificates
    #[arg(long = "controller", value_delimiter = ',', value_name = "NAME")]
    controllers: Vec<String>,
    /// Names of nodes, in addition to those with a Node object
    #[arg(long = "node", value_delimiter = ',', value_name = "NAME")]
    nodes: Vec<String>,
    /// Users to remove, such as those of removed nodes
    #[arg(long = "remove", value_delimiter = ',', value_name = "NAME")]
    removed: Vec<String>,
    /// Print the steps without running them
    #[arg(long)]
    dry_run: bool,
    /// Do not ask for confirmation
    #[arg(long)]
    yes: bool,
}

impl Secure {
    async fn run(&self, session: &Session) -> Outcome {
        self.etcd.require_root()?;
        let store = SecuredEtcd { etcdctl: self.etcd.etcdctl()?, keys: Keys::new(&self.etcd.cluster) };
        let present = store.access().await?;
        let removed: BTreeSet<String> = self.removed.iter().cloned().collect();
        let desired = self.desired_access(&store, &present, &removed).await?;
        let steps = plan(&present, &desired, &removed);
        let terminal = session.terminal();
        if steps.is_empty() {
            terminal.report("etcd already has these users and permissions");
            return Ok(Exit::Done);
        }
        terminal.print(&steps.iter().map(|step| format!("{step}\n")).collect::<String>());
        if self.dry_run {
            return Ok(Exit::Done);
        }
        let question = "Each client that is not listed loses its access to etcd. Run these steps?";
        if !self.yes && !Terminal::confirm(question)? {
            return Err(Failure::failed("not confirmed: nothing was changed"));
        }
        let writer_revisions = store.writer_revisions().await?;
        for step in &steps {
            store.run_step(step).await?;
        }
        if !present.is_enabled {
            store.check_writers(&writer_revisions).await?;
        }
        let remaining = plan(&store.access().await?, &desired, &removed);
        if !remaining.is_empty() {
            let list: Vec<String> = remaining.iter().map(EtcdctlStep::to_string).collect();
            return Err(Failure::failed(format!(
                "etcd does not have all users and permissions: {}",
                list.join("; ")
            )));
        }
        terminal.report(&format!("etcd has {} users, and authentication is enabled", desired.users.len()));
        Ok(Exit::Done)
    }

    /// Returns the desired access: the given names, the existing users of etcd, and every node with an object or a
    /// fence record.
    async fn desired_access(
        &self,
        store: &SecuredEtcd,
        present: &AccessRules,
        removed: &BTreeSet<String>,
    ) -> Result<AccessRules, Failure> {
        let cluster = &self.etcd.cluster;
        let mut controllers: BTreeSet<String> = self.controllers.iter().cloned().collect();
        let mut nodes: BTreeSet<String> = self.nodes.iter().cloned().collect();
        nodes.extend(store.nodes().await?);
        for (user, roles) in &present.users {
            if roles.contains(&controller_role(cluster)) {
                controllers.insert(user.clone());
            }
            if roles.contains(&node_role(cluster, user)) {
                nodes.insert(user.clone());
            }
        }
        if let Some(name) =
            removed.iter().find(|name| self.nodes.contains(name) || self.controllers.contains(name))
        {
            return Err(Failure::usage(format!("{name} cannot be added and removed at the same time")));
        }
        controllers.retain(|name| !removed.contains(name));
        nodes.retain(|name| !removed.contains(name));
        if controllers.is_empty() {
            return Err(Failure::usage("no controller would have access to etcd")
                .help("add --controller with the common names of the controllers' certificates"));
        }
        if let Some(name) = nodes.intersection(&controllers).next() {
            return Err(Failure::usage(format!("user {name} would be a controller and a node")).help(
                "issue a certificate with another common name to the controller, such as controller-NAME",
            ));
        }
        Ok(desired_access(cluster, &controllers, &nodes))
    }
}

/// The etcd whose users are set up.
struct SecuredEtcd {
    etcdctl: Etcdctl,
    keys: Keys,
}

/// A list of names in an answer of etcdctl.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct NamesAnswer {
    users: Vec<String>,
    roles: Vec<String>,
    enabled: bool,
}

/// Keys of an answer of `etcdctl get`.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct KeysAnswer {
    kvs: Vec<KeyAnswer>,
}

#[derive(Debug, Deserialize)]
struct KeyAnswer {
    mod_revision: i64,
}

impl SecuredEtcd {
    async fn run_json<T: DeserializeOwned>(&self, arguments: &[&str]) -> Result<T, Failure> {
        let output = self.etcdctl.run(arguments.iter().chain(&["--write-out", "json"])).await?;
        serde_json::from_slice(&output.stdout).map_err(|error| {
            Failure::failed(format!("cannot parse the output of etcdctl {}: {error}", arguments.join(" ")))
        })
    }

    /// Reads users, roles, and whether authentication is enabled.
    async fn access(&self) -> Result<AccessRules, Failure> {
        let status: NamesAnswer = self.run_json(&["auth", "status"]).await?;
        let mut access = AccessRules { is_enabled: status.enabled, ..AccessRules::default() };
        for user in self.run_json::<NamesAnswer>(&["user", "list"]).await?.users {
            let answer: NamesAnswer = self.run_json(&["user", "get", &user]).await?;
            access.users.insert(user, answer.roles.into_iter().collect());
        }
        for role in self.run_json::<NamesAnswer>(&["role", "list"]).await?.roles {
            let answer: RoleAnswer = self.run_json(&["role", "get", &role]).await?;
            access.roles.insert(role, answer.ranges());
        }
        Ok(access)
    }

    async fn run_step(&self, step: &EtcdctlStep) -> Result<(), Failure> {
        self.etcdctl.run(&step.0).await.map(drop)
    }

    async fn list_keys(&self, prefix: &str) -> Result<Vec<String>, Failure> {
        let output = self.etcdctl.run(["get", "--prefix", "--keys-only", "--", prefix]).await?;
        let text = String::from_utf8_lossy(&output.stdout);
        Ok(text.lines().filter(|line| !line.is_empty()).map(str::to_owned).collect())
    }

    /// Returns the nodes with an object or a fence record.
    async fn nodes(&self) -> Result<BTreeSet<String>, Failure> {
        let mut keys = self.list_keys(&self.keys.specs_of(Kind::Node)).await?;
        keys.extend(self.list_keys(&self.keys.fences()).await?);
        let names = keys.iter().filter_map(|key| match self.keys.parse(key) {
            Some(Key::Spec(Kind::Node, name)) => Some(name.to_owned()),
            Some(Key::Fence(node)) => Some(node.to_string()),
            Some(_) | None => None,
        });
        Ok(names.collect())
    }

    /// Returns the keys that running controllers and nodes write regularly, with their revisions.
    async fn writer_revisions(&self) -> Result<BTreeMap<String, i64>, Failure> {
        let mut writer_revisions = BTreeMap::new();
        for key in
            [self.list_keys(&self.keys.heartbeats()).await?, self.list_keys(&self.keys.refreshes()).await?]
                .concat()
        {
            if let Some(revision) = self.revision(&key).await? {
                writer_revisions.insert(key, revision);
            }
        }
        Ok(writer_revisions)
    }

    async fn revision(&self, key: &str) -> Result<Option<i64>, Failure> {
        let answer: KeysAnswer = self.run_json(&["get", "--", key]).await?;
        Ok(answer.kvs.first().map(|key| key.mod_revision))
    }

    /// Waits until each writer has written again with its own identity. Otherwise, authentication is disabled again
    /// before a node would stop its services: after half of the time for which a heartbeat is valid.
    async fn check_writers(&self, before: &BTreeMap<String, i64>) -> Result<(), Failure> {
        let heartbeat_limit = self.heartbeat_lifetime().await? / 2;
        let enabled_at = Instant::now();
        let enabled = self.writer_revisions().await?;
        let mut silent_keys: BTreeSet<&String> =
            before.keys().filter(|key| enabled.contains_key(*key)).collect();
        loop {
            let mut remaining = BTreeSet::new();
            for key in silent_keys {
                if self.revision(key).await? == enabled.get(key).copied() {
                    remaining.insert(key);
                }
            }
            silent_keys = remaining;
            let is_node = |key: &&&String| matches!(self.keys.parse(key), Some(Key::Alive(_)));
            let elapsed = enabled_at.elapsed();
            let is_late = (silent_keys.iter().any(|key| is_node(&key)) && elapsed > heartbeat_limit)
                || (!silent_keys.is_empty() && elapsed > CONTROLLER_TIMEOUT);
            if silent_keys.is_empty() {
                return Ok(());
            }
            if is_late {
                self.etcdctl.run(["auth", "disable"]).await?;
                let names: Vec<&str> = silent_keys.iter().filter_map(|key| key.rsplit('/').next()).collect();
                return Err(Failure::failed(format!(
                    "{} did not write with authentication enabled, so authentication is disabled again",
                    names.join(", ")
                ))
                .help("check that the common name of each certificate is the name of its user, and repeat the command"));
            }
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    }

    /// Returns the time for which a heartbeat is valid, by the cluster's settings.
    async fn heartbeat_lifetime(&self) -> Result<Duration, Failure> {
        let key = self.keys.spec(Kind::Cluster, CLUSTER_NAME);
        let output = self.etcdctl.run(["get", "--print-value-only", "--", &key]).await?;
        let cluster = serde_json::from_slice::<Cluster>(&output.stdout).ok();
        let timings = cluster.map_or_else(Timings::default, |cluster| Timings::from(&cluster.spec.timing));
        Ok(Duration::from_millis(timings.heartbeat_valid_ms))
    }
}
