use std::collections::HashMap;
use std::sync::Arc;

/// Variables that `${...}` may refer to besides other keys: environment variables (`${env.NAME}`) and the few Java
/// system properties that Hadoop's files use (`user.name`, `user.home`, `java.io.tmpdir`). The command line supplies
/// them.
#[derive(Clone, Debug, Default)]
pub struct Environment {
    inner: Arc<Inner>,
}

#[derive(Clone, Debug, Default)]
struct Inner {
    variables: HashMap<String, String>,
    properties: HashMap<String, String>,
}

impl Environment {
    /// Returns an environment without variables: `${env.X}` and `${user.name}` are not expanded.
    pub fn empty() -> Self {
        Self::default()
    }

    /// Creates an environment. `variables`: usually `std::env::vars()`, read by the caller.
    pub fn new(variables: impl IntoIterator<Item = (String, String)>) -> Self {
        Self { inner: Arc::new(Inner { variables: variables.into_iter().collect(), properties: HashMap::new() }) }
    }

    /// Adds a Java system property such as `user.name`.
    pub fn with_property(mut self, name: &str, value: impl Into<String>) -> Self {
        Arc::make_mut(&mut self.inner).properties.insert(name.to_owned(), value.into());
        self
    }

    pub fn variable(&self, name: &str) -> Option<&str> {
        self.inner.variables.get(name).map(String::as_str)
    }

    pub fn property(&self, name: &str) -> Option<&str> {
        self.inner.properties.get(name).map(String::as_str)
    }
}
