//! The check of the protocol map: every rule of docs/fencing.md has one row in docs/protocol-map.md, and every reference in
//! a row exists.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

const RULES_FILE: &str = "docs/fencing.md";
const PROTOCOL_MAP_FILE: &str = "docs/protocol-map.md";
const MUTANTS_DIRECTORY: &str = "simulator/mutants";

/// Abbreviations in the map's references, with their paths.
const PATH_ABBREVIATIONS: [(&str, &str); 11] = [
    ("agent", "node-agent/src/core"),
    ("daemon", "node-agent/src/watchdog"),
    ("ctl", "controller/src/core"),
    ("store", "store/src"),
    ("A", "node-agent/src/core/testing"),
    ("D", "node-agent/src/watchdog/core/tests"),
    ("C", "controller/src/core/tests"),
    ("S", "simulator/scenarios"),
    ("E", "e2e/tests"),
    ("M", MUTANTS_DIRECTORY),
    ("model", "simulator/tests/fencing_model"),
];

/// Returns a sentence for every difference between the rules, the map, the mutants and the tree.
pub(crate) fn violations(root: &Path) -> Result<Vec<String>> {
    let rules = rules(&read(root, RULES_FILE)?);
    let rows = rows(&read(root, PROTOCOL_MAP_FILE)?);
    let mut violations = differences(&rules, &rows);
    for row in &rows {
        for reference in references(&row.cells) {
            if let Some(problem) = reference_problem(root, reference) {
                violations.push(format!("{PROTOCOL_MAP_FILE}: {}: {problem}", row.rule));
            }
        }
    }
    let mutants = mutants(root)?;
    violations.extend(repeated_numbers(&mutants));
    for mutant in mutants {
        let text = fs::read_to_string(root.join(&mutant)).with_context(|| mutant.clone())?;
        violations.extend(mutant_problems(&mutant, &text, &rules, &rows));
        violations.extend(placement_problem(root, &mutant)?);
        let killers = text.lines().filter_map(|line| line.strip_prefix("# killed-by: "));
        let missing = killers.filter(|killer| !killer_exists(root, killer));
        violations.extend(missing.map(|killer| format!("{mutant}: nothing matches killed-by: {killer}")));
    }
    Ok(violations)
}

/// A row of the map: the rule's id and the text of its other cells.
struct Row {
    rule: String,
    cells: String,
}

fn read(root: &Path, path: &str) -> Result<String> {
    fs::read_to_string(root.join(path)).with_context(|| path.to_owned())
}

/// Returns the ids that the page defines. Each id is written in bold once.
fn rules(text: &str) -> Vec<String> {
    text.split("**").skip(1).step_by(2).filter(|word| is_rule(word)).map(str::to_owned).collect()
}

/// Returns `true` for a rule id such as R3.4.
fn is_rule(word: &str) -> bool {
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    word.strip_prefix('R')
        .and_then(|rest| rest.split_once('.'))
        .is_some_and(|(section, rule)| is_number(section) && is_number(rule))
}

fn rows(text: &str) -> Vec<Row> {
    let row = |line: &str| {
        let (rule, cells) = line.strip_prefix("| ")?.split_once(" | ")?;
        is_rule(rule).then(|| Row { rule: rule.to_owned(), cells: cells.to_owned() })
    };
    text.lines().filter_map(row).collect()
}

fn differences(rules: &[String], rows: &[Row]) -> Vec<String> {
    let mut counts: BTreeMap<&str, (usize, usize)> = BTreeMap::new();
    for rule in rules {
        counts.entry(rule).or_default().0 += 1;
    }
    for row in rows {
        counts.entry(&row.rule).or_default().1 += 1;
    }
    let problem = |(rule, count): (&&str, &(usize, usize))| match *count {
        (1, 1) => None,
        (0, _) => Some(format!("{PROTOCOL_MAP_FILE}: {rule} is not a rule of {RULES_FILE}")),
        (_, 0) => Some(format!("{PROTOCOL_MAP_FILE}: {rule} has no row")),
        (1, rows) => Some(format!("{PROTOCOL_MAP_FILE}: {rule} has {rows} rows")),
        (definitions, _) => Some(format!("{RULES_FILE}: {rule} is defined {definitions} times")),
    };
    counts.iter().filter_map(problem).collect()
}

/// Returns the words in backticks of a row's cells.
fn references(cells: &str) -> impl Iterator<Item = &str> {
    cells.split('`').skip(1).step_by(2)
}

/// Returns the problem of a reference `PATH` or `PATH::NAME`; `None` if the reference is valid.
fn reference_problem(root: &Path, reference: &str) -> Option<String> {
    let (path, name) = match reference.split_once("::") {
        Some((path, name)) => (path, Some(name)),
        None => (reference, None),
    };
    let files = files_of(root, path);
    if files.is_empty() {
        return Some(format!("{path} does not exist"));
    }
    let name = name?;
    let has_name =
        |file: &PathBuf| fs::read_to_string(file).is_ok_and(|text| has_word_beginning_with(&text, name));
    (!files.iter().any(has_name)).then(|| format!("{path} does not contain {name}"))
}

