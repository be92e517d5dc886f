//! The command-line flags for the connection to etcd, the same for all daemons.

use super::Config;
use std::path::PathBuf;

/// Connection to etcd, as given by the flags `--etcd-…`.
#[derive(Clone, Debug, clap::Args)]
pub struct StoreOptions {
    /// Client URLs of the etcd members, in order of preference
    #[arg(long, value_delimiter = ',', required = true, value_name = "URL", help_heading = "etcd")]
    pub etcd_endpoints: Vec<String>,
    /// CA certificate of the etcd members (PEM)
    #[arg(long, value_name = "FILE", help_heading = "etcd")]
    pub etcd_ca: Option<PathBuf>,
    /// Client certificate for etcd (PEM)
    #[arg(long, value_name = "FILE", help_heading = "etcd")]
    pub etcd_cert: Option<PathBuf>,
    /// Client key for etcd (PEM)
    #[arg(long, value_name = "FILE", help_heading = "etcd")]
    pub etcd_key: Option<PathBuf>,
    /// User name for etcd
    #[arg(long, value_name = "NAME", help_heading = "etcd")]
    pub etcd_user: Option<String>,
    /// File with the password of the etcd user
    #[arg(long, value_name = "FILE", help_heading = "etcd")]
    pub etcd_password_file: Option<PathBuf>,
    /// WARNING: services may run twice. Allow etcd versions with known defects
    #[arg(long, help_heading = "etcd")]
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
