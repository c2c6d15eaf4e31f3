//! `hearth haadmin`: the commands, output and exit codes of `hdfs haadmin`. Source: HAAdmin.java, DFSHAAdmin.java of
//! Hadoop 3.4.

use std::io::{BufRead, Write};
use std::process::ExitCode;

use hearth_client::{Administration, HaState, HaTransition};
use hearth_config::{Configuration, HostPort, parse};

use super::generic_options::GENERIC_USAGE;
use super::host_name::host_name_of;
use super::tool::{self, FAILED, IllegalArgument, Tool, ToolArguments, first_line, shown_address};

/// A command.
struct Command {
    name: &'static str,
    takes: &'static str,
    about: &'static str,
    /// Options without their dashes.
    options: &'static [&'static str],
}

/// All commands, sorted by name.
const COMMANDS: &[Command] = &[
    Command {
        name: "-checkHealth",
        takes: "<serviceId>",
        about: "Asks a NameNode whether it is healthy. The exit code is not 0 if it is not.",
        options: &[],
    },
    Command {
        name: "-failover",
        takes: "[--forcefence] [--forceactive] <serviceId> <serviceId>",
        about: "Makes the first NameNode standby and the second one active. --forceactive: even if it is not ready.",
        options: &["forcefence", "forceactive", "forcemanual"],
    },
    Command { name: "-getAllServiceState", takes: "", about: "Prints the states of all NameNodes.", options: &[] },
    Command { name: "-getServiceState", takes: "<serviceId>", about: "Prints the state of a NameNode.", options: &[] },
    Command { name: "-help", takes: "<command>", about: "Prints the help of a command.", options: &[] },
    Command {
        name: "-transitionToActive",
        takes: "[--forceactive] <serviceId>",
        about: "Makes a NameNode active. --forceactive: without looking whether another one is.",
        options: &["forceactive", "forcemanual"],
    },
    Command {
        name: "-transitionToObserver",
        takes: "<serviceId>",
        about: "Makes a NameNode an observer.",
        options: &["forcemanual"],
    },
    Command {
        name: "-transitionToStandby",
        takes: "<serviceId>",
        about: "Makes a NameNode standby.",
        options: &["forcemanual"],
    },
];

const USAGE: &str = "Usage: haadmin [-ns <nameserviceId>]";

impl Command {
    fn synopsis(&self) -> String {
        if self.takes.is_empty() { format!("[{}]", self.name) } else { format!("[{} {}]", self.name, self.takes) }
    }

    fn usage(&self) -> String {
        format!("{USAGE} {}\n", self.synopsis())
    }

    fn help(&self) -> String {
        match self.takes {
            "" => format!("{}: {}", self.name, self.about),
            takes => format!("{} [{takes}]: {}", self.name, self.about),
        }
    }
}

/// Returns a line for each command, for manual pages: a tab, its synopsis, a tab, its description.
pub fn reference() -> String {
    COMMANDS.iter().map(|command| format!("\t{}\t{}\n", command.synopsis(), command.about)).collect()
}

fn usage_of_all() -> String {
    let lines: String = COMMANDS.iter().map(|command| format!("    {}\n", command.synopsis())).collect();
    format!("{USAGE}\n{lines}\n{GENERIC_USAGE}")
}

pub fn run(arguments: ToolArguments) -> anyhow::Result<ExitCode> {
    tool::run("haadmin", arguments, async |tool: &Tool, words: Vec<String>| dispatch(tool, words).await)
}

