//! The configuration files: their content, and the effect on existing files.

use super::settings::{Settings, Tls};
use crate::config::local_socket;
use crate::failure::Failure;
use ha_api_types::yaml;
use serde_json::{Map, Value, json};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

/// A file to write.
#[derive(Debug)]
pub(super) struct File {
    pub(super) path: PathBuf,
    pub(super) text: String,
}

const AGENT_FILE: &str = "agent.yaml";
const CONTROLLER_FILE: &str = "controller.yaml";

/// The policy of a new controller: objects name no file outside of one directory.
const DEFAULT_CONTROLLER_POLICY: &str = "\
# Limits for objects: the files that they may name. More keys: docs/concepts/security.md.
# WARNING: without policy, administrators of the API can make this controller read any of its files.
policy:
  secretsDirectory: /etc/hactl/secrets
";

/// The policy of a new node. No content of a resource acts as root: it chooses neither programs nor files of the node.
const DEFAULT_POLICY: &str = "\
# Limits for the services of this node, which no object can change. Existing units, containers and virtual machines are
# allowed.
# WARNING: without policy, users who may edit resources are root on this node. Keys: docs/concepts/security.md.
policy:
  allowRoot: false
  # Users of exec and of transient systemd units.
  users: [nobody]
  # Directories for containers and virtual machines, such as [/srv].
  mounts: []
  # OCF agents whose parameters name no programs.
  ocfProviders: [\"heartbeat:IPaddr2\"]
";

/// The effect of a write on an existing file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WriteEffect {
    /// The file does not exist.
    Created,
    /// The file already has this content.
    Unchanged,
    /// The file has other content.
    Overwritten,
}

impl WriteEffect {
    /// Returns the word for messages.
    pub(super) fn name(self) -> &'static str {
        match self {
            WriteEffect::Created => "created",
            WriteEffect::Unchanged => "unchanged",
            WriteEffect::Overwritten => "overwritten",
        }
    }
}

pub(super) fn configuration_files(settings: &Settings, directory: &Path) -> Result<Vec<File>, Failure> {
    let mut files = Vec::new();
    let mut add = |name: &str, comment: &str, value: Value| -> Result<(), Failure> {
        let text = yaml::to_text(&value).map_err(|error| Failure::failed(error.to_string()))?;
        let further = match name {
            AGENT_FILE => DEFAULT_POLICY,
            CONTROLLER_FILE => DEFAULT_CONTROLLER_POLICY,
            _ => "",
        };
        files.push(File { path: directory.join(name), text: format!("# {comment}\n{text}{further}") });
        Ok(())
    };
    if let Some(controller) = &settings.controller {
        let mut map = common_settings(settings);
        map.insert("authorization".to_owned(), json!("Roles"));
        map.insert("socket".to_owned(), json!(local_socket()));
        if let Some((listen, advertise_url)) = &controller.tcp {
            map.insert("listen".to_owned(), json!(listen.to_string()));
            map.insert("advertiseUrl".to_owned(), json!(advertise_url));
            if controller.tls.is_none() {
                map.insert("insecureLoopback".to_owned(), json!(true));
            }
        }
        if let Some(tls) = &controller.tls {
            insert_tls_files(&mut map, tls, ["clientCa", "tlsCert", "tlsKey"]);
        }
        for (name, path) in
            [("clientCrl", &controller.client_crl), ("joinAuthority", &controller.join_authority)]
        {
            if let Some(path) = path {
                map.insert(name.to_owned(), json!(path));
            }
        }
        add(
            CONTROLLER_FILE,
            "Settings of ha-controller(8): the options of the program in camel case.",
            map.into(),
        )?;
        let cluster = json!({"apiVersion": "hactl.io/v1", "kind": "Cluster", "metadata": {"name": "default"},
            "spec": {"timing": {"profile": settings.profile}}});
        add("cluster.yaml", "Settings of the cluster, for hactl apply -f", cluster)?;
    }
    if let Some(node) = &settings.node {
        let mut map = Map::new();
        map.insert("node".to_owned(), json!(node.name));
        map.extend(common_settings(settings));
        add(
            AGENT_FILE,
            "Settings of ha-node-agent(8): the options of the program in camel case.",
            map.into(),
        )?;
    }
    if let Some(client) = &settings.client {
        let mut context = Map::new();
        context.insert("name".to_owned(), json!("default"));
        context.insert("servers".to_owned(), json!(client.servers));
        insert_tls_files(
            &mut context,
            &client.tls,
            ["certificateAuthority", "clientCertificate", "clientKey"],
        );
        let config = json!({"currentContext": "default", "contexts": [context]});
        add("config.yaml", "Connection of hactl to the controllers, for all users of this host.", config)?;
    }
    if let Some(node) = &settings.node {
        let comment = "# Variables of ha-watchdogd(8); override /etc/default/ha-watchdogd.";
        let text = format!("{comment}\nWATCHDOG_MODULE={}\n", node.watchdog);
        files.push(File { path: directory.join("watchdog.env"), text });
    }
    Ok(files)
}

/// Returns the settings that controllers and agents share.
fn common_settings(settings: &Settings) -> Map<String, Value> {
    let mut map = Map::new();
    if let Some(cluster) = &settings.cluster {
        map.insert("cluster".to_owned(), json!(cluster));
    }
    map.insert("etcdEndpoints".to_owned(), json!(settings.etcd.endpoints));
    insert_tls_files(&mut map, &settings.etcd.tls, ["etcdCa", "etcdCert", "etcdKey"]);
    map
}

fn insert_tls_files(map: &mut Map<String, Value>, tls: &Tls, names: [&str; 3]) {
    let (certificate, key) = match &tls.identity {
        Some((certificate, key)) => (Some(certificate), Some(key)),
        None => (None, None),
    };
    for (name, file) in names.into_iter().zip([tls.authority.as_ref(), certificate, key]) {
        if let Some(file) = file {
            map.insert(name.to_owned(), json!(file));
        }
    }
}

impl File {
    /// Compares the file with the existing one.
    ///
    /// # Errors
    /// Fails if the existing file cannot be read.
    pub(super) fn effect(&self) -> Result<WriteEffect, Failure> {
        match std::fs::read(&self.path) {
            Ok(bytes) if bytes == self.text.as_bytes() => Ok(WriteEffect::Unchanged),
            Ok(_) => Ok(WriteEffect::Overwritten),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(WriteEffect::Created),
            Err(error) => Err(Failure::failed(format!("cannot read {}: {error}", self.path.display()))),
        }
    }

    /// Writes the file atomically, readable by all users: it contains paths of keys, not keys.
    ///
    /// # Errors
    /// Fails if the file cannot be written.
    pub(super) fn write(&self, effect: WriteEffect) -> Result<(), Failure> {
        if effect == WriteEffect::Unchanged {
            return Ok(());
        }
        self.replace().map_err(|error| {
            Failure::failed(format!("cannot write {}: {error}", self.path.display()))
                .help("run the command as root, or add --directory DIR")
        })
    }

    fn replace(&self) -> std::io::Result<()> {
        let directory = self.path.parent().unwrap_or(Path::new("/"));
        std::fs::create_dir_all(directory)?;
        crate::atomic_file::replace_with_mode(&self.path, &self.text, 0o644)
    }
}
