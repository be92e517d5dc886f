//! The rules, and the words of the glossary.

use super::texts::{Kind, Text};

/// Words that open no message, because they name no subject (rule 1).
const OPENINGS: [&str; 8] = ["it", "its", "they", "there", "what", "who", "whoever", "nobody"];

/// Words for people that are not used for services, nodes and processes (rule 4).
const PERSONS: [&str; 6] = ["who", "whom", "whoever", "nobody", "somebody", "everybody"];

/// Words for people, after which the pronoun for people is correct.
const PEOPLE: [&str; 16] = [
    "people",
    "person",
    "operator",
    "operators",
    "user",
    "users",
    "administrator",
    "administrators",
    "engineer",
    "engineers",
    "those",
    "anyone",
    "someone",
    "everyone",
    "reader",
    "readers",
];

/// The glossary (rule 5): phrases that are not used, with the word to use.
const GLOSSARY: [(&str, &str); 33] = [
    ("folder", "directory"),
    ("folders", "directories"),
    ("proven dead", "fencing confirmed"),
    ("not heard", "unreachable"),
    ("heard again", "reachable again"),
    ("let in again", "reconnected"),
    ("find a place", "be scheduled"),
    ("finds a place", "is scheduled"),
    ("found a place", "was scheduled"),
    ("look for a place", "be scheduled"),
    ("looks for a place", "is scheduled"),
    ("looked for a place", "was scheduled"),
    ("a place is looked for", "scheduling"),
    ("anew", "again"),
    ("afresh", "again"),
    ("for ever", "indefinitely"),
    ("by itself", "automatically"),
    ("one after the other", "one at a time"),
    ("what would help", "suggested actions"),
    ("what speaks against", "blocking reason"),
    ("moves live", "live-migrates"),
    ("thought through", "simulated"),
    ("called off", "canceled"),
    ("out of order", "unclean"),
    ("last words", "shutdown record"),
    ("made sure", "confirmed"),
    ("in force", "active"),
    ("under way", "in progress"),
    ("mend", "fix"),
    ("mends", "fixes"),
    ("mended", "fixed"),
    ("look after", "manage"),
    ("upon", "on"),
];

/// Phrases that are not used in texts for users; in comments they are terms of the code (rule 5).
const FOR_USERS: [(&str, &str); 4] = [
    ("the store", "etcd"),
    ("proven gone", "fencing confirmed"),
    ("hand-over", "cutover"),
    ("stand-in", "simulated watchdog"),
];

/// Most columns of a Markdown line (rule 14). Tables and lines with a link that alone is longer cannot be wrapped.
const COLUMNS: usize = 120;
/// Most characters of an alert's summary.
const SUMMARY: usize = 60;

/// Returns a sentence for every rule that a text breaks.
pub(super) fn broken(text: &Text) -> impl Iterator<Item = String> {
    let words = words(&text.words);
    let mut found = Vec::new();
    match text.kind {
        Kind::Line => found.extend(too_long(&text.words)),
        Kind::Fence => {
            found.extend((text.words.trim() == "```").then(|| "a code fence names its language".to_owned()));
        }
        Kind::Prose => found.extend([persons(&words), glossary(&words, true)].concat()),
        Kind::Comment => found.extend([persons(&words), glossary(&words, false)].concat()),
        Kind::FunctionDoc => {
            found.extend([persons(&words), glossary(&words, false)].concat());
            let is_question = words.first().is_some_and(|first| first == "whether");
            found.extend(
                is_question.then(|| "the doc of a function opens with \"Returns `true` if\"".to_owned()),
            );
        }
        Kind::Message => found.extend([opening(&words), persons(&words), glossary(&words, true)].concat()),
        Kind::Log => {
            found.extend([opening(&words), persons(&words), glossary(&words, true)].concat());
            found.extend(log(&text.words));
        }
        Kind::AlertSummary => {
            let length = text.words.chars().count();
            found.extend(
                (length > SUMMARY)
                    .then(|| format!("a summary of {length} characters, at most {SUMMARY} fit")),
            );
            found.extend([persons(&words), glossary(&words, true)].concat());
        }
    }
    found.into_iter()
}

