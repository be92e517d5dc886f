//! The `meta-data` of an agent, an XML document.

use crate::time::Millis;
use roxmltree::{Document, Node, ParsingOptions};

/// The meta-data of an agent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AgentMetadata {
    /// Summary in one line.
    pub short: String,
    /// Full description.
    pub long: String,
    /// Parameters, in the order of the document.
    pub parameters: Vec<Parameter>,
    /// Actions, in the order of the document.
    pub actions: Vec<Action>,
}

/// A parameter of an agent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Parameter {
    /// Name of the parameter.
    pub name: String,
    /// `true` if the parameter must be given.
    pub required: bool,
    /// `true` if two resources must not have the same value.
    pub unique: bool,
    /// Set if the parameter is deprecated: a hint about the replacement, which may be empty.
    pub deprecated: Option<String>,
    /// Type of the parameter's values.
    pub kind: ParameterType,
    /// Default value.
    pub default: Option<String>,
    /// Summary in one line.
    pub short: String,
    /// Full description.
    pub long: String,
}

/// The type of a parameter's values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ParameterType {
    /// An integer.
    Integer,
    /// A boolean value.
    Boolean,
    /// One of these values.
    Select(Vec<String>),
    /// Text, or a type that is not checked.
    Text(String),
}

/// An action of an agent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Action {
    /// Name of the action.
    pub name: String,
    /// Suggested time limit.
    pub timeout_ms: Option<Millis>,
    /// Suggested interval of a recurring action.
    pub interval_ms: Option<Millis>,
    /// Depth of a monitor action (`OCF_CHECK_LEVEL`).
    pub depth: u32,
    /// Role to which the action applies; `None` for all roles.
    pub role: Option<String>,
}

/// The error for a document that is not meta-data.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MetadataError {
    /// The text is not XML.
    #[error("meta-data is not valid XML: {0}")]
    NotXml(String),
    /// The root element is a different one.
    #[error("root element of the meta-data must be <resource-agent>, got <{0}>")]
    Another(String),
}

impl AgentMetadata {
    /// Parses the output of `AGENT meta-data`. Content that the specification does not allow is ignored, not rejected.
    ///
    /// # Errors
    /// Fails if the text is not a meta-data document.
    pub fn parse(text: &str) -> Result<AgentMetadata, MetadataError> {
        // Some agents print messages before the document.
        let text = text.find('<').and_then(|from| text.get(from..)).unwrap_or(text);
        // A usual document refers to its DTD, so a DTD is allowed. The parser limits the number of entities.
        let options = ParsingOptions { allow_dtd: true, ..ParsingOptions::default() };
        let document = Document::parse_with_options(text.trim_end(), options)
            .map_err(|error| MetadataError::NotXml(error.to_string()))?;
        let root = document.root_element();
        if root.tag_name().name() != "resource-agent" {
            return Err(MetadataError::Another(root.tag_name().name().to_owned()));
        }
        Ok(AgentMetadata {
            short: text_of(root, "shortdesc"),
            long: text_of(root, "longdesc"),
            parameters: elements_in_list(root, "parameters", "parameter")
                .filter_map(parse_parameter)
                .collect(),
            actions: elements_in_list(root, "actions", "action").filter_map(parse_action).collect(),
        })
    }

    /// Returns `true` if the agent supports an action.
    pub fn supports(&self, action: &str) -> bool {
        self.actions.iter().any(|action_metadata| action_metadata.name == action)
    }

    /// Returns the suggested time limit of an action.
    pub fn timeout_ms(&self, action: &str) -> Option<Millis> {
        self.actions
            .iter()
            .filter(|action_metadata| action_metadata.name == action)
            .find_map(|action_metadata| action_metadata.timeout_ms)
    }