async fn dispatch(tool: &Tool, mut words: Vec<String>) -> u8 {
    let wrong = |message: &str| {
        if !message.is_empty() {
            eprintln!("{message}");
        }
        eprint!("{}", usage_of_all());
        FAILED
    };
    let mut nameservice = None;
    if words.first().is_some_and(|word| word == "-ns") {
        if words.len() < 2 {
            return wrong("Missing nameservice ID");
        }
        nameservice = Some(words.remove(1));
        words.remove(0);
        if words.is_empty() {
            return wrong("Missing command");
        }
    }
    let Some((name, words)) = words.split_first() else { return wrong("") };
    if !name.starts_with('-') {
        return wrong(&format!("Bad command '{name}': expected command starting with '-'"));
    }
    let Some(command) = COMMANDS.iter().find(|command| command.name == name) else {
        return wrong(&format!("{}: Unknown command", &name[1..]));
    };
    if command.name == "-help" {
        return help(command, words);
    }
    let Some((options, services)) = split_options(command, words) else {
        eprintln!("{}: incorrect arguments", &name[1..]);
        eprint!("{}", command.usage());
        return FAILED;
    };
    let forced = options.contains(&"forcemanual");
    if forced && !confirmed() {
        return FAILED;
    }
    let wanted = match command.name {
        "-getAllServiceState" => services.len(),
        "-failover" => 2,
        _ => 1,
    };
    if services.len() != wanted {
        let what = if wanted == 2 { "incorrect arguments" } else { "incorrect number of arguments" };
        eprintln!("{}: {what}", &name[1..]);
        eprint!("{}", command.usage());
        return FAILED;
    }
    let request = Request { configuration: &tool.configuration, nameservice, options, forced };
    let outcome = match tool.administration() {
        Ok(administration) => call(&administration, command, &request, &services).await,
        Err(error) => Err(error),
    };
    outcome.unwrap_or_else(|error| {
        let what = if error.is::<IllegalArgument>() { "Illegal argument" } else { "Operation failed" };
        eprintln!("{what}: {}", first_line(&error));
        FAILED
    })
}

/// Separates options from services. `None`: an option is unknown.
fn split_options<'a>(command: &Command, words: &'a [String]) -> Option<(Vec<&'a str>, Vec<&'a str>)> {
    let (mut options, mut services) = (Vec::new(), Vec::new());
    for word in words {
        let option = word.strip_prefix("--").or_else(|| word.strip_prefix('-'));
        match option.filter(|option| !option.is_empty()) {
            Some(option) if command.options.contains(&option) => options.push(option),
            Some(_) => return None,
            None => services.push(word.as_str()),
        }
    }
    Some((options, services))
}

fn help(help: &Command, words: &[String]) -> u8 {
    match words {
        [] => {
            print!("{}", usage_of_all());
            0
        }
        [name] => {
            let name = if name.starts_with('-') { name.clone() } else { format!("-{name}") };
            match COMMANDS.iter().find(|command| command.name == name) {
                Some(command) => {
                    println!("{}", command.help());
                    0
                }
                None => {
                    eprintln!("{name}: Unknown command");
                    eprint!("{}", usage_of_all());
                    FAILED
                }
            }
        }
        _ => {
            eprint!("{}", help.usage());
            FAILED
        }
    }
}

/// Asks the user to confirm `--forcemanual`.
fn confirmed() -> bool {
    eprintln!(
        "You have specified the --forcemanual flag. This flag is dangerous: with automatic failover, two NameNodes may become \
         active, which destroys the namespace.\n\nStop the failover controllers first if you want to manage the states \
         yourself.\n"
    );
    loop {
        eprint!("Are you sure you want to continue? (Y or N) ");
        let _ = std::io::stderr().flush();
        let mut line = String::new();
        match std::io::stdin().lock().read_line(&mut line) {
            Ok(0) | Err(_) => return false,
            Ok(_) => match line.trim().to_ascii_lowercase().as_str() {
                "y" | "yes" => return true,
                "n" | "no" => return false,
                other => eprintln!("Invalid input: {other}"),
            },
        }
    }
}

/// Circumstances of a command.
struct Request<'a> {
    configuration: &'a Configuration,
    nameservice: Option<String>,
    options: Vec<&'a str>,
    /// The state may be changed although automatic failover is on.
    forced: bool,
}

