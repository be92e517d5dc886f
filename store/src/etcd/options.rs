//! The command-line flags for the connection to etcd, the same for all daemons.

use super::Config;
use std::path::PathBuf;

/// The store, as the flags `--etcd-…` say.
#[derive(Clone, Debug, clap::Args)]
pub struct StoreOptions {
    /// Client URLs of the store's members, in the order of preference
    #[arg(long, value_delimiter = ',', required = true, value_name = "URL", help_heading = "Store")]
    pub etcd_endpoints: Vec<String>,
    /// Certificate authority of the members (PEM)
    #[arg(long, value_name = "FILE", help_heading = "Store")]
    pub etcd_ca: Option<PathBuf>,
    /// Client certificate (PEM)
    #[arg(long, value_name = "FILE", help_heading = "Store")]
    pub etcd_cert: Option<PathBuf>,
    /// Client key (PEM)
    #[arg(long, value_name = "FILE", help_heading = "Store")]
    pub etcd_key: Option<PathBuf>,
    /// User
    #[arg(long, value_name = "NAME", help_heading = "Store")]
    pub etcd_user: Option<String>,
    /// File with the user's password
    #[arg(long, value_name = "FILE", help_heading = "Store")]
    pub etcd_password_file: Option<PathBuf>,
    /// Work with an etcd that has known defects all the same
    #[arg(long, help_heading = "Store")]
    pub allow_old_store: bool,
}

impl StoreOptions {
    /// Returns the settings of the etcd client.
    pub fn config(&self) -> Config {
        Config {
            endpoints: self.etcd_endpoints.clone(),
            ca: self.etcd_ca.clone(),
            cert: self.etcd_cert.clone(),
            key: self.etcd_key.clone(),
            user: self.etcd_user.clone(),
            password_file: self.etcd_password_file.clone(),
            allow_old_store: self.allow_old_store,
            ..Config::default()
        }
    }
}
