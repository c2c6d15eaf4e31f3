/// Alignment of a column.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Align {
    Left,
    Right,
}

/// Rows whose columns are padded to the widest cell, two spaces apart. The last column is not padded.
pub struct Table {
    align: Vec<Align>,
    rows: Vec<Vec<String>>,
}

impl Table {
    pub fn new(align: Vec<Align>) -> Self {
        Self { align, rows: Vec::new() }
    }

    pub fn row(&mut self, cells: Vec<String>) {
        assert_eq!(cells.len(), self.align.len(), "a row has a cell for each column");
        self.rows.push(cells);
    }

    pub fn lines(&self) -> Vec<String> {
        let width = |column: usize| self.rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
        let widths: Vec<_> = (0..self.align.len()).map(width).collect();
        let last = self.align.len().saturating_sub(1);
        let line = |row: &Vec<String>| {
            let cells = row.iter().enumerate().map(|(column, cell)| match self.align[column] {
                Align::Left if column == last => cell.clone(),
                Align::Left => format!("{cell:<width$}", width = widths[column]),
                Align::Right => format!("{cell:>width$}", width = widths[column]),
            });
            cells.collect::<Vec<_>>().join("  ")
        };
        self.rows.iter().map(line).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let mut table = Table::new(vec![Align::Right, Align::Left, Align::Left]);
        table.row(vec!["1".to_owned(), "abc".to_owned(), "x".to_owned()]);
        table.row(vec!["100".to_owned(), "d".to_owned(), "longer".to_owned()]);
        assert_eq!(table.lines(), ["  1  abc  x", "100  d    longer"]);
    }
}
