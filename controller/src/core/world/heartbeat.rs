//! Parsing of heartbeats. They are most of the changes in etcd, and nearly always differ from the previous one only
//! in the sequence number.

use super::Table;
use super::tables::put_record;
use ha_api_types::id::NodeName;
use ha_api_types::lenient::Partial;
use ha_api_types::record::Alive;
use ha_api_types::time::MonotonicTime;
use ha_store::Entry;

/// Applies a heartbeat; `before` is the text of the heartbeat in the table.
pub(super) fn put(
    table: &mut Table<NodeName, Alive>,
    name: &NodeName,
    before: Option<&[u8]>,
    entry: &Entry,
    now: MonotonicTime,
) -> Result<(), Partial<()>> {
    if let Some(alive) = table.get_mut(name)
        && alive.mod_revision != entry.mod_revision
        && let Some(sequence) = before.and_then(|before| changed_sequence(before, &entry.value))
    {
        alive.value.sequence = sequence;
        (alive.create_revision, alive.mod_revision, alive.first_seen_at) =
            (entry.create_revision, entry.mod_revision, now);
        return Ok(());
    }
    put_record(table, name, entry, now)
}

/// Returns the new sequence number if two texts differ only in that number. The first text is valid JSON that ends in
/// `"sequence":` and a number. A second text that differs only in that number is therefore also valid, and has the same
/// other fields.
fn changed_sequence(before: &[u8], after: &[u8]) -> Option<u64> {
    let (start, _) = split_sequence(before)?;
    let (same_start, sequence) = split_sequence(after)?;
    (start == same_start).then_some(sequence)
}

/// Returns the text before the sequence number, and the number.
fn split_sequence(text: &[u8]) -> Option<(&[u8], u64)> {
    let rest = text.strip_suffix(b"}")?;
    let digits = rest.iter().rev().take_while(|byte| byte.is_ascii_digit()).count();
    let (start, digits) = rest.split_at(rest.len() - digits);
    // After an escape, the quotation mark would be part of the field name.
    if !(start.ends_with(b",\"sequence\":") || start.ends_with(b"{\"sequence\":")) {
        return None;
    }
    if digits.len() > 1 && digits.starts_with(b"0") {
        return None;
    }
    Some((start, std::str::from_utf8(digits).ok()?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::super::Versioned;
    use super::*;
    use ha_api_types::id::Revision;

    fn read(before: &str, after: &str) -> (Result<(), Partial<()>>, Option<Versioned<Alive>>) {
        let entry = |text: &str, revision| Entry {
            key: "alive".to_owned(),
            value: text.as_bytes().to_vec().into(),
            create_revision: Revision(1),
            mod_revision: revision,
            lease: ha_store::LeaseId::NONE,
        };
        let mut table = Table::new();
        put_record(&mut table, &"n".into(), &entry(before, Revision(1)), MonotonicTime(1))
            .expect("the first can be read");
        let result = put(
            &mut table,
            &"n".into(),
            Some(before.as_bytes()),
            &entry(after, Revision(2)),
            MonotonicTime(2),
        );
        (result, table.remove("n"))
    }

    #[test]
    fn heartbeat_parsing_is_independent_of_previous_heartbeat() {
        let first = r#"{"instance":"a","epoch":3,"sequence":9}"#;
        for after in [
            r#"{"instance":"a","epoch":3,"sequence":10}"#,
            r#"{"instance":"b","epoch":3,"sequence":10}"#,
            r#"{"instance":"a","epoch":4,"sequence":10}"#,
            r#"{"sequence":10,"instance":"a","epoch":4}"#,
            r#"{"instance":"a","epoch":3,"sequence":10 }"#,
            r#"{"instance":"a","epoch":3,"other":{"sequence":10}}"#,
            r#"{"sequence":10}"#,
            "{}",
        ] {
            let expected: Alive = serde_json::from_str(after).expect("sound");
            let (result, alive) = read(first, after);
            assert_eq!(result, Ok(()), "{after}");
            let alive = alive.expect("the heartbeat is known");
            assert_eq!(
                (alive.value, alive.mod_revision, alive.first_seen_at),
                (expected, Revision(2), MonotonicTime(2)),
                "{after}"
            );
        }
    }

    #[test]
    fn unreadable_heartbeat_stays_unreadable_after_another() {
        let first = r#"{"instance":"a","epoch":3,"sequence":9}"#;
        for after in [
            r#"{"instance":"a","epoch":3,"sequence":09}"#,
            r#"{"instance":"a","epoch":3,"sequence":}"#,
            r#"{"instance":"a","epoch":3,"sequence":-1}"#,
            r#"{"instance":"a","epoch":3,"sequence":18446744073709551616}"#,
            r#"{"instance":"a","epoch":3,"sequence":10"#,
        ] {
            assert!(serde_json::from_str::<Alive>(after).is_err(), "{after}");
            assert!(read(first, after).0.is_err(), "{after}");
        }
    }
}
