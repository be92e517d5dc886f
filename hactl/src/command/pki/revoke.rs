//! `hactl pki revoke`: revocation lists of the authorities.

use super::directory::{PkiDirectory, StoredCertificate, serials_of};
use super::show::{State, state};
use super::{LONG_VALIDITY, timestamp, validity};
use crate::failure::{Exit, Failure, Outcome};
use crate::session::Session;
use crate::terminal::Terminal;
use clap::Args;
use ha_pki::{AuthorityKind, CertificateKind, Serial};

/// Revoke certificates
#[derive(Args, Debug)]
#[command(
    after_help = "The command writes the revocation list of the authority: client-crl.pem, peer-crl.pem or server-crl.pem. \
                  Copy client-crl.pem to every controller and etcd member, and peer-crl.pem to every etcd member.\n\n\
        Examples:\n  hactl pki revoke ada\n  hactl pki revoke c3 --renewed\n  hactl pki renew c1 && hactl pki revoke c1 --replaced\n  \
        hactl pki revoke --serial 5f0c3e…"
)]
#[expect(clippy::struct_excessive_bools, reason = "each is an independent flag")]
pub(super) struct Revoke {
    /// Names of the certificates, such as c1 or api-c1
    #[arg(value_name = "NAME", required_unless_present = "serials")]
    names: Vec<String>,
    /// Serial numbers of client certificates that a controller issued
    #[arg(long = "serial", value_delimiter = ',', value_name = "SERIAL")]
    serials: Vec<Serial>,
    /// Also revoke certificates that controllers issued to these nodes
    #[arg(long, conflicts_with = "replaced", requires = "names")]
    renewed: bool,
    /// Revoke only certificates that a newer one has replaced
    #[arg(long)]
    replaced: bool,
    /// Do not ask for confirmation
    #[arg(long, short = 'y')]
    yes: bool,
    /// Print the certificates without revoking them
    #[arg(long)]
    dry_run: bool,
}

impl Revoke {
    pub(super) async fn run(&self, session: &Session, directory: &PkiDirectory) -> Outcome {
        session.format(&[])?;
        let terminal = session.terminal();
        let mut serials = self.serials.clone();
        if self.renewed {
            serials.extend(self.renewed_serials(session).await?);
        }
        let lock = directory.lock()?;
        let certificates = directory.certificates()?;
        let chosen = self.chosen(directory, &certificates)?;
        let clients = directory.list(AuthorityKind::Clients)?;
        serials.retain(|serial| {
            !clients.contains(serial) && !chosen.iter().any(|certificate| certificate.facts.serial == *serial)
        });
        if chosen.is_empty() && serials.is_empty() {
            terminal.report("these certificates are already revoked, expired or in use");
            return Ok(Exit::Done);
        }
        for certificate in &chosen {
            let facts = &certificate.facts;
            let in_use = if certificate.is_current { "" } else { ", replaced" };
            terminal.report(&format!(
                "{} ({}{in_use}), serial {}, valid until {}",
                facts.name,
                certificate.kind_name(),
                facts.serial,
                timestamp(facts.not_after)
            ));
        }
        for serial in &serials {
            terminal.report(&format!("client certificate with serial {serial}"));
        }
        if self.dry_run {
            return Ok(Exit::Done);
        }
        let question = "Clients and members with these certificates lose their access permanently. Revoke the certificates?";
        if !self.yes && !Terminal::confirm(question)? {
            return Err(Failure::failed("not confirmed: nothing was changed"));
        }
        for kind in AuthorityKind::ALL {
            let mut revoked = serials_of(&chosen, kind);
            if kind == AuthorityKind::Clients {
                revoked.extend(serials.clone());
            }
            if revoked.is_empty() {
                continue;
            }
            let validity = validity(LONG_VALIDITY);
            let list = directory.list(kind)?.with(&revoked, validity.now_unix_seconds);
            directory.write_list(kind, &directory.authority(kind)?, &list, validity)?;
            let file = directory.file(kind.revocation_file());
            match kind {
                AuthorityKind::EtcdPeers => {
                    terminal.report(&format!("{} written: copy it to every etcd member", file.display()));
                }
                AuthorityKind::Clients => terminal.report(&format!(
                    "{} written: copy it to every controller and etcd member",
                    file.display()
                )),
                AuthorityKind::Servers => terminal.warn(&format!(
                    "{} written, but clients do not check it: replace the authority after a leak of this key",
                    file.display()
                )),
            }
        }
        drop(lock);
        if chosen.iter().any(|certificate| certificate.facts.kind == Some(CertificateKind::Node))
            && !self.renewed
        {
            terminal.hint("certificates that controllers issued to a node stay valid: add --renewed to revoke them also");
        }
        Ok(Exit::Done)
    }

    /// Returns the serial numbers of the certificates that controllers issued to the nodes.
    async fn renewed_serials(&self, session: &Session) -> Result<Vec<Serial>, Failure> {
        let mut serials = Vec::new();
        for name in &self.names {
            for certificate in session.client()?.issued_certificates(name).await?.items {
                let serial = certificate.serial.parse();
                serials
                    .push(serial.map_err(|error: String| Failure::failed(format!("node {name}: {error}")))?);
            }
        }
        Ok(serials)
    }

    /// Returns the certificates with these names that are neither revoked nor expired.
    fn chosen<'a>(
        &self,
        directory: &PkiDirectory,
        certificates: &'a [StoredCertificate],
    ) -> Result<Vec<&'a StoredCertificate>, Failure> {
        let mut chosen = Vec::new();
        let lists = directory.lists()?;
        for name in &self.names {
            let matching: Vec<_> = certificates
                .iter()
                .filter(|certificate| certificate.facts.name == *name && !certificate.is_authority)
                .collect();
            if matching.is_empty() && !self.renewed {
                return Err(directory.not_found(name));
            }
            for certificate in matching {
                let is_open = match state(&lists, certificate) {
                    State::Valid | State::RenewalDue => !self.replaced,
                    State::Replaced => true,
                    State::Expired | State::Revoked => false,
                };
                if is_open {
                    chosen.push(certificate);
                }
            }
        }
        Ok(chosen)
    }
}