    /// Returns the suggested interval of monitoring at this depth. If the agent has none at this depth, returns the
    /// interval at depth 0.
    pub fn monitor_interval_ms(&self, depth: u32) -> Option<Millis> {
        let interval_at = |depth: u32| {
            let mut monitors =
                self.actions.iter().filter(|action_metadata| action_metadata.name == "monitor");
            // An action with a role has an interval for that role only.
            monitors
                .find(|monitor| monitor.depth == depth && monitor.role.is_none())
                .and_then(|monitor| monitor.interval_ms)
        };
        interval_at(depth).or_else(|| interval_at(0)).filter(|interval_ms| *interval_ms > 0)
    }
}

impl ParameterType {
    /// Returns the type for messages.
    pub fn name(&self) -> String {
        match self {
            ParameterType::Integer => "integer".to_owned(),
            ParameterType::Boolean => "boolean".to_owned(),
            ParameterType::Select(values) => values.join(" | "),
            ParameterType::Text(name) => name.clone(),
        }
    }
}

/// Returns the elements called `name` in the first child called `list`.
fn elements_in_list<'a, 'input: 'a>(
    of: Node<'a, 'input>,
    list: &'static str,
    name: &'static str,
) -> impl Iterator<Item = Node<'a, 'input>> {
    let list = of.children().find(move |child| child.has_tag_name(list));
    list.into_iter().flat_map(|list| list.children()).filter(move |child| child.has_tag_name(name))
}

fn parse_parameter(node: Node<'_, '_>) -> Option<Parameter> {
    let is_set = |name: &str| node.attribute(name).is_some_and(is_true);
    let content = node.children().find(|child| child.has_tag_name("content"));
    let kind = content.and_then(|content| content.attribute("type")).unwrap_or("string");
    let options = || {
        let options = content.into_iter().flat_map(|content| content.children());
        options.filter_map(|option| option.attribute("value").map(str::to_owned)).collect()
    };
    let deprecated = node.children().find(|child| child.has_tag_name("deprecated"));
    Some(Parameter {
        name: node.attribute("name").filter(|name| !name.is_empty())?.to_owned(),
        required: is_set("required"),
        unique: is_set("unique") || node.attribute("unique-group").is_some(),
        deprecated: deprecated
            .map(|node| text_of(node, "desc"))
            .or_else(|| is_set("deprecated").then(String::new)),
        kind: match kind {
            "integer" => ParameterType::Integer,
            "boolean" => ParameterType::Boolean,
            "select" => ParameterType::Select(options()),
            other => ParameterType::Text(other.to_owned()),
        },
        default: content.and_then(|content| content.attribute("default")).map(str::to_owned),
        short: text_of(node, "shortdesc"),
        long: text_of(node, "longdesc"),
    })
}

fn parse_action(node: Node<'_, '_>) -> Option<Action> {
    let time = |name: &str| node.attribute(name).and_then(milliseconds);
    Some(Action {
        name: node.attribute("name").filter(|name| !name.is_empty())?.to_owned(),
        timeout_ms: time("timeout"),
        interval_ms: time("interval"),
        depth: node.attribute("depth").and_then(|depth| depth.trim().parse().ok()).unwrap_or(0),
        role: node.attribute("role").map(str::to_owned),
    })
}

/// Returns the text of a child without surrounding white space.
fn text_of(node: Node<'_, '_>, name: &str) -> String {
    let child = node.children().find(|child| child.has_tag_name(name));
    let text: String = child
        .into_iter()
        .flat_map(|child| child.descendants())
        .filter(Node::is_text)
        .filter_map(|node| node.text())
        .collect();
    text.trim().to_owned()
}

fn is_true(text: &str) -> bool {
    matches!(text, "1" | "true" | "yes")
}

/// Parses a time in the notation of agents: `20`, `20s`, `500ms`, `2min`.
fn milliseconds(text: &str) -> Option<Millis> {
    let text = text.trim();
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let factor = match unit.trim() {
        "ms" | "msec" => 1,
        "" | "s" | "sec" => 1000,
        "m" | "min" => 60_000,
        "h" | "hr" => 3_600_000,
        _ => return None,
    };
    number.parse::<Millis>().ok()?.checked_mul(factor)
}

