//! Reader and writer of Hadoop's configuration files: `<configuration>` with `<property>` of `<name>`, `<value>`,
//! `<final>` (elements or attributes), nested configurations, and XInclude with fallback.

use std::path::{Path, PathBuf};

use roxmltree::{Document, Node, ParsingOptions};

use crate::ConfigError;

const XINCLUDE: &str = "http://www.w3.org/2001/XInclude";

/// Maximum depth of includes. Deeper nesting is treated as a cycle.
const INCLUDE_DEPTH_MAX: usize = 16;

/// Maximum size of a file. Larger files are refused, because a file is held in memory completely and no real
/// configuration is that large.
const FILE_BYTES_MAX: u64 = 64 << 20;

/// One `<property>` of a file. The value is not expanded.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Property {
    pub name: String,
    pub value: String,
    /// `<final>true</final>`: later files cannot change it.
    pub is_final: bool,
    /// The file that contains it.
    pub file: PathBuf,
    /// Line of `<property>` in that file, from 1.
    pub line: u32,
}

/// Reads the properties of `path` and of the files that it includes, in document order.
pub(crate) fn read_file(path: &Path) -> Result<Vec<Property>, ConfigError> {
    let mut properties = Vec::new();
    read_into(path, 0, &mut properties)?;
    Ok(properties)
}

fn read_into(path: &Path, depth: usize, properties: &mut Vec<Property>) -> Result<(), ConfigError> {
    if depth > INCLUDE_DEPTH_MAX {
        return Err(ConfigError::IncludeDepth { path: path.to_owned(), limit: INCLUDE_DEPTH_MAX });
    }
    let read_error = |source| ConfigError::Read { path: path.to_owned(), source };
    let length = std::fs::metadata(path).map_err(read_error)?.len();
    if length > FILE_BYTES_MAX {
        return Err(read_error(std::io::Error::other(format!("the file is longer than {FILE_BYTES_MAX} bytes"))));
    }
    let text = std::fs::read_to_string(path).map_err(read_error)?;
    let options = ParsingOptions { allow_dtd: true, ..ParsingOptions::default() };
    let document = Document::parse_with_options(&text, options)
        .map_err(|source| ConfigError::Xml { path: path.to_owned(), source })?;
    let line_ends = text.bytes().enumerate().filter(|(_, byte)| *byte == b'\n').map(|(at, _)| at).collect();
    let file = File { path, line_ends, depth };
    let root = document.root_element();
    if root.tag_name().name() != "configuration" {
        return Err(file.wrong(root, "the top element is not <configuration>"));
    }
    file.configuration(root, properties)
}

struct File<'a> {
    path: &'a Path,
    /// Positions of the line ends, in order.
    line_ends: Vec<usize>,
    depth: usize,
}

impl File<'_> {
    fn configuration(&self, element: Node<'_, '_>, properties: &mut Vec<Property>) -> Result<(), ConfigError> {
        for child in element.children().filter(Node::is_element) {
            match (child.tag_name().namespace(), child.tag_name().name()) {
                (Some(XINCLUDE), "include") => self.include(child, properties)?,
                (_, "configuration") => self.configuration(child, properties)?,
                (_, "property") => properties.extend(self.property(child)?),
                // Like Hadoop, ignore unknown elements.
                _ => {}
            }
        }
        Ok(())
    }

    fn include(&self, element: Node<'_, '_>, properties: &mut Vec<Property>) -> Result<(), ConfigError> {
        let href = element.attribute("href").ok_or_else(|| self.wrong(element, "an include without href"))?;
        let href = href.strip_prefix("file://").or_else(|| href.strip_prefix("file:")).unwrap_or(href);
        let target = self.path.parent().unwrap_or(Path::new("")).join(href);
        match read_into(&target, self.depth + 1, properties) {
            Err(ConfigError::Read { .. }) if fallback(element).is_some() => {
                fallback(element).map_or(Ok(()), |fallback| self.configuration(fallback, properties))
            }
            result => result,
        }
    }

    /// Returns a property, or `None` if it has no value: Hadoop ignores such properties.
    fn property(&self, element: Node<'_, '_>) -> Result<Option<Property>, ConfigError> {
        let mut name = element.attribute("name").map(str::to_owned);
        let mut value = element.attribute("value").map(str::to_owned);
        let mut is_final = element.attribute("final") == Some("true");
        for field in element.children().filter(Node::is_element) {
            let text = || field.descendants().filter(Node::is_text).filter_map(|node| node.text()).collect::<String>();
            match field.tag_name().name() {
                "name" => name = Some(text().trim().to_owned()),
                "value" => value = Some(text()),
                "final" => is_final = text().trim() == "true",
                _ => {}
            }
        }
        let name = name.filter(|name| !name.is_empty());
        let name = name.ok_or_else(|| self.wrong(element, "a <property> without <name>"))?;
        let line = self.line(element);
        Ok(value.map(|value| Property { name, value, is_final, file: self.path.to_owned(), line }))
    }

    fn line(&self, element: Node<'_, '_>) -> u32 {
        let start = element.range().start;
        self.line_ends.partition_point(|end| *end < start) as u32 + 1
    }

    fn wrong(&self, element: Node<'_, '_>, problem: &str) -> ConfigError {
        let line = self.line(element);
        ConfigError::Structure { path: self.path.to_owned(), line, problem: problem.to_owned() }
    }
}

