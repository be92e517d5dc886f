//! Removal of secrets from objects and collected data, by the names of fields and options; pure.

use serde_json::Value;

/// Replacement for a secret.
const REDACTED: &str = "(redacted)";
/// Parts of names whose values are secrets.
const SECRET_NAME_PARTS: [&str; 6] = ["passw", "secret", "token", "credential", "apikey", "privatekey"];
/// Fields whose values are all secrets: the environment of services, and the attributes of fence devices.
const SECRET_MAPS: [&str; 2] = ["environment", "attributes"];

/// Replaces the values of environment variables, the values of fence attributes, and every other value whose name
/// identifies it as a secret.
///
/// The names in `managedFields` stay, because they contain no values.
pub fn redact(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            for (name, field) in fields {
                if name == "managedFields" {
                    continue;
                }
                if is_secret(name) {
                    redact_value(field);
                } else if SECRET_MAPS.contains(&name.as_str()) {
                    redact_leaves(field);
                } else {
                    redact(field);
                }
            }
        }
        Value::Array(items) => {
            let mut is_option_value = false;
            for item in items {
                // `--password x`: the value follows the option as a separate item.
                let is_option =
                    item.as_str().is_some_and(|text| text.starts_with('-') && !text.contains('='));
                let next = is_option && item.as_str().is_some_and(is_secret);
                if is_option_value && !is_option {
                    redact_value(item);
                } else {
                    redact(item);
                }
                is_option_value = next;
            }
        }
        Value::String(text) => *text = redacted_text(text),
        Value::Null | Value::Bool(_) | Value::Number(_) => (),
    }
}

fn is_secret(name: &str) -> bool {
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

fn redact_leaves(value: &mut Value) {
    match value {
        Value::Object(fields) => fields.values_mut().for_each(redact_leaves),
        Value::Array(items) => items.iter_mut().for_each(redact_leaves),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => redact_value(value),
    }
}

/// Returns a text without secrets: in options such as `--password=x`, in JSON (the last applied object), in XML attributes.
fn redacted_text(text: &str) -> String {
    if let Some(url) = redacted_url(text) {
        return url;
    }
    if let Some((option, _)) =
        text.split_once('=').filter(|(option, _)| !option.contains(char::is_whitespace))
        && is_secret(option)
    {
        return format!("{option}={REDACTED}");
    }
    if text.starts_with('{')
        && let Ok(mut inner) = serde_json::from_str::<Value>(text)
    {
        redact(&mut inner);
        return inner.to_string();
    }
    let mut remaining = text;
    let mut redacted = String::new();
    // The earliest match is used, so that the text before it is kept.
    while let Some(at) = ["passwd=", "password="].iter().filter_map(|name| remaining.find(name)).min() {
        let value_start = at + remaining[at..].find('=').unwrap_or(0) + 1;
        redacted.push_str(&remaining[..value_start]);
        remaining = &remaining[value_start..];
        let quote = remaining.chars().next().filter(|first| ['"', '\''].contains(first));
        let length = match quote {
            Some(quote) => remaining[1..].find(quote).map_or(remaining.len(), |end| end + 2),
            None => remaining.find(char::is_whitespace).unwrap_or(remaining.len()),
        };
        redacted.push_str(REDACTED);
        remaining = &remaining[length..];
    }
    redacted + remaining
}

/// Returns a URL without its password and its query, which may contain tokens; `None` if the text is not a URL.
fn redacted_url(text: &str) -> Option<String> {
    let (scheme, rest) = text.split_once("://")?;
    let is_scheme = scheme.starts_with(|first: char| first.is_ascii_alphabetic())
        && scheme.chars().all(|letter| letter.is_ascii_alphanumeric() || "+-.".contains(letter));
    if !is_scheme || text.contains(char::is_whitespace) {
        return None;
    }
    let (address, end) = rest.split_at(rest.find(['?', '#']).unwrap_or(rest.len()));
    let (authority, path) = address.split_at(address.find('/').unwrap_or(address.len()));
    let authority = match authority.rsplit_once('@') {
        Some((user, host)) if user.contains(':') => format!("{REDACTED}@{host}"),
        Some(_) | None => authority.to_owned(),
    };
    let end = if end.is_empty() { String::new() } else { format!("?{REDACTED}") };
    Some(format!("{scheme}://{authority}{path}{end}"))
}

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
    }
}
