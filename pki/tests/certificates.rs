//! Certificates of every kind, checked with the verifier of the daemons and with OpenSSL, and refused requests.

#![expect(clippy::unwrap_used, reason = "a failed step fails the test")]

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use ha_api_types::role::Role;
use ha_pki::{
    Authority, AuthorityKind, CertificateFacts, CertificateKind, CertificateRequest, CertificateWithKey,
    Profile, RevocationList, Validity, new_key, public_key, request_for_node,
};
use rcgen::{
    CertificateParams, CustomExtension, DnType, ExtendedKeyUsagePurpose, IsCa, KeyPair, PKCS_ED25519, SanType,
};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, ServerName, UnixTime};
use std::process::Command;
use std::time::Duration;
use webpki::{EndEntityCert, KeyUsage, anchor_from_trusted_cert};

const NOW: i64 = 1_790_000_000;
const DAY: u64 = 86_400;

fn days(days: u64) -> Validity {
    Validity { now_unix_seconds: NOW, lifetime: Duration::from_secs(days * DAY) }
}

/// An authority with its kind.
struct TestAuthority {
    kind: AuthorityKind,
    authority: Authority,
}

fn authorities() -> Vec<TestAuthority> {
    let create = |kind| {
        let CertificateWithKey { certificate_pem, key_pem } = Authority::create(kind, days(3650)).unwrap();
        TestAuthority { kind, authority: Authority::load(&certificate_pem, &key_pem).unwrap() }
    };
    AuthorityKind::ALL.into_iter().map(create).collect()
}

fn profiles() -> Vec<Profile> {
    let addresses = ["192.0.2.1".to_owned(), "c1.example".to_owned()];
    vec![
        Profile::server(CertificateKind::EtcdPeer, "c1", &addresses).unwrap(),
        Profile::server(CertificateKind::EtcdServer, "c1", &addresses).unwrap(),
        Profile::server(CertificateKind::ControllerServer, "c1", &addresses).unwrap(),
        Profile::controller("c1").unwrap(),
        Profile::node("c1").unwrap(),
        Profile::user("ada", Role::Admin).unwrap(),
        Profile::root(),
    ]
}

fn is_accepted(certificate: &str, authority: &TestAuthority, usage: KeyUsage, days_later: u64) -> bool {
    let root = CertificateDer::from_pem_slice(authority.authority.certificate_pem().as_bytes()).unwrap();
    let anchor = anchor_from_trusted_cert(&root).unwrap();
    let leaf = CertificateDer::from_pem_slice(certificate.as_bytes()).unwrap();
    let time =
        UnixTime::since_unix_epoch(Duration::from_secs(u64::try_from(NOW).unwrap() + days_later * DAY));
    EndEntityCert::try_from(&leaf)
        .unwrap()
        .verify_for_usage(webpki::ALL_VERIFICATION_ALGS, &[anchor], &[], time, usage, None, None)
        .is_ok()
}

#[test]
fn every_certificate_is_valid_for_its_purpose_only() {
    let authorities = authorities();
    for profile in profiles() {
        let kind = profile.kind();
        let own_authority = authorities.iter().find(|authority| authority.kind == kind.authority()).unwrap();
        let issued = own_authority.authority.issue(&profile, days(30)).unwrap();
        let (is_server, is_client) = match kind {
            CertificateKind::EtcdPeer => (true, true),
            CertificateKind::EtcdServer | CertificateKind::ControllerServer => (true, false),
            CertificateKind::ControllerClient
            | CertificateKind::Node
            | CertificateKind::User
            | CertificateKind::Root => (false, true),
        };
        for authority in &authorities {
            let is_own = authority.kind == own_authority.kind;
            for (usage, expected) in
                [(KeyUsage::server_auth(), is_server), (KeyUsage::client_auth(), is_client)]
            {
                let accepted = is_accepted(&issued.certificate_pem, authority, usage, 0);
                assert_eq!(accepted, expected && is_own, "{kind} with {:?}", authority.kind);
                assert!(!is_accepted(&issued.certificate_pem, authority, usage, 31), "{kind} has expired");
            }
        }
        let leaf = CertificateDer::from_pem_slice(issued.certificate_pem.as_bytes()).unwrap();
        let leaf = EndEntityCert::try_from(&leaf).unwrap();
        for name in ["c1", "localhost", "127.0.0.1", "192.0.2.1", "c1.example"] {
            let name = ServerName::try_from(name).unwrap();
            assert_eq!(leaf.verify_is_valid_for_subject_name(&name).is_ok(), is_server, "{kind} {name:?}");
        }
        let facts = CertificateFacts::of_pem(&issued.certificate_pem).unwrap();
        assert_eq!((facts.kind, facts.name.as_str()), (Some(kind), profile.common_name()));
        assert_eq!(facts.issuer, own_authority.kind.name());
        assert_eq!(facts.not_after, NOW + 30 * 86_400);
        assert!(
            !facts.is_renewal_due(NOW + 19 * 86_400) && facts.is_renewal_due(NOW + 20 * 86_400),
            "{kind}"
        );
    }
}

