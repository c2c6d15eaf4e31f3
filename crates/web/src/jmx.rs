//! The JSON that Hadoop's `/jmx` servlet gives: `{"beans": [{"name": ..., "modelerType": ..., ATTRIBUTE: VALUE, ...}]}`.

use serde_json::{Map, Value};

/// One management bean: a name such as `Hadoop:service=NameNode,name=FSNamesystemState` and its attributes in order.
#[derive(Clone, Debug)]
pub struct Bean {
    pub name: String,
    pub attributes: Vec<(String, Value)>,
}

impl Bean {
    pub fn new(name: impl Into<String>) -> Self {
        Self { name: name.into(), attributes: Vec::new() }
    }

    #[must_use]
    pub fn with(mut self, attribute: &str, value: impl Into<Value>) -> Self {
        self.attributes.push((attribute.to_string(), value.into()));
        self
    }

    fn json(&self) -> Value {
        let mut object = Map::new();
        object.insert("name".into(), self.name.clone().into());
        object.insert("modelerType".into(), self.name.clone().into());
        for (name, value) in &self.attributes {
            object.insert(name.clone(), value.clone());
        }
        Value::Object(object)
    }
}

/// The answer to `/jmx?qry=PATTERN`: beans whose name fits; all of them without a pattern.
///
/// A pattern is a bean name in which `*` stands for anything (`Hadoop:service=NameNode,name=*`, `*:*`).
/// Source: Hadoop's `JMXJsonServlet`.
pub fn select_beans(beans: &[Bean], pattern: Option<&str>) -> Value {
    let chosen: Vec<Value> = beans
        .iter()
        .filter(|bean| pattern.is_none_or(|pattern| fits(pattern.as_bytes(), bean.name.as_bytes())))
        .map(Bean::json)
        .collect();
    let mut answer = Map::new();
    answer.insert("beans".into(), Value::Array(chosen));
    Value::Object(answer)
}

/// Whether `text` fits `pattern`, in which `*` stands for any run of bytes. Linear in both but for one step back per `*`.
fn fits(pattern: &[u8], text: &[u8]) -> bool {
    let (mut p, mut t) = (0, 0);
    let mut back: Option<(usize, usize)> = None;
    while t < text.len() {
        if p < pattern.len() && pattern[p] == b'*' {
            back = Some((p + 1, t));
            p += 1;
        } else if p < pattern.len() && pattern[p] == text[t] {
            p += 1;
            t += 1;
        } else if let Some((after_star, start)) = back {
            back = Some((after_star, start + 1));
            p = after_star;
            t = start + 1;
        } else {
            return false;
        }
    }
    pattern[p..].iter().all(|byte| *byte == b'*')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_choose_beans() {
        let beans = [
            Bean::new("Hadoop:service=NameNode,name=FSNamesystemState").with("NumLiveDataNodes", 3),
            Bean::new("java.lang:type=Runtime").with("Uptime", 1),
        ];
        let names = |pattern| {
            let answer = select_beans(&beans, pattern);
            let list = answer["beans"].as_array().unwrap().clone();
            list.iter().map(|bean| bean["name"].as_str().unwrap().to_string()).collect::<Vec<_>>()
        };
        assert_eq!(names(None).len(), 2);
        assert_eq!(names(Some("*:*")).len(), 2);
        assert_eq!(names(Some("Hadoop:service=NameNode,name=*")), ["Hadoop:service=NameNode,name=FSNamesystemState"]);
        assert_eq!(names(Some("Hadoop:service=DataNode,name=*")).len(), 0);
        assert_eq!(names(Some("java.lang:type=Runtime")).len(), 1);
    }
}
