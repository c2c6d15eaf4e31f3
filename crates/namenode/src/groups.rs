//! The groups of users: from configuration, else from the operating system, remembered for a while.

use std::collections::HashMap;
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use hearth_types::Clock;
use parking_lot::Mutex;

/// Users remembered at most; beyond it everything is forgotten and asked again.
const USERS_MAX: usize = 10_000;
/// A directory service that does not answer in this time answers nothing.
const LOOKUP_TIMEOUT: Duration = Duration::from_secs(10);
/// How long the absence of a user is remembered.
const NEGATIVE_LIFETIME: Duration = Duration::from_secs(30);

/// What a user may do, as far as that is not a matter of paths.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rights {
    pub groups: Arc<[String]>,
    pub superuser: bool,
}

/// The table of users seen.
pub struct Groups {
    /// The user who runs this process: a superuser.
    owner: String,
    /// Members are superusers.
    supergroup: String,
    /// `hadoop.user.group.static.mapping.overrides`.
    fixed: HashMap<String, Arc<[String]>>,
    lifetime: Duration,
    clock: Arc<dyn Clock>,
    known: Mutex<HashMap<String, (Duration, Rights)>>,
}

impl Groups {
    /// `overrides`: `user=group1,group2;user2=;...`; `lifetime`: of what the system said.
    pub fn new(
        owner: String,
        supergroup: String,
        overrides: Option<&str>,
        lifetime: Duration,
        clock: Arc<dyn Clock>,
    ) -> Self {
        let fixed = overrides.map(parse_overrides).unwrap_or_default();
        Self { owner, supergroup, fixed, lifetime, clock, known: Mutex::default() }
    }

    pub fn owner(&self) -> &str {
        &self.owner
    }

    pub fn supergroup(&self) -> &str {
        &self.supergroup
    }

    /// The rights of a user; one that nobody knows has no groups.
    pub async fn rights(&self, user: &str) -> Rights {
        let now = self.clock.monotonic();
        if let Some((until, rights)) = self.known.lock().get(user)
            && now < *until
        {
            return rights.clone();
        }
        let (groups, lifetime) = match self.fixed.get(user) {
            Some(groups) => (groups.clone(), self.lifetime),
            None => match ask_system(user).await {
                Some(groups) => (groups.into(), self.lifetime),
                None => ([].into(), NEGATIVE_LIFETIME.min(self.lifetime)),
            },
        };
        let superuser = user == self.owner || groups.contains(&self.supergroup);
        let rights = Rights { groups, superuser };
        let mut known = self.known.lock();
        if known.len() >= USERS_MAX {
            known.clear();
        }
        known.insert(user.to_owned(), (now + lifetime, rights.clone()));
        rights
    }

    /// Forgets what the system said: the next call asks again.
    pub fn refresh(&self) {
        self.known.lock().clear();
    }
}

fn parse_overrides(text: &str) -> HashMap<String, Arc<[String]>> {
    text.split(';')
        .filter_map(|entry| {
            let (user, groups) = entry.split_once('=').unwrap_or((entry, ""));
            let user = user.trim();
            let groups = groups.split(',').map(str::trim).filter(|group| !group.is_empty()).map(str::to_owned);
            (!user.is_empty()).then(|| (user.to_owned(), groups.collect()))
        })
        .collect()
}

/// Asks through `id`, as Hadoop's own shell mapping does: it sees every directory service the machine is set up for.
/// `None` for a user that the system does not know.
async fn ask_system(user: &str) -> Option<Vec<String>> {
    if user.is_empty() || user.contains('\0') {
        return None;
    }
    let mut command = tokio::process::Command::new("id");
    command.args(["-Gn", "--", user]).stdin(Stdio::null()).stderr(Stdio::null()).kill_on_drop(true);
    let output = match tokio::time::timeout(LOOKUP_TIMEOUT, command.output()).await {
        Ok(Ok(output)) => output,
        Ok(Err(error)) => {
            tracing::warn!(user, %error, "cannot ask the system for the groups of a user");
            return None;
        }
        Err(_) => {
            tracing::warn!(user, "the system takes too long to tell the groups of a user");
            return None;
        }
    };
    if !output.status.success() {
        return None;
    }
    Some(String::from_utf8_lossy(&output.stdout).split_whitespace().map(str::to_owned).collect())
}

#[cfg(test)]
mod tests {
    use hearth_types::SystemClock;

    use super::*;

    fn groups(overrides: Option<&str>) -> Groups {
        let clock = Arc::new(SystemClock::new());
        Groups::new("hdfs".into(), "supergroup".into(), overrides, Duration::from_secs(300), clock)
    }

    #[tokio::test]
    async fn configured_groups_come_first() {
        let groups = groups(Some("bob=staff, wheel;carol=supergroup;dave=;;"));
        let bob = groups.rights("bob").await;
        assert_eq!(bob, Rights { groups: ["staff".to_owned(), "wheel".to_owned()].into(), superuser: false });
        assert!(groups.rights("carol").await.superuser);
        assert_eq!(groups.rights("dave").await.groups.len(), 0);
        assert!(groups.rights("hdfs").await.superuser);
    }

    #[tokio::test]
    async fn the_system_is_asked_and_strangers_have_no_groups() {
        let groups = groups(None);
        assert_eq!(&*groups.rights("root").await.groups, ["root".to_owned()]);
        assert_eq!(groups.rights("nobody-of-that-name; id").await.groups.len(), 0);
        assert_eq!(groups.rights("-u").await.groups.len(), 0);
    }
}
