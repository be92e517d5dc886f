//! Checks of driver `libvirt`.

use super::super::context::Context;
use super::{is_absolute, is_printable};
use crate::driver::{DomainDefinition, LibvirtDriver, LibvirtMigration, NODE_PLACEHOLDER, is_domain_name};
use crate::problem::field_path;

const LIBVIRT_PATH: &str = "spec.driver.libvirt";
/// Maximum bandwidth in MiB/s, slightly below the limit of libvirt.
const MAX_BANDWIDTH_MEBIBYTES: u64 = 1 << 20;
/// Maximum downtime of QEMU: 2,000 s.
const MAX_DOWNTIME_MS: u64 = 2_000_000;
/// Maximum of `postCopyAfterSeconds`: one day.
const MAX_SECONDS: u64 = 86_400;

pub(super) fn check(libvirt: &LibvirtDriver, context: &mut Context) {
    let at = |field: &str| field_path(LIBVIRT_PATH, field);
    let (domain, definition, xml) = (&libvirt.domain, &libvirt.definition, &libvirt.xml);
    match (domain.is_empty(), definition.is_empty(), xml.is_empty()) {
        (_, false, false) => context.add_invalid(
            &at("xml"),
            "xml and definition are mutually exclusive: put the definition either in the resource or in \
             a file",
        ),
        // hactl must be able to find and stop the domain without the file.
        (true, false, true) => context.add_required(
            &at("domain"),
            "required: the domain name as in the definition file, so that the domain is found without \
             the file",
        ),
        (true, true, true) => context.add_required(
            &at("domain"),
            "required: the domain name; also set xml or definition, or define the domain on every node",
        ),
        (_, true, false) => match DomainDefinition::parse(xml) {
            Ok(read) if !domain.is_empty() && *domain != read.name => {
                context.add_invalid(
                    &at("domain"),
                    format!("is {domain:?}, but the name in xml is {:?}", read.name),
                );
            }
            Ok(read) => {
                if let Some(uuid) = read.uuid.filter(|uuid| !is_uuid(uuid)) {
                    context.add_invalid(&at("xml"), format!("{uuid:?} is not a valid UUID"));
                }
            }
            Err(error) => context.add_invalid(&at("xml"), error.to_string()),
        },
        (false, _, true) => {}
    }
    if !domain.is_empty() && !is_domain_name(domain) {
        context.add_invalid(&at("domain"), format!("{domain:?} is not a valid domain name"));
    }
    if !definition.is_empty() && !is_absolute(definition) {
        context.add_invalid(&at("definition"), "must be an absolute path");
    }
    if libvirt.uri.as_deref().is_some_and(|uri| !is_local(uri)) {
        context.add_invalid(&at("uri"), "must be a QEMU URI of the local node, such as qemu:///system");
    }
    check_migration(&libvirt.migration, context);
}

fn check_migration(migration: &LibvirtMigration, context: &mut Context) {
    let path = field_path(LIBVIRT_PATH, "migration");
    for (field, uri) in [("uri", &migration.uri), ("dataUri", &migration.data_uri)] {
        let Some(uri) = uri else { continue };
        let at = field_path(&path, field);
        let example = if field == "uri" { "qemu+tls://{node}/system" } else { "tcp://{node}" };
        let without_node = uri.replace(NODE_PLACEHOLDER, "");
        if !uri.contains(NODE_PLACEHOLDER) {
            context.add_invalid(&at, format!("must contain the name of the target, such as {example}"));
        } else if without_node.contains(['{', '}']) {
            context.add_invalid(&at, format!("invalid placeholder: only {NODE_PLACEHOLDER} is supported"));
        } else if !uri.contains("://") || uri.starts_with('-') || !is_printable(uri) {
            context.add_invalid(&at, format!("not a valid address: use an address such as {example}"));
        }
    }
    let numbers = [
        ("bandwidthMebibytesPerSecond", migration.bandwidth_mebibytes_per_second, MAX_BANDWIDTH_MEBIBYTES),
        ("postCopyAfterSeconds", migration.post_copy_after_seconds, MAX_SECONDS),
    ];
    for (field, number, max_seconds) in numbers {
        if number.is_some_and(|number| !(1..=max_seconds).contains(&number)) {
            context.add_invalid(&field_path(&path, field), format!("must be between 1 and {max_seconds}"));
        }
    }
    if migration.max_downtime_ms().is_some_and(|downtime| !(1..=MAX_DOWNTIME_MS).contains(&downtime)) {
        let message = format!("must be between 0.001 and {}", MAX_DOWNTIME_MS / 1000);
        context.add_invalid(&field_path(&path, "maxDowntimeSeconds"), message);
    }
}

