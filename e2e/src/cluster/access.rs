//! Ways to reach a cluster's parts: etcd, the API, hactl and kubectl.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Output};
use std::time::Duration;

use anyhow::{Context, Result, anyhow};
use ha_api_types::kind::Kind;
use ha_api_types::record::{Alive, NodeReport};
use serde_json::{Value, json};

use super::{Cluster, STEP_TIMEOUT};
use crate::api::Api;
use crate::binaries;
use crate::command::{output, tool};
use crate::etcd::Etcdctl;
use crate::machine::{Machine, Role};
use crate::plan::{API_PORT, ETCD_CLIENT_PORT, endpoints};
use crate::wait::wait_for_ok;

/// Longest time for most commands of a client.
const CLIENT_TIMEOUT: Duration = Duration::from_secs(180);

impl Cluster {
    /// Returns a client of etcd that uses all members.
    pub fn etcdctl(&self) -> Etcdctl {
        Etcdctl {
            endpoints: endpoints(&self.state.plan, &self.state.network),
            certificates: self.state.plan.certificates(),
        }
    }

    /// Returns the name of the etcd member that is the leader.
    ///
    /// # Errors
    /// Fails if no member is the leader.
    pub fn etcd_leader(&self) -> Result<String> {
        self.etcd_leader_among_others("")
    }

    /// Returns the name of the etcd member that is the leader, according to the members other than `except`. A deposed
    /// leader may still report itself as leader.
    ///
    /// # Errors
    /// Fails if none of the other members is the leader.
    pub fn etcd_leader_among_others(&self, except: &str) -> Result<String> {
        let members: Vec<&Machine> = self
            .state
            .machines
            .iter()
            .filter(|machine| machine.role == Role::Etcd && machine.name != except && machine.is_on())
            .collect();
        let urls: Vec<String> = members.iter().map(|member| member_url(member)).collect();
        let endpoint = Etcdctl { endpoints: urls.join(","), ..self.etcdctl() }.leader()?;
        members
            .into_iter()
            .find(|member| endpoint == member_url(member))
            .map(|member| member.name.clone())
            .with_context(|| format!("{endpoint} is not a member of this cluster"))
    }

    /// Returns the controller that is the leader, according to the leader key.
    ///
    /// # Errors
    /// Fails if no controller is the leader.
    pub fn leader(&self) -> Result<String> {
        let entry = self.etcdctl().get(&self.keys().leader())?.context("no controller is leader")?;
        entry.value["id"].as_str().map(str::to_owned).context("leader key does not name a controller")
    }

    /// Returns the URL of a controller's API.
    ///
    /// # Errors
    /// Fails if no machine has that name.
    pub fn url(&self, controller: &str) -> Result<String> {
        Ok(format!("https://{}:{API_PORT}", self.machine(controller)?.address))
    }

    /// Returns a client of one controller's API.
    ///
    /// # Errors
    /// Fails if no machine has that name, or if a certificate cannot be read.
    pub fn api(&self, controller: &str) -> Result<Api> {
        Api::new(&self.url(controller)?, &self.state.plan.certificates())
    }

    /// Creates or changes an object through the first controller that accepts the request.
    ///
    /// # Errors
    /// Fails if no controller accepts the request in time.
    pub fn apply(&self, plural: &str, name: &str, spec: &Value) -> Result<Value> {
        let kind = Kind::ALL
            .iter()
            .find(|kind| kind.plural() == plural)
            .with_context(|| format!("{plural} is not the plural of a kind"))?;
        let object = json!({"apiVersion": "hactl.io/v1", "kind": kind.name(),
            "metadata": {"name": name}, "spec": spec});
        self.with_any_controller(&format!("{plural}/{name} to be accepted"), |api| api.apply(plural, &object))
    }

    /// Deletes an object through the first controller that accepts the request.
    ///
    /// # Errors
    /// Fails if no controller accepts the request in time.
    pub fn delete(&self, plural: &str, name: &str) -> Result<()> {
        self.with_any_controller(&format!("{plural}/{name} to be deleted"), |api| {
            match api.object(plural, name)? {
                Some(_) => api.delete(plural, name).map(|_| ()),
                None => Ok(()),
            }
        })
    }

    fn with_any_controller<T>(&self, condition_name: &str, request: impl Fn(&Api) -> Result<T>) -> Result<T> {
        let controllers = self.machine_names(Role::Controller);
        wait_for_ok(condition_name, STEP_TIMEOUT, || {
            let mut outcome = Err(anyhow!("cluster has no controller"));
            for controller in &controllers {
                outcome = self.api(controller).and_then(|api| request(&api));
                if outcome.is_ok() {
                    break;
                }
            }
            outcome
        })
    }

    /// Returns an object from the first controller that responds with it.
    pub fn object(&self, plural: &str, name: &str) -> Option<Value> {
        let controllers = self.machine_names(Role::Controller);
        controllers.iter().find_map(|controller| self.api(controller).ok()?.object(plural, name).ok()?)
    }

    /// Returns the report that a node's agent has committed about the node.
    ///
    /// # Errors
    /// Fails if the agent has not reported, or etcd does not respond.
    pub fn node_report(&self, node: &str) -> Result<NodeReport> {
        let key = self.keys().node_report(&node.into());
        let entry = self.etcdctl().get(&key)?.with_context(|| format!("{node} has not reported"))?;
        serde_json::from_value(entry.value).with_context(|| key)
    }

