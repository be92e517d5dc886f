//! Who uses the services and is none of the machines: a network namespace beside theirs.

use std::process::Output;

use anyhow::Result;

use super::Cluster;
use crate::command::{output, run, tool};

/// The number of the only client.
const CLIENT: u8 = 240;

impl Cluster {
    /// Joins a client to the network, with another address besides its own.
    ///
    /// # Errors
    /// Without namespaces, or when the kernel refuses.
    pub fn attach_client(&self, name: &str, address: &str) -> Result<()> {
        self.state.network.attach(name, CLIENT)?;
        self.add_address(name, address)
    }

    /// Gives a machine or a client another address, until its next boot.
    ///
    /// # Errors
    /// Without namespaces, or when the kernel refuses.
    pub fn add_address(&self, name: &str, address: &str) -> Result<()> {
        self.change_address(name, "add", address)
    }

    /// Takes an address away, behind everybody's back.
    ///
    /// # Errors
    /// When it is not there.
    pub fn remove_address(&self, name: &str, address: &str) -> Result<()> {
        self.change_address(name, "delete", address)
    }

    fn change_address(&self, name: &str, verb: &str, address: &str) -> Result<()> {
        let namespace = self.namespace(name);
        run(tool("ip"), &["-n", &namespace, "address", verb, address, "dev", "eth0"]).map(|_| ())
    }

    /// The addresses of a machine, each with the length of its prefix.
    ///
    /// # Errors
    /// Without namespaces.
    pub fn addresses(&self, name: &str) -> Result<Vec<String>> {
        let namespace = self.namespace(name);
        let said = run(tool("ip"), &["-4", "-n", &namespace, "-oneline", "address", "show", "dev", "eth0"])?;
        Ok(said.lines().filter_map(|line| line.split_whitespace().nth(3)).map(str::to_owned).collect())
    }

    /// Runs a command of a client, or of whoever else is on the network under this name.
    ///
    /// # Errors
    /// When it cannot be started; its failure is in the output.
    pub fn as_client(&self, name: &str, command: &[&str]) -> Result<Output> {
        let namespace = self.namespace(name);
        output(tool("ip"), &[&["netns", "exec", namespace.as_str()], command].concat())
    }
}
