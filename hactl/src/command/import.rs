//! `hactl import`: converts the configuration of another cluster manager to objects.

mod pve;

use crate::failure::Outcome;
use crate::session::Session;
use clap::{Args, Subcommand};

/// Convert the configuration of another cluster manager to objects
#[derive(Args, Debug)]
pub(crate) struct Import {
    #[command(subcommand)]
    source: ImportSource,
}

/// Source of the configuration.
#[derive(Subcommand, Debug)]
enum ImportSource {
    /// Convert the configuration of Proxmox VE's ha-manager to objects
    Pve(pve::Pve),
}

impl Import {
    pub(crate) fn run(&self, session: &Session) -> Outcome {
        match &self.source {
            ImportSource::Pve(pve) => pve.run(session),
        }
    }
}