impl Request<'_> {
    /// Returns the nameservice of `-ns`, or the only one of the configuration. Source: NNHAServiceTarget.java.
    fn nameservice(&self) -> anyhow::Result<String> {
        if let Some(name) = &self.nameservice {
            return Ok(name.clone());
        }
        let mut names = self.configuration.get_as("dfs.nameservices", parse::list)?.unwrap_or_default();
        match names.len() {
            1 => Ok(names.remove(0)),
            0 => Err(IllegalArgument::new("Unable to determine the name service ID.").into()),
            _ => {
                let message = format!(
                    "Unable to determine the name service ID. This is an HA configuration with multiple name services \
                     configured. dfs.nameservices is set to [{}]. Please re-run with the -ns option.",
                    names.join(", ")
                );
                Err(IllegalArgument::new(message).into())
            }
        }
    }

    /// Returns the names of the nameservice's namenodes.
    fn services(&self) -> anyhow::Result<Vec<String>> {
        let name = match self.nameservice() {
            Ok(name) => name,
            Err(error) if self.nameservice.is_none() && error.to_string().ends_with("service ID.") => {
                return Ok(Vec::new());
            }
            Err(error) => return Err(error),
        };
        Ok(self.configuration.namenode_ids(&name)?)
    }

    /// Returns the address of a namenode for administration.
    fn address(&self, service: &str) -> anyhow::Result<HostPort> {
        let nameservice = self.nameservice()?;
        for key in ["dfs.namenode.servicerpc-address", "dfs.namenode.rpc-address"] {
            if let Some(address) =
                self.configuration.get_as(&format!("{key}.{nameservice}.{service}"), parse::rpc_address)?
            {
                return Ok(address);
            }
        }
        let message = format!("Unable to determine service address for namenode '{service}'");
        Err(IllegalArgument::new(message).into())
    }

    /// Returns whether failover controllers manage the states.
    fn is_automatic(&self) -> anyhow::Result<bool> {
        const KEY: &str = "dfs.ha.automatic-failover.enabled";
        let own = format!("{KEY}.{}", self.nameservice()?);
        let of = |key: &str| self.configuration.get_as(key, parse::boolean);
        Ok(of(&own)?.or(of(KEY)?).unwrap_or(false))
    }

    /// Refuses to change a state that failover controllers manage. Returns whether it may be changed.
    async fn may_change(&self, address: &HostPort) -> anyhow::Result<bool> {
        if !self.is_automatic()? || self.forced {
            return Ok(true);
        }
        eprintln!(
            "Automatic failover is enabled for NameNode at {}\nRefusing to manually manage HA state, since it may cause\na \
             split-brain scenario or other incorrect state.\nIf you are very sure you know what you are doing, please \
             \nspecify the --forcemanual flag.",
            shown_address(address).await
        );
        Ok(false)
    }
}

async fn call(
    administration: &Administration,
    command: &Command,
    request: &Request<'_>,
    services: &[&str],
) -> anyhow::Result<u8> {
    match command.name {
        "-checkHealth" => check_health(administration, &request.address(services[0])?).await,
        "-getAllServiceState" => all_states(administration, request).await,
        "-getServiceState" => {
            println!("{}", administration.ha_status(&request.address(services[0])?).await?.state);
            Ok(0)
        }
        "-transitionToActive" => to_active(administration, command, request, services[0]).await,
        "-transitionToStandby" => to(administration, request, services[0], HaTransition::Standby).await,
        "-transitionToObserver" => match to(administration, request, services[0], HaTransition::Observer).await {
            Err(error) if error.downcast_ref::<hearth_client::Error>().is_some_and(is_state_refused) => {
                eprintln!("transitionToObserver failed! {}", first_line(&error));
                Ok(FAILED)
            }
            outcome => outcome,
        },
        "-failover" => failover(administration, request, services[0], services[1]).await,
        name => unreachable!("command {name} is in the table but not dispatched"),
    }
}

/// Returns whether a namenode refused to change its state.
fn is_state_refused(error: &hearth_client::Error) -> bool {
    error.exception_class() == Some("org.apache.hadoop.ha.ServiceFailedException")
}

async fn check_health(administration: &Administration, namenode: &HostPort) -> anyhow::Result<u8> {
    match administration.check_health(namenode).await {
        Ok(()) => Ok(0),
        Err(error) if error.exception_class() == Some("org.apache.hadoop.ha.HealthCheckFailedException") => {
            eprintln!("Health check failed: {}", first_line(&error.into()));
            Ok(FAILED)
        }
        Err(error) => Err(error.into()),
    }
}

async fn all_states(administration: &Administration, request: &Request<'_>) -> anyhow::Result<u8> {
    let services = request.services()?;
    if services.is_empty() {
        eprintln!("Failed to get service IDs");
        return Ok(FAILED);
    }
    for service in services {
        let address = request.address(&service)?;
        let state = match administration.ha_status(&address).await {
            Ok(status) => status.state.to_string(),
            Err(error) => format!("Failed to connect: {}", first_line(&error.into())),
        };
        let name = format!("{}:{}", host_name_of(&address.host), address.port);
        println!("{name:<50} {state:<10}");
    }
    Ok(0)
}

async fn to(
    administration: &Administration,
    request: &Request<'_>,
    service: &str,
    state: HaTransition,
) -> anyhow::Result<u8> {
    let address = request.address(service)?;
    if !request.may_change(&address).await? {
        return Ok(FAILED);
    }
    administration.change_ha_state(&address, state, request.forced).await?;
    Ok(0)
}

