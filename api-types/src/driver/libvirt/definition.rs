//! Domain XML: the parts of a virtual machine's definition that hactl uses.

use crate::quantity::{Amounts, Quantity};
use roxmltree::{Document, Node};

/// The parts of a definition that hactl uses.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DomainDefinition {
    /// Name of the domain.
    pub name: String,
    /// Uuid of the domain, as written; `None` if the definition has none.
    pub uuid: Option<String>,
    /// Bytes of memory and number of processors.
    pub amounts: Amounts,
    /// Byte offset of the end of the name element.
    name_end: usize,
}

/// The reason why a definition cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {problem}")]
pub struct DefinitionError {
    /// Line of the error, from 1.
    pub line: u32,
    /// Description of the error, with a correction.
    pub problem: String,
}

impl DomainDefinition {
    /// Parses a definition.
    ///
    /// # Errors
    /// Fails if the text is not XML, or does not define a domain with a name.
    pub fn parse(xml: &str) -> Result<DomainDefinition, DefinitionError> {
        let document = Document::parse(xml).map_err(|error| DefinitionError {
            line: line_of(&error, xml),
            problem: format!("invalid XML: {error}"),
        })?;
        let root = document.root_element();
        let invalid = |node: Node<'_, '_>, problem: String| DefinitionError {
            line: document.text_pos_at(node.range().start).row,
            problem,
        };
        if !root.has_tag_name("domain") {
            let tag = root.tag_name().name();
            return Err(invalid(root, format!("the outermost element must be domain, got {tag}")));
        }
        let Some(name) = child(root, "name") else {
            return Err(invalid(root, "the domain has no name: add <name>NAME</name>".to_owned()));
        };
        let text = text_of(name);
        if !is_domain_name(&text) {
            return Err(invalid(name, format!("{text:?} is not a valid domain name")));
        }
        let memory = child(root, "memory").map(memory_of).transpose().map_err(|(node, text)| {
            invalid(
                node,
                format!("{text} is not a valid amount of memory: write <memory unit='MiB'>NUMBER</memory>"),
            )
        })?;
        let processors = child(root, "vcpu").map(processors_of).transpose().map_err(|(node, text)| {
            invalid(node, format!("{text} is not a valid number of processors: write <vcpu>NUMBER</vcpu>"))
        })?;
        Ok(DomainDefinition {
            name: text,
            uuid: child(root, "uuid").map(text_of).filter(|uuid| !uuid.is_empty()),
            amounts: Amounts { cpu: Some(processors.unwrap_or(Quantity::from_units(1))), memory, disk: None },
            name_end: name.range().end,
        })
    }

    /// Returns the parsed XML, with this uuid added if it contains none.
    pub fn with_uuid(&self, xml: &str, uuid: &str) -> String {
        match (&self.uuid, xml.split_at_checked(self.name_end)) {
            (None, Some((before, after))) => format!("{before}<uuid>{uuid}</uuid>{after}"),
            (Some(_), _) | (None, None) => xml.to_owned(),
        }
    }
}

/// Access of a definition to the host, beyond processors, memory and virtual devices.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HostAccess {
    /// Elements that give the domain a device of the host, or choose programs, files or options of the hypervisor.
    pub elements: Vec<String>,
    /// Absolute paths of the host in attributes and texts.
    pub paths: Vec<String>,
}

/// Elements that count as access to the host. Elements of a namespace are options of the hypervisor, and also count.
const HOST_ELEMENTS: [&str; 10] = [
    "hostdev",
    "filesystem",
    "emulator",
    "kernel",
    "initrd",
    "bootloader",
    "loader",
    "nvram",
    "script",
    // With a label, a domain can run as root and without confinement.
    "seclabel",
];

/// Values of attribute `type` that give the domain a device of the host.
const HOST_TYPES: [&str; 3] = ["hostdev", "nvme", "passthrough"];

/// Attributes that contain a path, absolute or relative to the root directory.
const PATH_ATTRIBUTES: [&str; 4] = ["file", "dir", "path", "socket"];

/// Paths that every domain may name.
const HARMLESS_PATHS: [&str; 2] = ["/dev/urandom", "/dev/random"];

