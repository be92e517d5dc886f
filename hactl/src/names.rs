//! Names as users type them: kinds with their short names, `type:name`, `kind/name`.

use crate::failure::Failure;
use ha_api_types::driver::DriverSpec;
use ha_api_types::kind::Kind;
use ha_api_types::lenient;
use serde_json::Value;

/// A resource's name, optionally with the type that the user expects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TypedName {
    /// Type before the colon; `None` if no type was typed.
    pub(crate) type_name: Option<String>,
    pub(crate) name: String,
}

impl TypedName {
    /// Parses `name` or `type:name`.
    pub(crate) fn parse(text: &str) -> Result<TypedName, Failure> {
        let (type_name, name) = match text.split_once(':') {
            Some((type_name, name)) => (Some(type_name.to_owned()), name),
            None => (None, text),
        };
        let is_invalid = |part: &str| part.is_empty() || part.contains(['/', ' ', ':', '?', '#', '%']);
        if is_invalid(name) || type_name.as_deref().is_some_and(is_invalid) {
            return Err(Failure::usage(format!("{text:?} is not a valid name"))
                .help("specify NAME or TYPE:NAME, such as web or vm:100"));
        }
        Ok(TypedName { type_name, name: name.to_owned() })
    }

    /// Refuses an object whose type differs from the type that the user specified. The error names the correct type.
    pub(crate) fn check(&self, object: &Value) -> Result<(), Failure> {
        let actual = type_of(object);
        match &self.type_name {
            Some(typed) if *typed != actual => Err(Failure::failed(format!(
                "resource {typed}:{} not found: {} has type {actual}",
                self.name, self.name
            ))
            .help(format!("specify {actual}:{} or {}", self.name, self.name))),
            Some(_) | None => Ok(()),
        }
    }
}

/// Returns the type of a resource: `vm` for `vm:100`.
pub(crate) fn type_of(object: &Value) -> String {
    object.pointer("/spec/driver").map(lenient::read_part::<DriverSpec>).unwrap_or_default().type_name()
}

/// Returns an object's name as in lists: `vm:100` for resources, the plain name for other kinds.
pub(crate) fn listed_name(kind: Kind, object: &Value) -> String {
    let name = name_of(object);
    if kind == Kind::Resource { format!("{}:{name}", type_of(object)) } else { name.to_owned() }
}

/// Returns `metadata.name` of an object of any kind, an event or a row of a Table; empty if missing.
pub(crate) fn name_of(object: &Value) -> &str {
    object.pointer("/metadata/name").and_then(Value::as_str).unwrap_or_default()
}

fn is_events(text: &str) -> bool {
    matches!(text.to_ascii_lowercase().as_str(), "events" | "event" | "ev")
}

/// Returns the names of the events that the arguments select; an empty list means all events. `None` if the arguments
/// select another kind.
pub(crate) fn event_names(arguments: &[String]) -> Option<Vec<String>> {
    match arguments {
        [first, names @ ..] if is_events(first) => Some(names.to_vec()),
        [_, ..] => arguments
            .iter()
            .map(|argument| match argument.split_once('/') {
                Some((kind, name)) if is_events(kind) => Some(name.to_owned()),
                Some(_) | None => None,
            })
            .collect(),
        [] => None,
    }
}

/// Parses a kind by any of its names.
pub(crate) fn parse_kind(text: &str) -> Result<Kind, Failure> {
    if let Some(kind) = Kind::parse(text) {
        return Ok(kind);
    }
    if is_events(text) {
        return Err(Failure::usage(
            "this command does not support events, and get does not combine them with other kinds",
        )
        .help("run \"hactl get events\" or \"hactl events\""));
    }
    // Short names are not suggested: `no` is similar to every word that begins with it.
    let kind_names = Kind::ALL.iter().flat_map(|kind| [kind.singular(), kind.plural()]);
    let most_similar = most_similar(&text.to_ascii_lowercase(), kind_names);
    let plurals: Vec<&str> = Kind::ALL.iter().map(|kind| kind.plural()).collect();
    Err(Failure::usage(match most_similar {
        Some(most_similar) => format!("{text:?} is not a valid kind; did you mean {most_similar}?"),
        None => format!("{text:?} is not a valid kind"),
    })
    .help(format!("valid kinds: {}, events", plurals.join(", "))))
}

/// A kind with a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Target {
    pub(crate) kind: Kind,
    pub(crate) name: TypedName,
}

impl Target {
    /// Returns the name for messages: `resource/web`.
    pub(crate) fn display_name(&self) -> String {
        format!("{}/{}", self.kind.singular(), self.name.name)
    }

    /// Parses `kind/name`; a text without `/` is a resource's name.
    pub(crate) fn parse(text: &str) -> Result<Target, Failure> {
        match text.split_once('/') {
            Some((kind_text, name)) => {
                Ok(Target { kind: parse_kind(kind_text)?, name: TypedName::parse(name)? })
            }
            None => Ok(Target { kind: Kind::Resource, name: TypedName::parse(text)? }),
        }
    }
}

/// The objects that `KIND [NAME…]` or `KIND/NAME…` selects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Selection {
    /// All objects of these kinds.
    Kinds(Vec<Kind>),
    Objects(Vec<Target>),
}

