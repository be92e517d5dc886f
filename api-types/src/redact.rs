//! Removal of secrets from objects and collected data, by the names of fields, variables, options and headers; pure.

use crate::setting::Reference;
use regex::{Captures, Regex};
use serde_json::Value;
use std::sync::LazyLock;

/// Replacement for a secret.
const REDACTED: &str = "(redacted)";
/// Parts of names whose values are secrets.
const SECRET_NAME_PARTS: [&str; 6] = ["passw", "secret", "token", "credential", "apikey", "privatekey"];
/// Fields whose values are all secrets: the environment of services, and the attributes of fence devices.
const SECRET_MAPS: [&str; 2] = ["environment", "attributes"];
/// Options whose value has the form `user:password`, such as those of `curl`.
const USER_OPTIONS: [&str; 4] = ["-u", "--user", "-U", "--proxy-user"];

/// Replaces the values of environment variables, the values of fence attributes, and every other value whose name
/// identifies it as a secret.
///
/// The names in `managedFields` stay, because they contain no values.
pub fn redact(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            for (name, field) in fields {
                if name == "managedFields" || is_reference(field) {
                    continue;
                }
                if is_secret_name(name) {
                    redact_value(field);
                } else if SECRET_MAPS.contains(&name.as_str()) {
                    redact_leaves(field);
                } else {
                    redact(field);
                }
            }
        }
        Value::Array(items) => redact_arguments(items),
        Value::String(text) => *text = redacted_text(text),
        Value::Null | Value::Bool(_) | Value::Number(_) => (),
    }
}

/// Redacts a list, which may be a command line: the value of an option may follow the option as a separate item.
fn redact_arguments(items: &mut [Value]) {
    let takes_short_password = items.first().and_then(Value::as_str).is_some_and(has_short_password_option);
    let mut option = String::new();
    for item in items {
        let text = item.as_str().unwrap_or_default().to_owned();
        let is_option = text.starts_with('-') && !text.contains('=');
        let is_short_password = takes_short_password && text.len() > 2 && text.starts_with("-p");
        let is_user = USER_OPTIONS.contains(&option.as_str()) && text.contains(':');
        if (is_secret_name(&option) || is_user) && !is_option {
            redact_value(item);
        } else if is_short_password {
            *item = format!("-p{REDACTED}").into();
        } else {
            redact(item);
        }
        option = if is_option && !is_short_password { text } else { String::new() };
    }
}

/// Returns `true` if the password of a program directly follows the option `-p`.
fn has_short_password_option(program: &str) -> bool {
    let name = program.rsplit('/').next().unwrap_or_default();
    ["mysql", "mariadb", "sshpass"].iter().any(|program| name.starts_with(program))
}

/// Returns `true` if a value with this name is probably a secret, by the parts of the name.
pub fn is_secret_name(name: &str) -> bool {
    let plain: String =
        name.chars().filter(char::is_ascii_alphanumeric).map(|letter| letter.to_ascii_lowercase()).collect();
    plain == "pass" || SECRET_NAME_PARTS.iter().any(|word| plain.contains(word))
}

/// Replaces a secret of any type; an empty value stays visible as empty.
fn redact_value(value: &mut Value) {
    if !value.is_null() && value != "" {
        *value = REDACTED.into();
    }
}

/// Returns `true` for a reference to a text on the node, which names a location and contains no secret.
fn is_reference(value: &Value) -> bool {
    matches!(Reference::from_value(value), Some(Ok(_)))
}

fn redact_leaves(value: &mut Value) {
    match value {
        _ if is_reference(value) => {}
        Value::Object(fields) => fields.values_mut().for_each(redact_leaves),
        Value::Array(items) => items.iter_mut().for_each(redact_leaves),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => redact_value(value),
    }
}

