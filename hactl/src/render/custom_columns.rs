//! Tables of `-o custom-columns=HEADER:PATH,…`.

use super::path::{Path, value_text};
use super::table::{Cell, Table};
use serde_json::Value;

/// The columns that the user defines, each with its header and path.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct CustomColumns(Vec<(String, Path)>);

impl CustomColumns {
    /// Parses columns such as `NAME:.metadata.name,STATE:.status.state`.
    ///
    /// # Errors
    /// Fails with the cause if a column has no header or path, or if a path is invalid.
    pub(crate) fn parse(text: &str) -> Result<CustomColumns, String> {
        let columns = columns(text).into_iter().map(|column| match column.split_once(':') {
            Some((header, path)) if !header.is_empty() && !path.is_empty() => {
                Ok((header.to_owned(), Path::parse_relaxed(path)?))
            }
            Some(_) | None => {
                Err(format!("{column:?} is not a column; specify HEADER:PATH, such as NAME:.metadata.name"))
            }
        });
        columns.collect::<Result<_, _>>().map(CustomColumns)
    }

    /// Returns the table of these objects. A missing field is shown as `<none>`.
    pub(crate) fn table<'a>(&self, objects: impl IntoIterator<Item = &'a Value>) -> Table {
        let headers: Vec<&str> = self.0.iter().map(|(header, _)| header.as_str()).collect();
        let mut table = Table::new(&headers);
        for object in objects {
            let cells = self.0.iter().map(|(_, path)| {
                let values: Vec<String> = path.values(object, object).into_iter().map(value_text).collect();
                Cell::plain(&if values.is_empty() { "<none>".to_owned() } else { values.join(",") })
            });
            table.add_row(cells.collect());
        }
        table
    }
}

/// Splits columns at the commas outside brackets.
fn columns(text: &str) -> Vec<&str> {
    let mut columns = Vec::new();
    let (mut start, mut depth) = (0, 0_usize);
    for (index, character) in text.char_indices() {
        match character {
            '[' => depth += 1,
            ']' => depth = depth.saturating_sub(1),
            ',' if depth == 0 => {
                columns.push(&text[start..index]);
                start = index + 1;
            }
            _ => {}
        }
    }
    columns.push(&text[start..]);
    columns
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::terminal::{ColorChoice, Terminal};
    use serde_json::json;

    #[test]
    fn custom_columns_render_like_kubectl() {
        let objects = [
            json!({"metadata": {"name": "web"}, "spec": {"tags": ["a", "b"]}}),
            json!({"metadata": {"name": "db"}}),
        ];
        let terminal = Terminal::new(ColorChoice::Never, false, 0);
        let check = |columns: &str, expected: &str| {
            let table = CustomColumns::parse(columns).expect(columns).table(&objects);
            assert_eq!(table.render(&terminal, 0), expected, "{columns}");
        };
        check("NAME:.metadata.name,TAGS:.spec.tags[*]", "NAME  TAGS\nweb   a,b\ndb    <none>\n");
        check("NAME:metadata.name", "NAME\nweb\ndb\n");
        check("X:.spec.tags[0,1]", "X\na,b\n<none>\n");
        check("X:{.metadata.name}", "X\nweb\ndb\n");
    }

    #[test]
    fn invalid_custom_columns_are_refused_with_cause() {
        let check = |columns: &str, part: &str| {
            let cause = CustomColumns::parse(columns).expect_err(columns);
            assert!(cause.contains(part), "{cause}");
        };
        check("", "specify HEADER:PATH");
        check("NAME", "\"NAME\" is not a column");
        check("NAME:", "is not a column");
        check(":.metadata.name", "is not a column");
        check("NAME:.metadata.name,", "\"\" is not a column");
        check("NAME:.metadata[", "is not closed");
    }
}