/// Returns `true` if a word of the text begins with the name.
fn has_word_beginning_with(text: &str, name: &str) -> bool {
    let is_inside = |character: char| character.is_alphanumeric() || character == '_';
    text.match_indices(name)
        .any(|(index, _)| !text.get(..index).is_some_and(|before| before.ends_with(is_inside)))
}

/// Returns the files of a path in the map: one file, with or without its extension, or all files of a directory.
fn files_of(root: &Path, path: &str) -> Vec<PathBuf> {
    let (first, rest) = path.split_once('/').unwrap_or((path, ""));
    let full_path = PATH_ABBREVIATIONS
        .iter()
        .find(|(abbreviation, _)| *abbreviation == first)
        .map(|(_, directory)| root.join(directory).join(rest));
    for candidate in full_path.into_iter().chain([root.join(path)]) {
        let mut files = Vec::new();
        let text = candidate.display().to_string();
        let text = text.trim_end_matches('/');
        for extension in ["", ".rs", ".yaml", ".patch"] {
            collect(&PathBuf::from(format!("{text}{extension}")), &mut files);
        }
        if !files.is_empty() {
            return files;
        }
    }
    Vec::new()
}

fn collect(path: &Path, files: &mut Vec<PathBuf>) {
    if path.is_file() {
        files.push(path.to_owned());
    } else if let Ok(entries) = fs::read_dir(path) {
        for entry in entries.flatten() {
            collect(&entry.path(), files);
        }
    }
}

/// Returns the paths of all mutants from the root, in order.
fn mutants(root: &Path) -> Result<Vec<String>> {
    let mut files = Vec::new();
    collect(&root.join(MUTANTS_DIRECTORY), &mut files);
    files.sort();
    let relative = |file: &PathBuf| file.strip_prefix(root).map(|path| path.display().to_string());
    let patches = files.iter().filter(|file| file.extension().is_some_and(|end| end == "patch"));
    patches.map(relative).collect::<Result<_, _>>().context("a mutant outside of the tree")
}

/// Checks that each number belongs to one mutant. The paths are sorted, so mutants of one number are adjacent.
fn repeated_numbers(mutants: &[String]) -> Vec<String> {
    let number = |path: &str| path.split_once('-').map(|(number, _)| number.to_owned());
    let pairs = mutants.iter().zip(mutants.iter().skip(1));
    pairs
        .filter(|(file, next)| number(file) == number(next))
        .map(|(file, next)| format!("{next}: {file} has the same number"))
        .collect()
}

/// Checks that a mutant begins with `# R3.22, R3.23: what is broken`, and that the map names the mutant.
fn mutant_problems(path: &str, text: &str, rules: &[String], rows: &[Row]) -> Vec<String> {
    let mut problems = Vec::new();
    let heading = text.lines().next().unwrap_or_default();
    match heading.strip_prefix("# ").and_then(|rest| rest.split_once(": ")) {
        Some((broken, _)) => {
            let unknown =
                broken.split(", ").filter(|rule| !rules.iter().any(|listed_rule| listed_rule == rule));
            problems.extend(unknown.map(|rule| format!("{path}: {rule} is not a rule of {RULES_FILE}")));
        }
        None => problems.push(format!("{path}: the first line must be `# RULE: what is broken`")),
    }
    let short = path.trim_start_matches(MUTANTS_DIRECTORY).trim_end_matches(".patch");
    let mutant_name = format!("M{short}");
    if !rows.iter().any(|row| references(&row.cells).any(|reference| reference == mutant_name)) {
        problems.push(format!("{PROTOCOL_MAP_FILE}: no row names `{mutant_name}`"));
    }
    problems
}

/// Checks that the lines around each change of a mutant are the lines of the tree. `patch` also accepts similar lines
/// elsewhere, and could change the wrong statement.
fn placement_problem(root: &Path, path: &str) -> Result<Option<String>> {
    let mut git = Command::new("git");
    git.current_dir(root).args(["apply", "--check", path]);
    let output = git.output().context("git apply --check")?;
    let message = String::from_utf8_lossy(&output.stderr);
    let reason = message.lines().next().unwrap_or("unknown reason");
    Ok((!output.status.success())
        .then(|| format!("{path}: does not fit the tree ({reason}): write it again")))
}

/// Returns `true` if the scenario, or a test that the filter matches, exists. Random clusters always exist.
fn killer_exists(root: &Path, killer: &str) -> bool {
    match killer.split_once(' ') {
        Some(("scenario", name)) => reference_problem(root, &format!("S/{name}")).is_none(),
        Some(("test", filter)) => test_exists(root, filter),
        Some(("seeds", _)) => true,
        Some(_) | None => false,
    }
}

