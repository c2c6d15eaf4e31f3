//! Manual pages and completions for shells, made from the definition of the command line, which also makes `--help`.
//!
//! Some subcommands take Hadoop's words, which clap does not know. Their usage texts are parsed here: a line that begins with a tab
//! describes a word, after a second tab.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context;
use clap::builder::ValueHint;
use clap::{Arg, Command, CommandFactory};
use clap_complete::{Shell, generate};
use clap_mangen::Man;

use super::{admin, balancer, cacheadmin, debug, fs, fsck, getconf, haadmin, storagepolicies};

#[derive(clap::Args)]
pub struct CompletionsArguments {
    /// The shell
    shell: Shell,
}

/// `hearth completions SHELL`: prints the shell's completions.
pub fn completions(arguments: &CompletionsArguments) -> anyhow::Result<ExitCode> {
    super::end_with_closed_output();
    generate(arguments.shell, &mut completed(), "hearth", &mut std::io::stdout());
    Ok(ExitCode::SUCCESS)
}

#[derive(clap::Args)]
pub struct DocumentsArguments {
    /// Gets the directories `man` and `completions`
    directory: PathBuf,
}

/// `hearth documents DIR`: writes what packages contain.
pub fn write(arguments: &DocumentsArguments) -> anyhow::Result<ExitCode> {
    let (man, completions) = (arguments.directory.join("man"), arguments.directory.join("completions"));
    for directory in [&man, &completions] {
        std::fs::create_dir_all(directory).with_context(|| format!("cannot make {}", directory.display()))?;
    }
    let file = |path: &Path, bytes: &[u8]| {
        std::fs::write(path, bytes).with_context(|| format!("cannot write {}", path.display()))
    };
    for (name, page) in pages()? {
        file(&man.join(format!("{name}.1")), &page)?;
    }
    for (shell, name) in [(Shell::Bash, "hearth.bash"), (Shell::Zsh, "_hearth"), (Shell::Fish, "hearth.fish")] {
        let mut script = Vec::new();
        generate(shell, &mut completed(), "hearth", &mut script);
        file(&completions.join(name), &script)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Commands that take Hadoop's words, with their usage.
fn with_words() -> [(&'static str, &'static str); 9] {
    // Leaked: clap wants names for the whole life of the program, which ends soon.
    [
        ("fs", fs::reference().leak()),
        ("fsck", fsck::USAGE),
        ("admin", admin::reference().leak()),
        ("balancer", balancer::USAGE),
        ("cacheadmin", cacheadmin::reference().leak()),
        ("debug", debug::reference().leak()),
        ("getconf", getconf::reference().leak()),
        ("haadmin", haadmin::reference().leak()),
        ("storagepolicies", storagepolicies::reference().leak()),
    ]
}

/// Returns whether a word of `usage` is a command, rather than an argument. The commands of `debug` have no dash.
fn is_command(name: &str, word: &str) -> bool {
    name == "debug" || word.starts_with('-')
}

/// Returns the words that a usage text describes, with their syntax and description.
fn words(usage: &str) -> impl Iterator<Item = (&str, &str, &str)> {
    usage.lines().filter_map(|line| {
        let (syntax, about) = line.strip_prefix('\t')?.split_once('\t').unwrap_or((&line[1..], ""));
        let syntax = syntax.strip_prefix('[').and_then(|inner| inner.strip_suffix(']')).unwrap_or(syntax);
        let word = syntax.split(' ').next()?;
        Some((word, syntax, about))
    })
}

/// Returns the definition for completions: without hidden subcommands, and Hadoop's words are subcommands of their own.
fn completed() -> Command {
    let whole = super::Arguments::command();
    let visible = whole.get_subcommands().filter(|subcommand| !subcommand.is_hide_set()).cloned();
    let command = Command::new("hearth").version(env!("CARGO_PKG_VERSION")).subcommands(visible);
    let mut command = command.args(whole.get_arguments().cloned());
    for (name, usage) in with_words() {
        let known = command.find_subcommand(name);
        let about = known.and_then(Command::get_about).cloned().unwrap_or_default();
        let aliases: Vec<&'static str> = known.map_or_else(Vec::new, |known| {
            known.get_visible_aliases().map(|alias| &*alias.to_owned().leak()).collect()
        });
        let files = Arg::new("file").num_args(0..).value_hint(ValueHint::AnyPath);
        let group = Command::new(name).about(about).disable_help_flag(true).disable_help_subcommand(true);
        let group = group.visible_aliases(aliases);
        let group = words(usage).filter(|(word, ..)| is_command(name, word)).fold(group, |group, (word, _, about)| {
            // The first sentence: shells show one line.
            let about = about.split_inclusive(". ").next().unwrap_or_default().trim_end().to_owned();
            group.subcommand(Command::new(word).about(about).disable_help_flag(true).arg(files.clone()))
        });
        command = command.mut_subcommand(name, |_| group);
    }
    command
}

/// Returns all manual pages by name: `hearth` and `hearth-SUBCOMMAND`.
fn pages() -> anyhow::Result<Vec<(String, Vec<u8>)>> {
    let mut command = super::Arguments::command().disable_help_subcommand(true);
    command.build();
    let mut pages = vec![("hearth".to_owned(), page(&command, None)?)];
    let with_words = with_words();
    for subcommand in command.get_subcommands().filter(|subcommand| !subcommand.is_hide_set()) {
        let name = subcommand.get_name();
        let usage = with_words.iter().find(|(known, _)| *known == name).map(|(_, usage)| *usage);
        pages.push((format!("hearth-{name}"), page(subcommand, usage)?));
        for nested in subcommand.get_subcommands() {
            pages.push((format!("hearth-{name}-{}", nested.get_name()), page(nested, None)?));
        }
        for alias in subcommand.get_visible_aliases() {
            pages.push((format!("hearth-{alias}"), format!(".so man1/hearth-{name}.1\n").into_bytes()));
        }
    }
    Ok(pages)
}