    /// Returns the instance identifier of the agent process whose heartbeat is stored in etcd.
    ///
    /// # Errors
    /// Fails if etcd stores no heartbeat of the node, or does not respond.
    pub fn agent_instance(&self, node: &str) -> Result<String> {
        let key = self.keys().alive(&node.into());
        let entry = self.etcdctl().get(&key)?.with_context(|| format!("{node} has no heartbeat"))?;
        Ok(serde_json::from_value::<Alive>(entry.value).with_context(|| key)?.instance.to_string())
    }

    /// Runs hactl against the cluster.
    ///
    /// # Errors
    /// Fails if hactl cannot be started. A failure of hactl is visible only in the output.
    pub fn hactl(&self, arguments: &[&str]) -> Result<Output> {
        self.hactl_with_timeout(CLIENT_TIMEOUT, arguments)
    }

    /// Runs hactl with this time limit, for a command that takes longer than most commands.
    ///
    /// # Errors
    /// Fails if hactl cannot be started. A failure of hactl is visible only in the output.
    pub fn hactl_with_timeout(&self, limit: Duration, arguments: &[&str]) -> Result<Output> {
        let program = self.directory().join("hactl").to_string_lossy().into_owned();
        run_with_timeout(limit, &program, arguments)
    }

    /// Runs hactl without the connection settings of the administrator.
    ///
    /// # Errors
    /// Fails if hactl cannot be started. A failure of hactl itself shows only in the output.
    pub fn hactl_without_connection(&self, arguments: &[&str]) -> Result<Output> {
        let program = binaries::workspace_program("hactl")?;
        run_with_timeout(CLIENT_TIMEOUT, &program.to_string_lossy(), arguments)
    }

    /// Runs kubectl against the cluster.
    ///
    /// # Errors
    /// Fails if kubectl cannot be started. A failure of kubectl is visible only in the output.
    pub fn kubectl(&self, arguments: &[&str]) -> Result<Output> {
        let command_arguments = self.kubectl_arguments(arguments);
        let command_arguments: Vec<&str> = command_arguments.iter().map(String::as_str).collect();
        run_with_timeout(CLIENT_TIMEOUT, &binaries::kubectl()?.to_string_lossy(), &command_arguments)
    }

    /// Returns the command of an unmodified kubectl with these arguments, as the administrator of this cluster.
    ///
    /// # Errors
    /// Fails if no kubectl is found.
    pub fn kubectl_command(&self, arguments: &[&str]) -> Result<Command> {
        let mut command = Command::new(binaries::kubectl()?);
        command.args(self.kubectl_arguments(arguments));
        Ok(command)
    }

    fn kubectl_arguments(&self, arguments: &[&str]) -> Vec<String> {
        let configuration = format!("--kubeconfig={}", self.directory().join("kubeconfig").display());
        // kubectl's discovery cache must not be that of another cluster with the same address.
        let cache = format!("--cache-dir={}", self.directory().join("kubectl-cache").display());
        [configuration, cache].into_iter().chain(arguments.iter().map(|text| (*text).to_owned())).collect()
    }

    /// Writes the clients' files into the cluster's directory: a command `hactl` and a `kubeconfig`.
    pub(super) fn write_client_configurations(&self) -> Result<()> {
        let tls = self.state.plan.certificates();
        let urls: Vec<String> =
            self.machine_names(Role::Controller).iter().map(|name| self.url(name)).collect::<Result<_>>()?;
        let first = urls.first().context("cluster has no controller")?;
        let file = |name: &str| tls.join(name).to_string_lossy().into_owned();
        let script = format!(
            "#!/bin/sh\n# hactl as the administrator of this cluster\nexport HACTL_SERVER='{}' \
             HACTL_CERTIFICATE_AUTHORITY='{}' HACTL_CLIENT_CERTIFICATE='{}' HACTL_CLIENT_KEY='{}'\nexec '{}' \"$@\"\n",
            urls.join(","),
            file("ca.pem"),
            file("admin.pem"),
            file("admin.key"),
            binaries::workspace_program("hactl")?.display(),
        );
        let path = self.directory().join("hactl");
        fs::write(&path, script)?;
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755))?;
        let configuration = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "sandbox",
            "clusters": [{"name": "sandbox", "cluster": {"server": first, "certificate-authority": file("ca.pem")}}],
            "users": [{"name": "admin",
                "user": {"client-certificate": file("admin.pem"), "client-key": file("admin.key")}}],
            "contexts": [{"name": "sandbox", "context": {"cluster": "sandbox", "user": "admin"}}],
        });
        // JSON is valid YAML, so no YAML writer is needed.
        fs::write(self.directory().join("kubeconfig"), serde_json::to_vec_pretty(&configuration)?)?;
        Ok(())
    }
}

/// Runs a client, and kills it (status 137) after `limit` because it must be hanging.
fn run_with_timeout(limit: Duration, program: &str, arguments: &[&str]) -> Result<Output> {
    let seconds = limit.as_secs().to_string();
    let command_arguments: Vec<&str> =
        ["--signal=KILL", seconds.as_str(), program].into_iter().chain(arguments.iter().copied()).collect();
    output(tool("timeout"), &command_arguments)
}

fn member_url(member: &Machine) -> String {
    format!("https://{}:{ETCD_CLIENT_PORT}", member.address)
}