#[test]
fn strict_verifiers_accept_every_certificate() {
    if Command::new("openssl").arg("version").output().is_err() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name);
    for authority in authorities() {
        std::fs::write(path("ca.pem"), authority.authority.certificate_pem()).unwrap();
        for profile in profiles().iter().filter(|profile| profile.kind().authority() == authority.kind) {
            let issued = authority.authority.issue(profile, days(30)).unwrap();
            std::fs::write(path("leaf.pem"), issued.certificate_pem).unwrap();
            let purposes: &[(&str, bool)] = match profile.kind() {
                CertificateKind::EtcdPeer => &[("sslserver", true), ("sslclient", true)],
                CertificateKind::EtcdServer | CertificateKind::ControllerServer => {
                    &[("sslserver", true), ("sslclient", false)]
                }
                CertificateKind::ControllerClient
                | CertificateKind::Node
                | CertificateKind::User
                | CertificateKind::Root => &[("sslserver", false), ("sslclient", true)],
            };
            for (purpose, expected) in purposes {
                let output = Command::new("openssl")
                    .args(["verify", "-x509_strict", "-check_ss_sig", "-attime", &NOW.to_string()])
                    .args(["-purpose", purpose])
                    .arg("-CAfile")
                    .args([path("ca.pem"), path("leaf.pem")])
                    .output()
                    .unwrap();
                assert_eq!(output.status.success(), *expected, "{} {purpose}: {output:?}", profile.kind());
            }
        }
    }
}

#[test]
fn a_revoked_certificate_is_in_the_next_list_of_its_authority() {
    let authorities = authorities();
    let clients = authorities.iter().find(|authority| authority.kind == AuthorityKind::Clients).unwrap();
    let node = Profile::node("c1").unwrap();
    let serial = |pem: &str| CertificateFacts::of_pem(pem).unwrap().serial;
    let first = clients.authority.issue(&node, days(30)).unwrap();
    // A certificate for the same key has another number, so that only one of them is revoked.
    let request = CertificateRequest::check(&request_for_node("c1", &first.key_pem).unwrap(), &node).unwrap();
    let renewed = clients.authority.sign(&node, days(30), &request).unwrap();
    let (first, renewed) = (serial(&first.certificate_pem), serial(&renewed));
    assert_ne!(first, renewed);
    let empty = clients.authority.sign_list(&RevocationList::default().with(&[], NOW), days(3650)).unwrap();
    let list = RevocationList::of_pem(&empty).unwrap();
    assert_eq!((list.number, list.revocations.len()), (1, 0));
    let next = list.with(std::slice::from_ref(&first), NOW).with(std::slice::from_ref(&first), NOW + 1);
    let text = clients.authority.sign_list(&next, days(3650)).unwrap();
    let read = RevocationList::of_pem(&text).unwrap();
    assert_eq!(read, next);
    assert!(read.contains(&first) && !read.contains(&renewed));
    assert_eq!((read.number, read.revocations.len()), (3, 1));
    assert_eq!(first.to_string().parse(), Ok(first));
}

#[test]
fn names_of_other_kinds_are_refused() {
    for name in
        ["root", "controller-c1", "etcd-c1", "peer-c1", "api-c1", "ca", "client-ca", "client-crl", "", "a/b"]
    {
        assert!(Profile::node(name).is_err(), "node {name:?}");
        assert!(Profile::user(name, Role::Viewer).is_err(), "user {name:?}");
    }
    for name in ["..", "-x", "a b", "a\n", &"x".repeat(65)] {
        assert!(Profile::user(name, Role::Viewer).is_err(), "user {name:?}");
    }
    Profile::user("ada@example.com", Role::Viewer).unwrap();
    assert!(Profile::user("ada", Role::Node).is_err());
    assert!(Profile::server(CertificateKind::Node, "c1", &[]).is_err());
}

/// Creates a request with these parameters, and returns the refusal for node c1.
fn refusal(parameters: &CertificateParams, key: &KeyPair) -> String {
    let request = parameters.serialize_request(key).unwrap().pem().unwrap();
    CertificateRequest::check(&request, &Profile::node("c1").unwrap()).unwrap_err().to_string()
}

