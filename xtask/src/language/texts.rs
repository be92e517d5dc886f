//! The texts of a file: prose of Markdown pages, comments, and the messages in string literals of programs.

mod help;
mod sentences;

use std::iter::Peekable;
use std::str::CharIndices;

/// Kind of a text, which decides the rules that hold for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// A line of a Markdown page outside code fences, without inline code and link targets.
    Prose,
    /// A line of a Markdown page as it is in the file.
    Line,
    /// The opening line of a code fence, without its indentation.
    Fence,
    /// A sentence of a Markdown page outside code fences, tables and headings, without inline code and link targets.
    Sentence,
    /// A line of a comment after its first one.
    Comment,
    /// The first line of a comment that is not a doc comment.
    FirstComment,
    /// The first line of a function's doc comment.
    FunctionDoc,
    /// The first line of another item's doc comment.
    ItemDoc,
    /// The short help of a command, option or value.
    Help,
    /// A string literal of at least three words in code that is not a test.
    Message,
    /// The message of a log macro.
    Log,
    /// The summary of an alert.
    AlertSummary,
    /// The first line of a commit message.
    Commit,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Text {
    pub(super) kind: Kind,
    /// Line in the file, from 1.
    pub(super) line: usize,
    pub(super) words: String,
}

/// Returns the texts of a file; none for files that hold no text of the project.
pub(super) fn extract(path: &str, source: &str) -> Vec<Text> {
    let extension = path.rsplit('.').next().unwrap_or_default();
    match extension {
        "md" => [markdown_texts(source), sentences::extract(source)].concat(),
        "rs" => [rust_texts(source, is_test(path)), help::extract(source)].concat(),
        "yaml" | "yml" if path.starts_with("manifests/prometheus/") => {
            [hash_comments(source), alert_texts(source)].concat()
        }
        "ts" | "tsx" | "mjs" => script_texts(source, is_test(path)),
        "txt" if path.starts_with("charts/") => prose_lines(source),
        "roff" => prose_lines(source),
        "patch" => hash_comments(patch_header(source)),
        "sh" | "py" | "yaml" | "yml" | "service" | "toml" | "conf" => hash_comments(source),
        _ if source.starts_with("#!") || path.starts_with("manifests/default/") => hash_comments(source),
        _ => Vec::new(),
    }
}

fn is_test(path: &str) -> bool {
    ["e2e/", "simulator/", "xtask/", "console/tests/"].iter().any(|test_crate| path.starts_with(test_crate))
        || ["/tests/", "/tests.rs", "/testing", "/benches/", "/examples/"]
            .iter()
            .any(|part| path.contains(part))
}

fn markdown_texts(source: &str) -> Vec<Text> {
    let mut texts = Vec::new();
    let mut is_code = false;
    for (line, words) in (1..).zip(source.lines()) {
        let trimmed = words.trim_start();
        if is_fence(trimmed) {
            is_code = !is_code;
            if is_code {
                texts.push(Text { kind: Kind::Fence, line, words: trimmed.to_owned() });
            }
        } else if !is_code {
            texts.push(Text { kind: Kind::Line, line, words: words.to_owned() });
            texts.push(Text { kind: Kind::Prose, line, words: without_targets(&without_code(words)) });
        }
    }
    texts
}

/// Returns `true` if a line opens or closes a code fence.
fn is_fence(trimmed: &str) -> bool {
    trimmed.starts_with("```") || trimmed.starts_with("~~~")
}

/// Returns a line without inline code.
fn without_code(line: &str) -> String {
    line.split('`').step_by(2).collect::<Vec<_>>().join("")
}

/// Returns a line without the targets of links.
fn without_targets(line: &str) -> String {
    let mut parts = line.split("](");
    let mut prose = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        prose.push(']');
        prose.push_str(part.split_once(')').map_or("", |(_, rest)| rest));
    }
    prose
}