async fn to_active(
    administration: &Administration,
    command: &Command,
    request: &Request<'_>,
    service: &str,
) -> anyhow::Result<u8> {
    if !request.options.contains(&"forceactive") {
        for other in request.services()?.iter().filter(|other| *other != service) {
            let address = request.address(other)?;
            if !request.may_change(&address).await? {
                return Ok(FAILED);
            }
            let why = match administration.ha_status(&address).await {
                Ok(status) if status.state == HaState::Active => {
                    format!("transitionToActive: Node {other} is already active")
                }
                Ok(_) => continue,
                Err(error) => format!("Unexpected error occurred  {}", first_line(&error.into())),
            };
            eprintln!("{why}");
            eprint!("{}", command.usage());
            return Ok(FAILED);
        }
    }
    to(administration, request, service, HaTransition::Active).await
}

/// Makes `from` standby and `to` active. If that fails, `from` becomes active again. Source: FailoverController.java,
/// without fencing.
async fn failover(administration: &Administration, request: &Request<'_>, from: &str, to: &str) -> anyhow::Result<u8> {
    let (old, new) = (request.address(from)?, request.address(to)?);
    let failed = |why: String| {
        eprintln!("Failover failed: {why}");
        Ok(FAILED)
    };
    if request.is_automatic()? && !request.forced {
        return failed("automatic failover is on; stop the active NameNode's failover controller instead".to_owned());
    }
    if request.options.contains(&"forcefence") {
        return failed("fencing is not supported; stop the first NameNode, then use -transitionToActive".to_owned());
    }
    if old == new {
        return failed("Can't failover a service to itself".to_owned());
    }
    let status = match administration.ha_status(&new).await {
        Ok(status) => status,
        Err(error) => {
            tracing::warn!(%error, "cannot get the state of the namenode");
            return failed(format!("Unable to get service state for NameNode at {}", shown_address(&new).await));
        }
    };
    if status.state != HaState::Standby {
        return failed(format!("Can't failover to an {} service", status.state));
    }
    if let Some(why) = status.not_ready
        && !request.options.contains(&"forceactive")
    {
        let address = shown_address(&new).await;
        return failed(format!("NameNode at {address} is not ready to become active: {why}"));
    }
    if let Err(error) = administration.check_health(&new).await {
        return failed(format!("Can't failover to an unhealthy service: {}", first_line(&error.into())));
    }
    if let Err(error) = administration.change_ha_state(&old, HaTransition::Standby, request.forced).await {
        return failed(format!("Unable to make {from} standby, and it is not fenced: {}", first_line(&error.into())));
    }
    if let Err(error) = administration.change_ha_state(&new, HaTransition::Active, request.forced).await {
        let why = first_line(&error.into());
        return match administration.change_ha_state(&old, HaTransition::Active, request.forced).await {
            Ok(()) => failed(format!("Unable to failover to {to}, {from} is active again: {why}")),
            Err(back) => failed(format!(
                "Unable to failover to {to}: {why}; no NameNode is active: {}",
                first_line(&back.into())
            )),
        };
    }
    println!("Failover from {from} to {to} successful");
    Ok(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_separated_from_services() {
        let words: Vec<String> = ["--forceactive", "nn1"].map(str::to_owned).to_vec();
        let active = COMMANDS.iter().find(|command| command.name == "-transitionToActive").unwrap();
        assert_eq!(split_options(active, &words), Some((vec!["forceactive"], vec!["nn1"])));
        let state = COMMANDS.iter().find(|command| command.name == "-getServiceState").unwrap();
        assert_eq!(split_options(state, &words), None);
        assert!(COMMANDS.is_sorted_by_key(|command| command.name));
    }

    #[test]
    fn nameservice_is_that_of_the_option_or_the_only_one() {
        let conf = Configuration::empty()
            .with("dfs.nameservices", "a")
            .with("dfs.namenode.rpc-address.a.x", "h:1")
            .with("dfs.ha.namenodes.a", "x,y");
        let request = Request { configuration: &conf, nameservice: None, options: Vec::new(), forced: false };
        assert_eq!(request.address("x").unwrap().to_string(), "h:1");
        let missing = "Unable to determine service address for namenode 'y'";
        assert_eq!(request.address("y").unwrap_err().to_string(), missing);
        assert_eq!(request.services().unwrap(), ["x", "y"]);
        let none = Configuration::empty();
        let request = Request { configuration: &none, nameservice: None, options: Vec::new(), forced: false };
        assert_eq!(request.address("x").unwrap_err().to_string(), "Unable to determine the name service ID.");
        assert!(request.services().unwrap().is_empty());
    }
}
