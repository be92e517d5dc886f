//! Tables: columns as wide as their widest cell, two spaces between them, no trailing blanks.

use crate::terminal::{Style, Terminal};

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Cell {
    text: String,
    style: Style,
}

impl Cell {
    /// Creates a cell with a style. An empty text becomes `-`; control characters become `?`.
    pub(crate) fn styled(text: &str, style: Style) -> Cell {
        let text: String =
            text.chars().map(|character| if character.is_control() { '?' } else { character }).collect();
        Cell { text: if text.is_empty() { "-".to_owned() } else { text }, style }
    }

    /// Creates an empty cell, without `-`.
    pub(crate) fn blank() -> Cell {
        Cell { text: String::new(), style: Style::Plain }
    }

    /// Creates a cell without a style.
    pub(crate) fn plain(text: &str) -> Cell {
        Cell::styled(text, Style::Plain)
    }
}

/// A table with a heading.
#[derive(Clone, Debug, Default)]
pub(crate) struct Table {
    header: Vec<String>,
    rows: Vec<Vec<Cell>>,
}

impl Table {
    /// Creates an empty table; no heading is printed if all its names are empty.
    pub(crate) fn new(header: &[&str]) -> Table {
        Table { header: header.iter().map(|name| (*name).to_owned()).collect(), rows: Vec::new() }
    }

    /// Returns the table without its header if `omitted` is `true`, the value of `--no-headers`.
    pub(crate) fn omit_header(mut self, omitted: bool) -> Table {
        if omitted {
            self.header.iter_mut().for_each(String::clear);
        }
        self
    }

    pub(crate) fn add_row(&mut self, cells: Vec<Cell>) {
        self.rows.push(cells);
    }

    /// Returns the table as lines, each with an indentation.
    pub(crate) fn render(&self, terminal: &Terminal, indent: usize) -> String {
        let widths = self.widths(&[]);
        let mut text = String::new();
        text += &self.header_line(terminal, &widths, indent);
        for row in &self.rows {
            text += &line(terminal, row, &widths, indent);
        }
        text
    }

    /// Returns the widths that fit all cells and are at least `min_widths`; a watch passes the widths of earlier rows.
    pub(crate) fn widths(&self, min_widths: &[usize]) -> Vec<usize> {
        (0..self.header.len())
            .map(|column| {
                let cells = self.rows.iter().filter_map(|row| row.get(column)).map(|cell| width(&cell.text));
                let header_and_minimum =
                    [width(&self.header[column]), min_widths.get(column).copied().unwrap_or(0)];
                cells.chain(header_and_minimum).max().unwrap_or(0)
            })
            .collect()
    }

    /// Returns the heading as a line; empty if there is none.
    pub(crate) fn header_line(&self, terminal: &Terminal, widths: &[usize], indent: usize) -> String {
        if self.header.iter().all(String::is_empty) {
            return String::new();
        }
        let cells: Vec<Cell> =
            self.header.iter().map(|name| Cell { text: name.clone(), style: Style::Dim }).collect();
        line(terminal, &cells, widths, indent)
    }

    pub(crate) fn row_lines(&self, terminal: &Terminal, widths: &[usize]) -> String {
        self.rows.iter().map(|row| line(terminal, row, widths, 0)).collect()
    }
}

fn line(terminal: &Terminal, cells: &[Cell], widths: &[usize], indent: usize) -> String {
    let mut line = " ".repeat(indent);
    for (index, cell) in cells.iter().enumerate() {
        line += &terminal.paint(cell.style, &cell.text);
        if index + 1 < cells.len() {
            let gap = widths.get(index).copied().unwrap_or(0).saturating_sub(width(&cell.text)) + 2;
            line += &" ".repeat(gap);
        }
    }
    line.truncate(line.trim_end().len());
    line.push('\n');
    line
}

fn width(text: &str) -> usize {
    text.chars().count()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::terminal::ColorChoice;

    #[test]
    fn table_columns_align_without_trailing_spaces() {
        let terminal = Terminal::new(ColorChoice::Never, false, 0);
        let mut table = Table::new(&["NAME", "STATE"]);
        table.add_row(vec![Cell::plain("vm:100"), Cell::plain("")]);
        table.add_row(vec![Cell::plain("ä"), Cell::styled("Started\x1b[2J", Style::Good)]);
        assert_eq!(table.render(&terminal, 0), "NAME    STATE\nvm:100  -\nä       Started?[2J\n");
    }
}
