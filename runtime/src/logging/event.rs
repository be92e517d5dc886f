//! Logging of events: every daemon logs events in this form, with the event's objects as fields.

use ha_api_types::event::{Event, EventType};
use ha_api_types::id::ActionUid;
use ha_api_types::kind::Kind;

/// Logs an event, with its resource and node as fields of these names. The field `action` is the uid that `hactl
/// trace` follows.
pub fn event(event: &Event) {
    macro_rules! line {
        ($level:ident) => {{
            let name_if = |kind| (event.kind == kind).then_some(event.name.as_str());
            let is_other = !matches!(event.kind, Kind::Resource | Kind::Node);
            tracing::$level!(
                target: "hactl::event",
                kind = is_other.then(|| event.kind.singular()),
                object = is_other.then_some(event.name.as_str()),
                resource = name_if(Kind::Resource),
                node = event.node.as_deref().or(name_if(Kind::Node)),
                action = event.action_uid.as_ref().map(ActionUid::as_str),
                operation = event.operation.as_deref(),
                epoch = event.epoch.map(|epoch| epoch.0),
                reason = %event.reason,
                "{}",
                event.message
            );
        }};
    }
    match event.event_type {
        EventType::Normal => line!(info),
        EventType::Warning => line!(warn),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ha_api_types::id::{Epoch, ObjectUid};
    use ha_api_types::reason::Reason;
    use std::io::{Read, Seek, SeekFrom};

    fn check(kind: Kind, node: Option<&str>, event_type: EventType, expected: &str) {
        let mut file = tempfile::tempfile().unwrap();
        let writer = file.try_clone().unwrap();
        let lines = tracing_subscriber::fmt()
            .with_writer(move || writer.try_clone().unwrap())
            .without_time()
            .with_ansi(false)
            .finish();
        let logged = Event {
            kind,
            name: "web".to_owned(),
            uid: ObjectUid::default(),
            event_type,
            reason: Reason::Running,
            message: "it runs".to_owned(),
            source: String::new(),
            node: node.map(Into::into),
            action_uid: Some("a-1".into()),
            operation: None,
            epoch: Some(Epoch(3)),
            at: ha_api_types::time::Timestamp::from_unix_ms(0),
        };
        tracing::subscriber::with_default(lines, || event(&logged));
        let mut output = String::new();
        file.seek(SeekFrom::Start(0)).unwrap();
        file.read_to_string(&mut output).unwrap();
        assert_eq!(output.trim(), expected);
    }

    #[test]
    fn log_event_is_one_line_with_fields() {
        let normal = EventType::Normal;
        let rest = "action=\"a-1\" epoch=3 reason=Running";
        check(
            Kind::Resource,
            Some("n1"),
            EventType::Warning,
            &format!("WARN hactl::event: it runs resource=\"web\" node=\"n1\" {rest}"),
        );
        check(Kind::Node, None, normal, &format!("INFO hactl::event: it runs node=\"web\" {rest}"));
        check(
            Kind::Group,
            Some("n1"),
            normal,
            &format!("INFO hactl::event: it runs kind=\"group\" object=\"web\" node=\"n1\" {rest}"),
        );
    }
}
