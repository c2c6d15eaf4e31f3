//! Groups of users: from configuration, else from the operating system; cached for a while.

use std::collections::HashMap;
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use hearth_types::Clock;
use parking_lot::Mutex;
use tokio::sync::Semaphore;

/// Limit of cached users.
const USERS_MAX: usize = 10_000;
/// Time-out of a lookup; a directory service that takes longer counts as failed.
const LOOKUP_TIMEOUT: Duration = Duration::from_secs(10);
/// Lifetime in the cache of a missing user, and of the previous groups of a user whose lookup failed.
const NEGATIVE_LIFETIME: Duration = Duration::from_secs(30);
/// Limit of concurrent lookups in the system.
const LOOKUPS_MAX: usize = 16;

/// A user's groups and superuser status: all rights that do not depend on paths.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rights {
    pub groups: Arc<[String]>,
    pub superuser: bool,
}

/// Cache of users' groups.
pub struct Groups {
    /// The user that runs this process: a superuser.
    owner: String,
    /// Group whose members are superusers.
    supergroup: String,
    /// `hadoop.user.group.static.mapping.overrides`.
    fixed: HashMap<String, Arc<[String]>>,
    lifetime: Duration,
    clock: Arc<dyn Clock>,
    /// Rights with the time until which they are valid. Expired rights are used if no newer ones can be obtained.
    known: Mutex<HashMap<String, (Duration, Rights)>>,
    /// Users with a lookup in progress: concurrent callers wait for its result.
    in_flight: Mutex<HashMap<String, Arc<tokio::sync::Mutex<()>>>>,
    lookups: Semaphore,
}

/// Result of a lookup in the system.
enum LookupResult {
    Groups(Vec<String>),
    /// No user has that name.
    NoSuchUser,
    /// The lookup failed, or took too long.
    Failed,
}

/// Guard of a caller that looks a user up, or waits for another caller's lookup.
struct LookupGuard<'a> {
    groups: &'a Groups,
    user: &'a str,
    /// `None` when the lookup is over.
    turn: Option<Arc<tokio::sync::Mutex<()>>>,
}

impl Drop for LookupGuard<'_> {
    fn drop(&mut self) {
        let mut asking = self.groups.in_flight.lock();
        self.turn = None;
        // The only reference is the table's own: no other caller waits.
        if asking.get(self.user).is_some_and(|turn| Arc::strong_count(turn) == 1) {
            asking.remove(self.user);
        }
    }
}

impl Groups {
    /// Creates the cache. `overrides`: `user=group1,group2;user2=;...`; `lifetime`: of the system's answers.
    pub fn new(
        owner: String,
        supergroup: String,
        overrides: Option<&str>,
        lifetime: Duration,
        clock: Arc<dyn Clock>,
    ) -> Self {
        let fixed = overrides.map(parse_overrides).unwrap_or_default();
        let (known, in_flight, lookups) = (Mutex::default(), Mutex::default(), Semaphore::new(LOOKUPS_MAX));
        Self { owner, supergroup, fixed, lifetime, clock, known, in_flight, lookups }
    }

    pub fn owner(&self) -> &str {
        &self.owner
    }

    pub fn supergroup(&self) -> &str {
        &self.supergroup
    }

    /// Returns the rights of a user; an unknown user has no groups.
    pub async fn rights(&self, user: &str) -> Rights {
        if let Some(rights) = self.known(user) {
            return rights;
        }
        if let Some(groups) = self.fixed.get(user) {
            return self.note(user, groups.clone(), self.lifetime);
        }
        let asking = self.join_lookup(user);
        let _turn = match &asking.turn {
            Some(turn) => Some(turn.lock().await),
            None => None,
        };
        if let Some(rights) = self.known(user) {
            return rights;
        }
        let briefly = NEGATIVE_LIFETIME.min(self.lifetime);
        match self.look_up(user).await {
            LookupResult::Groups(groups) => self.note(user, groups.into(), self.lifetime),
            LookupResult::NoSuchUser => self.note(user, [].into(), briefly),
            LookupResult::Failed => {
                let before = self.known.lock().get(user).map(|(_, rights)| rights.groups.clone());
                self.note(user, before.unwrap_or_default(), briefly)
            }
        }
    }

    /// Returns cached rights that are still valid.
    fn known(&self, user: &str) -> Option<Rights> {
        let now = self.clock.monotonic();
        self.known.lock().get(user).filter(|(until, _)| now < *until).map(|(_, rights)| rights.clone())
    }

    fn join_lookup<'a>(&'a self, user: &'a str) -> LookupGuard<'a> {
        let turn = self.in_flight.lock().entry(user.to_owned()).or_default().clone();
        LookupGuard { groups: self, user, turn: Some(turn) }
    }

    async fn look_up(&self, user: &str) -> LookupResult {
        let told = async {
            let _place = self.lookups.acquire().await;
            ask_system(user).await
        };
        tokio::time::timeout(LOOKUP_TIMEOUT, told).await.unwrap_or_else(|_| {
            tracing::warn!(user, "the lookup of a user's groups timed out");
            LookupResult::Failed
        })
    }

    /// Caches the groups for `lifetime`.
    fn note(&self, user: &str, groups: Arc<[String]>, lifetime: Duration) -> Rights {
        let superuser = user == self.owner || groups.contains(&self.supergroup);
        let rights = Rights { groups, superuser };
        let now = self.clock.monotonic();
        let mut known = self.known.lock();
        if known.len() >= USERS_MAX && !known.contains_key(user) {
            known.retain(|_, (until, _)| now < *until);
            let one = if known.len() >= USERS_MAX { known.keys().next().cloned() } else { None };
            one.and_then(|one| known.remove(&one));
        }
        known.insert(user.to_owned(), (now + lifetime, rights.clone()));
        rights
    }

    /// Invalidates the system's answers: the next call looks the user up again.
    pub fn refresh(&self) {
        self.known.lock().values_mut().for_each(|(until, _)| *until = Duration::ZERO);
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

/// Looks a user up with `id`, as Hadoop's own shell mapping does: it uses every directory service that the machine is
/// configured for.
async fn ask_system(user: &str) -> LookupResult {
    if user.is_empty() || user.contains('\0') {
        return LookupResult::NoSuchUser;
    }
    let mut command = tokio::process::Command::new("id");
    command.args(["-Gn", "--", user]).stdin(Stdio::null()).stderr(Stdio::null()).kill_on_drop(true);
    match command.output().await {
        Ok(output) if output.status.success() => LookupResult::Groups(
            String::from_utf8_lossy(&output.stdout).split_whitespace().map(str::to_owned).collect(),
        ),
        Ok(_) => LookupResult::NoSuchUser,
        Err(error) => {
            tracing::warn!(user, %error, "cannot look up a user's groups with `id`");
            LookupResult::Failed
        }
    }
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
    async fn system_groups_and_unknown_users() {
        let groups = groups(None);
        assert_eq!(&*groups.rights("root").await.groups, ["root".to_owned()]);
        assert_eq!(groups.rights("nobody-of-that-name; id").await.groups.len(), 0);
        assert_eq!(groups.rights("-u").await.groups.len(), 0);
    }
}
