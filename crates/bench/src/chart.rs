//! Bar charts as SVG, drawn from a benchmark's figures.

pub mod curves;

use std::fmt::Write as _;
use std::fs;

use anyhow::{Context, Result};

use crate::record::{Figure, short};
use crate::{machine, output_paths};

const BAR_HEIGHT: usize = 18;
const LABEL_WIDTH: usize = 330;
const BAR_WIDTH_MAX: f64 = 360.0;
/// Letters in a title line: bold letters of size 14 are about 0.6 of it wide, on 760 pixels.
const TITLE_LINE: usize = 90;

/// Writes `docs/benchmarks/NAME.svg`: one group of bars for each quantity, one bar for each system and client.
pub fn write(name: &str, title: &str, figures: &[Figure]) -> Result<()> {
    let path = output_paths::charts()?.join(format!("{name}.svg"));
    let subtitle = format!("{}; {}", machine::commit(), machine::description());
    fs::write(&path, svg(title, &subtitle, figures)).with_context(|| format!("cannot write {}", path.display()))
}

fn svg(title: &str, subtitle: &str, figures: &[Figure]) -> String {
    let mut groups: Vec<(String, Vec<&Figure>)> = Vec::new();
    for figure in figures {
        let mut name = format!("{}: {}", figure.work, figure.what);
        if !figure.unit.is_empty() {
            write!(name, " ({})", figure.unit).expect("a String takes all");
        }
        match groups.iter_mut().find(|(known, _)| *known == name) {
            Some((_, members)) => members.push(figure),
            None => groups.push((name, vec![figure])),
        }
    }
    let mut body = String::new();
    let mut y = 22;
    for part in lines(title) {
        line(&mut body, 10, y, "font-size=\"14\" font-weight=\"bold\"", &part);
        y += BAR_HEIGHT;
    }
    line(&mut body, 10, y, "fill=\"#495057\" font-size=\"10\"", subtitle);
    y += 24;
    for (name, members) in &groups {
        line(&mut body, 10, y, "font-weight=\"bold\"", name);
        y += BAR_HEIGHT;
        let longest = members.iter().map(|figure| figure.median()).fold(f64::MIN_POSITIVE, f64::max);
        for figure in members {
            let label = match figure.client.as_str() {
                "" => figure.system.clone(),
                client => format!("{}: {client}", figure.system),
            };
            line(&mut body, 24, y, "", &label);
            // A difference may be negative.
            let width = (figure.median() / longest * BAR_WIDTH_MAX).max(0.0);
            let colour = match figure.system.as_str() {
                system if system.starts_with("Hearth") => "#d9480f",
                "Apache" => "#868e96",
                _ => "#ced4da",
            };
            let top = y - BAR_HEIGHT + 6;
            writeln!(
                body,
                "<rect x=\"{LABEL_WIDTH}\" y=\"{top}\" width=\"{width:.1}\" height=\"{}\" fill=\"{colour}\"/>",
                BAR_HEIGHT - 4
            )
            .expect("a String takes all");
            let end = LABEL_WIDTH + width as usize + 6;
            line(&mut body, end, y, "", &short(figure.median()));
            y += BAR_HEIGHT;
        }
        y += BAR_HEIGHT / 2;
    }
    let mut text = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"780\" height=\"{y}\" font-family=\"sans-serif\" font-size=\"12\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n"
    );
    text.push_str(&body);
    text.push_str("</svg>\n");
    text
}

/// Splits `title` into lines that fit, between words.
fn lines(title: &str) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in title.split(' ') {
        let last = lines.last_mut().expect("never empty");
        if last.is_empty() {
            last.push_str(word);
        } else if last.chars().count() + 1 + word.chars().count() <= TITLE_LINE {
            last.push(' ');
            last.push_str(word);
        } else {
            lines.push(word.to_owned());
        }
    }
    lines
}

fn line(into: &mut String, x: usize, y: usize, style: &str, text: &str) {
    let text = text.replace('&', "&amp;").replace('<', "&lt;");
    writeln!(into, "<text x=\"{x}\" y=\"{y}\" {style}>{text}</text>").expect("a String takes all");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bars_are_grouped_and_scaled_to_longest() {
        let figure = |system: &str, value: f64| Figure {
            work: "get".into(),
            system: system.into(),
            client: "hdfs dfs".into(),
            what: "wall".into(),
            unit: "s",
            values: vec![value],
        };
        assert_eq!(lines(&"word ".repeat(20)).len(), 2);
        let text = svg("a < b", "", &[figure("Apache", 4.0), figure("Hearth", 1.0)]);
        assert!(text.contains("a &lt; b") && text.contains("get: wall (s)") && text.contains("Apache: hdfs dfs"));
        assert!(text.contains("width=\"360.0\"") && text.contains("width=\"90.0\""), "{text}");
        // A small value is not printed as 0, and a large one fits behind its bar.
        let text = svg("", "", &[figure("Apache", 15_796_058.25), figure("Hearth", 0.002), figure("memory", -1.0)]);
        assert!(text.contains(">15796058<") && text.contains(">0.002<") && !text.contains("width=\"-"), "{text}");
    }
}
