//! The table that the demo prints at the end.

/// Costs of one way to move the file.
pub struct Row {
    pub path: &'static str,
    pub bytes: u64,
    pub seconds: f64,
    /// The same bytes copied plainly. `None`: there is no such copy.
    pub plain: Option<PlainCopy>,
    /// CPU seconds of the client. `None` if the process did other work as well.
    pub client_cpu: Option<f64>,
    /// CPU seconds of all DataNodes together.
    pub datanode_cpu: Option<f64>,
}

/// A plain copy that a row is compared with.
pub struct PlainCopy {
    pub name: &'static str,
    pub seconds: f64,
}

const HEADINGS: [&str; 5] = ["", "GB/s", "ratio to", "a plain copy", "CPU s/GB"];
/// Columns of numbers, which are aligned to the right.
const NUMBERS: [bool; 5] = [false, true, true, false, true];

/// Returns the headings and the rows as aligned lines.
pub fn render(rows: &[Row]) -> Vec<String> {
    let mut cells = vec![HEADINGS.map(str::to_owned)];
    cells.extend(rows.iter().map(cells_of));
    let width = |column: usize| cells.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let widths: [usize; 5] = std::array::from_fn(width);
    let line = |row: &[String; 5]| {
        let padded = row.iter().zip(widths).zip(NUMBERS).map(|((cell, width), is_number)| match is_number {
            true => format!("{cell:>width$}"),
            false => format!("{cell:<width$}"),
        });
        format!("  {}", padded.collect::<Vec<_>>().join("  ").trim_end())
    };
    cells.iter().map(line).collect()
}

fn cells_of(row: &Row) -> [String; 5] {
    let gigabytes = row.bytes as f64 / 1e9;
    let none = || "–".to_owned();
    let cpu = match (row.client_cpu, row.datanode_cpu) {
        (Some(client), Some(datanodes)) => {
            format!("{:.2} + {:.2}", client / gigabytes, datanodes / gigabytes)
        }
        _ => none(),
    };
    let (ratio, plain) = match &row.plain {
        Some(PlainCopy { name, seconds }) => {
            (format!("{:.2} x", seconds / row.seconds), format!("{name}, {:.2} GB/s", gigabytes / seconds))
        }
        None => (none(), none()),
    };
    [row.path.to_owned(), format!("{:.2}", gigabytes / row.seconds), ratio, plain, cpu]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_aligned() {
        let row = |path, plain, client_cpu| Row {
            path,
            bytes: 2_000_000_000,
            seconds: 1.0,
            plain,
            client_cpu,
            datanode_cpu: Some(1.0),
        };
        let copy = PlainCopy { name: "memcpy", seconds: 0.5 };
        let table = render(&[row("write", Some(copy), Some(3.0)), row("a much longer path", None, None)]);
        assert_eq!(
            table,
            [
                "                      GB/s  ratio to  a plain copy          CPU s/GB",
                "  write               2.00    0.50 x  memcpy, 4.00 GB/s  1.50 + 0.50",
                "  a much longer path  2.00         –  –                            –",
            ]
        );
    }
}
