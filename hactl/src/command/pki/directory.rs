//! The directory with the authorities and certificates of a cluster.

use crate::atomic_file;
use crate::failure::Failure;
use ha_pki::{
    Authority, AuthorityKind, CertificateFacts, CertificateKind, CertificateWithKey, PkiError,
    RevocationList, Serial, Validity,
};
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{DirBuilder, File};
use std::io::ErrorKind;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

/// Directory with a copy of every certificate that was issued, by serial number.
const ISSUED_DIRECTORY: &str = "issued";
const KEY_MODE: u32 = 0o600;
const PUBLIC_MODE: u32 = 0o644;

/// A directory with the authorities, and the certificates that they issued.
#[derive(Debug)]
pub(super) struct PkiDirectory {
    path: PathBuf,
}

#[derive(Clone, Debug)]
pub(super) struct StoredCertificate {
    pub(super) facts: CertificateFacts,
    /// Kind that hactl issues; an authority has none.
    pub(super) authority: AuthorityKind,
    pub(super) is_authority: bool,
    /// Whether this is the newest certificate of its name.
    pub(super) is_current: bool,
    pub(super) file: PathBuf,
}

impl StoredCertificate {
    /// Returns the name of the kind, or `authority`.
    pub(super) fn kind_name(&self) -> &'static str {
        self.facts.kind.map_or("authority", CertificateKind::name)
    }
}

/// Revocation lists by their authority.
pub(super) type RevocationLists = BTreeMap<AuthorityKind, RevocationList>;

/// Whether the files of an authority exist.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AuthorityPresence {
    Absent,
    Present,
}

impl PkiDirectory {
    pub(super) fn new(path: &Path) -> PkiDirectory {
        PkiDirectory { path: path.to_owned() }
    }

    pub(super) fn file(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// Creates the directory, which only root can read.
    pub(super) fn create(&self) -> Result<(), Failure> {
        DirBuilder::new().recursive(true).mode(0o700).create(&self.path).map_err(|error| {
            Failure::failed(format!("cannot create {}: {error}", self.path.display()))
                .help("run the command as root, or add --dir DIR")
        })
    }

    /// Locks the directory against other commands until the result is dropped.
    pub(super) fn lock(&self) -> Result<File, Failure> {
        let open_failure = |error: std::io::Error| {
            Failure::failed(format!("cannot open {}: {error}", self.path.display()))
                .help("run \"hactl pki init\" first, or add --dir DIR")
        };
        let directory = File::open(&self.path).map_err(open_failure)?;
        directory.lock().map_err(open_failure)?;
        Ok(directory)
    }

    /// Reports whether an authority exists.
    ///
    /// # Errors
    /// Fails if one of its files is missing, or belongs to another authority.
    pub(super) fn presence(&self, kind: AuthorityKind) -> Result<AuthorityPresence, Failure> {
        let [certificate, key] = self.authority_files(kind);
        match (certificate.exists(), key.exists()) {
            (false, false) => Ok(AuthorityPresence::Absent),
            (true, true) => {
                let facts = facts(&certificate)?;
                if facts.name == kind.name() {
                    return Ok(AuthorityPresence::Present);
                }
                Err(Failure::failed(format!(
                    "{} belongs to authority {:?} instead of {:?}",
                    certificate.display(),
                    facts.name,
                    kind.name()
                ))
                .help("add --dir DIR with a directory for hactl pki only"))
            }
            (has_certificate, _) => {
                let missing = if has_certificate { key } else { certificate };
                Err(Failure::failed(format!("{} is missing", missing.display()))
                    .help("restore the file from a backup, or add --dir DIR with a new directory"))
            }
        }
    }

    fn authority_files(&self, kind: AuthorityKind) -> [PathBuf; 2] {
        ["pem", "key"].map(|extension| self.file(&format!("{}.{extension}", kind.file_stem())))
    }

    /// Reads an authority with its key.
    pub(super) fn authority(&self, kind: AuthorityKind) -> Result<Authority, Failure> {
        let [certificate, key] = self.authority_files(kind);
        if self.presence(kind)? == AuthorityPresence::Absent {
            return Err(Failure::failed(format!("{} does not exist", certificate.display()))
                .help("run \"hactl pki init\" first, or add --dir DIR"));
        }
        Authority::load(&read(&certificate)?, &read(&key)?).map_err(|error| in_file(&error, &certificate))
    }

    /// Writes a new authority with an empty revocation list.
    pub(super) fn write_authority(
        &self,
        kind: AuthorityKind,
        issued: &CertificateWithKey,
        validity: Validity,
    ) -> Result<(), Failure> {
        let [certificate, key] = self.authority_files(kind);
        write(&key, &issued.key_pem, KEY_MODE)?;
        write(&certificate, &issued.certificate_pem, PUBLIC_MODE)?;
        let authority =
            Authority::load(&issued.certificate_pem, &issued.key_pem).map_err(|error| failure(&error))?;
        let list = RevocationList::default().with(&[], validity.now_unix_seconds);
        self.write_list(kind, &authority, &list, validity)
    }

    /// Returns the revocation list of an authority. A missing list is empty.
    pub(super) fn list(&self, kind: AuthorityKind) -> Result<RevocationList, Failure> {
        let path = self.file(kind.revocation_file());
        match std::fs::read_to_string(&path) {
            Ok(text) => RevocationList::of_pem(&text).map_err(|error| in_file(&error, &path)),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(RevocationList::default()),
            Err(error) => Err(Failure::failed(format!("cannot read {}: {error}", path.display()))),
        }
    }

    /// Returns the revocation lists of all authorities.
    pub(super) fn lists(&self) -> Result<RevocationLists, Failure> {
        AuthorityKind::ALL.into_iter().map(|kind| Ok((kind, self.list(kind)?))).collect()
    }

    pub(super) fn write_list(
        &self,
        kind: AuthorityKind,
        authority: &Authority,
        list: &RevocationList,
        validity: Validity,
    ) -> Result<(), Failure> {
        let text = authority.sign_list(list, validity).map_err(|error| failure(&error))?;
        write(&self.file(kind.revocation_file()), &text, PUBLIC_MODE)
    }

    /// Returns the files of a certificate and its key.
    pub(super) fn certificate_files(&self, name: &str) -> [PathBuf; 2] {
        ["pem", "key"].map(|extension| self.file(&format!("{name}.{extension}")))
    }

    /// Writes a certificate and its key, and keeps a copy of the certificate for its revocation.
    pub(super) fn write_certificate(
        &self,
        name: &str,
        issued: &CertificateWithKey,
    ) -> Result<CertificateFacts, Failure> {
        let facts = CertificateFacts::of_pem(&issued.certificate_pem).map_err(|error| failure(&error))?;
        let copies = self.file(ISSUED_DIRECTORY);
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&copies)
            .map_err(|error| Failure::failed(format!("cannot create {}: {error}", copies.display())))?;
        write(&copies.join(format!("{}.pem", facts.serial)), &issued.certificate_pem, PUBLIC_MODE)?;
        let [certificate, key] = self.certificate_files(name);
        write(&key, &issued.key_pem, KEY_MODE)?;
        write(&certificate, &issued.certificate_pem, PUBLIC_MODE)?;
        Ok(facts)
    }

