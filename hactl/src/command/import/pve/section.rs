//! The format of ha-manager's files: sections with a type, a name, and indented properties.

/// An error in a file, with its line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Problem {
    /// Line number, from 1.
    pub(super) line: usize,
    /// Description of the error, and of the expected value.
    pub(super) text: String,
}

impl Problem {
    pub(super) fn new(line: usize, text: impl Into<String>) -> Problem {
        Problem { line, text: text.into() }
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Section {
    /// Type before the colon, such as `vm`, in lower case because ha-manager ignores case.
    pub(super) type_name: String,
    /// Name after the colon, such as `100`.
    pub(super) name: String,
    /// Line number of type and name, from 1.
    pub(super) line: usize,
    /// Properties in their order.
    pub(super) properties: Vec<Property>,
    /// Comments before and in the section, without `#`; for the last section, also the comments after it.
    pub(super) comments: Vec<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Property {
    pub(super) name: String,
    /// Value of the property; empty if it has none.
    pub(super) value: String,
    /// Line number of the property, from 1.
    pub(super) line: usize,
}

/// Parses the sections of a file.
///
/// # Errors
/// Fails at the first line that is neither the start of a section nor a property of one, and at a duplicate.
pub(super) fn sections(text: &str) -> Result<Vec<Section>, Problem> {
    let mut sections: Vec<Section> = Vec::new();
    let mut comments = Vec::new();
    // A section ends at an empty line; an indented line after that belongs to no section.
    let mut in_section = false;
    for (line, content) in text.lines().enumerate().map(|(index, content)| (index + 1, content)) {
        let trimmed = content.trim();
        if let Some(comment) = trimmed.strip_prefix('#') {
            let section_comments =
                if in_section { sections.last_mut().map(|section| &mut section.comments) } else { None };
            section_comments.unwrap_or(&mut comments).push(comment.trim().to_owned());
        } else if trimmed.is_empty() {
            in_section = false;
        } else if content.starts_with(char::is_whitespace) {
            let section = sections.last_mut().filter(|_| in_section).ok_or_else(|| {
                Problem::new(
                    line,
                    format!(
                        "{trimmed:?} is outside of a section; a section begins with a line such as vm: 100"
                    ),
                )
            })?;
            add_property(section, trimmed, line)?;
        } else {
            let section =
                Section { comments: std::mem::take(&mut comments), ..parse_first_line(trimmed, line)? };
            if let Some(first_section) = sections.iter().find(|other| other.name == section.name) {
                let text =
                    format!("{} is specified twice, first in line {}", section.name, first_section.line);
                return Err(Problem::new(line, text));
            }
            sections.push(section);
            in_section = true;
        }
    }
    if let Some(last) = sections.last_mut() {
        last.comments.append(&mut comments);
    }
    Ok(sections)
}

fn parse_first_line(trimmed: &str, line: usize) -> Result<Section, Problem> {
    let expected = || {
        Problem::new(
            line,
            format!("{trimmed:?} does not begin a section: expected a type and a name, such as vm: 100"),
        )
    };
    let (type_name, name) = trimmed.split_once(':').ok_or_else(expected)?;
    let name = name.trim();
    let is_word = |text: &str| !text.is_empty() && !text.contains(char::is_whitespace);
    if !is_word(type_name) || !is_word(name) {
        return Err(expected());
    }
    Ok(Section {
        type_name: type_name.to_ascii_lowercase(),
        name: name.to_owned(),
        line,
        ..Section::default()
    })
}

fn add_property(section: &mut Section, trimmed: &str, line: usize) -> Result<(), Problem> {
    let (name, value) = trimmed.split_once(char::is_whitespace).unwrap_or((trimmed, ""));
    if let Some(first_property) = section.properties.iter().find(|property| property.name == name) {
        let text =
            format!("{name} of {} is specified twice, first in line {}", section.name, first_property.line);
        return Err(Problem::new(line, text));
    }
    section.properties.push(Property { name: name.to_owned(), value: value.trim().to_owned(), line });
    Ok(())
}

impl Property {
    /// Parses a boolean; a property without a value is `true`.
    pub(super) fn boolean(&self) -> Result<bool, Problem> {
        match self.value.to_ascii_lowercase().as_str() {
            "" | "1" | "on" | "yes" | "true" => Ok(true),
            "0" | "off" | "no" | "false" => Ok(false),
            _ => Err(self.expected("1 or 0")),
        }
    }

    /// Parses a non-negative integer.
    pub(super) fn count(&self) -> Result<u32, Problem> {
        self.value.parse().map_err(|_| self.expected("an integer of at least 0"))
    }

    /// Returns the value with `%` and two digits decoded to a byte.
    pub(super) fn decoded(&self) -> String {
        percent_encoding::percent_decode_str(&self.value)
            .decode_utf8()
            .map_or_else(|_| self.value.clone(), std::borrow::Cow::into_owned)
    }

    /// Returns the error that another value was expected.
    pub(super) fn expected(&self, expected: &str) -> Problem {
        Problem::new(self.line, format!("{}: expected {expected}, found {:?}", self.name, self.value))
    }
}

/// Splits a list at commas, semicolons and white space.
pub(super) fn list(text: &str) -> Vec<&str> {
    text.split([',', ';', ' ', '\t']).filter(|part| !part.is_empty()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, expected: Result<&str, (usize, &str)>) {
        let actual = sections(text).map(|sections| {
            let section_text = |section: &Section| {
                let properties: Vec<String> = section
                    .properties
                    .iter()
                    .map(|property| format!("{}={}", property.name, property.value))
                    .collect();
                let comments = section.comments.join("|");
                format!("{}:{}({})[{comments}]", section.type_name, section.name, properties.join(","))
            };
            sections.iter().map(section_text).collect::<Vec<String>>().join(" ")
        });
        match (actual, expected) {
            (Ok(actual), Ok(expected)) => assert_eq!(actual, expected, "{text}"),
            (Err(problem), Err((line, part))) => {
                assert!(problem.line == line && problem.text.contains(part), "{problem:?} of {text}");
            }
            (actual, _) => panic!("{actual:?} of {text}"),
        }
    }

    #[test]
    fn sections_end_at_empty_line_or_header() {
        check("", Ok(""));
        check(
            "vm: 501\n    state started\n    max_relocate 2\n\nct: 102\n    # defaults\n",
            Ok("vm:501(state=started,max_relocate=2)[] ct:102()[defaults]"),
        );
        check(
            "# web\nvm:1\n\tcomment a  b \nct: 2\n\tdisable\n",
            Ok("vm:1(comment=a  b)[web] ct:2(disable=)[]"),
        );
        check("VM: 1\n\n# a\nct: 2\n\n# b\n#\tc", Ok("vm:1()[] ct:2()[a|b|c]"));
        check("vm: 1\n\n\tstate started\n", Err((3, "is outside of a section")));
        check("\tstate started\n", Err((1, "is outside of a section")));
        check("state started\n", Err((1, "does not begin a section")));
        check("vm:\n", Err((1, "does not begin a section")));
        check("vm: 1 2\n", Err((1, "does not begin a section")));
        check("vm: 1\n\nct: 1\n", Err((3, "twice, first in line 1")));
        check("vm: 1\n\tstate a\n\tstate b\n", Err((3, "state of 1 is specified twice, first in line 2")));
    }

    #[test]
    fn values_are_read_or_refused_with_their_line() {
        let property = |value: &str| Property { name: "x".to_owned(), value: value.to_owned(), line: 7 };
        assert_eq!(property("").boolean(), Ok(true));
        assert_eq!(property("No").boolean(), Ok(false));
        assert_eq!(property("2").boolean(), Err(Problem::new(7, "x: expected 1 or 0, found \"2\"")));
        assert_eq!(property("12").count(), Ok(12));
        assert!(property("-1").count().is_err() && property("").count().is_err());
        assert_eq!(property("100%25 f%C3%BCr%0Aalle").decoded(), "100% für\nalle");
        assert_eq!(property("100% sure %ff").decoded(), "100% sure %ff");
        assert_eq!(list("node2:1, node4;node1:2"), ["node2:1", "node4", "node1:2"]);
    }
}