fn hash_comments(source: &str) -> Vec<Text> {
    let of = |line: &str| line.trim_start().strip_prefix("# ").map(|words| without_code(words.trim()));
    let mut is_first = true;
    let comment = |(line, words): (usize, &str)| {
        let words = of(words);
        let kind = if is_first { Kind::FirstComment } else { Kind::Comment };
        is_first = words.is_none();
        words.map(|words| Text { kind, line, words })
    };
    (1..).zip(source.lines()).filter_map(comment).collect()
}

/// Returns the header of a mutant's patch, without the code that the patch quotes.
fn patch_header(source: &str) -> &str {
    source.split_once("\n--- ").map_or(source, |(header, _)| header)
}

/// Returns the summaries and descriptions of alerts.
fn alert_texts(source: &str) -> Vec<Text> {
    let keys = [("summary:", Kind::AlertSummary), ("description:", Kind::Message)];
    let text = |(line, words): (usize, &str)| {
        let words = words.trim_start();
        let (value, kind) = keys.iter().find_map(|(key, kind)| Some((words.strip_prefix(key)?, *kind)))?;
        Some(Text { kind, line, words: value.trim().trim_matches(['\'', '"']).to_owned() })
    };
    (1..).zip(source.lines()).filter_map(text).collect()
}

/// Returns each line of a file without markup of its own as prose.
fn prose_lines(source: &str) -> Vec<Text> {
    (1..)
        .zip(source.lines())
        .map(|(line, words)| Text { kind: Kind::Prose, line, words: words.to_owned() })
        .collect()
}

/// Returns the line comments of a TypeScript file, and its quoted texts if the file is not a test.
fn script_texts(source: &str, is_test: bool) -> Vec<Text> {
    let mut texts = Vec::new();
    let mut is_first = true;
    for (line, words) in (1..).zip(source.lines()) {
        let trimmed = words.trim_start();
        if let Some(comment) = trimmed.strip_prefix("//") {
            let kind = if is_first { Kind::FirstComment } else { Kind::Comment };
            texts.push(Text { kind, line, words: without_code(comment.trim()) });
        } else if !is_test {
            texts.extend(quoted(words).map(|words| Text {
                kind: Kind::Message,
                line,
                words: words.to_owned(),
            }));
        }
        is_first = !trimmed.starts_with("//");
    }
    texts
}

/// Returns the quoted texts of a line that have at least three words.
fn quoted(line: &str) -> impl Iterator<Item = &str> {
    let parts = line.split(['\'', '"', '`']).skip(1).step_by(2);
    parts.filter(|words| words.split_whitespace().count() > 2)
}

/// Returns the comments of a Rust file, and its string literals with the enclosing macro.
fn rust_texts(source: &str, is_test: bool) -> Vec<Text> {
    let tests_begin = source.find("#[cfg(test)]").unwrap_or(source.len());
    let mut texts = Vec::new();
    let mut characters = source.char_indices().peekable();
    let (mut line, mut counted_until) = (1, 0);
    while let Some((index, character)) = characters.next() {
        let rest = &source[index..];
        if rest.starts_with("//") {
            let end = rest.find('\n').unwrap_or(rest.len());
            line += source[counted_until..index].matches('\n').count();
            counted_until = index;
            let words = rest[..end].trim_start_matches(['/', '!']).trim();
            let kind = comment_kind(source, index);
            texts.push(Text { kind, line, words: without_code(words) });
            skip_to(&mut characters, index + end);
        } else if character == '\'' {
            // A character literal; everything else is a lifetime.
            let literal = rest.strip_prefix("'\\").map_or_else(
                || rest.char_indices().nth(2).filter(|(_, end)| *end == '\'').map(|(end, _)| end + 1),
                |escaped| {
                    escaped.char_indices().skip(1).find(|(_, end)| *end == '\'').map(|(end, _)| end + 3)
                },
            );
            skip_to(&mut characters, index + literal.unwrap_or(1));
        } else if let Some((words, length)) = literal(rest) {
            line += source[counted_until..index].matches('\n').count();
            counted_until = index;
            if !is_test && index < tests_begin && !source[..index].ends_with("reason = ") {
                let kind = if is_logged(&source[..index]) { Kind::Log } else { Kind::Message };
                if help::is_help_value(&source[..index]) {
                    texts.push(Text { kind: Kind::Help, line, words: words.clone() });
                }
                if kind == Kind::Log || words.split_whitespace().count() > 2 {
                    texts.push(Text { kind, line, words });
                }
            }
            skip_to(&mut characters, index + length);
        } else if character.is_alphanumeric() || character == '_' {
            // Skip the rest of the word, so that its last letter does not count as the prefix of a raw string.
            let end = rest.find(|other: char| !other.is_alphanumeric() && other != '_').unwrap_or(rest.len());
            skip_to(&mut characters, index + end);
        }
    }
    texts
}

