//! Line charts as SVG: several systems in one diagram.

use std::fmt::Write as _;
use std::fs;

use anyhow::{Context, Result};

use super::{line, lines};
use crate::{machine, output_paths};

const WIDTH: f64 = 780.0;
const LEFT: f64 = 64.0;
const RIGHT: f64 = 20.0;
const PLOT_HEIGHT: f64 = 260.0;
const LEGEND_LINE: usize = 16;
/// Apache's colour first, then Hearth's, then those of the other systems.
const COLOURS: [&str; 6] = ["#868e96", "#d9480f", "#1971c2", "#2f9e44", "#9c36b5", "#f08c00"];

/// One curve.
pub struct Curve {
    pub name: String,
    /// Points, from left to right.
    pub points: Vec<(f64, f64)>,
}

/// Labels of both axes, with units.
pub struct Axes {
    pub x: &'static str,
    pub y: &'static str,
}

/// Writes `NAME.svg` beside the other charts.
pub fn write(name: &str, title: &str, axes: &Axes, curves: &[Curve]) -> Result<()> {
    let path = output_paths::charts()?.join(format!("{name}.svg"));
    let subtitle = format!("{}; {}", machine::commit(), machine::description());
    fs::write(&path, svg(title, &subtitle, axes, curves)).with_context(|| format!("cannot write {}", path.display()))
}

fn svg(title: &str, subtitle: &str, axes: &Axes, curves: &[Curve]) -> String {
    let points = || curves.iter().flat_map(|curve| &curve.points);
    let most = |of: fn(&(f64, f64)) -> f64| {
        let most = points().map(of).fold(0.0, f64::max);
        // An axis needs a length also if all values are 0.
        if most > 0.0 { most } else { 1.0 }
    };
    let (x_step, x_end) = ticks(most(|point| point.0));
    let (y_step, y_end) = ticks(most(|point| point.1));
    let mut body = String::new();
    let mut y = 22;
    for part in lines(title) {
        line(&mut body, 10, y, "font-size=\"14\" font-weight=\"bold\"", &part);
        y += 18;
    }
    line(&mut body, 10, y, "fill=\"#495057\" font-size=\"10\"", subtitle);
    y += 16;
    for (index, curve) in curves.iter().enumerate() {
        let colour = COLOURS[index % COLOURS.len()];
        put(
            &mut body,
            format_args!("<rect x=\"{LEFT}\" y=\"{}\" width=\"18\" height=\"4\" fill=\"{colour}\"/>", y - 6),
        );
        line(&mut body, LEFT as usize + 26, y, "", &curve.name);
        y += LEGEND_LINE;
    }
    line(&mut body, 10, y + 4, "fill=\"#495057\"", axes.y);
    let top = y as f64 + 14.0;
    let bottom = top + PLOT_HEIGHT;
    let across = |value: f64| LEFT + value / x_end * (WIDTH - LEFT - RIGHT);
    let up = |value: f64| bottom - value / y_end * PLOT_HEIGHT;
    for tick in steps(y_step, y_end) {
        let at = up(tick);
        put(&mut body, format_args!("<path d=\"M{LEFT} {at:.1}H{}\" stroke=\"#dee2e6\"/>", WIDTH - RIGHT));
        line(&mut body, LEFT as usize - 6, at as usize + 4, "text-anchor=\"end\"", &spelled(tick, y_step));
    }
    for tick in steps(x_step, x_end) {
        let at = across(tick);
        put(&mut body, format_args!("<path d=\"M{at:.1} {bottom}v5\" stroke=\"#495057\"/>"));
        line(&mut body, at as usize, bottom as usize + 18, "text-anchor=\"middle\"", &spelled(tick, x_step));
    }
    line(&mut body, (WIDTH - RIGHT) as usize, bottom as usize + 36, "fill=\"#495057\" text-anchor=\"end\"", axes.x);
    for (index, curve) in curves.iter().enumerate() {
        let mut path = String::new();
        for (at, value) in &curve.points {
            let command = if path.is_empty() { 'M' } else { 'L' };
            write!(path, "{command}{:.1} {:.1}", across(*at), up(*value)).expect("a String takes all");
        }
        let colour = COLOURS[index % COLOURS.len()];
        put(&mut body, format_args!("<path d=\"{path}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\"/>"));
    }
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{WIDTH}\" height=\"{}\" font-family=\"sans-serif\" font-size=\"12\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n{body}</svg>\n",
        bottom + 46.0
    )
}

fn put(into: &mut String, element: std::fmt::Arguments<'_>) {
    writeln!(into, "{element}").expect("a String takes all");
}

/// Returns `(step, end)` of an axis that reaches `most`, with four to ten steps of 1, 2 or 5 times a power of ten.
fn ticks(most: f64) -> (f64, f64) {
    let power = 10f64.powf(most.log10().floor() - 1.0);
    let step = [1.0, 2.0, 5.0, 10.0, 20.0].map(|factor| factor * power).into_iter().find(|step| most / step <= 10.0);
    let step = step.unwrap_or(power * 20.0);
    (step, (most / step).ceil() * step)
}

fn steps(step: f64, end: f64) -> impl Iterator<Item = f64> {
    (0..=(end / step).round() as usize).map(move |index| index as f64 * step)
}

fn spelled(value: f64, step: f64) -> String {
    let digits = (-step.log10().floor()).max(0.0) as usize;
    format!("{value:.digits$}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn axis_covers_greatest_value() {
        for most in [0.003, 0.9, 1.0, 7.0, 12.0, 99.0, 101.0, 5e6] {
            let (step, end) = ticks(most);
            assert!(end >= most * 0.999_999 && end < most + step * 1.001, "{most}: {step} {end}");
            let count = steps(step, end).count();
            assert!((5..=11).contains(&count), "{most}: {count}");
        }
        assert_eq!((spelled(0.5, 0.1), spelled(20.0, 5.0)), ("0.5".to_owned(), "20".to_owned()));
    }

    #[test]
    fn curve_contains_its_points() {
        let curve = Curve { name: "a & b".into(), points: vec![(0.0, 0.0), (10.0, 100.0)] };
        let text = svg("title", "", &Axes { x: "s", y: "%" }, &[curve]);
        assert!(text.contains("a &amp; b") && text.contains("L760.0 "), "{text}");
        let nothing = Curve { name: "idle".into(), points: vec![(0.0, 0.0), (1.0, 0.0)] };
        let text = svg("title", "", &Axes { x: "s", y: "%" }, &[nothing]);
        assert!(text.contains(">1.0<") && !text.contains("0.0000"), "{text}");
    }
}