/// Returns a text without secrets, such as a shell command, an XML definition, a URL or the last applied object in JSON.
fn redacted_text(text: &str) -> String {
    if text.starts_with('{')
        && let Ok(mut inner) = serde_json::from_str::<Value>(text)
    {
        redact(&mut inner);
        return inner.to_string();
    }
    // An item of a command line, such as `--password=x y`: white space belongs to the value.
    if let Some((name, _)) = text.split_once('=').filter(|(name, _)| !name.contains(char::is_whitespace))
        && is_secret_name(name)
    {
        return format!("{name}={REDACTED}");
    }
    let mut redacted = text.to_owned();
    for pattern in PATTERNS.iter() {
        let replaced = pattern
            .expression
            .replace_all(&redacted, |captures: &Captures<'_>| pattern.replacement(captures));
        redacted = replaced.into_owned();
    }
    redacted
}

/// Condition on a match.
type Condition = fn(&Captures<'_>) -> bool;

/// A form of a secret in a text. The groups `kept` and `end` stay, the rest of the match is replaced.
struct Pattern {
    expression: Regex,
    /// Condition for a replacement.
    applies: Condition,
}

impl Pattern {
    fn replacement(&self, captures: &Captures<'_>) -> String {
        if (self.applies)(captures) {
            format!("{}{REDACTED}{}", group(captures, "kept"), group(captures, "end"))
        } else {
            captures[0].to_owned()
        }
    }
}

/// Returns the text of a group, which is empty if the group is not part of the match.
fn group<'t>(captures: &Captures<'t>, name: &str) -> &'t str {
    captures.name(name).map_or("", |part| part.as_str())
}

