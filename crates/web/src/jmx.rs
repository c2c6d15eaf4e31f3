//! The JSON of Hadoop's `/jmx` servlet: `{"beans": [{"name": ..., "modelerType": ..., ATTRIBUTE: VALUE, ...}]}`.

use std::collections::BTreeMap;

use axum::http::StatusCode;
use serde_json::{Map, Value, json};

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

    /// Returns the first members of each bean's object.
    fn named(&self) -> Map<String, Value> {
        let mut object = Map::new();
        object.insert("name".into(), self.name.clone().into());
        object.insert("modelerType".into(), self.name.clone().into());
        object
    }

    fn whole(&self) -> Value {
        let mut object = self.named();
        for (name, value) in &self.attributes {
            object.insert(name.clone(), value.clone());
        }
        Value::Object(object)
    }

    /// Returns the bean with a single attribute. `Err`: an object that reports that the attribute does not exist.
    fn with_only(&self, attribute: &str) -> Result<Value, Value> {
        let mut object = self.named();
        match self.attributes.iter().find(|(name, _)| name == attribute) {
            Some((name, value)) => {
                object.insert(name.clone(), value.clone());
                Ok(Value::Object(object))
            }
            None => {
                object.insert("result".into(), "ERROR".into());
                object.insert("message".into(), format!("No attribute with name {attribute} was found.").into());
                Err(Value::Object(object))
            }
        }
    }
}

/// Answers `/jmx?get=BEAN::ATTRIBUTE` with that attribute of the matching beans, `/jmx?qry=BEAN` with the matching
/// beans, and `/jmx` with all beans. See [`Pattern`] for the form of BEAN.
///
/// Status: 400 for a malformed query; 404 if a matching bean lacks the attribute, which ends the list of beans. A
/// pattern without matches is not an error. Source: Hadoop's `JMXJsonServlet`.
pub(crate) fn answer(beans: &[Bean], get: Option<&str>, qry: Option<&str>) -> (StatusCode, Value) {
    let malformed = || {
        let answer = json!({ "result": "ERROR", "message": "query format is not as expected." });
        (StatusCode::BAD_REQUEST, answer)
    };
    let (bean, attribute) = match get.map(|get| get.trim_end_matches("::").split_once("::")) {
        None => (qry.unwrap_or_default(), None),
        Some(Some((bean, attribute))) if !attribute.contains("::") => (bean, Some(attribute)),
        Some(_) => return malformed(),
    };
    let Some(pattern) = Pattern::parse(bean) else { return malformed() };
    let mut chosen = Vec::new();
    let mut status = StatusCode::OK;
    for bean in beans.iter().filter(|bean| Pattern::parse(&bean.name).is_some_and(|name| pattern.fits(&name))) {
        match attribute.map(|attribute| bean.with_only(attribute)) {
            None => chosen.push(bean.whole()),
            Some(Ok(found)) => chosen.push(found),
            Some(Err(missing)) => {
                chosen.push(missing);
                status = StatusCode::NOT_FOUND;
                break;
            }
        }
    }
    (status, json!({ "beans": chosen }))
}

/// `DOMAIN:KEY=VALUE,...` with the properties in any order: the name of a bean, or a pattern for names. In a pattern,
/// `*` in the domain and in values matches any text, and `?` any character. A property `*` allows further properties.
/// The empty text means `*:*`.
/// Source: Java's `ObjectName`, without quoted values, which no bean here has.
struct Pattern<'a> {
    domain: &'a str,
    properties: BTreeMap<&'a str, &'a str>,
    may_have_others: bool,
}

impl<'a> Pattern<'a> {
    /// Parses a name or pattern. Returns `None` if it is malformed.
    fn parse(text: &'a str) -> Option<Self> {
        let (domain, list) = if text.is_empty() { ("*", "*") } else { text.split_once(':')? };
        let mut pattern = Self { domain, properties: BTreeMap::new(), may_have_others: false };
        for property in list.split(',') {
            let is_new = if property == "*" {
                !std::mem::replace(&mut pattern.may_have_others, true)
            } else {
                let (key, value) = property.split_once('=')?;
                !key.is_empty() && pattern.properties.insert(key, value).is_none()
            };
            if !is_new {
                return None;
            }
        }
        Some(pattern)
    }

    fn fits(&self, name: &Pattern<'_>) -> bool {
        let has = |(key, value): (&&str, &&str)| {
            name.properties.get(*key).is_some_and(|there| matches(value.as_bytes(), there.as_bytes()))
        };
        matches(self.domain.as_bytes(), name.domain.as_bytes())
            && (self.may_have_others || self.properties.len() == name.properties.len())
            && self.properties.iter().all(has)
    }
}