/// Returns one manual page. `usage`: describes the command's words.
fn page(command: &Command, usage: Option<&str>) -> std::io::Result<Vec<u8>> {
    let man = Man::new(command.clone()).source(concat!("Hearth ", env!("CARGO_PKG_VERSION"))).manual("Hearth");
    let mut page = Vec::new();
    man.render_title(&mut page)?;
    man.render_name_section(&mut page)?;
    man.render_synopsis_section(&mut page)?;
    man.render_description_section(&mut page)?;
    if command.get_arguments().any(|argument| !argument.is_hide_set()) {
        man.render_options_section(&mut page)?;
    }
    if let Some(usage) = usage {
        page.extend_from_slice(words_section(usage).as_bytes());
    }
    if command.has_subcommands() {
        man.render_subcommands_section(&mut page)?;
    }
    if let Some(text) = command.get_after_long_help().or(command.get_after_help()) {
        page.extend_from_slice(format!(".SH ENVIRONMENT\n.nf\n{}\n.fi\n", escaped(&text.to_string())).as_bytes());
    }
    Ok(page)
}

/// Returns the section that describes a command's words. Other lines of the usage become paragraphs.
fn words_section(usage: &str) -> String {
    let mut section = String::from(".SH WORDS\n");
    for line in usage.lines().filter(|line| !line.trim().is_empty()) {
        match words(line).next() {
            Some((_, syntax, about)) => {
                section.push_str(&format!(".TP\n\\fB{}\\fR\n{}\n", escaped(syntax), escaped(about)));
            }
            None => section.push_str(&format!(".PP\n{}\n", escaped(line))),
        }
    }
    section
}

/// Returns the text so that roff prints it as it is: backslashes, hyphens that can be copied, and no command at the start of a line.
fn escaped(text: &str) -> String {
    let escaped = text.replace('\\', "\\e").replace('-', "\\-");
    let lines: Vec<String> = escaped
        .lines()
        .map(|line| if line.starts_with(['.', '\'']) { format!("\\&{line}") } else { line.to_owned() })
        .collect();
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_subcommand_has_a_page_that_describes_all_its_words() {
        let pages = pages().unwrap();
        let page = |name: &str| {
            let (_, page) = pages.iter().find(|(known, _)| known == name).unwrap_or_else(|| panic!("no page {name}"));
            String::from_utf8(page.clone()).unwrap()
        };
        for subcommand in super::super::Arguments::command().get_subcommands() {
            let name = subcommand.get_name();
            if subcommand.is_hide_set() {
                assert!(!pages.iter().any(|(known, _)| *known == format!("hearth-{name}")), "{name} is hidden");
                continue;
            }
            let text = page(&format!("hearth-{name}"));
            assert!(text.contains(".SH NAME") && text.contains(".SH SYNOPSIS"), "{name}: {text}");
            assert!(page("hearth").contains(&escaped(&format!("hearth-{name}(1)"))), "hearth(1) does not name {name}");
            for argument in subcommand.get_arguments().filter_map(Arg::get_long) {
                assert!(text.contains(&escaped(&format!("--{argument}"))), "{name}: --{argument}");
            }
        }
        assert!(page("hearth-config").contains(&escaped("hearth-config-check(1)")));
        assert!(page("hearth-config-check").contains(&escaped("--role")));
        for (name, usage) in with_words() {
            let text = page(&format!("hearth-{name}"));
            let mut count = 0;
            for (_, syntax, about) in words(usage) {
                count += 1;
                assert!(text.contains(&escaped(syntax)) && text.contains(&escaped(about)), "{name}: {syntax}");
            }
            assert!(count >= 3, "{name}: {count} words");
        }
        // Hadoop's tools whose arguments are paths or users have no words.
        let without = ["groups", "lsSnapshot", "lsSnapshottableDir", "snapshotDiff"];
        for subcommand in super::super::Arguments::command().get_subcommands() {
            let takes_words = subcommand.get_arguments().any(|argument| argument.get_id() == "arguments");
            let name = subcommand.get_name();
            assert_eq!(
                takes_words && !without.contains(&name),
                with_words().iter().any(|(known, _)| *known == name),
                "{name}"
            );
        }
        assert_eq!(page("hearth-dfsadmin"), ".so man1/hearth-admin.1\n");
        assert!(page("hearth").contains("HADOOP_CONF_DIR") && page("hearth").contains("HEARTH_LOG"));
    }

    #[test]
    fn completions_offer_subcommands_and_words() {
        for shell in [Shell::Bash, Shell::Zsh, Shell::Fish] {
            let mut script = Vec::new();
            generate(shell, &mut completed(), "hearth", &mut script);
            let script = String::from_utf8(script).unwrap();
            let words = [
                "namenode",
                "-appendToFile",
                "-safemode",
                "-blockId",
                "write-conf",
                "-addPool",
                "verifyMeta",
                "loglevel",
            ];
            for word in words {
                assert!(script.contains(word), "{shell}: {word}");
            }
            assert!(!script.contains("documents"), "{shell} offers a hidden command");
        }
    }

    #[test]
    fn roff_prints_text_as_it_is() {
        assert_eq!(escaped(".so x\n'-a\\b"), "\\&.so x\n\\&'\\-a\\eb");
    }
}
