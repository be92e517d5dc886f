//! The lines of a log that are new in the next reading, found by the overlap with the lines that were printed last.

/// Number of printed lines that are kept for the comparison with the next read.
const MAX_REMEMBERED_LINES: usize = 10_000;

/// A log that is read repeatedly, with overlapping periods.
#[derive(Debug, Default)]
pub(super) struct LogFollower {
    /// The lines that were printed last.
    printed: Vec<String>,
}

impl LogFollower {
    /// Returns the lines of a reading that were not printed yet, as text. A last line without a line end is left for
    /// the next reading, because it may still be incomplete.
    pub(super) fn new_lines(&mut self, text: &str) -> String {
        let complete = text.rfind('\n').map_or("", |end| &text[..=end]);
        let lines: Vec<&str> = complete.split_inclusive('\n').collect();
        let new = &lines[overlap_length(&self.printed, &lines)..];
        self.printed.extend(new.iter().map(|line| (*line).to_owned()));
        let surplus = self.printed.len().saturating_sub(MAX_REMEMBERED_LINES);
        self.printed.drain(..surplus);
        new.concat()
    }
}

/// Returns the number of lines at the start of `read` that are also the last lines in `printed`. The reading may begin
/// before or after the first line in `printed`.
fn overlap_length(printed: &[String], read: &[&str]) -> usize {
    let is_end = |length: usize| {
        let shared = length.min(printed.len());
        let printed_tail = &printed[printed.len() - shared..];
        shared > 0
            && printed_tail
                .iter()
                .rev()
                .zip(read[..length].iter().rev())
                .all(|(printed_tail, read)| printed_tail == read)
    };
    (1..=read.len()).rev().find(|length| is_end(*length)).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(readings: &[(&str, &str)]) {
        let mut follower = LogFollower::default();
        for (number, (read, expected)) in readings.iter().enumerate() {
            assert_eq!(follower.new_lines(read), *expected, "reading {number} of {readings:?}");
        }
    }

    #[test]
    fn follower_prints_each_line_once() {
        // Readings of the whole file, then of newer lines only.
        check(&[("a\nb\n", "a\nb\n"), ("a\nb\nc\n", "c\n"), ("a\nb\nc\n", ""), ("c\nd\n", "d\n"), ("", "")]);
        // A reading that begins before the first printed line, such as from a file without times.
        check(&[("y\nz\n", "y\nz\n"), ("w\nx\ny\nz\nnew\n", "new\n")]);
        // A rotated file, or another node.
        check(&[("a\nb\n", "a\nb\n"), ("c\nd\n", "c\nd\n")]);
        check(&[("", ""), ("a\n", "a\n")]);
    }

    #[test]
    fn incomplete_lines_are_printed_when_complete() {
        check(&[("a\nb", "a\n"), ("a\nbc\n", "bc\n"), ("no end", ""), ("bc\nno end\n", "no end\n")]);
    }

    #[test]
    fn equal_lines_are_distinguished_by_preceding_lines() {
        check(&[("a\nx\n", "a\nx\n"), ("a\nx\nx\n", "x\n"), ("a\nx\nx\nx\n", "x\n")]);
        // Without another line, a repetition cannot be distinguished from the overlap.
        check(&[("x\n", "x\n"), ("x\nx\n", "")]);
    }

    #[test]
    fn follower_memory_is_bounded() {
        let mut follower = LogFollower::default();
        for round in 0..3 {
            let text: String = (0..6000).map(|line| format!("{round}-{line}\n")).collect();
            assert_eq!(follower.new_lines(&text), text);
        }
        assert_eq!(follower.printed.len(), MAX_REMEMBERED_LINES);
    }
}
