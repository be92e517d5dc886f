//! Tables of what a policy allows.

use super::*;
use serde_json::json;

fn limits(policy: &str) -> Limits {
    Limits::new(Some(ControllerPolicy::parse(policy).expect("a policy")))
}

#[test]
fn unusable_policies_are_refused() {
    for (text, expected) in [
        ("[]", "not a map"),
        ("secretDirectory: /etc", "unknown key `secretDirectory`: use secretsDirectory, fenceAgents"),
        ("secretsDirectory: secrets", "secretsDirectory secrets is not an absolute path"),
        ("fenceAgents: fence_ipmilan", "invalid type: string"),
        ("notificationAddresses: [10.0.0.0/33]", "\"10.0.0.0/33\" is not a valid address: use a host"),
        ("notificationAddresses: ['*.example.org']", "\"*.example.org\" is not a valid address"),
    ] {
        let error = ControllerPolicy::parse(text).expect_err(text);
        assert!(error.contains(expected), "{text}: {error}");
    }
}

#[test]
fn a_file_must_be_in_the_secrets_directory() {
    let credentials = limits("secretsDirectory: /run/credentials/ha-controller.service");
    for (policy, file, expected) in [
        (&limits("{}"), "bmc", Some("/etc/hactl/secrets/bmc")),
        (&limits("{}"), "/etc/hactl/secrets/bmc", Some("/etc/hactl/secrets/bmc")),
        (&credentials, "token", Some("/run/credentials/ha-controller.service/token")),
        (
            &credentials,
            "/run/credentials/ha-controller.service/token",
            Some("/run/credentials/ha-controller.service/token"),
        ),
        (&credentials, "/etc/hactl/secrets/bmc", None),
        (&limits("{}"), "/etc/shadow", None),
        (&limits("{}"), "/etc/hactl/secrets/../controller.key", None),
        (&limits("{}"), "/etc/hactl/secrets/a/b", None),
        (&limits("{}"), "/etc/hactl/secrets", None),
        (&limits("{}"), "..", None),
        (&limits("{}"), "", None),
        // Without a policy, every path is allowed.
        (&Limits::default(), "/etc/shadow", Some("/etc/shadow")),
        (&Limits::default(), "bmc", Some("/etc/hactl/secrets/bmc")),
    ] {
        let path = policy.file("caFile", file).ok();
        assert_eq!(path, expected.map(PathBuf::from), "{file}");
    }
    let error = limits("{}").file("caFile", "/etc/shadow").expect_err("outside");
    assert!(error.contains("copy the file there, and set caFile to its name"), "{error}");
}

#[test]
fn a_fence_agent_must_be_listed_and_names_no_programs() {
    let limits = limits("fenceAgents: [fence_ipmilan]");
    let part = |agent: &str, attribute: &str| FencePart {
        agent: agent.to_owned(),
        attributes: [(attribute.to_owned(), "/tmp/x".into())].into(),
        attributes_file: None,
    };
    for (agent, attribute, expected) in [
        ("fence_ipmilan", "ip", None),
        ("fence_ssh", "ip", Some("does not allow fence_ssh")),
        ("fence_ipmilan", "passwd_script", Some("passwd_script can name a file or a program")),
        ("fence_ipmilan", "ipmitool-path", Some("ipmitool-path can name")),
        ("fence_ipmilan", "identity_file", Some("identity_file can name")),
        ("fence_ipmilan", "ssh_options", Some("ssh_options can name")),
        ("fence_ipmilan", "debug", Some("debug can name")),
    ] {
        let refusal = limits.check_part(&part(agent, attribute)).err();
        assert_eq!(refusal.is_some(), expected.is_some(), "{agent} {attribute}: {refusal:?}");
        assert!(refusal.unwrap_or_default().contains(expected.unwrap_or_default()), "{agent} {attribute}");
    }
    assert_eq!(Limits::default().check_part(&part("fence_ssh", "passwd_script")), Ok(()));
}

