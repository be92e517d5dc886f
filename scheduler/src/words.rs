//! Text helpers for lists of names.

/// Joins names and appends a verb in the matching number: `a is`, `a, b are`.
pub fn with_verb<S: AsRef<str>>(names: &[S], of_one: &str, of_many: &str) -> String {
    let verb = if names.len() == 1 { of_one } else { of_many };
    format!("{} {verb}", joined(names))
}

/// Joins names: `a, b`.
pub fn joined<S: AsRef<str>>(names: &[S]) -> String {
    names.iter().map(AsRef::as_ref).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::with_verb;

    #[test]
    fn verb_agrees_with_the_number() {
        assert_eq!(with_verb(&["a"], "uses", "use"), "a uses");
        assert_eq!(with_verb(&["a".to_owned(), "b".to_owned()], "is", "are"), "a, b are");
    }
}
