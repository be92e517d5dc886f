//! The sentences of a Markdown page, joined over the lines that they are wrapped to.

use super::{Kind, Text, is_fence, without_code, without_targets};

/// Returns the sentences of paragraphs and list items. Tables, headings, code fences and HTML have none.
pub(super) fn extract(source: &str) -> Vec<Text> {
    let mut texts = Vec::new();
    let mut paragraph = Text { kind: Kind::Sentence, line: 1, words: String::new() };
    let mut is_code = false;
    for (line, words) in (1..).zip(source.lines()) {
        let words = words.trim().trim_start_matches("> ");
        is_code ^= is_fence(words);
        let is_prose =
            !is_code && !words.is_empty() && !is_fence(words) && !words.starts_with(['|', '#', '<']);
        let item = words.strip_prefix("- ").or_else(|| numbered(words));
        if !is_prose || item.is_some() {
            texts.extend(split(&paragraph));
            paragraph.words.clear();
        }
        if is_prose {
            if paragraph.words.is_empty() {
                paragraph.line = line;
            }
            paragraph.words.push_str(item.unwrap_or(words));
            paragraph.words.push(' ');
        }
    }
    texts.extend(split(&paragraph));
    texts
}

/// Returns the text of an item of a numbered list.
fn numbered(line: &str) -> Option<&str> {
    let (number, item) = line.split_once(". ")?;
    number.chars().all(|character| character.is_ascii_digit()).then_some(item)
}

/// Returns the sentences of a paragraph. A colon also ends a sentence, because a list or an example follows.
fn split(paragraph: &Text) -> Vec<Text> {
    let prose = without_targets(&without_code(&paragraph.words));
    let mut sentences = vec![String::new()];
    for word in prose.split_whitespace() {
        if let Some(sentence) = sentences.last_mut() {
            if !sentence.is_empty() {
                sentence.push(' ');
            }
            sentence.push_str(word);
        }
        if word.trim_end_matches([')', '"', '*', ']']).ends_with(['.', '?', '!', ':']) && word != "e.g." {
            sentences.push(String::new());
        }
    }
    sentences.retain(|sentence| !sentence.is_empty());
    sentences.into_iter().map(|words| Text { words, ..paragraph.clone() }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sentences_are_joined_across_lines() {
        let page = "# A title\nOne two\nthree. Four `five`\n- item: six\n  seven\n1. eight\n\n| a | b |\n~~~text\ncode\n~~~\n";
        let texts = extract(page);
        let actual: Vec<_> = texts.iter().map(|text| (text.line, text.words.as_str())).collect();
        let expected = [(2, "One two three."), (2, "Four"), (4, "item:"), (4, "six seven"), (6, "eight")];
        assert_eq!(actual, expected);
    }
}
