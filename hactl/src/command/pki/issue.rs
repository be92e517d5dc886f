//! `hactl pki init`, `issue` and `renew`: new authorities and certificates.

use super::directory::{AuthorityPresence, PkiDirectory, failure};
use super::show::{State, state};
use super::{LONG_VALIDITY, timestamp, validity};
use crate::failure::{Exit, Failure, Outcome};
use crate::session::Session;
use clap::{Args, ValueEnum};
use ha_api_types::role::Role;
use ha_pki::{Authority, AuthorityKind, CertificateFacts, CertificateKind, Profile};
use std::time::Duration;

/// Create the three authorities
#[derive(Args, Debug)]
pub(super) struct Init {
    /// Validity of the authorities
    #[arg(long = "valid", value_name = "DURATION", default_value = "3650d", value_parser = crate::duration::parse)]
    validity: Duration,
    /// Print the files without writing them
    #[arg(long)]
    dry_run: bool,
}

impl Init {
    pub(super) fn run(&self, session: &Session, directory: &PkiDirectory) -> Outcome {
        session.format(&[])?;
        let terminal = session.terminal();
        let lock = if self.dry_run {
            None
        } else {
            directory.create()?;
            Some(directory.lock()?)
        };
        let presences =
            AuthorityKind::ALL.map(|kind| directory.presence(kind).map(|presence| (kind, presence)));
        for presence in presences {
            let (kind, presence) = presence?;
            let file = directory.file(&format!("{}.pem", kind.file_stem()));
            match presence {
                AuthorityPresence::Present => terminal.report(&format!("{} already exists", file.display())),
                AuthorityPresence::Absent if self.dry_run => {
                    terminal.report(&format!("{} would be created", file.display()));
                }
                AuthorityPresence::Absent => {
                    let issued =
                        Authority::create(kind, validity(self.validity)).map_err(|error| failure(&error))?;
                    directory.write_authority(kind, &issued, validity(LONG_VALIDITY))?;
                    terminal.report(&format!("{} created: authority of {}", file.display(), subjects(kind)));
                }
            }
        }
        drop(lock);
        if !self.dry_run {
            terminal
                .hint("the keys of the authorities give full access to the cluster: keep the directory on one machine");
        }
        Ok(Exit::Done)
    }
}

fn subjects(kind: AuthorityKind) -> &'static str {
    match kind {
        AuthorityKind::EtcdPeers => "etcd peers",
        AuthorityKind::Servers => "servers",
        AuthorityKind::Clients => "clients",
    }
}

/// Kind of certificate on the command line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum KindName {
    /// etcd member, for the other members: peer-NAME
    EtcdPeer,
    /// etcd member, for its clients: etcd-NAME
    EtcdServer,
    /// Server of the API: api-NAME
    ControllerServer,
    /// Controller as a client of etcd: controller-NAME
    ControllerClient,
    /// Agent of a node: NAME
    Node,
    /// User of the API: NAME
    User,
    /// Administrator of etcd: root
    Root,
}

/// Role of a user on the command line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum GroupName {
    Viewer,
    Operator,
    Editor,
    Admin,
    Metrics,
}

impl From<GroupName> for Role {
    fn from(name: GroupName) -> Role {
        match name {
            GroupName::Viewer => Role::Viewer,
            GroupName::Operator => Role::Operator,
            GroupName::Editor => Role::Editor,
            GroupName::Admin => Role::Admin,
            GroupName::Metrics => Role::Metrics,
        }
    }
}

/// Issue certificates with new keys
#[derive(Args, Debug)]
#[command(
    after_help = "A certificate has one purpose. The files are NAME.pem and NAME.key, with the prefix of the kind.\n\n\
        Examples:\n  hactl pki issue controller-server c1 c2 c3\n  \
        hactl pki issue controller-server c1 --address 10.0.0.1,c1.example.com\n  hactl pki issue user ada --group admin\n  \
        hactl pki issue root"
)]
pub(super) struct Issue {
    /// Kind of the certificates
    #[arg(value_enum)]
    kind: KindName,
    /// Names of machines, nodes or users
    #[arg(value_name = "NAME")]
    names: Vec<String>,
    /// Additional names and IP addresses of a server
    #[arg(long = "address", value_delimiter = ',', value_name = "ADDRESS")]
    addresses: Vec<String>,
    /// Role of a user
    #[arg(long, value_enum)]
    group: Option<GroupName>,
    /// Validity of the certificates
    #[arg(long = "valid", value_name = "DURATION", default_value = "730d", value_parser = crate::duration::parse)]
    validity: Duration,
    /// WARNING: overwrites existing certificates and keys
    #[arg(long)]
    force: bool,
    /// Print the files without writing them
    #[arg(long)]
    dry_run: bool,
}

impl Issue {
    pub(super) fn run(&self, session: &Session, directory: &PkiDirectory) -> Outcome {
        session.format(&[])?;
        let profiles = self.profiles()?;
        let lock = directory.lock()?;
        let existing: Vec<String> = profiles
            .iter()
            .flat_map(|profile| directory.certificate_files(profile.common_name()))
            .filter(|file| file.exists())
            .map(|file| format!("{} already exists", file.display()))
            .collect();
        if !existing.is_empty() && !self.force {
            return Err(Failure::failed(existing.join("\n")).help(
                "nothing was written; run \"hactl pki renew NAME\" for a new certificate, or add --force to overwrite files",
            ));
        }
        for profile in &profiles {
            self.issue(session, directory, profile)?;
        }
        drop(lock);
        Ok(Exit::Done)
    }

