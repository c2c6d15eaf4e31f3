//! `-find`

use super::failure::Failure;
use super::glob;
use super::item::Item;
use super::options::Arguments;
use super::shell::Shell;

/// What a path must be like; all of them.
#[derive(Debug)]
enum Condition {
    Name(Vec<String>),
    /// In any case.
    NameIgnoringCase(Vec<String>),
}

#[derive(Debug, Default)]
struct Expression {
    conditions: Vec<Condition>,
    /// `-print0`: NUL instead of a newline.
    zero: bool,
}

pub async fn find(shell: &mut Shell, arguments: Arguments) -> Result<(), Failure> {
    let (paths, expression) = parse(arguments.rest)?;
    for item in shell.existing(&paths).await? {
        walk(shell, &item, &expression).await;
    }
    Ok(())
}

fn parse(words: Vec<String>) -> Result<(Vec<String>, Expression), Failure> {
    let mut words = words.into_iter().peekable();
    let mut paths = Vec::new();
    while let Some(path) = words.next_if(|word| !word.starts_with('-')) {
        paths.push(path);
    }
    if paths.is_empty() {
        paths.push(".".to_owned());
    }
    let mut expression = Expression::default();
    while let Some(word) = words.next() {
        let mut pattern = || {
            let pattern = words.next().ok_or_else(|| Failure::Usage(format!("{word} wants a pattern")))?;
            glob::alternatives(&pattern).map_err(Failure::Usage)
        };
        match word.as_str() {
            "-name" => expression.conditions.push(Condition::Name(pattern()?)),
            "-iname" => {
                let lower = pattern()?.iter().map(|pattern| pattern.to_lowercase()).collect();
                expression.conditions.push(Condition::NameIgnoringCase(lower));
            }
            "-print" => {}
            "-print0" => expression.zero = true,
            "-a" | "-and" => {}
            other => return Err(Failure::Usage(format!("Unexpected argument: {other}"))),
        }
    }
    Ok((paths, expression))
}

impl Condition {
    fn holds(&self, name: &str) -> bool {
        let any = |patterns: &[String], name: &str| patterns.iter().any(|pattern| glob::matches(pattern, name));
        match self {
            Self::Name(patterns) => any(patterns, name),
            Self::NameIgnoringCase(patterns) => any(patterns, &name.to_lowercase()),
        }
    }
}

async fn walk(shell: &mut Shell, item: &Item, expression: &Expression) {
    if expression.conditions.iter().all(|condition| condition.holds(item.name())) {
        if expression.zero {
            // A failing standard output shows in the exit code.
            let _ = shell.bytes(item.shown.as_bytes()).and_then(|()| shell.bytes(&[0]));
        } else {
            shell.line(&item.shown);
        }
    }
    if !item.is_directory() {
        return;
    }
    match item.children().await {
        Ok(children) => {
            for child in &children {
                if !shell.output_taken() {
                    return;
                }
                Box::pin(walk(shell, child, expression)).await;
            }
        }
        Err(failure) => shell.report(&failure),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expressions() {
        let words = |line: &str| line.split(' ').map(str::to_owned).collect::<Vec<_>>();
        let (paths, expression) = parse(words("/a /b -name *.{gz,bz2} -a -iname X* -print0")).unwrap();
        assert_eq!(paths, ["/a", "/b"]);
        assert!(expression.zero && expression.conditions.len() == 2);
        assert!(expression.conditions[0].holds("q.gz") && !expression.conditions[0].holds("q.zip"));
        assert!(expression.conditions[1].holds("xyz"));
        assert!(parse(words("/a -size 3")).is_err());
        assert!(parse(words("/a -name")).is_err());
    }
}