/// Returns `true` if a unit test, or a module of tests, begins with this filter, such as
/// `ha-controller::core::tests::moves::a_move`.
fn test_exists(root: &Path, filter: &str) -> bool {
    let Some((modules, beginning)) = filter.rsplit_once("::") else { return false };
    let path = modules.trim_start_matches("ha-").replacen("::", "/src/", 1).replace("::", "/");
    let declaration = if beginning.is_empty() { "test]".to_owned() } else { format!("fn {beginning}") };
    // A module is a file or directory, or is part of the file of its parent.
    let parent = path.rsplit_once('/').map_or("", |(parent, _)| parent);
    let places = [path.clone(), format!("{parent}.rs")];
    places.iter().any(|place| reference_problem(root, &format!("{place}::{declaration}")).is_none())
        || !files_of(root, &format!("{path}/{beginning}")).is_empty()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A mutant fits only where the lines around its change are those of the file.
    #[test]
    fn mutant_with_different_context_lines_is_rejected() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        fs::write(directory.path().join("a.txt"), "one\ntwo\nthree\n").expect("a file");
        let patch = |first: &str| {
            let hunk = format!("--- a/a.txt\n+++ b/a.txt\n@@ -1,3 +1,3 @@\n {first}\n-two\n+2\n three\n");
            fs::write(directory.path().join("m.patch"), hunk).expect("a patch");
            placement_problem(directory.path(), "m.patch").expect("git runs")
        };
        assert_eq!(patch("one"), None);
        let problem = patch("another line").expect("a problem");
        assert!(problem.starts_with("m.patch: does not fit the tree"), "{problem}");
    }

    #[test]
    fn a_killer_that_matches_nothing_is_found() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let tests = directory.path().join("store/src/core/tests");
        fs::create_dir_all(&tests).expect("a directory");
        fs::write(tests.join("moves.rs"), "#[test]\nfn a_service_moves() {}\n").expect("a file");
        for (killer, exists) in [
            ("test ha-store::core::tests::moves::a_service", true),
            ("test ha-store::core::tests::moves::", true),
            ("test ha-store::core::tests::moves", true),
            ("test ha-store::core::tests::moves::the_service", false),
            ("test ha-store::core::tests::fencing::", false),
            ("scenario fencing/missing", false),
            ("seeds 1..2", true),
            ("nothing", false),
        ] {
            assert_eq!(killer_exists(directory.path(), killer), exists, "{killer}");
        }
    }

    fn row(rule: &str, cells: &str) -> Row {
        Row { rule: rule.to_owned(), cells: cells.to_owned() }
    }

    #[test]
    fn rules_are_identified_by_bold_ids() {
        assert_eq!(rules("- **R1.2** Why (R1.3): **all** of it.\n| **R11.12** | x |"), ["R1.2", "R11.12"]);
    }

    #[test]
    fn protocol_rows_begin_with_an_id() {
        let rows = rows("| rule | kept by |\n|---|---|\n| R1.2 | `a.rs` | – |\nR1.3\n");
        assert_eq!(
            rows.iter().map(|row| (row.rule.as_str(), row.cells.as_str())).collect::<Vec<_>>(),
            [("R1.2", "`a.rs` | – |")]
        );
    }

    #[test]
    fn each_protocol_map_difference_is_found() {
        let defined = ["R1.1", "R1.2", "R1.3", "R1.3"].map(str::to_owned);
        let rows = [row("R1.1", ""), row("R1.1", ""), row("R1.3", ""), row("R1.4", "")];
        let violations = differences(&defined, &rows);
        let expected =
            ["R1.1 has 2 rows", "R1.2 has no row", "R1.3 is defined 2 times", "R1.4 is not a rule"];
        assert_eq!(violations.len(), expected.len(), "{violations:?}");
        for (violations, expected) in violations.iter().zip(expected) {
            assert!(violations.contains(expected), "{violations}: {expected}");
        }
    }

    #[test]
    fn referenced_names_may_be_prefixes() {
        assert!(has_word_beginning_with("fn closing_time()", "closing"));
        assert!(!has_word_beginning_with("fn enclosing()", "closing"));
    }

    #[test]
    fn mutants_name_their_rule_and_are_mapped() {
        let rules = ["R1.1".to_owned()];
        let path = "simulator/mutants/01-a.patch";
        let rows = [row("R1.1", "`M/01-a`")];
        assert_eq!(mutant_problems(path, "# R1.1: broken", &rules, &rows).len(), 0);
        assert_eq!(mutant_problems(path, "# R1.1, R1.2: broken", &rules, &rows).len(), 1);
        assert_eq!(mutant_problems(path, "# FENCING", &rules, &rows).len(), 1);
        assert_eq!(mutant_problems(path, "# R1.1: broken", &rules, &[]).len(), 1);
    }

    #[test]
    fn each_mutant_has_its_own_number() {
        let repeated =
            |names: [&str; 3]| repeated_numbers(&names.map(|name| format!("mutants/{name}"))).len();
        assert_eq!(repeated(["10-a.patch", "100-a.patch", "11-a.patch"]), 0);
        assert_eq!(repeated(["10-a.patch", "10-b.patch", "11-a.patch"]), 1);
    }

    #[test]
    fn the_protocol_map_is_consistent() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        assert_eq!(violations(&root).unwrap(), Vec::<String>::new());
    }
}
