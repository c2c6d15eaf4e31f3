//! Status pages: a heading, tables, and links to the other pages. All text is escaped here.

use std::fmt::Write;

/// A page under construction.
#[derive(Clone, Debug)]
pub struct Page {
    title: String,
    body: String,
}

impl Page {
    pub fn new(title: &str) -> Self {
        Self { title: title.to_owned(), body: String::new() }
    }

    /// Adds a table of two columns: name and value.
    #[must_use]
    pub fn facts(mut self, rows: &[(&str, String)]) -> Self {
        self.body.push_str("<table>");
        for (name, value) in rows {
            let _ = write!(self.body, "<tr><th>{}</th><td>{}</td></tr>", escape(name), escape(value));
        }
        self.body.push_str("</table>");
        self
    }

    /// Adds a table with a heading.
    #[must_use]
    pub fn table(mut self, heading: &str, columns: &[&str], rows: &[Vec<String>]) -> Self {
        let _ = write!(self.body, "<h2>{}</h2><table><tr>", escape(heading));
        for column in columns {
            let _ = write!(self.body, "<th>{}</th>", escape(column));
        }
        self.body.push_str("</tr>");
        for row in rows {
            self.body.push_str("<tr>");
            for cell in row {
                let _ = write!(self.body, "<td>{}</td>", escape(cell));
            }
            self.body.push_str("</tr>");
        }
        self.body.push_str("</table>");
        self
    }

    /// Returns the complete HTML, with links to the pages that every server has and to `more`.
    pub fn html(&self, more: &[&str]) -> String {
        let links: Vec<String> = ["/jmx", "/metrics", "/conf"]
            .iter()
            .chain(more)
            .map(|path| format!("<a href=\"{}\">{}</a>", escape(path), escape(path)))
            .collect();
        let title = escape(&self.title);
        format!(
            "<!doctype html><html lang=\"en\"><head><meta charset=\"utf-8\">\
             <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"><title>{title}</title>\
             <link rel=\"stylesheet\" href=\"/ui/style.css\"></head><body class=\"plain\"><main><h1>{title}</h1>{}\
             <p>{}</p></main></body></html>",
            self.body,
            links.join(" &middot; ")
        )
    }
}

/// Formats a number of bytes for display: `1.5 GiB`.
pub fn size(bytes: u64) -> String {
    const UNITS: [&str; 6] = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
    let mut value = bytes as f64;
    let mut unit = 0;
    while value >= 1024.0 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    if unit == 0 { format!("{bytes} B") } else { format!("{value:.1} {}", UNITS[unit]) }
}

/// Escapes text for XML and HTML.
pub(crate) fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn page_text_is_escaped() {
        let html = Page::new("a <b>")
            .facts(&[("host", "<script>".to_owned())])
            .table("t & u", &["c\""], &[vec!["<i>".to_owned()]])
            .html(&["/fsck"]);
        assert!(!html.contains("<script>") && !html.contains("<i>") && !html.contains("<b>"), "{html}");
        assert!(html.contains("&lt;script&gt;") && html.contains("href=\"/fsck\""));
    }

    #[test]
    fn sizes_are_formatted_for_display() {
        assert_eq!(size(0), "0 B");
        assert_eq!(size(1023), "1023 B");
        assert_eq!(size(1536), "1.5 KiB");
        assert_eq!(size(3 << 30), "3.0 GiB");
    }
}