#[test]
fn a_request_gets_only_the_certificate_of_its_node() {
    let key = new_key().unwrap();
    let request = request_for_node("c1", &key).unwrap();
    let node = Profile::node("c1").unwrap();
    let checked = CertificateRequest::check(&request, &node).unwrap();
    let authorities = authorities();
    let clients = authorities.iter().find(|authority| authority.kind == AuthorityKind::Clients).unwrap();
    let certificate = clients.authority.sign(&node, days(30), &checked).unwrap();
    assert!(is_accepted(&certificate, clients, KeyUsage::client_auth(), 0));
    assert!(!is_accepted(&certificate, clients, KeyUsage::server_auth(), 0));
    // The certificate is for the key of the request.
    assert_eq!(CertificateFacts::of_pem(&certificate).unwrap().public_key, public_key(&key).unwrap());

    let other = CertificateRequest::check(&request, &Profile::node("c2").unwrap()).unwrap_err().to_string();
    assert!(other.contains("has another subject: the common name must be c2"), "{other}");
    let subject = |names: &[(DnType, &str)]| {
        let mut parameters = CertificateParams::default();
        parameters.distinguished_name = rcgen::DistinguishedName::new();
        for (kind, value) in names {
            parameters.distinguished_name.push(kind.clone(), *value);
        }
        parameters
    };
    let right = || subject(&[(DnType::OrganizationName, "hactl:node"), (DnType::CommonName, "c1")]);
    let key = KeyPair::generate().unwrap();
    for names in [
        &[(DnType::CommonName, "c1")][..],
        &[(DnType::OrganizationName, "hactl:admin"), (DnType::CommonName, "c1")],
        &[(DnType::OrganizationName, "hactl:node"), (DnType::CommonName, "root")],
        &[(DnType::OrganizationName, "hactl:node"), (DnType::CommonName, "c10")],
        &[
            (DnType::OrganizationName, "hactl:node"),
            (DnType::CommonName, "c1"),
            (DnType::CustomDnType(vec![2, 5, 4, 3]), "root"),
        ],
        &[
            (DnType::OrganizationName, "hactl:node"),
            (DnType::CommonName, "c1"),
            (DnType::OrganizationalUnitName, "x"),
        ],
    ] {
        let refused = refusal(&subject(names), &key);
        assert!(refused.contains("has another subject"), "{names:?}: {refused}");
    }
    let mut names = right();
    names.subject_alt_names.push(SanType::DnsName("c2".try_into().unwrap()));
    assert!(refusal(&names, &key).contains("additional names or usages"));
    let mut usages = right();
    usages.extended_key_usages.push(ExtendedKeyUsagePurpose::ServerAuth);
    assert!(refusal(&usages, &key).contains("additional names or usages"));
    let mut authority = right();
    authority.is_ca = IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    assert!(refusal(&authority, &key).contains("additional names or usages"));
    let mut extension = right();
    extension.custom_extensions.push(CustomExtension::from_oid_content(&[1, 2, 3, 4], vec![5, 0]));
    assert!(refusal(&extension, &key).contains("contains extensions"));
    let other_key = KeyPair::generate_for(&PKCS_ED25519).unwrap();
    assert!(refusal(&right(), &other_key).contains("a key of another type"));
    let text = right().serialize_request(&key).unwrap().pem().unwrap();
    CertificateRequest::check(&text, &node).unwrap();
    // A changed request no longer has a valid signature.
    let mut der = right().serialize_request(&key).unwrap().der().to_vec();
    let position = der.windows(2).position(|window| window == b"c1").unwrap();
    der[position + 1] = b'2';
    let pem = format!(
        "-----BEGIN CERTIFICATE REQUEST-----\n{}\n-----END CERTIFICATE REQUEST-----\n",
        BASE64_STANDARD.encode(&der)
    );
    let refused = CertificateRequest::check(&pem, &Profile::node("c2").unwrap()).unwrap_err().to_string();
    assert!(refused.contains("signature"), "{refused}");
    for text in ["", "x", &"x".repeat(5000), clients.authority.certificate_pem()] {
        assert!(CertificateRequest::check(text, &node).is_err());
    }
}

#[test]
fn an_authority_needs_its_own_key_and_certificate() {
    let first_authority = Authority::create(AuthorityKind::Clients, days(1)).unwrap();
    let other = Authority::create(AuthorityKind::Clients, days(1)).unwrap();
    let message = |certificate: &str, key: &str| Authority::load(certificate, key).unwrap_err().to_string();
    assert!(
        message(&first_authority.certificate_pem, &other.key_pem)
            .contains("does not belong to the certificate")
    );
    assert!(message(&first_authority.certificate_pem, "x").contains("private key"));
    assert!(message("x", &first_authority.key_pem).contains("no certificate found"));
    let leaf = Authority::load(&first_authority.certificate_pem, &first_authority.key_pem)
        .unwrap()
        .issue(&Profile::node("c1").unwrap(), days(1))
        .unwrap();
    assert!(message(&leaf.certificate_pem, &leaf.key_pem).contains("not the certificate of an authority"));
}
