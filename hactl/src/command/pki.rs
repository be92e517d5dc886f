//! `hactl pki`: the authorities and certificates of a cluster, in a directory.

mod directory;
mod issue;
mod join_token;
mod revoke;
mod show;

use crate::duration::since_1970;
use crate::failure::Outcome;
use crate::session::Session;
use clap::{Args, Subcommand, ValueHint};
use directory::PkiDirectory;
use ha_api_types::time::Timestamp;
use ha_pki::Validity;
use std::path::PathBuf;
use std::time::Duration;

/// Default of `--dir`.
const DEFAULT_DIRECTORY: &str = "/etc/hactl/pki";
/// Validity of authorities and of revocation lists.
const LONG_VALIDITY: Duration = Duration::from_secs(3650 * 86_400);

/// Issue, renew and revoke the certificates of a cluster
#[derive(Args, Debug)]
#[command(
    after_help = "The directory has the keys of the authorities: keep it on one machine, and back it up. Three authorities sign \
                  the etcd peers (peer-ca), the servers (ca) and the clients (client-ca).\n\n\
        Examples:\n  hactl pki init\n  hactl pki issue etcd-peer c1 c2 c3\n  hactl pki issue user ada --group admin\n  \
        hactl pki show\n  hactl pki renew\n  hactl pki revoke ada"
)]
pub(crate) struct Pki {
    #[command(subcommand)]
    command: Subcommands,
    /// Directory of the authorities and certificates
    #[arg(long, global = true, value_name = "DIR", default_value = DEFAULT_DIRECTORY, value_hint = ValueHint::DirPath)]
    dir: PathBuf,
}

#[derive(Subcommand, Debug)]
enum Subcommands {
    /// Create the three authorities
    Init(issue::Init),
    /// Issue certificates with new keys
    Issue(issue::Issue),
    /// Issue certificates again before they expire, with new keys
    Renew(issue::Renew),
    /// Revoke certificates
    Revoke(revoke::Revoke),
    /// Create a token that permits one machine to join as a node, once
    JoinToken(join_token::CreateJoinToken),
    /// List the certificates with their expiry and state
    Show(show::Show),
}

impl Pki {
    pub(crate) async fn run(&self, session: &Session) -> Outcome {
        let directory = PkiDirectory::new(&self.dir);
        match &self.command {
            Subcommands::Init(init) => init.run(session, &directory),
            Subcommands::Issue(issue) => issue.run(session, &directory),
            Subcommands::Renew(renew) => renew.run(session, &directory),
            Subcommands::Revoke(revoke) => revoke.run(session, &directory).await,
            Subcommands::JoinToken(token) => token.run(session).await,
            Subcommands::Show(show) => show.run(session, &directory),
        }
    }
}

fn validity(lifetime: Duration) -> Validity {
    Validity { now_unix_seconds: i64::try_from(since_1970().as_secs()).unwrap_or(i64::MAX), lifetime }
}

fn timestamp(unix_seconds: i64) -> Timestamp {
    Timestamp::from_unix_ms(i128::from(unix_seconds) * 1000)
}