impl HostAccess {
    /// Parses a definition; an empty text takes nothing. Returns `None` if the text is not XML.
    pub(super) fn parse(xml: &str) -> Option<HostAccess> {
        let mut access = HostAccess::default();
        if xml.trim().is_empty() {
            return Some(access);
        }
        let document = Document::parse(xml).ok()?;
        // The hypervisor ignores metadata.
        let is_metadata =
            |node: Node<'_, '_>| node.ancestors().any(|ancestor| ancestor.has_tag_name("metadata"));
        for element in document.descendants().filter(|node| node.is_element() && !is_metadata(*node)) {
            let tag = element.tag_name();
            let is_host_type = element.attribute("type").is_some_and(|value| HOST_TYPES.contains(&value));
            if tag.namespace().is_some() || HOST_ELEMENTS.contains(&tag.name()) || is_host_type {
                access.elements.push(tag.name().to_owned());
            }
            // A comment divides the text of an element, but not the value that libvirt reads.
            let text: String =
                element.children().filter_map(|node| node.text().filter(|_| node.is_text())).collect();
            let attributes = element.attributes().map(|attribute| (attribute.name(), attribute.value()));
            for (name, value) in attributes.chain([(tag.name(), text.as_str())]) {
                let value = value.trim();
                let is_path = value.starts_with('/')
                    || (PATH_ATTRIBUTES.contains(&name) && !value.is_empty())
                    || (name == "dev" && value.contains('/'));
                if is_path && !HARMLESS_PATHS.contains(&value) {
                    access.paths.push(value.to_owned());
                }
            }
        }
        Some(access)
    }
}

/// Returns the file to which libvirt copies the output of the domain's first serial port or console; `None` if its
/// definition names no such file.
pub fn console_log(xml: &str) -> Option<String> {
    let document = Document::parse(xml).ok()?;
    let devices = child(document.root_element(), "devices")?;
    let ports = devices.children().filter(|node| node.has_tag_name("serial") || node.has_tag_name("console"));
    ports
        .filter_map(|port| child(port, "log")?.attribute("file"))
        .find(|file| file.starts_with('/'))
        .map(str::to_owned)
}

/// Returns `true` if the name can be passed to programs and read back from their output.
pub fn is_domain_name(text: &str) -> bool {
    !text.is_empty()
        && !text.starts_with('-')
        && !text.contains(['/', '\'', '"', '\\', ';'])
        && !text.chars().any(|c| c.is_control() || c.is_whitespace())
}

/// Returns the line of an error. An unexpected end of the text has no position; the line is then the last one.
fn line_of(error: &roxmltree::Error, xml: &str) -> u32 {
    if matches!(error, roxmltree::Error::UnexpectedEndOfStream) {
        return u32::try_from(xml.lines().count()).unwrap_or(u32::MAX).max(1);
    }
    error.pos().row
}

fn child<'a, 'input>(parent: Node<'a, 'input>, name: &str) -> Option<Node<'a, 'input>> {
    parent.children().find(|node| node.has_tag_name(name))
}

fn text_of(node: Node<'_, '_>) -> String {
    node.text().unwrap_or_default().trim().to_owned()
}

type InvalidElement<'a, 'input> = (Node<'a, 'input>, String);

/// Returns the memory in bytes; the default unit of libvirt is KiB.
fn memory_of<'a, 'input>(node: Node<'a, 'input>) -> Result<Quantity, InvalidElement<'a, 'input>> {
    let (text, unit) = (text_of(node), node.attribute("unit").unwrap_or("KiB"));
    let factor: Option<i128> = match unit {
        "b" | "bytes" => Some(1),
        "KB" => Some(1000),
        "k" | "KiB" => Some(1 << 10),
        "MB" => Some(1_000_000),
        "M" | "MiB" => Some(1 << 20),
        "GB" => Some(1_000_000_000),
        "G" | "GiB" => Some(1 << 30),
        "TB" => Some(1_000_000_000_000),
        "T" | "TiB" => Some(1 << 40),
        _ => None,
    };
    match (text.parse::<u64>(), factor) {
        (Ok(number), Some(factor)) => Ok(Quantity::from_units(i128::from(number) * factor)),
        (_, _) => Err((node, format!("\"{text}\" {unit}"))),
    }
}

