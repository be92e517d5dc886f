//! The rules, with the words that the guide replaces.

use super::texts::{Kind, Text};

/// Words with which a message must not begin, because they name no subject (rule 1).
const FORBIDDEN_OPENINGS: [&str; 8] = ["it", "its", "they", "there", "what", "who", "whoever", "nobody"];

/// Words for people that are not used for services, nodes and processes (rule 4).
const PERSON_PRONOUNS: [&str; 6] = ["who", "whom", "whoever", "nobody", "somebody", "everybody"];

/// Words for people, after which the pronoun for people is correct.
const PERSON_NOUNS: [&str; 16] = [
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

/// Heading of the table in the guide that holds the words.
const GLOSSARY_HEADING: &str = "## Words";
/// Mark of a phrase that is only replaced in texts for users; in comments it is a term of the code.
const USER_TEXTS_MARK: &str = " (for users)";

/// A phrase that texts must not contain, and its replacement (rule 5).
#[derive(Debug)]
struct ReplacedPhrase {
    phrase: Vec<String>,
    is_for_users: bool,
    replacement: String,
}

/// The words that the guide replaces.
#[derive(Debug)]
pub(super) struct Glossary(Vec<ReplacedPhrase>);

impl Glossary {
    /// Reads the table of the guide: phrases separated by commas, and the words to use.
    pub(super) fn read(guide: &str) -> Glossary {
        let table = guide.split_once(GLOSSARY_HEADING).map_or("", |(_, table)| table);
        let rows = table.lines().skip_while(|line| !line.starts_with("|---")).skip(1);
        let cells = rows.filter_map(|row| row.trim_matches('|').split_once('|'));
        let replaced = cells.flat_map(|(phrases, replacement)| {
            phrases.split(',').map(|phrase| ReplacedPhrase {
                phrase: words(phrase.replace(USER_TEXTS_MARK, "").trim()),
                is_for_users: phrase.trim().ends_with(USER_TEXTS_MARK.trim()),
                replacement: replacement.trim().to_owned(),
            })
        });
        Glossary(replaced.collect())
    }

    fn violations(&self, words: &[String], is_for_users: bool) -> Vec<String> {
        let contains = |phrase: &[String]| words.windows(phrase.len()).any(|window| window == phrase);
        let wrong = self.0.iter().filter(|replaced| is_for_users || !replaced.is_for_users);
        wrong
            .filter(|replaced| contains(&replaced.phrase))
            .map(|replaced| {
                format!("\"{}\": the guide says \"{}\"", replaced.phrase.join(" "), replaced.replacement)
            })
            .collect()
    }
}

/// Maximum number of words between `another` and `than` in one comparison.
const MAX_COMPARED_WORDS: usize = 3;

/// Maximum number of columns of a Markdown line (rule 14). Tables, and lines with a longer link, cannot be wrapped.
const MAX_LINE_COLUMNS: usize = 120;
/// Maximum number of characters of an alert's summary.
const MAX_SUMMARY_CHARACTERS: usize = 60;
/// Maximum number of characters of a short help and of a commit's subject.
const MAX_HELP_CHARACTERS: usize = 72;
/// Maximum number of characters of a short help that is a warning, because the consequence comes before the action.
const MAX_WARNING_CHARACTERS: usize = 110;
/// Maximum number of words of a sentence in a page, not counting inline code. The guide asks for 25, and the check
/// leaves a margin for single sentences.
const MAX_SENTENCE_WORDS: usize = 30;

/// Words with which a comment must not begin, because the noun to which they refer is elsewhere.
const PRONOUNS: [&str; 6] = ["it", "its", "they", "their", "them", "there"];
/// Words with which a doc comment must not begin, because a clause without a main noun follows (rule 3).
const HEADLESS_PRONOUNS: [&str; 6] = ["what", "who", "how", "when", "where", "which"];

/// Imperatives with an ending that otherwise marks another form of a verb.
const IMPERATIVES: [&str; 11] =
    ["need", "feed", "seed", "embed", "proceed", "speed", "exceed", "bring", "string", "focus", "alias"];

/// Returns a sentence for every rule that a text breaks.
pub(super) fn violations(text: &Text, glossary: &Glossary) -> Vec<String> {
    let kind_violation = match text.kind {
        Kind::Line => return too_long(&text.words).into_iter().collect(),
        Kind::Fence => return without_language(&text.words).into_iter().collect(),
        Kind::Sentence => return too_many_words(&text.words).into_iter().collect(),
        Kind::Commit => return commit_violation(&text.words).into_iter().collect(),
        Kind::Prose | Kind::Comment | Kind::Message => None,
        Kind::Help => help_violation(&text.words),
        Kind::FirstComment => pronoun_violation(&text.words),
        Kind::FunctionDoc => question_violation(&text.words).or_else(|| headless_violation(&text.words)),
        Kind::ItemDoc => headless_violation(&text.words),
        Kind::Log => log_violation(&text.words),
        Kind::AlertSummary => too_long_summary(&text.words),
    };
    let words = words(&text.words);
    let opening = matches!(text.kind, Kind::Message | Kind::Log | Kind::Help | Kind::AlertSummary)
        .then(|| opening_violation(&words))
        .flatten();
    let is_comment =
        matches!(text.kind, Kind::Comment | Kind::FirstComment | Kind::FunctionDoc | Kind::ItemDoc);
    let sentence_violations = [person_violation(&words), comparison_violation(&words)];
    let mut violations: Vec<String> =
        [kind_violation, opening].into_iter().chain(sentence_violations).flatten().collect();
    violations.extend(glossary.violations(&words, !is_comment));
    violations
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

fn opening_violation(words: &[String]) -> Option<String> {
    let first = words.first().filter(|first| FORBIDDEN_OPENINGS.contains(&first.as_str()))?;
    Some(format!("the message opens with \"{first}\": name the subject"))
}

fn person_violation(words: &[String]) -> Option<String> {
    let is_person = |index: usize| index > 0 && PERSON_NOUNS.contains(&words[index - 1].as_str());
    let (_, word) = words
        .iter()
        .enumerate()
        .find(|(index, word)| PERSON_PRONOUNS.contains(&word.as_str()) && !is_person(*index))?;
    Some(format!("\"{word}\": services, nodes and programs are not persons"))
}

/// Returns a violation if a comparison is made with `another … than`.
fn comparison_violation(words: &[String]) -> Option<String> {
    let index = words.iter().position(|word| word == "another")?;
    let compared = words[index + 1..].iter().take(MAX_COMPARED_WORDS + 1).skip(1).any(|word| word == "than");
    compared.then(|| "\"another … than\": write \"a … other than\"".to_owned())
}

fn question_violation(doc: &str) -> Option<String> {
    let is_question = words(doc).first().is_some_and(|first| first == "whether");
    is_question.then(|| "the doc of a function opens with \"Returns `true` if\"".to_owned())
}

fn pronoun_violation(comment: &str) -> Option<String> {
    let first = words(comment).into_iter().next().filter(|first| PRONOUNS.contains(&first.as_str()))?;
    Some(format!("the comment opens with \"{first}\": name the noun"))
}

fn headless_violation(doc: &str) -> Option<String> {
    let first = words(doc).into_iter().next()?;
    let is_headless = HEADLESS_PRONOUNS.contains(&first.as_str());
    let violation_text = || format!("the doc comment opens with \"{first}\": begin with a noun or a verb");
    is_headless.then(violation_text).or_else(|| pronoun_violation(doc))
}

fn too_many_words(sentence: &str) -> Option<String> {
    let is_word = |word: &&str| word.contains(char::is_alphabetic);
    let count = sentence.split_whitespace().filter(is_word).count();
    let begin: String = sentence.chars().take(40).collect();
    (count > MAX_SENTENCE_WORDS)
        .then(|| format!("a sentence of {count} words, at most {MAX_SENTENCE_WORDS} fit: \"{begin}…\""))
}

fn help_violation(text: &str) -> Option<String> {
    if words(text).first().is_some_and(|first| first == "whether") {
        return Some("a short help is a noun phrase or an imperative".to_owned());
    }
    if text.ends_with('.') {
        return Some("a short help ends without a full stop".to_owned());
    }
    let length = text.chars().count();
    let limit = if text.starts_with("WARNING: ") { MAX_WARNING_CHARACTERS } else { MAX_HELP_CHARACTERS };
    (length > limit).then(|| format!("a short help of {length} characters, at most {limit} fit"))
}

fn commit_violation(subject: &str) -> Option<String> {
    if subject.starts_with("Revert \"") {
        return None;
    }
    let length = subject.chars().count();
    if length > MAX_HELP_CHARACTERS {
        return Some(format!("a subject of {length} characters, at most {MAX_HELP_CHARACTERS} fit"));
    }
    let verb = subject.split_once(": ").and_then(|(_, action)| words(action).into_iter().next());
    let is_imperative = |verb: &str| {
        IMPERATIVES.contains(&verb)
            || !(verb.ends_with("ed")
                || verb.ends_with("ing")
                || verb.ends_with('s') && !verb.ends_with("ss"))
    };
    let is_wrong = verb.is_none_or(|verb| !is_imperative(&verb)) || subject.ends_with('.');
    is_wrong.then(|| format!("\"{subject}\": a subject is \"area: imperative\", without a full stop"))
}

fn without_language(fence: &str) -> Option<String> {
    (fence.trim() == "```").then(|| "a code fence names its language".to_owned())
}

fn too_long_summary(summary: &str) -> Option<String> {
    let length = summary.chars().count();
    (length > MAX_SUMMARY_CHARACTERS)
        .then(|| format!("a summary of {length} characters, at most {MAX_SUMMARY_CHARACTERS} fit"))
}

fn too_long(line: &str) -> Option<String> {
    let columns = line.chars().count();
    let can_be_wrapped = !line.trim_start().starts_with(['|', '<']) && !line.contains("](http");
    (columns > MAX_LINE_COLUMNS && can_be_wrapped)
        .then(|| format!("{columns} columns, at most {MAX_LINE_COLUMNS} fit"))
}

fn log_violation(message: &str) -> Option<String> {
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
        let glossary = Glossary::read(include_str!("../../../docs/contributing/language.md"));
        let violations = violations(&Text { kind, line: 1, words: words.to_owned() }, &glossary);
        let holds = expected
            .map_or(violations.is_empty(), |part| violations.len() == 1 && violations[0].contains(part));
        assert!(holds, "{words}: {violations:?}");
    }

    /// Checks a violation of each rule, next to a text that follows the rule.
    #[test]
    fn each_language_rule_is_checked() {
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
        check(Kind::Sentence, &"word ".repeat(31), Some("31 words"));
        check(Kind::Sentence, &"word ".repeat(30), None);
        check(Kind::Sentence, &"1.2 ".repeat(31), None);
        check(Kind::FirstComment, "It never ends.", Some("name the noun"));
        check(Kind::FirstComment, "When the node returns, the lease is gone.", None);
        check(Kind::Comment, "it was, and ends here.", None);
        check(Kind::ItemDoc, "They fail.", Some("name the noun"));
        check(Kind::ItemDoc, "How a process ended.", Some("a noun or a verb"));
        check(Kind::ItemDoc, "Whether the node is armed.", None);
        check(Kind::FunctionDoc, "What the service needs.", Some("a noun or a verb"));
        check(Kind::Help, &"x".repeat(73), Some("73 characters"));
        check(Kind::Help, &format!("WARNING: {}", "x".repeat(100)), None);
        check(Kind::Help, &format!("WARNING: {}", "x".repeat(110)), Some("119 characters"));
        check(Kind::Help, "Show events", None);
        check(Kind::Help, "Show events.", Some("full stop"));
        check(Kind::Help, "Wait for the store", Some("etcd"));
        check(Kind::Help, "It waits for etcd", Some("name the subject"));
        check(Kind::Help, "Nodes who wait", Some("not persons"));
        check(Kind::Help, "Whether the machine can sleep", Some("noun phrase"));
        check(Kind::Comment, "Runs on another node than before.", Some("other than"));
        check(Kind::Comment, "Another controller has a newer key than this one.", None);
        check(Kind::Comment, "The search tries whether the service fits.", Some("check whether"));
        check(Kind::Prose, "The limit prevents that etcd is full.", Some("prevent … from"));
        check(Kind::Message, "the licence file is missing", Some("license"));
        check(Kind::Commit, "agent: stop logging missing drivers", None);
        check(Kind::Commit, "docs, agent: embed the picture", None);
        check(Kind::Commit, "Revert \"agent: add a key\"", None);
        check(Kind::Commit, &format!("agent: add {}", "x".repeat(62)), Some("73 characters"));
        check(Kind::Commit, "Keep one watch log", Some("area: imperative"));
        check(Kind::Commit, "agent: stopped logging", Some("area: imperative"));
        check(Kind::Commit, "agent: stops logging", Some("area: imperative"));
        check(Kind::Commit, "agent: stop logging.", Some("full stop"));
    }
}
