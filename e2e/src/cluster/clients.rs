//! Clients of the services: network namespaces on the cluster's network that are not machines.

use std::process::Output;

use anyhow::Result;

use super::Cluster;
use crate::command::{output, run, tool};

/// Host number of the only client.
const CLIENT_HOST_NUMBER: u8 = 240;

impl Cluster {
    /// Connects a client to the network and gives it a second address.
    ///
    /// # Errors
    /// Fails without namespaces, or if the kernel refuses.
    pub fn attach_client(&self, name: &str, address: &str) -> Result<()> {
        self.state.network.attach(name, CLIENT_HOST_NUMBER)?;
        self.add_address(name, address)
    }

    /// Adds an address to a machine or a client, until its next boot.
    ///
    /// # Errors
    /// Fails without namespaces, or if the kernel refuses.
    pub fn add_address(&self, name: &str, address: &str) -> Result<()> {
        self.change_address(name, "add", address)
    }

    /// Removes an address without informing the agent.
    ///
    /// # Errors
    /// Fails if the address is not assigned.
    pub fn remove_address(&self, name: &str, address: &str) -> Result<()> {
        self.change_address(name, "delete", address)
    }

    fn change_address(&self, name: &str, verb: &str, address: &str) -> Result<()> {
        let namespace = self.namespace(name);
        run(tool("ip"), &["-n", &namespace, "address", verb, address, "dev", "eth0"]).map(|_| ())
    }

    /// Returns the addresses of a machine, each with its prefix length.
    ///
    /// # Errors
    /// Fails without namespaces.
    pub fn addresses(&self, name: &str) -> Result<Vec<String>> {
        let namespace = self.namespace(name);
        let output_text =
            run(tool("ip"), &["-4", "-n", &namespace, "-oneline", "address", "show", "dev", "eth0"])?;
        Ok(output_text.lines().filter_map(|line| line.split_whitespace().nth(3)).map(str::to_owned).collect())
    }

    /// Runs a command in the network namespace of a client or a machine.
    ///
    /// # Errors
    /// Fails if the command cannot be started. A failure of the command is visible only in the output.
    pub fn run_as_client(&self, name: &str, command: &[&str]) -> Result<Output> {
        let namespace = self.namespace(name);
        output(tool("ip"), &[&["netns", "exec", namespace.as_str()], command].concat())
    }
}