/// Returns the number of processors at the start; more can be added while the machine runs.
fn processors_of<'a, 'input>(node: Node<'a, 'input>) -> Result<Quantity, InvalidElement<'a, 'input>> {
    let text = node.attribute("current").map_or_else(|| text_of(node), str::to_owned);
    match text.parse::<u32>() {
        Ok(number) if number > 0 => Ok(Quantity::from_units(i128::from(number))),
        Ok(_) | Err(_) => Err((node, format!("\"{text}\""))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(xml: &str, expected: &str) {
        let definition = match DomainDefinition::parse(xml) {
            Ok(definition) => {
                let amount =
                    |amount: Option<Quantity>| amount.map_or("-".to_owned(), |amount| amount.to_string());
                format!(
                    "{} {} {} {}",
                    definition.name,
                    definition.uuid.as_deref().unwrap_or("-"),
                    amount(definition.amounts.cpu),
                    amount(definition.amounts.memory)
                )
            }
            Err(error) => error.to_string(),
        };
        assert_eq!(definition, expected, "{xml}");
    }

    #[test]
    fn domain_definitions_are_parsed() {
        check("<domain type='kvm'><name>a</name></domain>", "a - 1 -");
        check("<domain><name> a </name><uuid>u</uuid><memory>1024</memory></domain>", "a u 1 1Mi");
        check("<domain><name>a</name><memory unit='GiB'>2</memory><vcpu>4</vcpu></domain>", "a - 4 2Gi");
        check("<domain><name>a</name><memory unit='MB'>2</memory></domain>", "a - 1 2000000");
        check("<domain><name>a</name><vcpu placement='static' current='2'>8</vcpu></domain>", "a - 2 -");
        // A device can have a name, which is not the name of the domain.
        check("<domain><devices><name>x</name></devices><name>a</name></domain>", "a - 1 -");
    }

    #[test]
    fn domain_xml_errors_contain_the_line() {
        check(
            "<domain>\n<name>a</nam></domain>",
            "line 2: invalid XML: expected 'name' tag, not 'nam' at 2:8",
        );
        check(
            "<network><name>a</name></network>",
            "line 1: the outermost element must be domain, got network",
        );
        check("\n<domain></domain>", "line 2: the domain has no name: add <name>NAME</name>");
        check("<domain>\n <name>a b</name></domain>", "line 2: \"a b\" is not a valid domain name");
        check(
            "<domain><name>a</name>\n\n<memory unit='parsec'>1</memory></domain>",
            "line 3: \"1\" parsec is not a valid amount of memory: write <memory unit='MiB'>NUMBER</memory>",
        );
        check(
            "<domain><name>a</name><vcpu>0</vcpu></domain>",
            "line 1: \"0\" is not a valid number of processors: write <vcpu>NUMBER</vcpu>",
        );
        check(
            "<!DOCTYPE d [<!ENTITY a 'b'>]><domain><name>&a;</name></domain>",
            "line 1: invalid XML: XML with DTD detected",
        );
    }

    #[test]
    fn console_log_file_is_found() {
        let check = |devices: &str, expected: Option<&str>| {
            let xml = format!("<domain><name>a</name><devices>{devices}</devices></domain>");
            assert_eq!(console_log(&xml).as_deref(), expected, "{devices}");
        };
        check("<serial type='pty'><log file='/var/log/a.log' append='on'/></serial>", Some("/var/log/a.log"));
        check("<serial type='pty'/><console type='pty'><log file='/b'/></console>", Some("/b"));
        check("<console type='pty'><log file='relative'/></console>", None);
        check("<disk><log file='/c'/></disk>", None);
        assert_eq!(console_log("<domain>"), None);
    }

    #[test]
    fn access_to_the_host_is_found() {
        let check = |devices: &str, elements: &[&str], paths: &[&str]| {
            let xml = format!("<domain><name>a</name><devices>{devices}</devices></domain>");
            let expected = HostAccess {
                elements: elements.iter().map(ToString::to_string).collect(),
                paths: paths.iter().map(ToString::to_string).collect(),
            };
            assert_eq!(HostAccess::parse(&xml), Some(expected), "{devices}");
        };
        check("<disk type='volume'><source pool='p' volume='v'/><target dev='vda'/></disk>", &[], &[]);
        check("<disk><source protocol='rbd' name='pool/image'/></disk>", &[], &[]);
        check("<rng><backend model='random'>/dev/urandom</backend></rng>", &[], &[]);
        check("<disk><source file='/srv/a'/></disk>", &[], &["/srv/a"]);
        check("<disk><source file='etc/shadow'/></disk>", &[], &["etc/shadow"]);
        check("<disk><source dev='../dev/sda'/></disk>", &[], &["../dev/sda"]);
        check("<source><path><!-- -->/e<!-- -->tc<![CDATA[/x]]></path></source>", &[], &["/etc/x"]);
        check("<interface type='hostdev'/><seclabel/>", &["interface", "seclabel"], &[]);
        check("<metadata><a xmlns='x'>/etc</a></metadata><a xmlns='x'/>", &["a"], &[]);
        assert_eq!(HostAccess::parse(" "), Some(HostAccess::default()));
        assert_eq!(HostAccess::parse("<!DOCTYPE d [<!ENTITY a '/etc'>]><domain/>"), None);
    }

    #[test]
    fn missing_domain_uuid_is_added() {
        let without_uuid = "<domain><name>a</name><vcpu>1</vcpu></domain>";
        let with_uuid = "<domain><name>a</name><uuid>u</uuid><vcpu>1</vcpu></domain>";
        for (xml, uuid) in [(without_uuid, "u"), (with_uuid, "v")] {
            assert_eq!(DomainDefinition::parse(xml).unwrap().with_uuid(xml, uuid), with_uuid);
        }
    }
}