/// Returns true if `text` matches `pattern`, in which `*` stands for any run of bytes and `?` for any single byte.
/// Backtracks only to the last `*`.
fn matches(pattern: &[u8], text: &[u8]) -> bool {
    let (mut p, mut t) = (0, 0);
    let mut back: Option<(usize, usize)> = None;
    while t < text.len() {
        if p < pattern.len() && pattern[p] == b'*' {
            back = Some((p + 1, t));
            p += 1;
        } else if p < pattern.len() && (pattern[p] == text[t] || pattern[p] == b'?') {
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

    fn beans() -> [Bean; 3] {
        [
            Bean::new("Hadoop:service=NameNode,name=FSNamesystemState").with("NumLiveDataNodes", 3),
            Bean::new("Hadoop:service=NameNode,name=NameNodeInfo").with("Threads", 7).with("Safemode", ""),
            Bean::new("java.lang:type=Runtime").with("Uptime", 1),
        ]
    }

    #[test]
    fn patterns_choose_beans() {
        let chosen = |pattern: Option<&str>| {
            let (status, answer) = answer(&beans(), None, pattern);
            assert_eq!(status, StatusCode::OK, "{pattern:?}");
            let list = answer["beans"].as_array().unwrap().clone();
            list.iter().map(|bean| bean["name"].as_str().unwrap().to_string()).collect::<Vec<_>>()
        };
        assert_eq!(chosen(None).len(), 3);
        let [state, info, runtime] = beans().map(|bean| bean.name);
        for (pattern, expected) in [
            ("", vec![&state, &info, &runtime]),
            ("*:*", vec![&state, &info, &runtime]),
            ("Hadoop:*", vec![&state, &info]),
            ("H?doop:*", vec![&state, &info]),
            ("Hado?:*", vec![]),
            ("Hadoop:service=NameNode,name=*", vec![&state, &info]),
            ("Hadoop:name=*,service=NameNode", vec![&state, &info]),
            ("Hadoop:name=NameNode????,service=*", vec![&info]),
            ("Hadoop:name=NameNodeInfo,service=NameNode", vec![&info]),
            ("Hadoop:name=NameNodeInfo", vec![]),
            ("Hadoop:name=NameNodeInfo,*", vec![&info]),
            ("Hadoop:*,name=NameNodeInfo", vec![&info]),
            ("Hadoop:service=NameNode,name=NameNodeInfo,*", vec![&info]),
            ("Hadoop:service=NameNode,name=NameNodeInfo,type=*", vec![]),
            ("Hadoop:service=DataNode,name=*", vec![]),
            ("*:type=Runtime", vec![&runtime]),
            // A star matches within one property only.
            ("Hadoop:service=*", vec![]),
        ] {
            assert_eq!(chosen(Some(pattern)).iter().collect::<Vec<_>>(), expected, "{pattern}");
        }
        for malformed in ["Hadoop", "Hadoop:", "*:*,*", "a:b", "a:=c", "a:b=c,b=d", "a:b=c,"] {
            assert_eq!(answer(&beans(), None, Some(malformed)).0, StatusCode::BAD_REQUEST, "{malformed}");
        }
    }

    #[test]
    fn one_attribute_is_given_alone() {
        let get = |get: &str| answer(&beans(), Some(get), Some("java.lang:*"));
        let name = "Hadoop:service=NameNode,name=NameNodeInfo";
        let expected = json!({ "beans": [{ "name": name, "modelerType": name, "Threads": 7 }] });
        assert_eq!(get(&format!("{name}::Threads")), (StatusCode::OK, expected));
        let missing = json!({ "beans": [{
            "name": name, "modelerType": name, "result": "ERROR", "message": "No attribute with name None was found.",
        }] });
        assert_eq!(get(&format!("{name}::None")), (StatusCode::NOT_FOUND, missing));
        assert_eq!(get("Hadoop:service=None::Threads"), (StatusCode::OK, json!({ "beans": [] })));
        let (status, all) = get("*:*::NumLiveDataNodes");
        assert_eq!((status, &all["beans"][0]["NumLiveDataNodes"]), (StatusCode::NOT_FOUND, &json!(3)));
        for malformed in ["", name, "a:b=c::", "a:b=c::d::e", "Hadoop::Threads"] {
            let (status, answer) = get(malformed);
            assert_eq!((status, &answer["result"]), (StatusCode::BAD_REQUEST, &json!("ERROR")), "{malformed}");
        }
    }
}