#[cfg(test)]
mod tests {
    use super::*;

    const AGENT: &str = r#"some noise
<?xml version="1.0"?>
<!DOCTYPE resource-agent SYSTEM "ra-api-1.dtd">
<resource-agent name="Web" version="1.0">
<version>1.1</version>
<longdesc lang="en">
Serves &lt;files&gt;.
</longdesc>
<shortdesc lang="en">A web server</shortdesc>
<parameters>
<parameter name="root" unique="1" required="1">
<longdesc lang="en">Where the files lie.</longdesc>
<shortdesc lang="en">root</shortdesc>
<content type="string" default="" />
</parameter>
<parameter name="port"><content type="integer" default="80"/></parameter>
<parameter name="mode" deprecated="1"><content type="select" default="fast"><option value="fast"/><option value="safe"/></content></parameter>
<parameter name="old"><deprecated><replaced-with name="root"/><desc>use root</desc></deprecated><content type="boolean"/></parameter>
<parameter><content type="string"/></parameter>
</parameters>
<actions>
<action name="start" timeout="40s" />
<action name="stop" timeout="1min" />
<action name="monitor" timeout="30" depth="10" interval="30s" />
<action name="monitor" timeout="20" interval="5" role="Promoted" />
<action name="monitor" timeout="20" interval="10s" depth="0" />
<action name="migrate_to" timeout="500ms" />
<action name="meta-data" timeout="soon" />
</actions>
</resource-agent>
"#;

    #[test]
    fn agent_metadata_document_is_parsed() {
        let read = AgentMetadata::parse(AGENT).expect("meta-data");
        assert_eq!((read.short.as_str(), read.long.as_str()), ("A web server", "Serves <files>."));
        let names: Vec<&str> = read.parameters.iter().map(|parameter| parameter.name.as_str()).collect();
        assert_eq!(names, ["root", "port", "mode", "old"]);
        let root = &read.parameters[0];
        assert!(root.required && root.unique && root.deprecated.is_none());
        assert_eq!((root.long.as_str(), root.default.as_deref()), ("Where the files lie.", Some("")));
        assert_eq!(read.parameters[1].kind, ParameterType::Integer);
        assert_eq!(read.parameters[2].kind.name(), "fast | safe");
        assert_eq!(read.parameters[2].deprecated.as_deref(), Some(""));
        assert_eq!(read.parameters[3].deprecated.as_deref(), Some("use root"));
        for (action, expected) in [
            ("start", Some(40_000)),
            ("stop", Some(60_000)),
            ("monitor", Some(30_000)),
            ("migrate_to", Some(500)),
            ("meta-data", None),
            ("promote", None),
        ] {
            assert_eq!(read.timeout_ms(action), expected, "{action}");
        }
        assert!(read.supports("migrate_to") && !read.supports("migrate_from"));
        for (depth, expected) in [(0, 10_000), (10, 30_000), (20, 10_000)] {
            assert_eq!(read.monitor_interval_ms(depth), Some(expected), "{depth}");
        }
    }

    #[test]
    fn documents_other_than_metadata_are_refused() {
        for (text, expected) in [
            ("", "meta-data is not valid XML: "),
            ("Usage: web {start|stop}", "meta-data is not valid XML: "),
            ("<resource-agent><parameters></resource-agent>", "meta-data is not valid XML: "),
            ("<html/>", "root element of the meta-data must be <resource-agent>, got <html>"),
        ] {
            let error = AgentMetadata::parse(text).expect_err(text).to_string();
            assert!(error.starts_with(expected), "{text}: {error}");
        }
        assert_eq!(AgentMetadata::parse("<resource-agent/>"), Ok(AgentMetadata::default()));
    }
}