fn fallback<'a, 'input>(include: Node<'a, 'input>) -> Option<Node<'a, 'input>> {
    include.children().find(|child| child.is_element() && child.tag_name().name() == "fallback")
}

/// Returns the text of a configuration file with these properties. Any Hadoop program can read it.
pub fn to_xml<'a>(properties: impl IntoIterator<Item = (&'a str, &'a str)>) -> String {
    let mut out = String::from("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<configuration>\n");
    for (name, value) in properties {
        out.push_str("  <property>\n    <name>");
        escape(name, &mut out);
        out.push_str("</name>\n    <value>");
        escape(value, &mut out);
        out.push_str("</value>\n  </property>\n");
    }
    out.push_str("</configuration>\n");
    out
}

fn escape(text: &str, out: &mut String) {
    for letter in text.chars() {
        match letter {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            // Not allowed in XML 1.0 in any form.
            letter if letter.is_control() && !matches!(letter, '\t' | '\n' | '\r') => out.push('\u{FFFD}'),
            letter => out.push(letter),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(dir: &tempfile::TempDir, name: &str, text: &str) -> PathBuf {
        let path = dir.path().join(name);
        std::fs::write(&path, text).unwrap();
        path
    }

    #[test]
    fn properties_as_elements_and_attributes() {
        let dir = tempfile::tempdir().unwrap();
        let path = write(
            &dir,
            "a.xml",
            "<?xml version=\"1.0\"?><?xml-stylesheet href=\"x\"?><configuration><!-- c -->
             <property><name> a </name><value>1<!-- x -->2</value><final>true</final><description>d</description></property>
             <property name=\"b\" value=\"3\"/><property><name>novalue</name></property>
             <configuration><property><name>c</name><value><![CDATA[<&]]></value></property></configuration>
             </configuration>",
        );
        let properties = read_file(&path).unwrap();
        let seen: Vec<_> = properties.iter().map(|p| (p.name.as_str(), p.value.as_str(), p.is_final)).collect();
        assert_eq!(seen, [("a", "12", true), ("b", "3", false), ("c", "<&", false)]);
        assert_eq!(properties.iter().map(|p| p.line).collect::<Vec<_>>(), [2, 3, 4]);
    }

    #[test]
    fn includes_fall_back_and_cycles_end() {
        let dir = tempfile::tempdir().unwrap();
        write(&dir, "inc.xml", "<configuration><property><name>i</name><value>1</value></property></configuration>");
        let head = "<configuration xmlns:xi=\"http://www.w3.org/2001/XInclude\">";
        let path = write(
            &dir,
            "a.xml",
            &format!(
                "{head}<xi:include href=\"inc.xml\"/><xi:include href=\"missing.xml\"><xi:fallback>
                 <property><name>f</name><value>2</value></property></xi:fallback></xi:include></configuration>"
            ),
        );
        let names: Vec<_> = read_file(&path).unwrap().into_iter().map(|p| p.name).collect();
        assert_eq!(names, ["i", "f"]);
        let path = write(&dir, "b.xml", &format!("{head}<xi:include href=\"missing.xml\"/></configuration>"));
        assert!(matches!(read_file(&path), Err(ConfigError::Read { .. })));
        let path = write(&dir, "c.xml", &format!("{head}<xi:include href=\"c.xml\"/></configuration>"));
        assert!(matches!(read_file(&path), Err(ConfigError::IncludeDepth { .. })));
    }

    #[test]
    fn errors_name_the_place() {
        let dir = tempfile::tempdir().unwrap();
        let path = write(&dir, "a.xml", "<configuration>\n<property><value>1</value></property></configuration>");
        assert!(matches!(read_file(&path), Err(ConfigError::Structure { line: 2, .. })));
        let path = write(&dir, "b.xml", "<configuration>");
        assert!(matches!(read_file(&path), Err(ConfigError::Xml { .. })));
    }

    #[test]
    fn written_files_are_read_back() {
        let dir = tempfile::tempdir().unwrap();
        let path = write(&dir, "a.xml", &to_xml([("k", "a<b>&c"), ("l", "")]));
        let properties = read_file(&path).unwrap();
        assert_eq!((properties[0].value.as_str(), properties[1].value.as_str()), ("a<b>&c", ""));
    }
}
