//! The certificates of each purpose: their authority, subject, names and usages.

use crate::PkiError;
use crate::authority::AuthorityKind;
use crate::facts::CertificateFacts;
use ha_api_types::names::{MAX_NODE_NAME_LENGTH, invalid_reason};
use ha_api_types::role::Role;
use rcgen::{CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, KeyUsagePurpose};
use std::fmt;

/// Common name of the client that administers etcd.
const ROOT: &str = "root";
const PEER_PREFIX: &str = "peer-";
const ETCD_PREFIX: &str = "etcd-";
const API_PREFIX: &str = "api-";
const CONTROLLER_PREFIX: &str = "controller-";

/// Purpose of a certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum CertificateKind {
    /// Member of etcd, for the connections to the other members.
    EtcdPeer,
    /// Member of etcd, for its clients.
    EtcdServer,
    /// Server of the API.
    ControllerServer,
    /// Controller as a client of etcd.
    ControllerClient,
    /// Agent of a node, as a client of etcd and of the API.
    Node,
    /// Person or program, as a client of the API.
    User,
    /// Administrator of etcd.
    Root,
}

impl CertificateKind {
    /// All kinds.
    pub const ALL: [CertificateKind; 7] = [
        CertificateKind::EtcdPeer,
        CertificateKind::EtcdServer,
        CertificateKind::ControllerServer,
        CertificateKind::ControllerClient,
        CertificateKind::Node,
        CertificateKind::User,
        CertificateKind::Root,
    ];

    /// Returns the name of the kind, such as `etcd-peer`.
    pub fn name(self) -> &'static str {
        match self {
            CertificateKind::EtcdPeer => "etcd-peer",
            CertificateKind::EtcdServer => "etcd-server",
            CertificateKind::ControllerServer => "controller-server",
            CertificateKind::ControllerClient => "controller-client",
            CertificateKind::Node => "node",
            CertificateKind::User => "user",
            CertificateKind::Root => "root",
        }
    }

    /// Returns the only authority that signs certificates of this kind.
    pub fn authority(self) -> AuthorityKind {
        match self {
            CertificateKind::EtcdPeer => AuthorityKind::EtcdPeers,
            CertificateKind::EtcdServer | CertificateKind::ControllerServer => AuthorityKind::Servers,
            CertificateKind::ControllerClient
            | CertificateKind::Node
            | CertificateKind::User
            | CertificateKind::Root => AuthorityKind::Clients,
        }
    }

    /// Returns the kind of a certificate by its authority and its subject.
    pub(crate) fn of(authority: AuthorityKind, name: &str, groups: &[String]) -> Option<CertificateKind> {
        let has_role = |role: Role| groups.iter().any(|group| Role::of_group(group) == Some(role));
        match authority {
            AuthorityKind::EtcdPeers => Some(CertificateKind::EtcdPeer),
            AuthorityKind::Servers if name.starts_with(ETCD_PREFIX) => Some(CertificateKind::EtcdServer),
            AuthorityKind::Servers if name.starts_with(API_PREFIX) => Some(CertificateKind::ControllerServer),
            AuthorityKind::Servers => None,
            AuthorityKind::Clients if has_role(Role::Controller) => Some(CertificateKind::ControllerClient),
            AuthorityKind::Clients if has_role(Role::Node) => Some(CertificateKind::Node),
            AuthorityKind::Clients if name == ROOT => Some(CertificateKind::Root),
            AuthorityKind::Clients => Some(CertificateKind::User),
        }
    }
}

impl fmt::Display for CertificateKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Content of a certificate, except its key, serial number and validity.
///
/// Guarantees: the name suits the kind, and no two kinds have the same common name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Profile {
    kind: CertificateKind,
    common_name: String,
    group: Option<String>,
    addresses: Vec<String>,
}