#[test]
fn fence_agents_get_only_files_from_a_controller_with_a_policy() {
    for (source, is_allowed) in [("file", true), ("credential", false), ("env", false)] {
        let part: FencePart = serde_json::from_value(json!({"agent": "fence_ipmilan",
            "attributes": {"password": {"valueFrom": {source: "bmc"}}}}))
        .expect("a part");
        let refusal = limits("{}").check_part(&part).err();
        assert_eq!(refusal.is_none(), is_allowed, "{refusal:?}");
        let expected = "bmc for fence agents: use a file in /etc/hactl/secrets";
        assert!(is_allowed || refusal.unwrap_or_default().ends_with(expected));
        assert_eq!(Limits::default().check_part(&part), Ok(()));
    }
}

#[tokio::test]
async fn a_host_must_be_listed_or_have_a_listed_address() {
    let limits = limits("notificationAddresses: [mail.example.org, .hooks.example.net, 127.0.0.0/8, '::1']");
    for (host, expected) in [
        ("mail.example.org", Ok(None)),
        ("MAIL.example.org.", Ok(None)),
        ("a.hooks.example.net", Ok(None)),
        ("127.0.0.1", Ok(None)),
        ("[::1]", Ok(None)),
        ("hooks.example.net", Err(())),
        ("evil-hooks.example.net.example.com", Err(())),
        ("169.254.169.254", Err(())),
        ("[fd00::1]", Err(())),
        ("localhost", Ok(Some(true))),
    ] {
        let addresses = limits.addresses(host, 25).await;
        let addresses = addresses
            .map(|addresses| addresses.map(|list| list.iter().all(|address| address.ip().is_loopback())));
        assert_eq!(addresses.map_err(|_| ()), expected, "{host}");
    }
    let error = limits.addresses("169.254.169.254", 80).await.expect_err("not listed");
    assert!(error.contains("add it to policy.notificationAddresses"), "{error}");
    assert_eq!(Limits::default().addresses("169.254.169.254", 80).await, Ok(None));
}

#[test]
fn forbidden_parts_of_an_object_are_reported_once_at_their_path() {
    let limits = limits("{fenceAgents: [fence_ipmilan], notificationAddresses: [10.0.0.0/8]}");
    let device = |agent: &str, file: &str| {
        json!({"spec": {"fencing": {"devices": [{"name": "bmc",
            "parts": [{"agent": agent, "attributesFile": file}]}]}}})
    };
    let paths = |kind: Kind, stored: Option<&Value>, proposed: &Value| -> Vec<String> {
        limits.problems(kind, stored, proposed).into_iter().map(|problem| problem.path).collect()
    };
    let node = device("fence_ssh", "/etc/shadow");
    let part = "spec.fencing.devices[0].parts[0]";
    let both_fields = [format!("{part}.agent"), format!("{part}.attributesFile")];
    assert_eq!(paths(Kind::Node, None, &node), both_fields);
    assert!(paths(Kind::Node, None, &device("fence_ipmilan", "bmc")).is_empty());
    // A stored object stays editable.
    assert!(paths(Kind::Node, Some(&node), &node).is_empty());
    assert_eq!(paths(Kind::Node, Some(&device("fence_ssh", "bmc")), &node), both_fields[1..]);
    let cluster = json!({"spec": {"notifications": {
        "webhooks": ["http://10.1.2.3/ok", {"url": "http://169.254.169.254/", "hmacKeyFile": "/etc/shadow"}],
        "smtp": {"server": "192.0.2.1:25", "tls": "None", "from": "a@example.org", "to": ["b@example.org"]}}}});
    assert_eq!(
        paths(Kind::Cluster, None, &cluster),
        [
            "spec.notifications.webhooks[1]",
            "spec.notifications.webhooks[1].hmacKeyFile",
            "spec.notifications.smtp"
        ]
    );
}