/// The forms, in order of application. A value ends at white space or at the sign that ends a shell word, unless it is
/// quoted.
static PATTERNS: LazyLock<Vec<Pattern>> = LazyLock::new(|| {
    const VALUE: &str = r#"(?:"[^"]*"?|'[^']*'?|[^\s;&|"'<>]+)"#;
    let always = |_: &Captures<'_>| true;
    let named = |captures: &Captures<'_>| is_secret_name(group(captures, "name"));
    let is_option_with_secret = |captures: &Captures<'_>| {
        let (option, value) = (group(captures, "name"), group(captures, "value"));
        let is_user = USER_OPTIONS.contains(&option) && value.contains(':');
        (is_secret_name(option) || is_user) && !value.starts_with('-')
    };
    let forms: [(String, Condition); 7] = [
        // The password of a URL, which may contain `@`, and its query or fragment.
        (r"(?<kept>[A-Za-z][A-Za-z0-9+.-]*://)[^\s/@:?#]*:[^\s/?#]*(?<end>@)".to_owned(), always),
        (r#"(?<kept>[A-Za-z][A-Za-z0-9+.-]*://[^\s?#"'<>]*[?#])[^\s"'<>]+"#.to_owned(), always),
        // Headers.
        (r#"(?<kept>(?i:authorization|cookie)\s*[:=]\s*)[^\s"'][^"'\r\n]*"#.to_owned(), always),
        (r#"(?<kept>(?<name>[A-Za-z0-9-]+):\s+)[^\s"'][^"'\r\n]*"#.to_owned(), named),
        // Variables, options and attributes.
        (format!(r"(?<kept>(?<name>[A-Za-z0-9_.-]+)\s?=\s?){VALUE}"), named),
        (
            format!(r"(?<kept>(?<name>--?[A-Za-z][A-Za-z0-9_-]*)[ \t]+)(?<value>{VALUE})"),
            is_option_with_secret,
        ),
        // The option -p of some programs.
        (format!(r"(?<kept>\b(?:mysql|mariadb|sshpass)[A-Za-z0-9_-]*\s(?:[^;&|\n]*\s)?-p){VALUE}"), always),
    ];
    let compile =
        |(form, applies): (String, Condition)| Some(Pattern { expression: Regex::new(&form).ok()?, applies });
    forms.into_iter().filter_map(compile).collect()
});

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn only_secret_values_are_redacted() {
        let check = |mut value: Value, expected: Value| {
            redact(&mut value);
            assert_eq!(value, expected);
        };
        check(
            json!({"password": "x", "passwd": 7, "apiKey": ["a"], "auth_token": "", "secretRef": null, "user": "u", "passive": true}),
            json!({"password": REDACTED, "passwd": REDACTED, "apiKey": REDACTED, "auth_token": "", "secretRef": null, "user": "u", "passive": true}),
        );
        check(json!({"environment": {"A": "1", "B": ""}}), json!({"environment": {"A": REDACTED, "B": ""}}));
        // A reference contains no secret. Any other value is treated as a secret.
        let references = json!({"environment": {"A": {"valueFrom": {"file": "db"}}},
            "parameters": {"password": {"valueFrom": {"credential": "db"}}}});
        check(references.clone(), references);
        check(
            json!({"environment": {"A": {"valueFrom": {"text": "x"}}}}),
            json!({"environment": {"A": {"valueFrom": {"text": REDACTED}}}}),
        );
        check(
            json!({"agent": "fence_ipmilan", "attributes": {"ip": "10.0.0.1"}, "attributesFile": "/etc/f"}),
            json!({"agent": "fence_ipmilan", "attributes": {"ip": REDACTED}, "attributesFile": "/etc/f"}),
        );
        let managed = json!({"managedFields": [{"fieldsV1": {"f:environment": {"f:PASSWORD": {}}}}]});
        check(managed.clone(), managed);
        check(
            json!(["x", "--password", "y", "z", "--token=y", "--pass", "-v"]),
            json!(["x", "--password", REDACTED, "z", format!("--token={REDACTED}"), "--pass", "-v"]),
        );
        check(
            json!({"applied": "{\"password\":\"x\",\"a\":1}"}),
            json!({"applied": format!("{{\"password\":\"{REDACTED}\",\"a\":1}}")}),
        );
        check(
            json!("<graphics passwd='x y' port='1'/><a password=\"b\"/>"),
            json!(format!("<graphics passwd={REDACTED} port='1'/><a password={REDACTED}/>")),
        );
        check(
            json!("<a password='b'/><graphics passwd='x'/>"),
            json!(format!("<a password={REDACTED}/><graphics passwd={REDACTED}/>")),
        );
        check(json!("passwd=open end"), json!(format!("passwd={REDACTED}")));
        check(
            json!([
                "https://me:word@a.example:8443/x?key=1#y",
                "qemu+tls://b.example/system",
                "http://c@d/e@f"
            ]),
            json!([
                format!("https://{REDACTED}@a.example:8443/x?{REDACTED}"),
                "qemu+tls://b.example/system",
                "http://c@d/e@f"
            ]),
        );
        check(json!("why: node1 does not fit, memory=2Gi"), json!("why: node1 does not fit, memory=2Gi"));
        check(
            json!([
                "/usr/bin/curl",
                "-u",
                "ada:secret1",
                "-H",
                "Authorization: Bearer secret2",
                "-p",
                "80:80"
            ]),
            json!([
                "/usr/bin/curl",
                "-u",
                REDACTED,
                "-H",
                format!("Authorization: {REDACTED}"),
                "-p",
                "80:80"
            ]),
        );
        check(json!(["mysql", "-psecret", "db"]), json!(["mysql", format!("-p{REDACTED}"), "db"]));
    }

    #[test]
    fn every_form_is_an_expression() {
        assert_eq!(PATTERNS.len(), 7);
    }

    #[test]
    fn shell_commands_are_redacted() {
        for (command, expected) in [
            ("export PGPASSWORD=hunter2a; run", "export PGPASSWORD=(redacted); run"),
            ("cd /; DB_TOKEN='hunter 2b' run --port 1", "cd /; DB_TOKEN=(redacted) run --port 1"),
            ("DB_TOKEN=hunter2b more", "DB_TOKEN=(redacted)"),
            ("curl -u ada:hunter2c http://h/", "curl -u (redacted) http://h/"),
            (
                "curl --header \"Authorization: Bearer hunter2d\" -H 'X-Api-Key: hunter2e' http://h/",
                "curl --header \"Authorization: (redacted)\" -H 'X-Api-Key: (redacted)' http://h/",
            ),
            ("wget https://ada:hunter2f@h/x && ok", "wget https://(redacted)@h/x && ok"),
            ("wget https://ada:hunter@2l@h/x", "wget https://(redacted)@h/x"),
            ("wget https://h/x#hunter2m", "wget https://h/x#(redacted)"),
            ("wget 'https://h/x?key=hunter2g' -q", "wget 'https://h/x?(redacted)' -q"),
            ("mysql -h db -phunter2h -e 'select 1'", "mysql -h db -p(redacted) -e 'select 1'"),
            ("sshpass -phunter2i ssh host", "sshpass -p(redacted) ssh host"),
            ("run --password hunter2j --verbose", "run --password (redacted) --verbose"),
            ("run --password=\"hunter 2k\" -v", "run --password=(redacted) -v"),
            ("docker run -p 80:80 -u 1000 x", "docker run -p 80:80 -u 1000 x"),
            ("ls -p /tmp; echo a: b", "ls -p /tmp; echo a: b"),
        ] {
            assert_eq!(redacted_text(command), expected, "{command}");
            assert_eq!(redacted_text(expected), expected, "unchanged by a second pass");
        }
    }
}
