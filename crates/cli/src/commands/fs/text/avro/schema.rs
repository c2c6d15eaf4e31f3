//! Schemas of Avro files.

use std::collections::HashMap;
use std::io;

use serde_json::{Map, Value};

use super::super::reading::malformed;

/// Schema, as an index into [`Schemas`], since a record may contain itself.
pub type Id = usize;

#[derive(Debug)]
pub enum Schema {
    Null,
    Boolean,
    Int,
    Long,
    Float,
    Double,
    Bytes,
    String,
    Array(Id),
    Map(Id),
    Union(Vec<Id>),
    /// Fields, in order.
    Record(Vec<(String, Id)>),
    Enum(Vec<String>),
    /// Length in bytes.
    Fixed(u64),
}

/// Maximum bytes of a fixed.
const FIXED_BYTES_MAX: u64 = 256 << 20;

#[derive(Debug)]
pub struct Schemas {
    all: Vec<(Schema, String)>,
    pub root: Id,
}

impl Schemas {
    pub fn parse(text: &[u8]) -> io::Result<Self> {
        let json = serde_json::from_slice(text).map_err(|error| malformed(format!("the file's schema: {error}")))?;
        let mut parser = Parser { all: Vec::new(), names: HashMap::new() };
        let root = parser.schema(&json, "")?;
        Ok(Self { all: parser.all, root })
    }

    pub fn get(&self, id: Id) -> &Schema {
        &self.all[id].0
    }

    /// Returns the full name of a named schema, or its kind.
    pub fn label(&self, id: Id) -> &str {
        &self.all[id].1
    }
}

struct Parser {
    all: Vec<(Schema, String)>,
    /// Named schemas by full name.
    names: HashMap<String, Id>,
}

fn wrong(why: String) -> io::Error {
    malformed(format!("the file's schema: {why}"))
}

impl Parser {
    fn add(&mut self, schema: Schema, label: &str) -> Id {
        self.all.push((schema, label.to_owned()));
        self.all.len() - 1
    }

    /// Adds a schema. `namespace`: that of names without one.
    fn schema(&mut self, json: &Value, namespace: &str) -> io::Result<Id> {
        match json {
            Value::String(name) => self.named(name, namespace),
            Value::Array(branches) => {
                let branches =
                    branches.iter().map(|branch| self.schema(branch, namespace)).collect::<io::Result<_>>()?;
                Ok(self.add(Schema::Union(branches), "union"))
            }
            Value::Object(object) => match object.get("type") {
                Some(Value::String(kind)) => self.complex(kind, object, namespace),
                Some(inner) => self.schema(inner, namespace),
                None => Err(wrong("a schema without a type".to_owned())),
            },
            other => Err(wrong(format!("{other} is not a schema"))),
        }
    }

    fn named(&mut self, name: &str, namespace: &str) -> io::Result<Id> {
        let simple = match name {
            "null" => Schema::Null,
            "boolean" => Schema::Boolean,
            "int" => Schema::Int,
            "long" => Schema::Long,
            "float" => Schema::Float,
            "double" => Schema::Double,
            "bytes" => Schema::Bytes,
            "string" => Schema::String,
            _ => {
                let found = self.names.get(&full(name, namespace)).or_else(|| self.names.get(name));
                return found.copied().ok_or_else(|| wrong(format!("{name:?} is not a known type")));
            }
        };
        Ok(self.add(simple, name))
    }

    fn complex(&mut self, kind: &str, object: &Map<String, Value>, namespace: &str) -> io::Result<Id> {
        let part = |key: &str| object.get(key).ok_or_else(|| wrong(format!("a schema of type {kind} without {key}")));
        match kind {
            "array" => {
                let items = self.schema(part("items")?, namespace)?;
                return Ok(self.add(Schema::Array(items), kind));
            }
            "map" => {
                let values = self.schema(part("values")?, namespace)?;
                return Ok(self.add(Schema::Map(values), kind));
            }
            "record" | "error" | "enum" | "fixed" => {}
            name => return self.named(name, namespace),
        }
        let text = |key: &str| object.get(key).and_then(Value::as_str);
        let name = text("name").ok_or_else(|| wrong(format!("a schema of type {kind} without a name")))?;
        let name = full(name, text("namespace").unwrap_or(namespace));
        // Registered before its fields, because their types may refer to it.
        let id = self.add(Schema::Null, &name);
        self.names.insert(name.clone(), id);
        self.all[id].0 = match kind {
            "enum" => {
                let symbols = part("symbols")?.as_array().into_iter().flatten();
                let symbols = symbols.map(|symbol| symbol.as_str().map(str::to_owned)).collect::<Option<_>>();
                Schema::Enum(symbols.ok_or_else(|| wrong(format!("a symbol of {name} is not a string")))?)
            }
            "fixed" => {
                let size = part("size")?.as_u64().filter(|size| *size <= FIXED_BYTES_MAX);
                Schema::Fixed(size.ok_or_else(|| wrong(format!("the size of {name}")))?)
            }
            _ => {
                let namespace = name.rsplit_once('.').map_or("", |(namespace, _)| namespace);
                let mut fields = Vec::new();
                for field in part("fields")?.as_array().into_iter().flatten() {
                    let of_field =
                        |key: &str| field.get(key).ok_or_else(|| wrong(format!("a field of {name} without {key}")));
                    let field_name = of_field("name")?.as_str().unwrap_or_default().to_owned();
                    fields.push((field_name, self.schema(of_field("type")?, namespace)?));
                }
                Schema::Record(fields)
            }
        };
        Ok(id)
    }
}

fn full(name: &str, namespace: &str) -> String {
    if namespace.is_empty() || name.contains('.') { name.to_owned() } else { format!("{namespace}.{name}") }
}