/// Returns the kind of the comment line at this offset. A line continues the line above if both have the same marker.
fn comment_kind(source: &str, index: usize) -> Kind {
    let marker =
        |line: &str| ["///", "//!", "//"].into_iter().find(|marker| line.trim_start().starts_with(marker));
    let doc_comment = marker(&source[index..]);
    let before = source[..index].trim_end_matches([' ', '\t']);
    let line_above = before.strip_suffix('\n').and_then(|before| before.lines().next_back());
    let above = line_above.and_then(marker);
    let is_new_paragraph = doc_comment.is_some() && line_above.map(str::trim) == doc_comment;
    let is_of_item = |line: &&str| marker(line) != Some("///") && !line.trim_start().starts_with("#[");
    let item = source[index..].lines().find(is_of_item);
    match doc_comment {
        _ if is_new_paragraph => Kind::FirstComment,
        _ if above == doc_comment => Kind::Comment,
        Some("///") if item.is_some_and(|item| item.contains("fn ")) => Kind::FunctionDoc,
        Some("///" | "//!") => Kind::ItemDoc,
        _ => Kind::FirstComment,
    }
}

fn skip_to(characters: &mut Peekable<CharIndices<'_>>, end: usize) {
    while characters.peek().is_some_and(|(index, _)| *index < end) {
        characters.next();
    }
}

/// Returns the text of a string literal at the start of `rest`, with lines joined as the compiler joins them, and its length.
fn literal(rest: &str) -> Option<(String, usize)> {
    let prefix = rest.len() - rest.trim_start_matches(['b', 'r', 'c']).len();
    let hashes = rest[prefix..].len() - rest[prefix..].trim_start_matches('#').len();
    let is_raw = rest[..prefix].contains('r');
    let begin = prefix + hashes;
    if prefix > 2 || (hashes > 0 && !is_raw) || !rest[begin..].starts_with('"') {
        return None;
    }
    let inside = &rest[begin + 1..];
    let close = format!("\"{}", "#".repeat(hashes));
    let mut end = 0;
    while !inside[end..].starts_with(&close) {
        let step = inside[end..].chars().next()?;
        end += step.len_utf8();
        if step == '\\' && !is_raw {
            end += inside[end..].chars().next()?.len_utf8();
        }
    }
    let mut words = String::new();
    for (number, part) in inside[..end].split("\\\n").enumerate() {
        words.push_str(if number == 0 { part } else { part.trim_start() });
    }
    Some((words, begin + 1 + end + close.len()))
}

