//! The configuration files: their content, and the effect on existing files.

use super::settings::{Settings, Tls};
use crate::failure::Failure;
use ha_api_types::yaml;
use serde_json::{Map, Value, json};
use std::io::{ErrorKind, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// A file to write.
#[derive(Debug)]
pub(super) struct File {
    pub(super) path: PathBuf,
    pub(super) text: String,
}

/// The effect of a write on an existing file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    /// The file does not exist.
    Created,
    /// The file already has this content.
    Unchanged,
    /// The file has other content.
    Overwritten,
}

impl Fate {
    /// Returns the word for messages.
    pub(super) fn word(self) -> &'static str {
        match self {
            Fate::Created => "created",
            Fate::Unchanged => "unchanged",
            Fate::Overwritten => "overwritten",
        }
    }
}

/// Returns the files of a machine.
pub(super) fn of(settings: &Settings, folder: &Path) -> Result<Vec<File>, Failure> {
    let mut files = Vec::new();
    let mut add = |name: &str, comment: &str, value: Value| -> Result<(), Failure> {
        let text = yaml::to_text(&value).map_err(|error| Failure::refused(error.to_string()))?;
        files.push(File { path: folder.join(name), text: format!("# {comment}\n{text}") });
        Ok(())
    };
    if let Some(controller) = &settings.controller {
        let mut map = common(settings);
        map.insert("listen".to_owned(), json!(controller.listen.to_string()));
        map.insert("advertiseUrl".to_owned(), json!(controller.advertise_url));
        if let Some(tls) = &controller.tls {
            insert(&mut map, tls, ["clientCa", "tlsCert", "tlsKey"]);
        }
        add(
            "controller.yaml",
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
        map.extend(common(settings));
        add(
            "agent.yaml",
            "Settings of ha-node-agent(8): the options of the program in camel case.",
            map.into(),
        )?;
    }
    if let Some(client) = &settings.client {
        let mut context = Map::new();
        context.insert("name".to_owned(), json!("default"));
        context.insert("servers".to_owned(), json!(client.servers));
        insert(&mut context, &client.tls, ["certificateAuthority", "clientCertificate", "clientKey"]);
        let config = json!({"currentContext": "default", "contexts": [context]});
        add("config.yaml", "Connection of hactl to the controllers, for all users of this host.", config)?;
    }
    if let Some(node) = &settings.node {
        let comment = "# Variables of ha-watchdogd(8); override /etc/default/ha-watchdogd.";
        let text = format!("{comment}\nWATCHDOG_MODULE={}\n", node.watchdog);
        files.push(File { path: folder.join("watchdog.env"), text });
    }
    Ok(files)
}

/// Returns the settings that controllers and agents share.
fn common(settings: &Settings) -> Map<String, Value> {
    let mut map = Map::new();
    if let Some(cluster) = &settings.cluster {
        map.insert("cluster".to_owned(), json!(cluster));
    }
    map.insert("etcdEndpoints".to_owned(), json!(settings.store.endpoints));
    insert(&mut map, &settings.store.tls, ["etcdCa", "etcdCert", "etcdKey"]);
    map
}

fn insert(map: &mut Map<String, Value>, tls: &Tls, names: [&str; 3]) {
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
    pub(super) fn fate(&self) -> Result<Fate, Failure> {
        match std::fs::read(&self.path) {
            Ok(bytes) if bytes == self.text.as_bytes() => Ok(Fate::Unchanged),
            Ok(_) => Ok(Fate::Overwritten),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(Fate::Created),
            Err(error) => Err(Failure::refused(format!("cannot read {}: {error}", self.path.display()))),
        }
    }

    /// Writes the file atomically, readable by all users: it contains paths of keys, not keys.
    ///
    /// # Errors
    /// Fails if the file cannot be written.
    pub(super) fn write(&self, fate: Fate) -> Result<(), Failure> {
        if fate == Fate::Unchanged {
            return Ok(());
        }
        self.replace().map_err(|error| {
            Failure::refused(format!("cannot write {}: {error}", self.path.display()))
                .help("run the command as root, or add --directory DIR")
        })
    }

    fn replace(&self) -> std::io::Result<()> {
        let folder = self.path.parent().unwrap_or(Path::new("/"));
        std::fs::create_dir_all(folder)?;
        let mut temporary = tempfile::NamedTempFile::new_in(folder)?;
        temporary.write_all(self.text.as_bytes())?;
        temporary.as_file().set_permissions(std::fs::Permissions::from_mode(0o644))?;
        temporary.as_file().sync_all()?;
        temporary.persist(&self.path).map(|_| ()).map_err(|error| error.error)
    }
}
