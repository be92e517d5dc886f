//! Parser for the common names and organizations in the subject of a certificate (X.501 names in DER).

/// The names in a subject that identify a client.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Subject {
    pub(super) common_names: Vec<String>,
    pub(super) organizations: Vec<String>,
}

const SEQUENCE_TAG: u8 = 0x30;
const SET_TAG: u8 = 0x31;
const OBJECT_IDENTIFIER: u8 = 0x06;
const UTF8_STRING: u8 = 0x0c;
const PRINTABLE_STRING: u8 = 0x13;
const IA5_STRING: u8 = 0x16;
/// id-at-commonName, 2.5.4.3.
const COMMON_NAME: &[u8] = &[0x55, 0x04, 0x03];
/// id-at-organizationName, 2.5.4.10.
const ORGANIZATION_OID: &[u8] = &[0x55, 0x04, 0x0a];

/// Parses the content of an RDNSequence: a sequence of sets of attributes, each {type, value}.
///
/// # Errors
/// Fails if the content is malformed, or a common name or organization has an encoding that is not unambiguous text.
pub(super) fn read(names: &[u8]) -> Result<Subject, String> {
    let mut subject = Subject::default();
    let mut names = names;
    while !names.is_empty() {
        let mut set = expect(&mut names, SET_TAG)?;
        while !set.is_empty() {
            let mut attribute = expect(&mut set, SEQUENCE_TAG)?;
            let kind = expect(&mut attribute, OBJECT_IDENTIFIER)?;
            let (tag, value) = element(&mut attribute)?;
            if !attribute.is_empty() {
                return Err("an attribute of the subject has more than a type and a value".to_owned());
            }
            match kind {
                COMMON_NAME => subject.common_names.push(text(tag, value)?),
                ORGANIZATION_OID => subject.organizations.push(text(tag, value)?),
                _ => {}
            }
        }
    }
    Ok(subject)
}

fn text(tag: u8, value: &[u8]) -> Result<String, String> {
    if ![UTF8_STRING, PRINTABLE_STRING, IA5_STRING].contains(&tag) {
        return Err(format!("a name of the subject is encoded as {tag:#04x} instead of UTF-8"));
    }
    let text = std::str::from_utf8(value).map_err(|_| "a name of the subject is not UTF-8".to_owned())?;
    if text.chars().any(char::is_control) {
        return Err("a name of the subject contains control characters".to_owned());
    }
    Ok(text.to_owned())
}

fn expect<'a>(input: &mut &'a [u8], tag: u8) -> Result<&'a [u8], String> {
    match element(input)? {
        (found_tag, content) if found_tag == tag => Ok(content),
        (found_tag, _) => Err(format!("the subject has {found_tag:#04x} instead of {tag:#04x}")),
    }
}

/// Removes the first element from `input`, and returns its tag and content.
fn element<'a>(input: &mut &'a [u8]) -> Result<(u8, &'a [u8]), String> {
    let cut = || "the subject is truncated".to_owned();
    let (&tag, after) = input.split_first().ok_or_else(cut)?;
    let (&first, mut after) = after.split_first().ok_or_else(cut)?;
    let length = if first < 0x80 {
        usize::from(first)
    } else {
        let octets = usize::from(first & 0x7f);
        if octets == 0 || octets > 3 {
            return Err("the subject has an invalid length".to_owned());
        }
        let (digits, remaining) = after.split_at_checked(octets).ok_or_else(cut)?;
        after = remaining;
        digits.iter().fold(0, |length, digit| (length << 8) | usize::from(*digit))
    };
    let (content, after) = after.split_at_checked(length).ok_or_else(cut)?;
    *input = after;
    Ok((tag, content))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rcgen::{CertificateParams, DnType, KeyPair};

    fn check(names: &[(DnType, &str)], common_names: &[&str], organizations: &[&str]) {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.distinguished_name = rcgen::DistinguishedName::new();
        for (kind, value) in names {
            params.distinguished_name.push(kind.clone(), *value);
        }
        let certificate = params.self_signed(&KeyPair::generate().unwrap()).unwrap();
        let parsed = webpki::EndEntityCert::try_from(certificate.der()).unwrap();
        let subject = read(parsed.subject()).unwrap();
        assert_eq!(subject.common_names, common_names);
        assert_eq!(subject.organizations, organizations);
    }

    #[test]
    fn subject_names_of_real_certificates_are_read() {
        check(&[], &[], &[]);
        check(&[(DnType::CommonName, "anna")], &["anna"], &[]);
        check(
            &[
                (DnType::CountryName, "AT"),
                (DnType::OrganizationName, "system:masters"),
                (DnType::CommonName, "Ünal"),
            ],
            &["Ünal"],
            &["system:masters"],
        );
        let long = "x".repeat(300);
        check(&[(DnType::CommonName, &long)], &[&long], &[]);
    }

    #[test]
    fn truncated_and_invalid_certificates_are_rejected() {
        let valid_subject =
            [0x31, 0x0c, 0x30, 0x0a, 0x06, 0x03, 0x55, 0x04, 0x03, 0x0c, 0x03, b'a', b'b', b'c'];
        assert_eq!(read(&valid_subject).unwrap().common_names, ["abc"]);
        let twice: Vec<u8> = valid_subject.iter().chain(&valid_subject).copied().collect();
        assert_eq!(read(&twice).unwrap().common_names, ["abc", "abc"]);
        for end in 1..valid_subject.len() {
            assert!(read(&valid_subject[..end]).is_err(), "cut after {end}");
        }
        for index in [0, 2, 4, 9] {
            let mut bad = valid_subject;
            bad[index] = 0x1e;
            assert!(read(&bad).is_err(), "changed at {index}");
        }
        let mut control = valid_subject;
        control[12] = b'\n';
        assert!(read(&control).is_err());
    }

    proptest::proptest! {
        #[test]
        fn parsing_arbitrary_certificates_never_panics(bytes in proptest::collection::vec(proptest::num::u8::ANY, 0..64)) {
            let _ = read(&bytes);
        }
    }
}