    /// Returns the authorities and all certificates, sorted by kind and name; of each name, the current one first.
    pub(super) fn certificates(&self) -> Result<Vec<StoredCertificate>, Failure> {
        let mut certificates = Vec::new();
        let mut serials = BTreeSet::new();
        for (directory, is_current) in [(self.path.clone(), true), (self.file(ISSUED_DIRECTORY), false)] {
            for file in pem_files(&directory)? {
                // Other files in the directory, such as revocation lists, are not certificates.
                let Ok(facts) = CertificateFacts::of_pem(&read(&file)?) else { continue };
                let is_authority = self.is_authority_file(&file);
                let authority = AuthorityKind::ALL.into_iter().find(|kind| kind.name() == facts.issuer);
                let Some(authority) = authority.filter(|_| is_authority || facts.kind.is_some()) else {
                    continue;
                };
                if serials.insert((authority, facts.serial.clone())) {
                    certificates.push(StoredCertificate { facts, authority, is_authority, is_current, file });
                }
            }
        }
        certificates.sort_by(|left, right| {
            let key = |certificate: &StoredCertificate| {
                (certificate.facts.kind, certificate.authority, certificate.facts.name.clone())
            };
            let age = |certificate: &StoredCertificate| {
                (!certificate.is_current, std::cmp::Reverse(certificate.facts.not_before))
            };
            key(left).cmp(&key(right)).then(age(left).cmp(&age(right)))
        });
        Ok(certificates)
    }

    /// Returns the error for a name without a certificate.
    pub(super) fn not_found(&self, name: &str) -> Failure {
        Failure::failed(format!("certificate {name} not found in {}", self.file("").display()))
            .help("run \"hactl pki show\"")
    }

    fn is_authority_file(&self, file: &Path) -> bool {
        AuthorityKind::ALL
            .into_iter()
            .any(|kind| self.authority_files(kind).iter().any(|authority_file| authority_file == file))
    }
}

/// Serial numbers of certificates by their authority.
pub(super) fn serials_of(certificates: &[&StoredCertificate], kind: AuthorityKind) -> Vec<Serial> {
    certificates
        .iter()
        .filter(|certificate| certificate.authority == kind)
        .map(|certificate| certificate.facts.serial.clone())
        .collect()
}

fn pem_files(directory: &Path) -> Result<Vec<PathBuf>, Failure> {
    let open_failure = |error: std::io::Error| {
        Failure::failed(format!("cannot read {}: {error}", directory.display()))
            .help("run \"hactl pki init\" first, or add --dir DIR")
    };
    let entries = match std::fs::read_dir(directory) {
        Ok(entries) => entries,
        Err(error) if error.kind() == ErrorKind::NotFound && directory.ends_with(ISSUED_DIRECTORY) => {
            return Ok(Vec::new());
        }
        Err(error) => return Err(open_failure(error)),
    };
    let mut files = Vec::new();
    for entry in entries {
        let path = entry.map_err(open_failure)?.path();
        if path.extension().is_some_and(|extension| extension == "pem") && path.is_file() {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}

fn facts(path: &Path) -> Result<CertificateFacts, Failure> {
    CertificateFacts::of_pem(&read(path)?).map_err(|error| in_file(&error, path))
}

fn read(path: &Path) -> Result<String, Failure> {
    std::fs::read_to_string(path)
        .map_err(|error| Failure::failed(format!("cannot read {}: {error}", path.display())))
}

fn write(path: &Path, text: &str, mode: u32) -> Result<(), Failure> {
    atomic_file::replace_with_mode(path, text, mode)
        .map_err(|error| Failure::failed(format!("cannot write {}: {error}", path.display())))
}

pub(super) fn failure(error: &PkiError) -> Failure {
    if let PkiError::Name(message) = error {
        return Failure::usage(message.clone());
    }
    Failure::failed(error.to_string())
}

fn in_file(error: &PkiError, path: &Path) -> Failure {
    failure(error).with_context(&path.display().to_string())
}
