//! The oldest supported versions of etcd, and the error message for older versions.

/// Checks that a version does not have the known defects (leases, stale reads, authorization). The error contains the
/// complete message.
#[cfg(feature = "etcd")]
pub(crate) fn check_version(endpoint: &str, version: &str) -> Result<(), String> {
    if is_supported(version) {
        return Ok(());
    }
    Err(format!(
        "etcd member {endpoint} has version {version:?}, but 3.5.30 or later in the 3.5 series, or 3.6.11 or later, \
         is required (older versions have lease, stale-read and authorization defects): upgrade the member, or set \
         --allow-old-store (services may then run twice)"
    ))
}

/// Returns `true` if this version has known defects; `false` for an empty, that is, unknown version.
pub fn is_too_old(version: &str) -> bool {
    !version.is_empty() && !is_supported(version)
}

fn is_supported(version: &str) -> bool {
    // A pre-release precedes its version; build metadata after a plus sign is ignored.
    let without_build = version.split('+').next().unwrap_or_default();
    let (numbers, is_prerelease) = match without_build.split_once('-') {
        Some((numbers, _)) => (numbers, true),
        None => (without_build, false),
    };
    let numbers: Option<Vec<u32>> = numbers.split('.').map(|number| number.parse().ok()).collect();
    let Some([major, minor, patch]) = numbers.as_deref() else {
        return false;
    };
    let version_parts = (*major, *minor, *patch);
    let minimum = if (version_parts.0, version_parts.1) == (3, 5) { (3, 5, 30) } else { (3, 6, 11) };
    if is_prerelease { version_parts > minimum } else { version_parts >= minimum }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn older_versions_are_refused_by_name() {
        let check = |version: &str, expected: bool| {
            assert_eq!(check_version("http://a:1", version).is_ok(), expected, "{version}");
        };
        for supported in
            ["3.5.30", "3.5.31", "3.6.11", "3.6.12", "3.7.0", "3.10.1", "4.0.0", "3.5.30+git", "3.7.0-rc.1"]
        {
            check(supported, true);
        }
        for unsupported in [
            "3.5.29",
            "3.5.16",
            "3.4.23",
            "3.6.0",
            "3.6.10",
            "2.3.8",
            "3.6.11-rc.0",
            "3.5.30-rc.1",
            "",
            "x",
            "3.6",
        ] {
            check(unsupported, false);
        }
        assert!(is_too_old("3.4.23") && !is_too_old("3.6.12") && !is_too_old(""));
        let sentence = check_version("http://a:1", "3.4.23").expect_err("old");
        assert!(sentence.contains("http://a:1") && sentence.contains("3.4.23"), "{sentence}");
    }
}