/// Returns `true` if the source before a literal ends in the arguments of a log macro, and the literal is not the
/// value of a field.
fn is_logged(before: &str) -> bool {
    let Some(index) = before.rfind("tracing::") else { return false };
    let call = &before[index..];
    let is_log = ["error!(", "warn!(", "info!(", "debug!("].iter().any(|name| call[9..].starts_with(name));
    is_log && !call.contains(';') && call.trim_end().ends_with(['(', ',']) && !call.ends_with("format!(")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(path: &str, source: &str, expected: &[(Kind, usize, &str)]) {
        let texts = extract(path, source);
        let actual: Vec<_> = texts.iter().map(|text| (text.kind, text.line, text.words.as_str())).collect();
        assert_eq!(actual, expected, "{source}");
    }

    #[test]
    fn prose_excludes_code_and_link_targets() {
        let page = "See `the code` and [a page](folder/page.md).\n```sh\nwho\n```\n";
        let line = "See `the code` and [a page](folder/page.md).";
        let prose = (Kind::Prose, 1, "See  and [a page].");
        let sentence = (Kind::Sentence, 1, "See and [a page].");
        check("a.md", page, &[(Kind::Line, 1, line), prose, (Kind::Fence, 2, "```sh"), sentence]);
    }

    #[test]
    fn rust_comments_messages_and_logs_are_extracted() {
        let source = "//! Opens.\n/// Whether.\n/// More.\n#[must_use]\nfn f<'a>(c: char) {\n    g('\"', '\\'', \"one two\"); // why\n    \
                      tracing::warn!(error = %e, \"etcd failed\");\n    h(r#\"three \"or\" four\"#, \"joined \\\n  \
                      line here\");\n}\n#[cfg(test)]\nfn t() { g(\"a text of tests\"); }\n";
        let expected = [
            (Kind::ItemDoc, 1, "Opens."),
            (Kind::FunctionDoc, 2, "Whether."),
            (Kind::Comment, 3, "More."),
            (Kind::FirstComment, 6, "why"),
            (Kind::Log, 7, "etcd failed"),
            (Kind::Message, 8, "three \"or\" four"),
            (Kind::Message, 8, "joined line here"),
        ];
        check("hactl/src/a.rs", source, &expected);
        let paragraphs = "//! Opens.\n//!\n//! It goes on.\n//! More.\n";
        let expected = [
            (Kind::ItemDoc, 1, "Opens."),
            (Kind::Comment, 2, ""),
            (Kind::FirstComment, 3, "It goes on."),
            (Kind::Comment, 4, "More."),
        ];
        check("hactl/src/a.rs", paragraphs, &expected);
        check("e2e/src/a.rs", "// why\nfn f() { g(\"a text of tests\") }", &[(Kind::FirstComment, 1, "why")]);
    }

    #[test]
    fn texts_outside_of_rust_and_markdown_are_extracted() {
        check("a.patch", "# Why\n--- a/a.rs\n+# code\n", &[(Kind::FirstComment, 1, "Why")]);
        check("manifests/default/a", "# Why\n#A=1\n", &[(Kind::FirstComment, 1, "Why")]);
        check("charts/a/NOTES.txt", "Run it\n", &[(Kind::Prose, 1, "Run it")]);
        check("a.roff", ".SH FILES\n", &[(Kind::Prose, 1, ".SH FILES")]);
        let script = "// Why\n// More words\nf('no', 'one two three'); // after\n";
        let comments = [(Kind::FirstComment, 1, "Why"), (Kind::Comment, 2, "More words")];
        let message = (Kind::Message, 3, "one two three");
        check("console/src/a.ts", script, &[comments[0], comments[1], message]);
        check("console/tests/a.ts", script, &comments);
        let description = "    description: 'No leader runs'\n";
        check("manifests/prometheus/rules.yaml", description, &[(Kind::Message, 1, "No leader runs")]);
    }

    #[test]
    fn script_comments_and_alert_summaries_are_extracted() {
        check(
            "dev/a",
            "#!/bin/sh\n# Why\n# More\nx=1 # not this\n#no\n",
            &[(Kind::FirstComment, 2, "Why"), (Kind::Comment, 3, "More")],
        );
        let rule = "    summary: No leader\n";
        check("manifests/prometheus/rules.yaml", rule, &[(Kind::AlertSummary, 1, "No leader")]);
    }
}
