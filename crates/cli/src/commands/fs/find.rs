//! `-find`

use super::failure::Failure;
use super::glob;
use super::item::Item;
use super::options::Arguments;
use super::shell::Shell;

/// Part of an expression. Parts are evaluated in order, up to the first that is false.
#[derive(Debug)]
enum Step {
    Name(Vec<String>),
    /// Case-insensitive.
    NameIgnoringCase(Vec<String>),
    /// Prints the path followed by this terminator. Always true.
    Print(&'static [u8]),
}

pub async fn find(shell: &mut Shell, arguments: Arguments) -> Result<(), Failure> {
    let (paths, steps) = parse(arguments.rest)?;
    for item in shell.existing(&paths).await? {
        walk(shell, &item, &steps).await;
    }
    Ok(())
}

fn parse(words: Vec<String>) -> Result<(Vec<String>, Vec<Step>), Failure> {
    let mut words = words.into_iter().peekable();
    let mut paths = Vec::new();
    while let Some(path) = words.next_if(|word| !word.starts_with('-') && word != "(") {
        paths.push(path);
    }
    if paths.is_empty() {
        paths.push(".".to_owned());
    }
    let mut steps = Vec::new();
    let mut open = 0_u32;
    while let Some(word) = words.next() {
        let mut pattern = || {
            let pattern = words.next().ok_or_else(|| Failure::Usage(format!("{word} needs a pattern")))?;
            glob::alternatives(&pattern).map_err(Failure::Usage)
        };
        match word.as_str() {
            "-name" => steps.push(Step::Name(pattern()?)),
            "-iname" => {
                let lower = pattern()?.iter().map(|pattern| pattern.to_lowercase()).collect();
                steps.push(Step::NameIgnoringCase(lower));
            }
            "-print" => steps.push(Step::Print(b"\n")),
            "-print0" => steps.push(Step::Print(b"\0")),
            // All parts are joined by "and", so parentheses change nothing.
            "-a" | "-and" => {}
            "(" => open += 1,
            ")" if open > 0 => open -= 1,
            other => return Err(Failure::Message(format!("Unexpected argument: {other}"))),
        }
    }
    if open > 0 {
        return Err(Failure::Message("A parenthesis is not closed".to_owned()));
    }
    if !steps.iter().any(|step| matches!(step, Step::Print(_))) {
        steps.push(Step::Print(b"\n"));
    }
    Ok((paths, steps))
}

impl Step {
    fn holds(&self, shell: &mut Shell, item: &Item) -> bool {
        let any = |patterns: &[String], name: &str| patterns.iter().any(|pattern| glob::matches(pattern, name));
        match self {
            Self::Name(patterns) => any(patterns, item.name()),
            Self::NameIgnoringCase(patterns) => any(patterns, &item.name().to_lowercase()),
            Self::Print(end) => {
                // A failure of standard output shows in the exit code.
                let _ = shell.bytes(item.shown.as_bytes()).and_then(|()| shell.bytes(end));
                true
            }
        }
    }
}

async fn walk(shell: &mut Shell, item: &Item, steps: &[Step]) {
    for step in steps {
        if !step.holds(shell, item) {
            break;
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
                Box::pin(walk(shell, child, steps)).await;
            }
        }
        Err(failure) => shell.report(&failure),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Vec<String> {
        line.split(' ').map(str::to_owned).collect()
    }

    #[test]
    fn expressions_become_ordered_steps() {
        let (paths, steps) = parse(words("/a /b ( -name *.{gz,bz2} -a -iname X* ) -print0")).unwrap();
        assert_eq!(paths, ["/a", "/b"]);
        let kinds: Vec<_> = steps.iter().map(|step| format!("{step:?}")).collect();
        let wanted = [r#"Name(["*.gz", "*.bz2"])"#, r#"NameIgnoringCase(["x*"])"#, "Print([0])"];
        assert_eq!(kinds, wanted);
        // A print that stands first applies to every path.
        let (_, steps) = parse(words("/a -print -name x")).unwrap();
        assert!(matches!(steps[..], [Step::Print(b"\n"), Step::Name(_)]), "{steps:?}");
        assert!(matches!(parse(words("/a")).unwrap().1[..], [Step::Print(b"\n")]));
        for wrong in ["/a -size 3", "/a -name", "/a ( -print", "/a -print )"] {
            assert!(parse(words(wrong)).is_err(), "{wrong}");
        }
    }
}
