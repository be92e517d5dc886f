//! The short help of clap: the first paragraph of the doc comments in types that derive its traits.

use super::{Kind, Text};

/// Traits of clap whose fields and variants have a help.
const TRAITS: [&str; 4] = ["Args", "Parser", "Subcommand", "ValueEnum"];

/// Attributes of clap whose value is a short help.
const ATTRIBUTES: [&str; 2] = ["about = ", "help = "];

/// Position relative to the first paragraph of a doc comment.
#[derive(Clone, Copy)]
enum Paragraph {
    Before,
    Within,
    After,
}

/// Returns `true` if the source before a literal ends in an attribute that holds a short help.
pub(super) fn is_help_value(before: &str) -> bool {
    let attribute = before.rfind("#[").map_or("", |at| &before[at..]);
    let names = |name: &str| attribute.strip_suffix(name).is_some_and(|rest| rest.ends_with(['(', ' ']));
    !attribute.contains(']') && ATTRIBUTES.into_iter().any(names)
}

/// Returns the short help of each field and variant.
pub(super) fn extract(source: &str) -> Vec<Text> {
    let lines: Vec<&str> = source.lines().collect();
    let derived = (0..lines.len()).filter(|at| derives(lines[*at]));
    derived.flat_map(|at| helps_of_type(&lines, at)).collect()
}

fn derives(line: &str) -> bool {
    let traits = line.trim_start().strip_prefix("#[derive(").unwrap_or_default();
    let mut names = traits.split([',', ')']).filter_map(|path| path.trim().rsplit("::").next());
    names.any(|name| TRAITS.contains(&name))
}

/// Returns the help in the type that is declared after line `at`. The doc comment of the type itself is not shown where a
/// command flattens the type.
fn helps_of_type(lines: &[&str], at: usize) -> Vec<Text> {
    let indent = lines[at].len() - lines[at].trim_start().len();
    let end = format!("{}}}", &lines[at][..indent]);
    let declared = lines[at..].iter().position(|line| line.contains("struct ") || line.contains("enum "));
    let Some(begin) = declared.map(|declared| at + declared).filter(|begin| lines[*begin].ends_with('{'))
    else {
        return Vec::new();
    };
    let mut texts: Vec<Text> = Vec::new();
    let mut paragraph = Paragraph::Before;
    for (line, words) in (begin + 2..).zip(&lines[begin + 1..]).take_while(|(_, words)| **words != end) {
        paragraph = match (words.trim().strip_prefix("///").map(str::trim), paragraph) {
            (None, _) => Paragraph::Before,
            (Some(""), _) | (Some(_), Paragraph::After) => Paragraph::After,
            (Some(words), Paragraph::Before) => {
                texts.push(Text { kind: Kind::Help, line, words: words.to_owned() });
                Paragraph::Within
            }
            (Some(words), Paragraph::Within) => {
                if let Some(help) = texts.last_mut() {
                    help.words = format!("{} {words}", help.words);
                }
                Paragraph::Within
            }
        };
    }
    texts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn help_text_is_the_first_doc_paragraph() {
        let source = "/// Not shown.\n#[derive(Debug, clap::Args)]\n#[command(about = \"x\")]\nstruct A {\n    /// One\n    \
                      /// two\n    ///\n    /// More.\n    a: B,\n    /// Three\n    b: C,\n}\n/// Other.\nfn f() {}\n";
        let texts = extract(source);
        let actual: Vec<_> = texts.iter().map(|text| (text.line, text.words.as_str())).collect();
        assert_eq!(actual, [(5, "One two"), (10, "Three")]);
        assert_eq!(extract("#[derive(Args)]\nstruct A;\n/// Other.\nfn f() {}\n"), []);
        for (before, expected) in [
            ("#[arg(long, help = ", true),
            ("#[command(\n    about = ", true),
            ("#[command(after_help = ", false),
            ("#[test]\nfn f() { let help = ", false),
            ("#[derive(Args)]\nlet help = ", false),
        ] {
            assert_eq!(is_help_value(before), expected, "{before}");
        }
    }
}