/// Parses `KIND[,KIND…] [NAME…]` or `KIND/NAME…`.
pub(crate) fn parse_selection(arguments: &[String]) -> Result<Selection, Failure> {
    let Some((first, rest)) = arguments.split_first() else {
        return Err(Failure::usage("no kind specified")
            .help("specify KIND [NAME…] or KIND/NAME…, such as resources or resource/web"));
    };
    if arguments.iter().any(|argument| argument.contains('/')) {
        return arguments
            .iter()
            .map(|argument| {
                if argument.contains('/') {
                    Target::parse(argument)
                } else {
                    Err(Failure::usage(format!("{argument:?} cannot be combined with KIND/NAME"))
                        .help("specify either KIND NAME… or KIND/NAME…"))
                }
            })
            .collect::<Result<_, _>>()
            .map(Selection::Objects);
    }
    if first == "all" && rest.is_empty() {
        let kinds = Kind::ALL.into_iter().rev().filter(|kind| kind.categories().contains(&"all"));
        return Ok(Selection::Kinds(kinds.collect()));
    }
    let kinds = first.split(',').map(parse_kind).collect::<Result<Vec<_>, _>>()?;
    match (kinds.as_slice(), rest) {
        (_, []) => Ok(Selection::Kinds(kinds)),
        ([kind], names) => names
            .iter()
            .map(|name| Ok(Target { kind: *kind, name: TypedName::parse(name)? }))
            .collect::<Result<_, _>>()
            .map(Selection::Objects),
        _ => Err(Failure::usage("names require exactly one kind")
            .help("specify KIND NAME…, or KIND/NAME… for several kinds")),
    }
}

/// Returns the known name most similar to a text; `None` if no name is similar enough.
pub(crate) fn most_similar<'a>(text: &str, candidates: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    ha_api_types::schema::suggestion(text, candidates)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn object_selections_are_parsed() {
        let check = |arguments: &[&str], expected: Result<&[&str], &str>| {
            let arguments: Vec<String> = arguments.iter().map(|text| (*text).to_owned()).collect();
            let actual = parse_selection(&arguments).map(|selection| match selection {
                Selection::Kinds(kinds) => {
                    kinds.iter().map(|kind| kind.singular().to_owned()).collect::<Vec<_>>()
                }
                Selection::Objects(targets) => targets.iter().map(Target::display_name).collect(),
            });
            match (actual, expected) {
                (Ok(actual), Ok(expected)) => assert_eq!(actual, expected),
                (Err(failure), Err(part)) => assert!(failure.message.contains(part), "{failure:?}"),
                (actual, expected) => panic!("{arguments:?}: {actual:?} instead of {expected:?}"),
            }
        };
        check(&["resources"], Ok(&["resource"]));
        check(&["all"], Ok(&["resource", "group"]));
        check(&["har,no"], Ok(&["resource", "node"]));
        check(&["resource", "vm:100", "web"], Ok(&["resource/100", "resource/web"]));
        check(&["resource/web", "node/node1"], Ok(&["resource/web", "node/node1"]));
        check(&["resorce"], Err("did you mean resource?"));
        check(&["frobnicator"], Err("is not a valid kind"));
        check(&["nosuch"], Err("did you mean nodes?"));
        check(&["har,no", "web"], Err("exactly one kind"));
        check(&["resource/web", "node1"], Err("cannot be combined"));
        check(&["resource", "../x"], Err("cannot be combined"));
        check(&[], Err("no kind specified"));
    }

    #[test]
    fn events_cannot_be_selected_with_other_kinds() {
        let check = |arguments: &[&str], expected: Option<&[&str]>| {
            let arguments: Vec<String> = arguments.iter().map(|text| (*text).to_owned()).collect();
            let expected =
                expected.map(|names| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>());
            assert_eq!(event_names(&arguments), expected, "{arguments:?}");
        };
        check(&["events"], Some(&[]));
        check(&["ev", "a.1", "b.2"], Some(&["a.1", "b.2"]));
        check(&["event/a.1", "event/b.2"], Some(&["a.1", "b.2"]));
        check(&["event/a.1", "resource/web"], None);
        check(&["resources"], None);
        check(&[], None);
        let failure = parse_kind("events").expect_err("not a kind");
        assert!(failure.message.contains("does not support events"), "{failure:?}");
    }

    #[test]
    fn wrong_resource_type_suggests_the_right_one() {
        let object = json!({"metadata": {"name": "100"}, "spec": {"driver": {"libvirt": {"domain": "x"}}}});
        assert_eq!(listed_name(Kind::Resource, &object), "vm:100");
        assert!(TypedName::parse("vm:100").expect("a name").check(&object).is_ok());
        assert!(TypedName::parse("100").expect("a name").check(&object).is_ok());
        let failure = TypedName::parse("ct:100").expect("a name").check(&object).expect_err("the wrong type");
        assert!(failure.help.contains("vm:100"), "{failure:?}");
        assert!(TypedName::parse("a:b:c").is_err());
        assert!(TypedName::parse("").is_err());
    }
}
