//! The table that the demo prints at the end.

/// Costs of one way to move the file.
pub struct Row {
    pub path: &'static str,
    pub bytes: u64,
    pub seconds: f64,
    pub reference: Reference,
    /// CPU seconds of the client. `None` if the process did other work as well.
    pub client_cpu: Option<f64>,
    /// CPU seconds of all DataNodes together.
    pub datanode_cpu: Option<f64>,
}

/// What a row is compared with, in seconds for the same bytes.
#[derive(Clone, Copy)]
pub struct Reference {
    /// A plain copy.
    pub plain: f64,
    /// The limit of this machine.
    pub limit: f64,
}

/// Seconds of plain copies of the file on this machine, measured in the same run.
#[derive(Clone, Copy)]
pub struct Yardsticks {
    pub bytes: u64,
    /// Written to as many files as there are replicas.
    pub files: f64,
    /// Read from a file.
    pub file: f64,
    /// Copied in memory.
    pub memcpy: f64,
    /// Copied in memory as often as there are replicas.
    pub memcpys: f64,
    /// Sent over a TCP connection.
    pub socket: f64,
}

impl Yardsticks {
    /// Returns the lines that explain the columns of ratios. They have room for two digits before each point.
    pub fn lines(&self) -> [String; 2] {
        let rate = |seconds: f64| format!("{:.2}", self.bytes as f64 / 1e9 / seconds);
        let Self { files, file, memcpy, memcpys, socket, .. } = *self;
        [
            format!("Plain copies: 3 x cp {}, cat {} GB/s", rate(files), rate(file)),
            format!("Limits: 3 x memcpy {}, memcpy {}, bare TCP {} GB/s", rate(memcpys), rate(memcpy), rate(socket)),
        ]
    }
}

const HEADINGS: [&str; 5] = ["", "GB/s", "to plain copy", "to limit", "CPU s/GB"];

/// Returns the headings and the rows as aligned lines.
pub fn render(rows: &[Row]) -> Vec<String> {
    let mut cells = vec![HEADINGS.map(str::to_owned)];
    cells.extend(rows.iter().map(cells_of));
    let width = |column: usize| cells.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let widths: [usize; 5] = std::array::from_fn(width);
    let line = |row: &[String; 5]| {
        // Only the first column has words.
        let padded = row.iter().zip(widths).enumerate().map(|(column, (cell, width))| match column {
            0 => format!("{cell:<width$}"),
            _ => format!("{cell:>width$}"),
        });
        format!("  {}", padded.collect::<Vec<_>>().join("  ").trim_end())
    };
    cells.iter().map(line).collect()
}

fn cells_of(row: &Row) -> [String; 5] {
    let gigabytes = row.bytes as f64 / 1e9;
    let cpu = match (row.client_cpu, row.datanode_cpu) {
        (Some(client), Some(datanodes)) => {
            format!("{:.2} + {:.2}", client / gigabytes, datanodes / gigabytes)
        }
        _ => "–".to_owned(),
    };
    let ratio = |to: f64| format!("{:.2} x", to / row.seconds);
    [
        row.path.to_owned(),
        format!("{:.2}", gigabytes / row.seconds),
        ratio(row.reference.plain),
        ratio(row.reference.limit),
        cpu,
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_aligned() {
        let row = |path, client_cpu| Row {
            path,
            bytes: 2_000_000_000,
            seconds: 1.0,
            reference: Reference { plain: 1.5, limit: 0.5 },
            client_cpu,
            datanode_cpu: Some(1.0),
        };
        let table = render(&[row("write", Some(3.0)), row("a much longer path", None)]);
        assert_eq!(
            table,
            [
                "                      GB/s  to plain copy  to limit     CPU s/GB",
                "  write               2.00         1.50 x    0.50 x  1.50 + 0.50",
                "  a much longer path  2.00         1.50 x    0.50 x            –",
            ]
        );
    }

    #[test]
    fn yardsticks_fit_a_line() {
        let yardsticks =
            Yardsticks { bytes: 20_000_000_000, files: 1.0, file: 1.0, memcpy: 1.0, memcpys: 2.0, socket: 0.8 };
        let lines = yardsticks.lines();
        assert_eq!(lines[0], "Plain copies: 3 x cp 20.00, cat 20.00 GB/s");
        assert_eq!(lines[1], "Limits: 3 x memcpy 10.00, memcpy 20.00, bare TCP 25.00 GB/s");
    }
}