    fn profiles(&self) -> Result<Vec<Profile>, Failure> {
        let is_server =
            matches!(self.kind, KindName::EtcdPeer | KindName::EtcdServer | KindName::ControllerServer);
        if !self.addresses.is_empty() && !is_server {
            return Err(Failure::usage("--address is for servers only: clients have no addresses"));
        }
        if !self.addresses.is_empty() && self.names.len() > 1 {
            return Err(Failure::usage("--address is valid for a single machine").help("specify one NAME"));
        }
        let group = match (self.kind, self.group) {
            (KindName::User, None) => {
                return Err(Failure::usage("no role specified for the user")
                    .help("add --group viewer, operator, editor, admin or metrics"));
            }
            (KindName::User, group) => group,
            (_, None) => None,
            (_, Some(_)) => return Err(Failure::usage("--group is for users only")),
        };
        if self.kind == KindName::Root {
            if self.names.iter().any(|name| name != "root") {
                return Err(
                    Failure::usage("the etcd administrator must have the name root").help("omit NAME")
                );
            }
            return Ok(vec![Profile::root()]);
        }
        if self.names.is_empty() {
            return Err(Failure::usage("no NAME specified"));
        }
        let profile = |name: &String| {
            let profile = match self.kind {
                KindName::EtcdPeer => Profile::server(CertificateKind::EtcdPeer, name, &self.addresses),
                KindName::EtcdServer => Profile::server(CertificateKind::EtcdServer, name, &self.addresses),
                KindName::ControllerServer => {
                    Profile::server(CertificateKind::ControllerServer, name, &self.addresses)
                }
                KindName::ControllerClient => Profile::controller(name),
                KindName::Node => Profile::node(name),
                KindName::User => Profile::user(name, group.map_or(Role::Viewer, Role::from)),
                KindName::Root => Ok(Profile::root()),
            };
            profile.map_err(|error| failure(&error))
        };
        self.names.iter().map(profile).collect()
    }

    fn issue(&self, session: &Session, directory: &PkiDirectory, profile: &Profile) -> Result<(), Failure> {
        let authority = directory.authority(profile.kind().authority())?;
        let issued = authority.issue(profile, validity(self.validity)).map_err(|error| failure(&error))?;
        let [certificate, key] = directory.certificate_files(profile.common_name());
        if self.dry_run {
            let text = format!("{} and {} would be created", certificate.display(), key.display());
            session.terminal().report(&text);
            return Ok(());
        }
        let facts = directory.write_certificate(profile.common_name(), &issued)?;
        session.terminal().report(&format!(
            "{} created: {}, valid until {}",
            certificate.display(),
            profile.kind(),
            timestamp(facts.not_after)
        ));
        Ok(())
    }
}

/// Issue certificates again before they expire, with new keys
#[derive(Args, Debug)]
#[command(
    after_help = "Without NAME, the command renews certificates that have used two thirds of their validity. The names, \
                  groups, addresses and the validity stay the same. Copy the new files to their machines.\n\n\
        Examples:\n  hactl pki renew --dry-run\n  hactl pki renew\n  hactl pki renew c1 api-c1"
)]
pub(super) struct Renew {
    /// Names of the certificates, such as c1 or api-c1
    #[arg(value_name = "NAME")]
    names: Vec<String>,
    /// Renew all certificates that are not revoked
    #[arg(long, conflicts_with = "names")]
    all: bool,
    /// Validity of the certificates; default: as before
    #[arg(long = "valid", value_name = "DURATION", value_parser = crate::duration::parse)]
    validity: Option<Duration>,
    /// Print the certificates without renewing them
    #[arg(long)]
    dry_run: bool,
}

impl Renew {
    pub(super) fn run(&self, session: &Session, directory: &PkiDirectory) -> Outcome {
        session.format(&[])?;
        let lock = directory.lock()?;
        let certificates = directory.certificates()?;
        let current: Vec<_> = certificates
            .iter()
            .filter(|certificate| certificate.is_current && !certificate.is_authority)
            .collect();
        if let Some(unknown) =
            self.names.iter().find(|name| !current.iter().any(|certificate| certificate.facts.name == **name))
        {
            return Err(directory.not_found(unknown));
        }
        let mut chosen = Vec::new();
        let lists = directory.lists()?;
        for certificate in current {
            let facts = &certificate.facts;
            let is_due = match state(&lists, certificate) {
                State::RenewalDue | State::Expired => true,
                State::Valid | State::Replaced => self.all,
                State::Revoked => false,
            };
            if self.names.contains(&facts.name) || (self.names.is_empty() && is_due) {
                chosen.push(facts);
            }
        }
        if chosen.is_empty() {
            session.terminal().report("no certificate is due for renewal");
        }
        for facts in chosen {
            self.renew(session, directory, facts)?;
        }
        drop(lock);
        Ok(Exit::Done)
    }

    fn renew(
        &self,
        session: &Session,
        directory: &PkiDirectory,
        facts: &CertificateFacts,
    ) -> Result<(), Failure> {
        let profile = Profile::of_certificate(facts).map_err(|error| failure(&error))?;
        if self.dry_run {
            let text = format!("{} would be renewed: valid until {}", facts.name, timestamp(facts.not_after));
            session.terminal().report(&text);
            return Ok(());
        }
        let authority = directory.authority(profile.kind().authority())?;
        let issued = authority
            .issue(&profile, validity(self.validity.unwrap_or(facts.lifetime())))
            .map_err(|error| failure(&error))?;
        let renewed = directory.write_certificate(&facts.name, &issued)?;
        let [certificate, key] = directory.certificate_files(&facts.name);
        session.terminal().report(&format!(
            "{} renewed: valid until {}; copy it and {} to the machine",
            certificate.display(),
            timestamp(renewed.not_after),
            key.display()
        ));
        Ok(())
    }
}
