//! The table that the demo prints at the end.

/// Costs of one way to move the file.
pub struct Row {
    pub path: String,
    pub bytes: u64,
    pub seconds: f64,
    /// CPU seconds of the client process. `None` if the process did other work as well.
    pub client_cpu: Option<f64>,
    /// CPU seconds of all DataNodes together.
    pub datanode_cpu: Option<f64>,
}

const HEADINGS: [&str; 5] = ["path", "seconds", "GB/s", "client CPU s/GB", "DataNodes CPU s/GB"];

/// Returns the rows as aligned text, with a line under the headings.
pub fn render(rows: &[Row]) -> String {
    let cells: Vec<[String; 5]> = rows.iter().map(cells).collect();
    let width = |column: usize| {
        let longest = cells.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
        longest.max(HEADINGS[column].len())
    };
    let widths: Vec<usize> = (0..HEADINGS.len()).map(width).collect();
    let line = |row: &[String]| {
        let mut text = format!("  {:<1$}", row[0], widths[0]);
        for (cell, width) in row.iter().zip(&widths).skip(1) {
            text.push_str(&format!("   {cell:>0$}", *width));
        }
        text.push('\n');
        text
    };
    let mut table = line(&HEADINGS.map(str::to_string));
    table.push_str(&line(&std::array::from_fn::<String, 5, _>(|column| "─".repeat(widths[column]))));
    for row in &cells {
        table.push_str(&line(row));
    }
    table
}

fn cells(row: &Row) -> [String; 5] {
    let gigabytes = row.bytes as f64 / 1e9;
    let per_gigabyte = |cpu: Option<f64>| cpu.map_or("–".to_string(), |cpu| format!("{:.2}", cpu / gigabytes));
    [
        row.path.clone(),
        format!("{:.2}", row.seconds),
        format!("{:.2}", gigabytes / row.seconds),
        per_gigabyte(row.client_cpu),
        per_gigabyte(row.datanode_cpu),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_aligned() {
        let row = |path: &str, client_cpu| Row {
            path: path.into(),
            bytes: 2_000_000_000,
            seconds: 1.0,
            client_cpu,
            datanode_cpu: Some(1.0),
        };
        let table = render(&[row("write", Some(3.0)), row("a much longer path", None)]);
        let lines: Vec<&str> = table.lines().collect();
        assert_eq!(lines.len(), 4);
        let lengths: Vec<usize> = lines.iter().map(|line| line.chars().count()).collect();
        assert!(lengths.iter().all(|length| *length == lengths[0]), "{table}");
        assert!(lines[2].contains("2.00") && lines[2].contains("1.50") && lines[2].contains("0.50"), "{table}");
        assert!(lines[3].contains('–'));
    }
}
