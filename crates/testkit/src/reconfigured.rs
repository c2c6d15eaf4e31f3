//! A server whose keys change while it runs: each one takes effect, is refused, and returns to its default.

/// A key that can change, a value that is not its default, where the server then has it, and what is there.
pub type Effect<S> = (&'static str, &'static str, fn(&S) -> String, &'static str);

/// Replaces the configuration file by one with these keys and values.
pub type WriteFile<'a> = dyn Fn(&[(&str, &str)]) + 'a;

/// A running server of type `S`, with no value set for any key that can change.
pub struct Reconfigured<'a, S> {
    server: &'a S,
    effects: &'a [Effect<S>],
    defaults: Vec<String>,
    write: &'a WriteFile<'a>,
    reconfigure: &'a dyn Fn() -> Vec<(&'static str, Option<String>)>,
}

impl<'a, S> Reconfigured<'a, S> {
    /// `effects`: sorted by key. `write` replaces the configuration file by one with these keys. `reconfigure` has the
    /// server read it, and returns the keys whose values differed, sorted, each with the error if it was refused.
    pub fn new(
        server: &'a S,
        effects: &'a [Effect<S>],
        write: &'a WriteFile<'a>,
        reconfigure: &'a dyn Fn() -> Vec<(&'static str, Option<String>)>,
    ) -> Self {
        let mut reconfigured = Self { server, effects, defaults: Vec::new(), write, reconfigure };
        reconfigured.defaults = reconfigured.shown();
        reconfigured
    }

    /// Sets all keys in one step. Panics unless each has its effect.
    #[track_caller]
    pub fn change_all(&self) {
        (self.write)(&self.changed());
        self.assert_all_accepted();
        assert_eq!(self.shown(), self.wanted());
    }

    /// Sets `unusable`, sorted by key, after [`change_all`](Self::change_all). Panics unless each is refused with an
    /// error of its own that names the key, the file and the line, and nothing changes.
    #[track_caller]
    pub fn refuse(&self, unusable: &[(&'static str, &str)]) {
        let mut mixed = self.changed();
        for (key, value) in unusable {
            mixed.iter_mut().find(|(other, _)| other == key).expect("the key can change").1 = value;
        }
        (self.write)(&mixed);
        let changes = (self.reconfigure)();
        let keys: Vec<_> = changes.iter().map(|(key, _)| *key).collect();
        assert_eq!(keys, unusable.iter().map(|(key, _)| *key).collect::<Vec<_>>());
        for (key, error) in &changes {
            let error = error.as_deref().unwrap_or_default();
            assert!(error.starts_with(key) && error.contains("hdfs-site.xml line"), "{key}: {error:?}");
        }
        assert_eq!(self.shown(), self.wanted());
    }

    /// Removes all keys in one step. Panics unless each returns to its default.
    #[track_caller]
    pub fn remove_all(&self) {
        (self.write)(&[]);
        self.assert_all_accepted();
        assert_eq!(self.shown(), self.defaults);
    }

    #[track_caller]
    fn assert_all_accepted(&self) {
        let wanted: Vec<_> = self.effects.iter().map(|(key, ..)| (*key, None)).collect();
        assert_eq!((self.reconfigure)(), wanted);
    }

    fn changed(&self) -> Vec<(&'static str, &str)> {
        self.effects.iter().map(|(key, value, ..)| (*key, *value)).collect()
    }

    fn shown(&self) -> Vec<String> {
        self.effects.iter().map(|(.., shown, _)| shown(self.server)).collect()
    }

    fn wanted(&self) -> Vec<&'static str> {
        self.effects.iter().map(|(.., wanted)| *wanted).collect()
    }
}