/// Returns the words of a text in lower case, with hyphens kept inside of them.
fn words(text: &str) -> Vec<String> {
    let is_part = |character: char| character.is_alphanumeric() || "-_'{}".contains(character);
    text.to_lowercase()
        .split(|character: char| !is_part(character))
        .filter(|word| !word.is_empty())
        .map(str::to_owned)
        .collect()
}

fn opening(words: &[String]) -> Vec<String> {
    let first = words.first().filter(|first| OPENINGS.contains(&first.as_str()));
    first.map(|first| format!("the message opens with \"{first}\": name the subject")).into_iter().collect()
}

fn persons(words: &[String]) -> Vec<String> {
    let is_person = |at: usize| at > 0 && PEOPLE.contains(&words[at - 1].as_str());
    let wrong =
        words.iter().enumerate().find(|(at, word)| PERSONS.contains(&word.as_str()) && !is_person(*at));
    wrong
        .map(|(_, word)| format!("\"{word}\": services, nodes and programs are not persons"))
        .into_iter()
        .collect()
}

fn glossary(words: &[String], is_for_users: bool) -> Vec<String> {
    let has = |phrase: &str| {
        let phrase: Vec<&str> = phrase.split(' ').collect();
        words.windows(phrase.len()).any(|window| window.iter().zip(&phrase).all(|(word, part)| word == part))
    };
    let for_users = FOR_USERS.iter().filter(|_| is_for_users);
    let wrong = GLOSSARY.iter().chain(for_users).filter(|(phrase, _)| has(phrase));
    wrong.map(|(phrase, instead)| format!("\"{phrase}\": the glossary says \"{instead}\"")).collect()
}

fn too_long(line: &str) -> Option<String> {
    let columns = line.chars().count();
    let can_be_wrapped = !line.trim_start().starts_with(['|', '<']) && !line.contains("](http");
    (columns > COLUMNS && can_be_wrapped).then(|| format!("{columns} columns, at most {COLUMNS} fit"))
}

fn log(message: &str) -> Option<String> {
    if message.contains('{') {
        return Some("a log message is constant: variables are fields".to_owned());
    }
    // An abbreviation such as TLS keeps its capitals.
    let first = message.split(' ').next().unwrap_or_default();
    let opens_lower =
        !first.starts_with(char::is_uppercase) || first.chars().nth(1).is_some_and(char::is_uppercase);
    (!opens_lower || message.ends_with('.'))
        .then(|| "a log message opens in lower case and ends without a full stop".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(kind: Kind, words: &str, expected: Option<&str>) {
        let found: Vec<String> = broken(&Text { kind, line: 1, words: words.to_owned() }).collect();
        let holds = expected.map_or(found.is_empty(), |part| found.len() == 1 && found[0].contains(part));
        assert!(holds, "{words}: {found:?}");
    }

    /// A planted violation of each rule, next to a text that keeps the rule.
    #[test]
    fn each_rule_is_checked() {
        check(Kind::Message, "it is stopped as desired", Some("name the subject"));
        check(Kind::Message, "Resource stopped, as it should", None);
        check(Kind::Comment, "The service who runs here.", Some("not persons"));
        check(Kind::Comment, "Nobody writes this key.", Some("not persons"));
        check(Kind::Comment, "The operator who asked.", None);
        check(Kind::Prose, "Files lie in one folder.", Some("directory"));
        check(Kind::Prose, "The agent starts anew.", Some("again"));
        check(Kind::Prose, "The store is unreachable.", Some("etcd"));
        check(Kind::Comment, "The store applies the write.", None);
        check(Kind::Message, "a move was called off", Some("canceled"));
        check(Kind::FunctionDoc, "Whether a node is late.", Some("Returns `true` if"));
        check(Kind::Log, "Watch failed", Some("lower case"));
        check(Kind::Log, "watch failed.", Some("lower case"));
        check(Kind::Log, "watch of {key} failed", Some("constant"));
        check(Kind::Log, "etcd watch failed, retrying", None);
        check(Kind::Log, "TLS handshake failed", None);
        check(Kind::Line, &"word ".repeat(30), Some("150 columns"));
        check(Kind::Line, &format!("| {}", "word ".repeat(30)), None);
        check(Kind::Fence, "```", Some("language"));
        check(Kind::Fence, "```console", None);
        check(Kind::AlertSummary, &"word ".repeat(13), Some("65 characters"));
        check(Kind::AlertSummary, "No controller is leader", None);
    }
}
