//! Expansion of `${name}` in values: another key, `${env.NAME}`, `${env.NAME:-default}` (if unset or empty) and
//! `${env.NAME-default}` (if unset), or a system property. As in Hadoop, an unknown name is left as it is.

use crate::Environment;

/// Maximum number of substitutions, one variable each. Source: Hadoop's `Configuration.MAX_SUBST`.
pub(crate) const DEPTH_MAX: usize = 20;

/// Replaces variables in `value` until none is left that `lookup` or `environment` knows.
///
/// Errors: `Err(())` if [`DEPTH_MAX`] rounds do not suffice (a cycle, or too many variables).
pub(crate) fn expand(
    value: &str,
    environment: &Environment,
    lookup: impl Fn(&str) -> Option<String>,
) -> Result<String, ()> {
    let mut text = value.to_owned();
    // The text before `from` contains no variable that can be resolved. Each substitution starts over, because its
    // value may contain further variables.
    for _ in 0..DEPTH_MAX {
        let mut from = 0;
        let found = loop {
            match next_variable(&text, from) {
                None => return Ok(text),
                Some((start, end)) => match resolve(&text[start + 2..end], environment, &lookup) {
                    Some(replacement) => break (start, end, replacement),
                    None => from = end + 1,
                },
            }
        };
        let (start, end, replacement) = found;
        if replacement.contains(&text[start..=end]) {
            // The variable refers to itself. Hadoop then returns the text unexpanded.
            return Ok(value.to_owned());
        }
        text.replace_range(start..=end, &replacement);
    }
    if next_variable(&text, 0).is_some() { Err(()) } else { Ok(text) }
}

/// Finds the innermost `${...}` at or after `from`. Returns the positions of `${` and `}`. Names contain no `$`, `}` or
/// space.
fn next_variable(text: &str, from: usize) -> Option<(usize, usize)> {
    let mut start = None;
    let bytes = text.as_bytes();
    let mut at = from;
    while at < bytes.len() {
        match bytes[at] {
            b'$' if bytes.get(at + 1) == Some(&b'{') => {
                start = Some(at);
                at += 2;
                continue;
            }
            b'$' | b' ' => start = None,
            b'}' => {
                if let Some(begin) = start
                    && at > begin + 2
                {
                    return Some((begin, at));
                }
                start = None;
            }
            _ => {}
        }
        at += 1;
    }
    None
}

fn resolve(name: &str, environment: &Environment, lookup: &impl Fn(&str) -> Option<String>) -> Option<String> {
    if let Some(variable) = name.strip_prefix("env.") {
        if let Some((variable, default)) = variable.split_once(":-") {
            let set = environment.variable(variable).filter(|value| !value.is_empty());
            return Some(set.unwrap_or(default).to_owned());
        }
        if let Some((variable, default)) = variable.split_once('-') {
            return Some(environment.variable(variable).unwrap_or(default).to_owned());
        }
        return environment.variable(variable).map(str::to_owned);
    }
    environment.property(name).map(str::to_owned).or_else(|| lookup(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(value: &str, keys: &[(&str, &str)]) -> Result<String, ()> {
        let environment = Environment::new([("HOME".to_owned(), "/h".to_owned()), ("EMPTY".to_owned(), String::new())])
            .with_property("user.name", "ada");
        expand(value, &environment, |name| keys.iter().find(|(key, _)| *key == name).map(|(_, v)| (*v).to_owned()))
    }

    #[test]
    fn keys_properties_and_variables_are_replaced() {
        let keys = [("hadoop.tmp.dir", "/tmp/hadoop-${user.name}")];
        assert_eq!(with("file://${hadoop.tmp.dir}/dfs", &keys).unwrap(), "file:///tmp/hadoop-ada/dfs");
        assert_eq!(with("${env.HOME}/x", &[]).unwrap(), "/h/x");
        assert_eq!(with("${env.NOT:-d}|${env.EMPTY:-e}|${env.EMPTY-f}|${env.NOT-g}", &[]).unwrap(), "d|e||g");
    }

    #[test]
    fn unknown_names_are_not_expanded() {
        assert_eq!(with("a ${no.such} $b ${} ${hadoop.tmp.dir", &[]).unwrap(), "a ${no.such} $b ${} ${hadoop.tmp.dir");
        assert_eq!(with("${x${a}}", &[("a", "1"), ("x1", "yes")]).unwrap(), "yes");
    }

    #[test]
    fn cycles_end() {
        assert_eq!(with("${a}", &[("a", "${a}")]).unwrap(), "${a}");
        assert_eq!(with("${a}", &[("a", "${b}"), ("b", "${a}")]), Err(()));
        let grow = [("a", "${b}${b}"), ("b", "${c}${c}"), ("c", "${d}${d}"), ("d", "${e}${e}"), ("e", "x")];
        assert_eq!(with("${a}", &grow), Err(()));
    }
}
