//! Sources of a domain's definition, and the definition that is passed to libvirt.

use super::failure::{invalid_configuration, try_elsewhere};
use crate::core::DriverFailure;
use ha_api_types::driver::{DomainDefinition, LibvirtDriver as LibvirtSpec};
use ha_api_types::id::ObjectUid;
use ha_api_types::reason::Reason;
use std::time::Duration;
use uuid::{Builder, Uuid};

/// Source of a domain's definition.
pub(super) enum Source<'a> {
    /// The resource, with its XML.
    Resource(&'a str),
    /// A file, with its path.
    File(&'a str),
    /// A definition in libvirt.
    Libvirt,
}

impl Source<'_> {
    pub(super) fn of(spec: &LibvirtSpec) -> Source<'_> {
        if !spec.xml.is_empty() {
            Source::Resource(&spec.xml)
        } else if !spec.definition.is_empty() {
            Source::File(&spec.definition)
        } else {
            Source::Libvirt
        }
    }
}

/// Reads a definition from a file. A read that exceeds `limit` is a failure of this node.
pub(super) async fn read(path: &str, limit: Duration) -> Result<String, DriverFailure> {
    let failed = |cause: String| try_elsewhere(Reason::StartFailed, format!("cannot read {path}: {cause}"));
    match tokio::time::timeout(limit, tokio::fs::read_to_string(path)).await {
        Ok(Ok(xml)) => Ok(xml),
        Ok(Err(error)) => Err(failed(error.to_string())),
        Err(_) => Err(failed(format!("no response within {} s", limit.as_secs()))),
    }
}

/// Returns the definition for libvirt: the given XML, with a uuid that is the same on every node.
pub(super) fn prepare(
    xml: &str,
    domain: &str,
    resource_uid: &ObjectUid,
) -> Result<(DomainDefinition, String), DriverFailure> {
    let read = DomainDefinition::parse(xml)
        .map_err(|error| invalid_configuration(format!("invalid domain definition: {error}")))?;
    if read.name != domain {
        return Err(invalid_configuration(format!(
            "domain definition has the name {:?}, but spec.driver.libvirt.domain is {domain:?}",
            read.name
        )));
    }
    let with_uuid = read.with_uuid(xml, &uuid_of(resource_uid).to_string());
    Ok((read, with_uuid))
}

/// Returns the domain's uuid: the resource's uid, or a hash of it if the uid is not a valid uuid.
fn uuid_of(resource_uid: &ObjectUid) -> Uuid {
    Uuid::parse_str(resource_uid).unwrap_or_else(|_| {
        // FNV-1a with 128 bits gives the same result in every version of the agent.
        let hash = resource_uid.bytes().fold(0x6c62_272e_07bb_0142_62b8_2175_6295_c58d_u128, |hash, byte| {
            (hash ^ u128::from(byte)).wrapping_mul(0x0000_0000_0100_0000_0000_0000_0000_013b)
        });
        Builder::from_custom_bytes(hash.to_be_bytes()).into_uuid()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use ha_api_types::record::FailureClass;

    #[test]
    fn domain_uuid_is_added_only_if_missing() {
        let uid = "3e1fb0a1-7c7f-4f0e-9d50-1f2b3c4d5e6f";
        for (xml, uid, expected) in [
            ("<domain><name>a</name></domain>", uid, Ok(uid)),
            ("<domain><name>a</name><uuid>own</uuid></domain>", uid, Ok("<uuid>own</uuid>")),
            (
                "<domain><name>a</name></domain>",
                "uid-1",
                Ok("<uuid>bf74f5b8-f183-894f-b081-6770c5484e33</uuid>"),
            ),
            (
                "<domain><name>b</name></domain>",
                uid,
                Err("domain definition has the name \"b\", but spec.driver.libvirt.domain is \"a\""),
            ),
            (
                "<domain>",
                uid,
                Err(
                    "invalid domain definition: line 1: invalid XML: the root node was opened but never closed",
                ),
            ),
        ] {
            match (prepare(xml, "a", &uid.into()), expected) {
                (Ok((_, result)), Ok(expected)) => assert!(result.contains(expected), "{result}"),
                (Err(result), Err(expected)) => {
                    assert_eq!(result.message, expected);
                    assert_eq!(result.class, FailureClass::ConfigurationWrong);
                }
                (result, _) => panic!("{xml}: {result:?}"),
            }
        }
    }

    #[tokio::test]
    async fn missing_definition_file_fails_with_try_elsewhere() {
        let failure = read("/nonexistent/a.xml", Duration::from_secs(5)).await.unwrap_err();
        assert_eq!(failure.class, FailureClass::TryElsewhere);
        assert!(failure.message.starts_with("cannot read /nonexistent/a.xml: "), "{}", failure.message);
    }
}