impl Profile {
    /// Returns the profile of a server or of a member of etcd on a machine. The certificate is valid for the name of the
    /// machine, for loopback, and for further names and addresses.
    ///
    /// # Errors
    /// Fails if the name is not valid.
    pub fn server(kind: CertificateKind, machine: &str, addresses: &[String]) -> Result<Profile, PkiError> {
        let prefix = match kind {
            CertificateKind::EtcdPeer => PEER_PREFIX,
            CertificateKind::EtcdServer => ETCD_PREFIX,
            CertificateKind::ControllerServer => API_PREFIX,
            CertificateKind::ControllerClient
            | CertificateKind::Node
            | CertificateKind::User
            | CertificateKind::Root => return Err(PkiError::Name(format!("{kind} is not a server"))),
        };
        check_machine(machine)?;
        let mut all_addresses = vec![machine.to_owned()];
        for address in
            ["localhost", "127.0.0.1", "::1"].into_iter().chain(addresses.iter().map(String::as_str))
        {
            if !all_addresses.iter().any(|listed| listed == address) {
                all_addresses.push(address.to_owned());
            }
        }
        Ok(Profile { kind, common_name: format!("{prefix}{machine}"), group: None, addresses: all_addresses })
    }

    /// Returns the profile of a controller as a client.
    ///
    /// # Errors
    /// Fails if the name is not valid.
    pub fn controller(machine: &str) -> Result<Profile, PkiError> {
        check_machine(machine)?;
        Ok(Profile {
            kind: CertificateKind::ControllerClient,
            common_name: format!("{CONTROLLER_PREFIX}{machine}"),
            group: Some(Role::Controller.group()),
            addresses: Vec::new(),
        })
    }

    /// Returns the profile of a node.
    ///
    /// # Errors
    /// Fails if the name is not valid, or would be the name of another client in etcd.
    pub fn node(name: &str) -> Result<Profile, PkiError> {
        check_machine(name)?;
        check_not_reserved(name)?;
        Ok(Profile {
            kind: CertificateKind::Node,
            common_name: name.to_owned(),
            group: Some(Role::Node.group()),
            addresses: Vec::new(),
        })
    }

    /// Returns the profile of a user of the API.
    ///
    /// # Errors
    /// Fails if the name is not valid or would be the name of another client in etcd, or if the role is not for users.
    pub fn user(name: &str, role: Role) -> Result<Profile, PkiError> {
        let is_valid =
            |letter: char| letter.is_ascii_alphanumeric() || matches!(letter, '-' | '.' | '_' | '@');
        if name.is_empty() || name.len() > 64 || !name.chars().all(is_valid) || name.starts_with(['.', '-']) {
            return Err(PkiError::Name(format!(
                "{name:?} is not a valid user: use 1 to 64 letters, digits, '-', '.', '_' or '@', and begin with a letter or digit"
            )));
        }
        check_not_reserved(name)?;
        if matches!(role, Role::Node | Role::Controller) {
            return Err(PkiError::Name(format!("role {role} is not for users")));
        }
        Ok(Profile {
            kind: CertificateKind::User,
            common_name: name.to_owned(),
            group: Some(role.group()),
            addresses: Vec::new(),
        })
    }

    /// Returns the profile of the administrator of etcd, which has no role in the API.
    pub fn root() -> Profile {
        Profile {
            kind: CertificateKind::Root,
            common_name: ROOT.to_owned(),
            group: None,
            addresses: Vec::new(),
        }
    }