/// Returns `true` for `qemu:///system`, with optional transport and parameters, and without a host.
fn is_local(uri: &str) -> bool {
    let Some((scheme, rest)) = uri.split_once("://") else { return false };
    matches!(scheme, "qemu" | "qemu+unix") && rest.starts_with('/') && rest.len() > 1 && is_printable(uri)
}

/// Returns `true` for 32 hexadecimal digits. As in libvirt, hyphens are ignored.
fn is_uuid(text: &str) -> bool {
    let digits = text.bytes().filter(|byte| *byte != b'-');
    digits.clone().count() == 32 && digits.clone().all(|byte| byte.is_ascii_hexdigit())
}

#[cfg(test)]
mod tests {
    use crate::driver::DriverSpec;
    use crate::validation::context::Context;
    use serde_json::{Value, json};

    fn check(libvirt: &Value, expected: &[&str]) {
        let driver: DriverSpec =
            serde_json::from_value(json!({"libvirt": libvirt})).expect("of the right types");
        let mut context = Context::default();
        super::super::check(&driver, &mut context);
        let actual: Vec<String> = context.into_problems().iter().map(ToString::to_string).collect();
        assert_eq!(actual, expected, "{libvirt}");
    }

    #[test]
    fn libvirt_needs_domain_and_one_definition() {
        let xml = "<domain><name>a</name></domain>";
        check(&json!({"domain": "a"}), &[]);
        check(&json!({"domain": "a", "definition": "/srv/a.xml"}), &[]);
        check(&json!({"xml": xml}), &[]);
        check(&json!({"xml": xml, "domain": "a"}), &[]);
        check(
            &json!({}),
            &["spec.driver.libvirt.domain: required: the domain name; also set xml or definition, or \
                 define the domain on every node"],
        );
        check(
            &json!({"definition": "/srv/a.xml"}),
            &["spec.driver.libvirt.domain: required: the domain name as in the definition file, so \
                 that the domain is found without the file"],
        );
        check(
            &json!({"domain": "a", "definition": "/srv/a.xml", "xml": xml}),
            &["spec.driver.libvirt.xml: xml and definition are mutually exclusive: put the definition \
                 either in the resource or in a file"],
        );
        check(
            &json!({"domain": "b", "xml": xml}),
            &["spec.driver.libvirt.domain: is \"b\", but the name in xml is \"a\""],
        );
        check(
            &json!({"xml": "<domain>\n<name>a</name"}),
            &["spec.driver.libvirt.xml: line 2: invalid XML: unexpected end of stream"],
        );
        check(
            &json!({"xml": "<domain><name>a</name><uuid>7</uuid></domain>"}),
            &["spec.driver.libvirt.xml: \"7\" is not a valid UUID"],
        );
        check(
            &json!({"domain": "-x", "definition": "a.xml"}),
            &[
                "spec.driver.libvirt.domain: \"-x\" is not a valid domain name",
                "spec.driver.libvirt.definition: must be an absolute path",
            ],
        );
    }

    #[test]
    fn libvirt_uris_are_validated() {
        let invalid_uri =
            "spec.driver.libvirt.uri: must be a QEMU URI of the local node, such as qemu:///system";
        for (uri, expected) in [
            ("qemu:///system", &[][..]),
            ("qemu+unix:///system?socket=/run/a/libvirt-sock", &[]),
            ("qemu+ssh://other/system", &[invalid_uri]),
            ("lxc:///", &[invalid_uri]),
            ("qemu", &[invalid_uri]),
        ] {
            check(&json!({"domain": "a", "uri": uri}), expected);
        }
        let at = "spec.driver.libvirt.migration";
        for (field, uri, expected) in [
            ("uri", "qemu+tcp://{node}/system", None),
            ("dataUri", "tcp://{node}:49152", None),
            (
                "uri",
                "qemu+tcp://node2/system",
                Some("must contain the name of the target, such as qemu+tls://{node}/system"),
            ),
            ("dataUri", "tcp://{target}", Some("must contain the name of the target, such as tcp://{node}")),
            ("dataUri", "tcp://{node}:{port}", Some("invalid placeholder: only {node} is supported")),
            ("uri", "{node}", Some("not a valid address: use an address such as qemu+tls://{node}/system")),
        ] {
            let expected: Vec<String> = expected.iter().map(|text| format!("{at}.{field}: {text}")).collect();
            let expected: Vec<&str> = expected.iter().map(String::as_str).collect();
            check(&json!({"domain": "a", "migration": {field: uri}}), &expected);
        }
        check(
            &json!({"domain": "a", "migration": {"bandwidthMebibytesPerSecond": 0, "maxDowntimeSeconds": 0.3}}),
            &["spec.driver.libvirt.migration.bandwidthMebibytesPerSecond: must be between 1 and 1048576"],
        );
    }
}