    /// Returns the profile with which a certificate can be issued again.
    ///
    /// # Errors
    /// Fails if hactl did not issue the certificate.
    pub fn of_certificate(facts: &CertificateFacts) -> Result<Profile, PkiError> {
        let unknown_kind =
            || PkiError::Name(format!("certificate {:?} was not issued by hactl pki", facts.name));
        let name_without = |prefix: &str| facts.name.strip_prefix(prefix).ok_or_else(unknown_kind);
        let kind = facts.kind.ok_or_else(unknown_kind)?;
        match kind {
            CertificateKind::EtcdPeer => Profile::server(kind, name_without(PEER_PREFIX)?, &facts.addresses),
            CertificateKind::EtcdServer => {
                Profile::server(kind, name_without(ETCD_PREFIX)?, &facts.addresses)
            }
            CertificateKind::ControllerServer => {
                Profile::server(kind, name_without(API_PREFIX)?, &facts.addresses)
            }
            CertificateKind::ControllerClient => Profile::controller(name_without(CONTROLLER_PREFIX)?),
            CertificateKind::Node => Profile::node(&facts.name),
            CertificateKind::User => {
                let role =
                    facts.groups.iter().find_map(|group| Role::of_group(group)).ok_or_else(unknown_kind)?;
                Profile::user(&facts.name, role)
            }
            CertificateKind::Root => Ok(Profile::root()),
        }
    }

    /// Returns the purpose.
    pub fn kind(&self) -> CertificateKind {
        self.kind
    }

    /// Returns the common name, which is also the name of the files.
    pub fn common_name(&self) -> &str {
        &self.common_name
    }

    /// Returns the group in the API; `None` for certificates without a role.
    pub fn group(&self) -> Option<&str> {
        self.group.as_deref()
    }

    pub(crate) fn parameters(&self) -> Result<CertificateParams, PkiError> {
        let mut parameters = CertificateParams::new(self.addresses.clone())
            .map_err(|error| PkiError::Name(format!("{}: {error}", self.addresses.join(", "))))?;
        parameters.distinguished_name = self.subject();
        // This variant also adds the identifier of the key, which strict verifiers require.
        parameters.is_ca = IsCa::ExplicitNoCa;
        parameters.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        parameters.extended_key_usages = match self.kind {
            // A member of etcd is server and client of the other members with the same certificate.
            CertificateKind::EtcdPeer => {
                vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth]
            }
            CertificateKind::EtcdServer | CertificateKind::ControllerServer => {
                vec![ExtendedKeyUsagePurpose::ServerAuth]
            }
            CertificateKind::ControllerClient
            | CertificateKind::Node
            | CertificateKind::User
            | CertificateKind::Root => vec![ExtendedKeyUsagePurpose::ClientAuth],
        };
        Ok(parameters)
    }

    pub(crate) fn subject(&self) -> DistinguishedName {
        let mut subject = DistinguishedName::new();
        if let Some(group) = &self.group {
            subject.push(DnType::OrganizationName, group.as_str());
        }
        subject.push(DnType::CommonName, self.common_name.as_str());
        subject
    }
}

fn check_machine(name: &str) -> Result<(), PkiError> {
    match invalid_reason(name, MAX_NODE_NAME_LENGTH) {
        Some(problem) => Err(PkiError::Name(format!("{name:?} is not a valid machine name: {problem}"))),
        // RFC 5280 limits a common name to 64 characters.
        None if name.len() + CONTROLLER_PREFIX.len() > 64 => {
            Err(PkiError::Name(format!("{name:?} is too long for a certificate: use at most 53 characters")))
        }
        None => Ok(()),
    }
}

/// Refuses a name that identifies another client in etcd, or a file of another kind.
fn check_not_reserved(name: &str) -> Result<(), PkiError> {
    let prefixes = [PEER_PREFIX, ETCD_PREFIX, API_PREFIX, CONTROLLER_PREFIX];
    let is_file =
        |kind: AuthorityKind| name == kind.file_stem() || format!("{name}.pem") == kind.revocation_file();
    let prefix = prefixes.into_iter().find(|prefix| name.starts_with(prefix));
    match prefix {
        Some(prefix) => Err(PkiError::Name(format!("{name:?} is reserved: {prefix}NAME is of another kind"))),
        None if name == ROOT || AuthorityKind::ALL.into_iter().any(is_file) => {
            Err(PkiError::Name(format!("{name:?} is reserved")))
        }
        None => Ok(()),
    }
}
